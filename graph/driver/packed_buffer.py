"""Buffers of 4-bit elements: two share a byte, as kernels see them.

NumPy has no arrays of half bytes. So a packed buffer shares no memory with one: `from_numpy` packs a copy of an array
of ml_dtypes' `int4`, `uint4` or `float4_e2m1fn` (a byte an element), `to_numpy` unpacks a copy. Elements have no
address of their own: there are no views of some of them. `view(DType.uint8, shape)` gives the packed bytes, and the
`view` of bytes as a packed type takes them without a copy.

Input: arrays, bytes. Output: `PackedBuffer`, which `Buffer(DType.int4, ...)` makes, too. Non-goals: DLPack, whose
consumers do not agree on the order of half bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DeviceError, DTypeError, GraphError
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ...dsl.types.packing import pack, unpack
from .buffer import Buffer
from .device import Device, DeviceRef
from .host_memory import Array, check_storable, rounded, sizes_of, source_of


class PackedBuffer(Buffer):
    """A buffer of a packed dtype; `_array` is its bytes, in one axis."""

    __slots__ = ("_shape",)

    @placed
    def __init__(self, dtype: DType, shape: Sequence[int], device: Device | DeviceRef | None = None) -> None:
        super().__init__(dtype, shape, device)
        self._shape = sizes_of(shape, dtype)
        self._array[-1:] = 0  # the half behind an odd number of elements

    @classmethod
    def of_bytes(cls, data: Array, device: Device, dtype: DType, shape: tuple[int, ...]) -> PackedBuffer:
        """A buffer over packed bytes, one axis of uint8."""
        buffer = object.__new__(cls)
        buffer._array, buffer._device, buffer._dtype, buffer._shape = data, device, dtype, shape
        return buffer

    @classmethod
    def of_array(cls, array: Array, device: Device) -> PackedBuffer:
        """A packed copy of an array of ml_dtypes' 4-bit types."""
        return cls.of_bytes(pack(array), device, DType.from_numpy(array.dtype), array.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def rank(self) -> int:
        return len(self._shape)

    @property
    def num_elements(self) -> int:
        return math.prod(self._shape)

    @property
    def element_size(self) -> int:
        """
        Raises:
            DTypeError: EK0251, always.
        """
        raise DTypeError(
            f"an element of {self.dtype} takes half a byte",
            code="EK0251",
            got=str(self.dtype),
            hint="size_in_bytes is that of the whole buffer",
        )

    @property
    def is_contiguous(self) -> bool:
        return True

    @placed
    def item(self) -> bool | int | float:
        if self.num_elements != 1:
            return super().item()
        number: int | float = self.to_numpy().reshape(()).item()
        return number

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a buffer of rank 0")
        return self._shape[0]

    @placed
    def __getitem__(self, index: Any) -> Buffer:
        raise DTypeError(
            f"two elements of {self.dtype} share a byte, so that some of them cannot be viewed",
            code="EK0251",
            got=str(self.dtype),
            hint="index the array that to_numpy() gives, which is a copy",
        )

    @placed
    def __setitem__(self, index: Any, value: Any) -> None:
        if self.is_read_only:
            raise DeviceError("the buffer is read-only, as is what it was made from", code="EK0807", hint="copy() it")
        source = source_of(value)
        check_storable(source, value, self._dtype)
        whole = self.to_numpy()
        try:
            whole[index] = rounded(source, self._dtype)
        except (ValueError, IndexError, TypeError) as error:
            raise GraphError(str(error), code="EK0805", expected=self.shape, got=source.shape) from error
        np.copyto(self._array, pack(whole))

    @placed
    def copy(self, device: Device | DeviceRef | None = None) -> Buffer:
        buffer = Buffer(self._dtype, self.shape, self._device if device is None else device)
        np.copyto(buffer._array, self._array)
        return buffer

    @placed
    def inplace_copy_from(self, src: Buffer) -> None:
        if not isinstance(src, Buffer) or (self._dtype, self.num_elements) != (src.dtype, src.num_elements):
            super().inplace_copy_from(src)  # which says what is wrong
        if self.is_read_only:
            raise DeviceError("the buffer is read-only, as is what it was made from", code="EK0807", hint="copy() it")
        np.copyto(self._array, src._array)

    def to_numpy(self) -> Array:
        """The elements as a NumPy array of ml_dtypes' type: a copy, one byte an element."""
        return unpack(self._array, self._dtype, self._shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(f"a buffer of {self.dtype} becomes an array by a copy only")
        array = self.to_numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **keywords: Any) -> Any:
        raise BufferError(f"a buffer of {self.dtype} does not go through DLPack; view it as uint8")


Buffer._packed = PackedBuffer
