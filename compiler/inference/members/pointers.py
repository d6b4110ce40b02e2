"""Loads and stores through pointers: elements, spans, gathers.

A pointer is a value of the running program: it goes through branches and round loops, and into functions. It keeps the
dtype and whether it may be written through; it does not know where its memory ends.

Registers methods in the table of members. See also `tensor_memory` (the tensor that a pointer comes from).
"""

from __future__ import annotations

from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import BOOL, INT, DType, SIMDType
from ...ir.program import PointerType, Value
from ..conversion import coerce, zero_of
from ..evaluator import Point
from ..runtime_checks import guard_alignment
from ..target_refusals import refuse_host
from ..values.describe import describe
from ..widening import widen
from .scalars import check_width
from .spans import Span, load_span, offsets_of, store_span
from .table import member, method

MOST_ALIGNED = 4096  # bytes


@dataclass(frozen=True)
class AccessKeywords:
    """The keywords of a load or a store, as values."""

    width: int
    mask: Value | None
    other: Value
    step: Value | None
    align: int | None


def is_pointer(value: object) -> bool:
    return isinstance(value, Value) and isinstance(value.type, PointerType)


def access(
    call: Point, dtype: DType, width: int, mask: Any, other: Any, stride: object, align: object
) -> AccessKeywords:
    """Checks the keywords of a load or a store of `width` elements."""
    type = SIMDType(dtype, width)
    given = None
    if mask is not None:
        wanted = SIMDType(DType.bool, width)
        given = coerce(call.argument("mask"), mask, wanted, f"the mask of {type} is {wanted}")
    if other is not None and mask is None:
        raise call.error("EK0208", "other= is the value of elements that mask= leaves out; there is no mask=", "other")
    if other is None:
        other = zero_of(dtype)
    filler = coerce(call.argument("other"), other, type, f"other= is {type}, as what is loaded")
    step = None
    if not (type_is_int(stride) and stride == 1):
        step = coerce(call.argument("stride"), stride, INT, "stride= is an Int")
    return AccessKeywords(width, given, filler, step, alignment(call, dtype, align, step))


def type_is_int(value: object) -> bool:
    return type(value) is int


