"""How large a compile-time value may grow.

Input: the operands of an operation that is folded. Output: whether its value would take more memory than any program
means. Non-goals: nothing is computed.
"""

from __future__ import annotations

from typing import Any

from ..ir.operations import Row

MAX_BITS = 1 << 16  # of a compile-time integer
MAX_ITEMS = 1 << 16  # of a compile-time tuple or string


def outgrows(row: Row | str, operands: list[Any]) -> bool:
    """Whether a compile-time value would take more memory than any program means."""
    name = row if isinstance(row, str) else row.name
    if len(operands) != 2:
        return False
    a, b = operands
    if isinstance(a, str | tuple) and isinstance(b, str | tuple):
        return name == "add" and len(a) + len(b) > MAX_ITEMS
    if name == "mul" and isinstance(a, str | tuple) and isinstance(b, int):
        return len(a) * b > MAX_ITEMS
    if name == "mul" and isinstance(b, str | tuple) and isinstance(a, int):
        return len(b) * a > MAX_ITEMS
    if not (isinstance(a, int) and isinstance(b, int)):
        return False
    if name == "shl":
        return a.bit_length() + b > MAX_BITS
    if name == "pow":
        return a.bit_length() > 1 and a.bit_length() * b > MAX_BITS
    return name == "mul" and a.bit_length() + b.bit_length() > MAX_BITS
