"""Moves what computes sizes out of the bodies of control flow, to where memory can still be found for these sizes.

A body runs within one stage of a call, and sizes become known between two stages. So the ops that a size depends on are
moved before the outermost branch or loop around them, and run whether the body does or not. That can be done where they
read nothing that a round of a loop changes, and no buffers.

See also `ops.stage` (which ops have sizes that are computed).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import Place
from ..ir import Body, Carried, Control, GraphIR, Item, Loop, Node, SizeStep, begin_of, has_effects
from ..renumbering import renumbered
from ..types.tensor_type import BufferType, ShapedType

if TYPE_CHECKING:
    from ...dsl.package.library import LoadedKernel


def makers_of(inputs: int, nodes: Sequence[Item]) -> list[int]:
    """By value the number of the node that makes it; -1 for inputs."""
    return [-1] * inputs + [number for number, node in enumerate(nodes) for _ in node.results]


class Needs:
    """What sizes depend on, among the nodes of a graph.

    Args:
        types: by value.
        nodes, steps: of the graph, so far.
        unused: values that the finished graph does without.
    """

    def __init__(
        self,
        types: Sequence[ShapedType],
        nodes: Sequence[Item],
        steps: Iterable[SizeStep],
        unused: Iterable[int] = (),
    ) -> None:
        self.types = types
        self.nodes = nodes
        self.unused = frozenset(unused)
        self.makers = makers_of(len(types) - sum(len(node.results) for node in nodes), nodes)
        self.sizes = {name: step.value for step in steps for name in step.names}

    def of(self, values: Iterable[int], first: int) -> set[int]:
        """The numbers of the nodes from number `first` on that have to run for these values: whole branches and loops
        where one is among them."""
        results: set[int] = set()
        waiting = list(values)
        while waiting:
            number = self.makers[waiting.pop()]
            if number < first or number in results:
                continue
            node = self.nodes[number]
            begin = begin_of(node, self.nodes) if isinstance(node, Control) else number
            for inner in range(begin, number + 1):
                results.add(inner)
                waiting += self._read(self.nodes[inner])
        return results

    def _read(self, node: Item) -> list[int]:
        """The values that a node reads, those that its sizes depend on included."""
        names = {name for type in node.out_types for name in type.shape.parameters}
        sizes = [self.sizes[name] for name in names if name in self.sizes]
        if node.results and self.unused.issuperset(node.results):
            return []
        if isinstance(node, Control):
            read = [*node.operands, *(value for body in node.bodies for value in body.outputs)]
            return [*sizes, *(value for value in read if value not in self.unused)]
        return [*sizes, *node.operands] if isinstance(node, Node) else sizes

    def obstacle(self, needed: set[int]) -> Carried | Node | None:
        """The first of these nodes that cannot be moved out of a body, if there is one."""
        inner = {
            each
            for control in needed
            if isinstance(loop := self.nodes[control], Loop)
            for each in range(begin_of(loop, self.nodes), control)
        }
        for each in sorted(needed):
            node = self.nodes[each]
            if isinstance(node, Carried) and each not in inner:
                return node
            if isinstance(node, Node) and self._ordered(node):
                return node
        return None

    def _ordered(self, node: Node) -> bool:
        checks = node.kernel.shipped and node.name == "require_sizes"  # of a branch that is moved as a whole
        return (has_effects(node) and not checks) or any(
            isinstance(self.types[value], BufferType) for value in node.operands
        )


def late_size(op: str, obstacle: Carried | Node, body: str, place: Place | None) -> GraphError:
    """The error of a size that is computed in a body from what cannot be moved out of it."""
    name = obstacle.name if isinstance(obstacle, Node) else None
    what = f"on '{name}', which runs in its turn" if name else "on what a loop carries"
    return GraphError(
        f"{op}: the size of its result depends {what}, in {body}; sizes have to be known before a body runs",
        code="EK0448",
        place=place,
        op=op,
        notes=[f"{'that op' if name else 'the loop'} is staged at {obstacle.place}"] if obstacle.place else [],
        hint="state a size that is known, where it is always the same: x[(slice(i, i + 2), 2),], out_dim=2; or keep "
        "the largest size, together with a mask or a count: ops.where(mask, x, 0)",
    )


def hoist_sizes(ir: GraphIR, copy: LoadedKernel) -> GraphIR:
    """The graph with all that sizes depend on before the branches and loops that it was staged in.

    `copy` is the kernel that copies a tensor: what a body gives back has a place of its own, which it has no more where
    it is computed before.
    """
    regions = ir.regions
    makers = makers_of(len(ir.inputs), ir.nodes)
    inside = [step for step in ir.steps if (number := makers[step.value]) >= 0 and regions.of[number]]
    if not inside:
        return ir
    needs = Needs(ir.types, ir.nodes, ir.steps)
    moved: set[int] = set()
    for step in inside:
        region = regions.of[makers[step.value]]
        while regions.around(region):
            region = regions.around(region)
        control = ir.nodes[regions.owner[region]]
        assert isinstance(control, Control)
        moved |= needs.of([step.value], begin_of(control, ir.nodes))
    return _Rewriting(ir, copy, {number for number in moved if regions.of[number]}).run()


class _Rewriting:
    """Writes the nodes of a graph anew, those that are moved before the branches and loops that they are in."""

    def __init__(self, ir: GraphIR, copy: LoadedKernel, moved: set[int]) -> None:
        self.ir = ir
        self.copy = copy
        self.moved = moved
        self.moving = False  # whether those are written now that are moved, or the others
        self.makers = makers_of(len(ir.inputs), ir.nodes)
        self.values = {value: value for value in range(len(ir.inputs))}  # new numbers by old ones
        self.made: list[Item] = []
        self.next = len(ir.inputs)
        self.beginning: dict[int, list[int]] = {}  # by node, the branches and loops whose first node it is
        for number, node in enumerate(ir.nodes):
            if isinstance(node, Control):
                self.beginning.setdefault(begin_of(node, ir.nodes), []).append(number)

    def run(self) -> GraphIR:
        self.write(0, len(self.ir.nodes), outermost=True)
        steps = tuple(dataclasses.replace(step, value=self.values[step.value]) for step in self.ir.steps)
        return dataclasses.replace(self.ir, nodes=tuple(self.made), outputs=self.new(self.ir.outputs), steps=steps)

    def new(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.values[value] for value in values)

    def write(self, first: int, end: int, outermost: bool = False) -> None:
        """Writes the nodes of a region."""
        number = first
        while number < end:
            controls = [each for each in self.beginning.get(number, ()) if each < end]
            if not controls:
                if (number in self.moved) == self.moving:
                    self.add(self.ir.nodes[number])
                number += 1
                continue
            control = controls[-1]
            if outermost:
                self.moving = True
                self.control(control)
                self.moving = False
            self.control(control)
            number = control + 1

    def control(self, number: int) -> None:
        """Writes a branch or loop, or what is in it."""
        node = self.ir.nodes[number]
        assert isinstance(node, Control)
        whole = (number in self.moved) == self.moving
        if isinstance(node, Loop) and whole:
            self.add(self.ir.nodes[begin_of(node, self.ir.nodes)])
        bodies = []
        for k, body in enumerate(node.bodies):
            start = len(self.made)
            self.write(body.first, body.end)
            if whole:
                predicate = isinstance(node, Loop) and not k
                outputs = [self.values[value] if predicate else self.given(value) for value in body.outputs]
                bodies.append(Body(start, len(self.made), tuple(outputs)))
        if whole:
            self.add(node, bodies)

    def given(self, value: int) -> int:
        """A value that a body gives back, in a place of its own."""
        if self.moving or self.makers[value] not in self.moved:
            return self.values[value]
        type, result = self.ir.types[value], self.next
        self.made.append(Node(self.copy, (), (self.values[value],), (type,), (result,)))
        self.next += 1
        return result

    def add(self, node: Item, bodies: Sequence[Body] = ()) -> None:
        results = tuple(range(self.next, self.next + len(node.results)))
        self.next += len(results)
        self.values.update(zip(node.results, results, strict=True))
        self.made.append(renumbered(node, self.values, results, bodies))
