"""Evaluates `gpu.work`: which tiles of a result a block computes, where there are fewer blocks than tiles.

Tiles are numbered in an order, and block b of n takes tiles b, b + n, b + 2 n, …. Blocks that run at the same time then
have tiles that follow each other.
"""

from __future__ import annotations

from ....dsl.types.dtype import INT
from ...ir.program import Value
from ..conversion import coerce
from ..evaluator import Point, rule
from ..values.compile_time import LoopRange, Work
from ..values.describe import describe
from .grids import gpu_value, kernel_of

ORDERS = ("grouped", "rows", "columns")
BAND = 8  # rows of tiles that are numbered together


@rule("gpu.work")
def work(call: Point, tiles: object, order: object = "grouped") -> Work:
    """The tiles of this block.

    Raises:
        CompileError: EK0646, `tiles` is not two numbers, or there is no such order.
    """
    kernel_of(call, "work()")
    if not isinstance(tiles, tuple) or len(tiles) != 2:
        text = f"gpu.work takes how many rows and columns of tiles there are, not {describe(tiles)}"
        raise call.error("EK0646", text, "tiles", hint="gpu.work((ceildiv(m, M), ceildiv(n, N)))")
    if order not in ORDERS:
        text = f"order= of gpu.work is {', '.join(map(repr, ORDERS))}, not {describe(order)}"
        raise call.error("EK0646", text, "order")
    at = call.argument("tiles")
    rows, columns = (coerce(at, count, INT, "the number of tiles is an Int") for count in tiles)
    builder = call.builder
    block, blocks = gpu_value(call, "block_idx.z"), builder.int_(1)
    for axis in "yx":
        block = builder.iadd(
            builder.imul(block, gpu_value(call, f"grid_dim.{axis}")), gpu_value(call, f"block_idx.{axis}")
        )
    for axis in "xyz":
        blocks = builder.imul(blocks, gpu_value(call, f"grid_dim.{axis}"))
    step = builder.row("max", [blocks, builder.int_(1)])  # a grid has blocks
    numbers = LoopRange(block, builder.imul(rows, columns), step)
    return Work(numbers, lambda number: _place(call, number, (rows, columns), order))


def _place(call: Point, number: Value, tiles: tuple[Value, Value], order: object) -> tuple[Value, Value]:
    """The row and the column of a tile."""
    builder, (rows, columns) = call.builder, tiles
    if order == "rows":
        return builder.idiv(number, columns), builder.irem(number, columns)
    if order == "columns":
        return builder.irem(number, rows), builder.idiv(number, rows)
    in_band = builder.imul(builder.int_(BAND), columns)
    first = builder.imul(builder.idiv(number, in_band), builder.int_(BAND))
    height = builder.row("min", [builder.isub(rows, first), builder.int_(BAND)])
    within = builder.irem(number, in_band)
    return builder.iadd(first, builder.irem(within, height)), builder.idiv(within, height)
