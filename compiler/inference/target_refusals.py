"""Refuses what the target of a compilation lacks: printing, a size of blocks, device memory in host code.

A package may leave such a target out for an op (see `compiler.build`); every other mistake is the author's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from ...dsl.diagnostics.errors import TargetError
from ..ir.program import PointerType, Value
from .evaluator import Evaluator, Point
from .values.tensors import KernelTensor, Stored, View

MAX_CLUSTER = 8  # blocks: what is portable
CODES: Final = frozenset({"EK0227", "EK0604", "EK0611", "EK0820"})


def is_host_code(evaluator: Evaluator) -> bool:
    """Whether code around launches is evaluated: it runs on the host, and all tensors lie in memory of a device."""
    return evaluator.target.has_grid and evaluator.level == "host"


def is_host_storage(place: KernelTensor | Value) -> bool:
    """Whether a tensor or a pointer leads to `stack` storage, which host code may use as any other code does."""
    while isinstance(place, View):
        place = place.base
    pointer = place.pointer if isinstance(place, Stored) else place
    return isinstance(pointer, Value) and isinstance(pointer.type, PointerType) and pointer.type.space == "stack"


def refuse_host(call: Point, place: KernelTensor | Value) -> None:
    """Refuses to use an element of a tensor, or what a pointer points to, in host code, where it is device memory."""
    if is_host_code(call.evaluator) and not is_host_storage(place):
        what = f"'{place.name}' lies in" if isinstance(place, KernelTensor) else "this pointer is one of"
        raise call.error(
            "EK0820",
            f"{what} device memory; this code runs on the host",
            hint="use foreach, parallel_for or ctx.launch, or guard the code by `if ctx.target.is_cpu:`",
        )


def refuse_clusters(call: Point, blocks: Sequence[int]) -> None:
    """Refuses clusters of several blocks on a GPU that has none."""
    target = call.evaluator.target
    if math.prod(blocks) == 1 or not target.has_grid:
        return
    if not target.supports("clusters"):
        hint = 'guard it by `if ctx.target.supports("clusters"):`, and pass cluster=1 to the others'
        raise call.error("EK0611", f"{target.name} has no clusters of blocks", "cluster", hint=hint)
    if math.prod(blocks) > MAX_CLUSTER:
        text = f"a cluster of {math.prod(blocks)} blocks does not fit {target.name}"
        raise call.error("EK0604", text, "cluster", expected=MAX_CLUSTER, got=math.prod(blocks))


def refuse_block(call: Point, threads: Sequence[int]) -> None:
    """Refuses a block that is larger than the target allows."""
    try:
        call.evaluator.target.kernel_attributes(threads)
    except TargetError as error:
        raise call.error(error.code, error.message, "block", hint=error.hint) from None
