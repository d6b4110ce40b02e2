"""Chooses the layouts of tiles, and moves tiles from one layout to another.

On a GPU the lanes of a warp hold what the sums of the target's matrix instructions are: some lanes a row, a few
neighbouring columns each. Elementwise work, reductions and products need no moves among such tiles. On a CPU the
threads hold whole rows, as vectors. Warps are arranged in a grid over the tile, whose form is the one choice there is.

See also `targets.products.LaneForm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....dsl.types.dtype import DType, SIMDType
from ...ir.builder import Builder
from ...ir.copy_opcodes import COPY_RING, RING
from ...ir.opcodes import OPCODES
from ...ir.program import Op, PointerType, Value
from ...targets.base import Target
from ...targets.products import LaneForm, lane_form
from ..evaluator import Evaluator, Point
from ..language.grids import gpu_value, kernel_of, role_barrier, whole_number
from ..members.spans import when
from ..values.tiles import Digit, TileAxis, TileLayout, TileProduct, TileValue

ROWS, COLUMNS = 16, 8  # a warp holds a multiple of these
CPU_COLUMNS = 16  # a thread of a CPU has at least so many neighbours, where the tile has them


def power_below(number: int) -> int:
    """The largest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)


def warp_grids(shape: tuple[int, int], warps: int, width: int = COLUMNS) -> list[tuple[int, int]]:
    """The arrangements of warps over a tile: how many along its rows and its columns.

    Warps that are side by side have multiples of `width` columns each.
    """
    rows, columns = shape
    most = power_below(max(warps, 1))
    down = [1 << k for k in range(most.bit_length()) if rows == 1 or rows % (ROWS << k) == 0]
    across = [1 << k for k in range(most.bit_length()) if k == 0 or columns == 1 or columns % (width << k) == 0]
    grids = [(m, n) for m in down for n in across if m * n <= most]
    used = max(m * n for m, n in grids)
    return [(m, n) for m, n in grids if m * n == used]


def balanced(shape: tuple[int, int], warps: int, width: int = COLUMNS) -> tuple[int, int]:
    """The arrangement in which a warp reads the fewest elements of the operands of a product."""
    rows, columns = shape
    return min(warp_grids(shape, warps, width), key=lambda grid: (rows / grid[0] + columns / grid[1], -grid[0]))


def by_rows(shape: tuple[int, int], warps: int, width: int = COLUMNS) -> tuple[int, int]:
    """The arrangement in which as few warps as possible share a row."""
    return max(warp_grids(shape, warps, width))


def choose(target: Target, threads: int, shape: tuple[int, int], *, rows: bool = False, first: int = 0) -> TileLayout:
    """The layout of a tile that threads hold from warp `first` of the block on; `rows`: as few warps as possible shall
    share a row.
    """
    if not target.has_grid:
        return _of_cpu(threads, shape)
    warps, form = threads // target.warp_size, lane_form(target)
    grouped = has_groups(target) and first % GROUP_WARPS == 0  # hardware counts the groups of a whole block
    if grouped and (held := of_groups(warps, shape)) is not None:
        return held
    grid = (by_rows if rows else balanced)(shape, warps, form.width)
    return of_lanes(form, warps, shape, grid)


