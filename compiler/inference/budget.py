"""How much work the evaluation of a kernel may be, counted in steps: never in time, so that the answer is always one.

A statement, an expression and an operation of the typed program are a step each; what takes longer is more of them: a
call, a mistake, a tuple with all that is in it, arithmetic on long integers. What is computed at compile time and what
is written out for the running program share one budget. Values themselves have a largest size, which is
that of a tuple with the items of its items.

Input: the evaluator, and what it is at. Output: errors where too much is asked. Non-goals: how deep calls are nested.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NoReturn

from ...dsl.frontend import syntax as s
from .growth import MAX_ITEMS
from .values.aggregates import parts_of
from .values.compile_time import Frame, StructValue
from .values.flow import TooMany

if TYPE_CHECKING:
    from .evaluator import Evaluator

MAX_STEPS = 100_000  # of one kernel
CALL = 10  # steps of a call, which has a frame of its own
MISTAKE = 200  # steps of a mistake, with its place and all calls around it
AT_A_STEP = 32  # items or characters that are copied in a step, and variables of a frame

_READ = (s.Name, s.Global, s.Attribute)  # what gives a value that there was before


def exceeded(evaluator: Evaluator, node: s.Node, frame: Frame) -> NoReturn:
    """Ends an evaluation that takes more steps than one may; beside other mistakes, these are what is said of it."""
    if evaluator.folding:
        text = f"this takes more than {MAX_STEPS} steps at compile time"
        hint = "pass a value of the running program, Int(n) for example"
        error = evaluator.error("EK0124", text, node, frame, hint=hint)
        error.endless = True
        raise error
    if not evaluator.errors:
        text = f"this program takes more than {MAX_STEPS} steps to write out"
        hint = "unroll less, with `range` for the outer loops, and call fewer functions that call functions"
        evaluator.errors.append(evaluator.error("EK0216", text, node, frame, hint=hint))
    evaluator.errors[-1].endless = True
    raise TooMany


def weigh(evaluator: Evaluator, value: Any, node: s.Node, frame: Frame) -> None:
    """Counts what a new tuple, struct or string took to make.

    Raises:
        CompileError: EK0206, it is too large.
    """
    if isinstance(node, _READ):
        return
    count = size_of(value)
    if count > MAX_ITEMS:
        raise evaluator.error("EK0206", "this compile-time value grows too large", node, frame)
    evaluator.builder.steps += count // AT_A_STEP


def size_of(value: Any) -> int:
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
            left += [part for part in parts if isinstance(part, tuple | StructValue)]
    return count


def count_copies(evaluator: Evaluator, values: Any) -> None:
    """Counts what it takes to look through the tuples and strings among some values."""
    for value in values:
        if isinstance(value, tuple | StructValue | str):
            evaluator.builder.steps += size_of(value) // AT_A_STEP


def count_long(evaluator: Evaluator, operands: list[Any], node: s.Node, frame: Frame) -> None:
    """Counts arithmetic: on integers of many digits it takes as long as a product of both has digits."""
    steps = 1
    for operand in operands:
        steps *= operand.bit_length() if type(operand) is int else 1
    evaluator.builder.steps += steps >> 22
    count_copies(evaluator, operands)
    evaluator.step(node, frame)


def overlong(spec: str) -> bool:
    """Whether a format asks for a width or for digits beyond any text that is shown."""
    return any(len(number) > 5 or int(number) > MAX_ITEMS for number in re.findall("[0-9]+", spec))
