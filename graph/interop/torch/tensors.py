"""Reads PyTorch's tensors as kernels take them: dtype, device, memory without pending bits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ....dsl.diagnostics.errors import DeviceError, DTypeError
from ....dsl.diagnostics.places import user_place
from ....dsl.types.dtype import DType
from ...driver.devices import DeviceRef

_HOST, _GPU = "cpu", "cuda"  # what PyTorch calls devices
_WITHOUT_GPU = (_HOST, "meta")

DTYPES: dict[torch.dtype, DType] = {
    getattr(torch, dtype.name): dtype for dtype in DType if isinstance(getattr(torch, dtype.name, None), torch.dtype)
}
TORCH_DTYPES = {dtype: theirs for theirs, dtype in DTYPES.items()}


def dtype_of(tensor: torch.Tensor, op: str, argument: str) -> DType:
    """The dtype of a tensor.

    Raises:
        DTypeError: EK0316, there is none such here.
    """
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise DTypeError(
            f"op {op!r}: argument {argument!r} has elements of {tensor.dtype}, which no kernel takes",
            code="EK0316",
            place=user_place(),
            op=op,
            argument=argument,
            got=str(tensor.dtype),
        )
    return dtype


def device_of(tensors: Iterable[tuple[str, torch.Tensor]], op: str) -> DeviceRef:
    """The one device that all tensors of a call lie on; they come with the names of their arguments.

    Raises:
        DeviceError: EK0430 they lie on several, EK0815 kernels do not run on it.
    """
    results: dict[Any, str] = {}
    for name, tensor in tensors:
        results.setdefault(tensor.device, name)
    if len(results) > 1:
        (first, here), (second, there), *_ = results.items()
        raise DeviceError(
            f"op {op!r}: argument {here!r} lies on {first}, and {there!r} on {second}",
            code="EK0430",
            place=user_place(),
            op=op,
            argument=there,
            expected=str(first),
            got=str(second),
            hint=f"move one of them: {there}.to({str(first)!r})",
        )
    device = next(iter(results), torch.device(_HOST))
    if device.type in _WITHOUT_GPU:  # the latter have no elements: no kernel runs
        return DeviceRef.CPU()
    if device.type == _GPU:
        return DeviceRef.GPU(device.index or 0)
    raise DeviceError(
        f"op {op!r}: kernels do not run on {device}",
        code="EK0815",
        place=user_place(),
        op=op,
        expected="cpu or cuda",
        got=str(device),
        hint="move the tensors: x.cpu()",
    )


def memory_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as its memory: without gradient, and with the bits done that PyTorch leaves to readers."""
    return tensor.detach().resolve_conj().resolve_neg()


def flat(values: Sequence[object]) -> list[Any]:
    """The values, those of lists one by one."""
    return [each for value in values for each in (value if isinstance(value, list | tuple) else [value])]


def tensors_of(value: object) -> list[torch.Tensor]:
    """The tensors that a value is or lists."""
    return [each for each in flat([value]) if isinstance(each, torch.Tensor)]
