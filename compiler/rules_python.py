"""What Python's own functions mean in kernels: `len`, `print`, `int`, `float`, `bool`, `tuple`.

Input: bound arguments. Output: values, or an operation that prints. Non-goals: loops (see `rules`).
"""

from __future__ import annotations

from typing import Any

from ..dsl.types import BOOL, INT, SIMDType
from .attributes import cast
from .coerce import DEFAULTS, MAX_ITEMS, apply_row, coerce, weak_kind
from .expressions import truth
from .infer import Call, rule
from .operations import ROWS
from .program import Value
from .statements import report
from .tensors import Tensor
from .values import (
    Index,
    LoopRange,
    StubRef,
    TargetValue,
    Unrolled,
    describe,
    is_comptime_number,
)


@rule("len")
def len_rule(call: Call, x: Any) -> Any:
    if isinstance(x, Index):
        return len(x.dims)
    if isinstance(x, tuple | str):
        return len(x)
    if isinstance(x, Unrolled):
        return len(x.values)
    if isinstance(x, Tensor) and x.rank:
        return x.dims[0] if x.fixed[0] is None else x.fixed[0]
    raise call.error("EK0207", f"{describe(x)} has no length", "x")


@rule("print")
def print_rule(call: Call, values: Any, sep: Any = " ", end: Any = "\n") -> None:
    inferer = call.inferer
    if inferer.target.is_gpu:
        raise call.error(
            "EK0611",
            f"print is not available on {inferer.target.name} yet",
            hint="guard it by `if ctx.target.is_cpu:`, or run the op on the CPU",
        )
    for name, text in (("sep", sep), ("end", end)):
        if not isinstance(text, str):
            raise call.error("EK0208", f"{name}= takes a string, not {describe(text)}", name)
    parts: list[tuple[Any, str]] = []
    for number, value in enumerate(values):
        if number:
            parts.append((sep, ""))
        parts.append((value, ""))
    parts.append((end, ""))
    report(inferer, "print", [], parts, call.node, call.frame)


@rule("breakpoint")
def breakpoint_rule(call: Call) -> None:
    call.builder.add("breakpoint", [])


@rule("int")
def int_rule(call: Call, x: Any) -> Any:
    return _number(call, x, int, INT)


@rule("float")
def float_rule(call: Call, x: Any) -> Any:
    return _number(call, x, float, DEFAULTS["float"])


def _number(call: Call, x: Any, python: Any, type: SIMDType) -> Any:
    if isinstance(x, Value):
        return x if x.weak == python.__name__ else cast(call, x, type)
    try:
        return python(x)
    except (TypeError, ValueError, OverflowError):
        what = repr(x) if isinstance(x, str) else describe(x)
        raise call.error("EK0206", f"{what} is no number", "x") from None


@rule("bool")
def bool_rule(call: Call, x: Any) -> Any:
    if not isinstance(x, Value):
        return truth(call.inferer, x, call.nodes.get("x", call.node), call.frame)
    if x.type == BOOL:
        return x
    zero = coerce(call.inferer, 0 if weak_kind(x) != "bool" else False, x.type, call.node, call.frame)  # type: ignore[arg-type]
    return apply_row(call.inferer, ROWS["ne"], [x, zero], call.node, call.frame)


@rule("compiled_for")
def compiled_for(call: Call) -> TargetValue:
    return TargetValue()


@rule("isinstance")
def isinstance_rule(call: Call, x: Any, kind: Any) -> bool:
    if not (isinstance(kind, StubRef) and kind.name == "tuple"):
        raise call.error("EK0208", f"isinstance asks whether a value is a tuple, not for {describe(kind)}", "kind")
    return isinstance(x, tuple | Index)


@rule("tuple")
def tuple_rule(call: Call, x: Any) -> Any:
    if isinstance(x, Index):
        return x.components(call.builder)
    if isinstance(x, LoopRange) and all(is_comptime_number(v) for v in (x.low, x.high, x.step)):
        if (x.high - x.low) // x.step > MAX_ITEMS:
            raise call.error("EK0206", "this compile-time value grows too large")
        return tuple(range(x.low, x.high, x.step))
    if isinstance(x, tuple):
        return x
    raise call.error("EK0207", f"{describe(x)} is no tuple", "x")
