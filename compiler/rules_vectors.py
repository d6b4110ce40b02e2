"""What the names of the language for vectors do that are no row: widening products.

Input: bound arguments of a call. Output: values. Non-goals: methods of vectors (see `vector_members`).
"""

from __future__ import annotations

from typing import Any

from ..dsl.types import DType, SIMDType
from .coerce import call_numbers
from .infer import Call, rule
from .program import Value
from .values import describe

WIDER = {
    DType.int8: DType.int16,
    DType.int16: DType.int32,
    DType.int32: DType.int64,
    DType.uint8: DType.uint16,
    DType.uint16: DType.uint32,
    DType.uint32: DType.uint64,
}


@rule("mul_wide")
def mul_wide(call: Call, x: Any, y: Any) -> Any:
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
