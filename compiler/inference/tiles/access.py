"""Reads tiles from memory and stores them: whole ones by vectors, ragged ones under masks.

Which of both applies is decided once, at run time where it is not known. On a GPU vectors are read as such where the
address and the distance of rows are multiples of their size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.signature.schema import Role
from ....dsl.types.dtype import BOOL, DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import Region, Value
from ..conversion import coerce
from ..evaluator import Point
from ..members.spans import Span, guarded, load_span, store_span, when
from ..members.tensor_memory import span_of
from ..members.tensors import refuse_input, refuse_unreadable
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor
from ..values.tiles import TileLayout, TileValue, TileView
from . import layouts
from .swizzles import is_laid_out, neighbours_of, place_of

MOST_BYTES = 16  # of one access


def as_view(call: Point, value: Any, argument: str, what: str) -> TileView:
    """A view as it is; a tensor of two axes, whose sizes are known, as a view of all of it.

    Raises:
        CompileError: EK0653, it is neither.
    """
    if isinstance(value, TileView):
        return value
    sizes = [dim.const for dim in value.dims] if isinstance(value, KernelTensor) else []
    if len(sizes) != 2 or None in sizes:
        got = describe(value)
        if isinstance(value, KernelTensor):
            got = f"{got} of {len(sizes)} axes" if len(sizes) != 2 else f"{got}, whose sizes are not known"
        text = f"{what} takes a view of a tensor, not {got}"
        raise call.error("EK0653", text, argument, hint="x.tile(i, j, (M, N)) is tile (i, j) of a tensor of two axes")
    zero = call.builder.int_(0)
    return TileView(value, zero, zero, (int(sizes[0]), int(sizes[1])))


class Reach:
    """How far a view reaches into its tensor: whether all of it is there, and how many rows and columns are."""

    def __init__(self, call: Point, view: TileView) -> None:
        builder = call.builder
        self.rows, self.columns = (
            builder.isub(dim, first) for dim, first in zip(view.tensor.dims, (view.row, view.column), strict=True)
        )
        tests = [
            builder.compare("ge", left, builder.int_(size))
            for left, size in zip((self.rows, self.columns), view.shape, strict=True)
            if left.const is None
        ]
        self.whole: Value | bool = all(
            left.const is None or left.const >= size
            for left, size in zip((self.rows, self.columns), view.shape, strict=True)
        )
        if self.whole and tests:
            self.whole = tests[0] if len(tests) == 1 else builder.row("and_", tests)

    def mask(self, builder: Builder, row: Value, column: Value, width: int) -> Value:
        """Which of `width` elements of a row from a column on are there."""
        inside = builder.compare("lt", row, self.rows)
        lanes = [
            builder.row("and_", [inside, builder.compare("lt", builder.iadd(column, builder.int_(k)), self.columns)])
            for k in range(width)
        ]
        return layouts.joined(builder, lanes)


def span_at(call: Point, view: TileView, row: Value, column: Value) -> Span | None:
    """Where an element of a view lies; None where the tensor is not in memory."""
    builder, tensor = call.builder, view.tensor
    at = (builder.iadd(view.row, row), builder.iadd(view.column, column))
    return span_of(call, tensor, BodyIndex(tensor.dims, components=at))


def aligned(call: Point, view: TileView, count: int) -> Value | bool:
    """Whether `count` neighbours of a view, from a multiple of `count` on, lie at a multiple of their size."""
    builder, tensor = call.builder, view.tensor
    size = count * tensor.dtype.bits // 8
    span = span_at(call, view, builder.int_(0), builder.int_(0))
    if span is None or span.step is not None or tensor.dtype.is_packed():
        return False
    if view.align >= size:
        return True
    row = tensor.strides(builder)[0]
    place = builder.advance(span.pointer, span.offset, "read-only")
    holds = builder.one("aligned", [place], BOOL, align=max(size, 2))
    if row.const is not None:
        return holds if row.const % count == 0 else False
    return builder.row("and_", [holds, builder.compare("eq", builder.irem(row, builder.int_(count)), builder.int_(0))])


def both(builder: Builder, a: Value | bool, b: Value | bool) -> Value | bool:
    """Whether two conditions hold, of which each may be known."""
    if a is False or b is False:
        return False
    if a is True or b is True:
        return b if a is True else a
    return builder.row("and_", [a, b])


# *** loading ***


def load(call: Point, view: TileView, layout: TileLayout) -> TileValue:
    """The elements of a view as a tile."""
    refuse_unreadable(call, view.tensor)
    layouts.together(call)
    reach = Reach(call, view)
    fast = both(call.builder, reach.whole, _by_vectors(call, view, layout))
    if isinstance(fast, bool):
        return _loaded(call, view, layout, None if reach.whole is True else reach, vectors=fast)
    return _either(call, fast, view, layout, reach)


def _by_vectors(call: Point, view: TileView, layout: TileLayout) -> Value | bool:
    """Whether vectors of neighbours may be read as such."""
    target = call.evaluator.target
    if layout.columns.run == 1 or is_laid_out(view.tensor):
        return True
    span = span_at(call, view, call.builder.int_(0), call.builder.int_(0))
    if span is None or span.step is not None:
        return False
    return aligned(call, view, vector_of(view.tensor.dtype, layout)) if target.has_grid else True


def vector_of(dtype: DType, layout: TileLayout) -> int:
    """How many neighbours of a layout are one access."""
    return max(min(layout.columns.run, MOST_BYTES * 8 // dtype.bits), 1)


def _either(call: Point, fast: Value, view: TileView, layout: TileLayout, reach: Reach) -> TileValue:
    builder = call.builder
    regions, made = (Region(), Region()), []
    for region, vectors in zip(regions, (True, False), strict=True):
        with builder.inside(region):
            made.append(_loaded(call, view, layout, None if vectors else reach, vectors=vectors))
            builder.end(made[-1].parts)
    types = [part.type for part in made[0].parts]
    return TileValue(view.tensor.dtype, layout, tuple(builder.add("if", [fast], types, regions)))


def _loaded(call: Point, view: TileView, layout: TileLayout, reach: Reach | None, *, vectors: bool) -> TileValue:
    builder, dtype, run = call.builder, view.tensor.dtype, layout.columns.run
    target = call.evaluator.target

    def read(row: Value, column: Value) -> Value:
        if reach is not None:
            return _read_masked(call, view, reach, row, column, run)
        at = (builder.iadd(view.row, row), builder.iadd(view.column, column))
        if is_laid_out(view.tensor):
            return laid_out(call, view.tensor, at, run)
        if not vectors:
            return view.tensor.load(builder, BodyIndex(view.tensor.dims, components=at), run)
        span = span_at(call, view, row, column)
        assert span is not None
        width = vector_of(dtype, layout) if target.has_grid else run
        attrs = layouts.alignment(dtype, width) if target.has_grid else {}
        loads = [
            builder.one(
                "load", [span.pointer, builder.iadd(span.offset, builder.int_(k))], SIMDType(dtype, width), **attrs
            )
            for k in range(0, run, width)
        ]
        return layouts.joined(builder, loads)

    return layouts.gathered(call, dtype, layout, read)


def _read_masked(call: Point, view: TileView, reach: Reach, row: Value, column: Value, run: int) -> Value:
    """Neighbours of which some may lie beyond the end of the tensor."""
    builder, tensor = call.builder, view.tensor
    mask = reach.mask(builder, row, column, run)
    other = coerce(call, view.beyond, SIMDType(tensor.dtype, run))
    span = span_at(call, view, row, column)
    if span is not None:
        return load_span(builder, span, run, mask, other, None)
    lanes = []
    for k in range(run):
        at = (builder.iadd(view.row, row), builder.iadd(view.column, builder.iadd(column, builder.int_(k))))
        index = BodyIndex(tensor.dims, components=at)
        inside = layouts.lanes_of(builder, mask, k, 1)

        def element(index: BodyIndex = index) -> Value:
            return tensor.load(builder, index)

        lanes.append(guarded(builder, inside, element, layouts.lanes_of(builder, other, k, 1)))
    return layouts.joined(builder, lanes)


# *** storing ***


def store(call: Point, tile: TileValue, view: TileView, argument: str) -> None:
    """Stores a tile's elements, those that lie in the tensor.

    Raises:
        CompileError: EK0653, the dtypes or the shapes differ; EK0211, the tensor is an input.
    """
    tensor = view.tensor
    if tensor.role is Role.INPUT:
        refuse_input(call.argument(argument), tensor)
    if tile.shape != view.shape or tile.dtype is not tensor.dtype:
        got = f"a view of {view.shape[0]} x {view.shape[1]} {tensor.dtype}"
        hint = f"t.cast({tensor.dtype})" if tile.shape == view.shape else None
        text = f"{tile.words} cannot be stored into {got}"
        raise call.error("EK0653", text, argument, hint=hint)
    layouts.together(call)
    reach = Reach(call, view)
    fast = both(call.builder, reach.whole, _by_vectors(call, view, tile.layout))

    def put() -> None:
        _stored_either(call, tile, view, reach, fast)

    layouts.if_owner(call, tile.layout, put)


def _stored_either(call: Point, tile: TileValue, view: TileView, reach: Reach, fast: Value | bool) -> None:
    def some(vectors: bool) -> Callable[[], None]:
        whole = vectors or reach.whole is True
        return lambda: _stored(call, tile, view, None if whole else reach, vectors=vectors)

    if isinstance(fast, bool):
        some(fast)()
        return
    builder, regions = call.builder, (Region(), Region())
    for region, vectors in zip(regions, (True, False), strict=True):
        with builder.inside(region):
            some(vectors)()
            builder.end()
    builder.add("if", [fast], regions=regions)


def _stored(call: Point, tile: TileValue, view: TileView, reach: Reach | None, *, vectors: bool) -> None:
    builder, tensor, run = call.builder, view.tensor, tile.layout.columns.run
    has_grid = call.evaluator.target.has_grid
    width = vector_of(tile.dtype, tile.layout) if has_grid else run
    attrs = layouts.alignment(tile.dtype, width) if has_grid else {}
    for row, column, vector in layouts.runs(call, tile):
        span = None if is_laid_out(tensor) else span_at(call, view, row, column)
        if reach is None and vectors and span is not None:
            for k in range(0, run, width):
                part = layouts.lanes_of(builder, vector, k, width)
                builder.add("store", [part, span.pointer, builder.iadd(span.offset, builder.int_(k))], **attrs)
            continue
        mask = None if reach is None else reach.mask(builder, row, column, run)
        if span is not None:
            store_span(builder, span, vector, mask, None)
        else:
            _store_lanes(call, view, (row, column), vector, mask)


def _store_lanes(call: Point, view: TileView, place: tuple[Value, Value], vector: Value, mask: Value | None) -> None:
    """Neighbours of a tensor without addresses, or whose neighbours lie apart."""
    builder, tensor = call.builder, view.tensor
    row, column = (builder.iadd(first, at) for first, at in zip((view.row, view.column), place, strict=True))
    if mask is None:
        tensor.store(builder, BodyIndex(tensor.dims, components=(row, column)), vector)
        return
    for k in range(layouts.width_of(vector)):
        at = BodyIndex(tensor.dims, components=(row, builder.iadd(column, builder.int_(k))))
        one = layouts.lanes_of(builder, vector, k, 1)

        def put(at: BodyIndex = at, one: Value = one) -> None:
            tensor.store(builder, at, one)

        when(builder, layouts.lanes_of(builder, mask, k, 1), put)


def laid_out(call: Point, tensor: KernelTensor, at: tuple[Value, Value], count: int) -> Value:
    """Neighbours of a row of shared memory that is laid out, from a multiple of `count` on."""
    builder, width = call.builder, min(count, neighbours_of(tensor))
    attrs = layouts.alignment(tensor.dtype, width)
    row, column = at
    loads = []
    for k in range(0, count, width):
        pointer, offset = place_of(tensor, builder, (row, builder.iadd(column, builder.int_(k))))
        loads.append(builder.one("load", [pointer, offset], SIMDType(tensor.dtype, width), **attrs))
    return layouts.joined(builder, loads)
