"""Replaces nodes by simpler ones that give the same bits, by a table of rules.

    x * 1                           x
    permute(permute(x))             one permute, or x
    reshape(reshape(x))             one reshape, or x
    cast(cast(x, wider), dtype)     cast(x, dtype), or x
    slice(concat2(x, y))            a slice of x, where it lies in x

A rule holds for every dtype and every element, NaN, infinities and zeros of both signs included: `x + 0` stays for
floats, since -0.0 + 0 is 0.0, and `x + -0.0` goes. The operands of a rule are the new ones, so one pass suffices for
chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...dsl.types.dtype import DType
from ..ir import Constant, GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.tensor_type import ShapedType
from .merge_equal import own_memory


def simplify(ir: GraphIR) -> GraphIR:
    """The graph with every node that a rule applies to replaced."""
    return _Simplifying(ir).run()


@dataclass(frozen=True)
class Rule:
    """A row of `RULES`.

    Attributes:
        name: what the rule is called in dumps and tests.
        ops: the names of the shipped ops that it may apply to.
        apply: given the graph that is written and a node with new operands, the value that stands for the node's
            result; None where the rule does not apply.
    """

    name: str
    ops: tuple[str, ...]
    apply: Callable[[_Simplifying, Node], int | None]


class _Simplifying(Rewriting):
    """Writes a graph with the rules applied; what the rules call is here."""

    pass_name = "simplify"

    def __init__(self, ir: GraphIR) -> None:
        super().__init__(ir)
        self.fixed = own_memory(ir)
        self.outputs = set(ir.outputs)
        self.given: set[int] = set()  # values of the new graph that are outputs

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or not item.kernel.shipped or not self.fixed.isdisjoint(item.results):
            return self.keep(item)
        rules = BY_OP.get(item.name, ())
        if not rules or len(item.results) != 1 or self.ir.ordered(item):
            return self.keep(item)
        operands = self.new(item.operands)
        node = Node(item.kernel, item.parameters, operands, item.out_types, (), item.place)
        for rule in rules:
            value = rule.apply(self, node)
            if value is not None and self.types[value] == item.out_types[0] and self._may_stand(value, item):
                return self.replace(item, (value,))
        self.keep(item)
        self._mark(item)
        return None

    def _may_stand(self, value: int, item: Item) -> bool:
        """Whether a value may stand for an item's result: each output of the graph has memory of its own."""
        if self.outputs.isdisjoint(item.results):
            return True
        if value in self.given or not isinstance(self.maker(value), Node):
            return False
        self.given.add(value)
        return True

    def _mark(self, item: Item) -> None:
        if not self.outputs.isdisjoint(item.results):
            self.given.update(self.new(item.results))

    # *** what the rules call ***

    def scalar(self, value: int) -> np.generic | None:
        """The one number that all elements of a value are, where that is known."""
        while (maker := self.made_by(value, "broadcast_to", "reshape")) is not None:
            value = maker.operands[0]
        constant = self.maker(value)
        if not isinstance(constant, Constant) or constant.array.size != 1 or constant.array.dtype.kind not in "biuf":
            return None
        number: np.generic = constant.array.reshape(-1)[0]
        return number if constant.type.dtype == DType.from_numpy(constant.array.dtype) else None

    def like(self, node: Node, operand: int, **parameters: object) -> int:
        """A node of the same kernel and result on another operand."""
        changed = tuple((name, parameters.get(name, value)) for name, value in node.parameters)
        (result,) = self.add(Node(node.kernel, changed, (operand,), node.out_types, (0,), node.place))
        return result


# *** numbers ***


def _is_zero_that_adds_nothing(number: np.generic, type: ShapedType, added: bool) -> bool:
    """Whether x + number (or x - number) is x for every x: of floats, -0.0 is for sums, 0.0 for differences."""
    if number != 0:
        return False
    return type.dtype.is_integral() or (type.dtype.is_float() and (math.copysign(1, float(number)) < 0) == added)


def _neutral(right: bool, is_neutral: Callable[[np.generic, ShapedType], bool]) -> Callable[..., int | None]:
    """A rule: an operand that changes nothing leaves the other one; the left one, too, where not only the right may."""

    def apply(graph: _Simplifying, node: Node) -> int | None:
        x, y = node.operands
        for kept, other in ((x, y),) if right else ((x, y), (y, x)):
            number = graph.scalar(other)
            if number is not None and is_neutral(number, graph.types[other]):
                return kept
        return None

    return apply


def _one(number: np.generic, _: ShapedType) -> bool:
    return bool(number == 1)


def _same_twice(graph: _Simplifying, node: Node) -> int | None:
    """max(x, x), x & x, where(c, x, x)."""
    x, y = node.operands[-2:]
    return x if x == y else None


def _again(graph: _Simplifying, node: Node) -> int | None:
    """abs(abs(x)): doing it once more changes nothing."""
    return node.operands[0] if graph.made_by(node.operands[0], node.name) is not None else None


def _undone(graph: _Simplifying, node: Node) -> int | None:
    """negate(negate(x))."""
    inner = graph.made_by(node.operands[0], node.name)
    return None if inner is None else inner.operands[0]


