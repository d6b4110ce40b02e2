"""Columns on a GPU: what a monoid makes of the elements along an axis that is not the last.

A block has 32 columns, whose neighbours are neighbours in memory; four threads take shares of each, one behind the
other, which are joined in order. Where there are too few columns to fill a GPU several blocks take pieces of them, and
a second launch joins the pieces. How many pieces there are depends on the sizes alone, and so do the bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import AnyTensor, Index, Parts, ceildiv, gpu, int32, map_parts, max, min, parallel_for, store, unroll
from .algorithm import product, unravelled
from .folds import (
    COLUMN_BLOCK,
    column_pieces_of,
    dtype_of,
    element,
    empty,
    finished,
    folded_in_order,
    for_each,
    joined,
    settled,
    stepped_once,
)
from .monoid import DTypes, Monoids, Terms

ABREAST = 32  # columns that a block takes,
SHARES = 4  # each of them by so many threads
FULL = 288  # blocks that fill a GPU: two for each of its multiprocessors, or more
REQUESTED = 4  # elements that a thread requests before it takes the first of them
LEAST = 128  # elements of a piece of a column


def by_blocks_of_columns(
    xs: tuple[AnyTensor, ...], monoids: Monoids, body: Callable[[tuple[Index, ...], Parts], None], of: Terms, axis: int
) -> None:
    """Calls body(row, values) for each column; `axis` is not negative."""
    dtype = dtype_of(xs, of, monoids)
    sizes = (*xs[0].shape[:axis], *xs[0].shape[axis + 1 :])

    def part(number: Index, low: Index, high: Index):
        row = unravelled(number, sizes)
        return _folded(lambda k: of_column(xs, of, row[:axis], k, row[axis:]), low, high, monoids, dtype)

    def use(number: Index, states: tuple[Parts, ...]):
        body(unravelled(number, sizes), *finished(monoids, states, dtype))

    in_pieces((product(sizes), xs[0].dim(axis)), empty(monoids, dtype), part, lambda a, b: joined(monoids, a, b), use)


def _folded(element: Callable[[Index], Parts], low: Index, high: Index, monoids: Monoids, dtype: DTypes) -> Any:
    """As `folded_in_order`, with some elements requested at a time."""
    totals = empty(monoids, dtype)
    for first in range(low, high, COLUMN_BLOCK):
        states = for_each(monoids, lambda _, m: m.identity(dtype))
        stop = min(first + COLUMN_BLOCK, high)
        whole = first + (stop - first) // REQUESTED * REQUESTED
        for k in range(first, whole, REQUESTED):
            values: Any = ()
            for r in unroll(REQUESTED):
                values = (*values, element(k + r))
            for r in unroll(REQUESTED):
                states = stepped_once(monoids, states, values[r], int32(k + r - first))
        for k in range(whole, stop):
            states = stepped_once(monoids, states, element(k), int32(k - first))
        totals = joined(monoids, totals, settled(monoids, states, first))
    return totals


def in_pieces(
    sizes: tuple[Index, Index],
    nothing: Parts,
    part: Callable[[Index, Index, Index], Parts],
    combine: Callable[[Parts, Parts], Parts],
    use: Callable[[Index, Parts], None],
) -> None:
    """Calls use(column, states) for each column with the states of all of its elements.

    Args:
        sizes: the number of columns, and of elements of each.
        nothing: the states of no elements.
        part: gives the states of the elements low, ..., high - 1 of a column, for part(column, low, high).
        combine: gives the states of elements and of those behind them.
    """
    columns, n = sizes
    blocks = ceildiv(columns, ABREAST)
    wanted = max(min(ceildiv(FULL, max(blocks, 1)), n // LEAST), 1)
    size = ceildiv(ceildiv(n, wanted), SHARES * REQUESTED) * SHARES * REQUESTED
    pieces = max(ceildiv(n, size), 1)

    def piece(slots: Parts):
        number = gpu.block_idx.x // blocks
        low = min(number * size, n)

        def keep(column: Index, states: Parts):
            map_parts(lambda slot, state: store(slot, number * columns + column, state), slots, states)

        _in_shares(
            (columns, min(size, n - low)),
            gpu.block_idx.x % blocks,
            lambda column, first, last: part(column, low + first, low + last),
            combine,
            keep,
        )

    def all_pieces(slots: Parts):
        def some(column: Index, first: Index, last: Index):
            states = nothing
            for k in range(first, last):
                states = combine(states, map_parts(lambda slot: slot[k * columns + column], slots))  # noqa: B023
            return states

        _in_shares((columns, pieces), gpu.block_idx.x, some, combine, use)

    if pieces == 1:
        gpu.launch(lambda: _in_shares(sizes, gpu.block_idx.x, part, combine, use), grid=blocks, block=(ABREAST, SHARES))
    else:
        slots = map_parts(lambda state: gpu.scratch[state.dtype](pieces * columns), nothing)
        gpu.launch(lambda: piece(slots), grid=blocks * pieces, block=(ABREAST, SHARES))
        gpu.launch(lambda: all_pieces(slots), grid=blocks, block=(ABREAST, SHARES))


def _in_shares(
    sizes: tuple[Index, Index],
    block: Index,
    part: Callable[[Index, Index, Index], Parts],
    combine: Callable[[Parts, Parts], Parts],
    use: Callable[[Index, Parts], None],
) -> None:
    """Calls use(column, states) for the columns of a block; each of its threads sums a share of each column."""
    columns, n = sizes
    x, y = gpu.thread_idx.x, gpu.thread_idx.y
    number = block * ABREAST + x
    share = ceildiv(n, SHARES)
    low = min(y * share, n)
    states = part(min(number, columns - 1), low, min(low + share, n))
    slots = map_parts(lambda state: gpu.shared[state.dtype](SHARES * ABREAST), states)
    map_parts(lambda slot, state: store(slot, y * ABREAST + x, state), slots, states)
    gpu.barrier()
    if y == 0 and number < columns:
        for k in unroll(1, SHARES):
            states = combine(states, map_parts(lambda slot: slot[k * ABREAST + x], slots))  # noqa: B023
        use(number, states)


def by_thread(
    xs: tuple[AnyTensor, ...], monoids: Monoids, body: Callable[[tuple[Index, ...], Parts], None], of: Terms, axis: int
) -> None:
    """Each thread takes one column."""
    dtype = dtype_of(xs, of, monoids)
    sizes = (*xs[0].shape[:axis], *xs[0].shape[axis + 1 :])
    n = xs[0].dim(axis)
    pieces, size = column_pieces_of(n)

    def one(number: Index):
        row = unravelled(number, sizes)

        def element(k: Index):
            return of_column(xs, of, row[:axis], k, row[axis:])

        states = empty(monoids, dtype)
        for piece in range(pieces):
            low = piece * size
            states = joined(monoids, states, folded_in_order(element, low, min(low + size, n), monoids, dtype))
        body(row, *finished(monoids, states, dtype))

    parallel_for(product(sizes), one)


def of_column(
    xs: tuple[AnyTensor, ...], of: Terms, before: tuple[Index, ...], k: Index, after: tuple[Index, ...]
) -> Any:
    """The element k along an axis between these indices."""
    return element(of, for_each(xs, lambda _, x: x[before, k, after] if x.rank > 1 else x[k]))
