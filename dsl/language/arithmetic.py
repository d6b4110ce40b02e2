"""Declares the arithmetic of numbers, lane by lane for vectors: rounding, comparing, holding at bounds, choosing."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, overload

from .dtypes import int16, int32, int64
from .stubs import stub

__all__ = [
    "abs",
    "abs_diff",
    "add_sat",
    "align_down",
    "align_up",
    "avg_ceil",
    "avg_floor",
    "bitcast",
    "ceil",
    "ceildiv",
    "clamp",
    "conj",
    "copysign",
    "dot2",
    "dot4",
    "exact",
    "floor",
    "fma",
    "gcd",
    "imag",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "lcm",
    "map_parts",
    "max",
    "min",
    "mul_high",
    "mul_wide",
    "next_power_of_two",
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
def sqrt(x: Any, *, fast: bool = False) -> Any:
    """The square root of a float, correctly rounded; of a complex number the one with a real part of 0 or more.

    With `fast` GPUs take their instruction for float32 and half types: see `docs/numerics.md`.
    """


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


def align_up(x: Any, multiple: Any) -> Any:
    """The smallest multiple of a positive integer that is not below an integer `x`."""
    return x + (multiple - x % multiple) % multiple


def align_down(x: Any, multiple: Any) -> Any:
    """The largest multiple of a positive integer that is not above an integer `x`."""
    return x - x % multiple


@stub("written", in_python=True)
def next_power_of_two(x: Any) -> Any:
    """The smallest power of two that is not below an integer; 1 for all up to 1. It wraps where it does not fit."""
    return 1 << (operator.index(x) - 1).bit_length() if x > 1 else 1


@stub("written", in_python=True)
def gcd(x: Any, *others: Any) -> Any:
    """The greatest common divisor of integers, not negative; 0 of zeros alone."""
    return math.gcd(x, *others)


@stub("written", in_python=True)
def lcm(x: Any, *others: Any) -> Any:
    """The least common multiple of integers, not negative; 0 if one is 0. It wraps where it does not fit."""
    return math.lcm(x, *others)


@stub("written", in_python=True)
def isclose(x: Any, y: Any, *, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: Any = False) -> Any:
    """Whether `abs(x - y) <= atol + rtol * abs(y)`, as NumPy compares: equal infinities are close, NaN to NaN only with
    `equal_nan=True`. Half types compute in float32, integers in float64.
    """
    if x == y or (equal_nan and x != x and y != y):
        return True
    return (
        math.isfinite(builtins.abs(x))
        and math.isfinite(builtins.abs(y))
        and builtins.abs(x - y) <= atol + rtol * builtins.abs(y)
    )


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
    a product of two Int8. What fits its dtype, and what is not such arithmetic, stays as it is. At most 64 bits.
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
def dot2(acc: Any, a: Any, b: Any) -> Any:
    """`fma(a0, b0, fma(a1, b1, acc))` for each two neighbouring lanes of vectors of BFloat16: lane `i` of the Float32
    result adds lanes `2 * i + 1` and `2 * i`. What is nearer to 0 than 2**-126 counts as 0: of `acc`, `a` and `b`, and
    after each step.
    """


@stub("rule")
def dot4(acc: Any, a: Any, b: Any) -> Any:
    """`acc` plus the sums of four neighbouring products: lane `i` of the Int32 result adds lanes `4 * i` to `4 * i + 3`
    of `a * b`, of Int8 or UInt8 each. The products are exact and the sum wraps, with the same bits on every target.
    """


@stub("rule")
def mul_wide(x: Any, y: Any) -> Any:
    """The full product of two integers of 8, 16 or 32 bits, in the integers twice as wide."""


@stub("row")
def avg_floor(x: Any, y: Any) -> Any:
    """`(x + y) / 2` of integers rounded down, without overflow."""


@stub("row")
def avg_ceil(x: Any, y: Any) -> Any:
    """`(x + y) / 2` of integers rounded up, without overflow."""
