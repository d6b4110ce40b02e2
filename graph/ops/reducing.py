"""Stages the collectives that reduce: what `allreduce` and `reducescatter` have in common.

Tensors are reduced in the order of ranks or devices, so that the same tensors give the same bits each time. Half types
are added up in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...dsl.types.dtype import DType
from ..arguments import axis_of
from ..staging.value import TensorValue
from ..types.dims import Dim
from ..types.tensor_type import TensorType
from .collectives import Ranks, group_in, on_devices, one_tensor, over_mesh, piece, pieces_of
from .elementwise import add, cast, div, maximum, minimum
from .movement import transfer_to
from .operands import check_kind

MAX_GATHERED_BYTES: Final = 4096  # bytes up to which all ranks get the whole tensors of all others
BLOCK_BYTES: Final = 1 << 20  # from all ranks, that a rank reduces at once
_PAIRS = {"sum": add, "mean": add, "max": maximum, "min": minimum}


def allreduced(how: str, inputs: object, ranks: Ranks) -> TensorValue | list[TensorValue]:
    """Reduces the tensors of all ranks; each rank gets the whole result."""
    name, group = f"allreduce.{how}", group_in(ranks)
    if group is not None:
        value = checked(name, how, one_tensor(name, inputs))
        small = MAX_GATHERED_BYTES // value.dtype.size_in_bytes
        sizes = {"ranks": group.size, "small": small, "block": BLOCK_BYTES}
        return over_mesh(name, value, group, how, value.type, how=how, **sizes)
    values, devices = on_devices(name, inputs, ranks)
    values = [checked(name, how, value) for value in values]
    return [reduced(how, [transfer_to(value, device) for value in values]) for device in devices]


def reduced_and_scattered(how: str, inputs: object, ranks: Ranks, axis: int) -> TensorValue | list[TensorValue]:
    """Reduces the tensors of all ranks and cuts the result along an axis into equal pieces; rank k gets piece k."""
    name, group = f"reducescatter.{how}", group_in(ranks)
    if group is not None:
        value = checked(name, how, one_tensor(name, inputs))
        at = pieces_of(name, value, axis, group.size)
        shape = list(value.shape)
        shape[at] = Dim(shape[at]) // group.size
        out = TensorType(value.dtype, shape, value.device)
        return over_mesh(name, value, group, how, out, axis=at, how=how, ranks=group.size)
    values, devices = on_devices(name, inputs, ranks)
    values = [checked(name, how, value) for value in values]
    at = pieces_of(name, values[0], axis_of(axis, values[0].rank), len(devices))
    return [
        reduced(how, [transfer_to(piece(value, at, k, len(devices)), device) for value in values])
        for k, device in enumerate(devices)
    ]


def checked(name: str, how: str, value: TensorValue) -> TensorValue:
    """A tensor whose dtype can be reduced so."""
    check_kind(name, "inputs", value, "float" if how == "mean" else "numeric")
    return value


def reduced(how: str, values: Sequence[TensorValue]) -> TensorValue:
    """Tensors of one device, reduced in their order."""
    dtype = values[0].dtype
    wide = DType.float32 if how in ("sum", "mean") and dtype.is_half() else dtype
    total, *rest = [cast(value, wide) for value in values]
    for value in rest:
        total = _PAIRS[how](total, value)
    return cast(div(total, len(values)) if how == "mean" else total, dtype)
