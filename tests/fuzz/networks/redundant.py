"""Makes a graph do work twice, with the same results: for the passes over graphs to take out again.

Nodes are staged twice, values are permuted and permuted back, elementwise ops are done in another order of axes, and
multiplied by one. Each reader reads one of the copies by chance. Inputs: a graph, a seed.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import numpy as np

from einkorn.graph import Graph, TensorType
from einkorn.graph.ir import Constant, Control, External, GraphIR, Item, Node
from einkorn.graph.passes.merge_equal import own_memory
from einkorn.graph.renumbering import Rewriting
from einkorn.graph.types.tensor_type import ShapedType

ELEMENTWISE = (
    "add",
    "sub",
    "mul",
    "maximum",
    "minimum",
    "exp",
    "negate",
    "abs",
    "relu",
    "tanh",
    "sin",
    "where",
    "cast",
)
SHARE = 0.4  # of nodes that get a copy


def redundant(ir: GraphIR, seed: int) -> GraphIR:
    """A graph with the same results and more nodes."""
    return _Redundant(ir, seed).run()


def with_weights(ir: GraphIR) -> tuple[GraphIR, dict[str, np.ndarray[Any, Any]]]:
    """A graph with weights in the place of its constants of several elements, and these weights by their names."""
    weights = {f"w{item.result}": item for item in ir.nodes if isinstance(item, Constant) and item.array.size > 1}
    made = {item: External(name, item.type, item.result) for name, item in weights.items()}
    nodes = tuple(made.get(item, item) if isinstance(item, Constant) else item for item in ir.nodes)
    return dataclasses.replace(ir, nodes=nodes), {name: item.array for name, item in weights.items()}


class _Redundant(Rewriting):
    def __init__(self, ir: GraphIR, seed: int) -> None:
        super().__init__(ir)
        self.random = random.Random(seed)
        self.copies: dict[int, list[int]] = {}  # by value of `ir`, all that stand for it
        self.fixed = own_memory(ir)
        kernels = Graph("kernels").kernels
        self.permute = kernels.builtin("movement", "permute")
        self.spread = kernels.builtin("movement", "broadcast_to")
        self.mul = kernels.builtin("elementwise", "mul")

    def rewrite(self, number: int, item: Item) -> None:
        for value in item.operands if isinstance(item, Node | Control) else ():
            if value in self.copies and value not in self.fixed:
                self.values[value] = self.random.choice(self.copies[value])
        self.keep(item)
        if not isinstance(item, Node) or len(item.results) != 1 or self.ir.ordered(item):
            return
        (result,) = item.results
        if result in self.fixed or self.random.random() > SHARE:
            return
        node = self.made[-1]
        assert isinstance(node, Node)
        ways = [self._again, self._turned, self._times_one]
        copies = [self.values[result], *(copy for way in ways if (copy := way(node)) is not None)]
        region = self.ir.regions.of[number]
        if region == 0 or not any(result in body.outputs for body in self.ir.regions.bodies):
            self.copies[result] = copies

    def _again(self, node: Node) -> int:
        return self.add(Node(node.kernel, node.parameters, node.operands, node.out_types, (0,), node.place))[0]

    def _moved(self, value: int, order: list[int]) -> int:
        type = self.types[value]
        made = type.with_shape([type.shape[axis] for axis in order])
        return self.add(Node(self.permute, (("order", tuple(order)),), (value,), (made,), (0,)))[0]

    def _turned(self, node: Node) -> int | None:
        """The result by way of permuted operands, or permuted twice."""
        (type,) = node.out_types
        if type.rank < 2:
            return None
        order = self.random.sample(range(type.rank), type.rank)
        back = [order.index(axis) for axis in range(type.rank)]
        if node.name in ELEMENTWISE and node.kernel.shipped:
            operands = tuple(self._moved(value, order) for value in node.operands)
            turned = type.with_shape([type.shape[axis] for axis in order])
            (made,) = self.add(Node(node.kernel, node.parameters, operands, (turned,), (0,), node.place))
            return self._moved(made, back)
        return self._moved(self._moved(node.results[0], order), back)

    def _times_one(self, node: Node) -> int | None:
        (type,) = node.out_types
        if not isinstance(type, TensorType) or not _is_number(type):
            return None
        one = np.ones((), type.dtype.to_numpy())
        one.setflags(write=False)
        (constant,) = self.add(Constant(one, type.with_shape([]), 0))
        (spread,) = self.add(Node(self.spread, (), (constant,), (type,), (0,)))
        operands: Any = (node.results[0], spread)
        return self.add(Node(self.mul, (), operands, (type,), (0,)))[0]


def _is_number(type: ShapedType) -> bool:
    return not type.dtype.is_storage() and type.dtype.to_numpy().kind in "iuf"
