"""Accesses tensors as memory: pointers to elements, masked and strided loads and stores, gathers, prefetches.

A tensor in memory has addresses. Another one (an element of a neighbour that is computed where it is read) is read one
element after the other, with the same result.

Registers methods of tensors in the table of members. See also `inference.members.tensors` (plain loads and stores).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ....dsl.signature.schema import Role
from ....dsl.types.dtype import BOOL, INT, SIMDType
from ...ir.builder import Builder
from ...ir.opcodes import CONST, SPLAT
from ...ir.program import Value
from ..conversion import coerce
from ..evaluator import Point
from ..ownership import is_reported, report_access
from ..runtime_checks import guard_alignment, guard_index, guard_lanes, guard_number
from ..target_refusals import refuse_host
from ..tiles.swizzles import LaidOut, root_of
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor, NotElementwise, Probe, Stored, Strided, View
from .pointers import AccessKeywords, access, gather, hint_of, index_vector, power_of_two, scatter
from .scalars import check_width
from .spans import Span, lane_at, lanes_in_memory, load_span, one_by_one, store_span, when
from .table import method
from .tensors import flat, refuse_unreadable, storable, store_into, to_index
from .vectors import from_lanes, is_vector

MAX_STATIC_REACH = 1 << 40  # elements; what a step known at compile time goes further than is looked at lane by lane


def span_of(call: Point, tensor: KernelTensor, index: BodyIndex) -> Span | None:
    """Where the element at an index lies, and the distance to the next one of the last axis; None if it has no
    address."""
    builder = call.builder
    root: KernelTensor = tensor
    at = index
    while isinstance(root, View):
        at = root.mapped(builder, at)
        root = root.base
    if not isinstance(root, Stored) or tensor.dtype.is_packed() or isinstance(root, LaidOut):
        return None  # no address, or one of a single element
    step = None
    if tensor.rank and type(tensor) is not Stored:
        if index.linear is not None and tensor.rank > 1:
            return None  # from the end of a row, the way goes on at the start of the next one
        step = tensor.strides(builder)[-1]
    return Span(root.pointer, root.offset(builder, at), None if step is None or step.const == 1 else step)


def strided(call: Point, span: Span, step: Value | None) -> Span:
    """The span with every `step`-th element of it."""
    if step is None or span.step is None:
        return Span(span.pointer, span.offset, span.step if step is None else step)
    return Span(span.pointer, span.offset, call.builder.imul(span.step, step))


def _without_always(how: AccessKeywords) -> AccessKeywords:
    """The same keywords; no mask where it is known to name every lane."""
    made = None if how.mask is None else how.mask.maker
    if made is not None and made.opcode is SPLAT:
        made = made.operands[0].maker
    whole = made is not None and made.opcode is CONST and made.attrs["value"] is True
    return replace(how, mask=None) if whole else how


def load_some(call: Point, tensor: KernelTensor, index: BodyIndex, how: AccessKeywords) -> Value:
    """Elements along the last axis, those that the mask names."""
    builder, how = call.builder, _without_always(how)
    span = span_of(call, tensor, index)
    if span is not None:
        guard_alignment(call, span.pointer, span.offset, how.align, how.mask)
        return load_span(builder, strided(call, span, how.step), how.width, how.mask, how.other, how.align)

    def element(count: Value) -> Value:
        return tensor.load(builder, index.ahead(builder, count if how.step is None else builder.imul(count, how.step)))

    return one_by_one(builder, SIMDType(tensor.dtype, how.width), element, how.mask, how.other)


def store_some(call: Point, tensor: KernelTensor, index: BodyIndex, value: Value, how: AccessKeywords) -> None:
    """Stores along the last axis, the lanes that the mask names."""
    builder, how = call.builder, _without_always(how)

    at = _along(builder, index, how)
    _guard_numbers(call, tensor, at, value, how)
    span = span_of(call, tensor, index)
    if span is not None:
        guard_alignment(call, span.pointer, span.offset, how.align, how.mask)
        store_span(builder, strided(call, span, how.step), value, how.mask, how.align)
        return
    lanes = lanes_in_memory(builder, value)
    _each_lane(builder, how, lambda count: tensor.store(builder, at(count), lanes(count)))


def _each_lane(builder: Builder, how: AccessKeywords, work: Callable[[Value], None]) -> None:
    """Does `work` for the lanes that the mask names, one by one."""
    named = None if how.mask is None else lanes_in_memory(builder, how.mask)
    loop = builder.for_loop(builder.int_(0), builder.int_(how.width))
    with builder.inside(loop):
        count = loop.args[0]
        if named is None:
            work(count)
        else:
            when(builder, named(count), lambda: work(count))
        builder.end()


def _along(builder: Builder, first: BodyIndex, how: AccessKeywords) -> Callable[[Value], BodyIndex]:
    """The index of each lane of an access that begins at `first`."""
    return lambda count: first.ahead(builder, count if how.step is None else builder.imul(count, how.step))


def _report_lanes(call: Point, tensor: KernelTensor, first: BodyIndex, how: AccessKeywords, kind: str) -> None:
    """Reports the accesses of the lanes that the mask names; see `inference.ownership`."""
    if is_reported(call.evaluator, tensor):
        at = _along(call.builder, first, how)
        _each_lane(call.builder, how, lambda count: report_access(call, tensor, at(count), kind))


def _report_offsets(
    call: Point, tensor: KernelTensor, first: BodyIndex, indices: object, mask: object, kind: str
) -> None:
    """The same for the lanes of a gather or a scatter."""
    if not is_reported(call.evaluator, tensor):
        return
    builder, offsets = call.builder, index_vector(call, indices)
    assert isinstance(offsets.type, SIMDType)
    how = access(call, tensor.dtype, offsets.type.width, mask, None, 1, None)

    def report(count: Value) -> None:
        offset = builder.one("cast", [lane_at(builder, offsets, count)], INT)
        report_access(call, tensor, first.ahead(builder, offset), kind)

    _each_lane(builder, how, report)


def _guard_numbers(
    call: Point, tensor: KernelTensor, at: Callable[[Value], BodyIndex], value: Value, how: AccessKeywords
) -> None:
    """Under `+nan` or `+inf`: every lane that is stored is a number."""
    builder = call.builder
    if call.evaluator.checks.finds:
        _each_lane(builder, how, lambda count: guard_number(call, tensor, at(count), lane_at(builder, value, count)))


def _vector_index(call: Point, tensor: KernelTensor, index: tuple[object, ...]) -> tuple[BodyIndex, Any]:
    """The index of the row's first element, and the vector that stands last in the index."""
    parts = flat(call, index)
    parts = parts if isinstance(parts, tuple) else (parts,)
    if not parts or tensor.rank == 0:
        raise call.error("EK0218", "a gather takes an index whose last part is a vector of integers", "index")
    return to_index(call, tensor, (*parts[:-1], 0)), parts[-1]


