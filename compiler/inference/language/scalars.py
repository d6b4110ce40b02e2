"""Evaluates names of the language that work on single values: `select`, `bitcast`, `map_parts`, `static_assert`."""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from .. import dispatch
from ..conditions import select, truth
from ..evaluator import Point, rule
from ..exact_terms import exact
from ..values.aggregates import PLAIN, is_static, parts_of, same_kind, with_parts
from ..values.describe import describe
from ..values.flow import ABSENT


@rule("static_assert")
def static_assert(call: Point, condition: object, message: object = "") -> None:
    value = truth(call.argument("condition"), condition)
    if isinstance(value, Value):
        text = "static_assert needs a condition known at compile time"
        raise call.error("EK0220", text, "condition", hint="use `assert`")
    if not isinstance(message, str):
        text = f"the message of static_assert is a string known at compile time, not {describe(message)}"
        raise call.error("EK0208", text, "message")
    if not value:
        raise call.error("EK0215", message or "static_assert failed")


@rule("select")
def select_rule(call: Point, condition: object, x: object, y: object) -> Any:
    if not isinstance(condition, Value):
        return x if truth(call, condition) else y
    if condition.dtype is not DType.bool:
        text = f"a condition has to be a Bool, not {describe(condition)}"
        raise call.error("EK0209", text, "condition", hint="compare it with a number, for instance `!= 0`")
    nodes = (call.nodes.get("x", call.node), call.nodes.get("y", call.node))
    return select(call, condition, x, y, nodes)


@rule("map_parts")
def map_parts(call: Point, f: object, value: Any, others: Any) -> Any:

    def mapped(values: tuple[object, ...]) -> Any:
        first, rows = values[0], [parts_of(each) for each in values]
        if isinstance(first, PLAIN):
            return first
        if not any(isinstance(parts, tuple) for parts in rows):
            result = dispatch.call(call, f, list(values), {})
            return None if result is ABSENT else result
        for other in values[1:]:
            if not same_kind(first, other):
                text = f"{describe(first)} and {describe(other)} do not have the same parts"
                raise call.error("EK0204", text, hint="map_parts takes values of one form: equal tuples or structs")
        columns = zip(*(parts or () for parts in rows), strict=True)
        return with_parts(first, tuple(c[0] if is_static(first, k) else mapped(c) for k, c in enumerate(columns)))

    return mapped((value, *others))


@rule("exact")
def exact_rule(call: Point, x: object) -> Any:
    return exact(call, x) if isinstance(x, Value) and isinstance(x.type, SIMDType) else x


@rule("bitcast")
def bitcast(call: Point, x: object, dtype: object) -> Value:
    to = dtype.dtype if isinstance(dtype, SIMDType) and dtype.is_scalar else dtype
    if not isinstance(x, Value) or not isinstance(x.type, SIMDType):
        raise call.error("EK0208", f"bitcast takes a run-time value, not {describe(x)}", "x")
    if not isinstance(to, DType):
        raise call.error("EK0208", f"bitcast takes a dtype, not {describe(to)}", "dtype")
    if to.memory_bits != x.dtype.memory_bits or DType.bool in (to, x.dtype):
        raise call.error("EK0208", f"{x.dtype} and {to} differ in width", "dtype")
    return call.builder.one("bitcast", [x], x.type.with_dtype(to))
