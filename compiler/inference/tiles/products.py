"""Multiplies tiles: by the first row of the target's table of products that takes them.

The row that every target has multiplies and adds elements: each thread reads the rows of `a` and the columns of `b` of
its part of the result, in the order of the inner axis. Matrix instructions take fragments.

See also `targets.products` (the table), `fragments` and `wave_fragments` (their fragments).
"""

from __future__ import annotations

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import Region, Value
from ...targets.products import ELEMENTS, MatrixProduct, product_rows
from ..evaluator import Point
from ..values.describe import describe
from ..values.tiles import TileLayout, TileProduct, TileValue
from . import fragments, group_products, layouts, tensor_products, wave_fragments
from .block_scales import BlockScales
from .operands import DotOperand
from .wanted_product import WantedProduct

UNROLLED = 4  # steps of the inner axis that are written out
MOST_PENDING = 7  # products under way behind a wait
PRECISIONS = ("ieee", "tf32")


def dot_async(call: Point, a: object, b: object, acc: object, precision: object) -> TileProduct:
    """`acc + a @ b`, under way; `acc` may be a product under way.

    Raises:
        CompileError: as `dot`.
    """
    return under_way(call, _begun(call, a, b, acc, precision, waits=False), acc)


def under_way(call: Point, made: TileProduct, acc: object) -> TileProduct:
    """A product that has begun: the sums that it was given are not read any more."""
    call.locate()
    call.builder.add("product_begun", [])
    sums = acc.tile if isinstance(acc, TileProduct) else acc
    assert isinstance(sums, TileValue)
    layouts.give_away(call, sums)
    return made


def wait(call: Point, product: TileProduct, pending: object) -> TileValue | None:
    """The sums of a product that has ended; with `pending` nothing, while so many products may be under way.

    Raises:
        CompileError: EK0646, `pending` is not a small number; EK0622, another product adds to the sums.
    """
    if type(pending) is not int or not 0 <= pending <= MOST_PENDING:
        text = f"pending= is a compile-time number from 0 to {MOST_PENDING}, not {describe(pending)}"
        raise call.error("EK0646", text, "pending")
    call.locate()
    if pending:
        call.builder.add("product_wait", [], pending=pending)
        return None
    tile = product.tile
    layouts.readable(call, tile)
    types = [part.type for part in tile.parts]
    if product.first is None:
        results = call.builder.add("product_wait", tile.parts, types, pending=0)
    else:
        where = {"first": product.first, "columns": tile.shape[1]}
        results = call.builder.add("product_wait", tile.parts, types, (), pending=0, **where)
    return TileValue(tile.dtype, tile.layout, tuple(results))


def dot(call: Point, a: object, b: object, acc: object, precision: object) -> TileValue:
    """`acc + a @ b`.

    Raises:
        CompileError: EK0653, an operand is none; EK0654, the shapes do not fit; EK0655, nothing multiplies the dtypes.
    """
    return _begun(call, a, b, sums_at_once(call, acc), precision, waits=True).tile


def sums_at_once(call: Point, acc: object) -> object:
    """The sums of a product that is no other product under way.

    Raises:
        CompileError: EK0653.
    """
    if isinstance(acc, TileProduct):
        text = f"the sums of gpu.dot are a tile, not {describe(acc)}"
        raise call.error("EK0653", text, "acc", hint="acc = gpu.tile[float32](M, N)")
    return acc


def _begun(call: Point, a: object, b: object, given: object, precision: object, *, waits: bool) -> TileProduct:
    """`given + a @ b`; the sums of one that does not wait may be read behind `product_wait`.

    Raises:
        CompileError: EK0653, an operand is none; EK0654, the shapes do not fit; EK0655, nothing multiplies the dtypes.
    """
    how = checked_precision(call, precision)
    left, right, acc = factors(call, a, b, given.tile if isinstance(given, TileProduct) else given)
    if acc.number is not None and isinstance(a, TileValue):
        layouts.together(call)
        acc = layouts.moved(call, acc, layouts.layout_for(call, "dot", acc.shape, rows=True))
    first = given.first if isinstance(given, TileProduct) else None
    wanted = WantedProduct(left, right, TileProduct(acc, first), waits)
    row, why = row_for(call, wanted, how)
    layouts.together(call, product=why)
    if row is None:
        return TileProduct(by_elements(call, left, right, acc, "tf32" if how == "tf32" else left.dtype.name))
    if row.in_tensor_memory:
        return tensor_products.multiply(call, row, wanted)
    return TileProduct(_multiply(call, row, left, right, acc, waits))


