"""The value of each kind of expression.

Registers a handler for every expression node of `dsl.frontend.syntax`. See `inference.evaluator` for what calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.errors import CompileError, did_you_mean
from ....dsl.diagnostics.places import is_shipped
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import BOOL, DType, SIMDType
from ...ir.operations import ROWS
from ...ir.program import PointerType, Region, Value
from ..calls.struct_methods import special
from ..conversion import DEFAULTS, binary, coerce, unary, unify, weak_kind
from ..evaluator import Evaluator, expression
from ..language.grids import gpu_value
from ..members.scalars import attribute
from ..members.tensors import subscript
from ..mistaken import is_own, look_into
from ..names import global_value
from ..recovery import Cascade, Poisoned, is_poisoned
from ..values.aggregates import parts_of, same_constant, same_kind, with_parts
from ..values.compile_time import Closure, Frame, Index, StructValue, StubRef, Undefined, describe
from ..values.flow import ABSENT, Stopped, is_pure
from ..values.tensors import Tensor


@expression(s.Constant)
def constant(evaluator: Evaluator, node: s.Constant, frame: Frame) -> Any:
    return node.value


@expression(s.Wrong)
def wrong(evaluator: Evaluator, node: s.Wrong, frame: Frame) -> Poisoned:
    return Poisoned()


@expression(s.Name)
def name(evaluator: Evaluator, node: s.Name, frame: Frame) -> Any:
    if node.id not in frame.env:
        known = [n for n, v in frame.env.items() if not isinstance(v, Undefined | Poisoned) and n.isidentifier()]
        raise evaluator.error("EK0101", f"'{node.id}' has no value yet", node, frame, hint=did_you_mean(node.id, known))
    value = frame.env[node.id]
    if isinstance(value, Undefined):
        error = value.error(frame.place(node))
        frame.env[node.id] = Poisoned(runtime=True)
        raise error
    return value


@expression(s.Global)
def global_name(evaluator: Evaluator, node: s.Global, frame: Frame) -> Any:
    value = global_value(evaluator, frame.program.globals[node.index], frame, node)
    if isinstance(value, StubRef) and value.name.startswith("gpu.") and value.name.count(".") == 2:
        evaluator.locate(node, frame)
        return gpu_value(evaluator, value.name.removeprefix("gpu."), node, frame)
    return value


@expression(s.Attribute)
def attribute_of(evaluator: Evaluator, node: s.Attribute, frame: Frame) -> Any:
    owner = evaluator.expr(node.value, frame)
    return attribute(evaluator, owner, node, frame)


@expression(s.Subscript)
def subscript_of(evaluator: Evaluator, node: s.Subscript, frame: Frame) -> Any:
    owner, index = evaluator.tried(node.value, frame), evaluator.tried(node.index, frame)
    if is_poisoned((owner, index)):
        if isinstance(owner, Tensor) and not any(isinstance(part, s.Slice) for part in s.walk(node.index)):
            return Value(SIMDType(owner.dtype))  # whichever element it is
        raise Cascade
    evaluator.locate(node, frame)
    return subscript(evaluator, owner, index, node, frame)


@expression(s.Slice)
def slice_of(evaluator: Evaluator, node: s.Slice, frame: Frame) -> Any:
    nodes = (node.lower, node.upper, node.step)
    given = iter(evaluator.values([n for n in nodes if n is not None], frame))
    return slice(*(None if n is None else next(given) for n in nodes))


@expression(s.Call)
def call(evaluator: Evaluator, node: s.Call, frame: Frame) -> Any:
    callee = evaluator.tried(node.function, frame)
    args = starred_values(evaluator, node.arguments, frame)
    keywords = {k.name: evaluator.tried(k.value, frame) for k in node.keywords}
    evaluator.locate(node, frame)
    value = evaluator.caught(lambda: evaluator.call(callee, args, keywords, node, frame), node, frame)
    if isinstance(value, Poisoned) and not is_own(callee):
        look_into(evaluator, [*args, *keywords.values()], node, frame)
    if value is ABSENT:
        raise Stopped
    return value


def starred_values(evaluator: Evaluator, nodes: tuple[s.Expr, ...], frame: Frame) -> list[Any]:
    """The values of arguments or items, those under a star one by one; a poisoned one under a star is one value."""
    out: list[Any] = []
    for node in nodes:
        value = evaluator.tried(node.value if isinstance(node, s.Starred) else node, frame)
        if isinstance(node, s.Starred) and not isinstance(value, Poisoned):
            out.extend(items(evaluator, value, node, frame))
        else:
            out.append(value)
    return out


def items(evaluator: Evaluator, value: Any, node: s.Node, frame: Frame) -> tuple[Any, ...]:
    """The items of a tuple or an index, for stars and unpacking."""
    if isinstance(value, Index):
        return value.components(evaluator.builder)
    if isinstance(value, tuple):
        return value
    raise evaluator.error("EK0207", f"{describe(value)} cannot be unpacked", node, frame)


@expression(s.Binary)
def binary_of(evaluator: Evaluator, node: s.Binary, frame: Frame) -> Any:
    left, right = evaluator.values((node.left, node.right), frame)
    return binary(evaluator, node.op, left, right, (node.left, node.right), node, frame)


@expression(s.Unary)
def unary_of(evaluator: Evaluator, node: s.Unary, frame: Frame) -> Any:
    value = evaluator.expr(node.operand, frame)
    if node.op == "not_" and isinstance(value, StructValue):
        value = truth(evaluator, value, node.operand, frame)
    if node.op == "pos" and not isinstance(value, StructValue):
        return value
    return unary(evaluator, node.op, value, node, frame)


@expression(s.Compare)
def compare(evaluator: Evaluator, node: s.Compare, frame: Frame) -> Any:
    """`a < b <= c` is `a < b and b <= c` with b computed once, and c only if a < b."""
    return _chain(evaluator, node, frame, 0, evaluator.tried(node.operands[0], frame))


def _chain(evaluator: Evaluator, node: s.Compare, frame: Frame, number: int, a: Any) -> Any:
    """The comparisons from `number` on, `a` being the left operand of the first; each next one lies within the last."""
    op, pair = node.ops[number], (node.operands[number], node.operands[number + 1])
    b = evaluator.tried(pair[1], frame)
    if is_poisoned((a, b)):
        evaluator.values(node.operands[number + 2 :], frame)
        raise Cascade
    objects = (DType, SIMDType, str, type(None))
    if isinstance(a, objects) or isinstance(b, objects):
        first: Any = compare_objects(evaluator, op, a, b, node, frame)
    else:
        first = binary(evaluator, op, a, b, pair, node, frame)
    if number + 1 == len(node.ops):
        return first

    def rest() -> Any:
        return _chain(evaluator, node, frame, number + 1, b)

    return short_circuit(evaluator, "and", first, rest, pair[1], node, frame)


def compare_objects(evaluator: Evaluator, op: str, a: Any, b: Any, node: s.Node, frame: Frame) -> bool:
    """Equality of dtypes, types, strings and None, all known at compile time."""
    if op not in ("eq", "ne"):
        symbol = ROWS[op].symbol
        raise evaluator.error("EK0202", f"cannot compute {describe(a)} {symbol} {describe(b)}", node, frame)
    a = a.dtype if isinstance(a, SIMDType) and a.is_scalar else a
    b = b.dtype if isinstance(b, SIMDType) and b.is_scalar else b
    comparable = (DType, SIMDType, str, bool, int, float, tuple)
    if a is not None and b is not None and not (isinstance(a, comparable) and isinstance(b, comparable)):
        text = f"cannot compute {describe(a)} {ROWS[op].symbol} {describe(b)}"
        raise evaluator.error("EK0202", text, node, frame)
    return bool((a == b) == (op == "eq"))


@expression(s.Logical)
def logical(evaluator: Evaluator, node: s.Logical, frame: Frame) -> Any:
    """`and`, `or`: the right side is computed only when the left one does not decide."""
    value = evaluator.tried(node.operands[0], frame)
    if isinstance(value, Poisoned):
        if value.runtime:
            evaluator.values(node.operands[1:], frame)
        raise Cascade
    for number, operand in enumerate(node.operands[1:], 2):

        def right(operand: s.Expr = operand) -> Any:
            return evaluator.expr(operand, frame)

        def both(value: Any = value, operand: s.Expr = operand, right: Callable[[], Any] = right) -> Any:
            return short_circuit(evaluator, node.op, value, right, operand, node, frame)

        value = evaluator.caught(both, node, frame)
        if isinstance(value, Poisoned):
            evaluator.values(node.operands[number:], frame)
            raise Cascade
    return value


def short_circuit(
    evaluator: Evaluator, op: str, value: Any, right: Callable[[], Any], operand: s.Expr, node: s.Node, frame: Frame
) -> Any:
    """`value op right()`, where `right` is evaluated within a branch unless it is cheap and harmless."""
    if isinstance(value, Value) and isinstance(value.type, SIMDType) and not value.type.is_scalar:
        return binary(
            evaluator, f"{op}_", value, right(), (operand, operand), node, frame
        )  # lanes decide for themselves
    truthy = truth(evaluator, value, operand, frame)
    if not isinstance(truthy, Value):
        return right() if truthy == (op == "and") else value
    region = Region()
    with evaluator.builder.inside(region):
        evaluator.ranges.assume(truthy, op == "and")
        try:
            other = truth(evaluator, right(), operand, frame)
        except Stopped:
            other = evaluator.builder.const(False, BOOL)
    evaluator.locate(node, frame)
    if not isinstance(other, Value):
        other = evaluator.builder.const(other, BOOL)
        region = Region()
    if is_pure(region):
        splice(evaluator, region)
        return evaluator.builder.row(f"{op}_", [truthy, other])
    return _branch(evaluator, truthy, region, other, op)


def _branch(evaluator: Evaluator, value: Value, region: Region, right: Value, op: str) -> Value:
    builder = evaluator.builder
    with builder.inside(region):
        builder.end([right])
    short = Region()
    with builder.inside(short):
        builder.end([builder.const(op == "or", BOOL)])
    regions = [region, short] if op == "and" else [short, region]
    return builder.add("if", [value], [BOOL], regions)[0]


def decision(evaluator: Evaluator, node: s.Expr, frame: Frame, runtime: bool = False) -> Any:
    """The truth of an expression that decides what is run; where it is poisoned, any Bool of the running program.

    `runtime` says that it is decided at run time, whatever the expression is made of.

    Raises:
        Cascade: it is poisoned, and may be known at compile time.
    """
    try:
        value = evaluator.tried(node, frame)
    except Stopped:
        if not runtime:
            raise
        return evaluator.builder.const(False, BOOL)
    if not isinstance(value, Poisoned):
        try:
            return truth(evaluator, value, node, frame)
        except CompileError as error:
            evaluator.note(error, frame)
            value = Poisoned(isinstance(value, Value))
    if not (runtime or value.runtime) or is_shipped(frame.file):
        raise Cascade
    return Value(BOOL)


def truth(evaluator: Evaluator, value: Any, node: s.Node, frame: Frame) -> Any:
    """A condition: a Bool, or a compile-time value's truth."""
    if isinstance(value, Value):
        if value.type == BOOL:
            # Sizes may be known: then so is what is asked of them, and only one branch is compiled.
            if value.const is not None:
                evaluator.pruned |= not is_shipped(frame.file)
            return value if value.const is None else bool(value.const)
        hint = "compare it with a number, for instance `!= 0`" if isinstance(value.type, SIMDType) else None
        if value.dtype is DType.bool and isinstance(value.type, SIMDType):
            hint = "a mask has a truth for each lane: ask `.any()` or `.all()`, or use select(mask, x, y)"
        raise evaluator.error("EK0209", f"a condition has to be a Bool, not {describe(value)}", node, frame, hint=hint)
    if isinstance(value, StructValue):
        own = special(evaluator, value, "__bool__", [], node, frame)
        if own is not NotImplemented:
            return truth(evaluator, own, node, frame)
    if not (value is None or isinstance(value, bool | int | float | str | tuple)):
        raise evaluator.error("EK0209", f"a condition has to be a Bool, not {describe(value)}", node, frame)
    return bool(value)


