"""Asynchronous copies: that each is awaited on every way, what may be copied, and the code for it."""

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
from einkorn.compiler.ir.program import walk
from einkorn.compiler.pipeline import typed_program
from einkorn.compiler.targets import lookup
from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import EinkornError, KernelError

KERNEL = """
from einkorn.dsl import DeviceContext, InputTensor, Int, OutputTensor, float32, gpu, int32, register

def begin(tile, x, k):
    i = gpu.thread_idx.x
    gpu.copy_async(tile[4 * i : 4 * i + 4], x[k, 4 * i : 4 * i + 4])

def thread(out, x):
    i = gpu.thread_idx.x
    rows = x.dim(0)
    tile = gpu.shared[float32](128)
{}
    out[i] = tile[i]

@register("op")
def op(out: OutputTensor[float32, "32"], x: InputTensor[float32, "m 128"], ctx: DeviceContext):
    ctx.launch(thread, out, x, grid=1, block=32)
"""
FIRST = 12  # the line at which a test's text begins
TYPES = [(DType.float32, (7, 128))]

AWAITED = {
    "a token": "gpu.copy_async(tile[0:4], x[0, 0:4]).wait()",
    "a token for all": "begin(tile, x, 0)\ngpu.copy_async(tile[4:8], x[1, 4:8]).wait()",
    "a group": "begin(tile, x, 0)\ngpu.commit().wait()",
    "the newest group": "begin(tile, x, 0)\na = gpu.commit()\nbegin(tile, x, 1)\ngpu.commit()\na.wait()",
    "one behind the other": (
        "begin(tile, x, 0)\ngpu.commit()\nbegin(tile, x, 1)\nb = gpu.commit()\nb.wait(pending=1)\nb.wait(pending=0)"
    ),
    "in a loop": "for k in range(rows):\n    begin(tile, x, k)\n    gpu.commit().wait()",
    "behind a loop": "g = gpu.commit()\nfor k in range(rows):\n    begin(tile, x, k)\n    g = gpu.commit()\ng.wait()",
    "ahead in a loop": (
        "begin(tile, x, 0)\ng = gpu.commit()\nfor k in range(1, rows):\n    begin(tile, x, k)\n    h = gpu.commit()\n"
        "    g.wait(pending=1)\n    g = h\ng.wait()"
    ),
    "three ahead": (
        "g = gpu.commit()\nfor k in range(rows):\n    begin(tile, x, k)\n    g = gpu.commit()\n    g.wait(pending=3)\n"
        "g.wait(pending=2)\ng.wait(pending=1)\ng.wait()"
    ),
    "on both ways": (
        "begin(tile, x, 0)\ng = gpu.commit()\nif rows > 3:\n    g.wait()\nelse:\n    begin(tile, x, 1)\n"
        "    gpu.commit().wait()"
    ),
    "begun on one way": "g = gpu.commit()\nif rows > 3:\n    begin(tile, x, 0)\n    g = gpu.commit()\ng.wait()",
    "while": (
        "k = 0\ng = gpu.commit()\nwhile k < rows:\n    begin(tile, x, k)\n    g = gpu.commit()\n    k += 1\ng.wait()"
    ),
    "a tuple of groups": (
        "begin(tile, x, 0)\npair = (gpu.commit(), 1)\nfor k in range(rows):\n    pair = (pair[0], k)\npair[0].wait()"
    ),
}

