"""Replaces nodes by simpler ones that give the same bits, by a table of rules.

    x * 1                           x
    permute(permute(x))             one permute, or x
    reshape(reshape(x))             one reshape, or x
    cast(cast(x, wider), dtype)     cast(x, dtype), or x
    slice(concat(x, y))             a slice of x, where it lies in x

Rules know ops by what `@register` records of them (`move=`, `laws=`, `neutral=`), and not by their names: a custom op
with the same promise is simplified, too. A rule holds for every dtype and every element, NaN, infinities and zeros of
both signs included: `x + 0` stays for floats, since -0.0 + 0 is 0.0, and `x + -0.0` goes. The operands of a rule are
the new ones, so one pass suffices for chains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.signature.schema import OpSchema
from ...dsl.types.dtype import DType
from ..ir import ConstantTensor, GraphIR, Item, Node, fits
from ..renumbering import Rewriting
from ..types.dims import StaticDim
from ..types.tensor_type import TensorType
from .merge_equal import own_memory


def simplify(ir: GraphIR) -> GraphIR:
    """The graph with every node that a rule applies to replaced."""
    return _Simplifying(ir).run()


@dataclass(frozen=True)
class Rule:
    """A row of `RULES`.

    Attributes:
        name: what the rule is called in dumps and tests.
        pattern: what it replaces, and by what.
        suits: whether it may apply to an op.
        apply: given the graph that is written and a node with new operands, the value that stands for the node's
            result; None where the rule does not apply.
    """

    name: str
    pattern: str
    suits: Callable[[OpSchema], bool]
    apply: Callable[[_Simplifying, Node], int | None]


class _Simplifying(Rewriting):
    """Writes a graph with the rules applied; what the rules call is here."""

    pass_name = "simplify"

    def __init__(self, ir: GraphIR) -> None:
        super().__init__(ir)
        self.fixed = own_memory(ir)
        self.outputs = set(ir.outputs)
        self.given: set[int] = set()  # values of the new graph that are outputs
        self.rules: dict[int, list[Rule]] = {}  # by identity of a kernel of the graph

    def rewrite(self, number: int, item: Item) -> None:
        rules = self._rules(item) if isinstance(item, Node) else ()
        if not isinstance(item, Node) or not rules or not self.fixed.isdisjoint(item.results):
            return self.keep(item)
        if len(item.results) != 1 or self.ir.ordered(item):
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

    def _rules(self, node: Node) -> list[Rule]:
        rules = self.rules.get(id(node.kernel))
        if rules is None:
            schema = node.kernel.schema
            promises = schema.move or schema.laws or schema.neutral
            rules = [rule for rule in RULES if rule.suits(schema)] if promises else []
            self.rules[id(node.kernel)] = rules
        return rules

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

    def scalar(self, value: int) -> float | None:
        """The one real number that all elements of a value are, where that is known."""
        while (maker := self.moved_by(value, "broadcast", "reshape")) is not None:
            value = maker.operands[0]
        constant = self.maker(value)
        if not isinstance(constant, ConstantTensor) or constant.array.size != 1:
            return None
        dtype = constant.type.dtype
        if dtype.is_storage() or dtype.is_complex() or dtype.to_numpy() != constant.array.dtype:
            return None
        number = constant.array.reshape(-1)[0]
        return float(number) if dtype.is_float() else int(number)

    def like(self, node: Node, operand: int, **parameters: object) -> int | None:
        """A node of the same kernel and result on another operand; None where the kernel does not take that."""
        if not fits(node.kernel, [self.types[operand]], node.out_types):
            return None
        changed = tuple((name, parameters.get(name, value)) for name, value in node.parameters)
        (result,) = self.add(Node(node.kernel, changed, (operand,), node.out_types, (0,), node.place))
        return result

    def made_alike(self, node: Node) -> Node | None:
        """The node that makes the operand of this one, if it is the same op with the same parameters."""
        maker = self.maker(node.operands[0])
        same = isinstance(maker, Node) and maker.kernel.digest == node.kernel.digest
        return maker if same and isinstance(maker, Node) and maker.parameters == node.parameters else None


# *** numbers ***


def _neutral(graph: _Simplifying, node: Node) -> int | None:
    """An operand that changes nothing leaves the other one. Of floats, 0.0 and -0.0 are two numbers."""
    schema = node.kernel.schema
    for name, neutral in schema.neutral:
        at = next(k for k, argument in enumerate(schema.inputs) if argument.name == name)
        number = graph.scalar(node.operands[at])
        if number is None or number != neutral:
            continue
        if isinstance(number, int) or math.copysign(1, number) == math.copysign(1, neutral):
            return node.operands[1 - at]
    return None


def _same_twice(graph: _Simplifying, node: Node) -> int | None:
    """max(x, x), x & x, where(c, x, x)."""
    x, y = node.operands[-2:]
    return x if x == y else None


def _again(graph: _Simplifying, node: Node) -> int | None:
    """abs(abs(x)): doing it once more changes nothing."""
    return None if graph.made_alike(node) is None else node.operands[0]


def _undone(graph: _Simplifying, node: Node) -> int | None:
    """negate(negate(x))."""
    inner = graph.made_alike(node)
    return None if inner is None else inner.operands[0]


# *** dtypes ***


def _cast_of_cast(graph: _Simplifying, node: Node) -> int | None:
    """A cast of a lossless cast is one cast of what that had, or nothing."""
    operand = node.operands[0]
    if graph.types[operand].dtype == node.out_types[0].dtype:
        return operand
    inner = graph.maker(operand)
    if not isinstance(inner, Node) or "cast" not in inner.kernel.schema.laws:
        return None
    source = inner.operands[0]
    first, middle, last = graph.types[source].dtype, inner.out_types[0].dtype, node.out_types[0].dtype
    if not _is_lossless(first, middle):
        return None
    if first == last:
        return source
    return graph.like(node, source) if first.is_float() == middle.is_float() else None


def _cast_of_number(graph: _Simplifying, node: Node) -> int | None:
    """A cast of one known integer that the other dtype has is this number."""
    constant, (type,) = graph.maker(node.operands[0]), node.out_types
    if not isinstance(constant, ConstantTensor) or constant.array.size != 1 or not isinstance(type, TensorType):
        return None
    source, target = constant.type.dtype, type.dtype
    if not (_is_plain(source) and _is_plain(target)) or source.is_float():
        return None
    number = int(constant.array.reshape(-1)[0])
    exact = (
        abs(number) <= _exact_integers(target) if target.is_float() else target.range[0] <= number <= target.range[1]
    )
    if not exact:
        return None
    (result,) = graph.add(ConstantTensor(np.full(constant.array.shape, number, target.to_numpy()), type, 0, node.place))
    return result


def _exact_integers(dtype: DType) -> int:
    """The number up to which a float dtype has every integer."""
    return 1 << (np.finfo(dtype.to_numpy()).nmant + 1)


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
    inner = graph.moved_by(node.operands[0], "reshape")
    if inner is None:
        return None
    source = inner.operands[0]
    return source if graph.types[source] == node.out_types[0] else graph.like(node, source)


def _broadcast_of_broadcast(graph: _Simplifying, node: Node) -> int | None:
    inner = graph.moved_by(node.operands[0], "broadcast")
    return None if inner is None else graph.like(node, inner.operands[0])


def _permute(graph: _Simplifying, node: Node) -> int | None:
    if node.move != "permute":  # of another rank than its operand
        return None
    order, operand = node.order, node.operands[0]
    if list(order) == sorted(order):
        return operand
    inner = graph.moved_by(operand, "permute")
    if inner is None:
        return None
    before = inner.order
    joined = tuple(before[axis] for axis in order)
    if list(joined) == sorted(joined):
        return inner.operands[0]
    return graph.like(node, inner.operands[0], order=joined)


def _slice(graph: _Simplifying, node: Node) -> int | None:
    """A slice of everything, and one that lies within one part of a concat."""
    if len(node.operands) > 1:  # its bounds are known at run time
        return None
    parameters = dict(node.parameters)
    starts, steps = parameters["starts"], parameters["steps"]
    operand = node.operands[0]
    if not any(starts) and all(step == 1 for step in steps) and graph.types[operand] == node.out_types[0]:
        return operand
    joined = graph.moved_by(operand, "concat")
    if joined is None or any(step != 1 for step in steps) or any(start < 0 for start in starts):
        return None
    axis = int(dict(joined.parameters)["axis"])
    edge, size = graph.types[joined.operands[0]].shape[axis], node.out_types[0].shape[axis]
    if not isinstance(edge, StaticDim) or not isinstance(size, StaticDim):
        return None
    begin = starts[axis]
    if begin + int(size) <= int(edge):
        return _part(graph, node, joined.operands[0], starts)
    if begin >= int(edge):
        inside = (*starts[:axis], begin - int(edge), *starts[axis + 1 :])
        return _part(graph, node, joined.operands[1], inside)
    return None


def _part(graph: _Simplifying, node: Node, value: int, starts: Sequence[int]) -> int | None:
    if not any(starts) and graph.types[value] == node.out_types[0]:
        return value
    return graph.like(node, value, starts=tuple(starts))


def _moves(*moves: str) -> Callable[[OpSchema], bool]:
    return lambda schema: schema.move in moves and not schema.mutable


def _law(law: str, several: bool = False) -> Callable[[OpSchema], bool]:
    return lambda schema: law in schema.laws and (len(schema.inputs) > 1) == several


RULES: Final = (
    Rule("neutral", "f(x, v) -> x", lambda schema: bool(schema.neutral), _neutral),
    Rule("same_twice", "f(x, x) -> x", _law("idempotent", several=True), _same_twice),
    Rule("again", "f(f(x)) -> f(x)", _law("idempotent"), _again),
    Rule("undone", "f(f(x)) -> x", _law("involution"), _undone),
    Rule("cast_of_cast", "cast(cast(x, wider)) -> cast(x), x", _law("cast"), _cast_of_cast),
    Rule("cast_of_number", "cast(2) -> 2.0", _law("cast"), _cast_of_number),
    Rule("move_of_nothing", "reshape(x, x.shape) -> x", _moves("reshape", "broadcast"), _move_of_nothing),
    Rule("reshape_of_reshape", "reshape(reshape(x)) -> reshape(x), x", _moves("reshape"), _reshape_of_reshape),
    Rule(
        "broadcast_of_broadcast",
        "broadcast(broadcast(x)) -> broadcast(x)",
        _moves("broadcast"),
        _broadcast_of_broadcast,
    ),
    Rule("permute_of_permute", "permute(permute(x)) -> permute(x), x", _moves("permute"), _permute),
    Rule("slice_of_concat", "slice(concat(x, y)) -> slice(x), slice(y), x, y", _moves("slice"), _slice),
)