def splice(evaluator: Evaluator, region: Region) -> None:
    """Moves a region's operations to the present point."""
    evaluator.builder.region.ops.extend(op for op in region.ops)


def joint_type(
    evaluator: Evaluator, what: str, a: Any, b: Any, nodes: tuple[s.Expr, s.Expr], node: Any, frame: Frame
) -> SIMDType:
    """The one type that two alternatives have, after adoption of compile-time numbers."""
    kind = open_kind(a, b)
    if kind is not None:
        return DEFAULTS[kind]
    probe = Region()
    with evaluator.builder.inside(probe):
        left, _ = unify(evaluator, what, a, b, nodes, node, frame)
    assert isinstance(left.type, SIMDType)
    return left.type


def select(
    evaluator: Evaluator, test: Value, a: Any, b: Any, nodes: tuple[s.Expr, s.Expr], node: Any, frame: Frame
) -> Any:
    """`a` where `test`, else `b`; tuples and structs part by part."""
    if same_constant(a, b):
        return a
    if same_kind(a, b):
        pairs = zip(parts_of(a) or (), parts_of(b) or (), strict=True)
        return with_parts(a, tuple(select(evaluator, test, x, y, nodes, node, frame) for x, y in pairs))
    if isinstance(a, Value) and isinstance(b, Value) and a.type == b.type and isinstance(a.type, PointerType):
        return evaluator.builder.one("select", [test, a, b], a.type)
    type = joint_type(evaluator, "if/else", a, b, nodes, node, frame)
    assert isinstance(test.type, SIMDType)
    if test.type.width > type.width:
        type = SIMDType(type.dtype, test.type.width)
    then = coerce(evaluator, a, type, nodes[0], frame)
    otherwise = coerce(evaluator, b, type, nodes[1], frame)
    if type.width > test.type.width:
        test = evaluator.builder.one("splat", [test], SIMDType(DType.bool, type.width))
    result = evaluator.builder.one("select", [test, then, otherwise], type)
    result.weak = open_kind(a, b)
    return result


