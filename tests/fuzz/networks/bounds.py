"""Arrays of intervals: what an op of a graph may give, when everything before it was only right within its rounding.

Floats are intervals of float64 that take in the exact result and what rounding to the dtype may make of it; integers
and bools are intervals of int64, wrapped round as the dtype wraps. NaN as a bound means that nothing is known: an
overflow, a division by an interval with 0 in it, an uninitialised element.

So a comparison of two floats that are too close to each other to decide is neither true nor false, and what is
chosen by it is either: no tolerance has to be guessed, and a sum of floats that cancel may be off by as much as it is.

See also `oracle`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from einkorn.dsl.types.dtype import DType

Array = np.ndarray[Any, Any]
WIDE = 2.0**-52  # what float64 itself may be off by, twice
LONGEST = float(1 << 62)


@dataclass(frozen=True)
class Bounds:
    """Two arrays between which, both ends included, each element lies."""

    low: Array
    high: Array
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.low.shape

    @property
    def middle(self) -> Array:
        return (self.low + self.high) / 2.0

    @property
    def radius(self) -> Array:
        return (self.high - self.low) / 2.0

    @property
    def largest(self) -> Array:
        """The largest magnitude that an element may have."""
        return np.maximum(np.abs(self.low.astype(np.float64)), np.abs(self.high.astype(np.float64)))

    def moved(self, move: Callable[[Array], Array]) -> Bounds:
        """The same elements in other places."""
        return Bounds(move(self.low), move(self.high), self.dtype)

    def sure(self) -> Array:
        """Where there is one value only."""
        equal: Array = self.low == self.high
        return equal


def unit(dtype: DType) -> float:
    """The most by which rounding to nearest is off, relative to the result."""
    return float(ml_dtypes.finfo(dtype.to_numpy()).eps) / 2


def exact(array: Array, dtype: DType) -> Bounds:
    """An array that is known."""
    wide = array.astype(np.float64 if dtype.is_float() else np.int64)
    return Bounds(wide, wide, dtype)


def rounded(low: Any, high: Any, dtype: DType, ulps: float = 1.0, off: Any = 0.0) -> Bounds:
    """A float result: computed within `ulps` roundings of the dtype, and `off` more."""
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    info = ml_dtypes.finfo(dtype.to_numpy())
    largest = np.maximum(np.abs(low), np.abs(high))
    error = (ulps * 2 * unit(dtype) + 4 * WIDE) * largest + off + float(info.smallest_subnormal)
    low, high = low - error, high + error
    unknown = ~(np.maximum(np.abs(low), np.abs(high)) < float(info.max))  # NaN, too
    return Bounds(np.where(unknown, np.nan, low), np.where(unknown, np.nan, high), dtype)


def around(middle: Array, radius: Array, dtype: DType, ulps: float = 1.0, off: Any = 0.0) -> Bounds:
    """A float result within `radius` of the middle."""
    return rounded(middle - radius, middle + radius, dtype, ulps, off)


def wrapped(low: Any, high: Any, dtype: DType, at_least: Any, at_most: Any) -> Bounds:
    """An integer result, from int64 that may have wrapped; `at_least` and `at_most` are the same in float64."""
    low, high = np.asarray(low), np.asarray(high)
    first, last = dtype.range
    kind = dtype.to_numpy()
    least, most = np.array([first, last], kind).astype(np.int64)  # the largest uint64 is -1
    sure = np.asarray(at_least) == np.asarray(at_most)
    inside = (np.asarray(at_least) >= first) & (np.asarray(at_most) <= last) & (np.abs(at_most) < LONGEST)
    known = np.where(sure | inside, low, 0).astype(kind).astype(np.int64)
    known_high = np.where(sure | inside, high, 0).astype(kind).astype(np.int64)
    return Bounds(
        np.where(sure | inside, known, least),
        np.where(sure | inside, known_high, most),
        dtype,
    )


def of_corners(function: Callable[..., Any], dtype: DType, *operands: Bounds, ulps: float = 1.0) -> Bounds:
    """A function that is monotone in each operand, however the others are."""
    corners: list[tuple[Array, ...]] = [()]
    for operand in operands:
        corners = [(*corner, end) for corner in corners for end in (operand.low, operand.high)]
    if dtype.is_float():
        result = [np.asarray(function(*corner)) for corner in corners]
        return rounded(np.minimum.reduce(result), np.maximum.reduce(result), dtype, ulps)
    exactly = [np.asarray(function(*corner)) for corner in corners]
    about = [np.asarray(function(*(end.astype(np.float64) for end in corner))) for corner in corners]
    return wrapped(
        np.minimum.reduce(exactly),
        np.maximum.reduce(exactly),
        dtype,
        np.minimum.reduce(about),
        np.maximum.reduce(about),
    )


def truth(surely: Array, maybe: Array) -> Bounds:
    """A bool: where it is surely true, and where it may be."""
    return Bounds(surely.astype(np.int64), (maybe | surely).astype(np.int64), DType.bool)


def hull(a: Bounds, b: Bounds) -> Bounds:
    """Either."""
    return Bounds(np.minimum(a.low, b.low), np.maximum(a.high, b.high), a.dtype)


def chosen(which: Bounds, yes: Bounds, no: Bounds) -> Bounds:
    """`where`."""
    both = hull(yes, no)

    def part(name: str) -> Array:
        surely, never = which.low == 1, which.high == 0
        return np.where(surely, getattr(yes, name), np.where(never, getattr(no, name), getattr(both, name)))

    return Bounds(part("low"), part("high"), yes.dtype)


def cast(x: Bounds, dtype: DType) -> Bounds:
    """Floats to integers are cut off and stay in the range, integers wrap, all but zero is true."""
    if dtype is x.dtype:
        return x
    low, high = x.low.astype(np.float64), x.high.astype(np.float64)
    if dtype is DType.bool:
        return truth((low > 0) | (high < 0), ~((low == 0) & (high == 0)))
    if dtype.is_float():
        exactly = not x.dtype.is_float() and x.dtype.bits <= 8 and unit(dtype) <= 2.0**-8
        return rounded(low, high, dtype, 0.0 if exactly else 1.0)
    if not x.dtype.is_float():
        return wrapped(x.low, x.high, dtype, low, high)
    first, last = dtype.range
    unknown = np.isnan(low) | np.isnan(high)
    ends = [np.clip(np.trunc(np.where(unknown, 0.0, end)), first, last) for end in (low, high)]
    whole = [
        np.where(end >= 2.0**63, np.int64(2**63 - 1), np.where(end >= 2.0**63, 0, end).astype(np.int64)) for end in ends
    ]
    return Bounds(np.where(unknown, first, whole[0]), np.where(unknown, last, whole[1]), dtype)


def outside(got: Array, wanted: Bounds) -> Array:
    """Where an array is not what it should be."""
    if not wanted.dtype.is_float():
        whole = got.astype(np.int64)
        wrong: Array = (whole < wanted.low) | (whole > wanted.high)
        return wrong
    wide = got.astype(np.float64)
    known = ~(np.isnan(wanted.low) | np.isnan(wanted.high))
    inside = (wide >= wanted.low) & (wide <= wanted.high)
    return known & ~inside
