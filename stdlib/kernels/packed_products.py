"""Computes matrix products with a matrix that was packed when the model was loaded.

The right matrix lies in panels, as the kernels of `matmul` copy it at each call: `width` columns of a row side by side,
then those of the next row. So a product of few rows reads each element of it once. The sums are taken in the same
order as by `matmul` and `matmul_transposed`: the results are the same to the bit.

See also `pack_weights` of the graph (which products are packed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    Parts,
    bfloat16,
    ceildiv,
    compiled_for,
    float32,
    int8,
    parallel_for,
    register,
    stack,
    store,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.products import DEPTH, VECTORS, WORK, is_paired, times_plus
from ..algorithms.slabs import fill_strip
from .matmul import (
    COLUMN_SPAN,
    DOT_ROWS,
    FEW_ROWS,
    HEIGHT,
    MOST_ROWS,
    PANELS,
    block_counts,
    packed_tile,
    sums_of,
)

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)

AHEAD = 48  # steps of a panel that are fetched before they are used
PACKED_STEPS = 64  # steps of a panel that are copied in one go


@register("pack_panels", writes_once=True)
def pack_panels(out: OutputTensor[T, "p k w"], b: InputTensor[T, "d n"]) -> None:
    """The columns of b in panels of `w`, zeros behind the last one; of bfloat16 two steps of a column side by side."""
    _pack(out, b.dim(1), b.dim(0), lambda k, j: b[k, j])


@register("pack_panels_transposed", writes_once=True)
def pack_panels_transposed(out: OutputTensor[T, "p k w"], b: InputTensor[T, "n d"]) -> None:
    """As `pack_panels` of the transposed b."""
    _pack(out, b.dim(0), b.dim(1), lambda k, j: b[j, k])


def _pack(out: AnyTensor, n: Index, depth: Index, element: Callable[[Index, Index], Numeric]) -> None:
    panels, rows, whole = out.shape
    steps_in_row = 2 if out.dtype == bfloat16 else 1
    width = whole // steps_in_row

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
                        out[p, first + k, s + j * steps_in_row] = value

    parallel_for(panels, panel, grain=ceildiv(WORK, rows * whole + 16))


@register("matmul_packed", writes_once=True, reads={"a": 4})
def matmul_packed(
    out: OutputTensor[T, "*s m n"],
    a: InputTensor[T, "*s m k"],
    panels: InputTensor[T, "p k w"],
    ctx: DeviceContext,
    *,
    lanes: int = 0,
) -> None:
    """The product of the rows of a with a matrix in panels of `lanes` in a vector; 0 for those of the target."""
    _multiply(ctx, out, a, panels, lanes, False, wide_dtype(T))


@register("matmul_transposed_packed", writes_once=True, reads={"a": 4})
def matmul_transposed_packed(
    out: OutputTensor[T, "*s m n"],
    a: InputTensor[T, "*s m k"],
    panels: InputTensor[T, "p k w"],
    ctx: DeviceContext,
    *,
    lanes: int = 0,
) -> None:
    """As `matmul_packed`, with the sums of `matmul_transposed`, which are others when there are few rows."""
    _multiply(ctx, out, a, panels, lanes, True, wide_dtype(T))


@register("matmul_scaled_packed", writes_once=True, reads={"a": 4})
def matmul_scaled_packed(
    out: OutputTensor[F, "*s n"],
    a: InputTensor[F, "*s k"],
    scales: InputTensor[float32, "r c"],
    panels: InputTensor[int8, "p k w"],
    ctx: DeviceContext,
    *,
    rows: int,
    lanes: int = 0,
) -> None:
    """As `matmul_scaled` of integers that are scaled by rows, or all by one number."""

    def scaled(j: Index, value: Floating):
        return value * scales[0 if rows == 0 else j // rows, 0]

    _multiply(ctx, out, a, panels, lanes, True, float32, scaled)


def _multiply(
    ctx: DeviceContext,
    out: AnyTensor,
    a: AnyTensor,
    panels: AnyTensor,
    lanes: int,
    transposed: bool,
    wide: AnyDType,
    finished: Callable[[Index, Numeric], Numeric] = lambda j, value: value,
) -> None:
    """Sums products in the dtype `wide`; `finished` makes an element of column j of a sum."""
    rows = out.shape[:-1]

    def left(i: Index):
        lead = unravelled(i, rows)
        return lambda k: a[(*lead, k)]

    def put(i: Index):
        lead = unravelled(i, rows)
        return lambda j, value: store(out, (*lead, j), finished(j, value).cast(out.dtype))

    multiply_packed(ctx, (product(rows), out.dim(-1), a.dim(-1)), left, panels, lanes, transposed, wide, put)


def multiply_packed(
    ctx: DeviceContext,
    sizes: tuple[Index, ...],
    row: Callable[..., Parts],
    panels: AnyTensor,
    given_lanes: int,
    transposed: bool,
    wide: AnyDType,
    put: Callable[..., Parts],
) -> None:
    """put(i)(j, the sum of row(i)(k) times the element k, j of a packed matrix), of the dtype `wide`, for all rows."""
    lanes = given_lanes or ctx.target.vector_bits // wide.bits
    m, n, depth = sizes

    held = panels.dtype if is_paired(panels.dtype) else wide

    def left(i: Index, dtype: AnyDType = held):
        element = row(i)
        return lambda k: element(k).cast(dtype)

    def steps(p: Index, k: Index, odd: Index, v: int):
        """A vector of step k + odd, of an even k."""
        if panels.dtype != bfloat16:
            return panels.load((p, k + odd, v * lanes), width=lanes).cast(wide)
        both = panels.load((p, k // 2, 2 * v * lanes), width=2 * lanes).deinterleave()
        return (both[0] if odd == 0 else both[1]).cast(wide)

    def right(p: Index, first: Index):
        def vector(k: Index, v: int):
            panels.prefetch(p, first + k + AHEAD, v * lanes)
            return panels.load((p, first + k, v * lanes), width=lanes).cast(wide)

        def of_pair(k: Index, v: int):
            """Of a step in panels whose rows have two steps."""
            at = (first + k) // 2
            panels.prefetch(p, at + AHEAD // 2, 2 * v * lanes)
            return steps(p, 2 * at, (first + k) % 2, v)

        def pairs(k: Index, v: int):
            panels.prefetch(p, first // 2 + k + AHEAD, 2 * v * lanes)
            return panels.load((p, first // 2 + k, 2 * v * lanes), width=2 * lanes)

        return pairs if is_paired(panels.dtype) else of_pair if panels.dtype == bfloat16 else vector

    def all_by_panels():
        by_panels((m, n, depth), wide, held, lanes, 14 if ctx.target.vector_bits >= 512 else 6, left, right, put)

    if not (transposed and wide.is_float()):  # sums of integers are the same in any order
        all_by_panels()
    elif m < FEW_ROWS:
        by_lanes((m, n, depth), wide, lanes, lambda i: left(i, wide), steps, put)
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


def by_lanes(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    lanes: int,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """Products of few rows with the sums of `matmul_transposed`: one for each lane of a vector, added by halves.

    Columns lie side by side here: what is a lane there is a vector of neighbouring columns here, which sums every
    `step`-th step of them; b(p, k, odd, v) are the elements of step k + odd.
    """
    m, n, depth = sizes
    width = VECTORS * lanes
    each = max(DOT_ROWS // width, 1)  # panels of a task
    most = 2 * lanes  # vectors of columns
    step = sums_of(m) * lanes

    def part(task: Index):
        first_panel = task * each
        count = min(ceildiv(n, width) - first_panel, each)
        rows = stack[wide](MOST_ROWS * COLUMN_SPAN, zeroed=False)
        sums = stack[wide](MOST_ROWS * most * width, zeroed=False)
        totals = stack[wide](MOST_ROWS * each * width)

        def run(first: Index):
            """Adds the products of COLUMN_SPAN steps, or of as many as there are, to the totals."""
            steps = min(depth - first, COLUMN_SPAN)
            whole = steps // step * step
            for i in range(m):
                element = a(i)
                for k in range(steps):
                    rows[i * COLUMN_SPAN + k] = element(first + k)
            for p in range(count):

                def vector(k: Index, odd: Index, v: int, p: Index = p):
                    return b(first_panel + p, first + k, odd, v)

                for before in unroll(MOST_ROWS):
                    height = before + 1
                    if m == height:
                        _sum_lanes(sums, most, rows, height, vector, whole, lanes)
                for i in range(m):
                    for v in unroll(VECTORS):
                        start, at = i * most * width + v * lanes, (i * each + p) * width + v * lanes

                        def rest(k: Index, v: int = v):
                            return vector(whole + k // 2 * 2, k % 2, v)

                        _add_rest(sums, start, rows, i * COLUMN_SPAN + whole, rest, steps - whole, step, lanes)
                        total = _sum_of_lanes(sums, start, step, lanes)
                        totals.store(totals.load(at, width=lanes) + total, at)

        for first in range(0, depth, COLUMN_SPAN):
            run(first)
        for i in range(m):
            put = save(i)
            column = first_panel * width
            for j in range(min(n - column, count * width)):
                put(column + j, totals[i * each * width + j])

    parallel_for(ceildiv(n, each * width), part, grain=ceildiv(WORK, each * width * m * depth + 16))


def _sum_lanes(
    sums: AnyTensor,
    most: int,
    rows: AnyTensor,
    m: int,
    vector: Callable[..., Parts],
    whole: Index,
    lanes: int,
) -> None:
    """For each lane the sum of its products, of as many lanes at a time as there are registers for."""
    width = VECTORS * lanes
    step = sums_of(m) * lanes
    tile = _lanes_at_a_time(m)
    for lane in range(0, step, tile):
        held: tuple[Numeric, ...] = ()
        for _ in unroll(tile * VECTORS * m):
            held = (*held, SIMD[rows.dtype, lanes](0))
        for k in range(lane, whole, step):
            new: tuple[Numeric, ...] = ()
            for s in unroll(tile):
                for v in unroll(VECTORS):
                    other = vector(k + s // 2 * 2, s % 2, v)
                    for i in unroll(m):
                        factor = rows[i * COLUMN_SPAN + k + s]
                        new = (*new, times_plus(other, factor, held[(s * VECTORS + v) * m + i]))
            held = new
        for s in unroll(tile):
            for v in unroll(VECTORS):
                for i in unroll(m):
                    sums.store(held[(s * VECTORS + v) * m + i], (i * most + lane + s) * width + v * lanes)


def _add_rest(
    sums: AnyTensor,
    start: Index,
    rows: AnyTensor,
    row: Index,
    vector: Callable[..., Parts],
    count: Index,
    step: Index,
    lanes: int,
) -> None:
    """Adds the products of the steps behind the whole ones; to other lanes zeros, which is not nothing to -0."""
    width = VECTORS * lanes
    for k in range(step if count > 0 else 0):
        at = start + k * width
        if k < count:
            sums.store(times_plus(vector(k), rows[row + k], sums.load(at, width=lanes)), at)
        else:
            sums.store(sums.load(at, width=lanes) + sums.dtype(0), at)


def _sum_of_lanes(sums: AnyTensor, start: Index, step: Index, lanes: int) -> Numeric:
    """The sum of the lanes of columns that lie side by side, in the order of `reduce_add`."""
    width = VECTORS * lanes

    def add(k: Index, other: Index):
        at = start + k * width
        sums.store(sums.load(at, width=lanes) + sums.load(start + other * width, width=lanes), at)

    for k in range(step - lanes):
        add(k, lanes + k)
    left: Index = lanes
    while left > 1:
        left //= 2
        for k in range(left):
            add(k, left + k)
    total: Numeric = sums.load(start, width=lanes)
    return total


def _lanes_at_a_time(m: int) -> int:
    """How many lanes of m rows are summed at a time."""
    if compiled_for().vector_bits >= 512:
        return 8 if m == 1 else 4
    return 4 if m == 1 else 2