def _guard_span(call: Point, tensor: KernelTensor, index: BodyIndex, how: AccessKeywords) -> None:
    """Checks the elements that a load or a store with these keywords touches."""
    builder = call.builder
    reach = (how.width - 1) * (1 if how.step is None else how.step.const or 0)
    known = how.step is None or (how.step.const is not None and abs(reach) <= MAX_STATIC_REACH)
    if tensor.rank == 0:
        guard_index(call, tensor, index, abs(reach) + 1 if known else how.width)
        return
    if how.mask is None and known:
        first = index if reach >= 0 else _behind(builder, tensor, index, reach)
        guard_index(call, tensor, first, abs(reach) + 1)
        return
    *outer, inner = index.components(builder)
    guard_index(call, tensor, BodyIndex(tensor.dims, components=(*outer, builder.int_(0)), unchecked=True))
    guard_lanes(call, tensor, _numbers(call, inner, how), how.mask)


def _behind(builder: Builder, tensor: KernelTensor, index: BodyIndex, reach: int) -> BodyIndex:
    """The index of the last element that a step backwards comes to; it may be anywhere."""
    *outer, inner = index.components(builder)
    moved = builder.row("add", [inner, builder.int_(reach)])
    return BodyIndex(tensor.dims, components=(*outer, moved), unchecked=True)


