"""How many vectors of elements a loop works on at a time.

A long function of one element (an `exp`, a `tan`) is a chain of operations that wait for each other. A CPU looks only
so far ahead, and finds too little to do in one chain; LLVM takes several vectors at a time in short loops only. So long
loops over elements are marked here, where registers allow it, and `mlir.interleave` tells LLVM.

Input: the body of a loop over elements. Output: a number. Non-goals: nothing is reordered.
"""

from __future__ import annotations

from .operations import ROWS
from .program import Region, walk
from .targets.base import Target

LONG = 16  # operations on an element; LLVM itself sees to shorter loops
REGISTERS = 32  # of 512 bits; CPUs with shorter vectors have half as many, which one chain fills


def together(region: Region, target: Target) -> int:
    """The number of vectors: 4 or 2, or 0 where LLVM decides."""
    inside = [op.name for op in walk(region)]
    if target.is_gpu or target.vector_bits < 512 or sum(name in ROWS for name in inside) < LONG:
        return 0
    if not {"for", "while"}.isdisjoint(inside):
        return 0
    return 4 if 4 * (_most_alive(region) + 1) <= REGISTERS else 2


def _most_alive(region: Region) -> int:
    """How many floats at most are still to be used, between two operations."""
    last = {value.serial: number for number, op in enumerate(region.ops) for value in op.operands}
    alive: set[int] = set()
    most = 0
    for number, op in enumerate(region.ops):
        alive = {serial for serial in alive if last[serial] > number}
        if op.name not in ("const", "splat", "neg"):
            alive |= {v.serial for v in op.results if v.dtype.is_float() and last.get(v.serial, -1) > number}
        most = max(most, len(alive))
    return most
