"""Evaluates each kind of expression.

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
from ..dispatch import evaluate_uncalled, is_author_function
from ..evaluator import NAMED_VALUES, Point, expression
from ..members.table import attribute
from ..members.tensors import subscript
from ..names import global_value
from ..recovery import Cascade
from ..values.compile_time import Closure, Poisoned, StructValue, StubRef, Undefined, is_poisoned
from ..values.describe import describe
from ..values.flow import ABSENT, NeverReturns
from ..values.index import BodyIndex
from ..values.tensors import KernelTensor


@expression(s.Constant)
def constant(here: Point, node: s.Constant) -> Any:
    return node.value


@expression(s.Wrong)
def wrong(here: Point, node: s.Wrong) -> Poisoned:
    return Poisoned()


@expression(s.Name)
def name(here: Point, node: s.Name) -> Any:
    env = here.frame.env
    if node.id not in env:
        known = [n for n, v in env.items() if not isinstance(v, Undefined | Poisoned) and n.isidentifier()]
        raise here.error("EK0101", f"'{node.id}' has no value yet", hint=did_you_mean(node.id, known))
    value = env[node.id]
    if isinstance(value, Undefined):
        error = value.error(here.frame.place(node))
        env[node.id] = Poisoned(runtime=True)
        raise error
    return value


@expression(s.Global)
def global_name(here: Point, node: s.Global) -> Any:
    value = global_value(here, here.frame.program.globals[node.index])
    if isinstance(value, StubRef) and value.name in NAMED_VALUES:
        here.locate()
        return NAMED_VALUES[value.name](here.on(node))
    return value


@expression(s.Attribute)
def attribute_of(here: Point, node: s.Attribute) -> Any:
    owner = here.expr(node.value)
    return attribute(here, owner, node)


@expression(s.Subscript)
def subscript_of(here: Point, node: s.Subscript) -> Any:
    owner, index = here.expr_or_poison(node.value), here.expr_or_poison(node.index)
    if is_poisoned((owner, index)):
        if isinstance(owner, KernelTensor) and not any(isinstance(part, s.Slice) for part in s.walk(node.index)):
            return Value(SIMDType(owner.dtype))  # whichever element it is
        raise Cascade
    here.locate()
    return subscript(here, owner, index, node)


@expression(s.Slice)
def slice_of(here: Point, node: s.Slice) -> Any:
    nodes = (node.lower, node.upper, node.step)
    given = iter(here.values([n for n in nodes if n is not None]))
    return slice(*(None if n is None else next(given) for n in nodes))


@expression(s.Call)
def call(here: Point, node: s.Call) -> Any:
    callee = here.expr_or_poison(node.function)
    args = starred_values(here, node.arguments)
    keywords = {k.name: here.expr_or_poison(k.value) for k in node.keywords} if node.keywords else {}
    here.locate()
    value = here.recover(lambda: dispatch.call(here, callee, args, keywords))
    if isinstance(value, Poisoned) and not is_author_function(callee):
        evaluate_uncalled(here, [*args, *keywords.values()])
    if value is ABSENT:
        raise NeverReturns
    return value


def starred_values(here: Point, nodes: tuple[s.Expr, ...]) -> list[Any]:
    """The values of arguments or items, those under a star one by one; a poisoned one under a star is one value."""
    out: list[Any] = []
    for node in nodes:
        if not isinstance(node, s.Starred):
            out.append(here.expr_or_poison(node))
            continue
        value = here.expr_or_poison(node.value)
        if isinstance(value, Poisoned):
            out.append(value)
        else:
            out.extend(items(here.on(node), value))
    return out


def items(here: Point, value: object) -> tuple[Any, ...]:
    """The items of a tuple or an index, for stars and unpacking."""
    if isinstance(value, BodyIndex):
        return value.components(here.builder)
    if isinstance(value, tuple):
        return value
    raise here.error("EK0207", f"{describe(value)} cannot be unpacked")


@expression(s.Binary)
def binary_of(here: Point, node: s.Binary) -> Any:
    left, right = here.values((node.left, node.right))
    return binary(here, node.op, left, right, (node.left, node.right))


@expression(s.Unary)
def unary_of(here: Point, node: s.Unary) -> Any:
    value = here.expr(node.operand)
    if node.op == "not_" and isinstance(value, StructValue):
        value = truth(here.on(node.operand), value)
    if node.op == "pos" and not isinstance(value, StructValue):
        return value
    return unary(here, node.op, value)


@expression(s.Compare)
def compare(here: Point, node: s.Compare) -> Any:
    """`a < b <= c` is `a < b and b <= c` with b computed once, and c only if a < b."""
    return _chain(here, node, 0, here.expr_or_poison(node.operands[0]))


_OBJECTS = (DType, SIMDType, str, type(None))


def _chain(here: Point, node: s.Compare, number: int, a: object) -> Any:
    """The comparisons from `number` on, `a` being the left operand of the first; each next one lies within the last."""
    op, pair = node.ops[number], (node.operands[number], node.operands[number + 1])
    b = here.expr_or_poison(pair[1])
    if is_poisoned((a, b)):
        here.values(node.operands[number + 2 :])
        raise Cascade
    if isinstance(a, _OBJECTS) or isinstance(b, _OBJECTS):
        first: Any = compare_objects(here, op, a, b)
    else:
        first = binary(here, op, a, b, pair)
    if number + 1 == len(node.ops):
        return first

    def rest() -> Any:
        return _chain(here, node, number + 1, b)

    return short_circuit(here, "and", first, rest, pair[1])


@expression(s.Logical)
def logical(here: Point, node: s.Logical) -> Any:
    """`and`, `or`: the right side is computed only when the left one does not decide."""
    value = here.expr_or_poison(node.operands[0])
    if isinstance(value, Poisoned):
        if value.runtime:
            here.values(node.operands[1:])
        raise Cascade
    for number, operand in enumerate(node.operands[1:], 2):

        def right(operand: s.Expr = operand) -> Any:
            return here.expr(operand)

        def both(value: object = value, operand: s.Expr = operand, right: Callable[[], Any] = right) -> Any:
            return short_circuit(here, node.op, value, right, operand)

        value = here.recover(both)
        if isinstance(value, Poisoned):
            here.values(node.operands[number:])
            raise Cascade
    return value


@expression(s.Tuple)
def tuple_of(here: Point, node: s.Tuple) -> Any:
    results = tuple(starred_values(here, node.items))
    if is_poisoned(results):
        raise Cascade
    return results


@expression(s.Starred)
def starred(here: Point, node: s.Starred) -> Any:
    error: CompileError = here.error("EK0102", "a star has no meaning here")
    raise error


@expression(s.Lambda)
def lambda_of(here: Point, node: s.Lambda) -> Closure:
    return Closure(node, here.frame.snapshot())