def open_kind(a: Any, b: Any) -> str | None:
    """`bool`, `int` or `float` when both alternatives may still adopt a type: so may what is chosen from them."""
    kinds = (weak_kind(a), weak_kind(b))
    if None in kinds:
        return None
    return "float" if "float" in kinds else "int" if "int" in kinds else "bool"


@expression(s.Tuple)
def tuple_of(evaluator: Evaluator, node: s.Tuple, frame: Frame) -> Any:
    found = tuple(starred_values(evaluator, node.items, frame))
    if is_poisoned(found):
        raise Cascade
    return found


@expression(s.Starred)
def starred(evaluator: Evaluator, node: s.Starred, frame: Frame) -> Any:
    error: CompileError = evaluator.error("EK0102", "a star has no meaning here", node, frame)
    raise error


@expression(s.Lambda)
def lambda_of(evaluator: Evaluator, node: s.Lambda, frame: Frame) -> Any:
    return Closure(node, snapshot(frame))


def snapshot(frame: Frame) -> Frame:
    """The frame as a closure keeps it: values as they are now, not as they will be."""
    return Frame(
        dict(frame.env),
        frame.program,
        frame.file,
        frame.typevars,
        frame.caller,
        frame.path,
        frame.stack,
        dict(frame.origins),
    )
