"""Computes convolutions of images with filters of three by three taps, two by two results at a time.

`algorithms.squares` describes how squares of results are computed from factors of elements and of taps. `pack_squares`
computes the factors of taps when a model is loaded. `conv_squares` takes a block of squares at a time. It computes the
factors of its elements, then 16 products of matrices, one for each factor: of results by channels with channels by
squares. It adds their sums to results and stores these while all of them are in the cache.

See also `square_filters` of the graph (which convolutions these are), `packed_convolution`.
"""

from __future__ import annotations

from typing import TypeVar

from ...dsl import (
    AnyTensor,
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    Pointer,
    ceildiv,
    compiled_for,
    max,
    min,
    parallel_for,
    register,
    scratch,
    stack,
    unroll,
    vectorize,
)
from ..algorithms.algorithm import unravelled
from ..algorithms.products import DEPTH, TASKS, VECTORS, WORK
from ..algorithms.register_tiles import add_tile
from ..algorithms.squares import FACTORS, SQUARE, filter_factors, finish_squares, store_row_factors

T = TypeVar("T", bound=Numeric)

SQUARES = 64  # of a block, about
ACROSS = 32  # squares of a row of a block, at most
STRIPS = 6  # that are computed of a block, one after the other
LEAST_STRIPS = 12  # of a task, if there are so many: each task computes the factors of its block


@register("pack_squares", writes_once=True)
def pack_squares(out: OutputTensor[T, "p k r"], filter: InputTensor[T, "f c 3 3"]) -> None:
    """The strips of all results for each factor, one after the other; their steps are channels."""
    strips, depth, rows = out.shape
    results, each = filter.dim(0), strips // SQUARE

    def strip(s: Index):
        for i in range(rows):
            result = s * rows + i
            for k in range(depth):
                if result < results:
                    columns = tuple(
                        filter_factors(tuple(filter[result, k, u, v] for u in unroll(3))) for v in unroll(3)
                    )
                    for u in unroll(FACTORS):
                        row = filter_factors(tuple(columns[v][u] for v in unroll(3)))
                        for v in unroll(FACTORS):
                            out[(u * FACTORS + v) * each + s, k, i] = row[v]
                else:
                    for t in unroll(SQUARE):
                        out[t * each + s, k, i] = T(0)

    parallel_for(each, strip, grain=ceildiv(WORK, depth * rows * 30 + 16))


