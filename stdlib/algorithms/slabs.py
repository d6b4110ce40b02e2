"""Copies what products of matrices multiply: rows of a into strips, columns of b into panels of a slab.

See also `algorithms.products` (tiles, which multiply a strip by a panel).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import AnyTensor, Index, Numeric, Parts, ceildiv, min, stack, uint32, unroll
from .products import DEPTH, VECTORS, fill_step, is_paired, steps_together

MOST_TURNED = 16  # lanes of vectors that are turned in registers


def fill_slab(
    slab: AnyTensor,
    matrix: Callable[[Index, Index], Numeric],
    along: Callable[[Index, Index, int], Numeric] | None,
    steps: tuple[Index, Index],
    columns: tuple[Index, Index],
    lanes: int,
) -> None:
    """Copies a part of b into panels of two vectors, in pairs of steps where tiles multiply pairs.

    Args:
        matrix: matrix(k, j) is the element of step k and column j of b.
        along: of a transposed b, along(j, k, width) are neighbours of column j from step k on; else None.
        steps, columns: the first one of each, and how many.
    """
    first_step, step_count = steps
    first_column, count = columns
    width = VECTORS * lanes

    def element(k: Index, j: Index):
        return matrix(first_step + k, first_column + j)

    def turned(j: Index, k: Index, count: int):
        return along(first_column + j, first_step + k, count)

    is_turned = along != None and lanes <= MOST_TURNED  # noqa: E711
    if is_paired(slab.dtype):
        _copy_pairs(slab, step_count, count, lanes, element, turned if is_turned else None)
    elif is_turned:
        _turn_slab(slab, step_count, count, lanes, element, lambda j, k: turned(j, k, lanes))
    else:
        _copy_slab(slab, 0, step_count, 0, count, width, element)


def _copy_slab(
    slab: AnyTensor,
    first: Index,
    steps: Index,
    first_panel: Index,
    columns: Index,
    width: int,
    element: Callable[[Index, Index], Numeric],
) -> None:
    """Rows of b cut into panels: `width` columns of one row lie side by side, the next row follows.

    What a panel has beyond the last column is 0: it is multiplied too, and what lies there might be slow to multiply.
    Rows from `first` on and panels from `first_panel` on are copied.
    """
    for k in range(first, steps):
        fill_step(slab, k, first_panel, columns, width, lambda j, k=k: element(k, j))


def fill_strip(
    strip: AnyTensor, row: Callable[..., Parts], height: Index, strip_rows: int, first: Index, steps: Index
) -> None:
    """The elements of `height` rows from `first` on; zeros below them, and behind steps that are not a whole group."""
    for i in range(height):
        element = row(i)
        for k in range(steps):
            strip[i * DEPTH + k] = element(first + k)
    for i in range(height, strip_rows):
        for k in range(steps):
            strip[i * DEPTH + k] = strip.dtype(0)
    lane_sets = steps_together(strip.dtype)
    if lane_sets > 1:
        for i in range(strip_rows):
            for k in range(steps, ceildiv(steps, lane_sets) * lane_sets):
                strip[i * DEPTH + k] = strip.dtype(0)


def _copy_pairs(
    slab: AnyTensor,
    steps: Index,
    columns: Index,
    lanes: int,
    element: Callable[[Index, Index], Numeric],
    turned: Callable[[Index, Index, int], Numeric] | None,
) -> None:
    """As `_copy_slab`, with the elements of two steps side by side for each column.

    Of a transposed b, turned(j, k, width) are elements of column j from k on: squares of pairs are turned over.
    """
    width = VECTORS * lanes
    whole = columns // width if turned != None else 0  # noqa: E711
    squares = steps // (2 * lanes) if turned != None else 0  # noqa: E711
    if turned != None:  # noqa: E711
        words = slab.pointer(0).bitcast(uint32)
        square = stack[slab.dtype](2 * lanes * lanes, zeroed=False)
        pairs = square.pointer(0).bitcast(uint32)
        for p in range(whole):
            for s in range(squares):
                for v in unroll(VECTORS):
                    for r in unroll(lanes):
                        square.store(turned(p * width + v * lanes + r, s * 2 * lanes, 2 * lanes), r * 2 * lanes)
                    rows: tuple[Any, ...] = ()
                    for r in unroll(lanes):
                        rows = (*rows, pairs.load(r * lanes, width=lanes))
                    across = _turned(rows, lanes)
                    at = (p * DEPTH // 2 + s * lanes) * width + v * lanes
                    for r in unroll(lanes):
                        words.store(across[r], at + r * width)
    for p in range(ceildiv(columns, width)):
        there = min(columns - p * width, width)
        for k in range(squares * lanes if p < whole else 0, ceildiv(steps, 2)):
            at = (p * DEPTH + 2 * k) * width
            for j in range(there):
                slab[at + 2 * j] = element(2 * k, p * width + j)
                slab[at + 2 * j + 1] = element(2 * k + 1, p * width + j) if 2 * k + 1 < steps else slab.dtype(0)
            for j in range(2 * there, 2 * width):
                slab[at + j] = slab.dtype(0)


def _turn_slab(
    slab: AnyTensor,
    steps: Index,
    columns: Index,
    lanes: int,
    element: Callable[[Index, Index], Numeric],
    row: Callable[..., Parts],
) -> None:
    """As `_copy_slab` where row(j, k) are `lanes` elements of column j from k on: squares of these are turned over."""
    width = VECTORS * lanes
    whole = columns // width
    squares = steps // lanes
    for p in range(whole):
        for square in range(squares):
            for v in range(VECTORS):
                at = (p * DEPTH + square * lanes) * width + v * lanes
                rows: tuple[Any, ...] = ()
                for r in unroll(lanes):
                    rows = (*rows, row(p * width + v * lanes + r, square * lanes))
                turned = _turned(rows, lanes)
                for r in unroll(lanes):
                    slab.store(turned[r], at + r * width)
    _copy_slab(slab, squares * lanes, steps, 0, columns, width, element)
    if whole * width < columns:
        _copy_slab(slab, 0, squares * lanes, whole, columns, width, element)


def _turned(rows: tuple[Parts, ...], lanes: int) -> Any:
    """Vectors of a square, turned over: lane j of vector i is lane i of vector j."""
    for step in unroll(lanes):
        if (1 << step) < lanes:
            new: tuple[Any, ...] = ()
            for i in unroll(lanes // 2):
                new = (*new, *rows[i].interleave(rows[i + lanes // 2]).split())
            rows = new
    return rows
