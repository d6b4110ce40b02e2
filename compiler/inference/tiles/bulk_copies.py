"""Copies whole rows of tiles into shared memory, where a target has bulk copies.

A thread begins the copy of a row, and hardware does the rest. A bulk copy is from neighbours to neighbours, so shared
memory has to lie row by row. Where the rows of the tile are those of the tensor, all of it is one copy. Zeros beyond
the end of the tensor are stored by the threads.

See also `lowering.bulk_copies` (how a thread waits for them).
"""

from __future__ import annotations

import functools

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import BOOL, INT, SIMDType
from ...ir.builder import Builder
from ...ir.program import Value
from ..evaluator import Point
from ..language import mbarriers
from ..language.grids import kernel_of
from ..members.spans import when
from ..values.mbarriers import MBarriers
from ..values.tensors import KernelTensor
from ..values.tiles import TileView
from . import access, layouts, tensor_maps
from .operands import in_rows
from .swizzles import is_laid_out, place_of, root_of

PIECE = 16  # bytes that addresses and sizes are multiples of
LEAST = 256  # bytes of a copy: of fewer, pieces of many threads are not slower


@dataclass(frozen=True)
class Choice:
    """How a tile is copied: by a tensor map, by rows, or else; and why so, in words."""

    why: str = ""
    rows: bool = False
    plan: tensor_maps.MapPlan | None = None


def choice(
    call: Point,
    to: KernelTensor,
    view: TileView,
    reach: access.Reach,
    count: int | None,
    fast: Value | bool,
    arrives: bool,
    bulk: bool,
) -> Choice:
    """How a tile is copied, and in words why not in a better way.

    Args:
        count: how many elements a piece has; None where there are no pieces in shared memory.
        fast: whether pieces may be copied as such.
        arrives: whether the copy arrives at a barrier of the author's.
        bulk: whether the author lets it be copied in bulk.
    """
    target, dtype = call.evaluator.target, view.tensor.dtype
    if target.grid is None or target.grid.copies is None or target.simulates:
        return Choice()
    if not fills_with_zeros(view):
        return Choice("elements: not asynchronously, as fill= is not 0")
    if count is None:
        return Choice("elements: not asynchronously, as fewer than 4 bytes of shared memory are in one piece")
    size = count * dtype.bits // 8
    if fast is False:
        return Choice(f"elements: not asynchronously, as rows of the tensor are not whole pieces of {size} bytes")
    other = "" if fast is True else f"; elements where rows do not begin at multiples of {size} bytes"
    nothing = _no_bulk(call, arrives) if bulk else "bulk=False says so"
    if nothing is not None:
        return Choice(f"pieces of {size} bytes: not in bulk, as {nothing}{other}")
    rows, columns = view.shape
    length = columns * dtype.bits // 8
    reason, whole = _misfit(call, to, view, size), _in_one_piece(call.builder, view)
    if reason is None and whole:
        return Choice(f"in bulk: {rows * length} bytes at once{other}", rows=True)
    plan = tensor_maps.plan(call, to, view, reach)
    if isinstance(plan, tensor_maps.MapPlan):
        return Choice(f"{plan.words}; elements where hardware takes no map of the tensor", plan=plan)
    other = f"; not by a tensor map, as {plan}{other}"
    if reason is not None:
        return Choice(f"pieces of {size} bytes: not in bulk, as {reason}{other}")
    return Choice(f"in bulk: {rows} rows of {length} bytes{other}", rows=True)


def _no_bulk(call: Point, arrives: bool) -> str | None:
    """Why no tile can be copied in bulk here; None where some can."""
    target = call.evaluator.target
    if target.grid is None or target.grid.bulk is None:
        newer = "code for it is of a version of PTX that has none" if target.supports("tma") else "it has none"
        return f"{target.name}: {newer}"
    if kernel_of(call, "copy_async()").role is not None and not arrives:
        return "a role awaits those at a barrier of its own, arrive="
    return None


def fills_with_zeros(view: TileView) -> bool:
    """Whether zeros are what stands beyond the end of the tensor."""
    return type(view.fill) in (int, float) and view.fill == 0


def _misfit(call: Point, to: KernelTensor, view: TileView, size: int) -> str | None:
    """Why rows of a tile are not copied in bulk; None where they are."""
    columns = view.shape[1]
    if size != PIECE:
        return f"rows are not multiples of {PIECE} bytes"
    if is_laid_out(to):
        return "shared memory has a layout, and a bulk copy is from neighbours to neighbours"
    pitch = to.strides(call.builder)[0].const
    if not in_rows(to) or pitch is None or pitch * to.dtype.bits % (8 * PIECE) or root_of(to).dims[-1].const != pitch:
        return f"rows in shared memory do not begin at multiples of {PIECE} bytes"
    if pitch != columns:
        return "the view of shared memory has not its whole rows"
    length = columns * to.dtype.bits // 8
    if length < LEAST and not _in_one_piece(call.builder, view):
        return f"rows have {length} bytes, and bulk copies are of {LEAST} or more"
    return None