# The text, the line of the text that is shown (from 0), and what the message, its labels and notes say.
UNAWAITED = {
    "no wait": ("begin(tile, x, 0)", -6, "this copy may be under way", "ends without a wait behind it"),
    "no commit": (
        "g = gpu.commit()\ng.wait()\ngpu.copy_async(tile[0:4], x[0, 0:4])\ng.wait()",
        2,
        "this copy may be",
        "not every way",
    ),
    "a group": ("begin(tile, x, 0)\ng = gpu.commit()", 1, "this group of copies may be", "ends without a wait"),
    "one way only": (
        "begin(tile, x, 0)\ng = gpu.commit()\nif i > 3:\n    g.wait()",
        1,
        "this group of copies may be",
        "not every way through the kernel comes here",
    ),
    "one is left": (
        "begin(tile, x, 0)\ng = gpu.commit()\ng.wait(pending=1)",
        1,
        "this group of copies may be",
        "leaves 1 under way",
    ),
    "a loop that may not run": (
        "begin(tile, x, 0)\ng = gpu.commit()\nfor k in range(rows):\n    g.wait()",
        1,
        "this group of copies may be",
        "not every way",
    ),
    "the last of a loop": (
        "g = gpu.commit()\nfor k in range(rows):\n    g.wait()\n    begin(tile, x, k)\n    g = gpu.commit()",
        4,
        "this group of copies may be",
        "ends without a wait",
    ),
    "behind the wait": (
        "g = gpu.commit()\ng.wait()\nbegin(tile, x, 0)\ng = gpu.commit()",
        3,
        "this group of copies may be",
        "ends without",
    ),
    "behind a return": (
        "begin(tile, x, 0)\ng = gpu.commit()\nif i > 3:\n    return\ng.wait()",
        1,
        "this group of copies may be",
        "not every way",
    ),
}

# A slice of shared memory with two stages, one behind the other, as loops name the stage.
STAGED = {
    "1 - stage": ("stage = 0", "stage * 64", "stage = 1 - stage"),
    "1 - stage, the other one": ("stage = 0", "(1 - stage) * 64", "stage = 1 - stage"),
    "stage ^= 1": ("stage = 0", "stage * 64", "stage ^= 1"),
    "the round": ("pass", "k % 2 * 64", "pass"),
    "a remainder": ("stage = 0", "stage * 64", "stage = (stage + 1) % 2"),
    "an offset": ("at = 0", "at", "at = 64 - at"),
    "a condition": ("stage = 0", "stage * 64", "stage = 0 if stage == 1 else 1"),
    "a pair": ("a, b = 0, 64", "a", "a, b = b, a"),
    "a number of another type": ("stage = rows.cast(int32)", "stage.cast(Int) * 64", "stage = 1 - stage"),
}

WRONG = {
    "an end of another number": (
        "a, b = rows, rows + i\ngpu.copy_async(tile[a : b + 4], x[0, 0:4]).wait()",
        "number is known at compile time",
    ),
    "three of four bytes": (
        "gpu.copy_async(tile[0:3], x[0, 0:3]).wait()",
        "4, 8 or 16 bytes, not 3 elements of float32",
    ),
    "not as many": ("gpu.copy_async(tile[0:4], x[0, 0:2]).wait()", "copies 4 of float32 from 2 of float32"),
    "an unknown number": ("gpu.copy_async(tile[0:4], x[0, 0:i]).wait()", "number is known at compile time"),
    "two axes": ("gpu.copy_async(tile[0:4], x).wait()", "the tensor 'x' of 2 axes"),
    "a step": ("gpu.copy_async(tile[0:4], x[0, 0:8:2]).wait()", "number is known at compile time"),
    "out of shared memory": ("gpu.copy_async(out[0:4], x[0, 0:4]).wait()", "this is not shared memory"),
    "out of itself": ("gpu.copy_async(tile[0:4], tile[4:8]).wait()", "this is not a tensor of the op"),
    "a number": ("gpu.copy_async(tile[0:4], 3.0).wait()", "not the compile-time float 3.0"),
    "pending": ("gpu.commit().wait(pending=-1)", "pending= is a compile-time number from 0 to 64"),
    "pending of one": ("gpu.copy_async(tile[0:4], x[0, 0:4]).wait(pending=1)", "waits for all of them"),
}


