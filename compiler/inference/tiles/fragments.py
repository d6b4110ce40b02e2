"""Multiplies by matrix instructions, which take fragments of the operands and add to fragments of the sums.

A fragment consists of blocks of 8 rows (of `a`; columns of `b`) by four words along the inner axis. `ldmatrix` reads
four blocks at once from rows of 16 bytes, and exchanges the axes of a block of 16-bit elements. Where it cannot, lanes
read their elements one by one. A tile is a fragment of `a` as it is if no two warps share one of its rows.

See also `targets.products` (which lane has what).
"""

from __future__ import annotations

from dataclasses import replace

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import SIMDType
from ...ir.program import Value
from ...targets.products import MatrixProduct
from ..evaluator import Point
from ..language.grids import gpu_value
from ..values.tiles import TileAxis, TileLayout, TileValue
from . import layouts
from .block_scales import BlockScales, Brought, add_products
from .layouts import lanes_of
from .operands import DotOperand, swizzle_in
from .swizzles import neighbours_of, rows_apart

BLOCK = 8
WORDS = 4  # of a row of a block


def misfit(row: MatrixProduct, layout: TileLayout, depth: int) -> str | None:
    """Why a row does not multiply tiles of a layout; None where it does."""
    m, n, k = row.shape
    if len(layout.rows.offsets) % (m // BLOCK):
        return f"a warp has not a multiple of {m} rows of the sums"
    if layout.shape[1] % n:
        return f"{layout.shape[1]} columns of sums are not a multiple of {n}"
    return f"the inner size of {depth} is not a multiple of {k}" if depth % k else None


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads the fragments of one operand: of the rows of `a`, or the columns of `b`, that are this warp's."""

    call: Point
    operand: DotOperand
    row: MatrixProduct
    axis: TileAxis
    by_columns: bool  # whether it is b, whose columns are the rows of blocks

    def words(self, block: int, step: int) -> list[Value]:
        """The words of two blocks of rows, from `block` on, in one step of the inner axis, as fragments are: of
        `a` those of the first column of blocks, then those of the second; of `b` those of the first block, then those
        of the second. In a block behind the last one is the one before."""
        last = len(self.axis.offsets) // (2 if self.by_columns else 1) - 1
        second = min(block + 1, last)
        if self._by_matrix():
            return self._matrices(block, second, step)
        columns = self.row.shape[2] // (WORDS * self.row.elements)
        if self.by_columns:
            return [self._word(b, step, column) for b in (block, second) for column in range(columns)]
        return [self._word(b, step, column) for column in range(columns) for b in (block, second)]

    def _start(self, block: int) -> int:
        """The first row of a block, among those of this warp."""
        return self.axis.offsets[2 * block if self.by_columns else block]

    def _by_matrix(self) -> bool:
        """Whether `ldmatrix` reads it: pieces of 16 bytes lie along the inner axis; of 16-bit elements, or across."""
        operand, e = self.operand, self.row.elements
        along = operand.turned == self.by_columns
        if operand.dtype.bits > 32 or swizzle_in(operand.tensor) is None or not _is_whole(operand):  # type: ignore[arg-type]
            return False
        return along or e == 2

    def _first(self) -> Value:
        """The first row of this warp: what all its lanes have together."""
        builder, total = self.call.builder, self.call.builder.int_(0)
        lanes = self.call.evaluator.target.warp_size
        for digit in self.axis.digits:
            if digit.divisor >= lanes:
                part = builder.imul(layouts.digit_of(self.call, digit), builder.int_(digit.step))
                total = builder.iadd(total, part)
        return total

    def _matrices(self, block: int, second: int, step: int) -> list[Value]:
        call, builder, e = self.call, self.call.builder, self.row.elements
        lane = gpu_value(call, "lane_idx")
        along = self.operand.turned == self.by_columns
        within = builder.irem(lane, builder.int_(BLOCK))
        other = builder.irem(builder.idiv(lane, builder.int_(BLOCK)), builder.int_(2))
        further = builder.idiv(lane, builder.int_(2 * BLOCK))
        if self.by_columns:
            other, further = further, other
        first, inner = self._first(), builder.imul(further, builder.int_(WORDS * e))
        first = builder.iadd(first, builder.imul(other, builder.int_(self._start(second) - self._start(block))))
        assert self.operand.tensor is not None
        beyond, behind = self._start(block), step * self.row.shape[2]
        apart = rows_apart(builder, self.operand.tensor, beyond if along else behind)
        if apart is not None:
            beyond, behind = (0, behind) if along else (beyond, 0)
        first = builder.iadd(first, builder.int_(beyond))
        inner = builder.iadd(inner, builder.int_(behind))
        if along:
            first = builder.iadd(first, within)
        else:
            inner = builder.iadd(inner, within)
        pointer, offset = self._place(first, inner)
        offset = builder.iadd(offset, builder.int_(apart or 0))  # a constant is part of the instruction
        operation = {"transposed": not along, **layouts.warp_of(call)}
        type = SIMDType(self.operand.dtype, WORDS * e)
        result = builder.one("load_matrices", [pointer, offset], type, **operation)
        return [lanes_of(builder, result, k * e, e) for k in range(WORDS)]

    def _place(self, first: Value, inner: Value) -> tuple[Value, Value]:
        at = (inner, first) if self.by_columns else (first, inner)
        return self.operand.place(self.call, *at)

    def _word(self, block: int, step: int, column: int) -> Value:
        """The elements of one word, one by one."""
        call, builder, e = self.call, self.call.builder, self.row.elements
        lane = gpu_value(call, "lane_idx")
        first = builder.iadd(self._first(), builder.int_(self._start(block)))
        first = builder.iadd(first, builder.idiv(lane, builder.int_(WORDS)))
        inner = builder.imul(builder.irem(lane, builder.int_(WORDS)), builder.int_(e))
        inner = builder.iadd(inner, builder.int_(step * self.row.shape[2] + column * WORDS * e))
        elements = []
        for k in range(e):
            pointer, offset = self._place(first, builder.iadd(inner, builder.int_(k)))
            elements.append(builder.one("load", [pointer, offset], SIMDType(self.operand.dtype)))
        return layouts.joined(builder, elements)

    def scales(self, block: int, step: int, count: int) -> Value:
        """Of the scales of rows that this lane brings so many, from those of a step on: of `a` those of a row of two
        blocks, of `b` those of a column of one."""
        builder, lane = self.call.builder, gpu_value(self.call, "lane_idx")
        place = builder.iadd(self._first(), builder.idiv(lane, builder.int_(WORDS)))
        if not self.by_columns:
            apart = builder.int_(self._start(block + 1) - self._start(block))
            place = builder.iadd(place, builder.imul(builder.irem(lane, builder.int_(2)), apart))
        at, inner = (place, self._start(block)), (builder.int_(0), step * self.row.scales)
        return self.operand.along(self.call, at, inner, count, by_columns=self.by_columns)


def _is_whole(operand: DotOperand) -> bool:
    """Whether pieces of 16 bytes of the operand's rows are in one piece."""
    assert operand.tensor is not None
    return neighbours_of(operand.tensor) * operand.dtype.bits >= 128


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
    row, layout = row.of_bytes, acc.layout
    right = right.in_memory(call, "b")
    in_registers = left.tile is not None and is_fragment(row, left.tile, layout)
    left = left if in_registers else left.in_memory(call, "a")
    m, _, k = row.shape
    high = m // BLOCK
    tall, wide = len(layout.rows.offsets) // high, len(layout.columns.offsets) // 2
    sums = [[_sum(call, acc, i * high, high, j) for j in range(wide)] for i in range(tall)]
    readers = [_Reader(call, left, row, layout.rows, False), _Reader(call, right, row, layout.columns, True)]
    brought = None
    for step in steps or range(left.shape[1] // k):
        if in_registers:
            assert left.tile is not None
            first = [of_tile(call, left.tile, i, step) for i in range(tall)]
        else:
            first = _fragments_of_a(readers[0], tall, high, step)
        second = _fragments_of_b(readers[1], wide, step)
        if scales is not None:
            brought = _scales(readers, scales, (tall, wide), step, brought)
        add_products(call, row, (first, second), sums, brought)
    return _as_tile(call, acc, sums, high)


def _scales(
    readers: list[_Reader], scales: BlockScales, counts: tuple[int, int], step: int, before: Brought | None
) -> Brought:
    """The scales of a step: those `before` it, if lanes have brought them with their own."""
    a, b = (replace(reader, operand=each) for reader, each in zip(readers, (scales.a, scales.b), strict=True))
    first = step * a.row.scales % scales.word
    if before is not None and first:
        return Brought(before.a, before.b, first)
    tall, wide = counts
    of_a = [a.scales(2 * i, step, scales.word) for i in range(tall)]
    return Brought(of_a, [b.scales(j, step, scales.word) for j in range(wide)], first)


def _fragments_of_a(reader: _Reader, tall: int, high: int, step: int) -> list[Value]:
    builder = reader.call.builder
    if high == 2:
        return [layouts.joined(builder, reader.words(2 * i, step)) for i in range(tall)]
    pairs = [reader.words(i, step) for i in range(0, tall, 2)]
    return [pairs[i // 2][i % 2] for i in range(tall)]


def _fragments_of_b(reader: _Reader, wide: int, step: int) -> list[Value]:
    builder, made = reader.call.builder, []
    for j in range(0, wide, 2):
        words = reader.words(j, step)
        half = len(words) // 2
        made += [layouts.joined(builder, words[k * half : (k + 1) * half]) for k in range(min(2, wide - j))]
    return made


def is_fragment(row: MatrixProduct, tile: TileValue, layout: TileLayout) -> bool:
    """Whether the lanes hold of a tile what they hold of a fragment."""
    return row.elements == 2 and tile.layout.rows == layout.rows and len(tile.layout.columns.digits) == 1


def of_tile(call: Point, tile: TileValue, number: int, step: int) -> Value:
    """The fragment of `a` that two rows of a tile are."""
    words = [_pair(call, tile, 2 * number + w % 2, 2 * step + w // 2) for w in range(WORDS)]
    return layouts.joined(call.builder, words)


def _pair(call: Point, tile: TileValue, row: int, pair: int) -> Value:
    """Two neighbours of a row of this thread."""
    for segment, (start, length) in enumerate(tile.layout.columns.segments):
        if start <= 2 * pair < start + length:
            return lanes_of(call.builder, tile.part(row, segment), 2 * pair - start, 2)
    raise AssertionError(pair)


def _sum(call: Point, acc: TileValue, row: int, high: int, pair: int) -> Value:
    """The fragment of sums that a pair of columns of `high` rows is."""
    return layouts.joined(call.builder, [_pair(call, acc, row + k, pair) for k in range(high)])


def _as_tile(call: Point, acc: TileValue, sums: list[list[Value]], high: int) -> TileValue:
    """The tile of fragments of sums."""
    builder, parts = call.builder, []
    for row in range(len(acc.layout.rows.offsets)):
        fragments = sums[row // high]
        for start, length in acc.layout.columns.segments:
            pairs = [
                lanes_of(builder, fragments[pair], 2 * (row % high), 2)
                for pair in range(start // 2, (start + length) // 2)
            ]
            parts.append(layouts.joined(builder, pairs))
    return TileValue(acc.dtype, acc.layout, tuple(parts))
