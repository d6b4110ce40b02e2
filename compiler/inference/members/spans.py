"""Reads and writes elements in memory: neighbours or not, some of them or all.

A `Span` says where elements lie: a pointer, an offset, and the step from one to the next. What is read or written there
is one operation where the target may have one: a load, a masked load, a gather.

See also `inference.members.pointers` and `tensor_memory` (what the author wrote).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import PointerType, Region, Value
from .vectors import from_lanes

INT32 = SIMDType(DType.int32)


@dataclass(frozen=True)
class Span:
    """Elements `pointer[offset + k * step]`; no step is a step of 1."""

    pointer: Value
    offset: Value
    step: Value | None = None

    @property
    def dtype(self) -> DType:
        return self.pointer.dtype


def load_span(builder: Builder, span: Span, width: int, mask: Value | None, other: Value, align: int | None) -> Value:
    """`width` elements; where the mask says no, the lane of `other`."""
    type = SIMDType(span.dtype, width)
    attrs = _attributes(align)

    def load() -> Value:
        return builder.one("load", [span.pointer, span.offset], type, **attrs)

    if width == 1:
        return load() if mask is None else guarded(builder, mask, load, other)
    if span.step is not None:
        mask = mask if mask is not None else always(builder, width)
        return builder.one("gather", [*_spread(builder, span, width), mask, other], type)
    if mask is None:
        return load()
    return builder.one("masked_load", [span.pointer, span.offset, mask, other], type, **attrs)


def _attributes(align: int | None) -> dict[str, Any]:
    return {} if align is None else {"align": align}


def store_span(builder: Builder, span: Span, value: Value, mask: Value | None, align: int | None) -> None:
    """Stores a value's lanes, those that the mask names."""
    assert isinstance(value.type, SIMDType)
    attrs = _attributes(align)

    def store() -> None:
        builder.add("store", [value, span.pointer, span.offset], **attrs)

    if value.type.is_scalar:
        if mask is None:
            store()
        else:
            when(builder, mask, store)
    elif span.step is not None:
        mask = mask if mask is not None else always(builder, value.type.width)
        builder.add("scatter", [value, *_spread(builder, span, value.type.width), mask])
    elif mask is None:
        store()
    else:
        builder.add("masked_store", [value, span.pointer, span.offset, mask], **attrs)


def _spread(builder: Builder, span: Span, width: int) -> list[Value]:
    """A pointer to the first element, and the offsets of all from there."""
    assert span.step is not None
    whole = SIMDType(DType.int64, width)
    count = from_lanes(builder, [builder.const(k, INT) for k in range(width)])
    steps = builder.row("mul", [builder.one("splat", [span.step], whole), count])
    type = span.pointer.type
    assert isinstance(type, PointerType)
    return [builder.advance(span.pointer, span.offset, type.access or "read-write"), steps]


def offsets_of(builder: Builder, indices: Value) -> Value:
    """A vector of integers as offsets: of 32 bits where these hold them, else of 64."""
    assert isinstance(indices.type, SIMDType)
    dtype = indices.dtype
    narrow = dtype.bits < 32 or dtype is DType.int32
    wanted = indices.type.with_dtype(DType.int32 if narrow else DType.int64)
    return indices if indices.type == wanted else builder.one("cast", [indices], wanted)


def always(builder: Builder, width: int) -> Value:
    return builder.const(True, SIMDType(DType.bool, width))


def guarded(builder: Builder, condition: Value, make: Callable[[], Value], other: Value) -> Value:
    """What `make` builds where the condition holds, else `other`."""
    regions = (Region(), Region())
    with builder.inside(regions[0]):
        value = make()
        builder.end([value])
    with builder.inside(regions[1]):
        builder.end([other])
    return builder.add("if", [condition], [value.type], regions)[0]


def when(builder: Builder, condition: Value, make: Callable[[], Any]) -> None:
    """What `make` builds where the condition holds."""
    regions = (Region(), Region())
    with builder.inside(regions[0]):
        make()
        builder.end()
    with builder.inside(regions[1]):
        builder.end()
    builder.add("if", [condition], regions=regions)


def chosen(builder: Builder, condition: Value | bool, make: Callable[[], Value], other: Callable[[], Value]) -> Value:
    """The Int that `make` builds where the condition holds, and `other` elsewhere."""
    if isinstance(condition, bool):
        return make() if condition else other()
    regions = (Region(), Region())
    for region, build in zip(regions, (make, other), strict=True):
        with builder.inside(region):
            builder.end([build()])
    return builder.add("if", [condition], [INT], regions)[0]


def one_by_one(
    builder: Builder, type: SIMDType, element: Callable[[Value], Value], mask: Value | None, other: Value
) -> Value:
    """A vector of elements that no single operation reads; `element` gets the number of a lane."""
    storage = builder.one("alloca", [], PointerType(type.dtype, "stack"), count=type.width, zeroed=False)
    named = None if mask is None else lanes_in_memory(builder, mask)
    others = None if mask is None else lanes_in_memory(builder, other)
    loop = builder.for_loop(builder.int_(0), builder.int_(type.width))
    with builder.inside(loop):
        count = loop.args[0]

        def read() -> Value:
            return element(count)

        value = read() if named is None or others is None else guarded(builder, named(count), read, others(count))
        builder.add("store", [value, storage, count])
        builder.end()
    return builder.one("load", [storage, builder.int_(0)], type)


def lanes_in_memory(builder: Builder, vector: Value) -> Callable[[Value], Value]:
    """The lanes of a vector by their numbers, for a loop over them: LLVM makes vectors of a loop that reads them from
    memory, but not of one that takes them out of a vector."""
    assert isinstance(vector.type, SIMDType)
    if vector.type.is_scalar:
        return lambda number: vector
    element = SIMDType(vector.dtype)
    lanes = builder.one("alloca", [], PointerType(vector.dtype, "stack"), count=vector.type.width, zeroed=False)
    builder.add("store", [vector, lanes, builder.int_(0)])
    return lambda number: builder.one("load", [lanes, number], element)


def lane_at(builder: Builder, vector: Value, number: Value) -> Value:
    """A lane by a number that is below the width; of a scalar, the scalar."""
    assert isinstance(vector.type, SIMDType)
    return vector if vector.type.is_scalar else builder.one("extract_at", [vector, number], SIMDType(vector.dtype))
