"""Copies tiles into shared memory, by all threads of the block together.

Each thread copies pieces of 16 bytes, or of 8 or 4 where rows are shorter: asynchronously, if addresses and distances
of rows are multiples of that, which is checked at run time. Otherwise, and where other numbers than zeros stand beyond
the end of the tensor, threads load and store elements.

See also `bulk_copies` (whole rows at once), `tensor_maps` (whole tiles at once).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import BOOL, INT, DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import Value
from ..conversion import coerce
from ..evaluator import Point
from ..language import mbarriers
from ..language.grids import kernel_of, synchronise
from ..members.spans import Span, chosen, guarded, when
from ..values.compile_time import Copies
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.mbarriers import MBarriers
from ..values.tensors import KernelTensor
from ..values.tiles import TileView
from . import access, bulk_copies, layouts, multicasts, tensor_maps
from .operands import in_rows
from .swizzles import is_laid_out, is_shared, neighbours_of, place_of, rows_apart

SIZES = (16, 8, 4)


def copy(
    call: Point,
    to: Any,
    view: TileView,
    arrive: MBarriers | None = None,
    multicast: bool = False,
    bulk: bool = True,
) -> Copies | None:
    """Begins to copy a view into a matrix in shared memory; the copy arrives at a barrier if one is given.

    With `multicast` each block of the cluster copies its part into the memory of all, and arrives at their barriers.
    Without `bulk` threads copy pieces.

    Raises:
        CompileError: EK0646, the matrix is not in shared memory, or has another shape or dtype.
    """
    _check(call, to, view)
    threads = layouts.threads_of(call, "copy_async()")
    builder = call.builder
    if multicast and arrive is not None and math.prod(kernel_of(call, "copy_async()").cluster) > 1:
        multicasts.copy(call, to, view, arrive, threads)
        return None
    count = _piece(to, view)
    fast: Value | bool = False
    reach = access.Reach(call, view)
    if count is not None and bulk_copies.fills_with_zeros(view):
        fast = access.both(builder, access.aligned(call, view, count), _whole_pieces(call, view, count))
    chosen_way = bulk_copies.choice(call, to, view, reach, count, fast, arrive is not None, bulk)
    layouts.together(call, copies=chosen_way.why)
    plan = chosen_way.plan
    map, mapped = (None, False) if plan is None else tensor_maps.make(call, plan, view)

    def slow() -> Value:
        _by_elements(call, to, view, reach, threads)
        if arrive is not None and plan is not None:
            _arrive(call, arrive, builder.int_(0))
        return builder.int_(0)

    def quick() -> Value:
        assert count is not None
        if plan is not None and map is not None:
            return tensor_maps.copy(call, plan, map, to, view, arrive)
        if not chosen_way.rows:
            token = _by_pieces(call, to, view, reach, threads, count)
            return token if arrive is None else _awaited(builder, token)
        if arrive is None:
            return bulk_copies.copy(call, to, view, reach, threads, count)
        return bulk_copies.copy_arriving(call, to, view, reach, threads, count, arrive)

    taken = mapped if plan is not None else fast
    made = slow() if fast is False or count is None else chosen(builder, taken, quick, slow)
    if arrive is None:
        return Copies("copy", made)
    if plan is None:
        _arrive(call, arrive, made)
    return None


def _awaited(builder: Builder, token: Value) -> Value:
    """Waits for the pieces of this thread: hardware without bulk copies lets none arrive by themselves."""
    builder.add("copy_wait", [token], what="copy", pending=0)
    return builder.int_(0)


def _arrive(call: Point, barrier: MBarriers, bytes: Value) -> None:
    """One arrival for all threads that copy together, with the bytes of bulk copies that are under way."""
    builder = call.builder
    synchronise(call)
    first = builder.compare("eq", layouts.thread_number(call), builder.int_(0))
    when(builder, first, lambda: mbarriers.arrive(call, barrier, bytes))


def _check(call: Point, to: object, view: TileView) -> None:
    if not isinstance(to, KernelTensor) or not is_shared(to):
        text = f"gpu.copy_async copies a view into shared memory, and this is {describe(to)}"
        raise call.error("EK0646", text, "to", hint=f"gpu.shared[T]({view.shape[0]}, {view.shape[1]})")
    sizes = tuple(dim.const for dim in to.dims)
    if sizes != view.shape or to.dtype is not view.tensor.dtype:
        shape = " x ".join("?" if size is None else str(size) for size in sizes)
        text = f"gpu.copy_async copies {view.words} into {shape} {to.dtype}"
        raise call.error("EK0646", text, "source", hint="both sides have one dtype and one shape")
    if is_shared(view.tensor):
        text = "gpu.copy_async copies from a tensor of the op to shared memory; this is not a tensor of the op"
        raise call.error("EK0646", text, "source")


def _piece(to: KernelTensor, view: TileView) -> int | None:
    """How many elements a thread copies at once; None where pieces are not in one piece in shared memory."""
    bits, columns = view.tensor.dtype.bits, view.shape[1]
    if view.tensor.dtype.is_packed() or bits < 8:
        return None
    most = neighbours_of(to) if is_laid_out(to) else columns if in_rows(to) else 1
    for size in SIZES:
        count = size * 8 // bits
        if count and columns % count == 0 and count <= most:
            return count
    return None


def _whole_pieces(call: Point, view: TileView, count: int) -> Value | bool:
    """Whether no piece lies across the end of the tensor's rows."""
    builder = call.builder
    size = view.tensor.dims[1]
    if view.align * 8 >= count * view.tensor.dtype.bits:
        return True
    if size.const is not None:
        return bool(size.const % count == 0)
    return builder.compare("eq", builder.irem(size, builder.int_(count)), builder.int_(0))


