"""Writes items of a graph with other numbers for values and nodes.

See also `passes` (which items are wanted).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .ir import Body, Branch, Carried, Control, GraphIR, Held, Item, Node
from .types.tensor_type import ShapedType

Numbers = Mapping[int, int]  # new numbers of values by old ones


def renumbered(item: Item, values: Numbers, results: Sequence[int], bodies: Sequence[Body] = ()) -> Item:
    """The item with new operands and these results; a branch or loop with these bodies."""

    def new(numbers: Sequence[int]) -> tuple[int, ...]:
        return tuple(values[number] for number in numbers)

    if isinstance(item, Node):  # most are
        operands = new(item.operands)
        return Node(item.kernel, item.parameters, operands, item.out_types, tuple(results), item.place, item.made_by)
    made: dict[str, Any] = {"results": tuple(results)}
    if isinstance(item, Held):
        return dataclasses.replace(item, result=results[0])
    if isinstance(item, Carried):
        return dataclasses.replace(item, **made)
    made["bodies"] = (bodies[0], bodies[1])
    if isinstance(item, Branch):
        return dataclasses.replace(item, condition=values[item.condition], **made)
    return dataclasses.replace(item, initial=new(item.initial), carried=new(item.carried), **made)


class Rewriting:
    """Writes a graph anew, item by item in their order. A subclass overrides `rewrite` for the nodes that it changes.

    Attributes:
        pass_name: the name of the pass, which nodes that it adds have.
        ir: the graph that is read.
        values: by number of a value of `ir`, its number in the new graph.
        made: the items of the new graph, so far.
        types: of the new graph's values.
        makers: by number of a value of the new graph, the number of the item that makes it; -1 for inputs.
        changed: whether the new graph is another one than `ir`.
    """

    pass_name: ClassVar[str] = ""

    def __init__(self, ir: GraphIR) -> None:
        self.ir = ir
        self.values = {value: value for value in range(len(ir.inputs))}
        self.made: list[Item] = []
        self.types: list[ShapedType] = list(ir.inputs)
        self.makers = [-1] * len(ir.inputs)
        self.changed = 0
        self.order: Sequence[int] = range(len(ir.nodes))  # in which the items are read
        self._starts: dict[int, int] = {}  # by item of `ir`, how many items stand before it in the new graph

    def run(self) -> GraphIR:
        """The new graph; `ir` itself where nothing was changed."""
        for number in self.order:
            self._starts[number] = len(self.made)
            self.rewrite(number, self.ir.nodes[number])
        if not self.changed:
            return self.ir
        steps = tuple(dataclasses.replace(step, value=self.values[step.value]) for step in self.ir.steps)
        outputs = tuple(self.values[value] for value in self.ir.outputs)
        return dataclasses.replace(self.ir, nodes=tuple(self.made), outputs=outputs, steps=steps)

    def rewrite(self, number: int, item: Item) -> None:
        """Writes an item: as it is, unless a subclass has something else in its place."""
        self.keep(item)

    def keep(self, item: Item) -> None:
        """Writes an item with new numbers."""
        results = self._results(item.out_types)
        self.values.update(zip(item.results, results, strict=True))
        if not self.changed:  # its numbers are those of before
            self.made.append(item)
            return
        bodies = [self._body(body) for body in item.bodies] if isinstance(item, Control) else []
        self.made.append(renumbered(item, self.values, results, bodies))

    def add(self, item: Item) -> tuple[int, ...]:
        """Writes an item that the graph did not have. Its operands are new numbers; gives those of its results."""
        results = self._results(item.out_types)
        if isinstance(item, Node):
            item = dataclasses.replace(item, made_by=self.pass_name)
        self.made.append(renumbered(item, _Same(), results))
        self.changed += 1
        return results

    def replace(self, item: Item, values: Sequence[int]) -> None:
        """Leaves an item out: these values of the new graph stand for its results."""
        self.values.update(zip(item.results, values, strict=True))
        self.changed += 1

    def maker(self, value: int) -> Item | None:
        """The item that makes a value of the new graph; None for an input."""
        return self.made[self.makers[value]] if self.makers[value] >= 0 else None

    def moved_by(self, value: int, *moves: str) -> Node | None:
        """The node that makes a value of the new graph, if it is one of these moves; see `Node.move`."""
        maker = self.maker(value)
        return maker if isinstance(maker, Node) and maker.move in moves else None

    def new(self, values: Sequence[int]) -> tuple[int, ...]:
        """The numbers of values of `ir` in the new graph."""
        return tuple(self.values[value] for value in values)

    def _results(self, types: Sequence[ShapedType]) -> tuple[int, ...]:
        first = len(self.types)
        self.types += types
        self.makers += [len(self.made)] * len(types)
        return tuple(range(first, first + len(types)))

    def _body(self, body: Body) -> Body:
        return Body(self._starts[body.first], self._starts[body.end], self.new(body.outputs))


class _Same(Mapping[int, int]):
    """Every number stays."""

    def __getitem__(self, number: int) -> int:
        return number

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0
