"""Removes values from a finished graph, with the nodes that make them."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from ..ir import Body, Branch, Carried, Control, GraphIR, Held, Item, Loop, Node
from ..renumbering import renumbered


def without(ir: GraphIR, values: Collection[int]) -> GraphIR:
    """The graph without these values. A loop carries them no more, a branch does not give them back."""
    return _Removal(ir, frozenset(values)).run() if values else ir


class _Removal:
    def __init__(self, ir: GraphIR, values: frozenset[int]) -> None:
        self.ir = ir
        self.removed = values
        kept = [value for value in range(len(ir.types)) if value not in values]
        self.values = {value: number for number, value in enumerate(kept)}  # new numbers by old ones
        self.starts = [0]  # by node its new number, and the number of all at the end
        for node in ir.nodes:
            self.starts.append(self.starts[-1] + self.stays(node))

    def stays(self, node: Item) -> bool:
        return isinstance(node, Control) or not node.results or not self.removed.issuperset(node.results)

    def run(self) -> GraphIR:
        ir = self.ir
        nodes = tuple(self.renumbered(node) for node in ir.nodes if self.stays(node))
        steps = tuple(dataclasses.replace(step, value=self.values[step.value]) for step in ir.steps)
        return dataclasses.replace(ir, nodes=nodes, outputs=self.new(ir.outputs), steps=steps)

    def new(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.values[value] for value in values)

    def renumbered(self, node: Item) -> Item:
        if isinstance(node, Held | Node):
            return renumbered(node, self.values, self.new(node.results))
        places = [k for k, value in enumerate(node.results) if value not in self.removed]

        def at(items: Sequence[object]) -> Any:
            return tuple(items[k] for k in places)

        made: dict[str, Any] = {"results": self.new(at(node.results)), "out_types": at(node.out_types)}
        if isinstance(node, Carried):
            return dataclasses.replace(node, **made)
        if isinstance(node, Branch):
            then, other = (self.body(body, at(body.outputs)) for body in node.bodies)
            return dataclasses.replace(node, condition=self.values[node.condition], bodies=(then, other), **made)
        assert isinstance(node, Loop)
        test, step = node.bodies
        made["bodies"] = (self.body(test, test.outputs), self.body(step, at(step.outputs)))
        return dataclasses.replace(node, initial=self.new(at(node.initial)), carried=self.new(at(node.carried)), **made)

    def body(self, body: Body, outputs: Sequence[int]) -> Body:
        return Body(self.starts[body.first], self.starts[body.end], self.new(outputs))
