"""The names of the kernels of collectives, and what separates the parts of what they report."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "collective::"  # begins the names of their kernels
SEPARATOR: Final = "|"


def is_collective(op: str) -> bool:
    """Whether an op of this name is a collective."""
    return op.startswith(PREFIX)
