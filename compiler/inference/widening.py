"""Widens numbers where operands have two types, and where a value of another type is wanted: what loses nothing.

Every number of Int8, Int16, Int32, UInt8, UInt16 and UInt32 is one of Int64, so an index, a bound, an operand or a
stored value of these needs no cast where an Int64 is wanted. Comparisons are exact for integers of any two types. A
float is a complex number whose parts have its dtype. What may lose something, such as Int64 to Int32, UInt32 to Int32
or an integer to a float, is refused: the author casts it.

See also `conversion` (which adopt a type), `accumulators` (which are wider than their terms).
"""

from __future__ import annotations

from typing import Any

from ...dsl.types.dtype import BOOL, DType, SIMDType
from ..ir.program import Value
from .evaluator import Point
from .exact_terms import promoted

ORDERS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
_SIGNED = {16: DType.int16, 32: DType.int32, 64: DType.int64}
_UNSIGNED = {8: DType.uint8, 16: DType.uint16, 32: DType.uint32, 64: DType.uint64}


def widens(narrow: DType, wide: DType) -> bool:
    """Whether every number of one type of integers is one of another, or a float the part of a complex type."""
    if wide.is_complex():
        return narrow is wide.part
    if narrow is wide or not (_computes(narrow) and _computes(wide)):
        return False
    (low, high), (first, last) = narrow.range, wide.range
    return first <= low and high <= last


def may_widen(value: Any, type: Any) -> bool:
    """Whether a value has a type, and `type` is one that holds all its numbers."""
    typed = isinstance(value, Value) and value.weak is None and isinstance(value.type, SIMDType)
    return typed and isinstance(type, SIMDType) and widens(value.dtype, type.dtype)


def _computes(dtype: DType) -> bool:
    return dtype.is_integral() and not dtype.is_storage()


def wider(a: DType, b: DType) -> DType | None:
    """The one of two dtypes that holds all numbers of both; None where neither does."""
    return a if a is b or widens(b, a) else b if widens(a, b) else None


def widen(here: Point, value: Value, dtype: DType) -> Value:
    """A value in a dtype that holds all numbers of its own; arithmetic that may have wrapped is done again in it."""
    assert isinstance(value.type, SIMDType)
    if value.dtype is dtype:
        return value
    type = value.type.with_dtype(dtype)
    if value.const is not None:
        return here.builder.const(value.const, type)
    key = ("widened", value.serial, type)  # one conversion of a value: what is proved of it holds for all its uses
    made: Value | None = here.builder.remembered(key)
    if made is None:
        here.locate()
        made = promoted(here, value, dtype) or here.builder.one("cast", [value], type)
        here.evaluator.implicit_casts.add(made.serial)
        here.builder.remember(key, made)
    return made


def brought_together(here: Point, symbol: str, a: Value, b: Value) -> tuple[Value, Value]:
    """Two operands in the dtype of the one that holds all numbers of both, where there is one."""
    if not (isinstance(a.type, SIMDType) and isinstance(b.type, SIMDType)) or a.dtype is b.dtype:
        return a, b
    dtype = wider(a.dtype, b.dtype)
    if dtype is None and symbol in ORDERS:
        dtype = _holds_both(a.dtype, b.dtype)
    return (a, b) if dtype is None else (widen(here, a, dtype), widen(here, b, dtype))


def _holds_both(a: DType, b: DType) -> DType | None:
    """The smallest signed dtype with all numbers of a signed and of an unsigned one; None where 64 bits are too few."""
    if not (_computes(a) and _computes(b)):
        return None
    return next((dtype for dtype in _SIGNED.values() if wider(a, dtype) is dtype is wider(b, dtype)), None)


def compares_by_sign(symbol: str, a: Value, b: Value) -> bool:
    """Whether two operands are compared of which one is UInt64 and the other signed: no type holds both."""
    if symbol not in ORDERS or not (_computes(a.dtype) and _computes(b.dtype)):
        return False
    return wider(a.dtype, b.dtype) is None and _holds_both(a.dtype, b.dtype) is None


def compared_by_sign(here: Point, symbol: str, a: Value, b: Value) -> Value:
    """`a < b` where one of them is UInt64 and the other signed: a negative number is below all unsigned ones."""
    builder = here.builder
    signed = a if a.dtype.is_signed() else b
    assert isinstance(signed.type, SIMDType)
    here.locate()
    zero = builder.const(0, signed.type)
    negative = builder.row("lt", [signed, zero])
    both = [v if v.dtype is DType.uint64 else builder.one("cast", [v], v.simd.with_dtype(DType.uint64)) for v in (a, b)]
    width = max(v.simd.width for v in both)
    negative = _filled(here, negative, width)
    result = builder.row(ORDERS[symbol], [_filled(here, v, width) for v in both])
    below = symbol in (("<", "<=") if signed is a else (">", ">="))
    if below or symbol == "!=":
        return builder.row("or_", [negative, result])
    return builder.row("and_", [builder.row("not_", [negative]), result])


def _filled(here: Point, value: Value, width: int) -> Value:
    type = SIMDType(value.dtype, width)
    return value if value.type == type else here.builder.one("splat", [value], type)


def shift_count(here: Point, count: Value, dtype: DType) -> Value:
    """The count of a shift of a `dtype`, in that dtype: what is too large for it shifts everything out, as it is."""
    if not (_computes(count.dtype) and _computes(dtype)) or count.dtype is dtype:
        return count
    if widens(count.dtype, dtype):
        return widen(here, count, dtype)
    here.locate()
    builder, type = here.builder, count.simd
    unsigned = type.with_dtype(_UNSIGNED[count.dtype.bits])
    known = count if type == unsigned else builder.one("bitcast", [count], unsigned)
    most = builder.row("min", [known, builder.const(dtype.bits, unsigned)])
    return builder.one("cast", [most], type.with_dtype(dtype))


def rotation(here: Point, count: Value, dtype: DType) -> Value:
    """The count of a rotation of a `dtype`, in that dtype: its low bits, since whole rounds change nothing."""
    if not (_computes(count.dtype) and _computes(dtype)) or count.dtype is dtype:
        return count
    here.locate()
    return here.builder.one("cast", [count], count.simd.with_dtype(dtype))


def reason_for_cast(given: DType, wanted: DType) -> str | None:
    """Why a conversion is not made implicitly: what it may lose."""
    if BOOL.dtype in (given, wanted) or given is wanted:
        return None
    if widens(given, wanted):
        return "this operation depends on how wide its operands are"
    if wanted.is_complex() and not given.is_complex():
        return f"a real number becomes a {SIMDType(wanted)} by a cast, unless it is a {SIMDType(wanted.part)}"
    if given.is_complex() and not wanted.is_complex():
        return f"{SIMDType(wanted)} has no imaginary part: choose the real number explicitly"
    if given.is_float() and wanted.is_integral():
        return f"{SIMDType(wanted)} has no fractions: the conversion of {SIMDType(given)} is written as a cast"
    if given.is_integral() and wanted.is_float():
        return "integers become floats by a cast only: a float has fewer digits than an integer of its width"
    if given.is_float() and wanted.is_float() and given.bits < wanted.bits:
        return "floats of two precisions are converted by a cast only: it decides how exactly the rest is computed"
    return f"{SIMDType(wanted)} does not hold every {SIMDType(given)}"
