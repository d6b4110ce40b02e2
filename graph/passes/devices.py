"""Divides a graph whose values lie on several devices: into segments of one device each, and copies between them.

A segment is a graph of its own. What belongs to one device goes into as few segments as the copies allow: the level of
an op is the greatest number of copies on a way to it, and the ops of one level and one device are one segment.

    x on cpu:0 -> exp -> to gpu:0 -> matmul -> to cpu:0 -> add        levels 0 | 1 | 2

Constants and weights stand in every segment that reads them. What changes memory or prints keeps its order. A branch or
loop lies in one segment with all that is in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ..driver.devices import DeviceRef
from ..ir import (
    Body,
    Constraint,
    Control,
    GraphIR,
    Held,
    Item,
    Loop,
    Node,
    begin_of,
    is_transfer,
)
from ..renumbering import renumbered
from ..types.dims import StaticDim, SymbolicDim
from .fusion import is_move

BEFORE = -1  # the level of copies of inputs, constants and weights


@dataclass(frozen=True)
class Copy:
    """A value is copied to another device: `node` is the number of the transfer, `source` and `result` the values."""

    node: int
    source: int
    result: int


@dataclass(frozen=True, eq=False)
class Segment:
    """What runs on one device without a copy in between.

    Attributes:
        ir: it as a graph. Its sizes may depend on names that none of its inputs has.
        device: where it runs.
        nodes: by the number of a node in it, its number in the whole graph; that of a loop for copies of its results.
        takes: the values of the whole graph that its inputs are.
        gives: the values of the whole graph that its outputs are.
        values: by the number of a value in it, its number in the whole graph.
    """

    ir: GraphIR
    device: DeviceRef
    nodes: tuple[int, ...]
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    values: tuple[int, ...]


Step = Segment | Copy


def divide(ir: GraphIR) -> tuple[Step, ...]:
    """The steps of a graph.

    Raises:
        GraphError: EK0809 a branch or loop has values of several devices in it; EK0430 an op has.
    """
    return _Dividing(ir).run()


@dataclass(eq=False)
class _Unit:
    """What stays together: a node, or a branch or loop with its bodies.

    `reads` are the values from outside; `sizes` those that computed dims of its types depend on.
    """

    begin: int
    number: int
    item: Item
    reads: frozenset[int]
    sizes: frozenset[int]
    results: frozenset[int]
    device: DeviceRef
    ordered: bool
    effects: bool
    level: int = 0


class _Dividing:
    def __init__(self, ir: GraphIR) -> None:
        self.ir = ir
        self.computed = {name: step.value for step in ir.steps for name in step.names}
        self.computed_values = set(self.computed.values())
        self.units = self._units()
        self._varying = {*range(len(ir.inputs)), *(value for unit in self.units for value in unit.results)}
        self.maker = {value: unit for unit in self.units for value in unit.results}
        transfers = (node for node in ir.nodes if isinstance(node, Node) and is_transfer(ir, node))
        self.kernel = next((node.kernel for node in transfers), None)

    def run(self) -> tuple[Step, ...]:
        units = self._live()
        self._set_levels(units)
        levels: dict[int, dict[DeviceRef, list[_Unit]]] = {}
        copies: dict[int, list[Copy]] = {}
        used: set[int] = set(self.ir.outputs)  # what leaves the segment that it is made in
        for unit in units:
            item = unit.item
            if isinstance(item, Node) and is_transfer(self.ir, item):
                copies.setdefault(unit.level, []).append(Copy(unit.number, item.operands[0], item.results[0]))
                used.add(item.operands[0])
            else:
                levels.setdefault(unit.level, {}).setdefault(unit.device, []).append(unit)
                used.update(v for v in unit.reads if v in self.maker and not _together(self.maker[v], unit))
        steps: list[Step] = []
        for level in range(BEFORE, 1 + max((*levels, *copies), default=BEFORE)):
            steps += [self._segment(device, members, used) for device, members in levels.get(level, {}).items()]
            steps += copies.get(level, [])
        return self._with_constraints(steps)

    # *** units ***

    def _units(self) -> list[_Unit]:
        """The units without constants and weights, in their order."""
        results: list[_Unit] = []
        end = len(self.ir.nodes)
        while end > 0:
            number = end - 1
            item = self.ir.nodes[number]
            end = begin_of(item, self.ir.nodes) if isinstance(item, Control) else number
            if not isinstance(item, Held):
                results.append(self._unit(end, number))
        return results[::-1]

    def _unit(self, begin: int, number: int) -> _Unit:
        items = self.ir.nodes[begin : number + 1]
        made = {value for item in items for value in item.results}
        reads = {value for item in items for value in _read(item)} - made
        names = {name for item in items for type in item.out_types for name in type.shape.parameters}
        sizes = {self.computed[name] for name in names if name in self.computed} - made
        nodes = [item for item in items if isinstance(item, Node)]
        device = self._device(items, reads)
        effects = any(self.ir.changes(node) for node in nodes)
        ordered = any(self.ir.ordered(node) for node in nodes)
        last = items[-1]
        results = frozenset(last.results if isinstance(last, Control) else made)
        return _Unit(begin, number, last, frozenset(reads), frozenset(sizes), results, device, ordered, effects)

    def _device(self, items: Sequence[Item], reads: Iterable[int]) -> DeviceRef:
        """The one device of a unit; of a transfer that of its result."""
        last = items[-1]
        if _copies(self.ir, last):
            return last.out_types[0].device
        types = [self.ir.types[value] for value in reads]
        types += [type for item in items for type in item.out_types]
        devices = list(dict.fromkeys(type.device for type in types)) or [DeviceRef.CPU()]
        if len(devices) == 1:
            return devices[0]
        assert isinstance(last, Node | Control)
        alone = isinstance(last, Node)
        raise GraphError(
            f"{last.name}: it has values on {devices[0]} and on {devices[1]}"
            + ("" if alone else ", and a branch or loop runs on one device"),
            code="EK0430" if alone else "EK0809",
            place=last.place,
            op=last.name,
            expected=str(devices[0]),
            got=str(devices[1]),
            hint=f"move what it reads before it: x.to({devices[0]!r})",
        )

    def _live(self) -> list[_Unit]:
        """The required units, in their order."""
        wanted = set(self.ir.outputs)
        names = {name for type in self.ir.output_types for name in type.shape.parameters}
        names.update(name for c in self.ir.constraints for dim in (c.left, c.right) for name in dim.parameters)
        wanted.update(self.computed[name] for name in names if name in self.computed)
        live: list[_Unit] = []
        for unit in reversed(self.units):
            if unit.effects or not unit.results.isdisjoint(wanted):
                live.append(unit)
                wanted |= unit.reads | unit.sizes
        return live[::-1]

    def _set_levels(self, units: Sequence[_Unit]) -> None:
        before: _Unit | None = None  # the last unit that has to keep its order
        for unit in units:
            makers = [self.maker[value] for value in unit.reads if value in self.maker]
            if _copies(self.ir, unit.item):
                unit.level = max((maker.level for maker in makers), default=BEFORE)
                continue
            after = [maker.level + _copies(self.ir, maker.item) for maker in makers]
            others = [self.maker[value] for value in unit.sizes]
            others += [before] if unit.ordered and before is not None else []
            after += [other.level + (other.device != unit.device) for other in others]
            unit.level = max(after, default=0)
            before = unit if unit.ordered else before
        self._sink(units)
        for unit in units:
            if isinstance(unit.item, Loop):  # what it begins with becomes its memory, and nothing else reads it
                for value in unit.item.initial:
                    self.maker[value].level = unit.level

    def _sink(self, units: Sequence[_Unit]) -> None:
        """Gives what costs nothing where it is fused the level of its first reader: maps of indices, and what is made
        of constants alone."""
        readers: dict[int, list[_Unit]] = {}
        for unit in units:
            for value in unit.reads | unit.sizes:
                readers.setdefault(value, []).append(unit)
        for unit in reversed(units):
            item = unit.item
            if not isinstance(item, Node) or unit.ordered or not unit.results.isdisjoint(self.ir.outputs):
                continue
            if is_transfer(self.ir, item) or not (unit.reads.isdisjoint(self._varying) or _is_map(item)):
                continue
            reading = [reader for value in unit.results for reader in readers.get(value, ())]
            if reading and not unit.results & self.computed_values:
                unit.level = max(unit.level, min(reader.level for reader in reading))

    # *** segments ***

    def _segment(self, device: DeviceRef, members: Sequence[_Unit], used: set[int]) -> Segment:
        ir = self.ir
        numbers = {number for unit in members for number in range(unit.begin, unit.number + 1)}
        reads = {value for unit in members for value in unit.reads}
        made = {value for number in numbers for value in ir.nodes[number].results}
        numbers.update(n for n, item in enumerate(ir.nodes) if isinstance(item, Held) and item.result in reads)
        order = sorted(numbers)
        made.update(value for number in order for value in ir.nodes[number].results)
        takes = tuple(sorted(reads - made))
        gives = tuple(sorted(used.intersection(value for unit in members for value in unit.results)))
        writing = _Writing(takes)
        nodes = [writing.node(ir.nodes[number], number - local) for local, number in enumerate(order)]
        outputs, origins = [], [*order]
        for value in gives:
            output = writing.values[value]
            loop = self.maker[value]
            if isinstance(loop.item, Loop) and self.kernel is not None:
                # What a loop gives lies where its last round left it; an output has memory of its own.
                type = ir.types[value]
                nodes.append(Node(self.kernel, (), (output,), (type,), (len(writing.origins),), loop.item.place))
                origins.append(loop.number)
                writing.origins.append(value)
                output = len(writing.origins) - 1
            outputs.append(output)
        steps = tuple(
            dataclasses.replace(step, value=writing.values[step.value]) for step in ir.steps if step.value in made
        )
        wanted = tuple(
            Constraint("at_least", SymbolicDim(name), StaticDim(0), "", step.place, step.op)
            for step in steps
            for name in step.names
        )  # so that they are always computed
        inputs = tuple(ir.types[value] for value in takes)
        part = GraphIR(ir.name, inputs, tuple(nodes), tuple(outputs), wanted, steps, traced=ir.traced)
        return Segment(part, device, tuple(origins), takes, gives, tuple(writing.origins))

    def _with_constraints(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """The steps with the conditions on computed dims, each where the last of these becomes known."""
        known: dict[str, int] = {}
        for number, step in enumerate(steps):
            if isinstance(step, Segment):
                known.update((name, number) for each in step.ir.steps for name in each.names)
        places: dict[int, list[Constraint]] = {}
        for constraint in self.ir.constraints:
            late = [known[name] for name in names_in(constraint) if name in known]
            if late:
                places.setdefault(max(late), []).append(constraint)
        return tuple(
            dataclasses.replace(
                step, ir=dataclasses.replace(step.ir, constraints=(*step.ir.constraints, *places[number]))
            )
            if isinstance(step, Segment) and number in places
            else step
            for number, step in enumerate(steps)
        )


def _is_map(node: Node) -> bool:
    """Whether a node only gives elements other places."""
    return is_move(node) or node.move == "broadcast"


def names_in(constraint: Constraint) -> set[str]:
    """The named dims that a condition is about."""
    return {name for dim in (constraint.left, constraint.right) for name in dim.parameters}


def _copies(ir: GraphIR, item: Item) -> bool:
    return isinstance(item, Node) and is_transfer(ir, item)


def _together(one: _Unit, other: _Unit) -> bool:
    return one.level == other.level and one.device == other.device


def _read(item: Item) -> list[int]:
    """The values that an item reads by itself, those that its bodies give back among them."""
    if isinstance(item, Control):
        return [*item.operands, *(value for body in item.bodies for value in body.outputs)]
    return [*item.operands] if isinstance(item, Node) else []


class _Writing:
    """Writes nodes with values numbered anew; `takes` are those that become inputs."""

    def __init__(self, takes: Sequence[int]) -> None:
        self.values = {value: position for position, value in enumerate(takes)}
        self.origins = [*takes]  # by new number the old one

    def node(self, item: Item, shift: int) -> Item:
        """The item, whose number becomes smaller by `shift`."""
        first = len(self.origins)
        results = tuple(range(first, first + len(item.results)))
        self.origins += item.results
        self.values.update(zip(item.results, results, strict=True))
        bodies = item.bodies if isinstance(item, Control) else ()
        moved = [Body(b.first - shift, b.end - shift, tuple(self.values[v] for v in b.outputs)) for b in bodies]
        return renumbered(item, self.values, results, moved)