def checked_precision(call: Point, precision: object) -> str:
    """The precision that an author names.

    Raises:
        CompileError: EK0655.
    """
    if precision not in PRECISIONS:
        text = f'precision= of gpu.dot is "ieee" or "tf32", not {describe(precision)}'
        raise call.error("EK0655", text, "precision")
    return str(precision)


def factors(
    call: Point, a: object, b: object, acc: object, packed: DType | None = None
) -> tuple[DotOperand, DotOperand, TileValue]:
    """The operands and the sums of a product, which fit; `packed`: the operands are bytes of two elements each.

    Raises:
        CompileError: EK0653, an operand is none; EK0654, the shapes do not fit; EK0655, nothing multiplies the dtypes.
    """
    for one in (a, acc):
        layouts.readable(call, one)
    if not isinstance(acc, TileValue):
        text = f"the sums of gpu.dot are a tile, not {describe(acc)}"
        raise call.error("EK0653", text, "acc", hint="acc = gpu.tile[float32](M, N)")
    left, right = DotOperand.of(call, a, "a"), DotOperand.of(call, b, "b")
    (m, k), (inner, n) = left.shape, right.shape
    if k != inner or (m, n) != acc.shape:
        text = f"gpu.dot of {m} x {k} and {inner} x {n} does not fit sums of {acc.shape[0]} x {acc.shape[1]}"
        hint = "a is M x K, b is K x N, acc is M x N; x.transpose() exchanges the axes of a view"
        raise call.error("EK0654", text, hint=hint)
    if packed is None:
        _check_dtypes(call, left.dtype, right.dtype, acc.dtype)
    elif {left.dtype, right.dtype} != {DType.uint8} or acc.dtype is not DType.float32:
        text = f"gpu.dot of {packed} multiplies bytes of two elements each and adds up in float32"
        got = f"{left.dtype}, {right.dtype}, {acc.dtype}"
        raise call.error("EK0655", text, "packed", expected="uint8, uint8, float32", got=got)
    return left, right, acc


def _check_dtypes(call: Point, a: DType, b: DType, acc: DType) -> None:
    if a is not b or (a, acc) not in ELEMENTS:
        text = f"gpu.dot does not multiply {a} and {b} and add up in {acc}"
        known = ", ".join(f"{one} in {sums}" for one, sums in ELEMENTS)
        raise call.error("EK0655", text, hint=f"both operands have one dtype, with sums as in: {known}")


def _multiply(
    call: Point, row: MatrixProduct, left: DotOperand, right: DotOperand, acc: TileValue, waits: bool
) -> TileValue:
    if row.of_groups:
        return group_products.multiply(call, row, left, right, acc, waits)
    return by_warps(call, row, left, right, acc)


def by_warps(
    call: Point,
    row: MatrixProduct,
    left: DotOperand,
    right: DotOperand,
    acc: TileValue,
    scales: BlockScales | None = None,
    steps: range | None = None,
) -> TileValue:
    """`acc + left @ right` by an instruction of one warp; of `steps` along the inner axis, or of all."""
    multiply = wave_fragments.multiply if row.form.rows_first else fragments.multiply
    return multiply(call, row, left, right, acc, scales, steps)


def misfit(call: Point, row: MatrixProduct, wanted: WantedProduct) -> str | None:
    """Why a row does not multiply the operands; None where it does."""
    acc, depth = wanted.acc.tile.layout, wanted.depth
    if row.in_tensor_memory:
        return tensor_products.misfit(call, row, wanted)
    if row.of_groups:
        return group_products.misfit(row, acc, depth, wanted.left, wanted.right)
    of_warp = wave_fragments.misfit if row.form.rows_first else fragments.misfit
    return of_warp(row, acc, depth)


def row_for(call: Point, wanted: WantedProduct, precision: str) -> tuple[MatrixProduct | None, str]:
    """The row that multiplies, None for elements one by one; and in words, which one that is and why none before it.

    Raises:
        CompileError: EK0654, the sums begin in tensor memory, and the row adds elsewhere.
    """
    row, why = _first_row(call, wanted, precision)
    if wanted.acc.first is not None and not (row is not None and row.in_tensor_memory):
        text = f"the product that these sums are of is in tensor memory, and this one cannot add to it: {why}"
        raise call.error("EK0654", text, hint=".wait() gives the sums, to which any product adds")
    return row, why


