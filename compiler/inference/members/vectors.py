"""Answers methods of vectors: lanes are read, moved, joined and combined.

Lanes are moved by one operation, `shuffle`, whose lanes are known at compile time; only `take` chooses them at run
time. Lane 0 is the left one, the one that lies first in memory.

Registers methods in the table of members.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dsl.diagnostics.errors import plural
from ....dsl.types.dtype import INT, DType, SIMDType
from ...ir.builder import Builder
from ...ir.operations import ROWS
from ...ir.program import Value
from .. import dispatch
from ..accumulators import GROWING, type_of_sum
from ..conversion import coerce, zero_of
from ..evaluator import Point
from ..exact_terms import widen
from ..values.describe import describe
from .scalars import MAX_LANES, check_width, lane
from .table import method


def vector(call: Point, value: object, what: str) -> SIMDType:
    """The type of a value that has lanes; refuses anything else."""
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and value.weak is None:
        return value.type
    raise call.error("EK0204", f"'{what}' works on vectors, not on {describe(value)}")


def is_vector(value: Value) -> bool:
    """Whether a value has several lanes."""
    return isinstance(value.type, SIMDType) and value.type.width > 1


def number(call: Point, value: object, low: int, high: int, argument: str, what: str) -> int:
    """A whole number in [low, high] that is known at compile time."""
    if type(value) is not int or not low <= value <= high:
        text = f"{what} is a compile-time number from {low} to {high}, not {describe(value)}"
        raise call.error("EK0218", text, argument)
    return value


# *** moving lanes ***


def shuffle(call: Point, a: Value, b: Value, lanes: Sequence[int], argument: str = "") -> Value:
    """The lanes of `a` followed by those of `b`, chosen by number."""
    builder = call.builder
    assert isinstance(a.type, SIMDType)
    count, width = len(lanes), a.type.width
    if count < 1 or count & (count - 1) or count > MAX_LANES:
        text = f"a vector has a power of two of lanes, up to {MAX_LANES}, not {count}"
        raise call.error("EK0222", text, argument or None)
    if list(lanes) == list(range(width)):
        return a
    if count == 1 or width == 1:
        return from_lanes(builder, [_lane_of(builder, a, b, k) for k in lanes])
    return builder.one("shuffle", [a, b], SIMDType(a.dtype, count), mask=tuple(lanes))


def _lane_of(builder: Builder, a: Value, b: Value, k: int) -> Value:
    assert isinstance(a.type, SIMDType)
    source, k = (a, k) if k < a.type.width else (b, k - a.type.width)
    return source if a.type.width == 1 else lane(builder, source, k)


def from_lanes(builder: Builder, lanes: Sequence[Value]) -> Value:
    """A vector of scalars of one type, lane 0 first."""
    if len(lanes) == 1:
        return lanes[0]
    return builder.one("lanes", lanes, SIMDType(lanes[0].dtype, len(lanes)))


def slice_lanes(call: Point, value: Value, part: slice) -> Value:
    """`v[2:6]`, `v[::2]`, `v[::-1]`: Python's meaning, with a power of two of lanes."""
    width = vector(call, value, "[:]").width
    if any(bound is not None and type(bound) is not int for bound in (part.start, part.stop, part.step)):
        hint = "v.take(indices) chooses lanes at run time"
        raise call.error("EK0218", "the slice of a vector is known at compile time", "index", hint=hint)
    if part.step == 0:
        raise call.error("EK0218", "the step of a slice is not 0", "index")
    return shuffle(call, value, value, range(width)[part], "index")


def read_lane(call: Point, owner: Value, index: object) -> Value:
    """`v[2]`, `v[-1]`; a run-time index counts modulo the width."""
    width = vector(call, owner, "[]").width
    if isinstance(index, slice):
        return slice_lanes(call, owner, index)
    position = _position(call, index, width)
    if isinstance(position, int):
        return lane(call.builder, owner, position)
    return call.builder.one("extract_at", [owner, position], SIMDType(owner.dtype))


