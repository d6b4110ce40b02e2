"""Declares the arithmetic of numbers, lane by lane for vectors: rounding, comparing, holding at bounds, choosing.

Input: nothing. Output: the names. Non-goals: no meaning in code (the compiler's), but for what is written in the
language itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, overload

from .dtypes import int16, int32, int64
from .stubs import stub

__all__ = [
    "abs",
    "abs_diff",
    "add_sat",
    "avg_ceil",
    "avg_floor",
    "bitcast",
    "ceil",
    "ceildiv",
    "clamp",
    "conj",
    "copysign",
    "exact",
    "floor",
    "fma",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "map_parts",
    "max",
    "min",
    "mul_high",
    "mul_wide",
    "nextafter",
    "real",
    "round",
    "select",
    "sign",
    "sqrt",
    "sub_sat",
    "trunc",
]


# Outside of kernels, names that Python has too take what Python's take (see `stubs.Stub`).


@overload
def min(values: Iterable[Any], /, *, key: Callable[[Any], Any] | None = ..., default: Any = ...) -> Any: ...
@overload
def min(x: Any, y: Any, /, *more: Any, key: Callable[[Any], Any] | None = ...) -> Any: ...
@stub("row")  # type: ignore[misc]
def min(x: Any, y: Any, *more: Any) -> Any:
    """The smaller of two values; NaN if either is NaN; -0.0 is smaller than 0.0. More than two arguments fold left."""


@overload
def max(values: Iterable[Any], /, *, key: Callable[[Any], Any] | None = ..., default: Any = ...) -> Any: ...
@overload
def max(x: Any, y: Any, /, *more: Any, key: Callable[[Any], Any] | None = ...) -> Any: ...
@stub("row")  # type: ignore[misc]
def max(x: Any, y: Any, *more: Any) -> Any:
    """The larger of two values; NaN if either is NaN. More than two arguments fold left."""


@stub("row")
def abs(x: Any) -> Any:
    """The absolute value; of a complex number a float. The smallest signed integer stays as it is."""


@stub("row")
def floor(x: Any) -> Any:
    """The largest whole number not above a float, as a float."""


@stub("row")
def ceil(x: Any) -> Any:
    """The smallest whole number not below a float, as a float."""


@overload
def round(x: Any) -> Any: ...
@overload
def round(x: Any, ndigits: int | None) -> Any: ...
@stub("row")  # type: ignore[misc]
def round(x: Any) -> Any:
    """The nearest whole number of a float, ties to even, as a float."""


@stub("row")
def trunc(x: Any) -> Any:
    """A float without its fraction, as a float."""


@stub("row")
def sqrt(x: Any) -> Any:
    """The square root of a float, correctly rounded; of a complex number the one with a real part of 0 or more."""


@stub("row")
def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c` of floats, rounded once (half types: computed in float32, then rounded)."""


@stub("row")
def isnan(x: Any) -> Any:
    """Whether a float is NaN."""


@stub("row")
def isinf(x: Any) -> Any:
    """Whether a float is plus or minus infinity."""


@stub("row")
def isfinite(x: Any) -> Any:
    """Whether a float is neither infinite nor NaN."""


@stub("row")
def clamp(x: Any, low: Any, high: Any) -> Any:
    """`min(max(x, low), high)`: `x` held between two bounds; NaN where `x` or a bound is NaN."""


@stub("row")
def sign(x: Any) -> Any:
    """-1, 0 or 1 in the type of `x`; 0.0 of either zero, NaN of NaN."""


@stub("row")
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of a float `x` with the sign of `y`, zeros and NaN included."""


def nextafter(x: Any, y: Any) -> Any:
    """The neighbour of a float `x` on the way to `y`; `y` where they are equal, NaN where one is NaN."""
    kind = int16 if x.dtype.bits == 16 else int32 if x.dtype.bits == 32 else int64
    bits = bitcast(x, kind)
    # Away from zero the magnitude's pattern grows by one; zero has the smallest subnormal on either side.
    neighbour = bitcast(select((y > x) == (x > 0), bits + 1, bits - 1), x.dtype)
    neighbour = select(x == 0, copysign(bitcast(kind(1), x.dtype), y), neighbour)
    return select(isnan(x) | isnan(y), x + y, select(x == y, y, neighbour))


def real(x: Any) -> Any:
    """The real part of a complex number; any other number as it is."""
    return x.real


def imag(x: Any) -> Any:
    """The imaginary part of a complex number; 0 of any other number."""
    return x.imag


def conj(x: Any) -> Any:
    """The complex number with the opposite imaginary part; any other number as it is."""
    return x.conjugate()


@stub("row")
def abs_diff(x: Any, y: Any) -> Any:
    """The distance between two numbers, in their type; of signed integers it wraps where it does not fit."""


def ceildiv(a: Any, b: Any) -> Any:
    """`a / b` of whole numbers, rounded up."""
    return -(-a // b)


@stub("rule")
def select(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition holds, else `y`. Both are computed."""


@stub("rule")
def map_parts(f: Callable[..., Any], value: Any, *others: Any) -> Any:
    """`f` of each number in a value, and of those in the same place in the others, in the form that the value has:
    tuples and structs part by part. Parts may become anything, whatever a struct declares.
    """


@stub("rule")
def bitcast(x: Any, dtype: Any) -> Any:
    """The bits of `x` read as another dtype of the same width."""


# *** arithmetic of integers that does not wrap, or keeps what wrapping loses ***


@stub("rule")
def exact(x: Any) -> Any:
    """`x` with the integer arithmetic that computes it done in the narrowest dtype in which it does not wrap: Int16 for
    a product of two Int8. What fits its dtype, and what is no such arithmetic, stays as it is. At most 64 bits.
    """


@stub("row")
def add_sat(x: Any, y: Any) -> Any:
    """`x + y` of integers, held at the ends of the type instead of wrapping."""


@stub("row")
def sub_sat(x: Any, y: Any) -> Any:
    """`x - y` of integers, held at the ends of the type instead of wrapping."""


@stub("row")
def mul_high(x: Any, y: Any) -> Any:
    """The upper half of the full product of two integers, in their type; `x * y` is the lower half."""


@stub("rule")
def mul_wide(x: Any, y: Any) -> Any:
    """The full product of two integers of 8, 16 or 32 bits, in the integers twice as wide."""


@stub("row")
def avg_floor(x: Any, y: Any) -> Any:
    """`(x + y) / 2` of integers rounded down, without overflow."""


@stub("row")
def avg_ceil(x: Any, y: Any) -> Any:
    """`(x + y) / 2` of integers rounded up, without overflow."""
