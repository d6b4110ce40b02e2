"""Arranges ranks in a grid with named axes: `Mesh({"data": 2, "model": 4})`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from ...dsl.diagnostics.errors import GraphError, did_you_mean, plural, shown_value
from ...dsl.diagnostics.places import user_place
from ...dsl.diagnostics.shield import shielded
from ..arguments import flag_of, int_of
from .communicator import Communicator, DeviceRanks
from .world import World, current_world

Array = np.ndarray[Any, Any]
ALL = "*"  # the name of the group of all ranks


class RankGroup:
    """Ranks of a mesh that differ along one axis: those among which a collective goes on.

    Attributes:
        mesh: whose ranks they are.
        axis: the axis along which they differ; "*" where it is all ranks.
        ranks: their numbers among the ranks of the mesh.
        communicator: of these ranks.
        on_devices: that of their GPUs; None where tensors of GPUs go through the host.
        has_agreed: whether the ranks have agreed on that.
        kept: memory to which exchanges that a failed call has begun may still write.
    """

    def __init__(self, mesh: Mesh, axis: str, ranks: tuple[int, ...], communicator: Communicator) -> None:
        self.mesh, self.axis, self.ranks, self.communicator = mesh, axis, ranks, communicator
        self.on_devices: DeviceRanks | None = None
        self.has_agreed = False
        self.kept: list[object] = []

    @property
    def rank(self) -> int:
        """The number of this rank in the group."""
        return self.communicator.rank

    @property
    def size(self) -> int:
        """How many ranks it has."""
        return self.communicator.size

    @property
    def text(self) -> str:
        """How graphs name it; the same on all ranks."""
        return f"{self.mesh.text}:{self.axis}"

    def part(self, array: Array, axis: int = 0) -> Array:
        """The piece of an array that belongs to this rank: a view, so that of a mapped file only the piece is read.

        Raises:
            GraphError: EK0865, the ranks cannot share the axis equally.
        """
        extent = array.shape[axis]
        if extent % self.size:
            text = (
                f"axis {axis} has {plural(extent, 'element')}, which {plural(self.size, 'rank')} cannot share equally"
            )
            raise GraphError(
                text,
                code="EK0865",
                place=user_place(),
                argument="axis",
                expected=f"a multiple of {self.size}",
                got=extent,
            )
        index: list[Any] = [slice(None)] * array.ndim
        index[axis] = slice(extent // self.size * self.rank, extent // self.size * (self.rank + 1))
        part: Array = array[tuple(index)]
        return part

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the name: a rank that reads it gets its own group."""
        return group_of, (self.text,)

    def __repr__(self) -> str:
        return f"<group {self.axis!r} of {self.mesh!r}: rank {self.rank} of {self.size}>"


