"""Computes functions of tiles element by element: operators, mathematics, `map`.

Each thread applies the function to the vectors that it holds. Tiles of one column or one row are repeated, numbers are
the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....dsl.types.dtype import SIMDType
from ...ir.program import Value
from ..evaluator import Point, rule
from ..values.describe import describe
from ..values.tiles import TileLayout, TileValue, common_shape
from . import layouts
from .layouts import lanes_of

Function = Callable[[list[Any]], Any]


@rule("elementwise on tiles")
def apply(call: Point, function: Function, operands: Sequence[object], what: str) -> TileValue:
    """The tile of `function` of the elements of `operands`, which are tiles and numbers.

    Raises:
        CompileError: EK0651, their shapes do not fit.
    """
    tiles = [operand for operand in operands if isinstance(operand, TileValue)]
    shape = common_shape([tile.shape for tile in tiles])
    if shape is None:
        texts = " and ".join(describe(tile) for tile in tiles)
        hint = "sizes are equal, or one of them is 1: a column (M, 1) or a row (1, N) is repeated"
        raise call.error("EK0651", f"{what} of {texts}: the shapes do not fit", hint=hint)
    layouts.together(call)
    for tile in tiles:
        layouts.readable(call, tile)
    layout = _common_layout(call, shape, tiles)
    spread = [_fitted(call, operand, layout) for operand in operands]
    segments = layout.columns.segments
    parts: list[Any] = []
    for row in range(len(layout.rows.offsets)):
        for segment, (start, length) in enumerate(segments):
            values = [_part(call, operand, row, segment, start, length) for operand in spread]
            parts.append(_wide(call, function(values), length))
    return TileValue(parts[0].dtype, layout, tuple(parts))


def _wide(call: Point, value: object, length: int) -> Value:
    """What a function gave for a vector, in as many lanes."""
    if not isinstance(value, Value) or value.weak is not None:
        raise call.error("EK0652", f"the elements of a tile are numbers of one dtype, not {describe(value)}")
    width = layouts.width_of(value)
    if width == length:
        return value
    if width != 1:
        raise call.error("EK0652", f"the elements of a tile are single numbers, not {describe(value)}")
    return call.builder.one("splat", [value], SIMDType(value.dtype, length))


def _common_layout(call: Point, shape: tuple[int, int], tiles: list[TileValue]) -> TileLayout:
    """The layout in which the fewest tiles move: that of the first whole one whose elements are not one number."""
    whole = [tile for tile in tiles if tile.shape == shape]
    for tile in (*(t for t in whole if t.number is None), *whole):
        if tile.number is None or all(other.number is not None for other in tiles):
            return tile.layout
    for tile in tiles:
        if tile.number is None and whole:
            for candidate in _candidates(call, shape):
                if candidate.along(1 if tile.shape[1] == 1 else 0) == tile.layout:
                    return candidate
    return whole[0].layout if whole else layouts.layout_for(call, "tile", shape)


def _candidates(call: Point, shape: tuple[int, int]) -> list[TileLayout]:
    return [layouts.layout_for(call, "tile", shape, rows=rows) for rows in (True, False)]


def _fitted(call: Point, operand: object, layout: TileLayout) -> Any:
    """An operand in the layout of the result, but for axes along which it is repeated."""
    if not isinstance(operand, TileValue):
        return operand
    return layouts.moved(call, operand, shrunk(layout, operand.shape))


def shrunk(layout: TileLayout, shape: tuple[int, int]) -> TileLayout:
    """The layout of a tile that is repeated along its sizes of 1, next to tiles of `layout`."""
    for axis in (0, 1):
        if shape[axis] == 1 and layout.shape[axis] != 1:
            layout = layout.along(axis)
    return layout


def _part(call: Point, operand: object, row: int, segment: int, start: int, length: int) -> Any:
    if not isinstance(operand, TileValue):
        return operand
    builder, own = call.builder, operand.layout
    row = row if len(own.rows.offsets) > 1 or own.shape[0] > 1 else 0
    if own.shape[1] > 1 or length == 1:
        return operand.part(row, segment if own.shape[1] > 1 else 0)
    vector = operand.part(row, 0)
    return builder.one("splat", [vector], SIMDType(vector.dtype, length))


def mapped(call: Point, tile: TileValue, function: Callable[[Value, Value, Value], Any]) -> TileValue:
    """The tile of what `function` gives for each element, its row and its column."""
    layouts.together(call)
    layouts.readable(call, tile)
    builder, layout = call.builder, tile.layout
    first_row, first_column = layouts.first_place(call, layout.rows), layouts.first_place(call, layout.columns)
    parts: list[Any] = []
    for number, offset in enumerate(layout.rows.offsets):
        row = builder.iadd(first_row, builder.int_(offset))
        for segment, (start, length) in enumerate(layout.columns.segments):
            vector, values = tile.part(number, segment), []
            for k in range(length):
                column = builder.iadd(first_column, builder.int_(layout.columns.offsets[start + k]))
                values.append(_wide(call, function(lanes_of(builder, vector, k, 1), row, column), 1))
            parts.append(layouts.joined(builder, values))
    return TileValue(parts[0].dtype, layout, tuple(parts))