# *** dtypes ***


def _cast_of_cast(graph: _Simplifying, node: Node) -> int | None:
    """A cast of a lossless cast is one cast of what that had, or nothing."""
    operand = node.operands[0]
    if graph.types[operand].dtype == node.out_types[0].dtype:
        return operand
    inner = graph.made_by(operand, "cast")
    if inner is None:
        return None
    source = inner.operands[0]
    first, middle, last = graph.types[source].dtype, inner.out_types[0].dtype, node.out_types[0].dtype
    if not _is_lossless(first, middle):
        return None
    if first == last:
        return source
    return graph.like(node, source) if first.is_float() == middle.is_float() else None


def _is_lossless(source: DType, target: DType) -> bool:
    """Whether a cast keeps every value of a plain number."""
    if not (_is_plain(source) and _is_plain(target)):
        return False
    return bool(np.can_cast(source.to_numpy(), target.to_numpy(), "safe"))


def _is_plain(dtype: DType) -> bool:
    return not dtype.is_storage() and dtype.to_numpy().kind in "iuf"


# *** moves ***


def _move_of_nothing(graph: _Simplifying, node: Node) -> int | None:
    """A reshape or broadcast to the shape that is there."""
    operand = node.operands[0]
    return operand if graph.types[operand] == node.out_types[0] else None


def _reshape_of_reshape(graph: _Simplifying, node: Node) -> int | None:
    inner = graph.made_by(node.operands[0], "reshape")
    if inner is None:
        return None
    source = inner.operands[0]
    return source if graph.types[source] == node.out_types[0] else graph.like(node, source)


def _broadcast_of_broadcast(graph: _Simplifying, node: Node) -> int | None:
    inner = graph.made_by(node.operands[0], "broadcast_to")
    return None if inner is None else graph.like(node, inner.operands[0])


def _permute(graph: _Simplifying, node: Node) -> int | None:
    order, operand = node.order, node.operands[0]
    if list(order) == sorted(order):
        return operand
    inner = graph.made_by(operand, "permute")
    if inner is None:
        return None
    before = inner.order
    joined = tuple(before[axis] for axis in order)
    if list(joined) == sorted(joined):
        return inner.operands[0]
    return graph.like(node, inner.operands[0], order=joined)


def _slice(graph: _Simplifying, node: Node) -> int | None:
    """A slice of everything, and one that lies within one part of a concat."""
    parameters = dict(node.parameters)
    starts, steps = ([int(n) for n in parameters[key].split(",") if n] for key in ("starts", "steps"))
    operand = node.operands[0]
    if not any(starts) and all(step == 1 for step in steps) and graph.types[operand] == node.out_types[0]:
        return operand
    joined = graph.made_by(operand, "concat2")
    if joined is None or any(step != 1 for step in steps) or any(start < 0 for start in starts):
        return None
    axis = int(dict(joined.parameters)["axis"])
    left = graph.types[joined.operands[0]].shape[axis]
    size = node.out_types[0].shape[axis]
    if not (str(left).isdigit() and str(size).isdigit()):
        return None
    begin, edge = starts[axis], int(left)
    if begin + int(size) <= edge:
        return _part(graph, node, joined.operands[0], starts)
    if begin >= edge:
        return _part(graph, node, joined.operands[1], [*starts[:axis], begin - edge, *starts[axis + 1 :]])
    return None


def _part(graph: _Simplifying, node: Node, value: int, starts: Sequence[int]) -> int:
    if not any(starts) and graph.types[value] == node.out_types[0]:
        return value
    return graph.like(node, value, starts=",".join(map(str, starts)))


RULES: Final = (
    Rule("add_zero", ("add",), _neutral(False, lambda n, t: _is_zero_that_adds_nothing(n, t, True))),
    Rule("sub_zero", ("sub",), _neutral(True, lambda n, t: _is_zero_that_adds_nothing(n, t, False))),
    Rule("mul_one", ("mul",), _neutral(False, _one)),
    Rule("div_one", ("div",), _neutral(True, _one)),
    Rule(
        "same_twice",
        ("maximum", "minimum", "logical_and", "logical_or", "bitwise_and", "bitwise_or", "where"),
        _same_twice,
    ),
    Rule("again", ("abs", "relu", "relu6", "floor", "ceil", "round", "trunc", "sign"), _again),
    Rule("undone", ("negate", "logical_not", "bitwise_not"), _undone),
    Rule("cast_of_cast", ("cast",), _cast_of_cast),
    Rule("move_of_nothing", ("reshape", "broadcast_to"), _move_of_nothing),
    Rule("reshape_of_reshape", ("reshape",), _reshape_of_reshape),
    Rule("broadcast_of_broadcast", ("broadcast_to",), _broadcast_of_broadcast),
    Rule("permute_of_permute", ("permute",), _permute),
    Rule("slice_of_concat", ("slice",), _slice),
)
BY_OP: Final = {name: [rule for rule in RULES if name in rule.ops] for rule in RULES for name in rule.ops}
