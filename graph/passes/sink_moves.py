"""Moves permutes behind elementwise ops, towards another permute that undoes them.

    permute(relu(permute(x)))        relu(x), where the orders undo each other

An op that makes each element of the operands' elements at its place alone, whatever this place is, gives the same
elements whichever way its operands are permuted. So a permute of its operands may
stand behind it, where all operands are permuted alike or are broadcast. It is moved only towards another permute: the
two become one, or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ..ir import GraphIR, Item, Node, fits
from ..renumbering import Rewriting
from ..types.dims import SymbolicDim
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
        if isinstance(item, Node) and len(item.results) == 1:
            if item.move == "permute":
                permuted.update(item.results)
            elif not permuted.isdisjoint(item.operands) and _keeps_shape(ir, item):
                after.add(number)
                permuted.update(item.results)
    wanted: set[int] = set()  # values
    chosen: set[int] = set()
    for number in range(len(ir.nodes) - 1, -1, -1):
        item = ir.nodes[number]
        if isinstance(item, Node) and item.move == "permute":
            wanted.update(item.operands)
        elif number in after and not wanted.isdisjoint(item.results) and _is_uniform(ir, item, facts_of):
            chosen.add(number)
            wanted.update(getattr(item, "operands", ()))
    return chosen


def _keeps_shape(ir: GraphIR, node: Node) -> bool:
    """Whether the op takes any shape, and gives a result of the shape of each operand."""
    schema = node.kernel.schema
    if not schema.takes_any_shape or len({argument.dims for argument in schema.tensors}) != 1:
        return False
    return not ir.ordered(node) and all(ir.types[value].shape == node.out_types[0].shape for value in node.operands)


def _is_uniform(ir: GraphIR, node: Item, facts_of: FactsOf) -> bool:
    """Whether an element is made of the operands' elements at its place alone, whatever the place and the sizes are."""
    assert isinstance(node, Node)
    shape = [SymbolicDim(f"d{axis}") for axis in range(node.out_types[0].rank)]
    operands = tuple(ir.types[value].with_shape(shape) for value in node.operands)
    results = tuple(type.with_shape(shape) for type in node.out_types)
    numbers = tuple(range(len(operands)))
    alone = Node(node.kernel, node.parameters, numbers, results, (len(operands),), node.place)
    facts = facts_of(GraphIR(ir.name, operands, (alone,), alone.results), alone)
    return facts.elementwise and all(facts.identity) and not facts.indexed


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
        permute = next((node for value in operands if (node := self.moved_by(value, "permute")) is not None), None)
        if permute is None:
            return self.keep(item)
        order = permute.order
        (type,) = item.out_types
        turned = type.with_shape([type.shape[order.index(axis)] for axis in range(type.rank)])
        turns = all(self._can_turn(value, order, permute) for value in operands)
        if not turns or not fits(permute.kernel, [turned], [type]):
            return self.keep(item)
        sources = tuple(self._turned(value, order, permute, turned) for value in operands)
        (inner,) = self.add(Node(item.kernel, item.parameters, sources, (turned,), (0,), item.place))
        return self.replace(
            item, self.add(Node(permute.kernel, permute.parameters, (inner,), (type,), (0,), item.place))
        )

    def _can_turn(self, value: int, order: Sequence[int], permute: Node) -> bool:
        """Whether a value is permuted so, or is broadcast from what can be permuted back."""
        if (maker := self.moved_by(value, "permute")) is not None:
            return maker.order == order
        spread = self.moved_by(value, "broadcast")
        if spread is None or not spread.kernel.schema.takes_any_shape:
            return False
        source = self.types[spread.operands[0]]
        return _is_one_element(source) or (source.rank == len(order) and fits(permute.kernel, [source], [source]))

    def _turned(self, value: int, order: Sequence[int], permute: Node, type: ShapedType) -> int:
        """The value in the order of before the permute: `type` has the shape that it has there."""
        maker = self.moved_by(value, "permute", "broadcast")
        assert maker is not None
        if maker.move == "permute":
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
