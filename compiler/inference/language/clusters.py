"""Emits what the blocks of a cluster do together: they wait for each other, and reach each other's shared memory.

In a cluster of one block the first is a barrier, and the second the block's own memory.

See also `target_refusals` (which targets have clusters).
"""

from __future__ import annotations

import math
from typing import Any

from ....dsl.signature.schema import Role
from ....dsl.types.dtype import INT
from ...ir.program import PointerType
from ..conversion import coerce
from ..evaluator import Point, rule
from ..values.describe import describe
from ..values.tensors import Stored
from .grids import kernel_of


@rule("gpu.cluster.sync")
def sync(call: Point) -> None:
    launched = kernel_of(call, "cluster.sync()")
    if launched.role is not None:
        text = f"gpu.cluster.sync is for all threads of a cluster, and stands in role '{launched.role.name}'"
        raise call.error("EK0658", text, hint="put it before or behind gpu.roles")
    blocks = math.prod(launched.cluster)
    call.builder.add("cluster_sync" if blocks > 1 else "barrier", [])


@rule("gpu.cluster.peer")
def peer(call: Point, tensor: Any, rank: Any) -> Stored:
    blocks = math.prod(kernel_of(call, "cluster.peer()").cluster)
    if type(tensor) is not Stored or _space(tensor) != "shared":
        text = f"gpu.cluster.peer takes a whole tensor of shared memory, not {describe(tensor)}"
        raise call.error("EK0630", text, "tensor", hint="use gpu.shared or gpu.dynamic_shared, and slice its result")
    number = coerce(call.argument("rank"), rank, INT, "rank= of gpu.cluster.peer is an Int")
    if number.const is not None and not 0 <= number.const < blocks:
        text = f"rank= is the number of a block of the cluster, which has {blocks}"
        raise call.error("EK0630", text, "rank", expected=f"0 to {blocks - 1}", got=number.const)
    if blocks == 1:
        return tensor
    pointer = call.builder.one("peer", [tensor.pointer, number], PointerType(tensor.dtype, "cluster"), blocks=blocks)
    return Stored(pointer, tensor.name, tensor.dtype, tensor.dims, Role.MUTABLE, fixed=tensor.fixed)


def _space(tensor: Stored) -> str:
    assert isinstance(tensor.pointer.type, PointerType)
    return tensor.pointer.type.space