def _first_row(call: Point, wanted: WantedProduct, precision: str) -> tuple[MatrixProduct | None, str]:
    target, acc = call.evaluator.target, wanted.acc.tile
    if target.simulates:
        return None, "elements: a simulated GPU multiplies them one by one, so that each access is checked"
    dtype, scales = wanted.dtype, wanted.scales
    reasons: list[str] = []
    for row in product_rows(dtype, acc.dtype, precision, None if scales is None else scales.kind):
        if not target.supports(row.features[0]):
            continue  # of another maker's GPUs
        reason = row.missing(target) or misfit(call, row, wanted)
        if reason is None:
            return row, _in_words(row.name, reasons)
        reasons.append(f"not {row.name}, as {reason}")
    if not reasons:
        with_scales = f" with scales of {scales.block} neighbours" if scales is not None else ""
        reasons.append(f"{target.name} has no matrix instruction of {dtype}{with_scales}")
    rounded = product_rows(dtype, acc.dtype, "tf32") if precision == "ieee" else []
    if any(row.precision and row.missing(target) is None for row in rounded):
        reasons.append('precision="tf32" is not requested')
    return None, _in_words("elements", reasons)


def _in_words(chosen: str, reasons: list[str]) -> str:
    return ": ".join([chosen, "; ".join(reasons)]) if reasons else chosen


# *** by elements ***