def of_lanes(form: LaneForm, warps: int, shape: tuple[int, int], grid: tuple[int, int]) -> TileLayout:
    """The layout in which the lanes of a warp are arranged by a form, for a grid of warps.

    Where a warp has fewer columns than the form, or not a multiple of them, each lane has fewer neighbours.
    """
    (rows, columns), (down, across) = shape, grid
    lanes = form.rows * form.across
    run = math.gcd(columns // across, form.width) // form.across or 1
    row_divisor, column_divisor = (1, form.rows) if form.rows_first else (form.across, 1)
    lane_row, lane_column = Digit(row_divisor, form.rows, 1), Digit(column_divisor, form.across, run)
    warp_row, warp_column = Digit(lanes, down, rows // down), Digit(lanes * down, across, columns // across)
    rest = Digit(lanes * down * across, max(warps // (down * across), 1), 0)
    in_lanes = (lane_row, lane_column) if form.rows_first else (lane_column, lane_row)
    threads = tuple(d for d in (*in_lanes, warp_row, warp_column, rest) if d.size > 1)

    def axis(size: int, digits: tuple[Digit, ...], offsets: list[int]) -> TileAxis:
        return TileAxis(size, tuple(d for d in digits if d.size > 1), tuple(offsets)) if size > 1 else _ONE

    own_rows = list(range(0, rows // down, form.rows))
    own_columns = [k + n for k in range(0, columns // across, form.across * run) for n in range(run)]
    return TileLayout(
        axis(rows, (lane_row, warp_row), own_rows), axis(columns, (lane_column, warp_column), own_columns), threads
    )


_ONE = TileAxis(1, (), (0,))
GROUP_ROWS, GROUP_WARPS = 64, 4  # a group of four warps has 64 rows of sums: 16 rows a warp
GROUP_COLUMNS = 256  # at most
_GROUP = Digit(32, GROUP_WARPS, 16)


def has_groups(target: Target) -> bool:
    """Whether groups of four warps multiply together."""
    return target.supports("wgmma") and not target.simulates


def has_panels(target: Target) -> bool:
    """Whether products read shared memory by descriptions, and so in panels: see `group_products`."""
    return has_groups(target) or (target.supports("tcgen05") and not target.simulates)


TENSOR_ROWS = 128  # of sums in tensor memory: 32 of each of four warps
TENSOR_COLUMNS = 512  # of 32 bits, that a multiprocessor has


def of_tensor_memory(threads: int, shape: tuple[int, int]) -> TileLayout | None:
    """The layout in which four warps read sums from tensor memory; None where they cannot."""
    rows, columns = shape
    if threads != TENSOR_ROWS or rows % TENSOR_ROWS or columns % 16 or columns > GROUP_COLUMNS:
        return None
    lane_row, lane_column, warp = Digit(4, 8, 1), Digit(1, 4, 2), Digit(32, 4, 32)
    own_rows = tuple(first + k for first in range(0, rows, TENSOR_ROWS) for k in (0, 8, 16, 24))
    own_columns = tuple(first + k for first in range(0, columns, COLUMNS) for k in (0, 1))
    across = TileAxis(columns, (lane_column,), own_columns)
    return TileLayout(TileAxis(rows, (lane_row, warp), own_rows), across, (lane_column, lane_row, warp))


def of_groups(warps: int, shape: tuple[int, int]) -> TileLayout | None:
    """The layout in which groups of four warps hold what `wgmma` gives them; None where they do not share out rows."""
    (rows, columns), groups = shape, warps // GROUP_WARPS
    if warps % GROUP_WARPS or groups & (groups - 1) or not groups or rows % (GROUP_ROWS * groups):
        return None
    if columns > GROUP_COLUMNS or (columns % COLUMNS and columns > 1):
        return None
    lane_row, lane_column = Digit(4, 8, 1), Digit(1, 4, 2)
    others = tuple(d for d in (_GROUP, Digit(32 * GROUP_WARPS, groups, rows // groups)) if d.size > 1)
    own_rows = tuple(first + k for first in range(0, rows // groups, GROUP_ROWS) for k in (0, 8))
    own_columns = tuple(first + k for first in range(0, columns, COLUMNS) for k in (0, 1))
    across = TileAxis(columns, (lane_column,), own_columns) if columns > 1 else _ONE
    return TileLayout(TileAxis(rows, (lane_row, *others), own_rows), across, (lane_column, lane_row, *others))


def is_of_groups(layout: TileLayout) -> bool:
    """Whether groups of four warps hold a tile."""
    whole = tuple(first + k for first in range(0, 4 * len(layout.rows.offsets) * 8, GROUP_ROWS) for k in (0, 8))
    alone = layout.columns.digits == (Digit(1, 4, 2),)
    return _GROUP in layout.rows.digits and alone and layout.rows.offsets == whole


def _of_cpu(threads: int, shape: tuple[int, int]) -> TileLayout:
    """Rows go to threads, and parts of rows where there are more threads than rows."""
    rows, columns = shape
    down = math.gcd(rows, threads)
    across = math.gcd(columns, threads // down)
    while across > 1 and columns // across < CPU_COLUMNS:
        across = max(d for d in range(1, across) if across % d == 0)
    column, row = Digit(1, across, columns // across), Digit(across, down, rows // down)
    rest = Digit(across * down, threads // (across * down), 0)
    return TileLayout(
        TileAxis(rows, tuple(d for d in (row,) if d.size > 1), tuple(range(rows // down))),
        TileAxis(columns, tuple(d for d in (column,) if d.size > 1), tuple(range(columns // across))),
        tuple(d for d in (column, row, rest) if d.size > 1),
    )


# *** places ***


def digit_of(call: Point, digit: Digit) -> Value:
    """A digit of the number of this thread."""
    builder = call.builder
    lanes = call.evaluator.target.warp_size
    if digit.divisor * digit.size <= lanes:
        number, divisor = gpu_value(call, "lane_idx"), digit.divisor
        last = digit.divisor * digit.size == lanes
    elif digit.divisor % lanes == 0:
        number, divisor, last = gpu_value(call, "warp_idx"), digit.divisor // lanes, False
    else:
        warp = builder.imul(gpu_value(call, "warp_idx"), builder.int_(lanes))
        number, divisor, last = builder.iadd(warp, gpu_value(call, "lane_idx")), digit.divisor, False
    key = ("digit", number.serial, divisor, digit.size)
    made = builder.remembered(key)
    if made is None:
        made = builder.idiv(number, builder.int_(divisor))
        made = made if last else builder.irem(made, builder.int_(digit.size))
        builder.remember(key, made)
    assert isinstance(made, Value)
    return made


def first_place(call: Point, axis: TileAxis) -> Value:
    """The first place of this thread along an axis."""
    builder, total = call.builder, call.builder.int_(0)
    for digit in axis.digits:
        total = builder.iadd(total, builder.imul(digit_of(call, digit), builder.int_(digit.step)))
    return total


def owns(call: Point, layout: TileLayout) -> Value | None:
    """Whether this thread is the one, of those that hold the same elements, that stores them; None where all do."""
    builder, every = call.builder, None
    for digit in layout.copies:
        holds = builder.compare("eq", digit_of(call, digit), builder.int_(0))
        every = holds if every is None else builder.row("and_", [every, holds])
    return every


def if_owner(call: Point, layout: TileLayout, work: Callable[[], None]) -> None:
    """What one of the threads that hold the same elements does."""
    holds = owns(call, layout)
    if holds is None:
        work()
    else:
        when(call.builder, holds, work)


def threads_of(call: Point, name: str) -> int:
    """The threads of the block that hold tiles together.

    Raises:
        CompileError: EK0650, the threads do not form whole warps.
    """
    threads = math.prod(kernel_of(call, name).block)
    target = call.evaluator.target
    if target.has_grid and threads % target.warp_size:
        text = f"tiles are held by whole warps of {target.warp_size} threads, and the block has {threads}"
        raise call.error(
            "EK0650", text, hint=f"ctx.launch(..., block={-(-threads // target.warp_size) * target.warp_size})"
        )
    return threads


def layout_for(call: Point, name: str, shape: tuple[int, int], *, rows: bool = False) -> TileLayout:
    """The layout that a new tile of this kernel has."""
    role = kernel_of(call, name).role
    first = 0 if role is None else role.first
    return choose(call.evaluator.target, threads_of(call, name), shape, rows=rows, first=first)


# *** tiles ***


def filled(builder: Builder, dtype: DType, layout: TileLayout, number: object) -> TileValue:
    """A tile of one number, known at compile time."""
    widths = [length for _, length in layout.columns.segments]
    row = [builder.const(number, SIMDType(dtype, width)) for width in widths]
    return TileValue(dtype, layout, tuple(row * len(layout.rows.offsets)), number)


def together(call: Point, product: str = "", copies: str = "") -> None:
    """Notes that all threads of the block come here together, see `passes.uniformity`; what multiplies or copies."""
    call.locate()
    what: dict[str, Any] = {key: words for key, words in (("product", product), ("copies", copies)) if words}
    call.builder.add("together", [], **what)


def give_away(call: Point, sums: TileValue) -> None:
    """Notes that a product adds to sums: whatever reads them would read them while it does."""
    launched = call.evaluator.launched
    if sums.number is None and launched is not None and not call.evaluator.trial:
        launched.given_away |= {part.serial for part in sums.parts}


def readable(call: Point, value: object) -> None:
    """Refuses sums that a product has been given, and in a role tiles of the whole block.

    Raises:
        CompileError: EK0622, EK0658.
    """
    launched = call.evaluator.launched
    if launched is not None and launched.role is not None and any(value is tile for tile in launched.outside):
        text = f"this tile is held by the whole block, and role '{launched.role.name}' has some of its threads"
        raise call.error("EK0658", text, hint="make the tile in the role's function")
    if isinstance(value, TileValue) and launched is not None and value.parts[0].serial in launched.given_away:
        text = "these sums were given to gpu.dot_async, whose product may be under way"
        raise call.error("EK0622", text, hint="the sums are what .wait() of its token gives")


def shared_buffer(evaluator: Evaluator, dtype: DType, count: int, name: str = "", align: int = 16) -> Value:
    """Shared memory of the kernel for what tiles exchange: the same for all exchanges of one dtype, size and name.

    It is made where the kernel begins, so that all of the kernel may use it.
    """
    launched, builder = evaluator.launched, evaluator.builder
    assert launched is not None
    type = PointerType(dtype, "shared")
    attrs: dict[str, Any] = {"count": count, "zeroed": False, "align": align, **_exchange(evaluator)}
    if evaluator.trial or launched.region is None:
        return builder.one("alloca", [], type, **attrs)
    made = launched.exchanges.get((dtype, count, name))
    if made is None:
        made = launched.exchanges[dtype, count, name] = Value(type)
        made.maker = Op(OPCODES["alloca"], [], [made], builder.location, attrs, [])
        launched.region.ops.insert(0, made.maker)
    return made


def ring_of_copies(call: Point) -> Value:
    """The ring of barriers at which bulk copies of the kernel arrive, made where the kernel begins."""
    ring = shared_buffer(call.evaluator, DType.int64, RING, "copies")
    launched = call.evaluator.launched
    if not call.evaluator.trial and launched is not None and launched.region is not None:
        ops = launched.region.ops
        if not any(op.opcode is COPY_RING for op in ops):
            after = next(k for k, op in enumerate(ops) if op is ring.maker) + 1
            ops.insert(after, Op(COPY_RING, [ring], [], call.builder.location, warp_of(call), []))
    return ring


def warp_of(call: Point) -> dict[str, Any]:
    """The attributes of what the lanes of a warp do together here."""
    return {"lanes": call.evaluator.target.warp_size, "block": kernel_of(call, "tile").whole_block}


def thread_number(call: Point) -> Value:
    """The number of this thread in its block or its role, along x, then y, then z."""
    launched = kernel_of(call, "tile")
    return gpu_value(call, "thread_idx.x") if launched.role is not None else whole_number(call, launched.block)


def barrier(call: Point) -> None:
    """Threads wait for each other before they use what they exchange; the author's own memory this does not order."""
    role, attrs = kernel_of(call, "tile").role, _exchange(call.evaluator)
    if role is None:
        call.builder.add("barrier", [], (), (), **attrs)
    else:
        role_barrier(call, role, **attrs)


def _exchange(evaluator: Evaluator) -> dict[str, bool]:
    """The attribute of storage for exchanges and of barriers for it, by which missing barriers of authors are found."""
    return {"exchange": True} if evaluator.target.checks_memory else {}


def moved(call: Point, tile: TileValue, layout: TileLayout) -> TileValue:
    """A tile in another layout: through shared memory, unless all its elements are one known number."""
    if tile.layout == layout:
        return tile
    builder = call.builder
    if tile.number is not None:
        return filled(builder, tile.dtype, layout, tile.number)
    call.locate()
    rows, columns = tile.shape
    buffer = shared_buffer(call.evaluator, tile.dtype, rows * columns)
    barrier(call)
    if_owner(call, tile.layout, lambda: put(call, tile, buffer))
    barrier(call)
    return got(call, tile, buffer, layout)


def place_in(call: Point, buffer_columns: int, row: Value, column: Value) -> Value:
    builder = call.builder
    return builder.iadd(builder.imul(row, builder.int_(buffer_columns)), column)


def put(call: Point, tile: TileValue, buffer: Value) -> None:
    """Stores what this thread has of a tile into memory, row by row."""
    builder, columns = call.builder, tile.shape[1]
    for row, column, vector in runs(call, tile):
        offset = place_in(call, columns, row, column)
        builder.add("store", [vector, buffer, offset], **alignment(tile.dtype, tile.layout.columns.run))


def alignment(dtype: DType, run: int) -> dict[str, Any]:
    """The attribute of an access to so many neighbours that lie at a multiple of their size."""
    size = run * dtype.bits // 8
    return {"align": min(size, 16)} if size & (size - 1) == 0 and size > 1 else {}


def got(call: Point, tile: TileValue, buffer: Value, layout: TileLayout) -> TileValue:
    builder, columns = call.builder, tile.shape[1]
    run = layout.columns.run
    attrs = alignment(tile.dtype, run)

    def load(row: Value, column: Value) -> Value:
        return builder.one("load", [buffer, place_in(call, columns, row, column)], SIMDType(tile.dtype, run), **attrs)

    return gathered(call, tile.dtype, layout, load)


def runs(call: Point, tile: TileValue) -> list[tuple[Value, Value, Value]]:
    """What this thread holds, in vectors of neighbours: the row, the first column, and the vector."""
    readable(call, tile)
    builder, layout = call.builder, tile.layout
    run, found = layout.columns.run, []
    first_row, first_column = first_place(call, layout.rows), first_place(call, layout.columns)
    for number, offset in enumerate(layout.rows.offsets):
        row = builder.iadd(first_row, builder.int_(offset))
        for segment, (start, length) in enumerate(layout.columns.segments):
            vector = tile.part(number, segment)
            for k in range(0, length, run):
                column = builder.iadd(first_column, builder.int_(layout.columns.offsets[start + k]))
                found.append((row, column, lanes_of(builder, vector, k, run)))
    return found


def gathered(call: Point, dtype: DType, layout: TileLayout, load: Callable[[Value, Value], Value]) -> TileValue:
    """The tile whose neighbours `load` gives, for a row and a first column."""
    builder, run = call.builder, layout.columns.run
    first_row, first_column = first_place(call, layout.rows), first_place(call, layout.columns)
    columns = [builder.iadd(first_column, builder.int_(offset)) for offset in layout.columns.offsets[::run]]
    parts = []
    for offset in layout.rows.offsets:
        row = builder.iadd(first_row, builder.int_(offset))
        vectors = [load(row, column) for column in columns]
        for start, length in layout.columns.segments:
            parts.append(joined(builder, vectors[start // run : (start + length) // run]))
    return TileValue(dtype, layout, tuple(parts))


# *** vectors ***


def width_of(value: Value) -> int:
    assert isinstance(value.type, SIMDType)
    return value.type.width


def lanes_of(builder: Builder, vector: Value, start: int, count: int) -> Value:
    """Neighbouring lanes of a vector; of one lane a scalar."""
    if count == width_of(vector):
        return vector
    if count == 1:
        return builder.one("extract", [vector], SIMDType(vector.dtype), lane=start)
    lanes = tuple(range(start, start + count))
    return builder.one("shuffle", [vector, vector], SIMDType(vector.dtype, count), mask=lanes)


def joined(builder: Builder, vectors: list[Value]) -> Value:
    """Vectors of one width, a power of two of them, as one."""
    if width_of(vectors[0]) == 1 and len(vectors) > 1:
        return builder.one("lanes", vectors, SIMDType(vectors[0].dtype, len(vectors)))
    while len(vectors) > 1:
        width = width_of(vectors[0])
        lanes = tuple(range(2 * width))
        type = SIMDType(vectors[0].dtype, 2 * width)
        vectors = [
            builder.one("shuffle", [a, b], type, mask=lanes) for a, b in zip(vectors[::2], vectors[1::2], strict=True)
        ]
    return vectors[0]


def conforming(call: Point, value: object, other: object) -> Any:
    """A tile in the layout of another one of its shape and dtype, and so the sums of a product; anything else as it is.

    A product that goes on keeps its layout: until it has ended, nothing reads its sums.
    """
    if isinstance(value, TileProduct) and isinstance(other, TileProduct):
        goes_on = has_groups(call.evaluator.target) and is_of_groups(value.tile.layout)
        goes_on = goes_on or value.first is not None or other.first is not None
        return value if goes_on else TileProduct(conforming(call, value.tile, other.tile))
    if not isinstance(value, TileValue) or not isinstance(other, TileValue):
        return value
    if value.shape != other.shape or value.dtype is not other.dtype:
        return value
    return moved(call, value, other.layout)
