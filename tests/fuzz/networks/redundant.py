"""Makes a graph do work twice, with the same results: for the passes over graphs to take out again.

Nodes are staged twice, elementwise ops are done in another order of axes, and values take ways that the rules of
`simplify` undo: there is one for each rule. Each reader reads one of the copies by chance. Inputs: a graph, a seed.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from typing import Any

import numpy as np

from einkorn.graph import DType, Graph, TensorType
from einkorn.graph.ir import ConstantTensor, Control, External, GraphIR, Item, Node
from einkorn.graph.passes.merge_equal import own_memory
from einkorn.graph.renumbering import Rewriting
from einkorn.graph.types.dims import StaticDim
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
SHARE = 0.4  # of nodes that get copies
COPIES = 3
WIDER = {"float16": "float32", "float32": "float64", "int8": "int32", "uint8": "int64", "int32": "int64"}


def redundant(ir: GraphIR, seed: int) -> GraphIR:
    """A graph with the same results and more nodes."""
    return _Redundant(ir, seed).run()


def with_weights(ir: GraphIR) -> tuple[GraphIR, dict[str, np.ndarray[Any, Any]]]:
    """A graph with weights in the place of its constants of several elements, and these weights by their names."""
    weights = {f"w{item.result}": item for item in ir.nodes if isinstance(item, ConstantTensor) and item.array.size > 1}
    made = {item: External(name, item.type, item.result) for name, item in weights.items()}
    nodes = tuple(made.get(item, item) if isinstance(item, ConstantTensor) else item for item in ir.nodes)
    return dataclasses.replace(ir, nodes=nodes), {name: item.array for name, item in weights.items()}


class _Redundant(Rewriting):
    def __init__(self, ir: GraphIR, seed: int) -> None:
        super().__init__(ir)
        self.random = random.Random(seed)
        self.copies: dict[int, list[int]] = {}  # by value of `ir`, all that stand for it
        self.fixed = own_memory(ir)
        self.kernels = Graph("kernels").kernels

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
        ways = [self._again, self._turned, self._neutral, self._cast, self._undone, self._repeated, self._twice]
        ways += [self._folded, self._reshaped, self._as_it_is, self._spread, self._joined]
        chosen = self.random.sample(ways, len(ways))
        made = (copy for way in chosen if (copy := way(node)) is not None)
        copies = [self.values[result], *itertools.islice(made, COPIES)]
        region = self.ir.regions.of[number]
        if region == 0 or not any(result in body.outputs for body in self.ir.regions.bodies):
            self.copies[result] = copies

    def _again(self, node: Node) -> int:
        return self.add(Node(node.kernel, node.parameters, node.operands, node.out_types, (0,), node.place))[0]

    def _moved(self, value: int, order: list[int]) -> int:
        type = self.types[value]
        made = type.with_shape([type.shape[axis] for axis in order])
        return self._op("movement", "permute", [value], made, order=tuple(order))

    def _op(self, family: str, name: str, operands: list[int], type: ShapedType, **parameters: Any) -> int:
        kernel = self.kernels.builtin(family, name)
        return self.add(Node(kernel, tuple(parameters.items()), tuple(operands), (type,), (0,)))[0]

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

    def _neutral(self, node: Node) -> int | None:
        """Times one, or plus a zero that adds nothing."""
        (type,) = node.out_types
        if not isinstance(type, TensorType) or not _is_number(type):
            return None
        name, number = self.random.choice([("mul", 1.0), ("add", -0.0), ("sub", 0.0)])
        spread = self._op("movement", "broadcast_to", [self._number(type, number)], type)
        return self._op("elementwise", name, [node.results[0], spread], type)

    def _number(self, type: TensorType, number: float) -> int:
        array = np.full((), number, type.dtype.to_numpy())
        array.setflags(write=False)
        return self.add(ConstantTensor(array, type.with_shape([]), 0))[0]

    def _folded(self, node: Node) -> int | None:
        """Times a one that is computed of a constant."""
        (type,) = node.out_types
        if not isinstance(type, TensorType) or not _is_number(type):
            return None
        numbers = [self._number(type, number) for number in (2, 1)]
        one = self._op("elementwise", "sub", numbers, type.with_shape([]))
        return self._op("elementwise", "mul", [*node.results, self._op("movement", "broadcast_to", [one], type)], type)

    def _cast(self, node: Node) -> int | None:
        """Cast to a wider dtype and back."""
        (type,) = node.out_types
        if type.dtype.name not in WIDER:
            return None
        wide = DType[WIDER[type.dtype.name]]
        made = self._op("elementwise", "cast", [node.results[0]], type.with_dtype(wide), dtype=wide)
        return self._op("elementwise", "cast", [made], type, dtype=type.dtype)

    def _undone(self, node: Node) -> int | None:
        """Negated twice."""
        (type,) = node.out_types
        name = "logical_not" if type.dtype == DType.bool else "negate" if _is_number(type) else ""
        if not name:
            return None
        return self._op("elementwise", name, [self._op("elementwise", name, [node.results[0]], type)], type)

    def _repeated(self, node: Node) -> int | None:
        """An op that changes nothing the second time."""
        if "idempotent" not in node.kernel.schema.laws or len(node.operands) > 1:
            return None
        return self.add(Node(node.kernel, node.parameters, node.results, node.out_types, (0,)))[0]

    def _twice(self, node: Node) -> int | None:
        (type,) = node.out_types
        name = "logical_or" if type.dtype == DType.bool else "maximum" if _is_number(type) else ""
        return self._op("elementwise", name, [*node.results] * 2, type) if name else None

    def _reshaped(self, node: Node) -> int:
        """Reshaped and reshaped back."""
        (type,) = node.out_types
        made = self._op("movement", "reshape", [*node.results], type.with_shape([1, *type.shape]))
        return self._op("movement", "reshape", [made], type)

    def _as_it_is(self, node: Node) -> int:
        """Reshaped to the shape that it has."""
        name = self.random.choice(["reshape", "broadcast_to"])
        return self._op("movement", name, [*node.results], node.out_types[0])

    def _spread(self, node: Node) -> int:
        """Broadcast to two more axes, one after the other."""
        (type,) = node.out_types
        first = self._op("movement", "broadcast_to", [*node.results], type.with_shape([1, *type.shape]))
        second = self._op("movement", "broadcast_to", [first], type.with_shape([1, 1, *type.shape]))
        return self._op("movement", "reshape", [second], type)

    def _joined(self, node: Node) -> int | None:
        """Concatenated with itself, and one of the two parts of that."""
        (type,) = node.out_types
        static = [axis for axis, dim in enumerate(type.shape) if isinstance(dim, StaticDim)]
        if not static:
            return None
        axis = self.random.choice(static)
        size = int(type.shape[axis])
        whole = type.with_shape([2 * size if k == axis else dim for k, dim in enumerate(type.shape)])
        joined = self._op("movement", "concat2", [*node.results] * 2, whole, axis=axis)
        starts = tuple(self.random.choice([0, size]) if k == axis else 0 for k in range(type.rank))
        return self._op("movement", "slice", [joined], type, starts=starts, steps=(1,) * type.rank)


def _is_number(type: ShapedType) -> bool:
    return not type.dtype.is_storage() and type.dtype.to_numpy().kind in "iuf"
