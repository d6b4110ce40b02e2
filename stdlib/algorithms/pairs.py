"""Pairs of neighbouring results of filters with three taps, computed from four products.

Where the last axis of a filter has three taps of neighbours, two neighbouring results need six products. They are
computed from four, as Winograd describes it for F(2, 3) ("Arithmetic Complexity of Computations", 1980): with d the
four elements that they see, and g the taps,

    a = (d0 - d2) g0                        first result:  a + b + c
    b = (d1 + d2) (g0 + g1 + g2) / 2        second result: b - c - e
    c = (d2 - d1) (g0 - g1 + g2) / 2
    e = (d1 - d3) g2
"""

from __future__ import annotations

from ...dsl import AnyTensor, Element, Index, Numeric, Pointer, unroll, vectorize

FACTORS = 4  # of a pair of results


def store_factors(
    there: Pointer[Numeric], row: Pointer[Numeric], place: tuple[Index, Index], factor: Index, lanes: int
) -> None:
    """Stores the factors of the pairs of a row; `place` says where in a plane they lie, and how many they are."""
    start, pairs = place

    def some(c: Index, width: int, mask: Element):
        d0, d1 = row.load(2 * c, width=2 * width).deinterleave()
        d2, d3 = row.load(2 * c + 2, width=2 * width).deinterleave()
        values = (d0 - d2, d1 + d2, d2 - d1, d1 - d3)
        for t in unroll(FACTORS):
            there.store(values[t], t * factor + start + c, mask=mask)

    vectorize(pairs, lanes, some, masked=True)


def add_factors(finished: AnyTensor, sums: AnyTensor, first: Index, rows: int, pitch: int, lanes: int) -> None:
    """Rows of pairs of results from the sums for their factors, which lie one after the other, from a row on."""
    for i in range(rows):
        for c in range(0, pitch, lanes):
            a, b, d, e = tuple(sums.load((first + t * rows + i) * pitch + c, width=lanes) for t in unroll(FACTORS))
            finished.store((a + (b + d)).interleave((b - d) - e), (i * pitch + c) * 2)
