"""Evaluates the names of tiles: `gpu.load`, `gpu.dot`, `x.tile`, and the members of tiles and views."""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.program import Value
from .. import dispatch
from ..conversion import coerce
from ..evaluator import Point, rule
from ..language.grids import kernel_of
from ..language.storage import fits
from ..members.pointers import power_of_two
from ..members.scalars import value_cast
from ..members.table import member, method
from ..runtime_checks import guard_start
from ..values.compile_time import Closure, is_comptime_number
from ..values.describe import describe
from ..values.tensors import KernelTensor
from ..values.tiles import TileLayout, TileProduct, TileValue, TileView
from . import access, elementwise, layouts, products, reductions, scaled_products
from .operands import DotOperand, Transposed

MOST_REGISTERS = 255  # of 32 bits, of a thread
MOST_UNROLLED = 1024  # elements of a thread


def checked_shape(call: Point, shape: object, argument: str | None) -> tuple[int, int]:
    """The sizes of a tile.

    Raises:
        CompileError: EK0650, they are not what warps hold.
    """
    sizes = shape if isinstance(shape, tuple) else (shape,)
    if len(sizes) != 2 or any(type(size) is not int or size < 1 for size in sizes):
        text = "a tile has two sizes >= 1 that are known at compile time"
        hint = "a size is a number, or an int parameter of the op: `*, M: int = 64`"
        raise call.error("EK0650", text, argument, hint=hint)
    rows, columns = sizes
    if (rows != 1 and rows % layouts.ROWS) or (columns != 1 and columns % layouts.COLUMNS):
        text = f"a tile has a multiple of {layouts.ROWS} rows and of {layouts.COLUMNS} columns, or one"
        high = -(-rows // layouts.ROWS) * layouts.ROWS if rows != 1 else 1
        wide = -(-columns // layouts.COLUMNS) * layouts.COLUMNS if columns != 1 else 1
        hint = f"({high}, {wide}) is the next one; x.tile fills what lies beyond the tensor, and store leaves it out"
        raise call.error("EK0650", f"{text}, not {rows} x {columns}", argument, hint=hint)
    return rows, columns


def fitting(call: Point, layout: TileLayout, dtype: DType) -> None:
    """Refuses a tile of which a thread would hold more than it has registers.

    Raises:
        CompileError: EK0657.
    """
    target = call.evaluator.target
    words = layout.count * max(dtype.bits, 16) // 32
    if target.has_grid and words > MOST_REGISTERS:
        rows, columns = layout.shape
        text = f"a thread would hold {words} registers of this tile of {rows} x {columns} {dtype}"
        hint = "give the block more threads, or the tile fewer elements"
        raise call.error(
            "EK0657", text, expected=f"at most {MOST_REGISTERS}, for all that a thread holds", got=words, hint=hint
        )
    if layout.count > MOST_UNROLLED:
        text = f"a thread would hold {layout.count} elements of this tile"
        raise call.error("EK0657", text, expected=f"at most {MOST_UNROLLED}", got=layout.count)


@rule("gpu.tile")
def make_tile(call: Point, dtype: DType, args: list[Any], keywords: dict[str, Any]) -> TileValue:
    """`gpu.tile[T](M, N, value=0)`."""
    kernel_of(call, "tile")
    value, scope = keywords.pop("value", 0), keywords.pop("scope", "block")
    sizes, rest = args[:2], args[2:]
    if rest and len(rest) == 1:
        value = rest[0]
    if keywords or len(rest) > 1:
        given = next(iter(keywords), "a further argument")
        raise call.error("EK0208", f"gpu.tile[T](...) takes two sizes, value= and scope=, not {given}")
    if scope != "block":
        raise call.error(
            "EK0650", f'a tile is held by the threads of a block: scope= is "block", not {describe(scope)}', "scope"
        )
    if dtype.is_packed() or dtype.bits < 8 or dtype.is_complex():
        raise call.error("EK0650", f"a tile holds numbers of 8 to 64 bits, not {dtype}")
    layout = layouts.layout_for(call, "tile", checked_shape(call, tuple(sizes), None))
    fitting(call, layout, dtype)
    layouts.together(call)
    if isinstance(value, bool | int | float):
        if not fits(value, dtype):
            raise call.error("EK0208", f"{dtype} does not hold {value}", "value")
        return layouts.filled(call.builder, dtype, layout, float(value) if dtype.is_float() else value)
    number = coerce(call.argument("value"), value, SIMDType(dtype), f"value= of gpu.tile[{dtype}] is one {dtype}")
    zero = layouts.filled(call.builder, dtype, layout, 0.0 if dtype.is_float() else 0)
    tile: TileValue = elementwise.apply(call, lambda operands: operands[1], [zero, number], "gpu.tile")
    return tile


@method(KernelTensor, "tile")
def tensor_tile(
    call: Point, owner: KernelTensor, i: object, j: object, shape: object, fill: object = 0, align: object = 1
) -> TileView:
    """Tile (i, j) of a tensor of two axes that is cut into tiles of a shape."""
    if owner.rank != 2:
        text = f"tile() takes a part of a tensor of two axes; '{owner.name}' has {owner.rank}"
        hint = f"fix the other axes first: {owner.name}[b, :, :].tile(i, j, (M, N))" if owner.rank > 2 else None
        raise call.error("EK0653", text, hint=hint)
    rows, columns = checked_shape(call, shape, "shape")
    if not (is_comptime_number(fill) or (isinstance(fill, Value) and isinstance(fill.type, SIMDType))):
        raise call.error("EK0653", f"fill= is a number of {owner.dtype}, not {describe(fill)}", "fill")
    bytes = power_of_two(call, align)
    builder, first = call.builder, []
    for axis, (number, size, name) in enumerate(((i, rows, "i"), (j, columns, "j"))):
        at = coerce(call.argument(name), number, INT, "the number of a tile is an Int")
        guard_start(call, at, owner, axis)
        first.append(builder.imul(at, builder.int_(size)))
    return TileView(owner, first[0], first[1], (rows, columns), fill, bytes)


@method(KernelTensor, "transpose")
def tensor_transpose(call: Point, owner: KernelTensor) -> Transposed:
    """Shared memory with its axes exchanged, for `gpu.dot`."""
    DotOperand.of(call, owner, "")
    return Transposed(owner)


@rule("gpu.load")
def load(call: Point, view: Any, dtype: Any = None) -> TileValue:
    """A tile from memory."""
    kernel_of(call, "load()")
    whole = access.as_view(call, view, "view", "gpu.load")
    layout = layouts.layout_for(call, "load", checked_shape(call, whole.shape, "view"), rows=True)
    fitting(call, layout, whole.tensor.dtype)
    tile = access.load(call, whole, layout)
    return tile if dtype is None else cast(call, tile, dtype)


@rule("gpu.dot")
def dot(
    call: Point,
    a: object,
    b: object,
    acc: object,
    precision: object = "ieee",
    scales: object = None,
    packed: object = None,
) -> TileValue:
    kernel_of(call, "dot()")
    if scales is not None or packed is not None:
        products.checked_precision(call, precision)
        return scaled_products.dot(call, (a, b), acc, scales, packed)
    return products.dot(call, a, b, acc, precision)


@rule("gpu.dot_async")
def dot_async(
    call: Point,
    a: object,
    b: object,
    acc: object,
    precision: object = "ieee",
    scales: object = None,
    packed: object = None,
) -> TileProduct:
    kernel_of(call, "dot_async()")
    if scales is not None or packed is not None:
        products.checked_precision(call, precision)
        return scaled_products.dot_async(call, (a, b), acc, scales, packed)
    return products.dot_async(call, a, b, acc, precision)


@method(TileProduct, "wait")
def wait(call: Point, owner: TileProduct, pending: object = 0) -> TileValue | None:
    return products.wait(call, owner, pending)


@method(TileValue, "store")
def store(call: Point, owner: TileValue, view: Any) -> None:
    access.store(call, owner, access.as_view(call, view, "view", "store"), "view")


@method(TileValue, "cast")
def cast(call: Point, owner: TileValue, dtype: Any) -> TileValue:
    if owner.dtype is dtype:
        return owner
    tile: TileValue = elementwise.apply(call, lambda operands: value_cast(call, operands[0], dtype), [owner], "cast")
    return tile


@method(TileValue, "map")
def map_(call: Point, owner: TileValue, f: object) -> TileValue:
    """`f(v)`, or `f(v, i, j)` with the place of an element, of each element."""
    if not isinstance(f, Closure):
        text = f"map takes a function of an element, or of an element, its row and its column, not {describe(f)}"
        raise call.error("EK0652", text, "f")
    count = len(f.function.params)
    if count not in (1, 3):
        text = f"map takes a function of one or three parameters, and '{f.name}' has {count}"
        raise call.error("EK0652", text, "f", hint="t.map(lambda v: ...) or t.map(lambda v, i, j: ...)")
    return elementwise.mapped(
        call, owner, lambda value, row, column: dispatch.call(call, f, [value, row, column][:count], {})
    )


@method(TileValue, "reduce")
def reduce(call: Point, owner: TileValue, axis: object, monoid: object) -> Any:
    return reductions.reduce(call, owner, axis, monoid)


@method(TileValue, "transpose")
def transpose(call: Point, owner: TileValue) -> TileValue:
    """The tile with its axes exchanged: what a thread holds stays where it is."""
    builder, layout = call.builder, owner.layout
    turned = TileLayout(layout.columns, layout.rows, layout.threads)
    checked_shape(call, turned.shape, None)
    number_of = {
        start + k: (segment, k)
        for segment, (start, length) in enumerate(layout.columns.segments)
        for k in range(length)
    }
    parts = []
    for column in range(len(layout.columns.offsets)):
        segment, lane = number_of[column]
        for start, length in turned.columns.segments:
            elements = [
                layouts.lanes_of(builder, owner.part(row, segment), lane, 1) for row in range(start, start + length)
            ]
            parts.append(layouts.joined(builder, elements))
    return TileValue(owner.dtype, turned, tuple(parts), owner.number)


@member(TileValue, "shape")
def tile_shape(here: Point, owner: TileValue) -> tuple[int, int]:
    return owner.shape


@member(TileValue, "dtype")
def tile_dtype(here: Point, owner: TileValue) -> DType:
    return owner.dtype


@member(TileView, "shape")
def view_shape(here: Point, owner: TileView) -> tuple[int, int]:
    return owner.shape


@member(TileView, "dtype")
def view_dtype(here: Point, owner: TileView) -> DType:
    return owner.tensor.dtype
