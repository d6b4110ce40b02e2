"""Takes shared memory of a fixed size from what a launch requests, where it is more than a kernel may have by itself.

NVIDIA's kernels have 48 KiB at most by themselves; up to the size of a block's whole memory a launch requests it.

See also `passes.limit_launches` (what no launch can request).
"""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.builder import Builder
from ..ir.opcodes import LAUNCH
from ..ir.program import Op, Program, Region, Value
from ..ir.shared_memory import ALIGNMENT, shared_bytes, static_shared, static_tensors
from ..ir.storage_opcodes import DYNAMIC_SHARED
from ..targets.base import Target


def request_shared_memory(program: Program, target: Target) -> None:
    """Has launches request the shared memory of their kernels where that is too much for static memory.

    Launches that request memory for `gpu.dynamic_shared` are left as they are.
    """
    limits = target.limits
    for function in program.functions:
        for region in _regions(function.body):
            for launch in [op for op in region.ops if op.opcode is LAUNCH]:
                total = static_shared(launch.regions[0])
                if limits.static_shared_memory < total <= limits.shared_memory and launch.operands[6].const == 0:
                    _request(region, launch)


def _request(region: Region, launch: Op) -> None:
    made = {id(op) for op in static_tensors(launch.regions[0])}
    end = 0
    for inner in _regions(launch.regions[0]):
        for op in [each for each in inner.ops if id(each) in made]:
            align = max(op.attrs.get("align", ALIGNMENT), ALIGNMENT)
            first = -(-end // align) * align
            end = first + shared_bytes(op)
            numbers = _constants(inner, op, first, op.attrs["count"])
            attrs = {"align": align} if align > ALIGNMENT else {}
            op.opcode, op.operands, op.attrs = DYNAMIC_SHARED, list(numbers), attrs
    launch.operands[6] = _constants(region, launch, -(-end // ALIGNMENT) * ALIGNMENT)[0]


def _constants(region: Region, before: Op, *numbers: int) -> list[Value]:
    """Whole numbers, known in front of an operation."""
    builder, own = Builder(), Region()
    builder.location = before.location
    with builder.inside(own):
        made = [builder.int_(number) for number in numbers]
    at = next(place for place, op in enumerate(region.ops) if op is before)
    region.ops[at:at] = own.ops
    return made


def _regions(region: Region) -> Iterator[Region]:
    """A region and those within, outer ones first."""
    yield region
    for op in region.ops:
        for inner in op.regions:
            yield from _regions(inner)
