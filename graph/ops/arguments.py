"""What users pass to ops beside tensors: lists, shapes, numbers, axes.

Input: anything. Output: lists, `Shape`s and ints, or an error that names op and argument. Non-goals: tensors (see
`staging`), and what the values mean to an op.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Set
from typing import Any, NoReturn

from ...dsl.errors import EinkornError, shown_value
from ..dims import Dim, Shape
from ..value import Value
from .staging import fail, named


def list_of(name: str, argument: str, value: Any, items: str, code: str = "EK0478") -> list[Any]:
    """What an argument lists; `items` says what that should be, as in "axes".

    Raises:
        GraphError: it is no list, tuple or other sequence of things.
    """
    if isinstance(value, str | bytes | Mapping | Set | Value | type):
        _fail_no_list(name, argument, value, items, code)
    try:
        return list(value)
    except TypeError:
        _fail_no_list(name, argument, value, items, code)


def _fail_no_list(name: str, argument: str, value: Any, items: str, code: str) -> NoReturn:
    kind = type(value).__name__ if isinstance(value, Value) else shown_value(value)
    single = isinstance(value, str | int | Dim | Value) and not isinstance(value, bool)
    fail(
        name,
        f"argument '{argument}' has to be a list of {items}, and is {kind}",
        code=code,
        argument=argument,
        expected=f"a list of {items}",
        got=kind,
        hint=f"also one stands in brackets: {argument}=[...]" if single else None,
    )


def shape_of(name: str, argument: str, value: Any) -> Shape:
    """The sizes that an argument lists.

    Raises:
        GraphError: it is no list, or something in it is no size.
    """
    try:
        return value if isinstance(value, Shape) else Shape(list_of(name, argument, value, "sizes"))
    except EinkornError as error:
        raise named(error, name, argument) from None


def int_of(name: str, argument: str, value: Any, code: str = "EK0478", what: str = "an int") -> int:
    """The number that an argument is; a static dim or a number of NumPy's serves, too.

    Raises:
        GraphError: it is none.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except Exception:  # the user's own class may raise what it likes
        pass
    shown = str(value) if isinstance(value, Dim) else shown_value(value)
    fail(
        name,
        f"argument '{argument}' has to be {what}, and is {shown}",
        code=code,
        argument=argument,
        expected=what,
        got=shown,
    )


def axis_of(name: str, axis: Any, rank: int, argument: str = "axis") -> int:
    """An axis counted from 0.

    Raises:
        GraphError: EK0422, not an int, or out of range.
    """
    number = int_of(name, argument, axis, "EK0422")
    if not -rank <= number < rank:
        span = f"{-rank} to {rank - 1}" if rank else "none, the tensor has rank 0"
        fail(
            name,
            f"{argument} {number} is out of range for rank {rank}",
            code="EK0422",
            argument=argument,
            expected=span,
            got=number,
            hint=f"possible: {span}",
        )
    return number % rank
