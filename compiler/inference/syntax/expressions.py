"""The value of each kind of expression.

Registers a handler for every expression node of `dsl.frontend.syntax`. See `inference.evaluator` for what calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....dsl.diagnostics.errors import CompileError, did_you_mean
from ....dsl.frontend import syntax as s
from ....dsl.types.dtype import DType, SIMDType
from ...ir.program import Value
from .. import dispatch
from ..arithmetic import binary, unary
from ..conditions import compare_objects, short_circuit, truth
from ..dispatch import is_own, look_into
from ..evaluator import NAMED_VALUES, Call, Evaluator, expression
from ..members.table import attribute
from ..members.tensors import subscript
from ..names import global_value
from ..recovery import Cascade
from ..values.compile_time import Closure, Frame, Poisoned, StructValue, StubRef, Undefined, is_poisoned
from ..values.describe import describe
from ..values.flow import ABSENT, Stopped
from ..values.index import Index
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
    if isinstance(value, StubRef) and value.name in NAMED_VALUES:
        evaluator.locate(node, frame)
        return NAMED_VALUES[value.name](Call(evaluator, node, frame))
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
    value = evaluator.caught(lambda: dispatch.call(evaluator, callee, args, keywords, node, frame), node, frame)
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
    return Closure(node, frame.snapshot())
