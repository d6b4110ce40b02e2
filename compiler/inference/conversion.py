"""Converts values where the language does so by itself: a number adopts a type, two operands get one type.

The language converts nothing implicitly, with three exceptions: a compile-time number adopts the type of its partner, a
scalar is combined with a vector of its dtype in every lane, and integers are widened where nothing can be lost (see
`widening`).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isfinite
from typing import Any

from ...dsl.frontend import syntax
from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from ..ir.integers import is_exact
from ..ir.program import PointerType, Type, Value
from .accumulators import rounded, together
from .evaluator import Point
from .mismatches import mismatch
from .spelling import cast_of, float_of, source_of
from .values.aggregates import nothing
from .values.compile_time import is_comptime_number
from .values.describe import describe, literal_text
from .values.flow import ABSENT
from .widening import brought_together, may_widen, reason_for_cast, widen

DEFAULTS = {
    "bool": BOOL,
    "int": INT,
    "float": SIMDType(DType.float64),
    "complex": SIMDType(DType.complex128),
}  # from the narrowest kind of numbers to the widest
_KINDS = {type.dtype: kind for kind, type in DEFAULTS.items()}


def widest_kind(kinds: Iterable[str | None]) -> str:
    """The kind of numbers that holds those of all these kinds."""
    given = set(kinds)
    return next(kind for kind in reversed(DEFAULTS) if kind in given)


def weak_kind(value: object) -> str | None:
    """`bool`, `int`, `float` or `complex` for a number that has no run-time type yet."""
    if isinstance(value, Value):
        return value.weak
    return type(value).__name__ if is_comptime_number(value) else None


def coerce(here: Point, value: Any, type: Type, what: str = "", like: syntax.SyntaxNode | None = None) -> Value:
    """`value` as a run-time value of `type`: a number adopts it, a scalar fills the lanes, all else must have it.

    `here` is where the value stands, `like` where its type comes from: a hint names the dtype as it is named there.
    """
    builder = here.builder
    if isinstance(value, Value) and value.type == type and value.weak is None:
        return value
    if value is ABSENT:
        return nothing(builder, type)
    value = widened_or_rounded(here, value, type.dtype)
    if isinstance(value, Value) and value.type == type and value.weak is None:
        return value
    if is_comptime_number(value) and isinstance(type, SIMDType):
        problem = misfit(value, type.dtype)
        if problem:
            hint = None
            if isinstance(value, complex):
                cast = f"x.cast({type.dtype.complex_dtype})"
                hint = f"operands of a complex number have to be complex: write {cast} for the other operand"
            raise here.error("EK0205", problem, expected=str(type), got=literal_text(value), hint=hint)
        return builder.const(adopt(value, type.dtype), type)
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and isinstance(type, SIMDType):
        if value.weak is not None and (value.weak != "complex" or type.dtype.is_complex()):
            for key in value.origin:
                here.evaluator.adopted_types.setdefault(key, SIMDType(type.dtype))
            return builder.one("cast", [value], type)
        if value.type.is_scalar and value.dtype is type.dtype:
            return builder.one("splat", [value], type)
    wanted = what or f"{type} is wanted here"
    castable = _castable(value, type)
    reason = reason_for_cast(value.dtype, type.dtype) if castable else None
    raise here.error(
        "EK0202",
        f"{wanted}, not {describe(value)}",
        label=describe(value),
        expected=str(type),
        got=describe(value),
        notes=[reason] if reason else [],
        hint=f"write {cast_of(here.node, here.frame, type.dtype, like)}" if castable else None,
    )


def widened_or_rounded(here: Point, value: Any, dtype: DType) -> Any:
    """A value in the dtype that is wanted, where that is implicit: an integer in a wider type, a sum of half floats."""
    if may_widen(value, SIMDType(dtype)):
        return widen(here, value, dtype)
    return rounded(here, value, dtype)


def _castable(value: object, type: Type) -> bool:
    """Whether a cast would help."""
    if not isinstance(value, Value) or not isinstance(value.type, SIMDType) or not isinstance(type, SIMDType):
        return False
    if value.dtype.is_complex() and not type.dtype.is_complex():
        return False
    return value.dtype is not type.dtype and value.type.width in (1, type.width)


def zero_of(dtype: DType) -> bool | int | float:
    """The number 0 as elements of `dtype` adopt it: a float for floats, of which one, the scale, has no 0 but NaN."""
    return False if dtype is DType.bool else 0.0 if dtype.is_float() else 0


def misfit(value: bool | int | float | complex, dtype: DType) -> str | None:
    """Why a compile-time number cannot become a `dtype`, or None when it can."""
    if dtype.kind == "bool" or isinstance(value, bool):
        fits = dtype.kind == "bool" and isinstance(value, bool)
        return None if fits else f"the {type(value).__name__} {literal_text(value)} does not fit {dtype}"
    if isinstance(value, complex):
        return None if dtype.is_complex() else f"the complex {value!r} does not fit {dtype}"
    dtype = dtype.part
    if dtype.is_float():
        if isinstance(value, float) or is_exact(dtype, value):
            return None
        if dtype.is_storage():
            return f"{literal_text(value)} is not exactly representable in {dtype}"
        return None if isfinite(adopt(value, dtype).real) else f"{literal_text(value)} is too large for {dtype}"
    if isinstance(value, float):
        return f"the float {value!r} does not fit {dtype}"
    low, high = dtype.range
    return None if low <= value <= high else f"{literal_text(value)} does not fit {dtype} ({low} to {high})"


def adopt(value: bool | int | float | complex, dtype: DType) -> bool | int | float | complex:
    """The number as an element of `dtype`, rounded to nearest."""
    if dtype.is_complex():
        whole = complex(value)
        return complex(adopt(whole.real, dtype.part), adopt(whole.imag, dtype.part))
    assert not isinstance(value, complex)
    if not dtype.is_float():
        return value
    try:
        number = float(value)
    except OverflowError:
        number = inf if value > 0 else -inf
    return number if dtype is DType.float64 else dtype.format.round(number)


def unify(
    here: Point,
    symbol: str,
    a: object,
    b: object,
    nodes: tuple[syntax.SyntaxNode, syntax.SyntaxNode],
    *,
    widening: bool = True,
) -> tuple[Value, Value]:
    """Two operands as run-time values of one type; at least one of them is a run-time value.

    Integers get the wider type, unless the operation depends on how wide they are (`widening=False`).
    """
    kinds = (weak_kind(a), weak_kind(b))
    if kinds[0] is None and kinds[1] is None:
        if isinstance(a, Value) and isinstance(b, Value):
            a, b = together(here, a, b)
            if widening:
                a, b = brought_together(here, symbol, a, b)
        if not (isinstance(a, Value) and isinstance(b, Value)) or not same_family(a, b):
            raise mismatch(here, symbol, a, b, nodes)
        assert isinstance(a.type, SIMDType) and isinstance(b.type, SIMDType)
        type = a.type if a.type.width >= b.type.width else b.type
        return coerce(here.on(nodes[0]), a, type), coerce(here.on(nodes[1]), b, type)
    if kinds[0] is not None and kinds[1] is not None:
        type = DEFAULTS[widest_kind(kinds)]
        out = [as_weak(here.on(n), v, type) for v, n in zip((a, b), nodes, strict=True)]
        return out[0], out[1]
    typed = b if kinds[0] is not None else a
    if not isinstance(typed, Value) or not isinstance(typed.type, SIMDType):
        raise mismatch(here, symbol, a, b, nodes)
    number, at = (a, nodes[1]) if kinds[0] is not None else (b, nodes[0])
    if isinstance(number, float) and typed.dtype.is_integral() and not typed.dtype.is_storage():
        raise _float_with_integer(here, number, typed, at, nodes[0] if kinds[0] is not None else nodes[1])
    return coerce(here.on(nodes[0]), a, typed.type), coerce(here.on(nodes[1]), b, typed.type)


def _float_with_integer(
    here: Point, number: float, typed: Value, at: syntax.SyntaxNode, literal: syntax.SyntaxNode
) -> Exception:
    """`x[i] * 0.5` where x holds integers: the float cannot become an integer, and the integer has to be cast."""
    text, details = (
        f"the float {number!r} does not fit {typed.dtype}",
        {"expected": str(typed.type), "got": repr(number)},
    )
    if number.is_integer() and misfit(int(number), typed.dtype) is None:
        return here.on(literal).error("EK0205", text, **details, hint=f"write {int(number)}")
    return here.on(literal).error(
        "EK0205", text, **details, hint=f"write ({source_of(at, here.frame)}).cast({float_of(here.frame)})"
    )


def as_weak(here: Point, value: object, type: SIMDType) -> Value:
    """A number without a run-time type as a stand-in that may still adopt one."""
    kind = _KINDS[type.dtype]
    if isinstance(value, Value):
        made = here.builder.one("cast", [value], type)
        made.origin = value.origin
    else:
        made = here.builder.one("const", [], type, value=value)
    made.weak = kind
    return made


def same_family(a: Value, b: Value) -> bool:
    """Whether two run-time values can be operands of one operation."""
    if isinstance(a.type, PointerType) or isinstance(b.type, PointerType):
        return False
    widths = {a.type.width, b.type.width}
    return a.dtype is b.dtype and (len(widths) == 1 or 1 in widths)


PYTHON_ERRORS = (ArithmeticError, ValueError, TypeError)
