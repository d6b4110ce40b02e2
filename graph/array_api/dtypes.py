"""Implements the standard's functions of dtypes: kinds, promotion, limits, casts.

See also `types.promotion` (the rules of promotion).
"""

from __future__ import annotations

import copy as python_copy
from collections.abc import Callable
from typing import Any

import ml_dtypes

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DTypeError
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..arguments import dtype_of, wrong
from ..eager.tensor import Tensor
from ..types.promotion import holds, promote
from .operands import Place, cast, dtype_of_number, tensor

KINDS: dict[str, Callable[[DType], bool]] = {
    "bool": lambda t: t is DType.bool,
    "signed integer": DType.is_signed_integral,
    "unsigned integer": DType.is_unsigned_integral,
    "integral": DType.is_integral,
    "real floating": DType.is_float,
    "complex floating": DType.is_complex,
    "numeric": lambda t: t is not DType.bool,
}


@dataclass(frozen=True)
class FloatLimits:
    """What `finfo` says of a floating-point dtype, in Python's numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntegerLimits:
    """What `iinfo` says of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


@placed
def astype(x: Tensor, dtype: DType, /, *, copy: bool = True, device: Place = None) -> Tensor:
    """The elements in another dtype: floats lose their fraction on the way to integers.

    Args:
        x: a tensor.
        dtype: that of the result.
        copy: False gives x itself where nothing changes.
        device: where the result lies; where x does when left out.
    """
    moved = tensor("x", x) if device is None else x.to(device)
    result = cast(moved, dtype_of("dtype", dtype))
    return python_copy.copy(x) if result is x and copy else result


@placed
def can_cast(from_: DType | Tensor, to: DType, /) -> bool:
    """Whether promotion with `to` gives `to`: every value of the one is a value of the other."""
    return holds(dtype_of("to", to), _dtype("from_", from_))


@placed
def finfo(type: DType | Tensor, /) -> FloatLimits:
    """The limits of a floating-point dtype; of a complex one those of its parts.

    Raises:
        DTypeError: EK0818, another dtype.
    """
    dtype = _dtype("type", type)
    if dtype.is_complex():
        dtype = dtype.part
    if not dtype.is_float():
        wrong("type", dtype, "a floating-point dtype", code="EK0818", kind=DTypeError)
    result: Any = ml_dtypes.finfo(dtype.to_numpy())  # type: ignore[no-untyped-call]
    largest, smallest = float(result.max), float(result.min)
    return FloatLimits(dtype.bits, float(result.eps), largest, smallest, float(result.smallest_normal), dtype)


@placed
def iinfo(type: DType | Tensor, /) -> IntegerLimits:
    """The limits of an integer dtype.

    Raises:
        DTypeError: EK0818, another dtype.
    """
    dtype = _dtype("type", type)
    if not dtype.is_integral():
        wrong("type", dtype, "an integer dtype", code="EK0818", kind=DTypeError)
    return IntegerLimits(dtype.bits, dtype.range[1], dtype.range[0], dtype)


@placed
def isdtype(dtype: DType, kind: DType | str | tuple[DType | str, ...]) -> bool:
    """Whether a dtype is of a kind, such as "integral", or of one of several.

    Raises:
        GraphError: EK0819, a kind that the standard does not have.
    """
    known = dtype_of("dtype", dtype)
    return any(_is_of(known, each) for each in (kind if isinstance(kind, tuple) else (kind,)))


def _is_of(dtype: DType, kind: object) -> bool:
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in KINDS:
        wrong("kind", kind, f"a dtype or one of {', '.join(KINDS)}", code="EK0819")
    return KINDS[kind](dtype)


@placed
def result_type(*arrays_and_dtypes: Tensor | DType | bool | int | float | complex) -> DType:
    """The dtype in which an op computes with these.

    Numbers take the dtype of the others, where it is of their kind or a higher one.

    Raises:
        DTypeError: EK0818, there are numbers alone, or a float with integers; EK0410, dtypes that do not go together.
    """
    strong = [_dtype("arrays_and_dtypes", each) for each in arrays_and_dtypes if isinstance(each, Tensor | DType)]
    if not strong:
        wrong("arrays_and_dtypes", arrays_and_dtypes, "a tensor or a dtype at least", code="EK0818", kind=DTypeError)
    result = promote(strong, "result_type")
    for each in arrays_and_dtypes:
        if isinstance(each, complex) and result.is_float():
            result = promote([result, DType.complex64], "result_type")
        if isinstance(each, float | complex) and not (result.is_float() or result.is_complex()):
            wrong("arrays_and_dtypes", each, f"an int with {result}", code="EK0818", kind=DTypeError)
    return result


def _dtype(argument: str, value: object) -> DType:
    return dtype_of_number(value) if isinstance(value, Tensor) else dtype_of(argument, value)
