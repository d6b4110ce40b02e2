"""`blocked_product`: a product of matrices that are gathered while they are packed.

As Goto and van de Geijn describe it ("Anatomy of high-performance matrix multiplication", 2008): a task owns a block of
the result and goes along the inner axis in slabs; it fills the slab of the right matrix as panels of a few vectors, and
that of the left one as strips of a few rows; a tile of strip times panel is held in registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Bool,
    Index,
    Numeric,
    Parts,
    bfloat16,
    ceildiv,
    compiled_for,
    dot2,
    dot4,
    fma,
    max,
    min,
    parallel_for,
    stack,
    uint8,
    unroll,
)

VECTORS = 2  # vectors of columns of a tile
DEPTH = 256  # steps along the inner axis that a slab has
HEIGHT = 266  # rows of a block, at most
LEAST_HEIGHT = 112  # rows of a block, at least, when there is a choice
PANELS = 16  # panels of a block, at most
WORK = 1 << 16  # multiplications that are worth a task of their own
BLOCK_WORK = 1 << 20  # the same where a task copies much
STEPS_OF_BYTES = 4  # steps that a product of 8-bit integers takes together
TASKS = 8  # tasks that keep all threads busy, if there is enough work


def times_plus(a: Numeric, b: Numeric, total: Numeric) -> Any:
    """a * b + total; rounded once for floats."""
    return fma(a, b, total) if b.dtype.is_float() else a * b + total


def is_paired(dtype: AnyDType) -> bool:
    """Whether products of `dtype` are computed in pairs of steps, by `dot2`."""
    return dtype == bfloat16 and compiled_for().supports("bf16_dot")


def steps_together(dtype: AnyDType) -> int:
    """How many steps along the inner axis tiles take at a time whose strips are of `dtype`.

    Strips of uint8 are those of `byte_products`; products of uint8 that wrap to uint8 have none.
    """
    if dtype == uint8:
        return STEPS_OF_BYTES
    return 2 if is_paired(dtype) else 1


def blocked_product(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    fill_strip: Callable[[AnyTensor, Index, Index, Index, Index, Index], None],
    fill_slab: Callable[[AnyTensor, int, Index, Index, Index, Index, Index], None],
    store_row: Callable[[Index, Index, Index, Index, AnyTensor, Index], None],
) -> None:
    """The products of as many pairs of matrices as `sizes` says.

    Args:
        sizes: how many, their rows, columns, and inner axis.
        wide: the dtype of the sums.
        fill_strip: a function (strip, batch, row, rows, first, steps) that stores the elements `first` to
            `first + steps` of the i-th of `rows` rows, from `row` on, to strip[i * DEPTH] and behind it.
        fill_slab: a function (slab, width, batch, column, columns, first, steps) that stores the k-th of `steps` rows
            of the right matrix, from `first` on: the element of the j-th of `columns` columns, from `column` on, to
            slab[panel_at(k, j, width)]. What a panel has beyond the last column is a finite number.
        store_row: a function (batch, row, column, columns, sums, at) that takes sums[at] and those behind it, the
            elements of some columns of a row.
    """
    batches, m, n, depth = sizes
    lanes = max(compiled_for().vector_bits // wide.bits, 1)
    # The sums of a tile fill the registers but for a few: there are 32 of 512 bits, but 16 of 256.
    strip_rows = 14 if compiled_for().vector_bits >= 512 else 6
    width = VECTORS * lanes
    tile = strip_rows * width
    row_blocks, column_blocks = _blocks(m, n, depth, width)
    height = ceildiv(ceildiv(m, row_blocks), strip_rows) * strip_rows
    breadth = ceildiv(ceildiv(n, column_blocks), width) * width

    def block(task: Index):
        batch = task // (row_blocks * column_blocks)
        at = task - batch * (row_blocks * column_blocks)
        first_row = at // column_blocks * height
        first_column = at % column_blocks * breadth
        rows = max(min(m - first_row, height), 0)
        columns = max(min(n - first_column, breadth), 0)
        strip = stack[wide](strip_rows * DEPTH, zeroed=False)
        slab = stack[wide](PANELS * DEPTH * width, zeroed=False)
        sums = stack[wide](ceildiv(HEIGHT, strip_rows) * PANELS * tile, zeroed=False)

        def add_slab(first: Index):
            """Adds the products of one slab to the sums."""
            steps = min(depth - first, DEPTH)
            fill_slab(slab, width, batch, first_column, columns, first, steps)
            for s in range(ceildiv(rows, strip_rows)):
                here = min(rows - s * strip_rows, strip_rows)
                fill_strip(strip, batch, first_row + s * strip_rows, here, first, steps)
                for i in range(here, strip_rows):
                    for k in range(steps):
                        strip[i * DEPTH + k] = wide(0)
                for p in range(ceildiv(columns, width)):
                    panel = panel_in(slab, p, lanes)
                    at = (s * PANELS + p) * tile
                    multiply_tile(strip, panel, sums, at, first == 0, steps, strip_rows, lanes)

        for first in range(0, max(depth, 1), DEPTH):
            add_slab(first)
        for row in range(rows):
            for p in range(ceildiv(columns, width)):
                at_row = (row // strip_rows * PANELS + p) * tile + row % strip_rows * width
                column = p * width
                store_row(batch, first_row + row, first_column + column, min(columns - column, width), sums, at_row)

    parallel_for(batches * row_blocks * column_blocks, block, grain=ceildiv(WORK, height * breadth * depth + 16))


def panel_at(k: int, j: Index, width: int) -> Index:
    """Where the element of step k and column j lies in a slab: `width` columns of a step, then those of the next."""
    return (j // width * DEPTH + k) * width + j % width


def panel_in(slab: AnyTensor, p: Index, lanes: int) -> Any:
    """A panel of a slab for `multiply_tile`."""
    width = VECTORS * lanes
    if is_paired(slab.dtype):
        return lambda k, v: slab.load((p * DEPTH + 2 * k) * width + 2 * v * lanes, width=2 * lanes)
    return lambda k, v: slab.load((p * DEPTH + k) * width + v * lanes, width=lanes)


def fill_step(
    slab: AnyTensor, k: Index, first_panel: Index, columns: Index, width: int, element: Callable[..., Parts]
) -> None:
    """Stores element(j) for the columns j of step k, from the panel `first_panel` on, and zeros behind the last one."""
    whole = columns // width
    for p in range(first_panel, whole):
        for j in range(width):
            slab[(p * DEPTH + k) * width + j] = element(p * width + j)
    if whole * width < columns:
        for j in range(columns - whole * width):
            slab[(whole * DEPTH + k) * width + j] = element(whole * width + j)
        for j in range(columns - whole * width, width):
            slab[(whole * DEPTH + k) * width + j] = slab.dtype(0)


def _blocks(m: Index, n: Index, depth: Index, width: int) -> tuple[Index, Index]:
    """Into how many blocks rows and columns are cut: few, since each copies its parts, but enough for all threads."""
    wanted = min(m * n * depth // BLOCK_WORK, TASKS)
    least = ceildiv(n, PANELS * width)
    row_blocks = max(ceildiv(m, HEIGHT), min(ceildiv(wanted, max(least, 1)), m // LEAST_HEIGHT), 1)
    column_blocks = max(least, min(ceildiv(wanted, row_blocks), n // (4 * width)), 1)
    return row_blocks, column_blocks


def multiply_tile(
    strip: AnyTensor,
    panel: Callable[[Index, int], Numeric],
    sums: AnyTensor,
    at: Index,
    is_first: bool | Bool,
    steps: Index,
    strip_rows: int,
    lanes: int,
) -> None:
    """sums = strip * panel, added to what the sums were unless this is the first slab; all of them in registers.

    panel(k, v) is vector v of step k; where tiles take several steps together, of the k-th group of them, those of a
    column side by side. A slab is summed by itself: of many steps a sum is so more exact.
    """
    lane_sets = steps_together(strip.dtype) if sums.dtype != strip.dtype else 1
    totals: tuple[Any, ...] = ()
    for _ in unroll(strip_rows * VECTORS):
        totals = (*totals, SIMD[sums.dtype, lanes](0))
    for k in range(ceildiv(steps, lane_sets)):
        row: tuple[Any, ...] = ()
        for v in unroll(VECTORS):
            row = (*row, panel(k, v))
        new: tuple[Any, ...] = ()
        for i in unroll(strip_rows):
            if lane_sets > 1:
                factor = _repeated(strip.load(i * DEPTH + lane_sets * k, width=lane_sets), lanes)
            else:
                factor = strip[i * DEPTH + k]
            for v in unroll(VECTORS):
                total = totals[i * VECTORS + v]
                if lane_sets == STEPS_OF_BYTES:
                    new = (*new, dot4(total, factor, row[v]))
                elif lane_sets == 2:
                    new = (*new, dot2(total, factor, row[v]))
                else:
                    new = (*new, times_plus(factor, row[v], total))
        totals = new
    if not is_first:
        both: tuple[Any, ...] = ()
        for t in unroll(strip_rows * VECTORS):
            both = (*both, sums.load(at + t * lanes, width=lanes) + totals[t])
        totals = both
    for t in unroll(strip_rows * VECTORS):
        sums.store(totals[t], at + t * lanes)


def _repeated(few: Numeric, times: int) -> Any:
    """A vector of a few lanes so many times side by side."""
    return few.shuffle(tuple(k % few.width for k in range(times * few.width)))
