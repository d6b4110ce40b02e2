"""Multiplies by AMD's matrix instructions, whose fragments are 16 rows of `a`, or 16 columns of `b`, one in each lane.

Lanes that have the same row have other elements of it; which ones does not matter, if those of `a` and `b` are the
same. So a tile is a fragment of `a` as it is if no two warps share one of its rows: `b` is then read in its order.

See also `targets.products` (which lane has what).
"""

from __future__ import annotations

from ....dsl.diagnostics.dataclass import dataclass
from ...ir.program import Value
from ...targets.products import MatrixProduct
from ..evaluator import Point
from ..language.grids import gpu_value
from ..values.tiles import TileLayout, TileValue
from . import layouts
from .block_scales import BlockScales, Brought, add_products
from .layouts import lanes_of
from .operands import DotOperand


def misfit(row: MatrixProduct, layout: TileLayout, depth: int) -> str | None:
    """Why a row does not multiply tiles of a layout; None where it does: lanes have the neighbours that it gives."""
    if layout.columns.run < row.form.run:
        return f"a warp has not a multiple of {row.form.width} columns of the sums"
    return f"the inner size of {depth} is not a multiple of {row.shape[2]}" if depth % row.shape[2] else None


@dataclass(frozen=True)
class _Inner:
    """Which elements along the inner axis a lane has: runs of `count` from `firsts` on, `apart` further in each group.

    A group are the lanes that have the same elements.
    """

    apart: int
    count: int
    firsts: tuple[int, ...]

    @classmethod
    def of(cls, row: MatrixProduct, step: int, chained: bool) -> _Inner:
        """Those of a step; `chained`: in the order in which a tile has them."""
        depth, each, form = row.shape[2], row.neighbours, row.form
        if row.has_whole_rows:
            return cls(0, each, (step * depth,))
        if row.scale is not None and each == 32:
            return cls(each // 2, each // 2, (step * depth, step * depth + depth // 2))
        if not chained:
            return cls(each, each, (step * depth,))
        if each >= form.run:
            return cls(form.run, form.run, tuple(step * depth + k * form.width for k in range(each // form.run)))
        steps = form.run // each
        return cls(form.run, each, (step // steps * form.width + step % steps * each,))


def multiply(
    call: Point,
    row: MatrixProduct,
    left: DotOperand,
    right: DotOperand,
    acc: TileValue,
    scales: BlockScales | None = None,
    steps: range | None = None,
) -> TileValue:
    """`acc + left @ right`, by the instruction of a row; of `steps` along the inner axis, or of all."""
    row, layout, form = row.of_bytes, acc.layout, row.form
    right = right.in_memory(call, "b")
    chained = scales is None and left.tile is not None and _is_fragment(row, left.tile, layout)
    left = left if chained else left.in_memory(call, "a")
    tall, wide = len(layout.rows.offsets), len(layout.columns.offsets) // form.run
    sums = [[_run(call, acc, i, j, form.run) for j in range(wide)] for i in range(tall)]
    columns, rows = _columns(call, row, layout), layouts.first_place(call, layout.rows)
    brought = None
    for step in steps or range(left.shape[1] // row.shape[2]):
        inner = _Inner.of(row, step, chained)
        if chained:
            assert left.tile is not None
            first = [_of_tile(call, left.tile, i, inner, row) for i in range(tall)]
        else:
            first = [_read(call, row, left, (rows, form.rows * i), inner, by_columns=False) for i in range(tall)]
        second = [_read(call, row, right, (columns, form.width * j), inner, by_columns=True) for j in range(wide)]
        if scales is not None:
            brought = _scales(call, row, scales, (rows, tall), (columns, wide), step)
        add_products(call, row, (first, second), sums, brought)
    return _as_tile(call, acc, sums)


def _scales(
    call: Point,
    row: MatrixProduct,
    scales: BlockScales,
    rows: tuple[Value, int],
    columns: tuple[Value, int],
    step: int,
) -> Brought:
    """The scales of a step: a lane brings one of each fragment, of the block with the number of its group."""
    inner = (_group(call, row), step * row.scales)
    (first, tall), (column, wide), form = rows, columns, row.form
    of_a = [scales.a.along(call, (first, form.rows * i), inner, 1, by_columns=False) for i in range(tall)]
    of_b = [scales.b.along(call, (column, form.width * j), inner, 1, by_columns=True) for j in range(wide)]
    return Brought(of_a, of_b, 0)


def _group(call: Point, row: MatrixProduct) -> Value:
    """The number of this lane among those that share a row."""
    builder = call.builder
    return builder.idiv(gpu_value(call, "lane_idx"), builder.int_(row.form.rows))


def _columns(call: Point, row: MatrixProduct, layout: TileLayout) -> Value:
    """The column of b that this lane brings for the first fragment.

    An instruction that scatters columns gives group g those of numbers g, g + across, …: they stand for neighbours.
    """
    builder, form, lanes = call.builder, row.form, call.evaluator.target.warp_size
    total = builder.irem(gpu_value(call, "lane_idx"), builder.int_(form.rows))
    if row.scattered:
        within = builder.imul(builder.irem(total, builder.int_(form.across)), builder.int_(form.run))
        total = builder.iadd(within, builder.idiv(total, builder.int_(form.across)))
    for digit in layout.columns.digits:
        if digit.divisor >= lanes:
            total = builder.iadd(total, builder.imul(layouts.digit_of(call, digit), builder.int_(digit.step)))
    return total


def _read(
    call: Point, row: MatrixProduct, operand: DotOperand, at: tuple[Value, int], inner: _Inner, *, by_columns: bool
) -> Value:
    """A fragment from shared memory, of the row or column `at`: a number, and a constant to be added."""
    builder = call.builder
    group = builder.imul(_group(call, row), builder.int_(inner.apart))
    parts = [operand.along(call, at, (group, first), inner.count, by_columns=by_columns) for first in inner.firsts]
    return layouts.joined(builder, parts)


def _is_fragment(row: MatrixProduct, tile: TileValue, layout: TileLayout) -> bool:
    """Whether the lanes have of a tile what they have of fragments, in some order of the inner axis."""
    own = tile.layout
    alone = tuple((d.divisor, d.size) for d in own.columns.digits) == ((row.form.rows, row.form.across),)
    return not row.has_whole_rows and own.rows == layout.rows and alone and own.columns.run >= row.form.run


def _of_tile(call: Point, tile: TileValue, number: int, inner: _Inner, row: MatrixProduct) -> Value:
    """The fragment of `a` that a row of a tile is."""
    form, parts = row.form, []
    for first in inner.firsts:
        neighbours = _run(call, tile, number, first // form.width, form.run)
        parts.append(lanes_of(call.builder, neighbours, first % form.width, inner.count))
    return layouts.joined(call.builder, parts)


def _run(call: Point, tile: TileValue, row: int, number: int, run: int) -> Value:
    """Neighbours of a row of this thread: those of one fragment of sums."""
    for segment, (start, length) in enumerate(tile.layout.columns.segments):
        if start <= number * run < start + length:
            return lanes_of(call.builder, tile.part(row, segment), number * run - start, run)
    raise AssertionError(number)


def _as_tile(call: Point, acc: TileValue, sums: list[list[Value]]) -> TileValue:
    """The tile of fragments of sums."""
    parts = []
    for fragments in sums:
        run = layouts.width_of(fragments[0])
        for start, length in acc.layout.columns.segments:
            parts.append(layouts.joined(call.builder, fragments[start // run : (start + length) // run]))
    return TileValue(acc.dtype, acc.layout, tuple(parts))
