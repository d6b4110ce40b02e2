"""Computes matrix products.

Large products run in blocks that stay in the caches, as Goto and van de Geijn describe ("Anatomy of high-performance
matrix multiplication", 2008): a task owns a block of the result and goes along the inner axis in slabs; it copies the
slab of b into panels of a few vectors, and the slab of a in strips of a few rows; a tile of strip times panel is held
in registers. Rows of vectors (small or flat products) and dot products (few columns) have loops of their own.

Sums run in float32 for half types, in the elements' own dtype otherwise. Elements of a and b are read one at a time
and those of the result are stored once, so that neighbours are fused.

Axes before the last two are taken apart once for each row, not for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Bool,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    Parts,
    ceildiv,
    compiled_for,
    parallel_for,
    register,
    stack,
    store,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.gpu_products import multiply_on_gpu
from ..algorithms.products import (
    BLOCK_WORK,
    DEPTH,
    LEAST_HEIGHT,
    TASKS,
    VECTORS,
    WORK,
    is_paired,
    multiply_tile,
    panel_in,
    times_plus,
)
from ..algorithms.slabs import fill_slab, fill_strip
from ..algorithms.tile_products import has_tiles, multiply_by_tiles

T = TypeVar("T", bound=Numeric)

HEIGHT = 560  # rows of a block, at most
PANELS = 8  # panels of a block, at most
LEAST_PANELS = 3  # the same at least, when there is a choice
FEW_ROWS = 4
MOST_ROWS = FEW_ROWS - 1  # of what has fewer
FEW_COLUMNS = 8
ROW_SPAN = 256  # columns that one task takes where there are few rows
DOT_ROWS = 64  # rows that one task takes where there are few columns
DOT_SPAN = 2048  # steps along the inner axis of a dot product in one go
COLUMN_SPAN = 16384  # the same where columns are read where they lie, each best as a whole
COLUMNS = 4  # columns that are multiplied at a time there


@register("matmul", writes_once=True, reads={"a": 4, "b": 1})
def matmul(
    out: OutputTensor[T, "*s m n"], a: InputTensor[T, "*s m k"], b: InputTensor[T, "k n"], ctx: DeviceContext
) -> None:
    """The product of the rows of a with a matrix; 0 where the inner axis is empty.

    Half types are summed in float32; integers wrap.
    """
    _multiply_rows(ctx, out, a, b, False)


@register("matmul_transposed", writes_once=True, reads={"a": 4, "b": 1})
def matmul_transposed(
    out: OutputTensor[T, "*s m n"], a: InputTensor[T, "*s m k"], b: InputTensor[T, "n k"], ctx: DeviceContext
) -> None:
    """As `matmul` by the transposed b."""
    _multiply_rows(ctx, out, a, b, True)


def _multiply_rows(ctx: DeviceContext, out: AnyTensor, a: AnyTensor, b: AnyTensor, transposed: bool) -> None:
    rows = out.shape[:-1]
    sizes = (product(rows), out.dim(-1), a.dim(-1))

    def left(row: Index):
        lead = unravelled(row, rows)
        return lambda k: a[(*lead, k)]

    def put(row: Index):
        lead = unravelled(row, rows)
        return lambda j, value: store(out, (*lead, j), value)

    if ctx.target.is_gpu and has_tiles(out.dtype) and not _is_one_row(out, 0):
        flat, result = a.as_matrix(), out.as_matrix()
        multiply_by_tiles((1, *sizes), lambda batch: flat, lambda batch: b, lambda batch: result, transposed)
    else:
        multiply_rows(ctx, sizes, out.dtype, left, b, put, transposed)


def multiply_rows(
    ctx: DeviceContext,
    sizes: tuple[Index, ...],
    dtype: AnyDType,
    left: Callable[..., Parts],
    b: AnyTensor,
    put: Callable[..., Parts],
    transposed: bool,
) -> None:
    """put(i)(j, the sum of left(i)(k) times the element k, j of a matrix, or j, k of a transposed one) for all rows."""

    def right(batch: Index):
        if transposed:
            return lambda j, k, width: b.load((j, k), width=width)
        return lambda k, j: b[k, j]

    multiply(ctx, (1, *sizes), dtype, lambda batch, i: left(i), right, lambda batch, i: put(i), transposed)


def _is_one_row(out: AnyTensor, first: int) -> Any:
    """Whether a result is known to have one row, along the axes from `first` on.

    That takes as long as it takes to read the matrix, for which more blocks are needed than there are tiles.
    """
    one = True
    for axis in unroll(first, out.rank - 1):
        one = one and out.is_one(axis)
    return one


@register("batch_matmul", writes_once=True, reads={"a": 4, "b": 1})
def batch_matmul(
    out: OutputTensor[T, "*s m n"], a: InputTensor[T, "*s m k"], b: InputTensor[T, "*s k n"], ctx: DeviceContext
) -> None:
    """The products of pairs of matrices; see `matmul`."""
    _multiply_pairs(ctx, out, a, b, False)


@register("batch_matmul_transposed", writes_once=True, reads={"a": 4, "b": 1})
def batch_matmul_transposed(
    out: OutputTensor[T, "*s m n"], a: InputTensor[T, "*s m k"], b: InputTensor[T, "*s n k"], ctx: DeviceContext
) -> None:
    """As `batch_matmul` by the transposed matrices of b."""
    _multiply_pairs(ctx, out, a, b, True)


def _multiply_pairs(ctx: DeviceContext, out: AnyTensor, a: AnyTensor, b: AnyTensor, transposed: bool) -> None:
    outer = out.shape[:-2]
    sizes = (product(outer), out.dim(-2), out.dim(-1), a.dim(-1))

    def left(batch: Index, i: Index):
        lead = unravelled(batch, outer)
        return lambda k: a[(*lead, i, k)]

    def right(batch: Index):
        lead = unravelled(batch, outer)
        if transposed:
            return lambda j, k, width: b.load((*lead, j, k), width=width)
        return lambda k, j: b[(*lead, k, j)]

    def put(batch: Index, i: Index):
        lead = unravelled(batch, outer)
        return lambda j, value: store(out, (*lead, i, j), value)

    def matrices(x: AnyTensor):
        return lambda batch: x[unravelled(batch, outer), :, :]

    if ctx.target.is_gpu and has_tiles(out.dtype) and not _is_one_row(out, out.rank - 2):
        multiply_by_tiles(sizes, matrices(a), matrices(b), matrices(out), transposed)
    else:
        multiply(ctx, sizes, out.dtype, left, right, put, transposed)


def multiply(
    ctx: DeviceContext,
    sizes: tuple[Index, ...],
    dtype: AnyDType,
    left: Callable[..., Parts],
    right: Callable[..., Parts],
    put: Callable[..., Parts],
    transposed: bool,
) -> None:
    """put(batch, i)(j, the sum of left(batch, i)(k) * right(batch)(k, j) over k) for all elements of the result.

    Of a transposed b right(batch)(j, k, width) are `width` elements from k on.
    """
    wide = wide_dtype(dtype)
    _, m, n, _ = sizes
    lanes = ctx.target.vector_bits // wide.bits

    def elements(held: AnyDType):
        """Functions for the elements of a row of a, and of b, as numbers of a dtype; and for vectors of its columns."""

        def a(batch: Index, i: Index):
            row = left(batch, i)
            return lambda k: row(k).cast(held)

        def b(batch: Index):
            matrix = right(batch)
            if transposed:
                return lambda k, j: matrix(j, k, 1).cast(held)
            return lambda k, j: matrix(k, j).cast(held)

        def columns(batch: Index):
            matrix = right(batch)
            return (lambda j, k, width: matrix(j, k, width).cast(held)) if transposed else None

        return a, b, columns

    def save(batch: Index, i: Index):
        row = put(batch, i)
        return lambda j, value: row(j, value.cast(dtype))

    a, b, columns = elements(wide)
    if ctx.target.is_gpu:
        multiply_on_gpu(sizes, wide, a, b, save, transposed)
    elif m < FEW_ROWS:
        if transposed:
            _by_column(sizes, wide, lanes, a, b, columns, save)
        else:
            _by_row(sizes, wide, is_paired(dtype), a, b, save)
    elif n < FEW_COLUMNS:
        _by_dot(sizes, wide, lanes, a, b, save)
    else:
        # The sums of a tile fill the registers but for a few: there are 32 of 512 bits, but 16 of 256.
        strip_rows = 14 if ctx.target.vector_bits >= 512 else 6
        held = dtype if is_paired(dtype) else wide
        a, b, columns = elements(held)
        _by_tile(sizes, wide, held, (strip_rows, lanes), a, b, columns, save)


# *** few rows ***


def _by_row(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    paired: bool,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """All rows of the result at a time, so that each row of b is read once; summed in the order of tiles.

    So in slabs, and where tiles take steps in pairs, the odd one of each pair first.
    """
    batches, m, n, depth = sizes
    spans = max(ceildiv(n, ROW_SPAN), 1)

    def part(task: Index):
        batch = task // spans
        first = task % spans * ROW_SPAN
        count = min(n - first, ROW_SPAN)
        sums = stack[wide](FEW_ROWS * ROW_SPAN)
        totals = stack[wide](FEW_ROWS * ROW_SPAN)
        matrix = b(batch)

        def add(k: Index):
            for i in range(m):
                factor = a(batch, i)(k)
                for j in range(count):
                    at = i * ROW_SPAN + j
                    sums[at] = times_plus(factor, matrix(k, first + j), sums[at])

        for slab in range(0, depth, DEPTH):
            end = min(slab + DEPTH, depth)
            if paired:
                for k in range(slab, end, 2):
                    if k + 1 < end:
                        add(k + 1)
                    add(k)
            else:
                for k in range(slab, end):
                    add(k)
            for i in range(m):
                for j in range(count):
                    at = i * ROW_SPAN + j
                    totals[at] += sums[at]
                    sums[at] = wide(0)
        for i in range(m):
            put = save(batch, i)
            for j in range(count):
                put(first + j, totals[i * ROW_SPAN + j])

    parallel_for(batches * ceildiv(n, ROW_SPAN), part, grain=ceildiv(WORK, m * depth * min(n, ROW_SPAN) + 16))


def _by_column(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    lanes: int,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    columns: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """Each element as the sum of a row of a times a column of b, which lies in one piece and is read once.

    Four columns at a time: each vector of a column is read for all rows, each vector of a row for all columns. There
    are at most `MOST_ROWS` rows; for each number of them there are loops along the inner axis, and all else is shared.
    """
    batches, m, n, depth = sizes
    groups = max(ceildiv(n, DOT_ROWS), 1)
    step = sums_of(m) * lanes

    def part(task: Index):
        batch = task // groups
        first_column = task % groups * DOT_ROWS
        count = min(n - first_column, DOT_ROWS)
        rows = stack[wide](MOST_ROWS * COLUMN_SPAN, zeroed=False)
        tails = stack[wide](COLUMNS * 2 * lanes)
        sums = stack[wide](DOT_ROWS * MOST_ROWS)
        matrix, vector = b(batch), columns(batch)

        def run(first: Index):
            """Adds the products of COLUMN_SPAN steps, or of as many as there are, to the sums."""
            steps = min(depth - first, COLUMN_SPAN)
            whole = steps // step * step
            for i in range(m):
                element = a(batch, i)
                for k in range(steps):
                    rows[i * COLUMN_SPAN + k] = element(first + k)
                for k in range(steps, ceildiv(steps, step) * step):
                    rows[i * COLUMN_SPAN + k] = wide(0)

            for j in range(0, count, COLUMNS):

                def column(c: Index, j: Index = j):
                    return min(first_column + j + c, n - 1)  # behind the last one, that one again

                for c in range(COLUMNS):
                    for k in range(whole, steps):
                        tails[c * step + k - whole] = matrix(first + k, column(c))

                def along(c: Index, k: Index, column: Callable[[Index], Index] = column):
                    return vector(column(c), first + k, lanes)

                _add_dots(sums, j, m, rows, along, tails, (whole, steps), lanes)

        for first in range(0, depth, COLUMN_SPAN):
            run(first)
        for i in range(m):
            put = save(batch, i)
            for j in range(count):
                put(first_column + j, sums[i * DOT_ROWS + j])

    parallel_for(batches * ceildiv(n, DOT_ROWS), part, grain=ceildiv(WORK, DOT_ROWS * m * depth + 16))


def sums_of(rows: Index) -> Index:
    """How many vectors of sums an element has: as many as there are registers for."""
    return 2 if compiled_for().vector_bits >= 512 or rows == 1 else 1


def _add_dots(
    sums: AnyTensor,
    at: Index,
    m: Index,
    rows: AnyTensor,
    vector: Callable[..., Parts],
    tails: AnyTensor,
    ends: tuple[Index, Index],
    lanes: int,
) -> None:
    """Adds the products of `m` rows and of some columns, from `at` on, to the sums; see `_dots_along`.

    Args:
        ends: of the steps in whole vectors, and of all steps.
    """
    for before in unroll(MOST_ROWS):
        height = before + 1
        if m == height:
            totals = _dots_along(rows, height, sums_of(height), vector, tails, ends[0], ends[1], lanes)
            for c in unroll(COLUMNS):
                for i in unroll(height):
                    sums[i * DOT_ROWS + at + c] += totals[c * height + i]


def _dots_along(
    rows: AnyTensor,
    m: int,
    vectors: Index,
    vector: Callable[..., Parts],
    tails: AnyTensor,
    whole: Index,
    steps: Index,
    lanes: int,
) -> Any:
    """For each column and each row the sum of their products; `tails` holds the elements of columns from `whole` on.

    Each has `vectors` vectors of sums.
    """
    step = vectors * lanes
    sums: tuple[Any, ...] = ()
    for _ in unroll(COLUMNS * m * vectors):
        sums = (*sums, SIMD[rows.dtype, lanes](0))

    def plus(sums: tuple[Floating, ...], factor: Callable[..., Parts], k: Index):
        factors: tuple[Any, ...] = ()
        for i in unroll(m):
            for v in unroll(vectors):
                factors = (*factors, rows.load(i * COLUMN_SPAN + k + v * lanes, width=lanes))
        new: tuple[Any, ...] = ()
        for c in unroll(COLUMNS):
            for v in unroll(vectors):
                other = factor(c, v)
                for i in unroll(m):
                    new = (*new, times_plus(other, factors[i * vectors + v], sums[(c * vectors + v) * m + i]))
        return new

    for k in range(0, whole, step):
        sums = plus(sums, lambda c, v, k=k: vector(c, k + v * lanes), k)
    if whole < steps:
        sums = plus(sums, lambda c, v: tails.load(c * step + v * lanes, width=lanes), whole)
    totals: tuple[Any, ...] = ()
    for c in unroll(COLUMNS):
        for i in unroll(m):
            total = sums[c * vectors * m + i]
            for v in unroll(vectors - 1):
                total = total + sums[(c * vectors + v + 1) * m + i]
            totals = (*totals, total.reduce_add().cast(rows.dtype))
    return totals


# *** few columns ***


def _by_dot(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    lanes: int,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """Each element as the sum of a row of a times a column of b, which is copied to lie in one piece."""
    batches, m, n, depth = sizes
    groups = max(ceildiv(m, DOT_ROWS), 1)

    def part(task: Index):
        batch = task // groups
        first_row = task % groups * DOT_ROWS
        rows = min(m - first_row, DOT_ROWS)
        row = stack[wide](DOT_SPAN, zeroed=False)
        columns = stack[wide](FEW_COLUMNS * DOT_SPAN, zeroed=False)
        sums = stack[wide](DOT_ROWS * FEW_COLUMNS)
        matrix = b(batch)

        def run(first: Index):
            """Adds the products of DOT_SPAN steps, or of as many as there are, to the sums."""
            count = min(depth - first, DOT_SPAN)
            padded = ceildiv(count, 4 * lanes) * (4 * lanes)
            for k in range(count):
                for j in range(n):
                    columns[j * DOT_SPAN + k] = matrix(first + k, j)
            for k in range(count, padded):
                row[k] = wide(0)
                for j in range(n):
                    columns[j * DOT_SPAN + k] = wide(0)
            for i in range(rows):
                element = a(batch, first_row + i)
                for k in range(count):
                    row[k] = element(first + k)
                for j in range(n):
                    sums[i * FEW_COLUMNS + j] += _dot(row, columns, j * DOT_SPAN, padded, lanes, wide)

        for first in range(0, depth, DOT_SPAN):
            run(first)
        for i in range(rows):
            put = save(batch, first_row + i)
            for j in range(n):
                put(j, sums[i * FEW_COLUMNS + j])

    parallel_for(batches * ceildiv(m, DOT_ROWS), part, grain=ceildiv(WORK, DOT_ROWS * n * depth + 16))


def _dot(x: AnyTensor, y: AnyTensor, at: Index, count: Index, lanes: int, wide: AnyDType) -> Any:
    """The sum of x[k] * y[at + k] for `count` elements, a multiple of four vectors."""
    zero = SIMD[wide, lanes](0)
    sums = (zero, zero, zero, zero)
    for k in range(0, count, 4 * lanes):
        new: tuple[Any, ...] = ()
        for v in unroll(4):
            place = k + v * lanes
            new = (*new, times_plus(x.load(place, width=lanes), y.load(at + place, width=lanes), sums[v]))
        sums = new
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])).reduce_add().cast(wide)


# *** blocks, strips, panels and tiles ***


def _by_tile(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    held: AnyDType,
    shape: tuple[int, int],
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    across: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """A task computes a block of tiles; their sums wait in memory from slab to slab.

    What is copied is of the dtype `held`. `shape`: the rows of a strip and the lanes of a vector.
    """
    strip_rows, lanes = shape
    batches, m, n, depth = sizes
    width = VECTORS * lanes
    tile = strip_rows * width
    row_blocks, column_blocks = block_counts(m, n, depth, width)
    height = ceildiv(ceildiv(m, row_blocks), strip_rows) * strip_rows
    breadth = ceildiv(ceildiv(n, column_blocks), width) * width

    def block(task: Index):
        batch = task // (row_blocks * column_blocks)
        at = task - batch * (row_blocks * column_blocks)
        first_row = at // column_blocks * height
        first_column = at % column_blocks * breadth
        rows = max(min(m - first_row, height), 0)
        columns = max(min(n - first_column, breadth), 0)
        strip = stack[held](strip_rows * DEPTH, zeroed=False)
        slab = stack[held](PANELS * DEPTH * width, zeroed=False)
        sums = stack[wide](ceildiv(HEIGHT, strip_rows) * PANELS * tile, zeroed=False)
        matrix = b(batch)

        def strip_height(s: Index):
            return min(rows - s * strip_rows, strip_rows)

        def add_slab(first: Index):
            """Adds the products of one slab to the sums."""
            steps = min(depth - first, DEPTH)
            fill_slab(slab, matrix, across(batch), (first, steps), (first_column, columns), lanes)
            for s in range(ceildiv(rows, strip_rows)):
                start = first_row + s * strip_rows
                fill_strip(strip, lambda i, start=start: a(batch, start + i), strip_height(s), strip_rows, first, steps)
                for p in range(ceildiv(columns, width)):
                    panel = panel_in(slab, p, lanes)
                    at = (s * PANELS + p) * tile
                    packed_tile(strip_height(s), strip, panel, sums, at, first == 0, steps, shape)

        def store_strip(s: Index):
            for i in range(strip_height(s)):
                put = save(batch, first_row + s * strip_rows + i)
                for p in range(ceildiv(columns, width)):
                    for j in range(min(columns - p * width, width)):
                        put(first_column + p * width + j, sums[(s * PANELS + p) * tile + i * width + j])

        for first in range(0, max(depth, 1), DEPTH):
            add_slab(first)
        for s in range(ceildiv(rows, strip_rows)):
            store_strip(s)

    parallel_for(batches * row_blocks * column_blocks, block, grain=ceildiv(WORK, height * breadth * depth + 16))


def block_counts(m: Index, n: Index, depth: Index, width: int) -> tuple[Index, Index]:
    """Into how many blocks rows and columns are cut: few, since each copies a and b, but enough for all threads.

    Columns are cut first: to copy the rows of a once more costs less than the columns of b.
    """
    wanted = min(m * n * depth // BLOCK_WORK, TASKS)
    column_blocks = max(ceildiv(n, PANELS * width), min(wanted, n // (LEAST_PANELS * width)), 1)
    row_blocks = max(ceildiv(m, HEIGHT), min(wanted // column_blocks, m // LEAST_HEIGHT), 1)
    return row_blocks, column_blocks


def packed_tile(
    height: Index,
    strip: AnyTensor,
    panel: Callable[[Index, int], Numeric],
    sums: AnyTensor,
    at: Index,
    is_first: bool | Bool,
    steps: Index,
    shape: tuple[int, int],
) -> None:
    """A tile of a strip: the lowest of a few heights that has the rows of the strip, of which there are `height`.

    `shape`: the rows of a full strip and the lanes of a vector.
    """
    strip_rows, lanes = shape
    if height <= strip_rows // 3:
        multiply_tile(strip, panel, sums, at, is_first, steps, strip_rows // 3, lanes)
    elif height <= strip_rows * 4 // 7:
        multiply_tile(strip, panel, sums, at, is_first, steps, strip_rows * 4 // 7, lanes)
    else:
        multiply_tile(strip, panel, sums, at, is_first, steps, strip_rows, lanes)