class Mesh:
    """The ranks of a program in a grid with named axes. The last axis is the one along which ranks are neighbours.

    Each rank makes the same meshes in the same order. `mesh["model"]` is the group of ranks that differ from this one
    along that axis alone, and `mesh.group` that of all.

    Args:
        axes: the name and the size of each axis. Their product is the number of ranks.
        communicator: the ranks; those of the program when left out. A communicator of mpi4py is taken, too.
        nccl: whether tensors of GPUs are exchanged by NCCL or RCCL; `EINKORN_NCCL` says so when it is left out.

    Raises:
        GraphError: EK0860, axes that are none, or whose product is another number.
    """

    def __init__(self, axes: Mapping[str, int], communicator: object = None, *, nccl: bool | None = None) -> None:
        world = current_world()
        self.nccl = None if nccl is None else "on" if flag_of("nccl", nccl) else "off"
        self.axes = _axes_of(axes)
        chosen = world.communicator if communicator is None else _communicator_of(communicator)
        self.rank, self.size = chosen.rank, chosen.size
        if math.prod(self.axes.values()) != self.size:
            sizes = " x ".join(f"{name} {size}" for name, size in self.axes.items())
            ranks = "1 rank" if self.size == 1 else f"{self.size} ranks"
            raise GraphError(
                f"a mesh of {sizes} wants {math.prod(self.axes.values())} ranks, and the program has {ranks}",
                code="EK0860",
                place=user_place(),
                argument="axes",
                expected=self.size,
                got=math.prod(self.axes.values()),
                hint=f"start it with: einkorn run -n {math.prod(self.axes.values())} program.py",
            )
        grid = np.arange(self.size).reshape(tuple(self.axes.values()))
        place = tuple(int(k) for k in np.unravel_index(self.rank, grid.shape))
        self.coordinates: dict[str, int] = dict(zip(self.axes, place, strict=True))
        self.text = ",".join(f"{name}={size}" for name, size in self.axes.items())
        if communicator is not None:
            self.text += f"#{_count_of_given(world)}"
        self.group = RankGroup(self, ALL, tuple(range(self.size)), chosen)
        self.compared: set[bytes] = set()  # digests of graphs that the ranks of their groups have in common
        self._groups = {ALL: self.group}
        for number, name in enumerate(self.axes):
            index: list[Any] = list(place)
            index[number] = slice(None)
            members = tuple(int(rank) for rank in grid[tuple(index)])
            self._groups[name] = RankGroup(self, name, members, chosen.split(members))
        world.meshes[self.text] = self

    def __getitem__(self, axis: str) -> RankGroup:
        """The ranks that differ from this one along an axis alone.

        Raises:
            GraphError: EK0860, there is no such axis.
        """
        group = self._groups.get(axis) if isinstance(axis, str) else None
        if group is None:
            raise GraphError(
                f"the mesh has no axis {shown_value(axis)}",
                code="EK0860",
                place=user_place(),
                argument="axis",
                expected=list(self.axes),
                got=axis,
                notes=[f"its axes are {', '.join(self.axes)}"],
                hint=did_you_mean(axis, self.axes) if isinstance(axis, str) else None,
            )
        return group

    def __repr__(self) -> str:
        return f"Mesh({self.axes!r})"


def group_of(text: str) -> RankGroup:
    """The group of this rank that a graph names so.

    Raises:
        GraphError: EK0860, this rank has made no such mesh.
    """
    name, _, axis = text.rpartition(":")
    world = current_world()
    mesh: Mesh | None = world.meshes.get(name)
    if mesh is None:
        known = ", ".join(world.meshes) or "none"
        raise GraphError(
            f"a graph runs over the mesh {name}, and this rank has made {known}",
            code="EK0860",
            place=user_place(),
            expected=name,
            got=known,
            hint="make the mesh on each rank before the model is called, on the thread of the rank",
        )
    return mesh[axis]


def _count_of_given(world: World) -> int:
    return sum("#" in text for text in world.meshes)


def _axes_of(axes: object) -> dict[str, int]:
    if not isinstance(axes, Mapping) or not axes:
        raise GraphError(
            f"axes= of a mesh is a dict of sizes by name, not {shown_value(axes)}",
            code="EK0860",
            place=user_place(),
            argument="axes",
            expected="a dict",
            got=axes,
            hint='Mesh({"data": 2, "model": 4})',
        )
    sizes: dict[str, int] = {}
    for name, value in axes.items():
        size = int_of(f"axes[{name!r}]", value, "EK0860")
        if not isinstance(name, str) or not name.isidentifier() or size < 1:
            raise GraphError(
                f"an axis of a mesh has a name and a size from 1 on, not {shown_value(name)}: {size}",
                code="EK0860",
                place=user_place(),
                argument="axes",
                expected="a name and a size",
                got=name,
                hint='Mesh({"data": 2, "model": 4})',
            )
        sizes[name] = size
    return sizes


def _communicator_of(given: object) -> Communicator:
    """A communicator of Einkorn's, or one over that of mpi4py."""
    if all(hasattr(given, name) for name in ("rank", "size", "allgather", "alltoall", "broadcast", "split")):
        return cast(Communicator, given)
    with shielded():
        from .mpi import over  # an extra

    return over(given)
