"""Keeps one object for each dtype, shape and device that tensors with values have.

Equal kinds are one object, so that tables of calls are looked up by identity.

See also `patterns` (symbolic sizes).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DeviceError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import in_short, least_bytes
from ..driver.buffer import Buffer
from ..driver.devices import CPU, Device, DeviceRef
from ..types.dims import Sizes
from ..types.tensor_type import TensorType, shown

MAX_KINDS = 1 << 16  # kinds that are remembered; with more, the table is cleared
HOST = CPU()


class TensorKind:
    """What is known of a tensor in addition to its elements.

    Attributes:
        dtype: the element type.
        sizes: one int an axis.
        device: where it lies; `ref` is its name.
        shape: the sizes as tensors show them.
        plain: whether its value is a NumPy array; elsewhere and for packed dtypes it is a `Buffer`.
    """

    __slots__ = ("device", "dtype", "plain", "ref", "shape", "sizes")

    def __init__(self, dtype: DType, sizes: tuple[int, ...], device: Device) -> None:
        self.dtype = dtype
        self.sizes = sizes
        self.shape = Sizes(sizes)
        self.device = device
        self.ref = DeviceRef.from_device(device)
        self.plain = device.is_host and not dtype.is_packed()

    @property
    def type(self) -> TensorType:
        """The type as graphs have it."""
        return TensorType(self.dtype, self.sizes, self.ref)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.sizes)} on {self.device}"


_kinds: dict[tuple[object, ...], TensorKind] = {}
_of_arrays: dict[tuple[object, ...], TensorKind] = {}


def kind(dtype: DType, sizes: Iterable[int], device: Device = HOST) -> TensorKind:
    """The kind of these."""
    key = (dtype, tuple(sizes), device)
    entry = _kinds.get(key)
    if entry is None:
        if len(_kinds) >= MAX_KINDS:
            _kinds.clear()
        entry = _kinds[key] = TensorKind(*key)
    return entry


def kind_of(value: np.ndarray[Any, Any] | Buffer) -> TensorKind:
    """The kind of a value."""
    if isinstance(value, Buffer):
        return kind(value.dtype, value.shape, value.device)
    key = (value.dtype, value.shape)
    entry = _of_arrays.get(key)
    if entry is None:
        if len(_of_arrays) >= MAX_KINDS:
            _of_arrays.clear()
        entry = _of_arrays[key] = kind(DType.from_numpy(value.dtype), value.shape)
    return entry


def no_memory(op: str, dtype: DType, sizes: Iterable[int]) -> DeviceError:
    """The error of a result that there is no memory for."""
    shape = tuple(sizes)
    size = in_short(least_bytes(dtype, shape))
    text = f"{op}: a tensor of {dtype} with the shape {shown(shape)} takes {size} bytes, which cannot be allocated"
    return DeviceError(text, code="EK0813", place=user_place(), op=op)
