"""Keeps a tensor in the memory of a device that is not the process's own.

Such a buffer is copied to and from the host explicitly: by `to`, `copy`, `to_numpy` and `item`, and by writing
elements. There are no views of some of its elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DeviceError
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ...dsl.types.packing import unpack
from . import device_dlpack, dlpack
from .buffer import Buffer, WholeBuffer
from .device import Array
from .devices import Accelerator, Device, accelerator_count
from .packed_buffer import PackedBuffer


class DeviceBuffer(WholeBuffer):
    """A buffer on a device; `_array` is its `Memory`."""

    __slots__ = ()

    @property
    def is_read_only(self) -> bool:
        return getattr(self._array, "is_read_only", False)

    @property
    def address(self) -> int:
        return self._device.driver.address_of(self._array)

    @placed
    def __getitem__(self, index: object) -> Buffer:
        raise DeviceError(
            f"some elements of a buffer on {self._device} cannot be viewed",
            code="EK0804",
            got=str(self._device),
            hint="copy it to the host first: buffer.to(CPU())",
        )

    def _seen_as(self, dtype: DType, sizes: tuple[int, ...]) -> Buffer:
        return DeviceBuffer._over(self._array, self._device, dtype, sizes)

    def to_numpy(self) -> Array:
        """The elements as a NumPy array: a copy."""
        data = self._host_array()
        return unpack(data, self._dtype, self._shape) if self._dtype.is_packed() else data

    def __dlpack__(self, **keywords: Any) -> Any:
        place = self.__dlpack_device__()
        requested = keywords.get("dl_device")
        if requested is not None and tuple(requested) == (device_dlpack.HOST, 0) and keywords.get("copy") is not False:
            return dlpack.export(self.to_numpy(), {"max_version": keywords.get("max_version")})
        if self._dtype.is_packed():
            raise BufferError(f"a buffer of {self.dtype} does not go through DLPack; view it as uint8")
        source = self.copy() if keywords.pop("copy", None) else self
        return device_dlpack.export_memory(source._array, self._shape, self._dtype.to_numpy(), place, keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        place = self._device.driver.dlpack_place
        if place is None:
            raise BufferError(f"a buffer on {self._device} does not go through DLPack; copy it to the host")
        return place

    def _host_array(self) -> Array:
        data = np.empty(self.size_in_bytes, np.uint8)
        self._device.driver.copy(data, self._array)
        return data if self._dtype.is_packed() else data.view(self._dtype.to_numpy()).reshape(self._shape)

    def _take(self, source: Buffer) -> None:
        driver, other = self._device.driver, source._device
        if other == self._device:
            driver.copy(self._array, source._array)
        elif not other.is_host:
            driver.copy_from(self._array, source._array, other.driver)
        else:
            driver.copy(self._array, np.ascontiguousarray(source._host_array()).reshape(-1).view(np.uint8))

    def _clear(self) -> None:
        zero = np.empty(1, np.uint8 if self._dtype.is_packed() else self._dtype.to_numpy())
        zero.fill(0)
        self._device.driver.fill(self._array, zero.tobytes()[0])  # the bytes of a zero are all the same


def buffer_class(device: Device, dtype: DType) -> type[Buffer]:
    """What a buffer of a dtype is on a device."""
    if not device.is_host:
        return DeviceBuffer
    return PackedBuffer if dtype.is_packed() else Buffer


def taken(producer: Any) -> Buffer | None:
    """A buffer over the memory of a DLPack producer on a device that is here; None where it lies on none of them."""
    try:
        place = tuple(map(int, producer.__dlpack_device__()))
    except Exception as error:  # what the producer's own code raises; the host's way says it
        raise_if_of_handler(error)
        return None
    if place[0] in dlpack.HOST_DEVICES:
        return None
    for number in range(accelerator_count()):
        device = Accelerator(number)
        if device.driver.dlpack_place == place:
            memory, array = device_dlpack.import_memory(producer, device.driver, (place[0], place[1]))
            return DeviceBuffer._over(memory, device, device_dlpack.dtype_of(array), array.shape)
    return None
