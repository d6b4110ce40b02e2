"""Names of the language for bits, saturation and vectors.

Input: nothing. Output: the names, which `language` hands on. Non-goals: no meaning in code; that is the compiler's.
"""

from __future__ import annotations

from typing import Any

from .names import bitcast, int16, int32, int64, isnan, select
from .stubs import stub

# *** bit operations on integers of any width, scalars and vectors ***


@stub("row")
def popcount(x: Any) -> Any:
    """How many bits of an integer are set, in its own type."""


@stub("row")
def clz(x: Any) -> Any:
    """How many zeros an integer has above its highest set bit; of 0, its width."""


@stub("row")
def ctz(x: Any) -> Any:
    """How many zeros an integer has below its lowest set bit; of 0, its width."""


@stub("row")
def bit_width(x: Any) -> Any:
    """How many digits the magnitude of an integer has in binary, as `int.bit_length` of Python; of 0, none."""


@stub("row")
def bit_reverse(x: Any) -> Any:
    """An integer with its bits in the opposite order."""


@stub("row")
def byte_swap(x: Any) -> Any:
    """An integer with its bytes in the opposite order."""


@stub("row")
def rotl(x: Any, count: Any) -> Any:
    """The bits of an integer moved up by `count` modulo its width; what leaves at the top enters below."""


@stub("row")
def rotr(x: Any, count: Any) -> Any:
    """The bits of an integer moved down by `count` modulo its width; what leaves below enters at the top."""


def bit_and_not(x: Any, y: Any) -> Any:
    """The bits of `x` that are not set in `y`: `x & ~y`."""
    return x & ~y


# *** arithmetic that does not wrap, or keeps what wrapping loses ***


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


@stub("row")
def abs_diff(x: Any, y: Any) -> Any:
    """The distance between two numbers, in their type; of signed integers it wraps where it does not fit."""


# *** numbers ***


@stub("row")
def clamp(x: Any, low: Any, high: Any) -> Any:
    """`min(max(x, low), high)`: `x` held between two bounds; NaN where `x` or a bound is NaN."""


@stub("row")
def sign(x: Any) -> Any:
    """-1, 0 or 1 in the type of `x`; 0.0 of either zero, NaN of NaN."""


@stub("row")
def copysign(x: Any, y: Any) -> Any:
    """The magnitude of a float `x` with the sign of `y`, zeros and NaN included."""


@stub("row")
def isfinite(x: Any) -> Any:
    """Whether a float is neither infinite nor NaN."""


def nextafter(x: Any, y: Any) -> Any:
    """The neighbour of a float `x` on the way to `y`; `y` where they are equal, NaN where one is NaN."""
    kind = int16 if x.dtype.bits == 16 else int32 if x.dtype.bits == 32 else int64
    bits = bitcast(x, kind)
    # Away from zero the magnitude's pattern grows by one; zero has the smallest subnormal on either side.
    neighbour = bitcast(select((y > x) == (x > 0), bits + 1, bits - 1), x.dtype)
    neighbour = select(x == 0, copysign(bitcast(kind(1), x.dtype), y), neighbour)
    return select(isnan(x) | isnan(y), x + y, select(x == y, y, neighbour))


# *** vectors ***


@stub("rule")
def iota(dtype: Any, width: Any, start: Any = 0, step: Any = 1) -> Any:
    """The vector `start, start + step, start + 2 * step, …` of `width` lanes; `step` is known at compile time."""
