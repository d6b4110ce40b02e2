"""Limits how much work the evaluation of a kernel may be, in steps: never in time, so that the answer is always one.

A statement, an expression and an operation of the typed program are a step each; what takes longer is more of them: a
call, a mistake, a tuple with all that is in it, arithmetic on long integers. What is computed at compile time and what
is written out for the running program share one budget. Values themselves have a largest size, which is
that of a tuple with the items of its items.

See also `Evaluator.step` (counting).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...dsl.frontend import syntax as s
from ..ir.operations import OperationRow
from .values.aggregates import parts_of
from .values.compile_time import StructValue

MAX_STEPS = 100_000  # of one kernel
CALL = 10  # steps of a call, which has a frame of its own
MISTAKE = 200  # steps of a mistake, with its place and all calls around it
AT_A_STEP = 32  # items or characters that are copied in a step, and variables of a frame

_COPIED = (tuple, StructValue, str)
_NESTED = (tuple, StructValue)
READS = (s.Name, s.Global, s.Attribute)  # what gives a value that there was before


def size_of(value: object) -> int:
    """The items of a tuple or struct, those of its items included, or the characters of a string; no more than needed
    to see that they are too many.
    """
    if isinstance(value, str):
        return len(value)
    count, left = 0, [value]
    while left and count <= MAX_ITEMS:
        parts = parts_of(left.pop())
        if parts is not None:
            count += len(parts)
            left += [part for part in parts if isinstance(part, _NESTED)]
    return count


def copying(values: Iterable[object]) -> int:
    """The steps that it takes to look through the tuples and strings among some values."""
    return sum(size_of(value) // AT_A_STEP for value in values if isinstance(value, _COPIED))


def arithmetic(operands: list[object]) -> int:
    """The steps of arithmetic: on integers of many digits it takes as long as a product of both has digits."""
    steps = 1
    for operand in operands:
        steps *= operand.bit_length() if type(operand) is int else 1
    return (steps >> 22) + copying(operands)


def overlong(spec: str) -> bool:
    """Whether a format requests a width or a number of digits beyond any text that is shown."""
    return any(len(number) > 5 or int(number) > MAX_ITEMS for number in re.findall("[0-9]+", spec))


MAX_BITS = 1 << 16  # of a compile-time integer


MAX_ITEMS = 1 << 16  # of a compile-time tuple or string


_GROWING = frozenset({"add", "mul", "shl", "pow"})


def exceeds_limit(row: OperationRow | str, operands: list[object]) -> bool:
    """Whether a compile-time value would take more memory than any program means."""
    name = row if isinstance(row, str) else row.name
    if len(operands) != 2 or name not in _GROWING:
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
