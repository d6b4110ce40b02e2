"""Finds results that hold uninitialised memory: a call is made twice, over memory that is filled otherwise.

An element that has the first pattern after the first run and the second after the second is uninitialised, whatever
its dtype is. A result that differs between the runs in another way was computed from uninitialised memory. Kernels
with atomic operations may add in another order in each run, so for them only the first is looked for.

Prints are shown once; what is changed in place begins the second run as it began the first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...dsl.types.dtype import DType
from ...dsl.types.packing import unpack
from ..calling.call import Caller
from ..calling.outputs import Filling
from ..driver.buffer import Buffer
from ..driver.device import Array
from ..findings.stored import unwritten_error
from ..ir import GraphIR, Node

PATTERNS = (0xA5, 0x5A)  # of each byte; no half of one is the same in both runs


def run_twice(call: Caller, inputs: Sequence[object], filling: Filling) -> list[Buffer]:
    """One call, with all checks and with the search for uninitialised memory.

    Raises:
        KernelError: EK0706, an element of a result was not written, or was made of such an element.
    """
    given = [(check, value) for check, value in zip(call.checks, inputs, strict=True) if check.is_buffer]
    changed = [check.storage(value)[0] if check.special else check.array(value) for check, value in given]
    before = [array.copy() for array in changed]
    runs: list[list[Buffer]] = []
    try:
        for filling.byte in PATTERNS:
            filling.quiet = bool(runs)
            if runs:
                for array, content in zip(changed, before, strict=True):
                    array[...] = content
            call.refill()
            runs.append(call.run(inputs))
    finally:
        filling.quiet = False
    for position, (first, second) in enumerate(zip(*runs, strict=True)):
        _compare(call.ir, position, first, second)
    return runs[1]


def _compare(ir: GraphIR, position: int, first: Buffer, second: Buffer) -> None:
    codes = [_codes(buffer, buffer._array) for buffer in (first, second)]
    blank = [_codes(first, Filling(byte).fill(np.empty_like(first._array))) for byte in PATTERNS]
    unwritten = np.logical_and(*((code == empty).all(axis=-1) for code, empty in zip(codes, blank, strict=True)))
    if unwritten.any():
        hint = "store it on every path, or make the output smaller"
        raise unwritten_error(ir, position, unwritten, "is uninitialised", hint)
    depends = (codes[0] != codes[1]).any(axis=-1)
    if depends.any() and not _has_atomics(ir):
        hint = "InferenceSession(interpret=True) names the line that reads such memory"
        raise unwritten_error(ir, position, depends, "depends on uninitialised memory", hint)


def _codes(buffer: Buffer, array: Array) -> Array:
    """The bytes of each element in the memory of a buffer, along a last axis; of a packed dtype its half byte."""
    if buffer.dtype.is_packed():
        return unpack(array, DType.uint4, buffer.shape).view(np.uint8)[..., None] & 15
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(*array.shape, array.itemsize)


def _has_atomics(ir: GraphIR) -> bool:
    programs = [node.kernel.portable for node in ir.nodes if isinstance(node, Node)]
    names = (entry.value for program in programs for entry in program.globals if entry.kind == "stub")
    return any(str(name).startswith("atomic") for name in names)