def with_lane(call: Point, owner: Value, index: object, x: object) -> Value:
    """The vector with another number in one lane."""
    type = vector(call, owner, "with_lane")
    position = _position(call, index, type.width)
    node = call.nodes.get("x", call.nodes.get("value", call.node))
    scalar = coerce(call.on(node), x, SIMDType(type.dtype), f"a lane of {type} is {type.dtype}")
    if type.width == 1:
        return scalar
    if isinstance(position, int):
        return call.builder.one("insert", [owner, scalar], type, lane=position)
    return call.builder.one("insert_at", [owner, scalar, position], type)


def _position(call: Point, index: object, width: int) -> int | Value:
    """The number of a lane: known and checked, or an Int that is held below the width."""
    argument = "index" if "index" in call.nodes else "lane"
    if not isinstance(index, Value) or not index.dtype.is_integral() or not isinstance(index.type, SIMDType):
        return number(call, index, -width, width - 1, argument, "a lane") % width
    if not index.type.is_scalar:
        hint = "v.take(indices) chooses several"
        raise call.error("EK0218", f"a lane is one Int, not {describe(index)}", argument, hint=hint)
    builder = call.builder
    position = index if index.type == INT and index.weak is None else builder.one("cast", [index], INT)
    return builder.row("and_", [position, builder.int_(width - 1)])


@method(Value, "with_lane")
def value_with_lane(call: Point, owner: Value, lane: object, x: object) -> Value:
    return with_lane(call, owner, lane, x)


@method(Value, "slice")
def value_slice(call: Point, owner: Value, offset: Any, width: Any) -> Value:
    whole = vector(call, owner, "slice").width
    check_width(call, width, "width")
    first = number(call, offset, 0, whole - min(width, whole), "offset", "the offset of this slice")
    if width > whole:
        raise call.error("EK0222", f"{describe(owner)} has no {width} lanes", "width")
    return shuffle(call, owner, owner, range(first, first + width))


@method(Value, "shuffle")
def value_shuffle(call: Point, owner: Value, *lanes: object, other: object = None) -> Value:
    type = vector(call, owner, "shuffle")
    second, most = owner, type.width
    if other is not None:
        second = coerce(call.argument("other"), other, type, f"the other vector is {type}, too")
        most = 2 * type.width
    chosen = lanes[0] if len(lanes) == 1 and isinstance(lanes[0], tuple) else lanes
    if any(isinstance(k, Value) for k in chosen):
        text = "the lanes of shuffle are known at compile time"
        raise call.error("EK0218", text, hint="v.take(indices) chooses lanes at run time")
    what = "a lane of two vectors" if other is not None else "a lane"
    return shuffle(call, owner, second, [number(call, k, 0, most - 1, "", what) for k in chosen])


@method(Value, "take")
def value_take(call: Point, owner: Value, indices: object) -> Value:
    """`owner[indices]`, lane by lane; indices count modulo the width."""
    type = vector(call, owner, "take")
    if not isinstance(indices, Value) or not isinstance(indices.type, SIMDType) or not indices.dtype.is_integral():
        raise call.error("EK0204", f"'take' wants a vector of integers, not {describe(indices)}", "indices")
    builder, width = call.builder, indices.type.width
    if type.width == 1 or width == 1:
        lanes = [lane(builder, indices, k) for k in range(width)] if width > 1 else [indices]
        return from_lanes(builder, [read_lane(call, owner, k) if type.width > 1 else owner for k in lanes])
    # As wide as the elements, or as wide as the number of a lane has to be: hardware takes them so.
    bits = max(type.dtype.part.bits, 8 if type.width <= 256 else 16)
    unsigned = indices.type.with_dtype(DType[f"uint{bits}"])
    position = indices if indices.type == unsigned else builder.one("cast", [indices], unsigned)
    position = builder.row("and_", [position, builder.const(type.width - 1, unsigned)])
    return builder.one("take", [owner, position], SIMDType(type.dtype, width))


