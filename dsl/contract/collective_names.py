"""The names of the kernels of collectives, and what separates the parts of what they report."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "collective::"  # begins the names of their kernels
SEPARATOR: Final = "|"
ENDS: Final = ("finish_", "wait")  # begin the names of kernels that wait for what their first operand's has begun
LATER: Final = (*ENDS, "progress")  # of those that go on with it


def is_collective(op: str) -> bool:
    """Whether an op of this name is a collective."""
    return op.startswith(PREFIX)


def is_later_part(op: str) -> bool:
    """Whether an op of this name goes on with a collective that another one has begun."""
    return is_collective(op) and op.removeprefix(PREFIX).startswith(LATER)


def is_end(op: str) -> bool:
    """Whether an op of this name waits for a collective that another one has begun."""
    return is_collective(op) and op.removeprefix(PREFIX).startswith(ENDS)
