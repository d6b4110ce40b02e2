"""Stages the nodes of a finished graph in another one: what a call of a subgraph is.

Each call has nodes of its own, with dims of the caller's in place of the subgraph's. What is computed on the way gets
new names, so that two calls do not collide. Places say both lines: that of the subgraph, and that of the call.

See also `ops.control_flow` (that the values fit the inputs).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...dsl.diagnostics.errors import EinkornError, GraphError
from ...dsl.diagnostics.places import Place, within
from ..ir import Body, Branch, Carried, ConstantTensor, Constraint, Control, External, GraphIR, Item, Loop, Node
from ..types.dims import Dim, StaticDim
from ..types.tensor_type import BufferType, ShapedType, TensorType
from .graph import Graph
from .value import Value


def inline(
    graph: Graph, called: GraphIR, arguments: Sequence[Value], dims: Mapping[str, Dim], prefix: str, place: Place | None
) -> list[Value]:
    """The outputs of a graph over these values.

    Args:
        graph: takes the nodes.
        called: whose nodes they are.
        arguments: a value for each input.
        dims: what the names in the types of the inputs stand for.
        prefix: begins the names of its weights.
        place: the line of the call.

    Raises:
        GraphError: a size that cannot be, a weight of the same name and another type, sizes that depend on what a loop
            around the call carries.
    """
    return _Inlining(graph, called, arguments, dims, prefix, place).run()


class _Inlining:
    def __init__(
        self,
        graph: Graph,
        called: GraphIR,
        arguments: Sequence[Value],
        dims: Mapping[str, Dim],
        prefix: str,
        place: Place | None,
    ) -> None:
        self.graph = graph
        self.called = called
        self.dims = dict(dims)
        self.prefix = prefix
        self.place = place
        self.values = list(arguments)  # by number in the called graph
        self.begins: list[int] = []  # by node of the called graph: where it begins in the other

    def run(self) -> list[Value]:
        for node in self.called.nodes:
            self.begins.append(self.graph.next_node)
            place = within(node.place, self.place)
            try:
                made = self.stage(node, place)
            except EinkornError as error:
                error.notes.append(f"in subgraph '{self.called.name}', at {place}")
                raise
            for value in made:
                self.define(len(self.values), value, place)
                self.values.append(value)
        for constraint in self.called.constraints:
            self.require(constraint)
        return [self.values[number] for number in self.called.outputs]

    def stage(self, node: Item, place: Place | None) -> Sequence[Value]:
        """The values of a node in the other graph."""
        types = [self.value_type(type) for type in node.out_types]
        if isinstance(node, Node):
            operands = [self.values[number] for number in node.operands]
            return self.graph.stage(node.kernel, operands, dict(node.parameters), types, place)
        if isinstance(node, ConstantTensor):
            return [self.graph.stage_constant(node.array, node.type.device, place)]
        if isinstance(node, External):
            name = self.prefix + node.name
            return [self.graph.stage_weight(name, node.type, node.align, place, node.data)]
        tensors = [type for type in types if isinstance(type, TensorType)]
        if isinstance(node, Carried):
            return self.graph.stage_control(Carried, tensors, place)
        return self.graph.stage_control(self.maker(node), tensors, place)

    def maker(self, node: Control) -> Callable[..., Control]:
        """A branch or loop without its results."""
        first, second = (
            Body(self.begins[body.first], self.begins[body.end], self.numbers(body.outputs)) for body in node.bodies
        )
        if isinstance(node, Branch):
            return partial(Branch, self.numbers([node.condition])[0], (first, second))
        return partial(Loop, self.numbers(node.initial), self.numbers(node.carried), (first, second))

    def numbers(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.values[value].number for value in values)

    def value_type(self, type: ShapedType) -> ShapedType:
        kind = BufferType if isinstance(type, BufferType) else TensorType
        return kind(type.dtype, [dim.substitute(self.dims) for dim in type.shape], type.device)

    def define(self, number: int, value: Value, place: Place | None) -> None:
        """Names the dims that a value of the called graph computes."""
        for step in self.called.steps:
            if step.value == number:
                names = {name: self.graph.unused_dim(name) for name in step.names}
                self.graph.define_dims(value, [str(dim) for dim in names.values()], step.op, place)
                self.dims |= names

    def require(self, constraint: Constraint) -> None:
        """What the called graph relies on has to hold for the caller's dims.

        Raises:
            GraphError: it is known that it does not.
        """
        left, right = constraint.left.substitute(self.dims), constraint.right.substitute(self.dims)
        place = within(constraint.place, self.place)
        if isinstance(left, StaticDim) and isinstance(right, StaticDim):
            if not (left == right if constraint.kind == "equal" else int(left) >= int(right)):
                raise GraphError(
                    constraint.message,
                    code=constraint.code,
                    place=self.place,
                    op=constraint.op,
                    expected=str(constraint),
                    got=f"{left} and {right}",
                    notes=[f"in subgraph '{self.called.name}', required at {place}"],
                )
            return
        self.graph.require(dataclasses.replace(constraint, left=left, right=right, place=place))