def _numbers(call: Point, first: Value, how: AccessKeywords) -> Value:
    """The indices on the last axis: first, first + step, …"""
    builder = call.builder
    if how.width == 1:
        return first
    type = SIMDType(INT.dtype, how.width)
    count = from_lanes(builder, [builder.int_(k) for k in range(how.width)])
    if how.step is not None:
        count = builder.row("mul", [count, builder.one("splat", [how.step], type)])
    return builder.row("add", [builder.one("splat", [first], type), count])


def _guard_indices(call: Point, tensor: KernelTensor, first: BodyIndex, indices: object, mask: object) -> None:
    """Checks the row of a gather or a scatter, and the elements that it touches there."""
    if call.evaluator.checks.level == "off":
        return
    offsets = index_vector(call, indices)
    builder, type = call.builder, offsets.type
    assert isinstance(type, SIMDType)
    wide = type.with_dtype(INT.dtype)
    numbers = offsets if type == wide else builder.one("cast", [offsets], wide)
    guard_index(call, tensor, first)
    guard_lanes(call, tensor, numbers, access(call, tensor.dtype, type.width, mask, None, 1, None).mask)


@method(KernelTensor, "gather")
def tensor_gather(call: Point, owner: KernelTensor, *index: object, mask: object = None, other: object = None) -> Value:
    refuse_host(call, owner)
    first, indices = _vector_index(call, owner, index)
    _guard_indices(call, owner, first, indices, mask)
    _report_offsets(call, owner, first, indices, mask, "read")
    span = span_of(call, owner, first)
    if span is not None and span.step is None:
        return gather(call, _pointer(call, span), indices, mask, other)
    offsets = index_vector(call, indices)
    builder, type = call.builder, offsets.type
    assert isinstance(type, SIMDType)
    how = access(call, owner.dtype, type.width, mask, other, 1, None)

    def element(count: Value) -> Value:
        offset = builder.one("cast", [lane_at(builder, offsets, count)], INT)
        return owner.load(builder, first.ahead(builder, offset))

    return one_by_one(builder, SIMDType(owner.dtype, type.width), element, how.mask, how.other)


@method(KernelTensor, "scatter")
def tensor_scatter(call: Point, owner: KernelTensor, value: object, *index: object, mask: object = None) -> None:
    refuse_host(call, owner)
    call.nodes = {**call.nodes, "target": call.node}
    first, indices = _vector_index(call, owner, index)
    stored = storable(call, owner, value)
    _guard_indices(call, owner, first, indices, mask)
    _report_offsets(call, owner, first, indices, mask, "write")
    span = span_of(call, owner, first)
    plain = span is not None and span.step is None
    if span is not None and plain and not call.evaluator.checks.finds:
        scatter(call, _pointer(call, span), stored, indices, mask)
        return
    offsets = index_vector(call, indices)
    builder, type = call.builder, offsets.type
    assert isinstance(type, SIMDType)
    whole = SIMDType(owner.dtype, type.width)
    lanes = coerce(call.argument("value"), stored, whole)
    how = access(call, owner.dtype, type.width, mask, None, 1, None)

    def at(count: Value) -> BodyIndex:
        return first.ahead(builder, builder.one("cast", [lane_at(builder, offsets, count)], INT))

    _guard_numbers(call, owner, at, lanes, how)
    if span is not None and plain:
        scatter(call, _pointer(call, span), stored, indices, mask)
        return
    _each_lane(builder, how, lambda count: owner.store(builder, at(count), lane_at(builder, lanes, count)))


def _pointer(call: Point, span: Span) -> Value:
    """The pointer to the first element of a span."""
    if span.offset.const == 0:
        return span.pointer
    return call.builder.advance(span.pointer, span.offset, "read-write")


