"""Answers attributes and methods of numbers and types, and makes the values that types construct.

`v.cast(T)`, `T.is_float()`, `Float32(x)`, `ctx.target`: one small function each, found by the owner's
class and the name. Those of tensors are in `inference.members.tensors`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.places import is_shipped
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import DType, SIMDType
from ...ir.builder import Builder
from ...ir.program import Value
from ..advice import dtype_for
from ..conversion import DEFAULTS, adopt, coerce, misfit
from ..evaluator import Point, callable_
from ..exact_terms import as_written
from ..values.describe import describe
from .table import member, method

MAX_LANES = 1024


# *** run-time values ***


@member(Value, "dtype")
def value_dtype(here: Point, owner: Value) -> DType:
    return owner.dtype


@member(Value, "width")
def value_width(here: Point, owner: Value) -> int:
    return owner.type.width if isinstance(owner.type, SIMDType) else 1


@method(Value, "cast")
def value_cast(call: Point, owner: Value, dtype: object, *, saturate: object = False) -> Value:
    if saturate is not True and saturate is not False:
        raise call.error("EK0208", f"saturate= is True or False, not {describe(saturate)}", "saturate")
    return cast(call, saturated(call, owner, dtype) if saturate else owner, dtype)


def saturated(call: Point, value: Value, to: object) -> Value:
    """An integer held within the range of an integer type; anything else as it is: floats saturate anyway."""
    dtype = to.dtype if isinstance(to, SIMDType) else to
    type = value.type
    assert isinstance(type, SIMDType)
    if not isinstance(dtype, DType) or not (dtype.is_integral() and type.dtype.is_integral()):
        return value
    low, high = dtype.range
    least, most = type.dtype.range
    if type.dtype.is_storage() and (low > least or high < most):
        type = type.with_dtype(DType.int8)  # nothing is computed on 4 bits
        value = cast(call, value, type)
    if low > least:
        value = call.builder.row("max", [value, call.builder.const(low, type)])
    if high < most:
        value = call.builder.row("min", [value, call.builder.const(high, type)])
    return value


def number_cast(call: Point, owner: object, dtype: object) -> Value:
    """A compile-time number as a run-time value, converted as such a value of the number's default type is."""
    type = DEFAULTS[builtins.type(owner).__name__]
    return cast(call, coerce(call, owner, type), dtype)


for _type in (bool, int, float, complex):
    method(_type, "cast")(number_cast)


def cast(call: Point, value: Any, to: Any) -> Value:
    """A numeric conversion: rounds to nearest, truncates to integers, saturates, NaN becomes 0."""
    assert isinstance(value, Value) and isinstance(value.type, SIMDType)
    if isinstance(to, DType):
        to = value.type.with_dtype(to)
    if not isinstance(to, SIMDType):
        raise call.error("EK0208", f"cast takes a dtype, not {describe(to)}", "dtype", hint=dtype_for(to))
    if to.width == 1 and value.type.width > 1:
        to = value.type.with_dtype(to.dtype)
    if value.type == to and value.weak is None:
        return value if is_shipped(call.frame.file) else as_written(call, value)
    if value.type.dtype.is_complex() and not to.dtype.is_complex():
        raise loses_imaginary(call, value, to)
    if to.width != value.type.width:
        text = f"{describe(value)} cannot become {to}"
        raise call.error("EK0202", text, expected=str(to), got=describe(value), hint="slice or join vectors first")
    if value.const is not None and misfit(value.const, to.dtype) is None:
        return call.builder.const(adopt(value.const, to.dtype), to)
    return call.builder.one("cast", [value], to)


def loses_imaginary(call: Point, value: Value, to: SIMDType) -> Exception:
    """A complex number becomes a real one by the part that is meant."""
    text = f"{describe(value)} cannot become {to}: that would drop its imaginary part"
    hint = f"write z.real.cast({to.dtype}), z.imag.cast({to.dtype}) or abs(z).cast({to.dtype})"
    if to.dtype is value.dtype.part:
        hint = "write z.real, z.imag or abs(z)"
    return call.error("EK0232", text, expected=str(to), got=describe(value), hint=hint)


# *** complex numbers ***


@member(Value, "real")
def value_real(here: Point, owner: Value) -> Value:
    return here.builder.part(owner, "real")


@member(Value, "imag")
def value_imag(here: Point, owner: Value) -> Value:
    return here.builder.part(owner, "imag")


@method(Value, "conjugate")
def value_conjugate(call: Point, owner: Value) -> Value:
    if not owner.dtype.is_complex():
        return owner
    builder = call.builder
    return builder.complex(builder.part(owner, "real"), builder.row("neg", [builder.part(owner, "imag")]))


method(Value, "conj")(value_conjugate)

