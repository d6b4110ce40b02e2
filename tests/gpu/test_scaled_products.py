"""Products with scales: what is refused, what multiplies, what the code is, and its results by other interpreters than
those of all cases."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import harness, ptx, simulated
from support.gpu_case import GpuCase
from support.gpu_cases_scaled import CASES, E4M3, E5M2, TENSOR, WIDE, packed, scaled
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator

TEXT = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float16, float32, gpu, register
from einkorn.dsl import float4_e2m1fn, float8_e4m3fn, float8_e8m0fnu, int4, uint8

def tiles(out, x):
    a = gpu.shared[{elements}](32, {depth})
    b = gpu.shared[{elements}]({depth}, 32)
    s = gpu.shared[{scales}](32, 2)
    t = gpu.shared[{scales}](2, 32)
    sums = gpu.tile[float32](32, 32)
    sums = gpu.dot(a, b, sums, scales={given})
    sums.store(out.tile(0, 0, (32, 32)))

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(tiles, out, x, grid=1, block=64)
"""
PACKED = {"elements": "uint8", "depth": "32"}
PLAIN = {"elements": "float8_e4m3fn", "scales": "float8_e8m0fnu", "depth": "64", "given": "(s, t)"}
REFUSED = {
    "one matrix": ({"given": "s"}, "EK0653"),
    "numbers": ({"given": "(1.0, 2.0)"}, "EK0653"),
    "half floats": ({"elements": "float16"}, "EK0655"),
    "scales of another dtype": ({"scales": "float32"}, "EK0655"),
    "parts of blocks": ({"depth": "48"}, "EK0654"),
    "another size": ({"depth": "128"}, "EK0654"),
    "exchanged": ({"given": "(t, s)"}, "EK0654"),
    "a precision": ({"given": "(s, t), precision='fast'"}, "EK0655"),
    "bytes": (PACKED, "EK0655"),
    "bytes of other elements": (PACKED | {"given": "(s, t), packed=int4"}, "EK0655"),
    "bytes of no dtype": (PACKED | {"given": "(s, t), packed=True"}, "EK0655"),
    "no bytes": ({"given": "(s, t), packed=float4_e2m1fn"}, "EK0655"),
    "bytes without scales": (PACKED | {"given": "None, packed=float4_e2m1fn"}, "EK0653"),
    "more scales": (PACKED | {"given": "(s, t), packed=float4_e2m1fn", "scales": "float8_e4m3fn"}, "EK0654"),
    "scales of two dtypes": (
        PACKED | {"given": "(gpu.shared[float8_e4m3fn](32, 4), t), packed=float4_e2m1fn"},
        "EK0655",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    change, code = REFUSED[name]
    path = tmp_path / "kernel.py"
    path.write_text(TEXT.format(**(PLAIN | change)))
    types = [(DType.float32, (32, 32))]
    with pytest.raises(EinkornError) as refused:
        typed_program(harness.entry_of(path, "op", types, {}, types)[0], lookup("sm_90a"))
    error = refused.value
    assert (error.code, error.place.line if error.place else 0) == (code, 11), str(error)


AT_ONCE = "as gpu.dot gives its sums at once, and tensor memory is for gpu.dot_async"


def test_the_sizes_of_scales_are_named(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(TEXT.format(**(PLAIN | {"depth": "128"})))
    types = [(DType.float32, (32, 32))]
    with pytest.raises(EinkornError, match="the scales of a are 32 x 2, and its blocks 32 x 4"):
        typed_program(harness.entry_of(path, "op", types, {}, types)[0], lookup("sm_90a"))


STAGED = scaled(E4M3, 33, 20, 160, op="staged", M=32, N=16, K=128, threads=64)
WHY = {
    "sm_120a": "mma.sync.m16n8k32.float8_e4m3fn.scaled_by_32",
    "sm_90a": "elements: not mma.sync.m16n8k32.float8_e4m3fn.scaled_by_32, as sm_90a has no block_scaled_mma",
    "gfx950": "mfma.16x16x128.float8_e4m3fn.scaled_by_32",
    "gfx942": "elements: not mfma.16x16x128.float8_e4m3fn.scaled_by_32, as gfx942 has no mfma_32_bytes",
    "sm_100a": "mma.sync.m16n8k32.float8_e4m3fn, whose sums of 32 neighbours are scaled: "
    f"not tcgen05.m128k32.float8_e4m3fn.scaled_by_32, {AT_ONCE}; "
    "not mma.sync.m16n8k32.float8_e4m3fn.scaled_by_32, as sm_100a has no block_scaled_mma",
    "gfx1201": "wmma.16x16x16.float8_e4m3fn.parts, whose sums of 32 neighbours are scaled: "
    "gfx1201 has no matrix instruction of float8_e4m3fn with scales of 32 neighbours",
    "sim:sm_120a": "elements: a simulated GPU multiplies them one by one, so that each access is checked",
}
OF_BYTES = {
    ("sm_120a", 32): "mma.sync.m16n8k64.float4_e2m1fn.scaled_by_32",
    ("sm_120a", 16): "mma.sync.m16n8k64.float4_e2m1fn.scaled_by_16",
    ("gfx950", 32): "mfma.16x16x128.float4_e2m1fn.scaled_by_32",
    ("gfx950", 16): "elements: gfx950 has no matrix instruction of float4_e2m1fn with scales of 16 neighbours",
    ("sm_100a", 16): f"elements: not tcgen05.m128k64.float4_e2m1fn.scaled_by_16, {AT_ONCE}; "
    "not mma.sync.m16n8k64.float4_e2m1fn.scaled_by_16, as sm_100a has no block_scaled_mma",
}


@pytest.mark.parametrize(("target", "block"), OF_BYTES)
def test_typed_programs_say_what_multiplies_halves_of_bytes(target: str, block: int) -> None:
    program = str(typed_program(packed(block, 20, 40, 256).spec(), lookup(target)))
    assert f"'product': '{OF_BYTES[target, block]}'" in program


@pytest.mark.parametrize("target", WHY)
def test_typed_programs_say_what_multiplies(target: str) -> None:
    assert f"'product': '{WHY[target]}'" in str(typed_program(STAGED.spec(), lookup(target)))


def test_sizes_that_an_instruction_does_not_take() -> None:
    """32 neighbours are a step of NVIDIA's instruction, and a quarter of one of AMD's."""
    case = scaled(E4M3, 17, 33, 96, M=16, N=32, K=96)
    reason = "not mfma.16x16x128.float8_e4m3fn.scaled_by_32, as the inner size of 96 is not a multiple of 128"
    words = f"mfma.16x16x32.float8_e4m3fn, whose sums of 32 neighbours are scaled: {reason}"
    assert f"'product': '{words}'" in str(typed_program(case.spec(), lookup("gfx950")))
    assert f"'product': '{WHY['sm_120a']}'" in str(typed_program(case.spec(), lookup("sm_120a")))


@pytest.mark.parametrize("case", WIDE, ids=str)
def test_results_as_ptx(case: GpuCase) -> None:
    case.check(run_changed(case, "sm_120a"))


@pytest.mark.parametrize(
    ("target", "case"),
    [
        *(("sm_120a", WIDE[0]), ("sm_120a", WIDE[2]), ("gfx950", CASES[4]), ("gfx950", WIDE[1])),
        *(("sm_100a", CASES[2]), ("gfx950", CASES[2]), ("gfx1201", CASES[2])),
    ],
    ids=str,
)
def test_results_of_the_typed_program(target: str, case: GpuCase) -> None:
    """The interpreter has the places of scales from the manuals, apart from the compiler."""
    case.check(case.interpret(target), lookup(target).lanes)


@pytest.mark.parametrize("case", [CASES[1], WIDE[0]], ids=str)
def test_results_of_scaled_sums_as_ptx(case: GpuCase) -> None:
    """Of an instruction without scales for each block."""
    case.check(run_changed(case, "sm_100a"))


@pytest.mark.parametrize("like", ["sm_120a", "gfx950"])
@pytest.mark.parametrize("case", [WIDE[-1], CASES[5]], ids=str)
def test_results_on_a_simulated_gpu(case: GpuCase, like: str) -> None:
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
    device = Accelerator("sim", like=like, seed=1, checks="all")
    simulated.run_unit(case.spec(), device, [*(array.copy() for array in case.inputs()), *outputs], outputs=1)
    case.check(outputs)


def run_changed(case: GpuCase, target: str, pattern: str = "", to: str = "") -> list[Any]:
    """What a kernel gives as PTX in which something was changed."""
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode()) if pattern else (text.decode(), 1)
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), target, run, [*(array.copy() for array in case.inputs()), *outputs])
    return outputs