@method(KernelTensor, "pointer")
def tensor_pointer(call: Point, owner: KernelTensor, *index: object) -> Value:
    """The address of an element, of the first one unless an index says which."""
    at = to_index(call, owner, flat(call, index) if index else (0,) * owner.rank)
    if owner.dtype.is_packed():
        text = f"the elements of '{owner.name}' share bytes and have no addresses: it holds {owner.dtype}"
        raise call.error("EK0223", text)
    span = span_of(call, owner, at)
    if isinstance(root_of(owner), LaidOut):
        text = f"'{owner.name}' has a layout: the elements that follow a pointer would be others than those of the row"
        raise call.error("EK0223", text)
    if span is None:
        if isinstance(owner, Probe) or not isinstance(owner, View):
            raise NotElementwise  # in memory it will have an address
        raise call.error("EK0223", f"{describe(owner)} is not in memory here and has no address")
    return call.builder.advance(span.pointer, span.offset, "read-only" if owner.role is Role.INPUT else "read-write")


@method(KernelTensor, "is_aligned")
def tensor_is_aligned(call: Point, owner: KernelTensor, bytes: object, *index: object) -> bool | Value:
    """Whether an element lies in memory, its neighbours along the last axis behind it, at a multiple of some bytes."""
    refuse_host(call, owner)
    least = power_of_two(call, bytes)
    span = span_of(call, owner, to_index(call, owner, flat(call, index) if index else (0,) * owner.rank))
    if span is None or span.step is not None:
        return False
    return call.builder.one("aligned", [_pointer(call, span)], BOOL, align=least)


@method(KernelTensor, "prefetch")
def tensor_prefetch(
    call: Point, owner: KernelTensor, *index: object, locality: object = 3, write: object = False
) -> None:
    refuse_host(call, owner)
    hint = hint_of(call, locality, write)
    span = span_of(call, owner, to_index(call, owner, flat(call, index)))
    if span is not None:  # what is computed where it is read is in no cache
        call.builder.add("prefetch", [span.pointer, span.offset], **hint)


def _plain(call: Point, tensor: KernelTensor, index: BodyIndex, width: int, stride: object) -> bool:
    """Whether neighbours of the last axis are meant, and are neighbours in memory or in no memory."""
    if type(stride) is not int or stride != 1:
        return False
    if width == 1 or not isinstance(tensor, View | Strided):
        return True
    span = span_of(call, tensor, index)
    return span is None or span.step is None


@method(KernelTensor, "load")
def tensor_load(
    call: Point,
    owner: KernelTensor,
    *index: Any,
    width: Any = 1,
    stride: Any = 1,
    mask: Any = None,
    other: Any = None,
    align: Any = None,
) -> Value:
    check_width(call, width, "width")
    refuse_host(call, owner)
    refuse_unreadable(call, owner)
    at = to_index(call, owner, flat(call, index))
    if _plain(call, owner, at, width, stride) and mask is None and other is None and align is None:
        guard_index(call, owner, at, width)
        report_access(call, owner, at, "read", width)
        return owner.load(call.builder, at, width)
    how = access(call, owner.dtype, width, mask, other, stride, align)
    _guard_span(call, owner, at, how)
    _report_lanes(call, owner, at, how, "read")
    return load_some(call, owner, at, how)


@method(KernelTensor, "store")
def tensor_store(
    call: Point,
    owner: KernelTensor,
    value: object,
    *index: object,
    stride: object = 1,
    mask: object = None,
    align: object = None,
) -> None:
    call.nodes = {"target": call.node, **call.nodes}
    if any(isinstance(part, Value) and is_vector(part) for part in index):
        text = f"an index is made of Ints, not of {describe(next(p for p in index if isinstance(p, Value)))}"
        raise call.error("EK0202", text, "index", hint="the value comes first: x.store(value, i)")
    at = to_index(call, owner, flat(call, index))
    stored = storable(call, owner, value)
    assert isinstance(stored.type, SIMDType)
    if _plain(call, owner, at, stored.type.width, stride) and mask is None and align is None:
        store_into(call, owner, at, stored)
        return
    how = access(call, owner.dtype, stored.type.width, mask, None, stride, align)
    _guard_span(call, owner, at, how)
    _report_lanes(call, owner, at, how, "write")
    store_some(call, owner, at, stored, how)
