"""Copies by tensor maps: which tiles are copied so and why not others, the code, and what mistakes in it do.

That results are right is what the cases of `support.gpu_cases_maps` say, where all GPU test kernels are run.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import harness, ptx, tensor_maps
from support.gpu_case import GpuCase
from support.gpu_cases_maps import CASES, several, staged
from support.launching_device import run_unit
from support.ptx_device import run_ptx
from support.tensor_maps import Refused, TensorMap, read_map

from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError

BF16 = ml_dtypes.bfloat16
HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, bfloat16, float32, gpu, register
from einkorn.stdlib import Layout

def copied(out, x):
{}

@register("op")
def op(out: OutputTensor[bfloat16, "m n"], x: InputTensor[bfloat16, "{}"], ctx: DeviceContext):
    ctx.launch(copied, out, x, grid=1, block=64)
"""
COPY = "gpu.copy_async({}, {}).wait()\ngpu.barrier()\ngpu.load(s).store(out.tile(0, 0, (16, 64)))"
DOT = 's = gpu.shared[bfloat16](16, 64, layout="dot")\n'
TILE = COPY.format("s", "x.tile(0, 0, (16, 64))")


def how(folder: Path, text: str, shape: tuple[int, ...], target: str = "sm_90a", axes: str = "m n") -> list[str]:
    """In words, how the tiles of a kernel are copied."""
    file = folder / "kernel.py"
    file.write_text(HEAD.format("\n".join(f"    {line}" for line in text.split("\n")), axes))
    rows = shape[axes.split().index("m")]
    types = [[(DType.bfloat16, each)] for each in (shape, (rows, shape[-1]))]
    program = typed_program(harness.entry_of(file, "op", types[0], {}, types[1])[0], lookup(target))
    ops = [op for function in program.functions for op in walk(function.body)]
    return [op.attrs["copies"] for op in ops if "copies" in op.attrs]


MAP = "by a tensor map: boxes of 16 x 64, pieces exchanged within 128 bytes; elements where hardware takes no map"
CHOICES = {
    "a layout for products": (DOT + TILE, (40, 128), "m n", MAP),
    "rows of unknown sizes": (DOT + TILE, (40, 136), "m n", MAP),
    "a slice of three axes": (DOT + TILE.replace("x.", "x[1, :, :]."), (3, 40, 128), "b m n", MAP),
    "rows of the second axis": (DOT + TILE.replace("x.", "x[:, 1, :]."), (40, 3, 128), "m b n", MAP),
    "rows side by side": (
        "s = gpu.shared[bfloat16](16, 64)\n" + TILE,
        (40, 128),
        "m n",
        "by a tensor map: boxes of 16 x 64; elements",
    ),
    "rows of the tensor are those of the tile": (
        "s = gpu.shared[bfloat16](16, 64)\n" + TILE,
        (40, 64),
        "m n",
        "in bulk: 2048 bytes at once",
    ),
    "a slice that may end early": (
        DOT + TILE.replace("x.", "x[3:12, :]."),
        (40, 128),
        "m n",
        "not by a tensor map, as the tensor is a slice that may end before the memory",
    ),
    "a slice that begins in the kernel": (
        DOT + TILE.replace("x.", "x[gpu.block_idx.x, :, :]."),
        (3, 40, 128),
        "b m n",
        MAP,
    ),
    "a stride of odd bytes": (
        DOT + TILE,
        (40, 131),
        "m n",
        "elements: not asynchronously, as rows of the tensor are not whole pieces",
    ),
    "a layout of the author's": (
        "s = gpu.shared[bfloat16](16, 64, layout=Layout((16, 64), (64, 1)))\n" + TILE,
        (40, 128),
        "m n",
        "elements: not asynchronously, as fewer than 4 bytes",
    ),
    "bulk=False": (
        DOT + TILE.replace(").wait()", ", bulk=False).wait()"),
        (40, 128),
        "m n",
        "pieces of 16 bytes: not in bulk, as bulk=False says so",
    ),
    "a matrix of several": (
        DOT.replace("16, 64", "3, 16, 64") + TILE.replace("(s, ", "(s[1], ").replace("load(s)", "load(s[1])"),
        (40, 128),
        "m n",
        MAP,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHOICES)
def test_how_a_tile_is_copied(tmp_path: Path, name: str) -> None:
    text, shape, axes, words = CHOICES[name]
    found = how(tmp_path, text, shape, axes=axes)
    assert [words in each for each in found] == [True], found


@pytest.mark.parametrize(
    ("target", "words"),
    [("sm_100a", MAP), ("sm_120a", MAP), ("sm_90", "pieces of 16 bytes: not in bulk"), ("host", "")],
)
def test_targets_that_copy_so(tmp_path: Path, target: str, words: str) -> None:
    found = how(tmp_path, DOT + TILE, (40, 128), target)
    assert [each.startswith(words) for each in found] == [True] * bool(words), found


def test_a_copy_that_is_not_awaited_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EinkornError) as refused:
        how(tmp_path, DOT + TILE.replace(".wait()", ""), (40, 128))
    assert refused.value.code == "EK0622"


@pytest.mark.parametrize("given", ["bulk=1", "bulk=False, multicast=True"])
def test_other_values_of_bulk_are_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(EinkornError) as refused:
        how(tmp_path, DOT + TILE.replace(").wait()", f", {given}).wait()"), (40, 128))
    assert refused.value.code in ("EK0646", "EK0659")


def test_the_code_of_a_copy() -> None:
    asm = str(staged(BF16, 40, 200, N=128, stages=2).compile("sm_90a").asm)
    assert ".param .align 64 .b8" in asm and "prefetch.tensormap" in asm
    assert asm.count("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes") % 2 == 0
    assert "cp.async.bulk.tensor.5d" in str(several("of_five", BF16, 2, 1, 3, 18, 48).compile("sm_90a").asm)
    assert ".tensor" not in str(staged(BF16, 40, 200).compile("sm_80").asm)


