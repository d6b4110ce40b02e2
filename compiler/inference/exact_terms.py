"""Computes the terms of sums in a wider dtype: in `total += x[i] * y[i]`, the product of two Int8 is an Int16.

A narrow value that is added to an accumulator is not only widened: where the arithmetic that made it may have wrapped
(or rounded, for half floats), that arithmetic is done again on widened operands. Intervals of integers show where it
may: each value of the expression lies in one, and arithmetic whose interval fits its dtype is left as it is. Integers
are computed in the narrowest dtype that holds all intervals of the expression, half floats in float32.

The expression ends at what is not arithmetic of the author's: elements that are loaded, loop variables, bits, casts,
declared types, and functions of the library.

See also `accumulators` (which values are added to an accumulator).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import is_shipped
from ...dsl.types.dtype import DType, SIMDType
from ..ir.opcodes import CAST, CONST, IF, REDUCE, SELECT
from ..ir.program import Op, Value
from .evaluator import Evaluator, Point

Interval = tuple[int, int]

LIMIT = 1 << 70  # intervals are cut here: no dtype holds such numbers
MAX_DEPTH = 40  # of expressions that are compared by what computes them
MAX_NESTED = 30  # `if` operations within each other whose results are computed anew


@dataclass(frozen=True, slots=True)
class Term:
    """What is known of a value.

    Attributes:
        interval: the least and the greatest number that it may be, without wrapping.
        within: the least and the greatest number in the expression that made it; None where no arithmetic in it wraps
            or rounds.
        by_size: whether more than the low bits of an operand decide what the expression gives, as in a division.
    """

    interval: Interval
    within: Interval | None = None
    by_size: bool = False


def wide_dtype(dtype: DType) -> DType | None:
    """The dtype of sums of `dtype`; None where sums are not wider than their terms."""
    if dtype.is_half():
        return DType.float32
    if not dtype.is_integral() or dtype.is_storage() or dtype.bits == 64:
        return None
    return dtype.sum_dtype()


def widen(here: Point, value: Value, wide: DType) -> Value:
    """A narrow number or vector in the dtype of its sums, computed there where it may have wrapped or rounded."""
    term = _analysed(here.evaluator, value)
    if term.within is None:
        return _cast(here, value, wide)
    return _anew(here, value, _dtype_of(here, value.dtype, term, wide), wide)


def exact(here: Point, value: Value) -> Value:
    """An integer in the narrowest dtype in which its expression does not wrap; anything else as it is."""
    wide = wide_dtype(value.dtype)
    if wide is None or value.dtype.is_half() or not _may_differ(here.evaluator, value):
        return value
    dtype = _dtype_of(here, value.dtype, _analysed(here.evaluator, value), wide)
    kept = dtype.kind == value.dtype.kind or may_be_negative(here.evaluator, value)
    made = _cast(here, _rebuilt(here, value, dtype), dtype if kept else wide)
    if is_shipped(here.frame.file):  # else the author has written two numbers
        here.evaluator.widened.append(value)
    return made


def promoted(here: Point, value: Value, wide: DType) -> Value | None:
    """A narrow integer that may have wrapped, computed as if its operands were of `wide`; None for any other value."""
    if not value.dtype.is_integral() or not _may_differ(here.evaluator, value):
        return None
    within = _analysed(here.evaluator, value).within
    assert within is not None
    return _anew(here, value, _narrowest(value.dtype, within, wide.bits) or wide, wide)


def as_written(here: Point, value: Value) -> Value:
    """A value whose dtype the author wrote: it is not computed anew in a wider one."""
    return _ended(here.evaluator, value) if _may_differ(here.evaluator, value) else value


def as_element(evaluator: Evaluator, value: Value) -> Value:
    """What a kernel stores, as a kernel that is fused with it reads it: as from memory, whatever computed it."""
    return _ended(evaluator, value) if value.sums is not None or _may_differ(evaluator, value) else value


def may_be_negative(evaluator: Evaluator, value: Value) -> bool:
    """Whether the expression of a narrow integer may give a number below zero, where it does not wrap."""
    return value.dtype.is_integral() and _analysed(evaluator, value).interval[0] < 0


def _may_differ(evaluator: Evaluator, value: Value) -> bool:
    """Whether the expression of a narrow number may give another one in a wider dtype."""
    return _expression(value) is not None and _analysed(evaluator, value).within is not None


def _ended(evaluator: Evaluator, value: Value) -> Value:
    """The same number, at which expressions end."""
    return evaluator.builder.one("cast", [value], value.type)


# *** comparisons of what is computed anew ***


def note_comparison(here: Point, operands: Sequence[Value]) -> None:
    """Keeps a comparison of narrow integers, for `check_comparisons`."""
    if here.evaluator.trial or is_shipped(here.frame.file):
        return
    if any(_expression(value) is not None for value in operands):
        here.evaluator.compared += [(here, value) for value in operands]


def check_comparisons(evaluator: Evaluator) -> None:
    """Notes a mistake for each comparison of a number that may have wrapped, and that is widened without wrapping, too.

    In `p = x[i] * y[i]`, `if p > 0: total += p` the comparison and the sum would see two numbers.
    """
    if not (evaluator.widened and evaluator.compared):
        return
    keys: dict[int, Any] = {}
    summed = {key for value in evaluator.widened for key in _wrapping(evaluator, value, keys)}
    for here, value in evaluator.compared:
        if not summed.isdisjoint(_wrapping(evaluator, value, keys)):
            text = f"this compares {value.type} arithmetic, which may wrap, and a wider use of the same number does not"
            wraps = f"(x * y).cast({value.dtype})"
            hint = f"compute it by `exact`, as in p = exact(x * y), or cast it where it shall wrap: {wraps}"
            evaluator.collect(here.error("EK0236", text, got=str(value.type), hint=hint), here.frame)


def _wrapping(evaluator: Evaluator, value: Value, keys: dict[int, object]) -> set[Any]:
    """The keys of the operations in the expression of an integer that may wrap; equal ones have equal keys."""
    results = set()
    rest, seen = [value], set()
    while rest:
        at = rest.pop()
        op = _expression(at)
        if op is None or at.serial in seen or not at.dtype.is_integral() or not _analysed(evaluator, at).within:
            continue
        seen.add(at.serial)
        low, high = _analysed(evaluator, at).interval
        least, most = at.dtype.range
        if low < least or high > most:
            results.add(_shape(at, keys, MAX_DEPTH))
        rest += _parts(at, op)
    return results


def _shape(value: Value, keys: dict[int, object], depth: int) -> Any:
    """What a value is computed of: equal for two values that the same operations compute of equal values."""
    op = value.maker
    if op is None or op.regions or depth == 0:
        return value.serial
    if value.serial not in keys:
        number = op.attrs.get("value", "")
        keys[value.serial] = hash((op.name, repr(number), *(_shape(part, keys, depth - 1) for part in op.operands)))
    return keys[value.serial]


# *** intervals ***


def _products(a: Interval, b: Interval) -> Interval:
    products = [x * y for x in a for y in b]
    return min(products), max(products)


def _hull(*parts: Interval) -> Interval:
    return min(low for low, _ in parts), max(high for _, high in parts)


def _magnitude(a: Interval) -> int:
    return max(abs(a[0]), abs(a[1]))


def _shifted(a: Interval, b: Interval) -> Interval:
    return _products(a, (0, 1 << min(max(b[1], 0), 64)))


def _quotients(a: Interval, b: Interval) -> Interval:
    return (0 if a[0] >= 0 and b[0] >= 0 else -_magnitude(a)), _magnitude(a)


def _distances(a: Interval, b: Interval) -> Interval:
    return 0, max(a[1] - b[0], b[1] - a[0], 0)


_INTERVALS: dict[str, Callable[..., Interval]] = {  # by operation, of the intervals of its operands
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": _products,
    "neg": lambda a: (-a[1], -a[0]),
    "abs": lambda a: (0, _magnitude(a)),
    "abs_diff": _distances,
    "shl": _shifted,
    "shr": lambda a, b: _hull(a, (0, 0)),
    "floordiv": _quotients,
    "mod": lambda a, b: _hull(b, (0, 0)),
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "sign": lambda a: (-1, 1),
    **dict.fromkeys(("avg_floor", "avg_ceil", "clamp", "select", "if"), _hull),
    **dict.fromkeys(("splat", "lanes", "extract", "insert", "shuffle", "reduce"), _hull),
}
_OF_FLOATS = frozenset(_INTERVALS) - {"shl", "shr", "floordiv", "mod", "avg_floor", "avg_ceil"} | {"truediv", "fma"}
_BY_SIZE = frozenset(
    {"abs", "abs_diff", "shr", "floordiv", "mod", "min", "max", "sign", "avg_floor", "avg_ceil", "clamp"}
)
_ROUNDS = frozenset({"add", "sub", "mul", "truediv", "fma", "abs_diff"})


def _expression(value: Value) -> Op | None:
    """The author's operation that made a narrow number, where it can be done in a wider dtype."""
    op = value.maker
    if op is None or value.weak is not None or not isinstance(value.type, SIMDType) or wide_dtype(value.dtype) is None:
        return None
    names = _OF_FLOATS if value.dtype.is_half() else _INTERVALS
    if op.opcode is REDUCE and op.attrs["row"] not in ("min", "max"):
        return None
    return op if op.name in names and not is_shipped(op.location.place.file) else None


