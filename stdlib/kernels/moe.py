"""Routes tokens to experts: an order by expert, and products of each expert's tokens with its matrix."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    SIMD,
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    OutputTensor,
    ceildiv,
    fma,
    int32,
    int64,
    iota,
    min,
    parallel_for,
    register,
    scratch,
    unroll,
)
from ..algorithms.algorithm import wide_dtype
from ..algorithms.products import WORK
from ..algorithms.references import Array

TILE_ROWS = 4  # rows whose sums with a few columns are held in registers
ONE_ROW_COLUMNS = 8  # the columns of a single row: as many sums keep a processor busy
ROWS = 16  # that go along a panel before the next ones do
PANEL = 24  # columns of a task
T = TypeVar("T", bound=Floating)


@register("moe_create_indices", writes_once=True)
def moe_create_indices(
    order: OutputTensor[int32, "n"],
    starts: OutputTensor[int32, "(experts + 1)"],
    restore: OutputTensor[int32, "n"],
    ids: InputTensor[int32, "n"],
    ctx: DeviceContext,
    *,
    experts: int,
) -> None:
    """The places of `ids` sorted by expert, stably; where each expert begins; and the place of each in that order."""
    n = ids.dim(0)

    def all_experts(_: Index):
        for e in range(experts + 1):
            count = int32(0)
            for i in range(n):
                count += 1 if ids[i] < e else 0
            starts[e] = count

    def one(i: Index):
        mine = ids[i]
        place = int32(0)
        for k in range(n):
            other = ids[k]
            place += 1 if other < mine or (other == mine and k < i) else 0
        order[place] = int32(i)
        restore[i] = place

    if ctx.target.is_gpu:
        parallel_for(1, all_experts)
        parallel_for(n, one)
    else:
        _counted(order, starts, restore, ids, experts)


def _counted(order: AnyTensor, starts: AnyTensor, restore: AnyTensor, ids: AnyTensor, experts: int) -> None:
    """A counting sort."""
    n = ids.dim(0)
    next = scratch[int32](experts + 1, zeroed=True)
    for i in range(n):
        next[ids[i] + 1] += 1
    for e in range(experts):
        next[e + 1] += next[e]
    for e in range(experts + 1):
        starts[e] = next[e]
    for i in range(n):
        place = next[ids[i]]
        next[ids[i]] = place + 1
        order[place] = int32(i)
        restore[i] = place


@moe_create_indices.reference
def _(ids: Array, *, experts: int) -> Any:
    order = np.argsort(ids, kind="stable").astype(np.int32)
    starts = np.searchsorted(np.sort(ids), np.arange(experts + 1)).astype(np.int32)
    return order, starts, np.argsort(order, kind="stable").astype(np.int32)


@register("grouped_matmul_ragged", writes_once=True)
def grouped_matmul_ragged(
    out: OutputTensor[T, "n d"],
    x: InputTensor[T, "n k"],
    weight: InputTensor[T, "e d k"],
    starts: InputTensor[int32, "(e + 1)"],
    ctx: DeviceContext,
) -> None:
    """Rows starts[i] to starts[i + 1] of x times the transposed matrix i; experts without rows cost nothing.

    Rows before the first start and from the last one on are zeros.
    """
    wide = wide_dtype(out.dtype)
    n, d, depth = x.dim(0), weight.dim(1), x.dim(1)

    def element(task: Index):
        row, column = task // d, task % d
        e = 0
        while e + 1 < weight.dim(0) and starts[e + 1] <= row:
            e += 1
        total = wide(0)
        is_own = starts[e] <= row and row < starts[e + 1]
        for k in range(depth if is_own else 0):
            total = fma(x[row, k].cast(wide), weight[e, column, k].cast(wide), total)
        out[row, column] = total.cast(T)

    panels = ceildiv(d, PANEL)
    lanes = ctx.target.vector_bits // wide.bits
    # There are 32 registers of 512 bits, but 16 of 256, which also hold a vector of each column and of a row.
    tile_columns = 4 if ctx.target.vector_bits >= 512 else 3

    def panel(task: Index):
        e, first_column = task // panels, task % panels * PANEL
        first, last = starts[e].cast(int64), starts[e + 1].cast(int64)
        width = min(PANEL, d - first_column)
        if e == 0:
            _clear(out, 0, first, first_column, width)
        if e == weight.dim(0) - 1:
            _clear(out, last, n, first_column, width)
        for block in range(first, last, ROWS):
            if last - block == 1:
                for column in range(first_column, min(first_column + PANEL, d), ONE_ROW_COLUMNS):
                    _tile(out, x, weight, e, (block, last), column, (1, ONE_ROW_COLUMNS), lanes)
            else:
                for column in range(first_column, min(first_column + PANEL, d), tile_columns):
                    for row in range(block, min(block + ROWS, last), TILE_ROWS):
                        _tile(out, x, weight, e, (row, last), column, (TILE_ROWS, tile_columns), lanes)

    if ctx.target.is_gpu:
        parallel_for(n * d, element)
    else:
        parallel_for(weight.dim(0) * panels, panel, grain=ceildiv(WORK * weight.dim(0), PANEL * depth * n + 16))


def _clear(out: AnyTensor, first: Index, last: Index, column: Index, width: Index):
    """Sets `width` columns of the rows from `first` to `last` to 0."""
    for row in range(first, last):
        for k in range(width):
            out[row, column + k] = 0


def _tile(
    out: AnyTensor,
    x: AnyTensor,
    weight: AnyTensor,
    e: Index,
    few: tuple[Index, Index],
    column: Index,
    shape: tuple[int, int],
    lanes: int,
) -> None:
    """Elements of a few rows and columns; behind the last of either, it is computed again and not stored.

    Args:
        few: the first row, and where the rows of the expert end.
        shape: how many rows and columns.
    """
    row, last = few
    height, count = shape
    wide = wide_dtype(out.dtype)
    d, depth = weight.dim(1), x.dim(1)
    rows = tuple(min(row + r, last - 1) for r in range(height))
    columns = tuple(min(column + c, d - 1) for c in range(count))
    whole = depth // lanes * lanes
    totals: tuple[Any, ...] = ()
    for _ in unroll(height * count):
        totals = (*totals, SIMD[wide, lanes](0))
    for k in range(0, whole, lanes):
        left = tuple(x.load(i, k, width=lanes).cast(wide) for i in rows)
        totals = _added(totals, left, tuple(weight.load(e, j, k, width=lanes).cast(wide) for j in columns))
    if whole < depth:
        inside = iota(int32, lanes) < (depth - whole).cast(int32)
        left = tuple(x.load(i, whole, width=lanes, mask=inside).cast(wide) for i in rows)
        right = tuple(weight.load(e, j, whole, width=lanes, mask=inside).cast(wide) for j in columns)
        totals = _added(totals, left, right)
    for r in unroll(height):
        for c in unroll(count):
            if row + r < last and column + c < d:
                out[row + r, column + c] = totals[r * count + c].reduce_add().cast(out.dtype)


def _added(totals: tuple[Floating, ...], left: tuple[Floating, ...], right: tuple[Floating, ...]) -> Any:
    """The totals of each row, those of its columns side by side, with the products of a vector of each.

    One vector of a row at a time is needed next to those of the columns.
    """
    new: tuple[Any, ...] = ()
    for factor in left:
        for other in right:
            new = (*new, fma(factor, other, totals[len(new)]))
    return new


@grouped_matmul_ragged.reference
def _(x: Array, weight: Array, starts: Array) -> Any:
    out = np.zeros((len(x), weight.shape[1]), np.float64)
    for e in range(len(weight)):
        rows = slice(int(starts[e]), int(starts[e + 1]))
        out[rows] = x[rows].astype(np.float64) @ weight[e].astype(np.float64).T
    return out.astype(x.dtype)
