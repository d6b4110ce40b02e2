"""Describes the compile unit: what the graph requests from the compiler, as plain data.

An entry is a list of groups over a list of buffers, and says in which order they run. A group is a set of kernel
instances that are fused: the root is the kernel whose loops run, the others are evaluated where the root reads an
element, or where it stores one (the epilogue). Sizes that are not known are slots, filled at the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..diagnostics.dataclass import dataclass
from ..frontend.program import PortableKernel
from ..signature import dims
from ..signature.parse_dims import parse_dims
from ..signature.schema import OpSchema
from ..types.dtype import DType


@dataclass(frozen=True)
class Slot:
    """A size known at the call only: entry `index` of the dims that the caller passes."""

    index: int


Size = int | Slot

HOST = "cpu:0"  # the host, as graphs write it


@dataclass(frozen=True)
class BufferSpec:
    """A buffer. `role` is input, output, temp or constant.

    `strides`, in elements, are None for a row-major buffer without gaps. They may be negative: a pointer is to the
    element whose index is all zeros. A buffer that has them is seen in its own shape only. `device` is where it lies,
    as graphs write it.
    """

    dtype: DType
    shape: tuple[Size, ...]
    role: str
    strides: tuple[Size, ...] | None = None
    device: str = HOST


@dataclass(frozen=True)
class FromBuffer:
    """An operand that lies in memory, seen with a shape (of as many elements as the buffer has)."""

    buffer: int
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class FromNode:
    """An operand that is computed where it is read: output `output` of node `node` of the group."""

    node: int
    output: int


@dataclass(frozen=True)
class Literal:
    """An operand whose elements are all one number, known now."""

    value: bool | int | float | complex
    dtype: DType
    shape: tuple[Size, ...]


@dataclass(frozen=True)
class Passed:
    """An operand whose elements are all one number, which a call of the group's code passes as its `number`-th."""

    number: int
    dtype: DType
    shape: tuple[Size, ...]


Operand = FromBuffer | FromNode | Literal | Passed