@method(Value, "join")
def value_join(call: Point, owner: Value, *others: Any) -> Value:
    type = vector(call, owner, "join")
    for value in others:
        if not isinstance(value, Value) or value.type != type:
            raise call.error("EK0202", f"'join' takes vectors of one type, {type} here, not {describe(value)}")
    parts: list[Value] = [owner, *others]
    if len(parts) & (len(parts) - 1) or len(parts) * type.width > MAX_LANES:
        text = f"a vector has a power of two of lanes, up to {MAX_LANES}, not {len(parts) * type.width}"
        raise call.error("EK0222", text)
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [shuffle(call, a, b, range(2 * _width(a))) for a, b in pairs]
    return parts[0]


def _width(value: Value) -> int:
    assert isinstance(value.type, SIMDType)
    return value.type.width


@method(Value, "split")
def value_split(call: Point, owner: Value, parts: object = 2) -> tuple[Value, ...]:
    width = vector(call, owner, "split").width
    count = number(call, parts, 1, width, "parts", "the number of parts")
    if width % count:
        raise call.error("EK0222", f"{plural(width, 'lane')} cannot be split into {count} parts", "parts")
    size = width // count
    return tuple(shuffle(call, owner, owner, range(k, k + size)) for k in range(0, width, size))


@method(Value, "interleave")
def value_interleave(call: Point, owner: Value, other: object) -> Value:
    type = vector(call, owner, "interleave")
    second = coerce(call.argument("other"), other, type)
    return shuffle(call, owner, second, [k + n * type.width for k in range(type.width) for n in (0, 1)])


@method(Value, "deinterleave")
def value_deinterleave(call: Point, owner: Value) -> tuple[Value, Value]:
    width = vector(call, owner, "deinterleave").width
    if width == 1:
        raise call.error("EK0222", "one lane cannot be taken apart")
    even, odd = (shuffle(call, owner, owner, range(start, width, 2)) for start in (0, 1))
    return even, odd


@method(Value, "reverse")
def value_reverse(call: Point, owner: Value) -> Value:
    width = vector(call, owner, "reverse").width
    return shuffle(call, owner, owner, range(width - 1, -1, -1)) if width > 1 else owner


def _rotated(call: Point, owner: Value, count: object, name: str, towards: int) -> Value:
    width = vector(call, owner, name).width
    by = towards * number(call, count, 0, width, "count", "the count of lanes")
    return shuffle(call, owner, owner, [(k + by) % width for k in range(width)])


@method(Value, "rotate_left")
def value_rotate_left(call: Point, owner: Value, count: object) -> Value:
    return _rotated(call, owner, count, "rotate_left", 1)


@method(Value, "rotate_right")
def value_rotate_right(call: Point, owner: Value, count: object) -> Value:
    return _rotated(call, owner, count, "rotate_right", -1)


def _shifted(call: Point, owner: Value, count: object, fill: object, name: str, towards: int) -> Value:
    type = vector(call, owner, name)
    width = type.width
    by = towards * number(call, count, 0, width, "count", "the count of lanes")
    if fill is None:
        fill = zero_of(type.dtype)
    filler = coerce(call.argument("fill"), fill, type)
    return shuffle(call, owner, filler, [k + by if 0 <= k + by < width else width + k for k in range(width)])


@method(Value, "shift_left")
def value_shift_left(call: Point, owner: Value, count: object, fill: object = None) -> Value:
    return _shifted(call, owner, count, fill, "shift_left", 1)


@method(Value, "shift_right")
def value_shift_right(call: Point, owner: Value, count: object, fill: object = None) -> Value:
    return _shifted(call, owner, count, fill, "shift_right", -1)


@method(Value, "broadcast")
def value_broadcast(call: Point, owner: Value, width: Any) -> Value:
    type = vector(call, owner, "broadcast")
    check_width(call, width, "width")
    if not type.is_scalar:
        raise call.error("EK0204", f"'broadcast' works on scalars, not on {describe(owner)}")
    return coerce(call, owner, SIMDType(type.dtype, width))


# *** combining lanes ***


