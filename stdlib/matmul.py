"""Matrix products.

Large products run in blocks that stay in the caches, as Goto and van de Geijn describe ("Anatomy of high-performance
matrix multiplication", 2008): a task owns a block of the result and goes along the inner axis in slabs; it copies the
slab of b into panels of a few vectors, and the slab of a in strips of a few rows; a tile of strip times panel is held
in registers. Rows of vectors (small or flat products) and dot products (few columns) have loops of their own.

Sums run in float32 for half types, in the elements' own dtype otherwise. Elements of a and b are read one at a time
and those of the result are stored once, so that neighbours melt in.

Input: two tensors. Output: one. Non-goals: broadcasting and ranks other than 2 and 3, which the graph brings here.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ..dsl import (
    SIMD,
    DeviceContext,
    InputTensor,
    Numeric,
    OutputTensor,
    ceildiv,
    fma,
    gpu,
    parallel_for,
    register,
    stack,
    unroll,
)
from .algorithm import wide_dtype

T = TypeVar("T", bound=Numeric)

STRIP = 14  # rows of a tile: with two vectors of columns each, 28 of 32 registers hold sums
VECTORS = 2  # vectors of columns of a tile
VECTOR_BITS = 512
DEPTH = 256  # steps along the inner axis that a slab has
STRIPS = 19  # strips of a block
PANELS = 16  # panels of a block
FEW_ROWS = 8
FEW_COLUMNS = 8
SMALL = 32768  # multiplications below which copying into panels does not pay
ROW_SPAN = 256  # columns that one task of the plain loop takes
GPU_TILE = 16


@register("matmul", writes_once=True)
def matmul(out: OutputTensor[T, "m n"], a: InputTensor[T, "m k"], b: InputTensor[T, "k n"], ctx: DeviceContext) -> None:
    """The product of two matrices; 0 where the inner axis is empty. Half types are summed in float32; integers wrap."""

    def put(batch, i, j, value):
        out[i, j] = value

    sizes = (1, out.dim(0), out.dim(1), a.dim(1))
    _multiply(ctx, sizes, T, lambda batch, i, k: a[i, k], lambda batch, k, j: b[k, j], put)


@register("batch_matmul", writes_once=True)
def batch_matmul(
    out: OutputTensor[T, "b m n"], a: InputTensor[T, "b m k"], b: InputTensor[T, "b k n"], ctx: DeviceContext
) -> None:
    """The products of pairs of matrices; see `matmul`."""

    def put(batch, i, j, value):
        out[batch, i, j] = value

    sizes = (out.dim(0), out.dim(1), out.dim(2), a.dim(2))
    _multiply(ctx, sizes, T, lambda batch, i, k: a[batch, i, k], lambda batch, k, j: b[batch, k, j], put)


def _multiply(ctx: Any, sizes: Any, dtype: Any, left: Any, right: Any, put: Any) -> None:
    """put(batch, i, j, the sum of left(batch, i, k) * right(batch, k, j) over k) for all elements of the result."""
    wide = wide_dtype(dtype)
    batches, m, n, depth = sizes

    def a(batch, i, k):
        return left(batch, i, k).cast(wide)

    def b(batch, k, j):
        return right(batch, k, j).cast(wide)

    def store(batch, i, j, value):
        put(batch, i, j, value.cast(dtype))

    if ctx.target.is_gpu:
        _by_thread(ctx, sizes, wide, a, b, store)
    elif n < FEW_COLUMNS and m * depth > SMALL:
        _by_dot(sizes, wide, a, b, store)
    elif m < FEW_ROWS or n < FEW_COLUMNS or m * n * depth <= SMALL:
        _by_row(sizes, wide, a, b, store)
    else:
        _by_tile(sizes, wide, a, b, store)


def _times_plus(a: Any, b: Any, total: Any) -> Any:
    """a * b + total; rounded once for floats."""
    return fma(a, b, total) if b.dtype.is_float() else a * b + total


# *** one thread for each element, on a GPU ***


def _by_thread(ctx: Any, sizes: Any, wide: Any, a: Any, b: Any, store: Any) -> None:
    batches, m, n, depth = sizes

    def one():
        j = gpu.global_idx.x
        i = gpu.global_idx.y
        batch = gpu.block_idx.z
        if i < m and j < n:
            total = wide(0)
            for k in range(depth):
                total = _times_plus(a(batch, i, k), b(batch, k, j), total)
            store(batch, i, j, total)

    grid = (ceildiv(n, GPU_TILE), ceildiv(m, GPU_TILE), batches)
    ctx.launch(one, grid=grid, block=(GPU_TILE, GPU_TILE))


# *** small and flat products ***


def _by_row(sizes: Any, wide: Any, a: Any, b: Any, store: Any) -> None:
    """A few rows of the result at a time; each row of b is read once for them."""
    batches, m, n, depth = sizes
    spans = max(ceildiv(n, ROW_SPAN), 1)
    groups = max(ceildiv(m, FEW_ROWS), 1)

    def part(task):
        batch = task // (groups * spans)
        at = task - batch * (groups * spans)
        first_row = at // spans * FEW_ROWS
        first = at % spans * ROW_SPAN
        rows = min(m - first_row, FEW_ROWS)
        count = min(n - first, ROW_SPAN)
        sums = stack[wide](FEW_ROWS * ROW_SPAN)
        for k in range(depth):
            for i in range(rows):
                factor = a(batch, first_row + i, k)
                for j in range(count):
                    at_sum = i * ROW_SPAN + j
                    sums[at_sum] = _times_plus(factor, b(batch, k, first + j), sums[at_sum])
        for i in range(rows):
            for j in range(count):
                store(batch, first_row + i, first + j, sums[i * ROW_SPAN + j])

    work = FEW_ROWS * depth * min(n, ROW_SPAN)
    parallel_for(batches * ceildiv(m, FEW_ROWS) * ceildiv(n, ROW_SPAN), part, grain=ceildiv(SMALL, work + 16))


# *** few columns ***


def _by_dot(sizes: Any, wide: Any, a: Any, b: Any, store: Any) -> None:
    """Each element as the sum of a row of a with a column of b, which is copied to lie in one piece."""
    batches, m, n, depth = sizes
    lanes = VECTOR_BITS // wide.bits
    step = 4 * lanes
    span = ceildiv(DEPTH * 8, step) * step
    rows = 64
    groups = max(ceildiv(m, rows), 1)

    def part(task):
        batch = task // groups
        first_row = task % groups * rows
        last_row = min(first_row + rows, m)
        row = stack[wide](span)
        columns = stack[wide](FEW_COLUMNS * span)
        sums = stack[wide](rows * FEW_COLUMNS)
        for first in range(0, depth, span):
            count = min(depth - first, span)
            padded = ceildiv(count, step) * step
            for k in range(count):
                for j in range(n):
                    columns[j * span + k] = b(batch, first + k, j)
            for k in range(count, padded):
                row[k] = wide(0)
                for j in range(n):
                    columns[j * span + k] = wide(0)
            for i in range(first_row, last_row):
                for k in range(count):
                    row[k] = a(batch, i, first + k)
                for j in range(n):
                    at = (i - first_row) * FEW_COLUMNS + j
                    sums[at] += _dot(row, columns, j * span, padded, lanes, wide)
        for i in range(first_row, last_row):
            for j in range(n):
                store(batch, i, j, sums[(i - first_row) * FEW_COLUMNS + j])

    parallel_for(batches * ceildiv(m, rows), part)


def _dot(x: Any, y: Any, at: Any, count: Any, lanes: Any, wide: Any) -> Any:
    """The sum of x[k] * y[at + k] for `count` elements, a multiple of four vectors."""
    zero = SIMD[wide, lanes](0)
    sums = (zero, zero, zero, zero)
    for k in range(0, count, 4 * lanes):
        new = ()
        for v in unroll(4):
            place = k + v * lanes
            new = (*new, _times_plus(x.load(place, width=lanes), y.load(at + place, width=lanes), sums[v]))
        sums = new
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])).reduce_add()


# *** blocks, strips, panels and tiles ***


def _by_tile(sizes: Any, wide: Any, a: Any, b: Any, store: Any) -> None:
    """A task computes a block of STRIPS * PANELS tiles; the tiles' sums wait in memory from slab to slab."""
    batches, m, n, depth = sizes
    lanes = VECTOR_BITS // wide.bits
    width = VECTORS * lanes
    tile = STRIP * width
    # Blocks of equal size; few strips, where there would be fewer tasks than threads.
    row_blocks = max(ceildiv(m, STRIPS * STRIP), 1)
    height = ceildiv(ceildiv(m, row_blocks), STRIP) * STRIP
    column_blocks = max(ceildiv(n, PANELS * width), 1)
    breadth = ceildiv(ceildiv(n, column_blocks), width) * width

    def block(task):
        batch = task // (row_blocks * column_blocks)
        at = task - batch * (row_blocks * column_blocks)
        first_row = at // column_blocks * height
        first_column = at % column_blocks * breadth
        rows = min(m - first_row, height)
        columns = min(n - first_column, breadth)
        strips = ceildiv(rows, STRIP)
        panels = ceildiv(columns, width)
        strip = stack[wide](STRIP * DEPTH)
        slab = stack[wide](PANELS * DEPTH * width)
        sums = stack[wide](STRIPS * PANELS * tile)
        for first in range(0, depth, DEPTH):
            steps = min(depth - first, DEPTH)
            _copy_slab(slab, steps, panels, columns, width, lambda k, j: b(batch, first + k, first_column + j))
            for s in range(strips):
                for i in range(min(rows - s * STRIP, STRIP)):
                    row = first_row + s * STRIP + i
                    for k in range(steps):
                        strip[i * DEPTH + k] = a(batch, row, first + k)
                for p in range(panels):
                    _tile(strip, slab, p * DEPTH * width, sums, (s * PANELS + p) * tile, steps, lanes)
        for s in range(strips):
            for p in range(panels):
                _store_tile(
                    sums,
                    (s * PANELS + p) * tile,
                    width,
                    min(rows - s * STRIP, STRIP),
                    min(columns - p * width, width),
                    lambda i, j, value: store(batch, first_row + s * STRIP + i, first_column + p * width + j, value),
                )

    parallel_for(batches * row_blocks * column_blocks, block)