def _parts(value: Value, op: Op) -> list[Value]:
    """The numbers that an operation computes a value of."""
    if op.opcode is IF:
        number = op.results.index(value)
        return [region.ops[-1].operands[number] for region in op.regions]
    return op.operands[1:] if op.opcode is SELECT else op.operands


def _analysed(evaluator: Evaluator, value: Value) -> Term:
    """What is known of a value. Expressions may be long, so that this does not recur."""
    known: dict[int, Term] = evaluator.terms
    rest = [value]
    while rest:
        at = rest[-1]
        op = _expression(at) if at.serial not in known else None
        parts = () if op is None else _parts(at, op)
        missing = [part for part in parts if part.serial not in known]
        if missing:
            rest += missing
            continue
        if at.serial not in known:
            known[at.serial] = _leaf(at) if op is None else _term(at, op, [known[part.serial] for part in parts])
        rest.pop()
    return known[value.serial]


def _term(value: Value, op: Op, parts: Sequence[Term]) -> Term:
    inner = [part.within for part in parts if part.within is not None]
    if value.dtype.is_half():
        return Term((0, 0), (0, 0) if inner or op.name in _ROUNDS else None)
    low, high = _INTERVALS[op.name](*(part.interval for part in parts))
    interval = max(low, -LIMIT), min(high, LIMIT)
    least, most = value.dtype.range
    if not inner and least <= low and high <= most:
        return Term(interval)
    by_size = op.name in _BY_SIZE or any(part.by_size for part in parts)
    return Term(interval, _hull(interval, *(part.interval for part in parts), *inner), by_size)