@pytest.mark.parametrize("copied", ("x", "out"))
def test_copies_wait_for_stores_into_the_tensor_alone(tmp_path: Path, copied: str) -> None:
    """A fence for global memory takes long, and orders stores into the tensor that is copied."""
    text = (
        DOT + f"t = gpu.load({copied}.tile(0, 0, (16, 64)))\n(t + t).store(out.tile(0, 0, (16, 64)))\ngpu.barrier()\n"
    )
    file = tmp_path / "kernel.py"
    text += TILE.replace("x.", f"{copied}.")
    file.write_text(HEAD.format("\n".join(f"    {line}" for line in text.split("\n")), "m n"))
    types = [(DType.bfloat16, (40, 128))]
    asm = str(harness.compile_kernel(file, "op", types, {}, types, "sm_90a", 3)[0].asm)
    assert "cp.async.bulk.tensor" in asm and ("fence.proxy.async;" in asm) == (copied == "out")


# ptxas 13.0 stores a word of this kernel on the stack, although it uses 56 registers of 255.
SPILLED = ("sm_100a", "map-to-all[float32-70x40-blocks4-laid_outFalse-M64-N16]")


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("target", ("sm_90a", "sm_100a"))
def test_nothing_is_spilled(target: str, tmp_path: Path) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in CASES:
        source.write_text(str(case.compile(target).asm))
        command = [ptxas, "-v", f"--gpu-name={target}", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        spilled = 4 if (target, str(case)) == SPILLED else 0
        assert f"{spilled} bytes spill stores, {spilled} bytes spill loads" in report, (case, report)


# *** mistakes in the code ***


def changed(case: GpuCase, pattern: str, to: str) -> list[Any]:
    """What a case gives as PTX in which something was changed."""
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode())
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), "sm_90a", run, [*(array.copy() for array in case.inputs()), *outputs])
    return outputs


LOOK = r"mbarrier\.try_wait\.parity\.shared::cta\.b64 p, \[[^]]*\], %r\d+;"


def test_results_depend_on_the_waits() -> None:
    """Copies are as late as they may be: without the wait something else is read."""
    case = staged(BF16, 40, 200)
    case.check(changed(case, LOOK, r"\g<0>"))
    with pytest.raises(AssertionError):
        case.check(changed(case, LOOK, "setp.eq.b32 p, 1, 1;"))


@pytest.mark.parametrize(
    ("pattern", "to", "message"),
    [
        (r"(mbarrier\.expect_tx[^;]*, )(%r\d+)(;)", r"\g<1>1040\3", "announced bytes have not been copied"),
        (r"(mbarrier\.arrive[^;]*;)", r"\1 \1", "more threads arrive"),
        (r"(complete_tx::bytes \[%rd\d+)\]", r"\1+16]", "not a multiple of 128"),
        (r"(complete_tx::bytes [^;]*, \[%rd\d+)\]", r"\1+8]", "there is no barrier|have not been copied"),
        (r"(\[%rd\d+), \{", r"\1+64, {", "is not the address of a parameter"),
        (r"\{(%r\d+), (%r\d+)\}", r"{\1}", "1 coordinates"),
    ],
)
def test_the_interpreter_of_ptx_finds_mistakes(pattern: str, to: str, message: str) -> None:
    with pytest.raises(ptx.PtxError, match=message):
        changed(staged(BF16, 40, 200), pattern, to)


def test_a_layout_without_the_exchange_gives_other_results() -> None:
    """The exchange that hardware makes is the one that reads undo."""
    case = staged(np.float16, 37, 136, N=64, M=48)
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, launch: Any, memory: Any) -> None:
        plain = list(launch.arguments)
        for k, parameter in enumerate(launch.kernel.parameters):
            if parameter.kind == "map":
                made = read_map(plain[k].to_bytes(128, "little"))
                without = TensorMap(made.element, 0, made.address, made.sizes, made.strides, made.box)
                plain[k] = int.from_bytes(without.to_bytes(), "little")
        run_ptx(text, type(launch)(**{**vars(launch), "arguments": tuple(plain)}), memory)

    run_unit(case.spec(), "sm_90a", run, [*(array.copy() for array in case.inputs()), *outputs])
    with pytest.raises(AssertionError):
        case.check(outputs)


# *** maps ***

GOOD: dict[str, Any] = {
    "element": 2,
    "swizzle": 128,
    "address": 4096,
    "sizes": (128, 40),
    "strides": (256,),
    "box": (64, 16),
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": 4104},
        {"strides": (250,)},
        {"sizes": (0, 40)},
        {"box": (257, 16)},
        {"box": (60, 16)},
        {"box": (128, 16)},
        {"box": (64,)},
    ],
    ids=str,
)
def test_the_driver_of_the_tests_has_the_rules_of_a_real_one(wrong: dict[str, Any]) -> None:
    assert read_map(TensorMap(**GOOD).to_bytes()) == TensorMap(**GOOD)
    with pytest.raises(Refused):
        TensorMap(**GOOD | wrong)


def test_the_request_that_the_driver_refuses_ends_the_call() -> None:
    """As a launch that fails does: with the driver's code, and no kernel is launched."""
    case, ran = staged(BF16, 40, 200), []
    arrays = [case.inputs()[0].copy(), np.zeros((40, 200), BF16)]

    def refuse(*arguments: object) -> None:
        raise Refused("no map today")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_maps, "encode", refuse)
        with pytest.raises(Refused, match="no map today"):
            run_unit(case.spec(), "sm_90a", lambda *rest: ran.append(rest), arrays)
    assert not ran
