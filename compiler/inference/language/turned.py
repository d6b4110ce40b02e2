"""Turns tiles of what a loop over elements reads across memory, so that the loop reads neighbours.

    for row: for column: out[row, column] = f(a[row, column], x[column, row])

becomes, for each tile of some rows and columns,

    turn x[columns, rows] into tile[rows, columns]         several columns at a time, in registers
    for row: for column: out[row, column] = f(a[row, column], tile[row, column])

The lines of `x` are read once each, and the loop becomes vectors, as one over row-major arrays does. Square blocks of a
few columns are turned by shuffles: each column is a vector of neighbours in memory. What is left over at the edges is
copied element by element.

The rows of a tile lie along one axis, or along several of which the elements of `x` are in one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import INT, UNSIGNED, DType, SIMDType
from ...ir.opcodes import LOAD
from ...ir.polynomials import Poly, minus, plus, split, times
from ...ir.program import Op, PointerType, Region, Value, walk
from ..evaluator import Evaluator
from ..values.index import BodyIndex, unravel

HEIGHT = 64  # rows of a tile
TILE_BYTES = 16 << 10  # of all tiles of a loop: half of the first cache
LEAST_COLUMNS = 16
MOST_OPERATIONS = 200  # of a body, which is built twice
HALF_OF_REGISTERS = 8  # vectors of a block; there are 16 registers, or 32 where they have 512 bits
MIN_COLUMN_STRIDE = 16  # elements from one column to the next, from which on they hardly share a line


@dataclass(frozen=True)
class Tiles:
    """How a loop goes by tiles.

    Attributes:
        first, last: the axes along which the rows of a tile lie.
        dtypes: of what is turned, in the order in which the body reads it.
        columns: of a tile.
    """

    first: int
    last: int
    dtypes: tuple[DType, ...]
    columns: int


def is_far(factor: Poly | None) -> bool:
    """Whether elements of neighbouring columns that lie so far from each other hardly share a cache line."""
    return bool(factor) and (any(factor) or abs(factor.get((), 0)) >= MIN_COLUMN_STRIDE)  # type: ignore[union-attr, arg-type]


def tiles_of(
    evaluator: Evaluator, leading: Sequence[Value], column: Value, region: Region, dims: Sequence[Value]
) -> Tiles | None:
    """The tiles for a loop over the last axis, whose region is `region`; None where they are nothing for it."""
    ops = list(walk(region))
    if len(ops) > MOST_OPERATIONS or not _only_computes(ops):
        return None
    run: tuple[int, int] | None = None
    turned: dict[object, DType] = {}
    for op in ops:
        if not _is_turned(op, ops):
            continue
        place = evaluator.ranges.poly(op.operands[-1])
        if not is_far(split(place, column.serial)[0]):
            continue
        candidate = _run(evaluator, place, leading, dims)
        if candidate is not None and run in (None, candidate):
            run = candidate
            turned[op.operands[0].serial, _key(place)] = op.results[0].dtype
    if run is None:
        return None
    rows = [dim.const for dim in dims[run[0] : run[1] + 1]]
    least = max(_lanes(evaluator, dtype) for dtype in turned.values())
    if None not in rows and _product(rows) < least:
        return None
    bytes_of_a_column = HEIGHT * sum(dtype.size_in_bytes for dtype in turned.values())
    columns = 64
    while columns > LEAST_COLUMNS and columns * bytes_of_a_column > TILE_BYTES:
        columns //= 2
    return Tiles(*run, tuple(turned.values()), columns)


def _only_computes(ops: Sequence[Op]) -> bool:
    return not any(op.regions or (op.opcode.has_effects and not op.opcode.writes) for op in ops)


def _is_turned(op: Op, ops: Sequence[Op]) -> bool:
    """Whether an operation reads an element that nothing of the loop writes."""
    if op.opcode is not LOAD or op.results[0].type != SIMDType(op.results[0].dtype):
        return False
    dtype, source = op.results[0].dtype, op.operands[0]
    if dtype.is_packed() or dtype.size_in_bytes > 8:
        return False
    assert isinstance(source.type, PointerType)
    return source.type.is_whole and not any(other.opcode.writes and source in other.operands for other in ops)


def _run(evaluator: Evaluator, place: Poly, leading: Sequence[Value], dims: Sequence[Value]) -> tuple[int, int] | None:
    """The axes along which elements are neighbours: one whose elements are, and those before it that go on there."""
    factors = [split(place, component.serial)[0] for component in leading]
    last = next((axis for axis, factor in enumerate(factors) if factor == {(): 1}), None)
    if last is None:
        return None
    first, reach = last, Poly({(): 1})
    while first > 0:
        reach = times(reach, evaluator.ranges.poly(dims[first]))
        if factors[first - 1] != reach:
            break
        first -= 1
    return first, last


def _key(place: Poly) -> Any:
    return tuple(sorted(place.items()))


def _product(numbers: Sequence[Any]) -> int:
    product = 1
    for number in numbers:
        product *= number
    return product


def _lanes(evaluator: Evaluator, dtype: DType) -> int:
    """How many rows and columns a block has that is turned in registers."""
    bits = evaluator.target.vector_bits
    most = HALF_OF_REGISTERS * (2 if bits >= 512 or dtype.size_in_bytes == 1 else 1)
    return max(2, min(bits // (8 * dtype.size_in_bytes), most))


class TiledLoop:
    """Builds the loop.

    Args:
        dims: of the elements.
        element: builds the body at an index.
    """

    def __init__(
        self, evaluator: Evaluator, dims: tuple[Value, ...], tiles: Tiles, element: Callable[[BodyIndex], None]
    ) -> None:
        self.evaluator, self.builder = evaluator, evaluator.builder
        self.dims, self.tiles, self.element = dims, tiles, element
        builder = self.builder
        first, last = tiles.first, tiles.last
        self.run, self.outer = dims[first : last + 1], (*dims[:first], *dims[last + 1 : -1])
        self.rows, self.inner = builder.product(self.run), dims[-1]
        self.down, self.across = self._count(self.rows, HEIGHT), self._count(self.inner, tiles.columns)
        self.total = builder.imul(builder.product(self.outer), builder.imul(self.down, self.across))
        self.elements = HEIGHT * tiles.columns
        self.storage: list[Value] = []

    def _count(self, size: Value, of: int) -> Value:
        builder = self.builder
        return builder.idiv(builder.iadd(size, builder.int_(of - 1)), builder.int_(of))

    def chunk(self, low: Value, high: Value) -> None:
        """The tiles from one number on, below another."""
        builder, count = self.builder, HEIGHT * self.tiles.columns
        self.storage = [
            builder.one("alloca", [], PointerType(dtype, "stack"), count=count, zeroed=False)
            for dtype in self.tiles.dtypes
        ]
        loop = builder.for_loop(low, high)
        with builder.inside(loop):
            self._tile(loop.args[0])
            builder.end()

    def _tile(self, number: Value) -> None:
        builder = self.builder
        height, width = builder.int_(HEIGHT), builder.int_(self.tiles.columns)
        top = builder.imul(builder.irem(builder.idiv(number, self.across), self.down), height)
        left = builder.imul(builder.irem(number, self.across), width)
        place = builder.idiv(number, builder.imul(self.across, self.down))
        others = unravel(builder, place, self.outer)
        rows = builder.one("min", [builder.isub(self.rows, top), height], INT)
        columns = builder.one("min", [builder.isub(self.inner, left), width], INT)
        whole = [builder.compare("eq", size, most) for size, most in ((rows, height), (columns, width))]
        regions = []
        for size in ((height, width), (rows, columns)):
            regions.append(Region())
            with builder.inside(regions[-1]):
                self._turn_and_compute(others, (top, left), size)
                builder.end()
        builder.add("if", [builder.row("and_", whole)], regions=regions)

    def _turn_and_compute(
        self, others: tuple[Value, ...], start: tuple[Value, Value], size: tuple[Value, Value]
    ) -> None:
        """One tile: what is turned, and then the loop over its elements, which reads that."""
        builder, ranges = self.builder, self.evaluator.ranges
        compute = Region()
        with builder.inside(compute):
            rows = builder.for_loop(builder.int_(0), size[0])
            with builder.inside(rows):
                row = builder.iadd(start[0], rows.args[0])
                ranges.inside(row, self.rows)
                along = unravel(builder, row, self.run)
                columns = builder.for_loop(builder.int_(0), size[1])
                with builder.inside(columns):
                    column = builder.iadd(start[1], columns.args[0])
                    ranges.inside(column, self.inner)
                    at = builder.iadd(builder.imul(rows.args[0], builder.int_(self.tiles.columns)), columns.args[0])
                    first = self.tiles.first
                    leading = (*others[:first], *along, *others[first:])
                    self.element(BodyIndex(self.dims, components=(*leading, column)))
                    turned = self._read_turned(columns, rows, along, start[0], at)
                    builder.end()
                builder.end()
        for number, source, base, step in turned:
            self._turn(number, source, base, step, size)
        builder.region.ops += compute.ops

    def _read_turned(
        self, columns: Region, rows: Region, along: tuple[Value, ...], top: Value, at: Value
    ) -> list[tuple[int, Value, Poly, Poly]]:
        """Lets the body read tiles. Which tiles: the storage's number, whose elements, from where on, and how far it is
        from one column to the next."""
        ranges, ops = self.evaluator.ranges, list(walk(columns))
        tiles: dict[object, tuple[int, Value, Poly, Poly]] = {}
        if not _only_computes(ops):
            return []
        within = {value.serial for region in (rows, columns) for value in region.args}
        within |= {value.serial for op in walk(rows) for value in op.results}
        within |= {value.serial for op in ops for value in op.results}
        for op in ops:
            if not _is_turned(op, ops):
                continue
            place = minus(ranges.poly(op.operands[1]), self._raveled(along))
            step, base = split(place, columns.args[0].serial)
            if not is_far(step) or not within.isdisjoint(_atoms(step) | _atoms(base)):
                continue
            assert step is not None
            key = op.operands[0].serial, _key(place)
            number = tiles[key][0] if key in tiles else len(tiles)
            if number < len(self.storage) and self.tiles.dtypes[number] is op.results[0].dtype:
                tiles[key] = number, op.operands[0], plus(base, ranges.poly(top)), step
                op.operands[:] = [self.storage[number], at]
        return list(tiles.values())

    def _raveled(self, along: tuple[Value, ...]) -> Poly:
        """The position in the run of rows, as it stands in the place of an element that is turned."""
        ranges, position = self.evaluator.ranges, Poly()
        for component, dim in zip(along, self.run, strict=True):
            position = plus(times(position, ranges.poly(dim)), ranges.poly(component))
        return position

    def _turn(self, number: int, source: Value, base: Poly, step: Poly, size: tuple[Value, Value]) -> None:
        """Copies elements into a tile: blocks by shuffles, the rest one by one."""
        builder, dtype = self.builder, self.tiles.dtypes[number]
        bits = next(each for each in UNSIGNED if each.size_in_bytes == dtype.size_in_bytes)
        block = _Block(
            self,
            bits,
            builder.one("pointer_cast", [source], PointerType(bits, "global", "read-only")),
            builder.one("pointer_cast", [self.storage[number]], PointerType(bits, "stack", "read-write")),
            self._emitted(base),
            self._emitted(step),
        )
        lanes = _lanes(self.evaluator, dtype)
        each = builder.int_(lanes)
        loop = builder.for_loop(builder.int_(0), size[1], each)
        with builder.inside(loop):
            column = loop.args[0]
            right = builder.one("min", [builder.iadd(column, each), size[1]], INT)
            rows = builder.for_loop(builder.int_(0), size[0], each)
            with builder.inside(rows):
                row = rows.args[0]
                bottom = builder.one("min", [builder.iadd(row, each), size[0]], INT)
                if size[0].const is not None:
                    block.turn(row, column, lanes)
                else:
                    full = [
                        builder.compare("eq", builder.isub(end, begin), each)
                        for begin, end in ((row, bottom), (column, right))
                    ]
                    arms = [Region(), Region()]
                    with builder.inside(arms[0]):
                        block.turn(row, column, lanes)
                        builder.end()
                    with builder.inside(arms[1]):
                        block.copy((row, bottom), (column, right))
                        builder.end()
                    builder.add("if", [builder.row("and_", full)], regions=arms)
                builder.end()
            builder.end()

    def _emitted(self, poly: Poly) -> Value:
        """The value of a polynomial."""
        builder, total = self.builder, self.builder.int_(0)
        for monomial, factor in poly.items():
            product = builder.product([self.evaluator.ranges.atoms[serial] for serial in monomial])
            total = builder.iadd(total, builder.imul(product, builder.int_(factor)))
        return total


def _atoms(poly: Poly | None) -> set[int]:
    return {serial for monomial in poly or () for serial in monomial}


@dataclass(frozen=True)
class _Block:
    """Copies of a source into a tile, both of unsigned integers of the elements' size."""

    loop: TiledLoop
    dtype: DType
    source: Value
    tile: Value
    base: Value
    step: Value

    def turn(self, row: Value, column: Value, lanes: int) -> None:
        """A square block, in registers: columns are vectors of the source, rows vectors of the tile."""
        builder, type = self.loop.builder, SIMDType(self.dtype, lanes)
        begin = builder.iadd(self.base, row)
        vectors = []
        for number in range(lanes):
            place = builder.iadd(column, builder.int_(number))
            offset = builder.iadd(begin, builder.imul(place, self.step))
            vectors.append(builder.one("load", [self.source, offset], type))
        columns = builder.int_(self.loop.tiles.columns)
        for number, vector in enumerate(self._transposed(vectors, type)):
            offset = builder.iadd(builder.imul(builder.iadd(row, builder.int_(number)), columns), column)
            builder.add("store", [vector, self.tile, offset])

    def _transposed(self, rows: list[Value], type: SIMDType) -> list[Value]:
        """The transpose of a square of vectors.

        Halves of more than 128 bits are exchanged as such; what is left lies in parts of 128 bits, in which x86
        interleaves the lanes of two vectors in one instruction.
        """
        lanes = len(rows)
        part = min(lanes, max(2, 128 // self.dtype.bits))  # lanes of such a part
        half = lanes // 2
        while half >= part:
            masks = [
                tuple(lane if not lane & half else lane - half + lanes for lane in range(lanes)),
                tuple(lane + half if not lane & half else lane + lanes for lane in range(lanes)),
            ]
            for number in range(lanes):
                if not number & half:
                    pair = [rows[number], rows[number + half]]
                    rows[number], rows[number + half] = (self._shuffled(pair, mask, type) for mask in masks)
            half //= 2
        low, high = _interleaving(lanes, part, 0), _interleaving(lanes, part, part // 2)
        for begin in range(0, lanes, part):
            group = rows[begin : begin + part]
            distance = part // 2
            for _ in range(part.bit_length() - 1):
                mixed = []
                for number in range(distance):
                    pair = [group[number], group[number + distance]]
                    mixed += [self._shuffled(pair, low, type), self._shuffled(pair, high, type)]
                group = mixed
            rows[begin : begin + part] = group
        return rows

    def _shuffled(self, pair: list[Value], mask: tuple[int, ...], type: SIMDType) -> Value:
        return self.loop.builder.one("shuffle", pair, type, mask=mask)

    def copy(self, rows: tuple[Value, Value], columns: tuple[Value, Value]) -> None:
        """A block of any size, element by element."""
        builder = self.loop.builder
        outer = builder.for_loop(*columns)
        with builder.inside(outer):
            column = outer.args[0]
            begin = builder.iadd(self.base, builder.imul(column, self.step))
            inner = builder.for_loop(*rows)
            with builder.inside(inner):
                row = inner.args[0]
                value = builder.one("load", [self.source, builder.iadd(begin, row)], SIMDType(self.dtype))
                offset = builder.iadd(builder.imul(row, builder.int_(self.loop.tiles.columns)), column)
                builder.add("store", [value, self.tile, offset])
                builder.end()
            builder.end()


def _interleaving(lanes: int, part: int, first: int) -> tuple[int, ...]:
    """The lanes of two vectors in turns, from `first` on, within each part."""
    return tuple(
        begin + first + number // 2 + number % 2 * lanes for begin in range(0, lanes, part) for number in range(part)
    )