def _leaf(value: Value) -> Term:
    """A value that is taken as it is."""
    if not value.dtype.is_integral():
        return Term((0, 0))
    low, high = value.dtype.range
    op = value.maker
    if op is None:
        return Term((low, high))
    if op.opcode is CONST:
        return Term((op.attrs["value"], op.attrs["value"]))
    if op.name == "and_":  # with a mask
        masks = [v.maker.attrs["value"] for v in op.operands if v.maker is not None and v.maker.opcode is CONST]
        return Term((0, min(masks)) if masks and min(masks) >= 0 else (low, high))
    if op.opcode is CAST and op.operands[0].weak is None:
        source = op.operands[0].dtype
        least, most = (0, 1) if source is DType.bool else source.range if source.is_integral() else (low, high)
        return Term((least, most) if low <= least and most <= high else (low, high))
    return Term((low, high))


def _dtype_of(here: Point, dtype: DType, term: Term, wide: DType) -> DType:
    """The narrowest dtype that holds all numbers of an expression of `dtype`.

    Where there is none it is `wide`, in which sums wrap, too: the low 64 bits are right.

    Raises:
        CompileError: EK0235, where the low 64 bits do not decide the result.
    """
    if term.within is None or dtype.is_half():
        return wide
    result = _narrowest(dtype, term.within)
    if result is not None:
        return result
    if term.by_size:
        name = SIMDType(dtype)
        text = f"this term of a sum may exceed 64 bits before it is divided, compared or shifted right: it is of {name}"
        hint = f"cast the part that shall wrap, as in (x * y).cast({dtype})"
        raise here.error("EK0235", text, expected=f"arithmetic on {name} within 64 bits", hint=hint)
    return wide


