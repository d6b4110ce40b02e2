"""Monoids: how many elements become one value, by a function that joins two states.

A monoid is a class of functions that is never made an object of. `rowwise`, `reduce` and the scans take any of these,
or several in a tuple; a kernel file writes its own by deriving from `Monoid`:

    class SumOfSquares(Monoid):
        @staticmethod
        def identity(dtype):
            return float64(0)

        @staticmethod
        def lift(value, place):
            return value.cast(float64) * value.cast(float64)

        @staticmethod
        def combine(a, b):
            return a + b

States are numbers, or tuples or structs of numbers. The functions are given scalars and SIMD values alike: what depends
on a value is chosen with `select`.
"""

from __future__ import annotations

from math import inf

from ...dsl import (
    AnyDType,
    Index,
    Integral,
    Numeric,
    Parts,
    abs,
    bitcast,
    bool8,
    exp,
    float64,
    int32,
    int64,
    log,
    max,
    min,
    select,
    uint8,
)
from .algorithm import (
    block_dtype,
    highest,
    key_dtype,
    lowest,
    of_order_key,
    order_key,
    sum_dtype,
    total_dtype,
    wide_dtype,
)
from .extremes import extreme_bits, first_extreme, goes_by_bits, key_of_bits, repeated
from .monoid import Elements, Monoid

NO_PLACE = (1 << 31) - 1  # stands for the place of no element


class Sum(Monoid):
    """The sum; 0 over no elements. Integers add up to Int64 or UInt64, bools to Int64: as in NumPy. Floats are added in
    float32 (float64 in float64) within 4096 elements, beyond these in float64; half types are widened first, and
    rounded once at the end.
    """

    takes_numbers = True
    adds = True
    lanes = 32

    @staticmethod
    def identity(dtype: AnyDType):
        return block_dtype(dtype)(0)

    @staticmethod
    def settle(state: Parts, first: Integral):
        return state.cast(total_dtype(state.dtype))


class Product(Sum):
    """The product; 1 over no elements. Types and precision as for `Sum`."""

    @staticmethod
    def identity(dtype: AnyDType):
        return sum_dtype(wide_dtype(dtype))(1)

    @staticmethod
    def combine(a: Parts, b: Parts):
        return a * b


class Max(Monoid):
    """The maximum; NaN if one of the elements is NaN; 0.0 is above -0.0. Over no elements -inf, or the smallest
    integer.
    """

    takes_numbers = True
    lanes = 32

    @staticmethod
    def identity(dtype: AnyDType):
        return order_key(dtype(-inf), 0) if dtype.is_float() else dtype(lowest(dtype))

    @staticmethod
    def lift(value: Parts, place: Integral):
        return order_key(value, highest(key_dtype(value.dtype)))

    @staticmethod
    def combine(a: Parts, b: Parts):
        return max(a, b)

    @staticmethod
    def finish(state: Parts, dtype: AnyDType):
        return of_order_key(state, dtype)

    @classmethod
    def fold(cls, elements: Elements, low: Index, high: Index, dtype: AnyDType):
        if not goes_by_bits(dtype):
            return repeated(elements, low, high, cls, dtype)
        largest, smallest, farthest = extreme_bits(elements, low, high, dtype)
        bits = select(largest < 0, smallest, largest)
        return key_of_bits(bits, largest, farthest, highest(largest.dtype), dtype)


class Min(Max):
    """The minimum; NaN if one of the elements is NaN; -0.0 is below 0.0. Over no elements inf, or the largest
    integer.
    """

    @staticmethod
    def identity(dtype: AnyDType):
        return order_key(dtype(inf), 0) if dtype.is_float() else dtype(highest(dtype))

    @staticmethod
    def lift(value: Parts, place: Integral):
        return order_key(value, lowest(key_dtype(value.dtype)))

    @staticmethod
    def combine(a: Parts, b: Parts):
        return min(a, b)

    @classmethod
    def fold(cls, elements: Elements, low: Index, high: Index, dtype: AnyDType):
        if not goes_by_bits(dtype):
            return repeated(elements, low, high, cls, dtype)
        largest, smallest, farthest = extreme_bits(elements, low, high, dtype)
        negative = bitcast(farthest, smallest.dtype)
        bits = select(negative < 0, negative, smallest)
        return key_of_bits(bits, largest, farthest, lowest(largest.dtype), dtype)


class Any(Monoid):
    """Whether an element is not zero (NaN is not); False over no elements."""

    takes_numbers = True
    lanes = 32

    @staticmethod
    def identity(dtype: AnyDType):
        return uint8(0)

    @staticmethod
    def lift(value: Parts, place: Integral):
        return value.cast(uint8) if value.dtype == bool8 else (value != 0).cast(uint8)

    @staticmethod
    def combine(a: Parts, b: Parts):
        return a | b

    @staticmethod
    def finish(state: Parts, dtype: AnyDType):
        return state != 0


class All(Any):
    """Whether no element is zero; True over no elements."""

    @staticmethod
    def identity(dtype: AnyDType):
        return uint8(1)

    @staticmethod
    def combine(a: Parts, b: Parts):
        return a & b


