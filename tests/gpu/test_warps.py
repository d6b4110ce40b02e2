"""What the lanes of a warp do together: the code for it, and mistakes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import harness
from support.gpu_cases import CASES

from einkorn.compiler.interpreter.entry import Interpreted
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError

KERNEL = """
from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, float32, gpu, register
from einkorn.stdlib import Sum

def thread(out, x):
    i = gpu.thread_idx.x
    v = x[i]
    {}
    out[i] = v

@register("op")
def op(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    ctx.launch(thread, out, x, grid=1, block=40)
"""
CASE = {case.name: case for case in CASES}


@pytest.fixture
def kernel(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "kernel.py").write_text(KERNEL.format(text))
        return tmp_path / "kernel.py"

    return write


def failure(path: Path, target: str = "sm_80") -> EinkornError:
    with pytest.raises(EinkornError) as caught:
        harness.compile_kernel(path, "op", [(DType.float32, (40,))], target=target)
    return caught.value


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("v = gpu.warp.shuffle_up(x, 1)", "EK0204", "not on the tensor"),
        ("v = gpu.warp.shuffle_up((v, x), 1)[0]", "EK0204", "not on the tensor"),
        ("v = gpu.warp.shuffle_idx(v, v)", "EK0202", "lane= of gpu.warp.shuffle_idx is an Int, not Float32"),
        ("v = gpu.warp.broadcast(v, i)", "EK0645", "lane= is a compile-time number from 0 to 31 here, not Int"),
        ("v = gpu.warp.broadcast(v, 32)", "EK0645", "from 0 to 31 here, not the compile-time int 32"),
        (
            "v = gpu.warp.reduce(x, Sum)",
            "EK0208",
            "'gpu.warp.reduce' works on a value of each thread, not on the tensor",
        ),
        ("v = gpu.block.scan(v, 3)", "EK0208", "'gpu.block.scan' takes a monoid, not the compile-time int 3"),
        ("v = gpu.block.reduce((v, 1), Sum)", "EK0215", "a value of a thread has a type"),
        ("v = gpu.block.broadcast(v, 40)", "EK0215", "thread= is the number of a thread of the block"),
        ("v = float32(gpu.warp.any(v))", "EK0202", "gpu.warp.any takes a Bool, not Float32"),
    ],
)
def test_mistakes(kernel: Callable[[str], Path], text: str, code: str, message: str) -> None:
    error = failure(kernel(text))
    assert error.code == code and message in error.message, error
    assert error.place is not None and error.place.line == 8


def test_an_infinity_is_made_of_pythons(kernel: Callable[[str], Path]) -> None:
    error = failure(kernel("v = max(v, -float32.inf)"))
    assert (error.code, error.hint) == ("EK0113", "from math import inf; then float32(inf)")


def test_outside_of_a_launch(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.format("pass").replace("    ctx.launch", "    v = gpu.warp.ballot(True)\n    ctx.launch"))
    assert failure(path).code == "EK0114"


def test_lanes_that_part(kernel: Callable[[str], Path]) -> None:
    """Where the compiler lets it pass, the interpreter finds it."""
    path = kernel("if i != 3:\n        v = gpu.warp.shuffle_up(v, 1)")
    spec, _ = harness.entry_of(path, "op", [(DType.float32, (40,))])
    arrays: list[Any] = [np.zeros(40, np.float32), np.zeros(40, np.float32)]
    try:
        program = typed_program(spec, lookup("sm_80"))
    except EinkornError as error:
        assert error.code == "EK0621"
        return
    with pytest.raises(KernelError, match=r"the threads of a warp part .*: 31 wait, 1 have ended"):
        Interpreted(program, spec).run(arrays, [], lambda site, values: None)


def test_a_result_for_all_may_decide_for_all(kernel: Callable[[str], Path]) -> None:
    """What a block or a warp gets is equal in its threads: a barrier may stand under it, or a call of the warp."""
    text = """if gpu.block.reduce(v, Sum) > 0 and gpu.block.broadcast(v, 3) > 0:
        gpu.barrier()
    if gpu.warp.reduce(v, Sum) > gpu.warp.broadcast(v, 3) and gpu.warp.any(v > 0):
        v = gpu.warp.shuffle_up(v, 1)"""
    path = kernel(text)
    spec, _ = harness.entry_of(path, "op", [(DType.float32, (40,))])
    for target in ("sm_80", "gfx942", "host"):
        typed_program(spec, lookup(target))


def test_constants_are_one_instruction() -> None:
    """A warp that is full takes no arithmetic on lanes; 64 bits are two shuffles, all that is narrower is one."""
    for name, count in (("float32 64", 1), ("dtypes", 2 + 2 + 5)):
        asm = CASE[f"warps shuffle {name}"].compile("sm_90a").asm
        assert len(re.findall(r"shfl\.sync\.up\.b32\s+\S+, \S+, 1, 0, -1;", asm)) == count
        assert len(re.findall(r"shfl\.sync\.bfly\.b32\s+\S+, \S+, 16, 31, -1;", asm)) == count
        assert "%laneid" in asm and "activemask" not in asm  # for the lanes that are known at run time


def test_the_lanes_of_a_partial_warp() -> None:
    """A block of 20 threads is one warp of 20 lanes; of one of 100, the last warp has 4, and the masks are chosen."""
    assert "1048575" in CASE["warps shuffle int64 20"].compile("sm_90a").asm
    asm = CASE["warps shuffle int32 100"].compile("sm_90a").asm
    assert re.search(r"selp\.b32\s+%r\d+, 15, -1", asm)
