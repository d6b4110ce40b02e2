"""Batches ops under `torch.vmap`: by a further axis where a kernel takes one, else one call after the other.

See also `interop.elementwise` (which kernels take a further axis).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....dsl.diagnostics.errors import GraphError
from ....dsl.signature.schema import Form
from ..elementwise import adds_axis
from .names import untraced
from .python_fallback import Arguments, PythonFallback


def register_batching(
    name: str, library: torch.library.Library, fallback: Callable[[], PythonFallback], op: Any
) -> None:
    """Registers how calls of an op are batched.

    Args:
        fallback: gives the kernel that the name stands for at that time.
        op: what PyTorch calls.
    """

    def batched(info: Any, in_dims: Sequence[Any], *values: Any, **parameters: Any) -> Any:
        size, here = info.batch_size, fallback()
        if _takes_axis(here, in_dims, values, parameters):
            spread = [_leading(value, at, size) for value, at in zip(values, in_dims, strict=True)]
            result = op(*spread, **parameters)
            return result, tuple(0 for _ in result) if isinstance(result, tuple) else 0
        if size == 0:
            return _nothing(here, in_dims, values, parameters)
        return _rounds(op, size, in_dims, values, parameters)

    torch.library.register_vmap(name, untraced(batched), lib=library)


def register_rounds(name: str, library: torch.library.Library, op: object) -> None:
    """Registers that an op is called once for each element of the batch."""

    def batched(info: Any, in_dims: Sequence[Any], *values: Any, **parameters: Any) -> Any:
        return _rounds(op, info.batch_size, in_dims, values, parameters)

    torch.library.register_vmap(name, untraced(batched), lib=library)


def _rounds(op: Any, size: int, in_dims: Sequence[Any], values: Sequence[Any], parameters: dict[str, Any]) -> Any:
    return _stacked([op(*_round(values, in_dims, k), **parameters) for k in range(size)])


def _takes_axis(
    fallback: PythonFallback, in_dims: Sequence[Any], values: Sequence[Any], parameters: dict[str, object]
) -> bool:
    if any(a.form is Form.VARIADIC for a in fallback.schema.tensors):
        return False
    inner = [_without(value, at) for value, at in zip(values, in_dims, strict=True)]
    try:
        return adds_axis(fallback.specialisation(Arguments(inner, None, fallback.parameters(parameters))))
    except GraphError:  # the call says it
        return False


def _without(value: Any, at: int | None) -> Any:
    """A tensor as one call of the batch has it, without elements."""
    if at is None or not isinstance(value, torch.Tensor):
        return value
    shape = list(value.shape)
    del shape[at]
    return value.new_empty(shape)


def _leading(value: Any, at: int | None, size: int) -> Any:
    """A tensor with the axis of the batch in front."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.expand(size, *value.shape) if at is None else value.movedim(at, 0)


def _round(values: Sequence[Any], in_dims: Sequence[Any], k: int) -> list[Any]:
    """The arguments of one call of the batch."""
    return [
        _round(value, at if isinstance(at, list | tuple) else [at] * len(value), k)
        if isinstance(value, list | tuple)
        else value
        if at is None
        else value.select(at, k)
        for value, at in zip(values, in_dims, strict=True)
    ]


def _stacked(rounds: Sequence[Any]) -> tuple[Any, Any]:
    """The outputs of all calls, along a new first axis."""
    first = rounds[0]
    if first is None:
        return None, None
    if isinstance(first, torch.Tensor):
        return torch.stack(list(rounds)), 0
    pairs = [_stacked([each[k] for each in rounds]) for k in range(len(first))]
    return type(first)(value for value, _ in pairs), type(first)(at for _, at in pairs)


def _nothing(
    fallback: PythonFallback, in_dims: Sequence[Any], values: Sequence[Any], parameters: dict[str, Any]
) -> tuple[Any, Any]:
    """The outputs of no calls."""
    inner = [_without(value, at) for value, at in zip(values, in_dims, strict=True)]
    one = fallback.fake(Arguments(inner, None, fallback.parameters(parameters)))
    result, at = _stacked([one])
    return _emptied(result), at


def _emptied(result: Any) -> Any:
    if result is None or isinstance(result, torch.Tensor):
        return None if result is None else result[:0]
    return type(result)(_emptied(each) for each in result)
