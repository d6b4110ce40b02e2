"""Stages collectives: between the ranks of a mesh, or between several devices of one process.

    total = ops.allreduce.sum(x, mesh["model"])                     per rank: a tensor in, a tensor out
    totals = ops.allreduce.sum([x0, x1], signal_buffers)            several devices: a tensor for each, a list out

Over a mesh, each rank runs the graph, and kernels of `stdlib/kernels/collectives.py` hand the tensors to its
communicator. Between devices the graph has copies, and the ops that compute with them.

See also `distributed.calls` (what happens at a call), `reducing` (`allreduce`, `reducescatter`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...dsl.contract.collective_names import PREFIX, SEPARATOR
from ...dsl.diagnostics.errors import DTypeError, plural
from ...dsl.diagnostics.extension_points import ExtensionPoint
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import axis_of, in_short, int_of, list_of, wrong
from ..driver.devices import Device, DeviceRef
from ..staging.value import BufferValue, TensorValue, TensorValueLike
from ..types.dims import Dim, StaticDim
from ..types.tensor_type import TensorType
from .indexing import slice_tensor
from .movement import concat, stack, transfer_to
from .operands import tensor
from .stage import builtin, current, fail, op, require

if TYPE_CHECKING:
    from ..distributed.mesh import Mesh, RankGroup

__all__ = [
    "allgather",
    "alltoall",
    "barrier",
    "collective_permute",
    "distributed_broadcast",
    "recv",
    "send",
    "shard",
    "shard_and_stack",
]

FAMILY = "collectives"
IN_GRAPHS = "ranks agree on its turn in a graph"
Ranks: TypeAlias = "Iterable[BufferValue] | RankGroup | Mesh"
MESHES: ExtensionPoint[ModuleType] = ExtensionPoint("graph.distributed.mesh")  # there is no mesh where it is not loaded
CODE = "EK0865"

_BUFFERS = "buffers, one for each device (Signals(devices).input_types()), or a group of a mesh such as mesh['model']"


# *** over a mesh ***


def group_in(ranks: Ranks) -> RankGroup | None:
    """The group of ranks, or None of buffers of several devices."""
    if (mesh := mesh_in(ranks)) is not None:
        return mesh.group
    meshes = MESHES.get_if_loaded()
    return ranks if meshes is not None and isinstance(ranks, meshes.RankGroup) else None


def mesh_in(given: object) -> Mesh | None:
    """The mesh that an argument is; None where it is none."""
    meshes = MESHES.get_if_loaded()
    return given if meshes is not None and isinstance(given, meshes.Mesh) else None


def over_mesh(
    name: str, value: TensorValue, group: RankGroup, option: str, out: TensorType, **parameters: object
) -> TensorValue:
    """Stages a collective of one tensor, on the device where it lies."""
    packed_refused(name, value.dtype)
    return staged(name.partition(".")[0], [value], group, option, out, **parameters)


def staged(
    kernel: str, inputs: Sequence[TensorValue], group: RankGroup, option: str, out: TensorType, **parameters: object
) -> TensorValue:
    """Stages the kernel of a collective, whose inputs and output lie on one device.

    The kernel gets a text that says what it is (see `distributed.calls`), and as its last input the number of its node,
    for messages.
    """
    graph = current(FAMILY)
    number = graph.stage_constant(np.asarray(graph.next_node, np.int64), out.device, user_place())
    what = SEPARATOR.join((kernel, group.text, out.dtype.name, option))
    return builtin(FAMILY, f"{PREFIX}{kernel}", [*inputs, number], {"what": what, **parameters}, [out])[0]


def packed_refused(name: str, dtype: DType) -> None:
    """Refuses elements that share bytes."""
    if dtype.is_packed():
        text = f"argument 'inputs' has elements of {dtype}, which share bytes, and ranks exchange whole bytes"
        fail(name, text, code=CODE, kind=DTypeError, argument="inputs", got=str(dtype), hint="ops.cast(x, DType.int8)")


def one_tensor(name: str, inputs: Any, argument: str = "inputs") -> TensorValue:
    """The tensor of a rank."""
    if isinstance(inputs, list | tuple):
        text = f"argument '{argument}' is a list, and over a mesh each rank gives one tensor"
        fail(name, text, code=CODE, argument=argument, expected="a tensor", got=type(inputs).__name__)
    return tensor(name, argument, inputs)


def pieces_of(name: str, value: TensorValue, axis: int, count: int) -> int:
    """The axis, which is cut into so many equal pieces."""
    at = axis_of(axis, value.rank)
    size = Dim(value.shape[at])
    if isinstance(size, StaticDim) and int(size) % count:
        fail(
            name,
            f"axis {at} has {plural(int(size), 'element')}, which {plural(count, 'rank')} cannot share equally",
            code=CODE,
            argument="axis",
            expected=f"a multiple of {count}",
            got=int(size),
        )
    message = f"{name}: {count} ranks cannot share axis {at} equally"
    require(name, "equal", size, (size // count) * count, message, CODE)
    return at


# *** between devices ***


def on_devices(name: str, inputs: object, ranks: object) -> tuple[list[TensorValue], list[DeviceRef]]:
    """The tensors and the devices of the documented form: a tensor and a buffer for each device."""
    devices = signal_devices(name, ranks)
    values = [tensor(name, f"inputs[{k}]", each) for k, each in enumerate(list_of("inputs", inputs, "tensors", CODE))]
    if [value.device for value in values] != devices:
        fail(
            name,
            f"the tensors lie on {_listed(value.device for value in values)}, the buffers on {_listed(devices)}",
            code=CODE,
            argument="signal_buffers",
            expected=_listed(value.device for value in values),
            got=_listed(devices),
            hint="pass a buffer for each tensor: Signals(devices).input_types() are their types",
        )
    for value in values[1:]:
        if value.dtype is not values[0].dtype or value.rank != values[0].rank:
            fail(
                name,
                f"the tensors differ: {values[0].type} and {value.type}",
                code=CODE,
                argument="inputs",
                expected=str(values[0].type),
                got=str(value.type),
            )
    return values, devices


def signal_devices(name: str, ranks: object) -> list[DeviceRef]:
    """The devices of signal buffers: each once."""
    if isinstance(ranks, TensorValue | BufferValue):
        wrong("signal_buffers", ranks, f"a list of {_BUFFERS}", code=CODE)
    buffers = list_of("signal_buffers", ranks, _BUFFERS, CODE)
    if not buffers or not all(isinstance(each, BufferValue) for each in buffers):
        wrong("signal_buffers", buffers, f"a list of {_BUFFERS}", code=CODE)
    devices = [each.device for each in buffers]
    if len(set(devices)) < len(devices):
        text = f"the signal buffers lie on {_listed(devices)}, and each device takes part once"
        fail(name, text, code=CODE, argument="signal_buffers", got=_listed(devices))
    return devices


def _listed(devices: Iterable[DeviceRef]) -> str:
    return ", ".join(map(str, devices))


# *** ops ***


@op(
    dtypes={"inputs": "storable"},
    example='ops.allgather(inputs, Mesh({"model": 1})["model"], axis=0)',
    graphs_only=IN_GRAPHS,
)
def allgather(
    inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks, axis: int = 0
) -> TensorValue | list[TensorValue]:
    """The tensors of all ranks, joined along an axis in the order of ranks; every rank gets the result.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        axis: along which they are joined.

    Raises:
        GraphError: EK0865, tensors and devices do not belong together; an axis that is not there.
    """
    name, group = "allgather", group_in(signal_buffers)
    if group is None:
        values, devices = on_devices(name, inputs, signal_buffers)
        at = axis_of(axis, values[0].rank)
        return [concat([transfer_to(value, device) for value in values], at) for device in devices]
    value = one_tensor(name, inputs)
    at = axis_of(axis, value.rank)
    shape = list(value.shape)
    shape[at] = group.size * Dim(shape[at])
    return over_mesh(name, value, group, "", TensorType(value.dtype, shape, value.device), axis=at, ranks=group.size)


@op(
    dtypes={"inputs": "storable"},
    example='ops.alltoall(inputs, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def alltoall(
    inputs: TensorValueLike | Sequence[TensorValueLike], signal_buffers: Ranks, axis: int = 0
) -> TensorValue | list[TensorValue]:
    """Cuts an axis into a piece for each rank, sends each its piece, and joins what comes along the same axis.

    Args:
        inputs: the tensor of this rank; or one for each device, as a list.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        axis: which is cut; its size is a multiple of the number of ranks.

    Raises:
        GraphError: EK0865, the axis cannot be cut so; tensors and devices do not belong together.
    """
    name, group = "alltoall", group_in(signal_buffers)
    if group is None:
        values, devices = on_devices(name, inputs, signal_buffers)
        at = pieces_of(name, values[0], axis, len(devices))
        return [
            concat([transfer_to(piece(value, at, k, len(devices)), device) for value in values], at)
            for k, device in enumerate(devices)
        ]
    value = one_tensor(name, inputs)
    at = pieces_of(name, value, axis, group.size)
    return over_mesh(name, value, group, "", value.type, axis=at, ranks=group.size)


def piece(value: TensorValue, axis: int, number: int, count: int) -> TensorValue:
    """One of `count` equal pieces along an axis."""
    size = Dim(value.shape[axis]) // count
    index = [slice(None)] * axis + [(slice(number * size, (number + 1) * size), size)]
    return slice_tensor(value, index)


@op(
    dtypes={"input": "storable"},
    example='ops.distributed_broadcast(input, Mesh({"model": 1})["model"])',
    graphs_only=IN_GRAPHS,
)
def distributed_broadcast(
    input: TensorValueLike, signal_buffers: Ranks, root: int = 0
) -> TensorValue | list[TensorValue]:
    """The tensor of one rank, on all ranks.

    Args:
        input: the tensor; over a mesh each rank has one of the same type, and that of `root` is sent.
        signal_buffers: a group of a mesh; or a buffer for each device, and the result is a list.
        root: the rank in the group; between devices it is where `input` lies.

    Raises:
        GraphError: EK0865, there is no such rank; between devices, fewer than two, or `input` lies on none of them.
    """
    name, group = "distributed_broadcast", group_in(signal_buffers)
    value = one_tensor(name, input, "input")
    if group is not None:
        number = rank_of(name, "root", root, group)
        return over_mesh("broadcast", value, group, str(number), value.type)
    devices = signal_devices(name, signal_buffers)
    if len(devices) < 2 or value.device not in devices:
        fail(
            name,
            f"a tensor of {value.device} cannot be sent to {_listed(devices)}",
            code=CODE,
            argument="signal_buffers",
            expected=f"buffers of {value.device} and of another device",
            got=_listed(devices),
        )
    return [transfer_to(value, device) for device in devices]


def rank_of(name: str, argument: str, given: int, group: RankGroup) -> int:
    """The number of a rank of a group."""
    number = int_of(argument, given)
    if not 0 <= number < group.size:
        fail(
            name,
            f"there is no rank {in_short(number)} in a group of {plural(group.size, 'rank')}",
            code=CODE,
            argument=argument,
            expected=f"0 to {group.size - 1}",
            got=in_short(number),
        )
    return number


def _pair_of(name: str, given: object, group: RankGroup) -> tuple[int, int]:
    """A sender and a receiver."""
    if not isinstance(given, list | tuple) or len(given) != 2:
        wrong("pairs", given, "pairs of ranks, such as [(0, 1), (1, 0)]", code=CODE)
    source, to = (rank_of(name, "pairs", each, group) for each in given)
    return source, to


@op(
    dtypes={"x": "storable"},
    example='ops.collective_permute(x, Mesh({"model": 1})["model"], [(0, 0)])',
    graphs_only=IN_GRAPHS,
)
def collective_permute(x: TensorValueLike, group: RankGroup | Mesh, pairs: Iterable[tuple[int, int]]) -> TensorValue:
    """Sends tensors from rank to rank: `(0, 1)` sends that of rank 0 to rank 1. Zeros, where nothing is sent to a rank.

    Args:
        x: the tensor of this rank.
        group: the ranks.
        pairs: the sender and the receiver of each tensor; each rank sends once at most, and receives once at most.

    Raises:
        GraphError: EK0865, there is no such rank, or a rank sends or receives twice.
    """
    name, ranks = "collective_permute", mesh_group("collective_permute", group)
    checked = [_pair_of(name, each, ranks) for each in list_of("pairs", pairs, "pairs of ranks", CODE)]
    for side in (0, 1):
        if len({pair[side] for pair in checked}) < len(checked):
            text = f"a rank {('sends', 'receives')[side]} twice in {checked}"
            fail(name, text, code=CODE, argument="pairs", got=checked)
    value = one_tensor(name, x, "x")
    option = ",".join(f"{source}>{to}" for source, to in checked)
    return over_mesh("permute", value, ranks, option, value.type)


@op(
    dtypes={},
    example='ops.barrier(Mesh({"model": 1})) or x',
    host_only="it has no tensors; the host waits",
    graphs_only=IN_GRAPHS,
)
def barrier(group: RankGroup | Mesh) -> None:
    """Waits until all ranks of a group have come here."""
    ranks = mesh_group("barrier", group)
    done = TensorType(DType.int8, [0], DeviceRef.CPU())
    staged("barrier", [], ranks, "", done, ranks=ranks.size)


@op(
    dtypes={"x": "storable"},
    example='ops.send(x, Mesh({"pipe": 1}), to=0) or x',
    graphs_only=IN_GRAPHS,
)
def send(x: TensorValueLike, group: RankGroup | Mesh, to: int) -> None:
    """Sends a tensor to a rank, whose graph has the `recv` for it.

    Graphs with `send` and `recv` may differ between ranks. They are left out where ranks compare their graphs.

    Raises:
        GraphError: EK0865, there is no such rank.
    """
    ranks = mesh_group("send", group)
    value = one_tensor("send", x, "x")
    over_mesh("send", value, ranks, str(rank_of("send", "to", to, ranks)), value.type)


@op(dtypes={}, example='ops.recv(x.type, Mesh({"pipe": 1}), source=0)', graphs_only=IN_GRAPHS)
def recv(type: TensorType, group: RankGroup | Mesh, source: int) -> TensorValue:
    """The tensor of this type that a rank sends here by `send`.

    Raises:
        GraphError: EK0865, there is no such rank.
    """
    name, ranks = "recv", mesh_group("recv", group)
    if not isinstance(type, TensorType):
        wrong("type", type, "a TensorType")
    packed_refused(name, type.dtype)
    return staged(name, [], ranks, str(rank_of(name, "source", source, ranks)), type)


def mesh_group(name: str, group: Ranks, argument: str = "group") -> RankGroup:
    """A group of ranks."""
    found = group_in(group)
    if found is None:
        text = f"argument '{argument}' is a group of a mesh, such as mesh['model'], or a mesh"
        fail(name, text, code=CODE, argument=argument, got=type(group).__name__)
    return found


@op(dtypes={"x": "storable"}, example='ops.shard(x, Mesh({"model": 1}), {"model": 0})', graphs_only=IN_GRAPHS)
def shard(x: TensorValueLike, mesh: Mesh, axes: Mapping[str, int]) -> TensorValue:
    """The piece of a tensor that belongs to this rank.

    Args:
        x: a tensor that all ranks have whole.
        mesh: the ranks.
        axes: by the name of an axis of the mesh, the axis of `x` that its ranks share equally.

    Raises:
        GraphError: EK0860, the mesh has no such axis; EK0865, ranks cannot share an axis equally, or share it twice.
    """
    name = "shard"
    value = tensor(name, "x", x)
    if mesh_in(mesh) is None or not isinstance(axes, Mapping):
        text = 'a tensor is cut by a mesh and its axes, such as mesh, {"model": 0}'
        fail(name, text, code=CODE, argument="axes", expected="a dict of axes by name", got=type(axes).__name__)
    places = [axis_of(axis, value.rank) for axis in axes.values()]
    if len(set(places)) < len(places):
        fail(name, f"an axis is cut twice in {dict(axes)}", code=CODE, argument="axes", got=dict(axes))
    for group, axis in [(mesh[each], axis) for each, axis in zip(axes, places, strict=True)]:
        value = piece(value, pieces_of(name, value, axis, group.size), group.rank, group.size)
    return value


@op(dtypes={"inputs": "storable"}, example="ops.shard_and_stack([inputs], [inputs.device])")
def shard_and_stack(
    inputs: Sequence[TensorValueLike], devices: Sequence[Device | DeviceRef], axis: int = 0
) -> list[TensorValue]:
    """Cuts each tensor along an axis into a piece for each device; a device gets its pieces, stacked on a new axis 0.

    Args:
        inputs: tensors of one shape, dtype and device.
        devices: where the results lie.
        axis: which is cut; its size is a multiple of the number of devices.

    Raises:
        GraphError: EK0865, no tensors or no devices, tensors of several types, an axis that cannot be cut so.
    """
    name = "shard_and_stack"
    values = [tensor(name, f"inputs[{k}]", each) for k, each in enumerate(list_of("inputs", inputs, "tensors", CODE))]
    targets = [DeviceRef.from_device(each) for each in list_of("devices", devices, "devices", CODE)]
    if not values or not targets:
        empty = "inputs" if not values else "devices"
        fail(name, f"argument '{empty}' is empty", code=CODE, argument=empty, expected="one at least", got=0)
    for value in values[1:]:
        if value.type != values[0].type:
            text = f"the tensors differ: {values[0].type} and {value.type}"
            fail(name, text, code=CODE, argument="inputs", expected=str(values[0].type), got=str(value.type))
    at = pieces_of(name, values[0], axis, len(targets))
    return [
        transfer_to(stack([piece(value, at, k, len(targets)) for value in values], 0), device)
        for k, device in enumerate(targets)
    ]
