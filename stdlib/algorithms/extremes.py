"""Finds extremes of many elements at once, and their places: faster ways for `Max`, `Min`, `ArgMax` and `ArgMin`.

Elements are taken 32 at a time, the last 32 of them once more where their number is not a multiple of that: it does no
harm to look at an element twice.

The bits of floats, as signed numbers, order positive floats, above all negative ones, which they order the other way
round; as unsigned numbers they have the negative floats above the positive ones. So the largest and the smallest signed
number and the largest unsigned one give the maximum and the minimum, whatever the signs are. A NaN is farther from 0
than infinity: one of the two largest is beyond infinity if there is one. These are three instructions, where the order
key of an element takes six.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from ...dsl import (
    SIMD,
    AnyDType,
    Element,
    Floating,
    Index,
    Integral,
    Parts,
    bitcast,
    compiled_for,
    int32,
    iota,
    max,
    min,
    select,
    uint16,
    uint32,
)
from .algorithm import highest, key_dtype, lowest
from .monoid import Elements, Monoid

LANES = 32


def taken(
    elements: Elements, low: Index, high: Index, state: Parts, step: Callable[[Parts, Parts, Parts], Parts]
) -> Any:
    """The state after `step(state, elements, place)` for 32 elements at a time, whose place counts from low."""
    for k in range(low, high, LANES):
        at = min(k, high - LANES)
        state = step(state, elements(at, LANES), int32(at - low))
    return state


def repeated(elements: Elements, low: Index, high: Index, monoid: type[Monoid], dtype: AnyDType) -> Any:
    """The state by `monoid.step`, for a monoid whose state is one number."""
    nothing = monoid.identity(dtype)
    state = SIMD[nothing.dtype, LANES](nothing)
    return taken(elements, low, high, state, monoid.step).reduce(monoid.combine)


# *** by bits ***


def goes_by_bits(dtype: AnyDType) -> Any:
    """Whether `extreme_bits` is for elements of `dtype`: not of 64 bits, which AVX2 does not compare as integers."""
    return dtype.is_float() and dtype.bits <= 32 and not compiled_for().is_gpu


def extreme_bits(elements: Elements, low: Index, high: Index, dtype: AnyDType) -> Any:
    """The largest and the smallest signed number that are the bits of a float, and the largest unsigned one."""
    signed, unsigned = key_dtype(dtype), uint16 if dtype.bits == 16 else uint32
    largest = SIMD[signed, LANES](lowest(signed))
    smallest = SIMD[signed, LANES](highest(signed))
    farthest = SIMD[unsigned, LANES](0)

    def step(state: tuple[Parts, ...], value: Parts, place: Integral):
        bits = bitcast(value, signed)
        return max(state[0], bits), min(state[1], bits), max(state[2], bitcast(value, unsigned))

    largest, smallest, farthest = taken(elements, low, high, (largest, smallest, farthest), step)
    return largest.reduce_max(), smallest.reduce_min(), farthest.reduce_max()


def key_of_bits(bits: Integral, largest: Integral, farthest: Integral, nan: int, dtype: AnyDType) -> Any:
    """The order key of the float with these bits; `nan` if there was a NaN, by the two largest."""
    key = select(bits < 0, bits ^ highest(bits.dtype), bits)
    positive = largest > bitcast(dtype(inf), largest.dtype)
    negative = farthest > bitcast(dtype(-inf), farthest.dtype)
    return select(positive | negative, nan, key)


# *** places ***


def first_extreme(
    elements: Elements, low: Index, high: Index, worst: Floating, beats: Callable[[Parts, Parts], Parts]
) -> Any:
    """The element that no other one `beats`, and the first place of it from low on; of a NaN if there is one.

    What lanes keep of a place is the step, one number for all of them. Where a NaN is, is looked up if there is one.
    """
    best = SIMD[worst.dtype, LANES](worst)
    steps = SIMD[int32, LANES](0)
    strange = SIMD[int32, LANES // 2](0)

    def step(state: tuple[Parts, ...], value: Parts, place: Integral):
        best, steps, strange = state
        new = value.cast(worst.dtype)
        better = beats(new, best)  # no NaN is
        if worst.dtype.is_float():
            left, right = new.split()
            strange = select((left != left) | (right != right), -1, strange)
        return select(better, new, best), select(better, place, steps), strange

    def step_to_nan(places: Integral, value: Parts, place: Integral):
        new = value.cast(worst.dtype)
        return min(places, _places(new != new, SIMD[int32, LANES](place)))

    best, steps, strange = taken(elements, low, high, (best, steps, strange), step)
    top = best.reduce(lambda a, b: select(beats(b, a), b, a))
    places = _places(best == top, steps)
    if worst.dtype.is_float() and (strange != 0).any():
        top = top * 0 / 0
        places = taken(elements, low, high, SIMD[int32, LANES](highest(int32)), step_to_nan)
    return top, places.reduce_min()


def _places(there: Element, steps: Integral) -> Any:
    """Places in the lanes where something is, which they have from the step of this number."""
    return select(there, steps + iota(int32, LANES), highest(int32))
