"""Adds up the shared memory that the blocks of a launch have whatever the launch requests."""

from __future__ import annotations

from .opcodes import ALLOCA
from .program import Op, PointerType, Region, walk

ALIGNMENT = 16  # bytes


def is_shared(op: Op) -> bool:
    """Whether an operation makes memory that the threads of a block share."""
    types = [value.type for value in op.results]
    return op.opcode.allocates and isinstance(types[0], PointerType) and types[0].space == "shared"


def shared_bytes(op: Op) -> int:
    """The bytes of one tensor in static shared memory."""
    return int(op.results[0].dtype.bytes_for(op.attrs["count"]))


def static_shared(region: Region) -> int:
    """The bytes of all of them, one behind the other."""
    end = 0
    for op in static_tensors(region):
        align = max(op.attrs.get("align", ALIGNMENT), ALIGNMENT)
        end = -(-end // align) * align + shared_bytes(op)
    return -(-end // ALIGNMENT) * ALIGNMENT


def static_tensors(region: Region) -> list[Op]:
    """The operations that make them."""
    return [op for op in walk(region) if op.opcode is ALLOCA and is_shared(op)]
