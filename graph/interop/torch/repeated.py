"""Broadcasts the tensors of direct calls of elementwise kernels: `add(matrix, row)`, `add(x, 1.0)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ....dsl.diagnostics.places import user_place
from ....dsl.types.dtype import DType
from ...types.promotion import weak_array
from ..broadcasting import broadcast_shape
from ..specialise import AnyKernel, prepared
from ..spread import common_shape
from .tensors import TORCH_DTYPES, dtype_of

_NUMBERS = (bool, int, float, complex)


def repeated(kernel: AnyKernel, args: Sequence[Any], parameters: Mapping[str, Any]) -> list[Any]:
    """The arguments; of an elementwise kernel with the shape that they have in common."""
    values = list(args)
    joint = _joint(kernel)
    tensors = [values[k] for k in joint if k < len(values) and isinstance(values[k], torch.Tensor)]
    if not tensors or len(values) <= joint[-1] or not all(isinstance(v, (torch.Tensor, *_NUMBERS)) for v in values):
        return values
    first = tensors[0]
    if len(tensors) == len(joint) and all(tensor.shape == first.shape for tensor in tensors):
        return values
    ranks = tuple(value.dim() if isinstance(value, torch.Tensor) else 0 for value in values)
    dtypes = tuple(value.dtype if isinstance(value, torch.Tensor) else None for value in values)
    if not _broadcasts(kernel, ranks, dtypes, tuple(parameters.items())):
        return values
    if not torch.compiler.is_compiling() and common_shape([tuple(tensor.shape) for tensor in tensors]) is None:
        return values  # the op says what is wrong
    for k in joint:
        if not isinstance(values[k], torch.Tensor):
            dtype = _dtype(kernel, k, first.dtype)
            if not torch.compiler.is_compiling():
                _check(kernel, k, values[k], dtype)
            values[k] = torch.full((), values[k], dtype=dtype, device=first.device)
    for k, tensor in zip(joint, torch.broadcast_tensors(*[values[k] for k in joint]), strict=True):
        values[k] = tensor
    return values


def _joint(kernel: AnyKernel) -> tuple[int, ...]:
    return prepared(kernel).joint


def _broadcasts(
    kernel: AnyKernel, ranks: tuple[int, ...], dtypes: tuple[Any, ...], parameters: tuple[Any, ...]
) -> bool:
    """Whether the kernel broadcasts tensors of these ranks."""
    name = kernel.schema.name
    own = [None if d is None else dtype_of(torch.empty(0, dtype=d), name, "") for d in dtypes]
    most = max(ranks)
    shapes = [(1,) * (most - 1) + (2,) if rank == most and most else (1,) * rank for rank in ranks]
    joint = _joint(kernel)
    if all(shapes[k] == shapes[joint[0]] for k in joint) and most:
        shapes[joint[0]] = (2,) * most if most == 1 else (2, *shapes[joint[0]][1:])
    return broadcast_shape(kernel, shapes, own, dict(parameters)) is not None


def _dtype(kernel: AnyKernel, k: int, known: torch.dtype) -> torch.dtype:
    """The dtype of a number."""
    declared = kernel.schema.inputs[k].dtype
    return TORCH_DTYPES[declared] if isinstance(declared, DType) else known


def _check(kernel: AnyKernel, k: int, value: object, dtype: torch.dtype) -> None:
    """Refuses a number that its dtype does not hold."""
    name, argument = kernel.schema.name, kernel.schema.inputs[k].name
    own = dtype_of(torch.empty(0, dtype=dtype), name, argument)
    weak_array(value, own, f"op {name!r}", argument, user_place())


_constant: Any
for _constant in (_joint, _broadcasts, _dtype):
    _constant._dynamo_marked_constant = True  # Dynamo runs it when it traces a program
