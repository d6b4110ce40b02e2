"""Cuts the parameters of layers over the ranks of a mesh: each rank holds an equal part along one axis.

A layer that is split holds the part of this rank. Loading takes the whole arrays, of which it reads that part.
See also `distributed.mesh` (groups of ranks), docs/several-processes.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import plural
from ...dsl.environment.pages import mapped_file
from ..driver.buffer import Buffer
from ..driver.devices import CPU
from ..eager.tensor import Tensor
from ..ops import allreduce
from ..ops.collectives import CODE, mesh_group
from ..staging.value import TensorValue
from .state import misused

if TYPE_CHECKING:
    from ..distributed.mesh import Mesh, RankGroup


@dataclass(frozen=True)
class ParameterSplit:
    """How ranks share a parameter.

    Attributes:
        group: the ranks.
        axis: which is cut.
        sections: sizes of sections along the axis; each rank holds its part of each. One section when empty.
    """

    group: RankGroup
    axis: int = 0
    sections: tuple[int, ...] = ()

    def part(self, value: Tensor) -> Tensor:
        """The part of this rank.

        On the host, a part of one piece is a view, and so is any part of a mapped file along one section; other parts
        are copied, and only they are read.

        Raises:
            GraphError: EK0865, the ranks cannot share the axis equally.
        """
        array = value.to(CPU()).driver_tensor.to_numpy()
        if array.ndim <= self.axis or sum(self.sections) not in (0, array.shape[self.axis]):
            return value  # of a shape that does not fit, which loading reports
        ends = list(itertools.accumulate(self.sections))[:-1]
        parts = [self.group.part(section, self.axis) for section in np.split(array, ends, self.axis)]
        if len(parts) > 1:
            return Tensor(storage=Buffer.from_numpy(np.concatenate(parts, self.axis)))
        if mapped_file(array) is None:  # a view would keep the whole array
            return Tensor(storage=Buffer.from_numpy(np.ascontiguousarray(parts[0])))
        return Tensor(storage=Buffer.from_dlpack(parts[0]))


def ranks_of(argument: str, given: RankGroup | Mesh | None) -> RankGroup | None:
    """The ranks that share a layer; None where it is whole.

    Raises:
        GraphError: EK0865, neither a group of a mesh nor a mesh.
    """
    return None if given is None else mesh_group(argument, given, argument)


def share(argument: str, size: int, group: RankGroup | None) -> int:
    """The part of a size that a rank has.

    Raises:
        GraphError: EK0865, the ranks cannot share it equally.
    """
    count = 1 if group is None else group.size
    if size % count:
        text = f"argument '{argument}' is {size}, which {plural(count, 'rank')} cannot share equally"
        raise misused(text, argument, f"a multiple of {count}", size, code=CODE)
    return size // count


def summed(value: object, group: RankGroup | None) -> Any:
    """The sum of what all ranks have computed, in the order of ranks.

    Raises:
        GraphError: EK0866, it is computed by eager tensors.
    """
    if group is None:
        return value
    if not isinstance(value, TensorValue):
        text = "a layer that ranks share runs in graphs only: on eager tensors, ranks cannot agree on its turn"
        raise misused(text, "x", "a value of a graph", type(value).__name__, "layer.compile(type)(x)", "EK0866")
    return allreduce.sum(value, group)
