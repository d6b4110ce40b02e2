"""Squares of two by two neighbouring results of filters with three by three taps, computed from sixteen products.

Four such results need 36 products. They are computed from 16, as Winograd describes it for F(2 x 2, 3 x 3) ("Arithmetic
Complexity of Computations", 1980): what `algorithms.pairs` computes along the last axis is computed along the last two.
A square sees four by four elements. Element `4 * i + j` of `SQUARE` is factor i of rows and j of columns.
"""

from __future__ import annotations

from ...dsl import AnyTensor, Index, Numeric, Pointer, unroll

FACTORS = 4  # along an axis
SQUARE = FACTORS * FACTORS  # factors of a square


def filter_factors(taps: tuple[Numeric, ...]) -> tuple[Numeric, ...]:
    """The factors of three taps along an axis."""
    half = taps[0].dtype(0.5)
    ends = taps[0] + taps[2]
    return taps[0], half * (ends + taps[1]), half * (ends - taps[1]), taps[2]


def store_row_factors(there: Pointer[Numeric], row: Pointer[Numeric], squares: Index, pitch: Index, lanes: int) -> None:
    """Stores the factors along the last axis of a row: `pitch` lies between one factor of a square and its next.

    Whole vectors are stored: up to `lanes - 1` elements behind the last square change.
    """
    for c in range(0, squares, lanes):
        d0, d1 = row.load(2 * c, width=2 * lanes).deinterleave()
        d2, d3 = row.load(2 * c + 2, width=2 * lanes).deinterleave()
        values = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
        for t in unroll(FACTORS):
            there.store(values[t], t * pitch + c)


def finish_squares(
    finished: AnyTensor, sums: AnyTensor, first: Index, sizes: tuple[int, Index, Index], pitch: Index, lanes: int
) -> None:
    """Rows of results from the sums for their factors.

    Args:
        finished: for each of the rows of `sums`, the first rows of results of its squares, then their second rows.
        sums: those of a factor lie behind those of the factor before it.
        first: where the sums of the first factor begin.
        sizes: how many rows there are, how many squares of each, and how far a factor lies from the next.
        pitch: how far a row lies from the next.
        lanes: those of a vector.
    """
    rows, squares, factor = sizes
    for i in range(rows):
        for c in range(0, squares, lanes):
            at = first + i * pitch + c
            sides: tuple[tuple[Numeric, ...], ...] = ()
            for t in unroll(FACTORS):
                # along the rows
                a, b, d, e = tuple(sums.load(at + (u * FACTORS + t) * factor, width=lanes) for u in unroll(FACTORS))
                sides = (*sides, (a + (b + d), (b - d) - e))
            for side in unroll(2):
                a, b, d, e = tuple(sides[t][side] for t in unroll(FACTORS))
                both = (a + (b + d)).interleave((b - d) - e)
                finished.store(both, (i * 2 + side) * 2 * pitch + 2 * c)