for _type in (bool, int, float, complex):
    member(_type, "real")(lambda here, owner: owner.real)
    member(_type, "imag")(lambda here, owner: owner.imag)
    for _name in ("conj", "conjugate"):
        method(_type, _name)(lambda call, owner: owner.conjugate())


def complex_of(call: Point, type: SIMDType, args: list[Any]) -> Value:
    """`complex64(re, im)`: the complex number of two parts."""
    part = type.with_dtype(type.dtype.part)
    parts = []
    for value, at in zip(args, _argument_nodes(call, 2), strict=True):
        if isinstance(value, Value) and isinstance(value.type, SIMDType):
            value = coerce(call.on(at), cast(call.on(at), value, part.dtype), part) if value.weak is None else value
        parts.append(coerce(call.on(at), _said(value, part.dtype), part, f"a part of {type} is a {part.dtype}"))
    return call.builder.complex(parts[0], parts[1])


def lane(builder: Builder, value: Value, number: int) -> Value:
    """One lane of a vector as a scalar."""
    return builder.one("extract", [value], SIMDType(value.dtype), lane=number)


# *** dtypes, types ***


@member(DType, "part")
def dtype_part(here: Point, owner: DType) -> DType:
    return owner.part


@member(DType, "bits")
def dtype_bits(here: Point, owner: DType) -> int:
    return owner.bits


for _name in ("is_float", "is_complex", "is_integral", "is_signed", "is_half", "is_storage", "is_packed"):

    def _make(name: str) -> Callable[..., Any]:
        def check(call: Point, owner: DType) -> Any:
            return getattr(owner, name)()

        return check

    method(DType, _name)(_make(_name))


@member(SIMDType, "dtype")
def type_dtype(here: Point, owner: SIMDType) -> DType:
    return owner.dtype


@member(SIMDType, "width")
def type_width(here: Point, owner: SIMDType) -> int:
    return owner.width


@callable_(DType)
@callable_(SIMDType)
def construct(call: Point, type: Any, args: list[Any], keywords: dict[str, Any]) -> Value:
    """`Float32(x)`, `T(0)`, `SIMD[T, 8](0.0)`: a value of this type; run-time values are converted."""
    if isinstance(type, DType):
        type = SIMDType(type)
    if type.dtype.is_complex() and len(args) == 2 != type.width and not keywords:
        widths = {v.type.width for v in args if isinstance(v, Value) and isinstance(v.type, SIMDType)}
        return complex_of(call, SIMDType(type.dtype, max(widths, default=1)) if type.width == 1 else type, args)
    if len(args) == type.width > 1 and not keywords:
        return from_scalars(call, type, args)
    if len(args) != 1 or keywords:
        wanted = "one value" if type.is_scalar else f"one value or {type.width}"
        raise call.error("EK0208", f"{type} takes {wanted}, not {len(args) + len(keywords)}")
    value = args[0]
    if isinstance(value, Value) and isinstance(value.type, SIMDType):
        if value.type.is_scalar and not type.is_scalar:
            return coerce(call, cast(call, value, type.dtype), type)
        return cast(call, value, type)
    value = _said(value, type.dtype)
    return coerce(call.on(_argument_nodes(call, 1)[0]), value, type, f"{type}(...) takes a number")


def _said(value: object, dtype: DType) -> Any:
    """A compile-time number as one of the kind that is requested by name: a bool as 0 or 1, a whole float as an int."""
    if isinstance(value, bool) and dtype is not DType.bool:
        return int(value)
    if isinstance(value, int | float) and dtype is DType.bool:
        return bool(value)
    if isinstance(value, float) and dtype.is_integral() and value.is_integer():
        return int(value)
    return value


def _argument_nodes(call: Point, count: int) -> tuple[s.SyntaxNode, ...]:
    """Where so many arguments stand; the call for each of them where that is unknown."""
    given = call.node.arguments if isinstance(call.node, s.Call) else ()
    return given if len(given) == count else (call.node,) * count


def from_scalars(call: Point, type: SIMDType, args: list[Any]) -> Value:
    """`SIMD[T, 4](a, b, c, d)`: a vector lane by lane."""
    scalar = SIMDType(type.dtype)
    lanes = []
    for value, at in zip(args, _argument_nodes(call, len(args)), strict=True):
        if isinstance(value, Value) and isinstance(value.type, SIMDType) and value.type.is_scalar:
            value = cast(call, value, scalar)
        value = _said(value, type.dtype)
        lanes.append(coerce(call.on(at), value, scalar, f"a lane of {type} is a number"))
    return call.builder.one("lanes", lanes, type)


def check_width(call: Point, width: object, argument: str) -> None:
    """Refuses what cannot be a number of lanes."""
    if type(width) is not int or width < 1 or width & (width - 1) or width > MAX_LANES:
        raise call.error(
            "EK0208",
            f"a width is a power of two up to {MAX_LANES}, known at compile time, not {describe(width)}",
            argument,
        )
