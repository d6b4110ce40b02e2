"""Says how ops are split over the devices of a mesh, for distributed tensors of PyTorch (`DTensor`).

An elementwise op runs on each device's shard, along whatever axes its inputs are split. So does an op whose batch has
independent members, along the axes of the batch. Any other op takes whole tensors: what is split is gathered first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ....dsl.signature.schema import Form
from ..elementwise import batch_axes, trouble_of
from ..specialise import Specialisation
from .python_fallback import Arguments, PythonFallback

DTENSOR = "torch.distributed.tensor"


def is_wanted() -> bool:
    """Whether a program uses distributed tensors: the module takes seconds to load."""
    return DTENSOR in sys.modules


def register_sharding(op: object, fallback: Callable[[], PythonFallback]) -> None:
    """Registers how an op is split.

    Args:
        op: what PyTorch calls.
        fallback: gives the kernel that the op stands for at that time.
    """
    schema = fallback().schema
    if schema.mutable or schema.late or any(argument.form is Form.VARIADIC for argument in schema.tensors):
        return
    from torch.distributed.tensor import Replicate, Shard  # loaded already
    from torch.distributed.tensor.experimental import register_sharding as register

    def rule(*values: Any, **parameters: Any) -> list[tuple[list[Any], list[Any]]]:
        here = fallback()
        metas = [_meta(value.tensor_meta) if hasattr(value, "tensor_meta") else value for value in values]
        special = here.specialisation(Arguments(metas, None, here.parameters(parameters)))
        tensors = [k for k, meta in enumerate(metas) if isinstance(meta, torch.Tensor)]
        whole: list[Any] = [Replicate() if k in tensors else None for k, _ in enumerate(metas)]
        count = len(here.schema.outputs)
        results: list[tuple[list[Any], list[Any]]] = [([Replicate()] * count, whole)]
        ranks = [metas[k].dim() if k in tensors else 0 for k, _ in enumerate(metas)]
        elementwise = [min(ranks[k] for k in tensors)] * len(metas) if is_elementwise(special) else None
        axes = elementwise or batch_axes(special, ranks) or (0,) * len(metas)
        for axis in range(max(axes, default=0)):
            split = [Shard(axis) if own > axis and k in tensors else whole[k] for k, own in enumerate(axes)]
            results.append(([Shard(axis)] * count, split))
        return results

    register(op)(rule)


def _meta(described: Any) -> torch.Tensor:
    return torch.empty(described.shape, dtype=described.dtype, device="meta")


def is_elementwise(made: Specialisation) -> bool:
    """Whether all tensors have the same axes, and an element of an output is made of the inputs' at its place alone."""
    dims = {argument.dims for argument in made.kernel.schema.tensors if argument.form is not Form.SCALAR}
    return len(dims) == 1 and not trouble_of(made)
