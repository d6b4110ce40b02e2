"""Gives Python's own functions their meaning in kernels: `len`, `print`, `int`, `bool`, `isinstance`, …

See also `inference.language.elements` (loops), `inference.language.sequences` (sequences).
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import BOOL, INT, DType, SIMDType
from ...ir.operations import ROWS
from ...ir.program import Value
from ..arithmetic import apply_row
from ..calls.arguments import check_number
from ..conditions import truth
from ..conversion import DEFAULTS, coerce, weak_kind
from ..evaluator import Point, rule
from ..members.scalars import cast, complex_of
from ..syntax.statements import report
from ..values.compile_time import PYTHON_TYPES, StructType, StructValue, StubRef, TargetValue, Unrolled
from ..values.describe import describe
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor


@rule("len")
def len_rule(call: Point, x: object) -> int | Value:
    if isinstance(x, BodyIndex):
        return len(x.dims)
    if isinstance(x, tuple | str):
        return len(x)
    if isinstance(x, Unrolled):
        return len(x.values)
    if isinstance(x, KernelTensor) and x.rank:
        return x.dims[0] if x.fixed[0] is None else x.fixed[0]
    raise call.error("EK0207", f"{describe(x)} has no length", "x")


@rule("print")
def print_rule(call: Point, values: Any, sep: object = " ", end: Any = "\n") -> None:
    for name, text in (("sep", sep), ("end", end)):
        if not isinstance(text, str):
            raise call.error("EK0208", f"{name}= takes a string, not {describe(text)}", name)
    parts: list[tuple[Any, str]] = []
    for number, value in enumerate(values):
        if number:
            parts.append((sep, ""))
        parts.append((value, ""))
    parts.append((end, ""))
    report(call, "print", [], parts)


@rule("breakpoint")
def breakpoint_rule(call: Point) -> None:
    call.builder.add("breakpoint", [])


@rule("int")
def int_rule(call: Point, x: object) -> Any:
    return _number(call, x, int, INT)


@rule("float")
def float_rule(call: Point, x: object) -> Any:
    return _number(call, x, float, DEFAULTS["float"])


@rule("complex")
def complex_rule(call: Point, real: Any, imag: Any) -> Any:
    """Parts that are compile-time numbers make such a number; else the parts' type says which."""
    parts = (real, imag)
    for part, key in zip(parts, ("real", "imag"), strict=True):
        check_number(call, "complex", part, key)
    values = [part for part in parts if isinstance(part, Value)]
    if not values:
        return complex(*parts)
    typed = [value for value in values if value.weak is None]
    if real in typed and imag == 0 and real.dtype.is_complex():
        return real
    dtype = max((value.dtype.complex_dtype for value in typed), key=lambda d: d.bits, default=DType.complex128)
    width = max(value.simd.width for value in values)
    return complex_of(call, SIMDType(dtype, width), list(parts))


def _number(call: Point, x: Any, python: Any, type: SIMDType) -> Any:
    if isinstance(x, Value):
        return x if x.weak == python.__name__ else cast(call, x, type)
    try:
        return python(x)
    except (TypeError, ValueError, OverflowError):
        what = repr(x) if isinstance(x, str) else describe(x)
        raise call.error("EK0206", f"{what} is not a number", "x") from None


@rule("bool")
def bool_rule(call: Point, x: object) -> Any:
    if not isinstance(x, Value):
        return truth(call.argument("x"), x)
    if x.type == BOOL:
        return x
    zero = coerce(call, 0 if weak_kind(x) != "bool" else False, x.type)
    return apply_row(call, ROWS["ne"], [x, zero])


@rule("compiled_for")
def compiled_for(call: Point) -> TargetValue:
    return TargetValue()


@rule("within_parallel")
def within_parallel(call: Point) -> bool:
    return call.evaluator.level != "host"


@rule("isinstance")
def isinstance_rule(call: Point, x: object, kind: object) -> bool:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    return any(_is_one(call, x, each) for each in kinds)


def _is_one(call: Point, x: object, kind: object) -> bool:
    match kind:
        case StructType():
            return isinstance(x, StructValue) and x.type == kind
        case SIMDType():
            return isinstance(x, Value) and x.weak is None and x.type == kind
        case StubRef(name="tuple"):
            return isinstance(x, tuple | BodyIndex)
        case StubRef(name=name) if name in PYTHON_TYPES:
            return isinstance(x, PYTHON_TYPES[name])
    hint = "use tuple, int, float, complex, bool, str, a struct, or a type such as Float32"
    raise call.error("EK0208", f"isinstance does not support {describe(kind)}", "kind", hint=hint)


@rule("str")
def str_rule(call: Point, x: object) -> str:
    if isinstance(x, bool | int | float | complex | str | DType | SIMDType) or x is None:
        return str(x)
    hint = "run-time values have a text in print, assert and raise only"
    raise call.error("EK0206", f"{describe(x)} has no text at compile time", "x", hint=hint)
