"""Looking up targets, and what they say of themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from einkorn.compiler.codegen import llvm
from einkorn.compiler.targets import FEATURES, cpu, fits, host, known, lookup, nvptx
from einkorn.compiler.targets.base import split_intrinsic
from einkorn.dsl.diagnostics.errors import InternalError, TargetError

UNKNOWN = """\
error[EK0601]: unknown target 'sm_91'
note: known targets: host, x86-64-v2, x86-64-v3, x86-64-v4, aarch64, sm_75, sm_80, sm_86, sm_87, sm_89, sm_90, sm_90a, \
sm_100, sm_100a, sm_103, sm_103a, sm_110, sm_110a, sm_120, sm_120a, sm_121, sm_121a, gfx908, gfx90a, gfx942, gfx950, \
gfx1030, gfx1100, gfx1101, gfx1151, gfx1200, gfx1201
hint: did you mean 'sm_90' or 'sm_90a' or 'sm_89'?"""


def test_an_unknown_target_is_distinguished_from_all_others() -> None:
    with pytest.raises(TargetError) as caught:
        lookup("sm_91")
    assert str(caught.value).replace("'sm_89' or 'sm_90a'", "'sm_90a' or 'sm_89'") == UNKNOWN


@pytest.mark.parametrize("name", known())
def test_targets_agree_with_llvm(name: str) -> None:
    target = lookup(name)
    assert target.name == name and hash(target) == hash(lookup(name))
    assert set(target.capabilities) <= set(FEATURES)
    binding = llvm.library()
    processor, features = llvm.processor(target)
    machine = binding.Target.from_triple(target.triple).create_target_machine(
        cpu=processor, features=features, reloc="pic", codemodel="default"
    )
    assert str(machine.target_data) == target.data_layout
    assert target.has_context != target.has_grid
    assert target.vectorizes != target.has_grid


def test_llvm_has_every_processor() -> None:
    # LLVM only warns of a processor that it does not know, on standard error: behind the name of the target.
    script = (
        "import sys; from einkorn.compiler.codegen import llvm; from einkorn.compiler.targets import lookup\n"
        "for name in sys.argv[1:]:\n"
        "    print(name, file=sys.stderr, flush=True)\n"
        "    llvm.compile_module('define void @f() { ret void }', lookup(name))"
    )
    done = subprocess.run([sys.executable, "-c", script, *known()], capture_output=True, text=True, check=False)
    assert (done.returncode, tuple(done.stderr.splitlines())) == (0, known())


def test_code_for_this_machine_alone_is_optimised_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("host", "sim", "x86-64-v3", "sm_90a", "gfx942")
    usual = {name: lookup(name) for name in names}
    monkeypatch.setenv("EINKORN_OPTIMIZE", "0")
    assert [lookup(name).level for name in names] == [0, 0, 3, 3, 3]
    assert [name for name in names if lookup(name).key != usual[name].key] == ["host", "sim"]
    monkeypatch.setenv("EINKORN_OPTIMIZE", "3")
    assert {name: lookup(name) for name in names} == usual


def test_keys_distinguish_targets() -> None:
    keys = [lookup(name).key for name in known()]
    assert len(set(keys)) == len(keys)
    assert all(key.startswith(name) for key, name in zip(keys, known(), strict=True))


def test_the_hosts_key_needs_no_llvm() -> None:
    script = (
        "import sys; from einkorn.compiler.targets import host; print(host().key)\n"
        "assert not any(name.split('.')[0] in ('llvmlite', 'mlir', 'torch_mlir') for name in sys.modules)"
    )
    shown = {subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout for _ in range(2)}
    assert shown == {host().key + "\n"}


def test_what_this_machine_runs() -> None:
    assert fits("host")
    assert not any(fits(name) for name in known() if lookup(name).has_grid)
    here = cpu.machine()
    for name, flags in cpu.LEVELS.items():
        assert fits(name) == (here.architecture == "x86_64" and flags <= here.flags)
    assert fits("aarch64") == (here.architecture == "aarch64")
    assert not fits("x86-64-v9")


def test_levels_contain_each_other() -> None:
    levels = list(cpu.LEVELS.values())
    assert levels[0] < levels[1] < levels[2]
    assert lookup("x86-64-v3").supports("fma") and not lookup("x86-64-v2").supports("fma")
    assert [lookup(name).vector_bits for name in cpu.LEVELS] == [128, 256, 512]


def test_an_unknown_feature_is_an_error() -> None:
    with pytest.raises(TargetError) as caught:
        lookup("sm_90").supports("bf16_mm")
    assert caught.value.hint is not None and "'bf16_mma'" in caught.value.hint


def test_kernel_attributes() -> None:
    assert lookup("x86-64-v3").kernel_attributes((1,)) == ""
    assert lookup("sm_90").kernel_attributes((256,)) == "nvvm.kernel, nvvm.reqntid = array<i32: 256, 1, 1>"
    assert lookup("gfx942").kernel_attributes((16, 4)) == (
        'rocdl.kernel, rocdl.reqd_work_group_size = array<i32: 16, 4, 1>, rocdl.flat_work_group_size = "64,64"'
    )
    for block in ((2048,), (0,), (32, 32, 2), (1, 1, 128)):
        with pytest.raises(TargetError, match="does not fit sm_90"):
            lookup("sm_90").kernel_attributes(block)


@pytest.mark.parametrize(
    ("name", "base", "element"),
    [
        ("llvm.fma.v4f32", "llvm.fma", "f32"),
        ("llvm.memcpy.p0.p0.i64", "llvm.memcpy", "p0"),
        ("llvm.nvvm.f2bf16.rn", "llvm.nvvm.f2bf16.rn", None),
        ("llvm.vector.reduce.fadd.nxv4f16", "llvm.vector.reduce.fadd", "f16"),
        ("llvm.trap", "llvm.trap", None),
    ],
)
def test_names_of_intrinsics(name: str, base: str, element: str | None) -> None:
    assert split_intrinsic(name) == (base, element)


def test_a_missing_ptxas_is_distinguished_from_an_unknown_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvptx, "find_ptxas", lambda: None)
    with pytest.raises(TargetError, match="ptxas is not installed") as caught:
        nvptx.assemble("", lookup("sm_90"))
    assert caught.value.code == "EK0602"


@pytest.mark.skipif(nvptx.find_ptxas() is None, reason="ptxas is not installed")
def test_ptx_that_is_wrong_is_our_fault() -> None:
    ptx = ".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry f() { nonsense; }\n"
    with pytest.raises(InternalError, match=r"ptxas refused the code for sm_90: ptxas kernel.ptx, line 4"):
        nvptx.assemble(ptx, lookup("sm_90"))
