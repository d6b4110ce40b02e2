"""Chooses shorter vectors for parallel regions whose loops only stream memory.

A whole vector of AVX-512 is a cache line, and every access that does not start at one touches two; where little is
computed, that is all that counts (20 % on 16 M elements, 10 to 30 % on rows that lie in the third cache). Where each
loop streams, so does what the author wrote in wider vectors.
"""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import SIMDType
from ..ir.native_opcodes import PREFETCH
from ..ir.opcodes import BITCAST, CONST, LOAD, PARALLEL, SPLAT, STORE
from ..ir.program import Program, Region, Value, walk
from ..targets import Target

WHOLE_LINE = 512  # bits of a vector that is a cache line
LIGHT = 24  # operations of a loop body that memory, not arithmetic, keeps waiting
STREAMED = 3  # operations on numbers, for each access to memory, of a loop of which the same is true,
MAX_STREAMED_OPERATIONS = 8  # and in all: a loop that keeps more in registers has loaded it for more than one operation
_MOVED = (LOAD, BITCAST, CONST)  # costs nothing next to the access


def stream_loops(program: Program, target: Target) -> None:
    """Says of each parallel region which vectors LLVM makes of its loops, where it would choose longer ones."""
    if target.vector_bits != WHOLE_LINE:
        return
    for function in program.functions:
        for op in walk(function.body):
            if op.opcode is not PARALLEL:
                continue
            region = op.regions[0]
            ops = list(walk(region))
            streams = any(inner.opcode is PREFETCH for inner in ops) and all(map(_streams, _innermost(region)))
            if streams or len(ops) <= LIGHT:
                op.attrs["vector_bits"] = WHOLE_LINE // 2
            if streams:
                op.attrs["split_vectors"] = True


def _innermost(region: Region) -> list[Region]:
    """The loops within a region that have no loop in them."""
    results: list[Region] = []
    for op in region.ops:
        for inner in op.regions:
            within = _innermost(inner)
            results += within or ([inner] if op.opcode.loops else [])
    return results


def _streams(loop: Region) -> bool:
    """Whether an innermost loop computes little for what it reads and writes, and moves no lanes.

    That counts where memory is prefetched: else more instructions for a line mean that fewer lines are under way
    at a time.
    """
    used = {value.serial for op in walk(loop) for value in op.operands}
    same: dict[int, Any] = {}  # what splats are the splats of: one scalar may be spread more than once
    loaded = set[int]()  # what was read and what is made of it: no indices, even if they are integers
    work, accesses = set(), 0
    for op in walk(loop):
        if op.opcode.crosses_lanes or op.opcode.masked:
            return False
        accesses += op.opcode in (LOAD, STORE)
        if op.opcode is LOAD or any(value.serial in loaded for value in op.operands):
            loaded.update(result.serial for result in op.results)
        operands = tuple(same.get(value.serial, value.serial) for value in op.operands)
        if op.opcode is SPLAT:
            same[op.results[0].serial] = ("splat", *operands)
        elif op.opcode not in _MOVED and any(
            result.serial in used and (result.serial in loaded or _is_number(result)) for result in op.results
        ):
            work.add((op.name, operands))
    return len(work) <= min(STREAMED * accesses, MAX_STREAMED_OPERATIONS)


def _is_number(value: Value) -> bool:
    """Whether a value is what loops compute with, and no index."""
    return isinstance(value.type, SIMDType) and (value.type.width > 1 or value.dtype.is_float())
