"""Evaluates the names of the language for vectors that are not rows: widening products, counting vectors.

See also `inference.members.vectors` (methods of vectors).
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from ..arithmetic import call_numbers
from ..conversion import adopt, coerce, misfit
from ..evaluator import Point, rule
from ..members.scalars import check_width
from ..members.vectors import from_lanes
from ..values.compile_time import is_comptime_number
from ..values.describe import describe, literal_text

WIDER = {
    DType.int8: DType.int16,
    DType.int16: DType.int32,
    DType.int32: DType.int64,
    DType.uint8: DType.uint16,
    DType.uint16: DType.uint32,
    DType.uint32: DType.uint64,
}

_BYTES = (DType.int8, DType.uint8)
_HALVES = (DType.bfloat16,)


@rule("mul_wide")
def mul_wide(call: Point, x: object, y: object) -> Value:
    if not isinstance(x, Value) and not isinstance(y, Value):
        text = f"'mul_wide' needs a run-time integer, not {describe(x)} and {describe(y)}"
        raise call.error("EK0204", text, hint="a compile-time product is `x * y`, and never wraps")
    a, b = call_numbers(call, "mul_wide", [x, y])
    assert isinstance(a.type, SIMDType)
    wide = WIDER.get(a.dtype)
    if wide is None or a.weak is not None:
        text = f"'mul_wide' works on integers of 8, 16 or 32 bits, not on {describe(a)}"
        hint = "of 64 bits, `mul_high(x, y)` and `x * y` are the two halves" if a.dtype.is_integral() else None
        raise call.error("EK0204", text, hint=hint)
    builder = call.builder
    return builder.row("mul", [builder.one("cast", [v], a.type.with_dtype(wide)) for v in (a, b)])


@rule("dot2")
def dot2(call: Point, acc: object, a: object, b: object) -> Value:
    return _dot(call, "dot2", (acc, a, b), DType.float32, _HALVES)


@rule("dot4")
def dot4(call: Point, acc: object, a: object, b: object) -> Value:
    return _dot(call, "dot4", (acc, a, b), DType.int32, _BYTES)


def _dot(call: Point, name: str, operands: tuple[Any, Any, Any], to: DType, dtypes: tuple[DType, ...]) -> Value:
    """Sums of as many neighbouring products as a number of dtype `to` has room for."""
    acc, a, b = operands
    count = to.bits // dtypes[0].bits
    for argument, factor in (("a", a), ("b", b)):
        is_vector = isinstance(factor, Value) and isinstance(factor.type, SIMDType)
        if not is_vector or factor.dtype not in dtypes or factor.weak is not None or factor.type.width % count:
            kinds = " or ".join(str(SIMDType(dtype)) for dtype in dtypes)
            text = f"{name} multiplies vectors of {kinds}, {count} lanes for each sum, not {describe(factor)}"
            read = f"read {count} neighbours at once, as in `{argument}.load(i, width={count})`"
            raise call.error("EK0204", text, argument, hint=f"{read}; `.cast({dtypes[0]})` converts others")
    if a.type.width != b.type.width:
        raise call.error("EK0204", f"{name} takes factors of one width, not {describe(a)} and {describe(b)}", "b")
    sums = SIMDType(to, a.type.width // count)
    what = f"{name} adds {a.type.width} products to {sums}"
    return call.builder.one(name, [coerce(call.argument("acc"), acc, sums, what), a, b], sums)


@rule("iota")
def iota(call: Point, dtype: Any, width: Any, start: Any = 0, step: Any = 1) -> Value:
    kind = dtype.dtype if isinstance(dtype, SIMDType) and dtype.is_scalar else dtype
    if not isinstance(kind, DType) or not (kind.is_integral() or kind.is_float()):
        raise call.error("EK0208", f"iota counts in the dtype of a number, not in {describe(dtype)}", "dtype")
    check_width(call, width, "width")
    if not is_comptime_number(step):
        raise call.error("EK0208", f"the step of iota is known at compile time, not {describe(step)}", "step")
    builder, scalar = call.builder, SIMDType(kind)
    known = start if is_comptime_number(start) else 0
    numbers = [known + k * step for k in range(width)]
    for value in numbers:
        problem = misfit(value, kind)
        if problem:
            raise call.error("EK0205", problem, "start", expected=str(kind), got=literal_text(value))
    vector = from_lanes(builder, [builder.const(adopt(value, kind), scalar) for value in numbers])
    if is_comptime_number(start):
        return vector
    first = coerce(call.argument("start"), start, scalar, f"the start of iota is {scalar}")
    whole = SIMDType(kind, width)
    return builder.row("add", [coerce(call.argument("start"), first, whole), vector])
