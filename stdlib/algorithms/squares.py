"""Squares of two by two neighbouring results of filters with three by three taps, computed from few products.

Two neighbouring results along an axis need six products. With d the elements that they see, and g the taps, they are
computed from four, as Winograd describes it for F(2, 3) ("Arithmetic Complexity of Computations", 1980):

    a = (d0 - d2) g0                        first result:  a + b + c
    b = (d1 + d2) (g0 + g1 + g2) / 2        second result: b - c - e
    c = (d2 - d1) (g0 - g1 + g2) / 2
    e = (d1 - d3) g2

Where windows step by two, they are computed from five. The outer taps see what a filter of two taps sees:

    a = (d0 - d2) g0                        first result:  a + b + e
    b = d2 (g0 + g2)                        second result: b - c + f
    c = (d2 - d4) g2
    e = d1 g1
    f = d3 g1

Along two axes these are 16 products instead of 36, or 25. Factors of a square are counted along the last axis first.
"""

from __future__ import annotations

from ...dsl import AnyTensor, Index, Numeric, Pointer, unroll


def factors_of(stride: int) -> int:
    """How many products there are along an axis."""
    return 3 + stride


def factors_of_square(stride: tuple[int, int]) -> int:
    """How many products a square has."""
    return factors_of(stride[0]) * factors_of(stride[1])


def tap_factors(g: tuple[Numeric, ...], stride: int) -> tuple[Numeric, ...]:
    """The factors of three taps along an axis."""
    ends = g[0] + g[2]
    if stride == 2:
        return g[0], ends, g[2], g[1], g[1]
    half = g[0].dtype(0.5)
    return g[0], half * (ends + g[1]), half * (ends - g[1]), g[2]


def element_factors(d: tuple[Numeric, ...], stride: int) -> tuple[Numeric, ...]:
    """The factors of the elements that a pair of results sees along an axis."""
    if stride == 2:
        return d[0] - d[2], d[2], d[2] - d[4], d[1], d[3]
    return d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]


def pair_of(sums: tuple[Numeric, ...], stride: int) -> tuple[Numeric, Numeric]:
    """A pair of results from the sums of its products."""
    if stride == 2:
        return sums[0] + (sums[1] + sums[3]), (sums[1] - sums[2]) + sums[4]
    return sums[0] + (sums[1] + sums[2]), (sums[1] - sums[2]) - sums[3]


def store_row_factors(
    there: Pointer[Numeric], row: Pointer[Numeric], pairs: Index, pitch: Index, stride: int, lanes: int
) -> None:
    """Stores the factors along the last axis of a row: `pitch` lies between one factor of a pair and its next.

    Whole vectors are stored: up to `lanes - 1` elements behind the last pair change.
    """
    for c in range(0, pairs, lanes):
        if stride == 2:
            even, odd = row.load(4 * c, width=4 * lanes).deinterleave()
            (d0, d2), (d1, d3) = even.deinterleave(), odd.deinterleave()
            d4 = row.load(4 * c + 4, width=4 * lanes).deinterleave()[0].deinterleave()[0]
            values = element_factors((d0, d1, d2, d3, d4), stride)
        else:
            d0, d1 = row.load(2 * c, width=2 * lanes).deinterleave()
            d2, d3 = row.load(2 * c + 2, width=2 * lanes).deinterleave()
            values = element_factors((d0, d1, d2, d3), stride)
        for t in unroll(factors_of(stride)):
            there.store(values[t], t * pitch + c)


def finish_squares(
    finished: AnyTensor,
    sums: AnyTensor,
    first: Index,
    sizes: tuple[int, Index, Index, Index],
    stride: tuple[int, int],
    lanes: int,
) -> None:
    """Rows of results from the sums for their factors.

    Args:
        finished: for each of the rows of `sums`, the first rows of results of its squares, then their second rows.
        sums: those of a factor lie behind those of the factor before it.
        first: where the sums of the first factor begin.
        sizes: how many rows there are, how many squares of each, how far a row lies from the next, and a factor.
        stride: of the windows.
        lanes: those of a vector.
    """
    rows, squares, pitch, factor = sizes
    down, across = factors_of(stride[0]), factors_of(stride[1])
    for i in range(rows):
        for c in range(0, squares, lanes):
            at = first + i * pitch + c
            sides: tuple[tuple[Numeric, ...], ...] = ()
            for t in unroll(across):
                column = tuple(sums.load(at + (u * across + t) * factor, width=lanes) for u in unroll(down))
                sides = (*sides, pair_of(column, stride[0]))
            for side in unroll(2):
                left, right = pair_of(tuple(sides[t][side] for t in unroll(across)), stride[1])
                finished.store(left.interleave(right), (i * 2 + side) * 2 * pitch + 2 * c)
