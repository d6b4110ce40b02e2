"""Moves permutes behind elementwise ops, towards another permute that undoes them.

    permute(relu(permute(x)))        relu(x), where the orders undo each other

An elementwise op gives the same elements whichever way its operands are permuted. So a permute of its operands may
stand behind it, where all operands are permuted alike or are broadcast. It is moved only towards another permute: the
two become one, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..ir import GraphIR, Item, Node
from ..renumbering import Rewriting
from ..types.tensor_type import ShapedType
from .fusion import Facts
from .merge_equal import own_memory

FactsOf = Callable[[GraphIR, Node], Facts]


def sink_moves(ir: GraphIR, facts_of: FactsOf) -> GraphIR:
    """The graph with permutes moved behind elementwise ops, towards other permutes."""
    towards = _before_permutes(ir, facts_of) if len(ir.devices) == 1 else ()
    return _Sinking(ir, towards).run() if towards else ir


def _before_permutes(ir: GraphIR, facts_of: FactsOf) -> set[int]:
    """The numbers of the elementwise nodes that a chain of such nodes leads through, from a permute to a permute."""
    permuted: set[int] = set()  # values
    after: set[int] = set()
    for number, item in enumerate(ir.nodes):
        if isinstance(item, Node) and item.kernel.shipped and len(item.results) == 1:
            if item.name == "permute":
                permuted.update(item.results)
            elif not permuted.isdisjoint(item.operands) and _keeps_shape(ir, item):
                after.add(number)
                permuted.update(item.results)
    wanted: set[int] = set()  # values
    chosen: set[int] = set()
    for number in range(len(ir.nodes) - 1, -1, -1):
        item = ir.nodes[number]
        if isinstance(item, Node) and item.kernel.shipped and item.name == "permute":
            wanted.update(item.operands)
        elif isinstance(item, Node) and number in after and not wanted.isdisjoint(item.results):
            facts = facts_of(ir, item)
            if facts.elementwise and all(facts.identity):
                chosen.add(number)
                wanted.update(item.operands)
    return chosen


def _keeps_shape(ir: GraphIR, node: Node) -> bool:
    """Whether the result has the shape of each operand."""
    return all(ir.types[value].shape == node.out_types[0].shape for value in node.operands)


class _Sinking(Rewriting):
    pass_name = "sink_moves"

    def __init__(self, ir: GraphIR, towards: Collection[int]) -> None:
        super().__init__(ir)
        self.towards = towards
        self.fixed = own_memory(ir)

    def rewrite(self, number: int, item: Item) -> None:
        if not isinstance(item, Node) or number not in self.towards or not self.fixed.isdisjoint(item.results):
            return self.keep(item)
        operands = self.new(item.operands)
        permute = next((node for value in operands if (node := self.made_by(value, "permute")) is not None), None)
        if permute is None:
            return self.keep(item)
        order = permute.order
        if not all(self._can_turn(value, order) for value in operands):
            return self.keep(item)
        (type,) = item.out_types
        turned = type.with_shape([type.shape[order.index(axis)] for axis in range(type.rank)])
        sources = tuple(self._turned(value, order, permute, turned) for value in operands)
        (inner,) = self.add(Node(item.kernel, item.parameters, sources, (turned,), (0,), item.place))
        return self.replace(
            item, self.add(Node(permute.kernel, permute.parameters, (inner,), (type,), (0,), item.place))
        )

    def _can_turn(self, value: int, order: Sequence[int]) -> bool:
        """Whether a value is permuted so, or is broadcast from what can be permuted back."""
        if (permute := self.made_by(value, "permute")) is not None:
            return permute.order == order
        spread = self.made_by(value, "broadcast_to")
        if spread is None:
            return False
        source = self.types[spread.operands[0]]
        return _is_one_element(source) or source.rank == len(order)

    def _turned(self, value: int, order: Sequence[int], permute: Node, type: ShapedType) -> int:
        """The value in the order of before the permute: `type` has the shape that it has there."""
        maker = self.made_by(value, "permute", "broadcast_to")
        assert maker is not None
        if maker.name == "permute":
            return maker.operands[0]
        source = maker.operands[0]
        own = self.types[source]
        if not _is_one_element(own):
            back = [list(order).index(axis) for axis in range(len(order))]
            small = own.with_shape([own.shape[axis] for axis in back])
            (source,) = self.add(
                Node(permute.kernel, (("order", tuple(back)),), (source,), (small,), (0,), maker.place)
            )
        (spread,) = self.add(Node(maker.kernel, (), (source,), (own.with_shape(type.shape),), (0,), maker.place))
        return spread


def _is_one_element(type: ShapedType) -> bool:
    return all(dim == 1 for dim in type.shape)
