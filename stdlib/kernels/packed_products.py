"""Computes matrix products with a matrix that was packed when the model was loaded.

The right matrix lies in panels, as the kernels of `matmul` copy it at each call: `width` columns of a row side by side,
then those of the next row. So a product of few rows reads each element of it once, in the order of memory. The sums
are taken in the same order as by `matmul` and `matmul_transposed`: the results are the same to the bit.

See also `pack_weights` of the graph (which products are packed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...dsl import (
    AnyDType,
    AnyTensor,
    DeviceContext,
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    Parts,
    bfloat16,
    ceildiv,
    parallel_for,
    register,
    stack,
    store,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.products import DEPTH, VECTORS, WORK, is_paired
from ..algorithms.slabs import fill_strip
from .matmul import FEW_ROWS, HEIGHT, PANELS, block_counts, by_column, packed_tile

T = TypeVar("T", bound=Numeric)

AHEAD = 48  # steps of a panel that are fetched before they are used
PACKED_STEPS = 64  # steps of a panel that are copied in one go


@register("pack_panels", writes_once=True)
def pack_panels(out: OutputTensor[T, "p k w"], b: InputTensor[T, "d n"]) -> None:
    """The columns of b in panels of `w`, zeros behind the last one; of bfloat16 two steps in a row."""
    _pack(out, b.dim(1), b.dim(0), lambda k, j: b[k, j])


@register("pack_panels_transposed", writes_once=True)
def pack_panels_transposed(out: OutputTensor[T, "p k w"], b: InputTensor[T, "n d"]) -> None:
    """As `pack_panels` of the transposed b."""
    _pack(out, b.dim(0), b.dim(1), lambda k, j: b[j, k])


def _pack(out: AnyTensor, n: Index, depth: Index, element: Callable[[Index, Index], Numeric]) -> None:
    panels, rows, whole = out.shape
    steps_in_row = 2 if out.dtype == bfloat16 else 1  # side by side for each column, or one after the other
    width = whole // steps_in_row
    apart, onwards = (1, 2) if is_paired(out.dtype) else (width, 1)

    def panel(p: Index):
        columns = min(n - p * width, width)
        for first in range(0, rows, PACKED_STEPS):
            steps = min(rows - first, PACKED_STEPS)
            for k in range(steps):
                for j in range(whole if columns < width else 0):
                    out[p, first + k, j] = out.dtype(0)
            for j in range(columns):
                for k in range(steps):
                    for s in unroll(steps_in_row):
                        step = (first + k) * steps_in_row + s
                        value = element(step, p * width + j) if step < depth else out.dtype(0)
                        out[p, first + k, s * apart + j * onwards] = value

    parallel_for(panels, panel, grain=ceildiv(WORK, rows * whole + 16))


@register("matmul_packed", writes_once=True, reads={"a": 4})
def matmul_packed(
    out: OutputTensor[T, "*s m n"], a: InputTensor[T, "*s m k"], panels: InputTensor[T, "p k w"], ctx: DeviceContext
) -> None:
    """The product of the rows of a with a matrix in panels."""
    _multiply(ctx, out, a, panels, None)


@register("matmul_transposed_packed", writes_once=True, reads={"a": 4, "b": 1})
def matmul_transposed_packed(
    out: OutputTensor[T, "*s m n"],
    a: InputTensor[T, "*s m k"],
    b: InputTensor[T, "n k"],
    panels: InputTensor[T, "p k w"],
    ctx: DeviceContext,
) -> None:
    """As `matmul_packed` by the transposed b, whose columns are read where they lie when there are few rows."""
    _multiply(ctx, out, a, panels, b)


def _multiply(ctx: DeviceContext, out: AnyTensor, a: AnyTensor, panels: AnyTensor, b: AnyTensor) -> None:
    wide = wide_dtype(out.dtype)
    lanes = ctx.target.vector_bits // wide.bits
    rows = out.shape[:-1]
    m, n, depth = product(rows), out.dim(-1), a.dim(-1)

    held = out.dtype if is_paired(out.dtype) else wide

    def left(i: Index, dtype: AnyDType = held):
        lead = unravelled(i, rows)
        return lambda k: a[(*lead, k)].cast(dtype)

    def right(p: Index, first: Index):
        def vector(k: Index, v: int):
            panels.prefetch(p, first + k + AHEAD, v * lanes)
            return panels.load((p, first + k, v * lanes), width=lanes).cast(wide)

        def of_pair(k: Index, v: int):
            """Of a step in panels whose rows have two steps."""
            at, part = (first + k) // 2, (first + k) % 2 * VECTORS + v
            panels.prefetch(p, at + AHEAD // 2, part * lanes)
            return panels.load((p, at, part * lanes), width=lanes).cast(wide)

        def pairs(k: Index, v: int):
            panels.prefetch(p, first // 2 + k + AHEAD, 2 * v * lanes)
            return panels.load((p, first // 2 + k, 2 * v * lanes), width=2 * lanes)

        return pairs if is_paired(out.dtype) else of_pair if out.dtype == bfloat16 else vector

    def save(i: Index):
        lead = unravelled(i, rows)
        return lambda j, value: store(out, (*lead, j), value.cast(out.dtype))

    def all_by_panels():
        by_panels((m, n, depth), wide, held, lanes, 14 if ctx.target.vector_bits >= 512 else 6, left, right, save)

    if b == None:  # noqa: E711
        all_by_panels()
    elif m < FEW_ROWS:
        by_column(
            (1, m, n, depth),
            wide,
            lanes,
            lambda _, i: left(i, wide),
            lambda _: lambda k, j: b[j, k].cast(wide),
            lambda _: lambda j, k, width: b.load((j, k), width=width).cast(wide),
            lambda _, i: save(i),
        )
    else:
        all_by_panels()


def by_panels(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    held: AnyDType,
    lanes: int,
    strip_rows: int,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """As the blocks of `matmul`, which read the panels where they lie."""
    m, n, depth = sizes
    width = VECTORS * lanes
    tile = strip_rows * width
    row_blocks, column_blocks = block_counts(m, n, depth, width)
    height = ceildiv(ceildiv(m, row_blocks), strip_rows) * strip_rows
    breadth = ceildiv(ceildiv(n, column_blocks), width)  # in panels

    def block(task: Index):
        first_row = task // column_blocks * height
        first_panel = task % column_blocks * breadth
        rows = max(min(m - first_row, height), 0)
        panels = max(min(ceildiv(n, width) - first_panel, breadth), 0)
        strip = stack[held](strip_rows * DEPTH, zeroed=False)
        sums = stack[wide](ceildiv(HEIGHT, strip_rows) * PANELS * tile, zeroed=False)

        def strip_height(s: Index):
            return min(rows - s * strip_rows, strip_rows)

        def add_slab(first: Index):
            """Adds the products of some steps to the sums."""
            steps = min(depth - first, DEPTH)
            for s in range(ceildiv(rows, strip_rows)):
                start = first_row + s * strip_rows
                fill_strip(strip, lambda i, start=start: a(start + i), strip_height(s), strip_rows, first, steps)
                for p in range(panels):
                    at = (s * PANELS + p) * tile
                    panel = b(first_panel + p, first)
                    packed_tile(strip_height(s), strip, panel, sums, at, first == 0, steps, (strip_rows, lanes))

        def store_strip(s: Index):
            for i in range(strip_height(s)):
                put = save(first_row + s * strip_rows + i)
                for p in range(panels):
                    column = (first_panel + p) * width
                    for j in range(min(n - column, width)):
                        put(column + j, sums[(s * PANELS + p) * tile + i * width + j])

        for first in range(0, max(depth, 1), DEPTH):
            add_slab(first)
        for s in range(ceildiv(rows, strip_rows)):
            store_strip(s)

    parallel_for(row_blocks * column_blocks, block, grain=ceildiv(WORK, height * breadth * width * depth + 16))
