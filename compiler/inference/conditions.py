"""Decides conditions, and chooses between values: truth, `and`, `or`, `select`.

See also `syntax.branches` (branches of statements).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl.diagnostics.errors import CompileError
from ...dsl.diagnostics.places import is_shipped
from ...dsl.frontend import syntax as s
from ...dsl.types.dtype import BOOL, DType, SIMDType
from ..ir.operations import ROWS
from ..ir.program import PointerType, Region, Value
from .accumulators import marked, together
from .arithmetic import binary
from .calls.struct_methods import special
from .conversion import DEFAULTS, coerce, unify, weak_kind, widest_kind
from .evaluator import Evaluator, Point
from .recovery import Cascade
from .values.aggregates import parts_of, same_constant, same_kind, with_parts
from .values.compile_time import Poisoned, StructValue
from .values.describe import describe
from .values.flow import NeverReturns, is_pure


def compare_objects(here: Point, op: str, a: object, b: object) -> bool:
    """Equality of dtypes, types, strings and None, all known at compile time."""
    if op not in ("eq", "ne"):
        symbol = ROWS[op].symbol
        raise here.error("EK0202", f"cannot compute {describe(a)} {symbol} {describe(b)}")
    a = a.dtype if isinstance(a, SIMDType) and a.is_scalar else a
    b = b.dtype if isinstance(b, SIMDType) and b.is_scalar else b
    comparable = (DType, SIMDType, str, bool, int, float, complex, tuple)
    if a is not None and b is not None and not (isinstance(a, comparable) and isinstance(b, comparable)):
        text = f"cannot compute {describe(a)} {ROWS[op].symbol} {describe(b)}"
        raise here.error("EK0202", text)
    return bool((a == b) == (op == "eq"))


def short_circuit(here: Point, op: str, value: object, right: Callable[[], Any], operand: s.Expr) -> Any:
    """`value op right()`, where `right` is evaluated within a branch unless it is cheap and harmless."""
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and not value.type.is_scalar:
        return binary(here, f"{op}_", value, right(), (operand, operand))  # lanes decide for themselves
    truthy = truth(here.on(operand), value)
    if not isinstance(truthy, Value):
        return right() if truthy == (op == "and") else value
    region = Region()
    with here.builder.inside(region):
        here.evaluator.ranges.assume(truthy, op == "and")
        try:
            other = truth(here.on(operand), right())
        except NeverReturns:
            other = here.builder.const(False, BOOL)
    here.locate()
    if not isinstance(other, Value):
        other = here.builder.const(other, BOOL)
        region = Region()
    if is_pure(region):
        splice(here.evaluator, region)
        return here.builder.row(f"{op}_", [truthy, other])
    return _branch(here.evaluator, truthy, region, other, op)


def _branch(evaluator: Evaluator, value: Value, region: Region, right: Value, op: str) -> Value:
    builder = evaluator.builder
    with builder.inside(region):
        builder.end([right])
    short = Region()
    with builder.inside(short):
        builder.end([builder.const(op == "or", BOOL)])
    regions = [region, short] if op == "and" else [short, region]
    return builder.add("if", [value], [BOOL], regions)[0]


def decision(here: Point, runtime: bool = False) -> Any:
    """The truth of an expression that decides what is run; where it is poisoned, any Bool of the running program.

    `runtime` says that it is decided at run time, whatever the expression is made of.

    Raises:
        Cascade: it is poisoned, and may be known at compile time.
    """
    try:
        assert isinstance(here.node, s.Expr)
        value = here.expr_or_poison(here.node)
    except NeverReturns:
        if not runtime:
            raise
        return here.builder.const(False, BOOL)
    if not isinstance(value, Poisoned):
        try:
            return truth(here, value)
        except CompileError as error:
            here.evaluator.collect(error, here.frame)
            value = Poisoned(isinstance(value, Value))
    if not (runtime or value.runtime) or is_shipped(here.frame.file):
        raise Cascade
    return Value(BOOL)


_HAVE_TRUTH = (bool, int, float, complex, str, tuple)


def truth(here: Point, value: object) -> Any:
    """A condition: a Bool, or a compile-time value's truth."""
    if isinstance(value, Value):
        if value.type == BOOL:
            # Sizes may be known: then so is the condition, and only one branch is compiled.
            if value.const is not None:
                here.evaluator.pruned |= not is_shipped(here.frame.file)
            return value if value.const is None else bool(value.const)
        hint = "compare it with a number, for instance `!= 0`" if isinstance(value.type, SIMDType) else None
        if value.dtype is DType.bool and isinstance(value.type, SIMDType):
            hint = "a mask has one bool per lane: use `.any()` or `.all()`, or select(mask, x, y)"
        raise here.error("EK0209", f"a condition has to be a Bool, not {describe(value)}", hint=hint)
    if isinstance(value, StructValue):
        own = special(here, value, "__bool__", [])
        if own is not NotImplemented:
            return truth(here, own)
    if not (value is None or isinstance(value, _HAVE_TRUTH)):
        raise here.error("EK0209", f"a condition has to be a Bool, not {describe(value)}")
    return bool(value)


def splice(evaluator: Evaluator, region: Region) -> None:
    """Moves a region's operations to the present point."""
    evaluator.builder.region.ops.extend(op for op in region.ops)


def joint_type(here: Point, what: str, a: object, b: object, nodes: tuple[s.SyntaxNode, s.SyntaxNode]) -> SIMDType:
    """The one type that two alternatives have, after adoption of compile-time numbers."""
    kind = open_kind(a, b)
    if kind is not None:
        return DEFAULTS[kind]
    probe = Region()
    with here.builder.inside(probe):
        left, _ = unify(here, what, a, b, nodes)
    assert isinstance(left.type, SIMDType)
    return left.type


def select(here: Point, test: Value, a: object, b: object, nodes: tuple[s.SyntaxNode, s.SyntaxNode]) -> Any:
    """`a` where `test`, else `b`; tuples and structs part by part."""
    if same_constant(a, b):
        return a
    if same_kind(a, b):
        pairs = zip(parts_of(a) or (), parts_of(b) or (), strict=True)
        return with_parts(a, tuple(select(here, test, x, y, nodes) for x, y in pairs))
    if isinstance(a, Value) and isinstance(b, Value) and a.type == b.type and isinstance(a.type, PointerType):
        return here.builder.one("select", [test, a, b], a.type)
    if isinstance(a, Value) and isinstance(b, Value):
        a, b = together(here, a, b)
    type = joint_type(here, "if/else", a, b, nodes)
    assert isinstance(test.type, SIMDType)
    if test.type.width > type.width:
        type = SIMDType(type.dtype, test.type.width)
    then = coerce(here.on(nodes[0]), a, type)
    otherwise = coerce(here.on(nodes[1]), b, type)
    if type.width > test.type.width:
        test = here.builder.one("splat", [test], SIMDType(DType.bool, type.width))
    result = here.builder.one("select", [test, then, otherwise], type)
    result.weak = open_kind(a, b)
    return marked(result, (then, otherwise))


def open_kind(a: object, b: object) -> str | None:
    """The kind of number that is chosen from two that may both still adopt a type, or None."""
    kinds = (weak_kind(a), weak_kind(b))
    if None in kinds:
        return None
    return widest_kind(kinds)