@pytest.fixture
def kernel(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        body = "\n".join(f"    {line}" for line in text.split("\n"))
        (tmp_path / "kernel.py").write_text(KERNEL.format(body))
        return tmp_path / "kernel.py"

    return write


def program_of(path: Path, target: str = "sm_80") -> Any:
    spec, _ = harness.entry_of(path, "op", TYPES)
    return typed_program(spec, lookup(target))


@pytest.mark.parametrize("name", AWAITED)
def test_awaited(kernel: Callable[[str], Path], name: str) -> None:
    for target in ("sm_80", "host"):
        program_of(kernel(AWAITED[name]), target)


@pytest.mark.parametrize("name", STAGED)
def test_stages_of_shared_memory(kernel: Callable[[str], Path], name: str) -> None:
    """How many elements a slice names is known, whatever the number of the stage is and even if its sums may wrap."""
    first, at, following = STAGED[name]
    copy = f"gpu.copy_async(tile[{at} + 2 * i : {at} + 2 * i + 2], x[k, 2 * i : 2 * i + 2]).wait()"
    text = f"{first}\nfor k in range(rows):\n    {copy}\n    {following}"
    for target in ("sm_80", "host"):
        copies = [op for op in walk(program_of(kernel(text), target).functions[0].body) if op.name == "copy_async"]
        assert [op.attrs["count"] for op in copies] == [2]


@pytest.mark.parametrize("name", UNAWAITED)
def test_unawaited(kernel: Callable[[str], Path], name: str) -> None:
    text, line, message, behind = UNAWAITED[name]
    with pytest.raises(EinkornError) as caught:
        program_of(kernel(text))
    error = caught.value
    assert error.code == "EK0622" and message in error.message
    assert error.place is not None and error.place.line == FIRST + line
    assert behind in str(error), error


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_copied(kernel: Callable[[str], Path], name: str) -> None:
    text, message = WRONG[name]
    with pytest.raises(EinkornError) as caught:
        program_of(kernel(text))
    assert caught.value.code == "EK0646" and message in caught.value.message, caught.value


def test_outside_of_a_launch(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(KERNEL.format("").replace("    ctx.launch", "    gpu.commit()\n    ctx.launch"))
    with pytest.raises(EinkornError) as caught:
        program_of(path)
    assert caught.value.code == "EK0114"


def test_what_is_read_too_early(kernel: Callable[[str], Path]) -> None:
    """The interpreter copies when a thread waits, so that a read before that finds nothing."""
    path = kernel("begin(tile, x, 0)\ng = gpu.commit()\nv = tile[i]\ng.wait()\nout[i] = v")
    spec, _ = harness.entry_of(path, "op", TYPES)
    arrays = [np.zeros((7, 128), np.float32), np.zeros(32, np.float32)]
    with pytest.raises(KernelError, match="which is uninitialised"):
        Interpreted(typed_program(spec, lookup("sm_80")), spec).run(arrays, [], lambda site, values: None)


def test_what_is_copied_from_is_read(kernel: Callable[[str], Path]) -> None:
    """What a kernel does with its parameters: an input that it copies from stays one."""
    path = kernel("gpu.copy_async(tile[0:4], x[0, 0:4]).wait()")
    artifact, _ = harness.compile_kernel(path, "op", TYPES, target="sm_80")
    assert sorted(word for word in artifact.kernels[0].accesses if word) == ["read", "write"]


def test_hardware_copies() -> None:
    """As one instruction, which zeros what a mask forbids; where there is none, as loads and stores."""
    case = {case.name: case for case in CASES}
    asm = case["async copies turned float32 4 512"].compile("sm_80").asm
    assert re.search(r"cp\.async\.cg\.shared\.global \[%r\w+\], \[%rd\w+\], 16, %r\d+;", asm)
    assert re.search(r"cp\.async\.wait_group\s+0;", asm)
    pipelined = case["async copies pipeline"].compile("sm_90a").asm
    assert re.search(r"cp\.async\.cg\.shared\.global \[%r\w+(\+\d+)?\], \[%rd\w+(\+\d+)?\], 16;", pipelined)
    assert re.search(r"cp\.async\.wait_group\s+1;", pipelined) and "cp.async.commit_group" in pipelined
    assert "cp.async" not in case["async copies turned float32 4 512"].compile("sm_75").asm
