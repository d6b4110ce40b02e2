"""Reads what users pass that is not a tensor: lists, numbers, axes, flags, texts, dtypes. One refusal for each kind.

Every room of the graph floor may use this file, from the drivers up; it uses none of them.
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any, NoReturn

import numpy as np

from ..dsl.diagnostics.errors import AxisError, DTypeError, EinkornError, GraphError, shown_value
from ..dsl.diagnostics.places import user_place
from ..dsl.diagnostics.shield import raise_if_of_handler
from ..dsl.types.dtype import DType

CODE = "EK0478"
LIMIT = (1 << 63) - 1  # no number of a dim is beyond it, and no count of bytes
MOST_BYTES = "at most 2**63 - 1 bytes"


def wrong(
    argument: str,
    value: object,
    wanted: str,
    *,
    code: str = CODE,
    kind: type[EinkornError] = GraphError,
    hint: str | None = None,
) -> NoReturn:
    """Raises the error of an argument that is not what it has to be."""
    got = shown_value(value)
    raise kind(
        f"argument '{argument}' has to be {wanted}, and is {got}",
        code=code,
        place=user_place(),
        argument=argument,
        expected=wanted,
        got=got,
        hint=hint,
    )


def list_of(argument: str, value: Any, items: str, code: str = CODE) -> list[Any]:
    """The things that a sequence or a generator lists; `items` says what they should be, as in "axes".

    Raises:
        GraphError: it lists nothing, or has no order.
    """
    if type(value) is list or type(value) is tuple:  # no user's code runs: what a handler of a signal raises is raised
        return list(value)
    try:
        if isinstance(value, str | bytes | Mapping | Set):
            raise TypeError
        things = iter(value)
    except Exception as error:  # a class of the user's may raise what it likes; what a generator raises is not caught
        raise_if_of_handler(error)
        single = isinstance(value, str) or (hasattr(type(value), "__index__") and not isinstance(value, bool))
        hint = f"a single one is a list, too: {argument}=[...]" if single else None
        wrong(argument, value, f"a list of {items}", code=code, hint=hint)
    return list(things)


def int_of(argument: str, value: Any, code: str = CODE, wanted: str = "an int") -> int:
    """The number that an argument is; a static dim or a number of NumPy's serves, too.

    Raises:
        GraphError: it is invalid.
    """
    if type(value) is int:
        return value
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except Exception as error:
        raise_if_of_handler(error)
    wrong(argument, value, wanted, code=code)


def number_of(argument: str, value: Any, code: str = CODE, wanted: str = "a number") -> float:
    """The finite number that an argument is; ints and numbers of NumPy's serve, too.

    Raises:
        GraphError: it is invalid, or infinite.
    """
    if type(value) is float and math.isfinite(value):
        return value
    try:
        refused = isinstance(value, bool | str | bytes) or np.iscomplexobj(value)  # float() drops imaginary parts
        if not refused and math.isfinite(number := float(value)):
            return number
    except Exception as error:
        raise_if_of_handler(error)
    wrong(argument, value, wanted, code=code)


def axis_of(axis: object, rank: int, argument: str = "axis") -> int:
    """An axis counted from 0.

    Raises:
        GraphError: EK0422, not an int, or out of range (then it is an IndexError, too).
    """
    number = int_of(argument, axis, "EK0422")
    if not -rank <= number < rank:
        span = f"{-rank} to {rank - 1}" if rank else "none, the tensor has rank 0"
        raise AxisError(
            f"{argument} {in_short(number)} is out of range for rank {rank}",
            code="EK0422",
            place=user_place(),
            argument=argument,
            expected=span,
            got=in_short(number),
            hint=f"possible: {span}",
        )
    return number % rank


def flag_of(argument: str, value: object) -> bool:
    """True or False; 0 and 1 serve, too.

    Raises:
        GraphError: something else, whose truth value must not be used.
    """
    if isinstance(value, bool | np.bool_) or (type(value) is int and value in (0, 1)):
        return bool(value)
    wrong(argument, value, "True or False")


def text_of(argument: str, value: object, wanted: str = "a text") -> str:
    """A text.

    Raises:
        GraphError: something else.
    """
    return str(value) if isinstance(value, str) else wrong(argument, value, wanted)


def path_of(argument: str, value: Any, code: str = CODE) -> str:
    """The path of a file or folder.

    Raises:
        GraphError: no text and no path of Python's.
    """
    try:
        if isinstance(path := os.fspath(value), str) and "\0" not in path:
            return str(path)
    except Exception as error:  # a class of the user's may raise what it likes
        raise_if_of_handler(error)
    wrong(argument, value, "a path", code=code)


def texts_of(argument: str, value: object, items: str, code: str = CODE) -> list[str]:
    """The texts that a sequence or a generator lists; `items` says what they are, as in "names".

    Raises:
        GraphError: it lists nothing, or something else.
    """
    listed = list_of(argument, value, items, code)
    return [text_of(f"{argument}[{number}]", each) for number, each in enumerate(listed)]


def choice_of(argument: str, value: object, known: Iterable[str], code: str) -> str:
    """One of some texts.

    Raises:
        GraphError: another text, or no text.
    """
    listed = list(known)
    if isinstance(value, str) and value in listed:
        return str(value)
    shown = ", ".join(map(repr, listed))
    wrong(argument, value, f"one of {shown}", code=code, hint=f"possible: {shown}")


def dtype_of(argument: str, value: object, code: str = CODE) -> DType:
    """A dtype of Einkorn.

    Raises:
        DTypeError: something else.
    """
    if isinstance(value, DType):
        return value
    hint = None
    if isinstance(value, str) and value in DType.__members__:
        hint = f"write DType.{value}"
    elif isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        hint = "DType.from_numpy(...) converts NumPy's dtypes"
    wrong(argument, value, "a DType", code=code, kind=DTypeError, hint=hint)


def in_short(value: int) -> str:
    """A whole number; one of more than 24 digits as a power of two."""
    return f"{value:,}" if abs(value) < 10**24 else f"{'-' if value < 0 else ''}2**{math.log2(abs(value)):.1f}"


def least_bytes(dtype: DType, sizes: Iterable[int]) -> int:
    """How many bytes a tensor takes; a size of 0 counts as 1, for strides count past it, too."""
    return math.prod((size or 1 for size in sizes), start=dtype.bytes_for(1))


def too_many_bytes(size: int) -> str:
    """What messages say of a size beyond `LIMIT`."""
    return f"{in_short(size)} bytes, more than 64 bits count"


def check_bytes(size: int, name: Callable[[], str]) -> None:
    """Refuses a tensor that no memory holds; `name` says which.

    Raises:
        GraphError: EK0476 it takes more bytes than 64 bits count.
    """
    if size > LIMIT:
        raise GraphError(
            f"{name()} takes {too_many_bytes(size)}",
            code="EK0476",
            place=user_place(),
            argument="shape",
            expected=MOST_BYTES,
            got=in_short(size),
        )


def axes_given(dims: tuple[int | Iterable[int], ...]) -> Iterable[int]:
    """The axes that a method is given: a list of them, or each by itself."""
    return dims[0] if len(dims) == 1 and not hasattr(type(dims[0]), "__index__") else dims  # type: ignore[return-value]