@dataclass(frozen=True)
class NodeSpec:
    """An instance of a kernel: dtypes for its type variables, values for its parameters, operands and results."""

    kernel: PortableKernel
    dtypes: tuple[tuple[str, DType], ...]
    parameters: tuple[tuple[str, object], ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[tuple[DType, tuple[Size, ...]], ...]


@dataclass(frozen=True)
class Store:
    """Output `output` of node `node` goes to buffer `buffer`."""

    node: int
    output: int
    buffer: int


@dataclass(frozen=True)
class GroupSpec:
    """Kernel instances in topological order, which run on one device.

    `epilogue` is the node that is done in the root's stores, if any. `moves` are the nodes from the root to it, itself
    included, that only change an element's place: reshapes and permutes. `passed` is how many numbers the operands
    are that a call passes. A `light` group does so small a part of the work of a call that its code is to be compiled
    quickly.
    """

    nodes: tuple[NodeSpec, ...]
    root: int
    stores: tuple[Store, ...]
    epilogue: int | None = None
    device: str = HOST
    moves: tuple[int, ...] = ()
    passed: int = 0
    light: bool = False


@dataclass(frozen=True)
class IfStep:
    """Runs one of two lists of steps: the first when the bool in buffer `condition` is true."""

    condition: int
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


@dataclass(frozen=True)
class WhileStep:
    """Runs `predicate`, then `body`, and again, until the bool in buffer `condition` is false after `predicate`.

    After each body the two buffers of each of the `swaps` change places: what was written as the next value is read as
    the present one. They stay where they are when the loop ends, for all that comes after it.
    """

    condition: int
    predicate: tuple[Step, ...]
    body: tuple[Step, ...]
    swaps: tuple[tuple[int, int], ...]


Step = int | IfStep | WhileStep  # a number is that of a group


def groups_in(steps: Iterable[Step]) -> Iterator[int]:
    """The groups that steps run, in their order."""
    for step in steps:
        if isinstance(step, int):
            yield step
        elif isinstance(step, IfStep):
            yield from groups_in((*step.then, *step.otherwise))
        else:
            yield from groups_in((*step.predicate, *step.body))


@dataclass(frozen=True)
class EntrySpec:
    """A whole graph, or one op. `checks` says what its code checks as it runs; see `checks`.

    `stages` are the groups before which the caller has its turn: it reads the sizes that groups before them have
    computed, fills in the slots and buffers that depend on these, and calls the entry for the next stage.

    `steps` say when which group runs; where there are none, each runs once, in their order. A group stands in one
    step, and the groups are numbered in the order of the steps. A `traced` entry reports when a group begins and ends.
    """

    slots: int
    buffers: tuple[BufferSpec, ...]
    groups: tuple[GroupSpec, ...]
    checks: str = "safe"
    stages: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    traced: bool = False


@dataclass(frozen=True)
class Piece:
    """Code of an entry for one of its targets: its format (of `code_formats`), the key of the target, and the code."""

    kind: str
    target: str
    code: bytes


# *** one op as an entry of its own ***


@dataclass(frozen=True)
class SlotSource:
    """Where the value of a dim slot is read off: an axis of the op's tensors (inputs, then outputs).

    `name` is what the signature calls it: `n`; `s_0`, `s_1`, … of a pack `*s`; `x_1` where it has none.
    """

    tensor: int
    axis: int
    name: str


def op_layout(
    schema: OpSchema, ranks: Mapping[str, int], parameters: Mapping[str, object]
) -> tuple[tuple[tuple[Size, ...], ...], tuple[SlotSource, ...]]:
    """The shapes of an op's tensors when nothing but their ranks is known, and where each slot's value comes from.

    One slot stands for each named dim, and one for each axis that has no name. `ranks` says how many axes a pack has.
    The builder of a package and its loader both call this, so that they number the slots alike.

    Raises:
        KeyError: a pack whose number of axes neither `ranks` nor the signature determines.
    """
    slots: dict[str, int] = {}
    sources: list[SlotSource] = []
    shapes: list[tuple[Size, ...]] = []

    arguments = (*schema.inputs, *schema.outputs)

    def slot(name: str | None, tensor: int, axis: int) -> Slot:
        key = name or f"{tensor}.{axis}"
        if key not in slots:
            slots[key] = len(sources)
            shown = key.strip("*").replace(".", "_") if name else f"{arguments[tensor].name}_{axis}"
            sources.append(SlotSource(tensor, axis, shown))
        return Slot(slots[key])

    whole = {name: value for name, value in parameters.items() if type(value) is int}
    for tensor, argument in enumerate(arguments):
        shape: list[Size] = []
        for item in parse_dims(argument.dims):
            if isinstance(item, dims.FixedAxis):
                shape.append(item.size)
            elif isinstance(item, dims.Pack):
                known = item.count is not None and {n.name for n in dims.names_in(item.count)} <= set(whole)
                count = dims.evaluate(item.count, whole) if item.count is not None and known else ranks[item.name]
                for number in range(int(count)):
                    shape.append(slot(f"*{item.name}.{number}", tensor, len(shape)))
            else:
                shape.append(slot(item.name if isinstance(item, dims.Axis) else None, tensor, len(shape)))
        shapes.append(tuple(shape))
    return tuple(shapes), tuple(sources)


def op_entry(
    kernel: PortableKernel, dtypes: Mapping[str, DType], ranks: Mapping[str, int], parameters: Mapping[str, object]
) -> EntrySpec:
    """One op for given dtypes, ranks and parameters, for any sizes.

    Raises:
        KeyError: a type variable or a pack that is not given.
    """
    schema = kernel.schema
    shapes, sources = op_layout(schema, ranks, parameters)
    arguments = (*schema.inputs, *schema.outputs)
    roles = ["input"] * len(schema.inputs) + ["output"] * len(schema.outputs)
    types = [a.dtype if isinstance(a.dtype, DType) else dtypes[a.dtype] for a in arguments]
    buffers = tuple(BufferSpec(t, s, r) for t, s, r in zip(types, shapes, roles, strict=True))
    inputs = tuple(FromBuffer(number, shapes[number]) for number in range(len(schema.inputs)))
    known = (tuple(sorted(dtypes.items())), tuple(parameters.items()), inputs)
    groups = [_alone(kernel, known, buffers, len(inputs))]
    if kernel.shape is not None:
        buffers = (*buffers, BufferSpec(DType.int64, (len(schema.late),), "temp"))
        groups.insert(0, _alone(kernel.shape, known, buffers, len(buffers) - 1))
    return EntrySpec(len(sources), buffers, tuple(groups), stages=(1,) if len(groups) > 1 else ())


def _alone(kernel: PortableKernel, known: Any, buffers: tuple[BufferSpec, ...], first: int) -> GroupSpec:
    """One kernel as a group; its outputs are the buffers from `first` on."""
    dtypes, parameters, inputs = known
    stores = tuple(Store(0, number, first + number) for number in range(len(kernel.schema.outputs)))
    outputs = tuple((buffers[store.buffer].dtype, buffers[store.buffer].shape) for store in stores)
    return GroupSpec((NodeSpec(kernel, dtypes, parameters, inputs, outputs),), 0, stores)
