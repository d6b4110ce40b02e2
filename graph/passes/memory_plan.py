"""Plans memory: makes a compile unit of a partition, and says what each buffer is and where it lies during a call.

`plan_memory` numbers buffers and dim slots, and writes the `EntrySpec`. `Plan.place`
gives the temporaries offsets in one arena for given sizes: those that do not live at the same time share memory.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence

from ...dsl.contract.unit import (
    BufferSpec,
    EntrySpec,
    FromBuffer,
    FromNode,
    GroupSpec,
    IfStep,
    Literal,
    NodeSpec,
    Operand,
    Size,
    Slot,
    Step,
    Store,
    WhileStep,
)
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ...dsl.signature.schema import TensorArgument
from ...dsl.types.dtype import DType
from ..driver.device import ALIGNMENT
from ..driver.devices import DeviceRef
from ..ir import Branch, Carried, ConstantTensor, Control, External, GraphIR, Held, Item, Loop, Node, SizeStep
from ..types.dims import Dim, Shape, StaticDim
from ..types.strides import stride_dims
from .control_flow import ControlFlow, final
from .fusion import Group, Partition
from .pass_summary import PassSummary

HOST = DeviceRef.CPU()


@dataclass(frozen=True)
class PlannedBuffer:
    """A buffer of the entry.

    `source` is where it comes from: ("input", k), ("output", k), ("constant", number of a node that the model
    holds), ("temp", 0), or ("sizes", k) for what step k of the plan computes.
    `first` and `last` are the groups that write and last read a temporary. `strides` are None for row-major buffers
    without gaps. `device` is where it lies.
    """

    dtype: DType
    shape: Shape
    source: tuple[str, int]
    first: int = 0
    last: int = 0
    strides: tuple[Dim, ...] | None = None
    device: DeviceRef = HOST


@dataclass(frozen=True)
class Plan:
    """Everything the runtime has to know about an entry.

    Attributes:
        entry: what is compiled; None for ready-made code.
        buffers: in the order of the entry's pointers.
        slots: the expression behind each dim slot.
        copies: outputs that are copies of a buffer: (output, buffer); they are inputs, constants, or given back twice.
        repeats: buffers that are another one once more: (buffer, earlier buffer); only ready-made code has them.
        steps: what computes dims on the way; step k ends stage k of the entry.
        groups: what each group of the entry is made of; nothing for ready-made code.
        stages: the groups before which a stage begins, the first stage aside.
        parts: the groups; None for ready-made code, which is one op.
        passes: what each planning pass did.
    """

    entry: EntrySpec | None
    buffers: tuple[PlannedBuffer, ...]
    slots: tuple[Dim, ...]
    copies: tuple[tuple[int, int], ...]
    repeats: tuple[tuple[int, int], ...] = ()
    steps: tuple[SizeStep, ...] = ()
    stages: tuple[int, ...] = ()
    groups: tuple[Group, ...] = ()
    parts: Partition | None = None
    passes: tuple[PassSummary, ...] = ()

    def stage_of(self, *dims: Dim) -> int:
        """The stage from which on the sizes of all these dims are known."""
        late = {name: number for number, step in enumerate(self.steps, 1) for name in step.names}
        return max((late.get(name, 0) for dim in dims for name in dim.parameters), default=0)

    def temps_of(self, stage: int) -> list[int]:
        """The temporaries that a stage is the first to write."""
        return [n for n in self.temps if bisect.bisect_right(self.stages, self.buffers[n].first) == stage]

    def place(self, sizes: Mapping[str, int], stage: int = 0) -> tuple[dict[int, int], int]:
        """Offsets in the arena of a stage, for these sizes of the symbols, and the arena's size in bytes.

        The arena of a stage holds the temporaries that it is the first to write.
        """
        counts = {
            number: math.prod(dim.evaluate(sizes) for dim in self.buffers[number].shape)
            for number in self.temps_of(stage)
        }
        return self.placed(counts)

    def text(self) -> str:
        """A line for each buffer: what it is, where it comes from, and how long a temporary lives."""
        lines = []
        for number, buffer in enumerate(self.buffers):
            life = f", groups {buffer.first} to {buffer.last}" if buffer.source[0] == "temp" else ""
            lines.append(
                f"buffer {number}: {buffer.dtype}[{', '.join(map(str, buffer.shape))}] {buffer.source[0]}{life}"
            )
        return "\n".join([*lines, *(f"output {output} is a copy of buffer {of}" for output, of in self.copies)])

    @property
    def temps(self) -> list[int]:
        """The buffers that are temporaries."""
        return [number for number, buffer in enumerate(self.buffers) if buffer.source[0] == "temp"]

    def placed(self, counts: Mapping[int, int]) -> tuple[dict[int, int], int]:
        """Offsets in an arena of temporaries that have so many elements, and the arena's size in bytes.

        Greedy by size: the largest first, each at the lowest offset without overlap in lifetime.
        """
        temps = []
        for number, count in counts.items():
            size = self.buffers[number].dtype.bytes_for(count)
            temps.append((-(-size // ALIGNMENT) * ALIGNMENT, number))
        placed: list[tuple[int, int, int]] = []  # (offset, size, number)
        for size, number in sorted(temps, key=lambda item: (-item[0], item[1])):
            mine = self.buffers[number]
            offset = 0
            for start, other_size, other in sorted(placed):
                theirs = self.buffers[other]
                if theirs.first <= mine.last and mine.first <= theirs.last:
                    if offset + size <= start:
                        break
                    offset = max(offset, start + other_size)
            placed.append((offset, size, number))
        total = max((offset + size for offset, size, _ in placed), default=0)
        return {number: offset for offset, _, number in placed}, total


def plan_memory(ir: GraphIR, parts: Partition, flow: ControlFlow, *, entry: bool = True, shared: bool = True) -> Plan:
    """The plan of a partitioned graph.

    Args:
        ir, parts, flow: the graph, its groups, and their order.
        entry: without it there is no compile unit in the plan, and no kernel is looked at.
        shared: whether temporaries that do not live at the same time share memory.
    """
    return _Planner(ir, parts, flow, entry, shared).run()


def make_plan(ir: GraphIR, parts: Partition, *, entry: bool = True) -> Plan:
    """The plan of a partitioned graph, by all planning passes after `fuse`; see `plan_memory`.

    Raises:
        InternalError: EK0908, a group reads what no group before it stores.
    """
    check_partition(ir, parts)
    return plan_memory(ir, parts, ControlFlow(ir, parts), entry=entry)


def check_partition(ir: GraphIR, parts: Partition) -> None:
    """That each operand is computed in its group, or lies in memory when the group runs; and so for the outputs."""
    producer = {value: n for n, node in enumerate(ir.nodes) for value in node.results}
    aliases = set(parts.aliases)
    stored = set(range(len(ir.inputs)))
    stored.update(value for node in ir.nodes if isinstance(node, Held) for value in node.results)

    def expect(value: int, reader: str) -> None:
        while producer.get(value) in aliases:
            value = _node(ir, producer[value]).operands[0]
        if value not in stored:
            raise InternalError(
                f"graph '{ir.name}': {reader} reads %{value}, which no group before it stores",
                code="EK0908",
                got=[list(group.nodes) for group in parts.groups],
            )

    groups = {final(group): group for group in parts.groups}
    for number, item in enumerate(ir.nodes):
        if isinstance(item, Control) and number in parts.controls:
            for value in (*item.operands, *(value for body in item.bodies for value in body.outputs)):
                expect(value, f"'{item.name}'")
        if isinstance(item, Carried) or number in parts.controls:
            stored.update(item.results)
        computed: set[int] = set()
        for n in groups[number].nodes if number in groups else ():
            for value in _node(ir, n).operands:
                if value not in computed:
                    expect(value, f"'{_node(ir, n).name}'")
            computed.update(_node(ir, n).results)
        stored.update(item.results if number in groups else ())
    for value in ir.outputs:
        expect(value, "the caller")


def _node(ir: GraphIR, number: int) -> Node:
    node = ir.nodes[number]
    assert isinstance(node, Node)
    return node


class _Planner:
    def __init__(self, ir: GraphIR, parts: Partition, flow: ControlFlow, with_entry: bool, shared: bool) -> None:
        self.shared = shared
        self.ir = ir
        self.parts = parts
        self.with_entry = with_entry
        self.producer = {value: n for n, node in enumerate(ir.nodes) for value in node.results}
        self.slots: dict[Dim, int] = {}
        self.buffers: list[PlannedBuffer] = []
        self.buffer_of: dict[int, int] = {}  # home of a value -> buffer
        self.aliases = set(parts.aliases)
        self.flow = flow

    def run(self) -> Plan:
        for value in range(len(self.ir.inputs)):
            pattern = self.ir.pattern(value)
            strides = None if pattern is None else stride_dims(value, pattern)
            self._add(value, ("input", value), strides=strides)
        copies = self._outputs()
        stages = self._temporaries()
        for group in self.parts.groups:
            for n in group.nodes:
                self._number(n, set(group.nodes))
        for value, _, _ in self.flow.conditions():
            if isinstance(self._maker(value), Held):
                self._constant(value)
        entry = None
        if self.with_entry:
            specs = tuple(self._buffer(buffer) for buffer in self.buffers)
            groups = tuple(self._group(group) for group in self.parts.groups)
            flow = self._steps(0) if self.parts.controls else ()
            entry = EntrySpec(len(self.slots), specs, groups, stages=stages, steps=flow, traced=self.ir.traced)
        steps = tuple(step for step in self.ir.steps if step.value in self.buffer_of)
        known = (entry, tuple(self.buffers), tuple(self.slots), tuple(copies), (), steps, stages)
        return Plan(*known, self.parts.groups, self.parts)

    def _buffer(self, buffer: PlannedBuffer) -> BufferSpec:
        strides = None if buffer.strides is None else self._shape(buffer.strides)
        return BufferSpec(buffer.dtype, self._shape(buffer.shape), buffer.source[0], strides, str(buffer.device))

    def _number(self, n: int, members: set[int]) -> None:
        """Gives numbers to the constants and sizes that a node needs, in order of appearance."""
        node = self._node(n)
        for value in node.operands:
            if self.producer.get(value) not in members:
                self._shape(self.ir.types[value].shape)
                origin = self._origin(value)
                if self.ir.pattern(origin) is not None:
                    self._shape(self.buffers[self.buffer_of[origin]].strides or ())
                maker = self._maker(origin)
                if isinstance(maker, External) or (isinstance(maker, ConstantTensor) and maker.array.size != 1):
                    self._constant(origin)
        for type in node.out_types:
            self._shape(type.shape)

    # buffers

    def _add(
        self,
        value: int,
        source: tuple[str, int],
        first: int = 0,
        last: int = 0,
        strides: tuple[Dim, ...] | None = None,
    ) -> None:
        type = self.ir.types[value]
        self.buffer_of[value] = len(self.buffers)
        self.buffers.append(PlannedBuffer(type.dtype, type.shape, source, first, last, strides, type.device))

    def _outputs(self) -> list[tuple[int, int]]:
        copies = []
        for position, value in enumerate(self.ir.outputs):
            if value in self.buffer_of:
                copies.append((position, self.buffer_of[value]))
            elif isinstance(self._maker(value), Held):
                copies.append((position, self._constant(value)))
            else:
                self._add(value, ("output", position))
                self.buffer_of[self._origin(value)] = self.buffer_of[value]  # stored by its maker, under its shape
        return copies

    def _maker(self, value: int) -> Item | None:
        number = self.producer.get(value)
        return None if number is None else self.ir.nodes[number]

    def _constant(self, value: int) -> int:
        if value not in self.buffer_of:
            self._add(value, ("constant", self.producer[value]))
        return self.buffer_of[value]

    def _temporaries(self) -> tuple[int, ...]:
        """Values that a group stores and another reads, and the groups that wait for sizes."""
        written: dict[int, int] = {}
        last: dict[int, int] = {}
        for time, group in enumerate(self.parts.groups):
            for value in self._node(final(group)).results:
                home = self.flow.home(value)
                written.setdefault(home, time)
                last[home] = max(last.get(home, 0), time)
            region = self.flow.regions.of[final(group)]
            for n in group.nodes:
                for value in self._node(n).operands:
                    source = self._origin(value)
                    if source in written:
                        last[source] = max(last[source], self.flow.needed(source, time, region))
        self.flow.lifetimes(written, last)
        made = [step.value for step in self.ir.steps if step.value in written]
        for value, time in written.items():
            if value not in self.buffer_of:
                end = last[value] if self.shared else len(self.parts.groups)
                self._add(value, ("sizes", made.index(value)) if value in made else ("temp", 0), time, end)
        return tuple(written[value] + 1 for value in made)

    def _node(self, number: int) -> Node:
        return _node(self.ir, number)

    def _origin(self, value: int) -> int:
        """The value whose memory this one is: reshapes of something in memory are only names."""
        while (number := self.producer.get(value)) in self.aliases:
            assert number is not None
            value = self._node(number).operands[0]
        return self.flow.home(value)

    # the compile unit

    def _group(self, group: Group) -> GroupSpec:
        local = {n: position for position, n in enumerate(group.nodes)}
        nodes = tuple(self._node_spec(self._node(n), local) for n in group.nodes)
        last = final(group)
        homes = [self.flow.home(value) for value in self._node(last).results]
        stores = tuple(Store(local[last], output, self.buffer_of[home]) for output, home in enumerate(homes))
        epilogue = None if group.epilogue is None else local[group.epilogue]
        moves = tuple(local[n] for n in group.moves)
        return GroupSpec(nodes, local[group.root], stores, epilogue, str(group.device), moves)

    def _steps(self, region: int) -> tuple[Step, ...]:
        """What a body does, or the graph."""
        steps: list[Step] = []
        for number, group in self.flow.steps.get(region, ()):
            node = self.ir.nodes[number]
            if group is not None:
                steps.append(group)
                continue
            inner = self.flow.regions.first[number]
            first, second = self._steps(inner), self._steps(inner + 1)
            if isinstance(node, Loop):
                swaps = tuple((self.buffer_of[a], self.buffer_of[b]) for a, b in self.flow.swaps(node))
                steps.append(WhileStep(self._place(node.bodies[0].outputs[0]), first, second, swaps))
            elif isinstance(node, Branch) and (first or second):
                steps.append(IfStep(self._place(node.condition), first, second))
        return tuple(steps)

    def _place(self, value: int) -> int:
        """The buffer that a value lies in."""
        return self.buffer_of[self._origin(value)]

    def _node_spec(self, node: Node, local: dict[int, int]) -> NodeSpec:
        inputs = tuple(self._operand(value, local) for value in node.operands)
        outputs = tuple((type.dtype, self._shape(type.shape)) for type in node.out_types)
        types = [self.ir.types[value] for value in node.operands]
        dtypes = bound_dtypes(node, [t.dtype for t in types])
        return NodeSpec(node.kernel.portable, dtypes, node.parameters, inputs, outputs)

    def _operand(self, value: int, local: dict[int, int]) -> Operand:
        made_by = self.producer.get(value)
        if made_by in local:
            assert made_by is not None
            return FromNode(local[made_by], self._node(made_by).results.index(value))
        shape = self._shape(self.ir.types[value].shape)
        origin = self._origin(value)
        maker = self._maker(origin)
        if isinstance(maker, ConstantTensor) and maker.array.size == 1:
            return Literal(maker.array.item(), maker.type.dtype, shape)
        if isinstance(maker, Held):
            return FromBuffer(self._constant(origin), shape)
        return FromBuffer(self.buffer_of[origin], shape)

    def _shape(self, shape: Iterable[Dim]) -> tuple[Size, ...]:
        out: list[Size] = []
        for dim in shape:
            if isinstance(dim, StaticDim):
                out.append(int(dim))
            else:
                out.append(Slot(self.slots.setdefault(dim, len(self.slots))))
        return tuple(out)


def bound_dtypes(node: Node, operands: Sequence[DType]) -> tuple[tuple[str, DType], ...]:
    """The dtypes that a node's type variables stand for."""
    schema = node.kernel.schema
    results: dict[str, DType] = {}
    pairs: list[tuple[TensorArgument, DType]] = [*zip(schema.inputs, operands, strict=True)]
    pairs += zip(schema.outputs, (t.dtype for t in node.out_types), strict=True)
    for argument, dtype in pairs:
        if isinstance(argument.dtype, str):
            results[argument.dtype] = dtype
    return tuple(sorted(results.items()))
