"""Finds the nodes and groups of a graph that do a small part of its work: code for them is made quickly.

Work is estimated from the ops' names and shapes, for several sizes of each symbol: what is light does a `PART`-th of
the work of a call by each of these estimates, all together. So no size of a call makes much work of what is light. To
compile a product takes as long as to compile dozens of elementwise groups, so light products are not fused with what
surrounds them: then one piece of code serves all of them.

Nodes of one kind (a kernel with its dtypes and parameters) are light together or not at all, and so are groups of the
same kinds: code that some calls need to be fast is not compiled twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Final

from ...dsl.contract.unit import GroupSpec
from ...dsl.diagnostics.places import is_shipped
from ...dsl.signature.parameters import identity
from ..ir import GraphIR, Node
from ..types.dims import Shape
from .fusion import Facts, Group
from .memory_plan import Plan

USUAL: Final = 64  # the size of symbols,
LARGE: Final = 1 << 20  # that of one of them while the others have the usual one,
MOST_SYMBOLS: Final = 16  # of which there may be so many
PART: Final = 500  # light is what does one part of so many
PER_ELEMENT: Final = 16  # multiplications that take as long as to read or write an element

_CONVOLUTIONS: Final = frozenset(["conv", "conv_packed", "conv_squares", "depthwise_conv"])
_MATRIX_PRODUCTS: Final = frozenset([
    "batch_matmul", "batch_matmul_transposed", "matmul", "matmul_packed", "matmul_transposed",
    "matmul_transposed_packed",
])  # fmt: skip
_PRODUCTS: Final = _CONVOLUTIONS | _MATRIX_PRODUCTS
# Others whose work grows as their elements do.
_PASSES: Final = frozenset([
    "avg_pool", "concat2", "gather", "l2_norm", "max_pool", "pad_places", "permute", "reduce_max", "reduce_mean",
    "reduce_min", "reduce_sum", "require_sizes", "resize_nearest", "shape_of", "size_of", "slice", "softmax",
    "split_pairs", "split_places",
])  # fmt: skip


class _Work:
    """Estimates the work of the nodes of a graph, in multiplications, for some sizes of its symbols."""

    def __init__(self, ir: GraphIR, facts_of: Callable[[Node], Facts], symbols: Mapping[str, int]) -> None:
        self.ir = ir
        self.facts_of = facts_of
        self.symbols = symbols
        self._counts: dict[int, int] = {}  # by number of a value

    def elements(self, value: int) -> int:
        """The number of elements of a value."""
        count = self._counts.get(value)
        if count is None:
            count = self._counts[value] = self._size(self.ir.types[value].shape)
        return count

    def _size(self, shape: Shape) -> int:
        return math.prod(max(dim.evaluate(self.symbols), 1) for dim in shape)

    def of(self, node: Node) -> int:
        """The work of a node but that of writing its results."""
        made = self.made(node)
        if node.name in _MATRIX_PRODUCTS:
            return made * self._size(self.ir.types[node.operands[0]].shape[-1:])
        if node.name in _CONVOLUTIONS:
            return made * max(self.elements(node.operands[1]) // self._size(node.out_types[0].shape[1:2]), 1)
        facts = self.facts_of(node)
        if facts.elementwise:
            return made * facts.cost
        return PER_ELEMENT * max(map(self.elements, node.operands), default=0)

    def made(self, node: Node) -> int:
        """The elements of a node's results."""
        return max(map(self.elements, node.results), default=1)


def _may_be_light(ir: GraphIR, number: int, facts_of: Callable[[Node], Facts]) -> bool:
    """Whether the estimate of a node can be trusted: it is of an op whose work is known, and runs once a call."""
    node = ir.nodes[number]
    assert isinstance(node, Node)
    if next(ir.regions.loops(ir.regions.of[number]), None) is not None or not is_shipped(
        node.kernel.portable.functions[0].file
    ):
        return False
    return node.name in _PRODUCTS or node.name in _PASSES or facts_of(node).elementwise


def _estimates(ir: GraphIR, facts_of: Callable[[Node], Facts]) -> list[_Work]:
    """An estimate for each choice of sizes; none where there are too many symbols."""
    symbols = {name for type in ir.types for name in type.shape.parameters}
    if len(symbols) > MOST_SYMBOLS:
        return []
    if not symbols:
        return [_Work(ir, facts_of, {})]
    usual = dict.fromkeys(symbols, USUAL)
    choices = [usual, dict.fromkeys(symbols, 1), *({**usual, name: LARGE} for name in sorted(symbols))]
    return [_Work(ir, facts_of, choice) for choice in choices]


def light_products(ir: GraphIR, facts_of: Callable[[Node], Facts]) -> frozenset[int]:
    """The numbers of the products that are light, of kinds that have several: they are best compiled apart."""
    nodes = [(number, node) for number, node in enumerate(ir.nodes) if isinstance(node, Node)]
    kinds: dict[Hashable, list[int]] = {}
    for number, node in nodes:
        if node.name in _PRODUCTS:
            kinds.setdefault(kind_of(node), []).append(number)
    light = {
        kind
        for kind, numbers in kinds.items()
        if len(numbers) > 1 and all(_may_be_light(ir, number, facts_of) for number in numbers)
    }
    if not light:
        return frozenset()
    for work in (estimates := _estimates(ir, facts_of)):
        costs = {number: work.of(node) for number, node in nodes}
        by_kind = {kind: sum(costs[number] for number in numbers) for kind, numbers in kinds.items()}
        light &= _lightest(by_kind, sum(costs.values()))
    return frozenset(number for kind in light if estimates for number in kinds[kind])


def light_groups(ir: GraphIR, plan: Plan, facts_of: Callable[[Node], Facts]) -> tuple[GroupSpec, ...]:
    """The groups of a plan's entry, with those marked that are light."""
    assert plan.entry is not None
    nodes = [_nodes(ir, group) for group in plan.groups]
    kinds: list[Hashable] = [tuple(map(kind_of, each)) for each in nodes]
    light = set(kinds)
    for kind, group in zip(kinds, plan.groups, strict=True):
        if not all(_may_be_light(ir, number, facts_of) for number in group.nodes):
            light.discard(kind)
    for work in (estimates := _estimates(ir, facts_of)):
        costs: dict[Hashable, int] = {}
        for kind, each in zip(kinds, nodes, strict=True):
            cost = sum(map(work.of, each)) + PER_ELEMENT * work.made(each[-1])
            costs[kind] = costs.get(kind, 0) + cost
        light &= _lightest(costs, sum(costs.values()))
    specs = zip(plan.entry.groups, kinds, strict=True)
    return tuple(replace(spec, light=True) if estimates and kind in light else spec for spec, kind in specs)


def kind_of(node: Node) -> Hashable:
    """Equal for nodes that differ in nothing but shapes."""
    parameters = tuple((name, identity(value)) for name, value in node.parameters)
    return node.kernel.digest, tuple(type.dtype for type in node.out_types), parameters


def _nodes(ir: GraphIR, group: Group) -> list[Node]:
    nodes = [ir.nodes[number] for number in group.nodes]
    return [node for node in nodes if isinstance(node, Node)]


def _lightest(costs: dict[Hashable, int], total: int) -> set[Hashable]:
    """The kinds of least work that do a `PART`-th of it together."""
    light: set[Hashable] = set()
    left = total // PART
    for kind in sorted(costs, key=lambda kind: costs[kind]):
        left -= costs[kind]
        if left < 0:
            break
        light.add(kind)
    return light
