"""Chooses how much of a parallel region's range is one task, where the author does not say so.

A task should take some microseconds: less is lost to the threads' finding it, more leaves threads without work.

See also `runtime.thread_pool` (how many threads there are).
"""

from __future__ import annotations

from ..ir.builder import Builder
from ..ir.opcodes import PARALLEL
from ..ir.program import Op, Program, Region, walk
from ..targets import Target

TASK = 1 << 17  # operations of a task, of which some are done at a time
MIN_GRAIN = 64  # elements


def choose_grains(program: Program, target: Target) -> None:
    """Gives every parallel region that requests it its grain."""
    for function in program.functions:
        _visit(function.body, Builder(function.bounds))


def _visit(region: Region, builder: Builder) -> None:
    ops, region.ops = region.ops, []
    with builder.inside(region):
        for op in ops:
            if "unit" in op.attrs:
                builder.location = op.location
                op.operands[1] = builder.int_(_grain(op))
            elif op.opcode is not PARALLEL:
                for inner in op.regions:
                    _visit(inner, builder)
            region.ops.append(op)


def _grain(op: Op) -> int:
    unit: int = op.attrs.pop("unit")
    operations = sum(1 for _ in walk(op.regions[0]))
    return -(-max(MIN_GRAIN, TASK // (2 + operations)) // unit)