@register("conv_squares", writes_once=True, reads={"x": 4})
def conv_squares(
    out: OutputTensor[T, "b f h w"],
    x: InputTensor[T, "b c y z"],
    strips: InputTensor[T, "p k r"],
    *,
    before: tuple[int, int],
    rows: int,
) -> None:
    """The convolution of images with a filter of which `pack_squares` made strips of `rows` results.

    `before` says how many zeros lie before the first row and column of an image.
    """
    lanes = max(compiled_for().vector_bits // T.bits, 1)
    each = strips.dim(0) // SQUARE
    down, across = ceildiv(out.dim(2), 2), ceildiv(out.dim(3), 2)
    columns = max(ceildiv(across, max(ceildiv(across, ACROSS), 1)), 1)
    column_blocks = ceildiv(across, columns)
    lines = max(ceildiv(down, max(ceildiv(down, max(SQUARES // columns, 1)), 1)), 1)
    row_blocks = ceildiv(down, lines)
    blocks = out.dim(0) * row_blocks * column_blocks
    wanted = min(blocks * lines * columns * out.dim(1) * SQUARE * x.dim(1) // (1 << 20), TASKS)
    strip_blocks = max(min(ceildiv(wanted, max(blocks, 1)), each // LEAST_STRIPS), 1)
    height = ceildiv(each, strip_blocks)

    def block(task: Index):
        n, row_block, column_block, strip_block = unravelled(
            task, (out.dim(0), row_blocks, column_blocks, strip_blocks)
        )
        a, b, s = row_block * lines, column_block * columns, strip_block * height
        place = (a, min(lines, down - a), b, min(columns, across - b))
        _compute_block(out, x, strips, n, place, (s, min(s + height, each), each), before, (rows, lanes))

    work = height * rows * lines * columns * SQUARE * x.dim(1)
    parallel_for(blocks * strip_blocks, block, grain=ceildiv(WORK, work + 16))


def _compute_block(
    out: AnyTensor,
    x: AnyTensor,
    strips: AnyTensor,
    n: Index,
    place: tuple[Index, Index, Index, Index],
    own: tuple[Index, Index, Index],
    before: tuple[int, int],
    strip: tuple[int, int],
) -> None:
    """Computes some strips of results for a block of squares of an image.

    Args:
        place: the first row and column of squares, each with how many there are.
        own: the first strip, the one behind the last, and how many there are.
        before: as for `conv_squares`.
        strip: the rows of a strip, and the lanes of a vector.
    """
    T, (rows, lanes) = out.dtype, strip
    depth, width = strips.dim(1), VECTORS * lanes
    squares = place[1] * place[3]
    panels = ceildiv(squares, width)
    pitch = SQUARES
    factor = STRIPS * rows * pitch
    seen = scratch[T](SQUARE * (panels * depth + 1) * width)
    sums = scratch[T](SQUARE * factor)
    finished = stack[T](4 * rows * pitch, zeroed=False)
    _fill_block(seen, x, n, place, before, lanes)

    def add_products(s: Index, count: Index, t: Index, p: Index, vectors: int):
        """The sums of some strips for one factor and a panel."""
        start = (t * (panels * depth + 1) + p * depth) * width
        for first in range(0, depth, DEPTH):
            for i in range(count):
                add_tile(
                    lambda k, v, first=first: seen.load(start + (first + k) * width + v * lanes, width=lanes),
                    lambda k, r, at=t * own[2] + s + i, first=first: strips[at, first + k, r],
                    (sums, pitch), t * factor + i * rows * pitch + p * width,
                    first == 0, min(depth - first, DEPTH), (rows, vectors, lanes),
                )  # fmt: skip

    for s in range(own[0], own[1], STRIPS):
        count = min(own[1] - s, STRIPS)
        for t in range(SQUARE):
            for p in range(squares // width):
                add_products(s, count, t, p, VECTORS)
            if squares % width > lanes:
                add_products(s, count, t, squares // width, VECTORS)
            elif squares % width > 0:
                add_products(s, count, t, squares // width, 1)
        for i in range(count):
            finish_squares(finished, sums, i * rows * pitch, (rows, squares, factor), pitch, lanes)
            _store_strip(out, finished, n, (s + i) * rows, rows, place, pitch)


def _fill_block(
    seen: AnyTensor,
    x: AnyTensor,
    n: Index,
    place: tuple[Index, Index, Index, Index],
    before: tuple[int, int],
    lanes: int,
) -> None:
    """Stores the factors of the elements of a block, in panels: for each channel a panel's squares side by side."""
    T = x.dtype
    depth, width = x.dim(1), VECTORS * lanes
    lines, columns = place[1], place[3]
    panels = ceildiv(lines * columns, width)
    padded, pitch = 2 * (columns + 2 * lanes), (lines + 1) * columns + 2 * width
    held = scratch[T](2 * padded)  # two rows: one is read while the stores of the other go on
    factors = scratch[T](2 * FACTORS * pitch)  # of rows: of the even ones, then of the odd ones
    for k in range(2 * padded):
        held.pointer(0)[k] = T(0)
    for k in range(2 * FACTORS * pitch):
        factors.pointer(0)[k] = T(0)
    top, left = 2 * place[0] - before[0], 2 * place[2] - before[1]
    low = max(-left, 0)
    there = max(min(x.dim(3) - left, 2 * columns + 2) - low, 0)  # elements of a row
    for c in range(depth):
        for r in range(2 * lines + 3):
            row = held.pointer(r % 2 * padded + low)
            inside = (top + r >= 0) & (top + r < x.dim(2)) & (r < 2 * lines + 2)

            def copy(k: Index, width: int, row: Pointer[Numeric] = row, c: Index = c, r: Index = r):
                row.store(x.load(n, c, top + r, left + low + k, width=width), k)

            vectorize(there if inside else 0, lanes, copy)
            if not inside:
                for k in range(there):
                    row[k] = T(0)
            if r > 0:
                done = factors.pointer((r - 1) % 2 * FACTORS * pitch + (r - 1) // 2 * columns)
                store_row_factors(done, held.pointer((r - 1) % 2 * padded), columns, pitch, lanes)
        for p in range(panels):
            for t in unroll(FACTORS):
                even, odd = factors.pointer(t * pitch + p * width), factors.pointer((FACTORS + t) * pitch + p * width)
                new: tuple[tuple[Numeric, ...], ...] = ()
                for v in unroll(VECTORS):
                    d0, d1 = even.load(v * lanes, width=lanes), odd.load(v * lanes, width=lanes)
                    d2, d3 = even.load(columns + v * lanes, width=lanes), odd.load(columns + v * lanes, width=lanes)
                    new = (*new, (d0 - d2, d1 + d2, d2 - d1, d1 - d3))
                for u in unroll(FACTORS):
                    at = ((u * FACTORS + t) * (panels * depth + 1) + p * depth + c) * width
                    for v in unroll(VECTORS):
                        seen.pointer(0).store(new[v][u], at + v * lanes)


def _store_strip(
    out: AnyTensor,
    finished: AnyTensor,
    n: Index,
    first: Index,
    most_rows: int,
    place: tuple[Index, Index, Index, Index],
    pitch: int,
) -> None:
    """Stores the results of a strip, from the result `first` on, for a block of squares."""
    rows = min(out.dim(1) - first, most_rows)
    columns = min(2 * place[3], out.dim(3) - 2 * place[2])
    for i in range(rows):
        for a in range(min(2 * place[1], out.dim(2) - 2 * place[0])):
            at = (i * 2 + a % 2) * 2 * pitch + a // 2 * 2 * place[3]
            for j in range(columns):
                out[n, first + i, 2 * place[0] + a, 2 * place[2] + j] = finished[at + j]