def _in_one_piece(builder: Builder, view: TileView) -> bool:
    """Whether the rows of the tile are whole rows of the tensor, and lie next to each other."""
    columns, tensor = view.shape[1], view.tensor
    return bool(tensor.dims[1].const == columns and tensor.strides(builder)[0].const == columns)


def copy(call: Point, to: KernelTensor, view: TileView, reach: access.Reach, threads: int, count: int) -> Value:
    """Begins the copies of the rows that are in the tensor, and stores zeros elsewhere."""
    builder, (most, columns) = call.builder, view.shape
    ring = layouts.ring_of_copies(call)
    rows, length = _there(call, to, view, reach, threads, count)
    zero = builder.int_(0)
    source = access.span_at(call, view, zero, zero)
    assert source is not None
    pointer, offset = place_of(to, builder, (zero, zero))
    stride = view.tensor.strides(builder)[0]
    if _in_one_piece(builder, view):
        most, rows, length = 1, builder.int_(1), builder.imul(rows, length)
    operands = [pointer, offset, source.pointer, source.offset, stride, rows, length, ring]
    return builder.one("copy_rows", operands, INT, pitch=columns, most=most, **layouts.warp_of(call))


def _there(
    call: Point, to: KernelTensor, view: TileView, reach: access.Reach, threads: int, count: int
) -> tuple[Value, Value]:
    """How many rows and columns of the tile are in the tensor; behind them zeros are stored."""
    builder, (most, columns) = call.builder, view.shape
    if reach.whole is True:
        return builder.int_(most), builder.int_(columns)
    there = _clamped(builder, reach.rows, most), _clamped(builder, reach.columns, columns)
    zeros = functools.partial(_store_zeros, call, to, view, there, threads, count)
    if reach.whole is False:
        zeros()
    else:
        when(builder, builder.row("xor", [reach.whole, builder.const(True, BOOL)]), zeros)
    return there


def copy_arriving(
    call: Point,
    to: KernelTensor,
    view: TileView,
    reach: access.Reach,
    threads: int,
    count: int,
    barrier: MBarriers,
) -> Value:
    """Begins the copies of rows, which arrive at a barrier of the author's; gives how many bytes these are."""
    builder, zero = call.builder, call.builder.int_(0)
    rows, length = _there(call, to, view, reach, threads, count)
    if _in_one_piece(builder, view):
        rows, length = builder.int_(1), builder.imul(rows, length)
    some = builder.one("select", [builder.compare("gt", length, zero), rows, zero], INT)
    stride = view.tensor.strides(builder)[0]
    at_barrier = mbarriers.place_of(call, barrier, "arrive")[:2]
    source = access.span_at(call, view, zero, zero)
    assert source is not None
    loop = builder.for_loop(layouts.thread_number(call), some, builder.int_(threads))
    with builder.inside(loop):
        row = loop.args[0]
        first = builder.iadd(source.offset, builder.imul(row, stride))
        operands = [*place_of(to, builder, (row, zero)), source.pointer, first, length, *at_barrier]
        builder.add("copy_row", operands)
        builder.end()
    size = builder.int_(to.dtype.bits // 8)
    return builder.imul(builder.imul(some, length), size)


def _clamped(builder: Builder, left: Value, size: int) -> Value:
    """How much of a size is left in the tensor."""
    least = builder.row("max", [left, builder.int_(0)])
    return builder.row("min", [least, builder.int_(size)])


def _store_zeros(
    call: Point, to: KernelTensor, view: TileView, there: tuple[Value, Value], threads: int, count: int
) -> None:
    """Stores zeros behind the rows and columns that the tensor has."""
    builder, (rows, columns) = call.builder, view.shape
    across = columns // count
    loop = builder.for_loop(layouts.thread_number(call), builder.int_(rows * across), builder.int_(threads))
    with builder.inside(loop):
        place = loop.args[0]
        row = builder.idiv(place, builder.int_(across))
        column = builder.imul(builder.irem(place, builder.int_(across)), builder.int_(count))
        behind = [builder.compare("ge", at, most) for at, most in zip((row, column), there, strict=True)]
        zeros = builder.const(0.0 if to.dtype.is_float() else 0, SIMDType(to.dtype, count))

        def put() -> None:
            pointer, offset = place_of(to, builder, (row, column))
            builder.add("store", [zeros, pointer, offset], **layouts.alignment(to.dtype, count))

        when(builder, builder.row("or_", behind), put)
        builder.end()
