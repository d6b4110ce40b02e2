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
from ..algorithms.squares import (
    element_factors,
    factors_of,
    factors_of_square,
    finish_squares,
    store_row_factors,
    tap_factors,
)

T = TypeVar("T", bound=Numeric)

SQUARES = 64  # of a block, about
ACROSS = 64  # squares of a row of a block, at most
STRIPS = 4  # that are computed of a block, one after the other
LEAST_STRIPS = 12  # of a task, if there are so many: each task computes the factors of its block


@register("pack_squares", writes_once=True)
def pack_squares(out: OutputTensor[T, "p k r"], filter: InputTensor[T, "f c 3 3"], *, stride: tuple[int, int]) -> None:
    """The strips of all results for each factor, one after the other; their steps are channels."""
    strips, depth, rows = out.shape
    down, across = factors_of(stride[0]), factors_of(stride[1])
    results, each = filter.dim(0), strips // (down * across)

    def strip(s: Index):
        for i in range(rows):
            result = s * rows + i
            for k in range(depth):
                if result < results:
                    columns = tuple(
                        tap_factors(tuple(filter[result, k, u, v] for u in unroll(3)), stride[0]) for v in unroll(3)
                    )
                    for u in unroll(down):
                        row = tap_factors(tuple(columns[v][u] for v in unroll(3)), stride[1])
                        for v in unroll(across):
                            out[(u * across + v) * each + s, k, i] = row[v]
                else:
                    for t in unroll(down * across):
                        out[t * each + s, k, i] = T(0)

    parallel_for(each, strip, grain=ceildiv(WORK, depth * rows * 30 + 16))