def alignment(call: Point, dtype: DType, align: object, step: Value | None) -> int | None:
    """The promise that an address is a multiple of so many bytes."""
    if align is None:
        return None
    least = max(1, dtype.bits // 8)
    if type(align) is not int or align < least or align & (align - 1) or align > MOST_ALIGNED:
        known = f"a power of two of bytes from {least} to {MOST_ALIGNED}, known at compile time"
        raise call.error("EK0208", f"align= is {known}, not {describe(align)}", "align")
    if step is not None:
        raise call.error("EK0208", "align= speaks of neighbours, and stride= of none", "align")
    return align


def integer_offset(call: Point, value: Any, argument: str = "offset") -> Value:
    """An offset in elements."""
    known = isinstance(value, Value) and isinstance(value.type, SIMDType) and value.weak is None
    if known and value.type.is_scalar and value.dtype.is_integral() and value.type != INT:
        return widen(call, value, INT.dtype)
    node = call.nodes.get(argument, call.node)
    return coerce(call.on(node), value, INT, "an offset is an Int")


def index_vector(call: Point, indices: object, argument: str = "indices") -> Value:
    """The offsets of a gather or a scatter."""
    if not isinstance(indices, Value) or not isinstance(indices.type, SIMDType) or not indices.dtype.is_integral():
        text = f"a gather takes a vector of integers, not {describe(indices)}"
        raise call.error("EK0204", text, argument)
    return offsets_of(call.builder, indices)


def writable(call: Point, pointer: Value) -> None:
    """Refuses a store through the pointer of an input."""
    assert isinstance(pointer.type, PointerType)
    if pointer.type.access == "read-only":
        raise call.error(
            "EK0211",
            "this pointer belongs to an input and cannot be stored through",
            "target",
            hint="declare the tensor as OutputTensor, or as MutableInputTensor to change it in place",
        )


def owner_of(call: Point) -> s.SyntaxNode | None:
    """Where the memory of a store stands: `p` of `p[0] = x` and `p.store(x)`, the first argument of an atomic."""
    target = call.nodes.get("target")
    if target is None and isinstance(call.node, s.Call) and isinstance(call.node.function, s.Attribute):
        return call.node.function.value
    return target


def stored_value(call: Point, dtype: DType, value: object) -> Value:
    """A value for elements of `dtype`: of that dtype, or a number that adopts it."""
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and value.weak is None and value.dtype is dtype:
        return value
    return coerce(call.argument("value"), value, SIMDType(dtype), f"this memory holds {dtype}", owner_of(call))


def hint_of(call: Point, locality: object, write: object) -> dict[str, Any]:
    """The attributes of a prefetch."""
    if type(locality) is not int or not 0 <= locality <= 3:
        text = f"locality= is 0 (used once) to 3 (used often), known at compile time, not {describe(locality)}"
        raise call.error("EK0208", text, "locality")
    if write is not True and write is not False:
        raise call.error("EK0208", f"write= is True or False, not {describe(write)}", "write")
    return {"locality": locality, "write": write}


@member(PointerType, "dtype")
def pointer_dtype(here: Point, owner: Value) -> DType:
    return owner.dtype


@method(PointerType, "bitcast")
def pointer_bitcast(call: Point, owner: Value, dtype: object) -> Value:
    """The same address, of elements of another dtype."""
    assert isinstance(owner.type, PointerType)
    to = dtype.dtype if isinstance(dtype, SIMDType) and dtype.is_scalar else dtype
    if not isinstance(to, DType) or to.is_packed() or to is DType.bool or owner.dtype.is_packed():
        wanted = "a dtype whose elements are whole bytes, and not bool"
        raise call.error("EK0208", f"bitcast of a pointer takes {wanted}, not {describe(dtype)}", "dtype")
    access = owner.type.access or "read-write"
    return call.builder.one("pointer_cast", [owner], PointerType(to, owner.type.space, access))


@method(PointerType, "load")
def pointer_load(
    call: Point,
    owner: Value,
    offset: Any = 0,
    width: Any = 1,
    stride: Any = 1,
    mask: Any = None,
    other: Any = None,
    align: Any = None,
) -> Value:
    refuse_host(call, owner)
    check_width(call, width, "width")
    how = access(call, owner.dtype, width, mask, other, stride, align)
    span = Span(owner, integer_offset(call, offset), how.step)
    guard_alignment(call, span.pointer, span.offset, how.align, how.mask)
    return load_span(call.builder, span, width, how.mask, how.other, how.align)


@method(PointerType, "store")
def pointer_store(
    call: Point,
    owner: Value,
    value: object,
    offset: object = 0,
    stride: object = 1,
    mask: object = None,
    align: object = None,
) -> None:
    writable(call, owner)
    refuse_host(call, owner)
    stored = stored_value(call, owner.dtype, value)
    assert isinstance(stored.type, SIMDType)
    how = access(call, owner.dtype, stored.type.width, mask, None, stride, align)
    span = Span(owner, integer_offset(call, offset), how.step)
    guard_alignment(call, span.pointer, span.offset, how.align, how.mask)
    store_span(call.builder, span, stored, how.mask, how.align)


def read_element(call: Point, pointer: Value, index: object) -> Value:
    """`p[i]`."""
    refuse_host(call, pointer)
    at = integer_offset(call, index, "index")
    return call.builder.one("load", [pointer, at], SIMDType(pointer.dtype))


def write_element(call: Point, pointer: Value, index: object, value: object) -> None:
    """`p[i] = x`."""
    writable(call, pointer)
    refuse_host(call, pointer)
    at = integer_offset(call, index, "index")
    call.builder.add("store", [stored_value(call, pointer.dtype, value), pointer, at])


@method(PointerType, "gather")
def pointer_gather(call: Point, owner: Value, indices: object, mask: object = None, other: object = None) -> Value:
    refuse_host(call, owner)
    return gather(call, owner, indices, mask, other)


def gather(call: Point, pointer: Value, indices: object, mask: object, other: object) -> Value:
    """The elements at some offsets; where the mask says no, the lane of `other`."""
    offsets = index_vector(call, indices)
    assert isinstance(offsets.type, SIMDType)
    width = offsets.type.width
    how = access(call, pointer.dtype, width, True if mask is None and width > 1 else mask, other, 1, None)
    if width == 1:
        span = Span(pointer, integer_offset(call, offsets))
        return load_span(call.builder, span, 1, how.mask, how.other, None)
    return call.builder.one("gather", [pointer, offsets, how.mask, how.other], SIMDType(pointer.dtype, width))  # type: ignore[list-item]


@method(PointerType, "scatter")
def pointer_scatter(call: Point, owner: Value, value: object, indices: object, mask: object = None) -> None:
    writable(call, owner)
    refuse_host(call, owner)
    scatter(call, owner, value, indices, mask)


def scatter(call: Point, pointer: Value, value: object, indices: object, mask: object) -> None:
    """Stores lanes at some offsets, lane 0 first: of two at one offset the later one stays."""
    offsets = index_vector(call, indices)
    assert isinstance(offsets.type, SIMDType)
    width = offsets.type.width
    type = SIMDType(pointer.dtype, width)
    what = f"{width} elements of this memory are {type}"
    stored = coerce(call.argument("value"), value, type, what, owner_of(call))
    how = access(call, pointer.dtype, width, True if mask is None and width > 1 else mask, None, 1, None)
    if width == 1:
        store_span(call.builder, Span(pointer, integer_offset(call, offsets)), stored, how.mask, None)
        return
    assert how.mask is not None
    call.builder.add("scatter", [stored, pointer, offsets, how.mask])


@method(PointerType, "prefetch")
def pointer_prefetch(
    call: Point, owner: Value, offset: object = 0, locality: object = 3, write: object = False
) -> None:
    refuse_host(call, owner)
    call.builder.add("prefetch", [owner, integer_offset(call, offset)], **hint_of(call, locality, write))


@method(PointerType, "is_aligned")
def pointer_is_aligned(call: Point, owner: Value, bytes: object) -> Value:
    """Whether the address is a multiple of so many bytes."""
    refuse_host(call, owner)
    return call.builder.one("aligned", [owner], BOOL, align=power_of_two(call, bytes))


def power_of_two(call: Point, bytes: object) -> int:
    """The number of bytes that an address may be a multiple of."""
    if type(bytes) is not int or bytes < 1 or bytes & (bytes - 1) or bytes > MOST_ALIGNED:
        known = f"a power of two of bytes up to {MOST_ALIGNED}, known at compile time"
        raise call.error("EK0208", f"is_aligned takes {known}, not {describe(bytes)}", "bytes")
    return bytes
