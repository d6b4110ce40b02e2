"""Folds the elements along an axis into the state of a monoid, in an order that is fixed.

Along the last axis, element k of a row goes into lane `k mod lanes`, in the order of k; after 4096 elements the lanes
are settled and joined, lane by lane, to those of the blocks before. At the end halves of the lanes are joined, lane j
with lane j + lanes / 2, until one is left. So the order depends neither on the machine's vectors nor on its threads,
and the innermost loop works on whole vectors.

Along another axis, elements are joined in order within 256 of them, then settled; neighbouring columns go side by side.

A long row or column is cut into pieces (see `pieces_of`), which are joined in order.

See also `rows` (which rows there are).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Element,
    Index,
    Integral,
    Parts,
    bool8,
    ceildiv,
    exact,
    int32,
    map_parts,
    select,
    static_assert,
    unroll,
)
from .monoid import DTypes, Elements, Monoid, Monoids, Terms

BLOCK = 4096  # elements of a row that lanes take before they settle
COLUMN_BLOCK = 256  # elements of a column that are joined before they settle
PIECE = 16384  # elements that a piece of a row or column has at least
PIECES = 64  # pieces that a row has at most
COLUMN_PIECES = 16
AT_ONCE = 32  # elements that are given to a `fold` at least
HALVINGS = 10  # of at most 1024 lanes


def pieces_of(n: Index) -> tuple[Index, Index]:
    """Into how many pieces n elements are cut, and how many elements each but the last has: 16384, or n / 64."""
    size = max(ceildiv(ceildiv(n, PIECES), BLOCK) * BLOCK, PIECE)
    return max(ceildiv(n, size), 1), size


def column_pieces_of(n: Index) -> tuple[Index, Index]:
    """As `pieces_of` for a column: 256 elements each, or n / 16."""
    size = max(ceildiv(ceildiv(n, COLUMN_PIECES), COLUMN_BLOCK) * COLUMN_BLOCK, COLUMN_BLOCK)
    return max(ceildiv(n, size), 1), size


# *** elements ***


def element(of: Terms, values: tuple[Parts, ...]) -> Any:
    """What a monoid is given for an element of each tensor: what `of` makes of them (see `as_terms`), or themselves."""
    function, monoids = of
    if function == None:  # noqa: E711
        return values if len(values) > 1 else values[0]
    return exact_terms(function(*values), monoids)


def as_terms(of: Callable[..., Parts] | None, monoids: Monoids) -> Any:
    """`of` together with the monoids that are given what it computes, as `element` takes it."""
    return of, monoids


def exact_terms(value: Parts, monoids: Monoids) -> Any:
    """A value as the monoids are given it: computed without wrapping where one of them adds up."""
    adds = False
    for monoid in monoids:
        adds = adds or monoid.adds
    return map_parts(exact, value) if adds else value


def dtype_of(xs: tuple[AnyTensor, ...], of: Terms, monoids: Monoids) -> Any:
    """The dtype of what the monoids are given; a tuple or struct of dtypes for a tuple or struct of numbers."""
    sample = element(of, for_each(xs, lambda _, x: _any_number(x.dtype)))
    one = is_one_number(sample)
    for monoid in monoids:
        static_assert(
            one or not monoid.takes_numbers,
            "this monoid takes numbers, and an element is a tuple or a struct: give `of`, or a monoid of your own",
        )

    def dtype(part: Element):
        static_assert(
            not isinstance(part, (bool, int, float)),
            "a part of an element is a compile-time number: give it a type, as in float32(1)",
        )
        return part.dtype

    return map_parts(dtype, sample)


def _any_number(dtype: AnyDType) -> Any:
    """A number of which only the dtype is known: arithmetic on a constant would be known not to wrap."""
    zero = dtype(False if dtype == bool8 else 0)
    return zero | zero if dtype.is_integral() else zero


# *** states ***


def is_one_number(state: Parts) -> bool:
    """Whether a state is a number, and no tuple or struct of these."""
    return isinstance(map_parts(lambda _: 0, state), int)


def for_each(monoids: tuple[object, ...], f: Callable[..., object]) -> Any:
    """The tuple of f(number, monoid)."""
    out: Any = ()
    for k in unroll(len(monoids)):
        out = (*out, f(k, monoids[k]))
    return out


def as_group(monoid: type[Monoid] | Monoids) -> Any:
    """Several monoids as they are, one as a tuple of one."""
    return monoid if isinstance(monoid, tuple) else (monoid,)


def empty(monoids: Monoids, dtype: DTypes) -> Any:
    """The settled states of no elements."""
    return for_each(monoids, lambda _, m: m.settle(m.identity(dtype), 0))


def joined(monoids: Monoids, a: tuple[Parts, ...], b: tuple[Parts, ...]) -> Any:
    """The states of a and b together, settled or not."""
    return for_each(monoids, lambda k, m: m.combine(a[k], b[k]))


def settled(monoids: Monoids, states: tuple[Parts, ...], first: Index) -> Any:
    """States of a block as states of a row."""
    return for_each(monoids, lambda k, m: m.settle(states[k], first))


def finished(monoids: Monoids, states: tuple[Parts, ...], dtype: DTypes) -> Any:
    """The value of each monoid."""
    return for_each(monoids, lambda k, m: m.finish(states[k], dtype))


# *** rows ***


def widest(monoids: Monoids) -> Any:
    """The largest number of lanes: a step of all takes so many elements."""
    lanes = 1
    for monoid in monoids:
        lanes = max(lanes, monoid.lanes)
    return lanes


def folded_row(
    elements: Elements, few: Callable[..., Parts], low: Index, high: Index, monoids: Monoids, dtype: DTypes
) -> Any:
    """The settled states of elements low..high-1 of a row.

    `elements(k, width)` are so many from k on; `few(k, count, width)` is a function that gives them from a copy of the
    `count` elements that are left, counted from 0.
    """
    wide = widest(monoids)
    numbers = SIMD[int32, wide](*tuple(range(wide)))

    def left_over(states: tuple[Parts, ...], first: Index, whole: Index, stop: Index):
        left = few(whole, stop - whole, wide)
        return _stepped_in_part(monoids, states, left, whole - first, stop - whole, numbers)

    nothing = for_each(monoids, lambda _, m: _lanes_of(m.identity(dtype), m.lanes))
    if len(monoids) == 1 and monoids[0].fold != None:  # noqa: E711
        if high - low >= AT_ONCE:
            return settled(monoids, (monoids[0].fold(elements, low, high, dtype),), low)
        return _across(monoids, settled(monoids, left_over(nothing, low, low, high), low))
    totals = for_each(monoids, lambda _, m: _lanes_of(m.settle(m.identity(dtype), 0), m.lanes))
    for first in range(low, high, BLOCK):
        stop = min(first + BLOCK, high)
        whole = first + (stop - first) // wide * wide
        states = nothing
        for k in range(first, whole, wide):
            states = _stepped(monoids, states, elements, k, first, numbers)
        if whole < stop:
            states = left_over(states, first, whole, stop)
        totals = joined(monoids, totals, settled(monoids, states, first))
    return _across(monoids, totals)


def _lanes_of(state: Parts, lanes: int) -> Any:
    return map_parts(lambda x: SIMD[x.dtype, lanes](x), state)


def _stepped(
    monoids: Monoids, states: tuple[Parts, ...], elements: Elements, k: Index, first: Index, numbers: Integral
) -> Any:
    """Each lane joined with its next elements, which begin at k."""
    out: Any = ()
    for i in unroll(len(monoids)):
        out = (*out, _step(monoids[i], states[i], elements, widest(monoids), k, int32(k - first), numbers))
    return out


def _step(
    monoid: type[Monoid], state: Parts, elements: Elements, wide: int, k: Index, place: Integral, numbers: Integral
) -> Any:
    for part in unroll(0, wide, monoid.lanes):
        places = SIMD[int32, monoid.lanes](place) + numbers.slice(part, monoid.lanes)
        state = monoid.step(state, elements(k + part, monoid.lanes), places)
    return state


def _stepped_in_part(
    monoids: Monoids, states: tuple[Parts, ...], elements: Elements, place: Index, count: Index, numbers: Integral
) -> Any:
    """As `_stepped`, with the first `count` elements alone."""
    out: Any = ()
    for i in unroll(len(monoids)):
        wide = widest(monoids)
        out = (*out, _step_in_part(monoids[i], states[i], elements, wide, int32(place), int32(count), numbers))
    return out


def _step_in_part(
    monoid: type[Monoid],
    state: Parts,
    elements: Elements,
    wide: int,
    place: Integral,
    count: Integral,
    numbers: Integral,
) -> Any:
    for part in unroll(0, wide, monoid.lanes):
        offsets = numbers.slice(part, monoid.lanes)
        there = offsets < SIMD[int32, monoid.lanes](count)
        places = SIMD[int32, monoid.lanes](place) + offsets
        result = monoid.step(state, elements(part, monoid.lanes), places)
        state = map_parts(lambda new, old: select(there, new, old), result, state)  # noqa: B023
    return state


def _across(monoids: Monoids, states: tuple[Parts, ...]) -> Any:
    """The lanes of settled states as one: halves with halves."""
    return for_each(monoids, lambda k, m: _lanes_joined(m, states[k]))


def _lanes_joined(monoid: type[Monoid], state: Parts) -> Any:
    left = (state,)  # in a tuple: a variable that is a number keeps its number of lanes
    for k in unroll(HALVINGS):
        if monoid.lanes >> (k + 1) > 0:
            left = (_halves_joined(monoid, left[0]),)
    return left[0]


def _halves_joined(monoid: type[Monoid], state: Parts) -> Any:
    return monoid.combine(map_parts(lambda x: x.split()[0], state), map_parts(lambda x: x.split()[1], state))


# *** columns ***


def folded_in_order(element: Callable[[Index], Parts], low: Index, high: Index, monoids: Monoids, dtype: DTypes) -> Any:
    """The settled states of element(low), ..., element(high - 1) of a column."""
    totals = empty(monoids, dtype)
    for first in range(low, high, COLUMN_BLOCK):
        states = for_each(monoids, lambda _, m: m.identity(dtype))
        for k in range(first, min(first + COLUMN_BLOCK, high)):
            states = stepped_once(monoids, states, element(k), int32(k - first))
        totals = joined(monoids, totals, settled(monoids, states, first))
    return totals


def stepped_once(monoids: Monoids, states: tuple[Parts, ...], value: Parts, place: Integral) -> Any:
    """The states with one element more."""
    return for_each(monoids, lambda i, m: m.step(states[i], value, place))