def reduce(call: Point, value: Value, row: str, kinds: str, name: str) -> Value:
    """The lanes combined by a row: halves with halves, a fixed order on every target."""
    type = vector(call, value, name)
    if type.dtype.kind not in kinds.split() or not ROWS[row].takes(type.dtype):
        raise call.error("EK0204", f"'{name}' does not work on {type}", got=str(type))
    if type.is_scalar:
        return value
    return call.builder.one("reduce", [value], SIMDType(type.dtype), row=row)


REDUCTIONS = {
    "reduce_add": ("add", "int uint float complex"),
    "reduce_mul": ("mul", "int uint float"),
    "reduce_min": ("min", "bool int uint float"),
    "reduce_max": ("max", "bool int uint float"),
    "reduce_and": ("and_", "bool int uint"),
    "reduce_or": ("or_", "bool int uint"),
    "reduce_xor": ("xor", "bool int uint"),
    "any": ("or_", "bool"),
    "all": ("and_", "bool"),
}


def _reduction(name: str) -> None:
    row, kinds = REDUCTIONS[name]

    def apply(call: Point, owner: Value) -> Value:
        return reduce(call, owner, row, kinds, name)

    def add_up(call: Point, owner: Value) -> Value:
        """As wide as an accumulator; one of half floats is rounded once."""
        type = vector(call, owner, name)
        wide = type_of_sum(call, owner)
        if wide is None:
            return apply(call, owner)
        total = reduce(call, widen(call, owner, wide.dtype), row, kinds, name)
        if type.dtype.is_half():
            return call.builder.one("cast", [total], SIMDType(type.dtype))
        total.sums = type.dtype
        return total

    method(Value, name)(add_up if row in GROWING else apply)


for _name in REDUCTIONS:
    _reduction(_name)


@method(Value, "none")
def value_none(call: Point, owner: Value) -> Value:
    return call.builder.row("invert", [reduce(call, owner, "or_", "bool", "none")])


@method(Value, "count")
def value_count(call: Point, owner: Value) -> Value:
    """How many lanes of a mask are true."""
    type = vector(call, owner, "count")
    if type.dtype is not DType.bool:
        raise call.error("EK0204", f"'count' works on masks, not on {type}", hint="compare first: `(v > 0).count()`")
    ones = call.builder.one("cast", [owner], type.with_dtype(DType.int64))
    return reduce(call, ones, "add", "int", "count")


def _extreme_lane(call: Point, owner: Value, row: str, name: str) -> Value:
    """The number of the first lane that holds the extreme; a NaN is one."""
    builder, type = call.builder, vector(call, owner, name)
    best = reduce(call, owner, row, "bool int uint float", name)
    if type.is_scalar:
        return builder.int_(0)
    result = builder.row("eq", [owner, builder.one("splat", [best], type)])
    if type.dtype.is_float():
        result = builder.row("or_", [result, builder.row("isnan", [owner])])
    bits = max(type.dtype.bits, 8 if type.width < 128 else 16)
    numbers = type.with_dtype(DType[f"int{bits}"])
    count = from_lanes(builder, [builder.const(k, SIMDType(numbers.dtype)) for k in range(type.width)])
    chosen = builder.one("select", [result, count, builder.const(type.width - 1, numbers)], numbers)
    return builder.one("cast", [reduce(call, chosen, "min", "int", name)], INT)


@method(Value, "argmax")
def value_argmax(call: Point, owner: Value) -> Value:
    return _extreme_lane(call, owner, "max", "argmax")


@method(Value, "argmin")
def value_argmin(call: Point, owner: Value) -> Value:
    return _extreme_lane(call, owner, "min", "argmin")


@method(Value, "reduce")
def value_reduce(call: Point, owner: Value, function: object) -> Value:
    """The lanes combined by a function of the author's, halves with halves."""
    vector(call, owner, "reduce")
    value = owner
    while _width(value) > 1:
        half = SIMDType(owner.dtype, _width(value) // 2)
        parts = [shuffle(call, value, value, range(k, k + half.width)) for k in (0, half.width)]
        got = dispatch.call(call, function, parts, {})
        value = coerce(call.argument("function"), got, half, f"the function gives {half} of two of them")
    return value


assert all(row in ROWS for row, _ in REDUCTIONS.values())