class ArgMax(Monoid):
    """The index of the first maximum, or of the first NaN if there is one, as Int; -0.0 and 0.0 are equal."""

    takes_numbers = True
    lanes = 32

    @staticmethod
    def identity(dtype: AnyDType):
        wide = wide_dtype(dtype)
        return wide(-inf) if wide.is_float() else wide(lowest(wide)), int32(NO_PLACE)

    @staticmethod
    def lift(value: Parts, place: Integral):
        return value.cast(wide_dtype(value.dtype)), place

    @classmethod
    def step(cls, state: Parts, value: Parts, place: Integral):
        # A NaN is not at most the best so far, and what comes after one is not looked at.
        best, at = state
        new = value.cast(best.dtype)
        results = select(new <= best, best, new), select(new <= best, at, place)
        return select(best == best, results[0], best), select(best == best, results[1], at)

    @staticmethod
    def combine(a: Parts, b: Parts):
        return _better(a, b, _key(a[0], False), _key(b[0], False))

    @classmethod
    def fold(cls, elements: Elements, low: Index, high: Index, dtype: AnyDType):
        return first_extreme(elements, low, high, cls.identity(dtype)[0], lambda a, b: a > b)

    @staticmethod
    def settle(state: Parts, first: Integral):
        place = state[1].cast(int64)
        return state[0], select(place == NO_PLACE, NO_PLACE, place + first)

    @staticmethod
    def finish(state: Parts, dtype: AnyDType):
        return select(state[1] == NO_PLACE, 0, state[1])


class ArgMin(ArgMax):
    """The index of the first minimum, or of the first NaN if there is one, as Int; -0.0 and 0.0 are equal."""

    @staticmethod
    def identity(dtype: AnyDType):
        wide = wide_dtype(dtype)
        return wide(inf) if wide.is_float() else wide(highest(wide)), int32(NO_PLACE)

    @classmethod
    def step(cls, state: Parts, value: Parts, place: Integral):
        best, at = state
        new = value.cast(best.dtype)
        results = select(new >= best, best, new), select(new >= best, at, place)
        return select(best == best, results[0], best), select(best == best, results[1], at)

    @staticmethod
    def combine(a: Parts, b: Parts):
        return _better(a, b, _key(a[0], True), _key(b[0], True))

    @classmethod
    def fold(cls, elements: Elements, low: Index, high: Index, dtype: AnyDType):
        return first_extreme(elements, low, high, cls.identity(dtype)[0], lambda a, b: a < b)


def _key(x: Numeric, turned: bool):
    """An integer that is larger for better elements, and largest for NaN; `turned` where smaller ones are better."""
    result = x + 0 if x.dtype.is_float() else x  # makes -0.0 equal to 0.0
    if turned:
        return ~order_key(result, lowest(key_dtype(x.dtype)))
    return order_key(result, highest(key_dtype(x.dtype)))


def _better(a: Parts, b: Parts, of_a: Integral, of_b: Integral):
    """The pair of an element and its place that has the larger key; of equals, the one that comes first."""
    among_equals = select(of_a == of_b, min(a[1], b[1]), a[1])
    return select(of_b > of_a, b[0], a[0]), select(of_b > of_a, b[1], among_equals)


class Welford(Monoid):
    """The mean and the variance of the elements (divided by their number): a pair; NaN over no elements.

    The state is (count, mean, M2), M2 being the sum of squared distances from the mean. States are joined as in Chan,
    Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979): no squares of
    large numbers are subtracted from each other. float32 within 4096 elements, float64 beyond.
    """

    takes_numbers = True

    @staticmethod
    def identity(dtype: AnyDType):
        zero = wide_dtype(dtype)(0)
        return zero, zero, zero

    @staticmethod
    def lift(value: Parts, place: Integral):
        wide = value.cast(wide_dtype(value.dtype))
        return wide.dtype(1), wide, wide.dtype(0)

    @staticmethod
    def combine(a: Parts, b: Parts):
        count = a[0] + b[0]
        share = b[0] / select(count == 0, 1, count)
        delta = b[1] - a[1]
        return count, a[1] + delta * share, a[2] + b[2] + delta * (delta * (a[0] * share))

    @staticmethod
    def settle(state: Parts, first: Integral):
        return state[0].cast(float64), state[1].cast(float64), state[2].cast(float64)

    @staticmethod
    def finish(state: Parts, dtype: AnyDType):
        return (state[1] + 0 * (1 / state[0])).cast(dtype), (state[2] / state[0]).cast(dtype)


class LogSumExp(Monoid):
    """log(sum(exp(x))) without overflow; -inf over no elements.

    The state is (maximum, sum of exp(x - maximum)), joined with one exp ("online softmax": Milakov and Gimelshein,
    2018). float32 within 4096 elements, sums in float64 beyond; float64 in float64.
    """

    takes_numbers = True
    lanes = 8

    @staticmethod
    def identity(dtype: AnyDType):
        wide = wide_dtype(dtype)
        return wide(-inf), wide(0)

    @staticmethod
    def lift(value: Parts, place: Integral):
        wide = value.cast(wide_dtype(value.dtype))
        return wide, wide.dtype(1)

    @staticmethod
    def combine(a: Parts, b: Parts):
        # A NaN makes the scale NaN, and with it the sum.
        scale = exp(select(a[0] == b[0], 0, -abs(b[0] - a[0]))).cast(a[1].dtype)
        larger = b[0] > a[0]
        return select(larger, b[0], a[0]), select(larger, a[1] * scale + b[1], b[1] * scale + a[1])

    @staticmethod
    def settle(state: Parts, first: Integral):
        return state[0], state[1].cast(float64)

    @staticmethod
    def finish(state: Parts, dtype: AnyDType):
        return (state[0].cast(float64) + log(state[1])).cast(dtype)
