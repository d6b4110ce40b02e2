"""Products in tensor memory: which are such, what the code is, what is refused, what the interpreter of PTX refuses."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import harness, ptx, simulated
from support.gpu_case import GpuCase
from support.gpu_cases_groups import BF16, E4M3, TENSOR_CASES, product
from support.launching_device import run_unit
from support.ptx_device import run_ptx

from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.compiler.targets.nvptx import find_ptxas
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import Accelerator

TARGET = "sm_100a"
ROW = "tcgen05.m128k16.bfloat16"


def chosen(case: GpuCase, target: str = TARGET) -> set[str]:
    """What multiplies in a kernel."""
    program = typed_program(case.spec(), lookup(target))
    ops = [op for function in program.functions for op in walk(function.body)]
    return {op.attrs["product"] for op in ops if op.opcode.name == "together" and "product" in op.attrs}


WHY = {
    "128 rows": (product(BF16, 128, 64, 64, op="ahead", M=128), ROW),
    "64 rows": (product(BF16, 64, 64, 64, op="ahead"), f"not {ROW}, as the sums are not a multiple of 128 rows"),
    "at once": (product(BF16, 128, 64, 64, M=128), f"not {ROW}, as gpu.dot gives its sums at once"),
    "short steps": (product(E4M3, 128, 32, 64, op="ahead", M=128, N=32, K=16, b_turned=True), "the inner size of 16"),
    "bytes across": (product(np.int8, 128, 64, 64, op="ahead", M=128), "as b lies across the inner axis"),
}


@pytest.mark.parametrize("name", WHY)
def test_what_multiplies(name: str) -> None:
    case, words = WHY[name]
    found = chosen(case)
    assert found == {words} if words == ROW else any(words in each for each in found), found


@pytest.mark.parametrize("case", TENSOR_CASES, ids=str)
def test_results_as_ptx_and_on_a_cpu(case: GpuCase) -> None:
    assert all(re.fullmatch(r"tcgen05\.\S+", each) for each in chosen(case))
    case.check(run_changed(case))
    case.check(case.run())


@pytest.mark.parametrize("case", TENSOR_CASES[-4::3], ids=str)
def test_results_on_a_simulated_gpu(case: GpuCase) -> None:
    for seed in range(4):
        outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]
        device = Accelerator("sim", like=TARGET, seed=seed, checks="all")
        simulated.run_unit(case.spec(), device, [*(array.copy() for array in case.inputs()), *outputs], outputs=1)
        case.check(outputs)


def run_changed(case: GpuCase, pattern: str = "", to: str = "") -> list[Any]:
    """What a kernel gives as PTX in which something was changed."""
    outputs = [np.zeros(array.shape, array.dtype) for array in case.expected()]

    def run(text: bytes, *rest: Any) -> None:
        new, found = re.subn(pattern, to, text.decode()) if pattern else (text.decode(), 1)
        assert found
        run_ptx(new.encode(), *rest)

    run_unit(case.spec(), TARGET, run, [*(array.copy() for array in case.inputs()), *outputs])
    return outputs


AHEAD = product(BF16, 128, 64, 256, op="ahead", M=128)


@pytest.mark.as_shipped
def test_the_code_of_a_loop() -> None:
    """No registers for sums, one thread that begins products, memory that is taken and given back."""
    text = AHEAD.compile(TARGET).asm
    assert len(re.findall(r"tcgen05\.mma\.cta_group::1\.kind::f16", text)) == 4  # two steps in front, two in the loop
    order = [text.index(f"tcgen05.{each}") for each in ("alloc", "mma", "commit", "ld", "dealloc")]
    assert order == sorted(order)
    assert "mma.sync" not in text and "ldmatrix" not in text and ".local" not in text


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_nothing_is_spilled(tmp_path: Path) -> None:
    ptxas, source = find_ptxas(), tmp_path / "kernel.ptx"
    assert ptxas is not None
    for case in TENSOR_CASES[1:3]:
        source.write_text(case.compile(TARGET).asm)
        command = [ptxas, "-v", f"--gpu-name={TARGET}", str(source), f"--output-file={tmp_path / 'cubin'}"]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in report, (case, report)


MISTAKES = {
    "memory that is kept": (r"tcgen05\.dealloc\S+\s+\S+ \d+;", "", "tensor memory is not given back"),
    "other columns": (r"add\.u32 into, (\S+), 0;", r"add.u32 into, \1, 64;", "are not those of this block"),
    "fewer columns": (r"(alloc\S+ \[\S+\]), 64;", r"\1, 32;", "are not those of this block"),
    "lanes of others": (r"add\.u32 from, (\S+), 0;", r"add.u32 from, \1, 1048576;", "does not read lane"),
    "a description": (r"mov\.b32 what, (\d+);", r"mov.b32 what, 8;", "are not known"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_interpreter_of_ptx_finds_mistakes(name: str) -> None:
    pattern, to, message = MISTAKES[name]
    with pytest.raises(ptx.PtxError, match=message):
        run_changed(AHEAD, pattern, to)


@pytest.mark.parametrize("to", ["add", "new"])
def test_results_depend_on_whether_sums_are_added_to(to: str) -> None:
    with pytest.raises(AssertionError):
        AHEAD.check(run_changed(AHEAD, r"what, (add|new);", f"what, {to};"))


HEAD = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float16, float32, gpu, register

def tiles(out, x):
    s = gpu.shared[float16](128, 128, layout="dot")
    gpu.load(x.tile(0, 0, (128, 128))).cast(float16).store(s)
    gpu.barrier()
    t = gpu.tile[float32](128, 128)
    t.store(out.tile(0, 0, (128, 128)))
{}

@register("op")
def op(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(tiles, out, x, grid=2, block=128)
"""
FIRST = 10
REFUSED = {
    "no wait": ("gpu.dot_async(s, s, t)", 0, "EK0622", "this product may be under way when its kernel ends"),
    "an operand that it does not take": (
        "p = gpu.dot_async(s, s, t)\nq = gpu.dot_async(gpu.load(s), s, p)\nq.wait()",
        1,
        "EK0654",
        "in tensor memory, and this one cannot add to it",
    ),
    "products that change places": (
        "p = gpu.dot_async(s, s, t)\nq = gpu.dot_async(s, s, t)\nfor k in range(x.dim(0)):\n"
        "    p, q = gpu.dot_async(s, s, q), p\n(p.wait() - q.wait()).store(out.tile(0, 0, (128, 128)))",
        3,
        "EK0203",
        "tensor memory from column",
    ),
}


def typed(tmp_path: Path, text: str, target: str = TARGET) -> Any:
    file = tmp_path / "kernel.py"
    file.write_text(HEAD.format("\n".join(f"    {line}" for line in text.split("\n"))))
    types = [(DType.float32, (128, 128))]
    return typed_program(harness.entry_of(file, "op", types, {}, types)[0], lookup(target))


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path: Path, name: str) -> None:
    text, line, code, words = REFUSED[name]
    with pytest.raises(EinkornError) as refused:
        typed(tmp_path, text)
    error = refused.value
    assert error.code is not None and error.code.startswith(code) and words in str(error), str(error)
    assert error.place is not None and error.place.line == FIRST + line, str(error)


def test_columns_are_shared_out(tmp_path: Path) -> None:
    """Four products of 128 columns take all of them; a fifth one goes another way, and says why."""
    lines = [f"p{k} = gpu.dot_async(s, s, t)" for k in range(5)] + [f"p{k}.wait()" for k in range(5)]
    program = str(typed(tmp_path, "\n".join(lines)))
    assert program.count("'product': 'tcgen05.m128k16.float16'") == 4
    assert "as its 128 columns of tensor memory do not fit next to 512 of other products" in program