def _copy_slab(slab: Any, steps: Any, panels: Any, columns: Any, width: Any, element: Any) -> None:
    """Rows of b cut into panels: `width` columns of one row lie side by side, the next row follows."""
    whole = columns // width
    for k in range(steps):
        for p in range(whole):
            for j in range(width):
                slab[(p * DEPTH + k) * width + j] = element(k, p * width + j)
        for j in range(columns - whole * width):
            slab[(whole * DEPTH + k) * width + j] = element(k, whole * width + j)


def _tile(strip: Any, slab: Any, at_panel: Any, sums: Any, at_sums: Any, steps: Any, lanes: Any) -> None:
    """sums += strip * panel, with the tile's sums in registers."""
    width = VECTORS * lanes
    totals = ()
    for t in unroll(STRIP * VECTORS):
        totals = (*totals, sums.load(at_sums + t * lanes, width=lanes))
    for k in range(steps):
        row = ()
        for v in unroll(VECTORS):
            row = (*row, slab.load(at_panel + k * width + v * lanes, width=lanes))
        new = ()
        for i in unroll(STRIP):
            factor = strip[i * DEPTH + k]
            for v in unroll(VECTORS):
                new = (*new, _times_plus(factor, row[v], totals[i * VECTORS + v]))
        totals = new
    for t in unroll(STRIP * VECTORS):
        sums.store(totals[t], at_sums + t * lanes)


def _store_tile(sums: Any, at: Any, width: Any, rows: Any, columns: Any, store: Any) -> None:
    for i in range(rows):
        for j in range(columns):
            store(i, j, sums[at + i * width + j])