def test_steps_take_the_bytes_of_their_scales() -> None:
    """Lanes bring the scales of four steps at once; with those of the first step for all the result is another."""
    text = STAGED.compile("sm_120a").asm
    selected = re.findall(r"block_scale\S+ .*\{(\d), 0\}, \S+, \{(\d), 0\};", text)
    assert set(selected) == {(f"{k}", f"{k}") for k in range(4)}
    with pytest.raises(AssertionError):
        STAGED.check(run_changed(STAGED, "sm_120a", r"\{3, 0\}", "{0, 0}"))


def test_the_interpreter_of_ptx_refuses_lanes_that_bring_no_scales() -> None:
    with pytest.raises(ptx.PtxError, match="selects no scales"):
        run_changed(STAGED, "sm_120a", r"\{3, 0\}", "{3, 5}")


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("case", (CASES[2], *WIDE[:3]), ids=str)
def test_ptxas_translates_it_without_spills(tmp_path: Path, case: GpuCase) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    source.write_text(case.compile("sm_120a").asm)
    command = [ptxas, "-v", "--gpu-name=sm_120a", str(source), f"--output-file={tmp_path / 'cubin'}"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, report


def test_the_code_for_amd() -> None:
    """The formats of both operands, and a scale in the lowest byte of a register; a step has 128 elements."""
    sizes = {"M": 16, "N": 16, "K": 128, "threads": 64}
    e4m3, e5m2 = (scaled(each, 16, 16, 128, op="staged", **sizes).compile("gfx950").asm for each in (E4M3, E5M2))
    e2m1 = packed(32, 16, 16, 256, M=16, N=16).compile("gfx950").asm
    instruction = r"v_mfma_scale_f32_16x16x128_f8f6f4 .*op_sel_hi:\[0,0,0\]"
    assert re.search(instruction + "\n", e4m3) and re.search(instruction + " cbsz:1 blgp:1\n", e5m2)
    assert re.search(instruction + " cbsz:4 blgp:4\n", e2m1)


# *** products under way ***

BEGUN = TENSOR[0]


@pytest.mark.parametrize("case", TENSOR, ids=str)
def test_products_under_way_as_ptx_and_on_a_cpu(case: GpuCase) -> None:
    """In tensor memory, where their scales lie as well."""
    assert re.search(r"'product': 'tcgen05\.m128k\d+\.\w+\.scaled_by_\d+'", str(typed(case)))
    case.check(run_changed(case, "sm_100a"))
    case.check(case.run())


def typed(case: GpuCase, target: str = "sm_100a") -> Any:
    return typed_program(case.spec(), lookup(target))


def test_products_under_way_of_the_typed_program() -> None:
    """Where a lane has which scale is written apart from the compiler."""
    for case in (
        scaled(E4M3, 20, 48, 128, op="begun", M=128, N=48, K=128),
        packed(16, 20, 16, 128, op="begun", M=128, N=16, K=128),
    ):
        case.check(case.interpret("sm_100a"))


@pytest.mark.parametrize("case", TENSOR[::4], ids=str)
def test_products_under_way_on_a_simulated_gpu(case: GpuCase) -> None:
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
    device = Accelerator("sim", like="sm_100a", seed=1, checks="all")
    simulated.run_unit(case.spec(), device, [*(array.copy() for array in case.inputs()), *outputs], outputs=1)
    case.check(outputs)


@pytest.mark.parametrize(
    ("target", "words"),
    {
        "sm_90a": "elements: not mma.sync.m16n8k32.float8_e4m3fn.scaled_by_32, as sm_90a has no block_scaled_mma",
        "sm_120a": "mma.sync.m16n8k32.float8_e4m3fn.scaled_by_32",
        "gfx950": "mfma.16x16x128.float8_e4m3fn.scaled_by_32",
    }.items(),
)
def test_products_under_way_are_done_at_once_elsewhere(target: str, words: str) -> None:
    assert f"'product': '{words}'" in str(typed(BEGUN, target))


WHY_NOT = {
    "an odd number of scales": (scaled(E4M3, 64, 32, 64, op="begun", M=128, N=32, K=64), "2 scales along the inner"),
    "rows": (scaled(E4M3, 64, 32, 128, op="begun", M=64, N=32), "the sums are not a multiple of 128 rows"),
}


@pytest.mark.parametrize("name", WHY_NOT)
def test_products_that_tensor_memory_does_not_take(name: str) -> None:
    case, words = WHY_NOT[name]
    assert words in str(typed(case))
    case.check(case.run())


CHANGED = {
    "one place for products under way": (r"selp\.b32(\s+\S+) 37, 32,", r"selp.b32\1 32, 32,", AssertionError, None),
    "scales of another step": (r"mov\.b32 what, 680001552;", "mov.b32 what, 143130624;", AssertionError, None),
    "scales of the other matrix": (r"add\.u32 left, (\S+), 0;", r"add.u32 left, \1, 4;", AssertionError, None),
    "fewer columns": (r"(alloc\S+ \[\S+\]), 64;", r"\1, 32;", ptx.PtxError, "does not write lane"),
    "lanes of another warp": (r"(and\.b32\s+\S+ \S+) 6291456;", r"\1 0;", ptx.PtxError, "does not write lane"),
    "other scales": (r"what, 143130624;", "what, 134742016;", ptx.PtxError, "formats of scales are not known"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_mistakes_with_scales_in_tensor_memory_are_found(name: str) -> None:
    pattern, to, error, message = CHANGED[name]
    with pytest.raises(error, match=message):
        BEGUN.check(run_changed(BEGUN, "sm_100a", pattern, to))


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ["sm_100a", "sm_103a", "sm_110a"])
def test_ptxas_translates_products_under_way(tmp_path: Path, target: str) -> None:
    """Each format in whole tiles, without spills."""
    sizes = {"op": "begun", "M": 128, "N": 96, "K": 256}
    whole = [scaled(E4M3, 256, 96, 512, op="begun", M=128, N=96, K=128)]
    whole += [packed(block, 256, 96, 1024, **sizes) for block in (16, 32)]
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in (*whole, *TENSOR):
        source.write_text(case.compile(target).asm)
        command = [ptxas, "-v", f"--gpu-name={target}", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert case in TENSOR or "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, report