@dataclass(frozen=True)
class _Piece:
    """Where a piece is in the view, in the tensor's memory and in shared memory."""

    row: Value
    column: Value
    source: Span
    pointer: Value
    offset: Value

    @classmethod
    def of(cls, call: Point, to: KernelTensor, view: TileView, number: Value, count: int) -> _Piece:
        """The piece of a number, counted by rows."""
        builder, across = call.builder, call.builder.int_(view.shape[1] // count)
        row = builder.idiv(number, across)
        column = builder.imul(builder.irem(number, across), builder.int_(count))
        source = access.span_at(call, view, row, column)
        assert source is not None
        return cls(row, column, source, *place_of(to, builder, (row, column)))

    def below(self, builder: Builder, rows: int, distances: tuple[Value, Value]) -> _Piece:
        """The piece so many rows further down, where rows have these distances in the tensor and in shared memory."""
        row, *offsets = (
            builder.iadd(first, builder.imul(builder.int_(rows), distance))
            for first, distance in zip(
                (self.row, self.source.offset, self.offset), (builder.int_(1), *distances), strict=True
            )
        )
        return _Piece(row, self.column, Span(self.source.pointer, offsets[0]), self.pointer, offsets[1])


def _by_pieces(call: Point, to: KernelTensor, view: TileView, reach: access.Reach, threads: int, count: int) -> Value:
    """Copies the pieces of this thread, which are found from the first one where they lie below each other."""
    builder, last = call.builder, [call.builder.int_(0)]
    across = view.shape[1] // count
    total = view.shape[0] * across
    number = layouts.thread_number(call)
    start = _Piece.of(call, to, view, number, count)
    distances = (view.tensor.strides(builder)[0], to.strides(builder)[0])
    steps = threads // across if threads % across == 0 else 0
    steps = 0 if rows_apart(builder, to, steps) is None else steps
    inside = None if reach.whole is True else _inside(builder, view, reach, start)

    def one(piece: _Piece, rows: int) -> None:
        allowed = builder.const(True, BOOL) if inside is None else inside(piece, rows)
        operands = [piece.pointer, piece.offset, piece.source.pointer, piece.source.offset, allowed]
        last[0] = builder.one("copy_async", operands, INT, count=count)

    for k, first in enumerate(range(0, total, threads)):

        def put(k: int = k, first: int = first) -> None:
            if steps:
                one(start.below(builder, k * steps, distances) if k else start, k * steps)
            else:
                place = builder.iadd(number, builder.int_(first))
                one(_Piece.of(call, to, view, place, count), -1)

        if first + threads <= total:
            put()
        else:
            place = builder.iadd(number, builder.int_(first))
            when(builder, builder.compare("lt", place, builder.int_(total)), put)
    return last[0] if total % threads == 0 else builder.int_(0)


def _inside(builder: Builder, view: TileView, reach: access.Reach, start: _Piece) -> Callable[[_Piece, int], Value]:
    """Whether a piece lies in the tensor, of pieces that lie so many rows below the first one, or anywhere (-1).

    An axis that tiles divide has all places of a tile or none. Others are compared in 32 bits, as a GPU does at once.
    """
    lefts = (reach.rows, reach.columns)
    divided = [
        dim.const is not None and dim.const % size == 0 for dim, size in zip(view.tensor.dims, view.shape, strict=True)
    ]
    clamped = [
        builder.compare("gt", left, builder.int_(0)) if whole else _clamped(builder, left, size)
        for left, size, whole in zip(lefts, view.shape, divided, strict=True)
    ]
    below = None if divided[0] else builder.row("sub", [clamped[0], _short(builder, start.row)])

    def inside(piece: _Piece, rows: int) -> Value:
        tests = []
        if below is None:
            tests.append(clamped[0])
        elif rows >= 0:
            tests.append(builder.compare("gt", below, builder.const(rows, SIMDType(DType.int32))))
        else:
            tests.append(builder.compare("lt", _short(builder, piece.row), clamped[0]))
        tests.append(clamped[1] if divided[1] else builder.compare("lt", _short(builder, piece.column), clamped[1]))
        return builder.row("and_", tests)

    return inside


def _short(builder: Builder, number: Value) -> Value:
    """A number in 32 bits, which a GPU compares at once."""
    return builder.one("cast", [number], SIMDType(DType.int32))


def _clamped(builder: Builder, left: Value, size: int) -> Value:
    """How much of a size is left in the tensor, in 32 bits."""
    least = builder.row("max", [left, builder.int_(0)])
    return _short(builder, builder.row("min", [least, builder.int_(size)]))


def _by_elements(call: Point, to: KernelTensor, view: TileView, reach: access.Reach, threads: int) -> None:
    builder, tensor = call.builder, view.tensor
    rows, columns = view.shape
    fill = coerce(call, view.beyond, SIMDType(tensor.dtype))
    number = layouts.thread_number(call)
    loop = builder.for_loop(number, builder.int_(rows * columns), builder.int_(threads))
    with builder.inside(loop):
        place = loop.args[0]
        row, column = builder.idiv(place, builder.int_(columns)), builder.irem(place, builder.int_(columns))

        def read() -> Value:
            at = (builder.iadd(view.row, row), builder.iadd(view.column, column))
            return tensor.load(builder, BodyIndex(tensor.dims, components=at))

        value = read() if reach.whole is True else guarded(builder, reach.mask(builder, row, column, 1), read, fill)
        pointer, offset = place_of(to, builder, (row, column))
        builder.add("store", [value, pointer, offset])
        builder.end()