@register("conv_squares", writes_once=True, reads={"x": 4})
def conv_squares(
    out: OutputTensor[T, "b f h w"],
    x: InputTensor[T, "b c y z"],
    strips: InputTensor[T, "p k r"],
    *,
    stride: tuple[int, int],
    before: tuple[int, int],
    rows: int,
) -> None:
    """The convolution of images with a filter of which `pack_squares` made strips of `rows` results.

    Args:
        stride: 1 or 2 along each axis.
        before: how many zeros lie before the first row and column of an image.
    """
    lanes = max(compiled_for().vector_bits // T.bits, 1)
    square = factors_of_square(stride)
    each = strips.dim(0) // square
    down, across = ceildiv(out.dim(2), 2), ceildiv(out.dim(3), 2)
    columns = max(ceildiv(across, max(ceildiv(across, ACROSS), 1)), 1)
    column_blocks = ceildiv(across, columns)
    lines = max(ceildiv(down, max(ceildiv(down, max(SQUARES // columns, 1)), 1)), 1)
    row_blocks = ceildiv(down, lines)
    blocks = out.dim(0) * row_blocks * column_blocks
    wanted = min(blocks * lines * columns * out.dim(1) * square * x.dim(1) // (1 << 20), TASKS)
    strip_blocks = max(min(ceildiv(wanted, max(blocks, 1)), each // LEAST_STRIPS), 1)
    height = ceildiv(each, strip_blocks)

    def block(task: Index):
        n, row_block, column_block, strip_block = unravelled(
            task, (out.dim(0), row_blocks, column_blocks, strip_blocks)
        )
        a, b, s = row_block * lines, column_block * columns, strip_block * height
        place = (a, min(lines, down - a), b, min(columns, across - b))
        _compute_block(out, x, strips, n, place, (s, min(s + height, each), each), (stride, before), (rows, lanes))

    work = height * rows * lines * columns * square * x.dim(1)
    parallel_for(blocks * strip_blocks, block, grain=ceildiv(WORK, work + 16))


def _compute_block(
    out: AnyTensor,
    x: AnyTensor,
    strips: AnyTensor,
    n: Index,
    place: tuple[Index, Index, Index, Index],
    own: tuple[Index, Index, Index],
    windows: tuple[tuple[int, int], tuple[int, int]],
    strip: tuple[int, int],
) -> None:
    """Computes some strips of results for a block of squares of an image.

    Args:
        place: the first row and column of squares, each with how many there are.
        own: the first strip, the one behind the last, and how many there are.
        windows: `stride` and `before` of `conv_squares`.
        strip: the rows of a strip, and the lanes of a vector.
    """
    T, (rows, lanes), stride = out.dtype, strip, windows[0]
    square = factors_of_square(stride)
    depth, width = strips.dim(1), VECTORS * lanes
    squares = place[1] * place[3]
    panels = ceildiv(squares, width)
    pitch = SQUARES
    factor = STRIPS * rows * pitch
    seen = scratch[T](square * (panels * depth + 1) * width)
    sums = scratch[T](square * factor)
    finished = stack[T](4 * rows * pitch, zeroed=False)
    _fill_block(seen, x, n, place, windows, lanes)

    def add_products(s: Index, count: Index, t: Index, p: Index, vectors: int):
        """The sums of some strips for one factor and a panel."""
        start = (t * (panels * depth + 1) + p * depth) * width
        for first in range(0, depth, DEPTH):
            for i in range(count):
                add_tile(
                    lambda k, v, first=first: seen.load(start + (first + k) * width + v * lanes, width=lanes),
                    lambda k, r, at=t * own[2] + s + i, first=first: strips[at, first + k, r],
                    (sums, pitch), t * factor + i * rows * pitch + p * width,
                    first == 0, min(depth - first, DEPTH), (rows, vectors, lanes), T,
                )  # fmt: skip

    for s in range(own[0], own[1], STRIPS):
        count = min(own[1] - s, STRIPS)
        for t in range(square):
            for p in range(squares // width):
                add_products(s, count, t, p, VECTORS)
            if squares % width > lanes:
                add_products(s, count, t, squares // width, VECTORS)
            elif squares % width > 0:
                add_products(s, count, t, squares // width, 1)
        for i in range(count):
            finish_squares(finished, sums, i * rows * pitch, (rows, squares, pitch, factor), stride, lanes)
            _store_strip(out, finished, n, (s + i) * rows, rows, place, pitch)


def _fill_block(
    seen: AnyTensor,
    x: AnyTensor,
    n: Index,
    place: tuple[Index, Index, Index, Index],
    windows: tuple[tuple[int, int], tuple[int, int]],
    lanes: int,
) -> None:
    """Stores the factors of the elements of a block, in panels: for each channel a panel's squares side by side."""
    T, (stride, before) = x.dtype, windows
    depth, width = x.dim(1), VECTORS * lanes
    top, left = 2 * stride[0] * place[0] - before[0], 2 * stride[1] * place[2] - before[1]
    lines, columns = place[1], place[3]
    panels = ceildiv(lines * columns, width)
    phases, across = 2 * stride[0], factors_of(stride[1])
    padded, pitch = 2 * stride[1] * (columns + 2 * lanes), (lines + 1) * columns + 2 * width
    held = scratch[T](2 * padded)  # two rows: one is read while the stores of the other go on
    factors = scratch[T](phases * across * pitch)  # of rows, in the order of their remainders by `phases`
    for k in range(2 * padded):
        held.pointer(0)[k] = T(0)
    for k in range(phases * across * pitch):
        factors.pointer(0)[k] = T(0)
    low, count = max(-left, 0), phases * lines + 3 - stride[0]
    there = max(min(x.dim(3) - left, 2 * stride[1] * columns + 3 - stride[1]) - low, 0)  # elements of a row
    for c in range(depth):
        for r in range(count + 1):
            row = held.pointer(r % 2 * padded + low)
            inside = (top + r >= 0) & (top + r < x.dim(2)) & (r < count)

            def copy(k: Index, width: int, row: Pointer[Numeric] = row, c: Index = c, r: Index = r):
                row.store(x.load(n, c, top + r, left + low + k, width=width), k)
                x.prefetch(n, min(c + 1, depth - 1), top + r, left + low + k)  # the next channel lies elsewhere

            vectorize(there if inside else 0, lanes, copy)
            if not inside:
                for k in range(there):
                    row[k] = T(0)
            if r > 0:
                done = factors.pointer((r - 1) % phases * across * pitch + (r - 1) // phases * columns)
                store_row_factors(done, held.pointer((r - 1) % 2 * padded), columns, pitch, stride[1], lanes)
        for p in range(panels):
            for t in unroll(across):
                new: tuple[tuple[Numeric, ...], ...] = ()
                for v in unroll(VECTORS):
                    at = t * pitch + p * width + v * lanes
                    rows = tuple(
                        factors.load(u % phases * across * pitch + u // phases * columns + at, width=lanes)
                        for u in unroll(phases + 3 - stride[0])
                    )
                    new = (*new, element_factors(rows, stride[0]))
                for u in unroll(factors_of(stride[0])):
                    at = ((u * across + t) * (panels * depth + 1) + p * depth + c) * width
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