def _narrowest(dtype: DType, within: Interval, bits: int = 64) -> DType | None:
    """The narrowest dtype, of so many bits at most, that holds an interval; of the kind of `dtype` where it can be."""
    signed = (DType.int16, DType.int32, DType.int64)
    unsigned = (DType.uint16, DType.uint32, DType.uint64)
    for candidate in signed if dtype.kind == "int" or within[0] < 0 else unsigned:
        low, high = candidate.range
        if candidate.bits <= bits and low <= within[0] and within[1] <= high:
            return candidate
    return None


# *** expressions anew ***


def _cast(here: Point, value: Value, dtype: DType) -> Value:
    if value.dtype is dtype:
        return value
    made = here.builder.one("cast", [value], value.simd.with_dtype(dtype))
    here.evaluator.implicit_casts.add(made.serial)
    return made


def _anew(here: Point, value: Value, dtype: DType, wide: DType) -> Value:
    """A value of `wide` whose expression is computed in `dtype`; see `check_comparisons`."""
    here.evaluator.widened.append(value)
    return _cast(here, _rebuilt(here, value, dtype), wide)


def _rebuilt(here: Point, value: Value, dtype: DType, nested: int = 0) -> Value:
    """A value whose expression is computed in `dtype`. What was computed before in it is used again."""
    builder, terms = here.builder, here.evaluator.terms
    rest = [value]
    while rest:
        at = rest.pop()
        if _known(here, at, dtype) is not None:
            continue
        op = _expression(at) if terms[at.serial].within else None
        if op is None or (op.opcode is IF and nested == MAX_NESTED):
            builder.remember(_key(at, dtype), _converted(here, at, dtype))
            continue
        if op.opcode is IF:
            here.evaluator.wider_results[at.serial, dtype] = _result_of_if(here, op, at, dtype, nested + 1)
            continue
        missing = [part for part in _parts(at, op) if _known(here, part, dtype) is None]
        if missing:
            rest += [at, *missing]
            continue
        builder.remember(_key(at, dtype), _again(here, op, at, dtype))
    made = _known(here, value, dtype)
    assert made is not None
    return made


def _converted(here: Point, value: Value, dtype: DType) -> Value:
    """What is not computed anew in `dtype`, as a number of it."""
    if value.maker is not None and value.maker.opcode is CONST:
        return here.builder.const(value.maker.attrs["value"], value.simd.with_dtype(dtype))
    return _cast(here, value, dtype)


def _key(value: Value, dtype: DType) -> tuple[str, int, DType]:
    return ("exact", value.serial, dtype)


def _known(here: Point, value: Value, dtype: DType) -> Value | None:
    """The value in `dtype`, where that was computed before and may be used here."""
    result: Value | None = here.builder.remembered(_key(value, dtype))
    return result or here.evaluator.wider_results.get((value.serial, dtype))


def _again(here: Point, op: Op, value: Value, dtype: DType) -> Value:
    """An operation on the operands in `dtype`."""
    operands = [op.operands[0]] if op.opcode is SELECT else []
    operands += [_rebuilt(here, part, dtype) for part in _parts(value, op)]  # which are known by now
    location, here.builder.location = here.builder.location, op.location
    made = here.builder.one(op.name, operands, value.simd.with_dtype(dtype), **op.attrs)
    here.builder.location = location
    return made


def _result_of_if(here: Point, op: Op, value: Value, dtype: DType, nested: int) -> Value:
    """A further result of an `if` operation: one of its results, computed in `dtype` within its regions."""
    for region, part in zip(op.regions, _parts(value, op), strict=True):
        with here.builder.reopened(region) as end:
            end.operands.append(_rebuilt(here, part, dtype, nested))
    result = Value(SIMDType(dtype, value.simd.width))
    result.maker = op
    op.results.append(result)
    return result