def by_elements(
    call: Point,
    left: DotOperand,
    right: DotOperand,
    acc: TileValue,
    product: str,
    scales: BlockScales | None = None,
) -> TileValue:
    """Along the inner axis, a column of `a` times a row of `b` at a time; `product` says what matrices these are."""
    builder, each = call.builder, 1 if scales is None or scales.packed is None else 2
    depth = left.shape[1] * each
    operands = _Factors(left.in_memory(call, "a"), right.in_memory(call, "b"), scales)
    rows, first = _places(call, acc)
    step = UNROLLED if depth % UNROLLED == 0 else 1
    region = Region([index := Value(INT), *(sums := [Value(part.type) for part in acc.parts])])
    builder.counter(index, builder.int_(0), builder.int_(depth))
    with builder.inside(region):
        values = list(sums)
        for k in range(step):
            at = stored = builder.iadd(index, builder.int_(k))
            if each == 2:
                stored = builder.iadd(builder.idiv(index, builder.int_(2)), builder.int_(k // 2))
            place = _Place(at, stored, k % each == 1)
            values = _stepped(call, operands, acc, place, rows, first, values)
        builder.end(values)
    bounds = [builder.int_(0), builder.int_(depth), builder.int_(step)]
    types = [part.type for part in acc.parts]
    results = builder.add("for", [*bounds, *acc.parts], types, [region], product=product)
    return TileValue(acc.dtype, acc.layout, tuple(results))


def by_blocks(
    call: Point, row: MatrixProduct, left: DotOperand, right: DotOperand, acc: TileValue, scales: BlockScales
) -> TileValue:
    """The products of each block by an instruction without scales, whose sums are scaled and added."""
    builder = call.builder
    operands = _Factors(left.in_memory(call, "a"), right.in_memory(call, "b"), scales)
    rows, first = _places(call, acc)
    zeros, steps = layouts.filled(builder, acc.dtype, acc.layout, 0), scales.block // row.shape[2]
    for number in range(left.shape[1] // scales.block):
        of_block = range(number * steps, (number + 1) * steps)
        sums = by_warps(call, row, operands.a, operands.b, zeros, steps=of_block)
        factors = operands.of_block(call, number, rows, first, acc)
        parts = zip(sums.parts, factors, acc.parts, strict=True)
        acc = TileValue(acc.dtype, acc.layout, tuple(builder.row("fma", list(part)) for part in parts))
    return acc


def _places(call: Point, acc: TileValue) -> tuple[list[Value], Value]:
    """The rows of the sums that this thread has, and the first of its columns."""
    builder, first = call.builder, layouts.first_place(call, acc.layout.rows)
    rows = [builder.iadd(first, builder.int_(k)) for k in acc.layout.rows.offsets]
    return rows, layouts.first_place(call, acc.layout.columns)


@dataclass(frozen=True)
class _Place:
    """A place of the inner axis: the number of its element, and where operands have it: in which half of which byte."""

    at: Value
    stored: Value
    high: bool


@dataclass(frozen=True)
class _Factors:
    """The operands of a product in shared memory, and the scales of their blocks."""

    a: DotOperand
    b: DotOperand
    scales: BlockScales | None

    def of_a(self, call: Point, row: Value, place: _Place, dtype: DType) -> Value:
        """An element of `a`, scaled."""
        one = self._numbers(call.builder, self.a.element(call, row, place.stored), place, dtype)
        if self.scales is None:
            return one
        block = call.builder.idiv(place.at, call.builder.int_(self.scales.block))
        scale = self.scales.a.element(call, row, block)
        return call.builder.row("mul", [one, _converted(call.builder, scale, dtype)])

    def of_b(self, call: Point, place: _Place, first: Value, acc: TileValue, segment: tuple[int, int]) -> Value:
        """Neighbours of a row of `b`, scaled."""
        builder = call.builder
        stored = joined_columns(call, self.b, place.stored, first, acc.layout, *segment)
        vector = self._numbers(builder, stored, place, acc.dtype)
        if self.scales is None:
            return vector
        block = builder.idiv(place.at, builder.int_(self.scales.block))
        scale = joined_columns(call, self.scales.b, block, first, acc.layout, *segment)
        return builder.row("mul", [vector, _converted(builder, scale, acc.dtype)])

    def of_block(self, call: Point, number: int, rows: list[Value], first: Value, acc: TileValue) -> list[Value]:
        """What the sums of a block along the inner axis are multiplied by: a row's scale times those of columns."""
        builder, made = call.builder, []
        assert self.scales is not None
        block = builder.int_(number)
        vectors = [
            _converted(builder, joined_columns(call, self.scales.b, block, first, acc.layout, *segment), acc.dtype)
            for segment in acc.layout.columns.segments
        ]
        for row in rows:
            one = _converted(builder, self.scales.a.element(call, row, block), acc.dtype)
            for vector in vectors:
                width = layouts.width_of(vector)
                factor = one if width == 1 else builder.one("splat", [one], SIMDType(acc.dtype, width))
                made.append(builder.row("mul", [factor, vector]))
        return made

    def _numbers(self, builder: Builder, stored: Value, place: _Place, dtype: DType) -> Value:
        """What memory has, as numbers: of bytes of two elements the one of a half."""
        if self.scales is None or self.scales.packed is None:
            return _converted(builder, stored, dtype)
        how = ("shr", 4) if place.high else ("and_", 15)
        half = builder.row(how[0], [stored, builder.const(how[1], stored.simd)])
        bits = builder.one("cast", [half], half.simd.with_dtype(DType.uint4))
        packed = self.scales.packed
        return _converted(builder, builder.one("bitcast", [bits], bits.simd.with_dtype(packed)), dtype)


def _stepped(
    call: Point,
    operands: _Factors,
    acc: TileValue,
    place: _Place,
    rows: list[Value],
    first: Value,
    sums: list[Value],
) -> list[Value]:
    """The sums with the products of one place of the inner axis."""
    builder, columns = call.builder, acc.layout.columns
    vectors = [operands.of_b(call, place, first, acc, segment) for segment in columns.segments]
    made, number = [], 0
    for row in rows:
        one = operands.of_a(call, row, place, acc.dtype)
        for vector in vectors:
            width = layouts.width_of(vector)
            factor = one if width == 1 else builder.one("splat", [one], SIMDType(acc.dtype, width))
            made.append(_times_plus(builder, factor, vector, sums[number]))
            number += 1
    return made


def _times_plus(builder: Builder, a: Value, b: Value, total: Value) -> Value:
    if a.dtype.is_float():
        return builder.row("fma", [a, b, total])
    return builder.row("add", [builder.row("mul", [a, b]), total])


def _converted(builder: Builder, value: Value, dtype: DType) -> Value:
    return value if value.dtype is dtype else builder.one("cast", [value], value.simd.with_dtype(dtype))


def joined_columns(
    call: Point, b: DotOperand, at: Value, first: Value, layout: TileLayout, start: int, length: int
) -> Value:
    """Of a row of `b` the columns of a segment of this thread."""
    builder, run = call.builder, layout.columns.run
    offsets = layout.columns.offsets[start : start + length : run]
    loads = [b.neighbours(call, at, builder.iadd(first, builder.int_(offset)), min(run, length)) for offset in offsets]
    return layouts.joined(builder, loads)
