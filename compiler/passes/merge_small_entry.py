"""Makes one function of an entry that calls a single group, which does next to nothing outside of its parallel regions.

It is left as it is then: to LLVM a function is as dear as some forty operations. Work that is spread once is spread
where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.opcodes import PARALLEL
from ..ir.program import Op, Program, Region, walk
from ..targets import Target

MAX_OPERATIONS = 48  # operations


def merge_small_entry(program: Program, target: Target) -> None:
    """Says whether the entry and its group become one function."""
    if target.has_grid or len(program.calls) != 1 or program.stages or program.steps or program.traced:
        return
    body = program.functions[program.calls[0][0]].body
    serial = list(_serial(body))
    if len(serial) > MAX_OPERATIONS or any(op.opcode.loops for op in serial):
        return
    program.one_function = True
    regions = [op for op in walk(body) if op.opcode is PARALLEL]
    if len(regions) == 1:
        regions[0].attrs["spread_here"] = True


def _serial(region: Region) -> Iterator[Op]:
    """The operations of a region that are not in a parallel one."""
    for op in region.ops:
        yield op
        for inner in op.regions if not op.opcode.spreads else ():
            yield from _serial(inner)
