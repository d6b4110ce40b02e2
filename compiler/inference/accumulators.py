"""Widens variables that add numbers up: `total = 0` and then `total += x[i]`, where x holds narrow numbers.

A variable that a compile-time number begins, and that is computed anew from its old value by arithmetic that may wrap
or round, is an accumulator. It is as wide as NumPy's sums: Int64 for signed integers, UInt64 for unsigned ones, and
Float32 for half floats. Where unsigned numbers are subtracted it is an Int64. The numbers that are added to it are
widened (see `exact_terms`), and what is computed with it stays an accumulator; it is narrowed where the author casts
it. One of half floats is rounded where it is stored as such.

Whether a variable is one shows in a trial: its statement or loop is evaluated with stand-ins for the numbers that
begin it, and the operations that were built are followed from the new value back to the old one.

See also `syntax.loop_variables` (the trial of a loop).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from typing import Any

from ...dsl.contract.checks import OFF
from ...dsl.diagnostics.errors import CompileError
from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax as s
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, PointerType, Region, Value
from .evaluator import Point
from .exact_terms import may_be_negative, wide_dtype, widen
from .recovery import Cascade, is_runtime_expression
from .values.aggregates import numbers_of, replaced, same_shape
from .values.compile_time import StructValue
from .values.flow import Abandoned, NeverReturns

GROWING = frozenset({"add", "sub", "mul", "neg", "shl", "fma", "truediv"})  # may give what their operands' type cannot


def widened_type(type: Any) -> SIMDType | None:
    """The type of an accumulator of values of this type; None for types whose sums are not wider."""
    wide = wide_dtype(type.dtype) if isinstance(type, SIMDType) else None
    return None if wide is None else type.with_dtype(wide)


def type_of_sum(here: Point, end: Value) -> SIMDType | None:
    """The type of an accumulator that has this narrow value in a trial; None for types whose sums are not wider.

    It is signed if something is subtracted: a sum of unsigned numbers is below zero then, or a term of it.
    """
    type = widened_type(end.type)
    below_zero = type is not None and type.dtype is DType.uint64 and may_be_negative(here.evaluator, end)
    return type.with_dtype(DType.int64) if below_zero and type is not None else type


# *** operands of an accumulator ***


def together(here: Point, a: Value, b: Value) -> tuple[Value, Value]:
    """Two operands; the narrower is widened where the other is an accumulator of its kind."""
    if a.type.dtype is b.type.dtype:
        return a, b
    return widened(here, a, b), widened(here, b, a)


def widened(here: Point, value: Value, sums: Value) -> Value:
    """A value in the dtype of its accumulator, where that is the dtype of its sums; else itself."""
    if sums.sums is None or value.weak is not None or not isinstance(value.type, SIMDType):
        return value
    if wide_dtype(value.dtype) is not sums.dtype:
        return value
    if sums.dtype is DType.uint64 and may_be_negative(here.evaluator, value):
        raise _below_zero(here, "a term of it", sums.sums)
    here.locate()
    return widen(here, value, sums.dtype)


def check_update(here: Point, old: Value, new: Value) -> None:
    """Refuses to subtract from a variable that is an unsigned sum.

    Raises:
        CompileError: EK0237.
    """
    if old.sums is None or old.type.dtype is not DType.uint64 or is_shipped(here.frame.file):
        return
    rest, seen = [(new, False)], set[int]()
    while rest:
        value, subtracts = rest.pop()
        if value is old and subtracts:
            raise _below_zero(here, "it", old.sums)
        if value.maker is not None and value.serial not in seen and value.maker.name in GROWING:
            seen.add(value.serial)
            rest += [(part, subtracts or value.maker.name in ("sub", "neg")) for part in value.maker.operands]


def _below_zero(here: Point, what: str, terms: DType) -> CompileError:
    text = f"a sum of {SIMDType(terms)} is a UInt64 here, and {what} may be below zero"
    return here.error("EK0237", text, got="UInt64", hint="begin the sum with int64(0) instead of a plain number")


def marked(result: Value, operands: Iterable[Value]) -> Value:
    """A result, which is an accumulator where one of its operands is one."""
    for operand in operands:
        if operand.sums is not None and operand.type.dtype is result.type.dtype:
            result.sums = operand.sums
    return result


def rounded(here: Point, value: object, dtype: DType) -> Any:
    """An accumulator of half floats as one of these, where `dtype` is theirs; any other value as it is."""
    if not (isinstance(value, Value) and value.sums is dtype and dtype.is_half() and isinstance(value.type, SIMDType)):
        return value
    here.locate()
    return here.builder.one("cast", [value], value.type.with_dtype(dtype))


def begun(here: Point, number: int | float, terms: Value) -> Any:
    """A compile-time number as the accumulator of such terms; itself where their sums are not wider."""
    type = type_of_sum(here, terms) if terms.weak is None else None
    if type is None or isinstance(number, bool) or (isinstance(number, float) and not type.dtype.is_float()):
        return number
    return _accumulator(here, number, type, terms.dtype)


def _accumulator(here: Point, number: int | float, type: SIMDType, narrow: DType) -> int | float | Value:
    low, high = (-3.4e38, 3.4e38) if type.dtype.is_float() else type.dtype.range
    if not low <= number <= high:
        return number
    value = here.builder.one("const", [], type, value=float(number) if type.dtype.is_float() else number)
    value.sums = narrow
    return value


def may_have_wrapped(value: Value) -> bool:
    """Whether a narrow integer was just computed by arithmetic that may wrap."""
    if value.maker is None or value.weak is not None or not value.dtype.is_integral():
        return False
    return wide_dtype(value.dtype) is not None and value.maker.opcode.name in GROWING


# *** which variables are accumulators ***


def accumulating(
    root: Region, ends: Mapping[Any, Value], stand_ins: Mapping[int, object], implicit: Set[int]
) -> set[Any]:
    """The keys whose new value in `ends` grows from their old one, for which a value in `stand_ins` stands.

    A key may grow by way of others, as in `a, b = b, a + b`. `implicit` has the casts that the author did not write.
    """
    sources = _sources(root)
    steps = {key: _reached(end, sources, stand_ins, implicit) for key, end in ends.items()}
    results = set()
    for key in ends:
        seen: set[tuple[object, bool]] = set()
        rest = [(key, False)]
        while rest:
            at, grew = rest.pop()
            for other, grows in steps.get(at, ()):
                state = (other, grew or grows)
                if state not in seen:
                    seen.add(state)
                    rest.append(state)
        if (key, True) in seen:
            results.add(key)
    return results


def _sources(root: Region) -> dict[int, list[Value]]:
    """What the arguments of regions, and the results of operations with regions, are made of; by serial."""
    sources: dict[int, list[Value]] = {}
    regions = [root]
    while regions:
        for op in regions.pop().ops:
            regions += op.regions
            if op.regions:
                _add_sources(op, sources)
    return sources


def _add_sources(op: Op, sources: dict[int, list[Value]]) -> None:
    """Values go round in the last arguments of the regions, and come out of their ends and the operation."""
    count = len(op.results)
    first = op.operands[len(op.operands) - count :] if op.opcode.name != "if" else []
    ends = [region.ops[-1].operands for region in op.regions if region.ops]
    for k, result in enumerate(op.results):
        values = [end[len(end) - count + k] for end in ends if len(end) >= count]
        values += first[k : k + 1]
        carried = [region.args[len(region.args) - count + k] for region in op.regions if len(region.args) >= count]
        for target in (result, *carried):
            sources.setdefault(target.serial, []).extend(value for value in values if value is not target)


def _reached(
    end: Value, sources: dict[int, list[Value]], stand_ins: Mapping[int, object], implicit: Set[int]
) -> set[tuple[Any, bool]]:
    """The keys that a value is made of, each with whether it grows on the way.

    What is compared, loaded or cast by the author is no longer the number that a variable began with.
    """
    results: set[tuple[Any, bool]] = set()
    seen: set[tuple[int, bool]] = set()
    rest = [(end, False)]
    while rest:
        value, grew = rest.pop()
        if (value.serial, grew) in seen:
            continue
        seen.add((value.serial, grew))
        if value.serial in stand_ins:
            results.add((stand_ins[value.serial], grew))
        elif value.serial in sources:
            rest += [(source, grew) for source in sources[value.serial]]
        elif value.maker is not None and not _ends_here(value, value.maker, implicit):
            grows = grew or value.maker.opcode.name in GROWING
            rest += [(operand, grows) for operand in value.maker.operands]
    return results


def _ends_here(value: Value, maker: Op, implicit: Set[int]) -> bool:
    if value.type.dtype is DType.bool or any(isinstance(operand.type, PointerType) for operand in maker.operands):
        return True
    return maker.opcode.name == "cast" and maker.operands[0].weak is None and value.serial not in implicit


# *** statements outside of loops ***


def begin_accumulators(here: Point, node: s.Assign | s.AugAssign, evaluate: Callable[[], Any]) -> None:
    """Makes accumulators of the compile-time numbers that an assignment grows; `evaluate` runs it.

    In `total = 0` and then `total += x[0]`, or in the first round of an unrolled loop.
    """
    frame = here.frame
    names = [] if here.evaluator.folding else _read_anew(node, frame.env)
    if not names or not is_runtime_expression(node.value, frame):
        return
    names = [name for name in names if _literals(name, frame.env[name])]
    before = {name: frame.env[name] for name in names}
    stand_ins = {key: _stand_in(value) for name in names for key, value in _literals(name, before[name])}

    def with_numbers(numbers: Mapping[Any, Any]) -> dict[str, Any]:
        def number(key: object, value: object) -> Any:
            return numbers.get(key, value)

        return {name: replaced(value, number, (name,)) for name, value in before.items()}

    region, after = Region(), dict[str, Any]()
    with (
        suppress(CompileError, Cascade, Abandoned, NeverReturns),
        frame.scope(env=frame.env | with_numbers(stand_ins), origins=dict(frame.origins)),
        here.evaluator.discarding(),
        here.evaluator.scope(checks=OFF, trial=True),
        here.builder.inside(region),
    ):
        evaluate()
        after = frame.env
    same = [name for name in before if name in after and same_shape(after[name], before[name])]
    ends = {key: value for name in same for key, value in numbers_of(after[name], (name,)) if isinstance(value, Value)}
    numbers = {value.serial: key for key, value in stand_ins.items()}
    grown = accumulating(region, ends, numbers, here.evaluator.implicit_casts)
    literals = {key: value for name in names for key, value in _literals(name, before[name])}
    frame.env.update(with_numbers({key: begun(here, literals[key], ends[key]) for key in grown if key in literals}))


def _read_anew(node: s.Assign | s.AugAssign, env: Mapping[str, object]) -> list[str]:
    """The variables that may hold compile-time numbers, and that an assignment reads and gives new values."""
    names = [name for name in _targets(node.target) if isinstance(env.get(name), int | float | tuple | StructValue)]
    if not names or isinstance(node, s.AugAssign):
        return names
    if isinstance(node.value, s.Tuple) and any(isinstance(item, s.Starred) for item in node.value.items):
        return []  # it grows by an item
    read = {part.id for part in s.walk(node.value) if isinstance(part, s.Name)}
    return [name for name in names if name in read]


def _targets(target: s.Expr) -> list[str]:
    """The variables that an assignment to a target changes."""
    if isinstance(target, s.Name):
        return [target.id]
    if isinstance(target, s.Tuple):
        return [name for item in target.items for name in _targets(item)]
    return _targets(target.value) if isinstance(target, s.Attribute) else []


def _literals(name: str, value: object) -> list[tuple[Any, Any]]:
    """The compile-time numbers in a variable, bools aside."""
    return [leaf for leaf in numbers_of(value, (name,)) if type(leaf[1]) in (int, float)]


def _stand_in(value: int | float) -> Value:
    weak = type(value).__name__
    return Value(SIMDType(DType.int64 if weak == "int" else DType.float64), weak=weak)
