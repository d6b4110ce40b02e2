"""Exchanges memory of devices by DLPack, in the order of streams.

NumPy makes and takes the capsules here as well (see `dlpack`), over arrays whose address is a device's and which are
never reads; only the place in a capsule is changed, between the host and the device. Code that takes memory names a
stream, which then waits for what ours does with it; when the taker drops it, our stream waits for what the taker's does
by then, or by the next work of Einkorn.

See also `dlpack` (memory of the host).
"""

from __future__ import annotations

import ctypes
import math
import weakref
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DeviceError, brief
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from . import dlpack
from .device import Array, DeviceMemory
from .streams import DeviceStream, current_stream

HOST = 1  # kDLCPU
NO_STREAM = -1  # nothing is to be ordered
LEGACY_DEFAULT = 1  # the handle of CUDA's default stream, which None means


def shell(address: int, shape: tuple[int, ...], dtype: Any, keep: object) -> Array:
    """An array over memory of a device, which nothing may read; it keeps an object alive."""
    size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
    memory = (ctypes.c_uint8 * size).from_address(address)
    memory.keep = keep
    return np.ndarray(shape, dtype, memory)


def export_memory(
    memory: Any, shape: tuple[int, ...], dtype: Any, place: tuple[int, int], keywords: dict[str, Any]
) -> Any:
    """A capsule over memory of a device at a place of DLPack's; `keywords` are those of `__dlpack__`.

    Raises:
        BufferError: the taker wants it elsewhere.
    """
    requested = keywords.pop("dl_device", None)
    if requested is not None and tuple(requested) != place:
        raise BufferError(f"the memory lies on DLPack device {place}, and {tuple(requested)} is requested")
    stream = keywords.pop("stream", None)
    array = shell(memory.address, shape, dtype, memory)
    handle = (LEGACY_DEFAULT if place[0] == 2 else 0) if stream is None else int(stream)
    ours: DeviceStream = memory.block.stream
    if handle not in (NO_STREAM, ours.handle):
        ours.driver.order_streams(ours.handle, handle)
        weakref.finalize(array.base, ours.driver.order_later, handle, ours, memory)
    capsule = dlpack.export(array, keywords)
    dlpack.place_of(capsule)[:] = place
    return capsule


def import_memory(producer: Any, driver: Any, place: tuple[int, int]) -> tuple[DeviceMemory, Array]:
    """Memory of a producer on a device of Einkorn, and an array with its dtype and shape.

    Raises:
        DTypeError: of elements that are not known here.
        DeviceError: EK0804 it has gaps.
    """
    stream = current_stream(driver)
    array = dlpack.imported(_Ordered(producer, stream, place))
    if not array.flags.c_contiguous:
        raise DeviceError(
            f"the tensor has strides of {array.strides} bytes, and a buffer on a device has no gaps",
            code="EK0804",
            expected="a contiguous tensor",
            got=brief(str(array.strides)),
            hint="write tensor.contiguous()",
        )
    memory: DeviceMemory = driver.foreign(array.ctypes.data, array.nbytes, stream, array)
    return memory, array


def dtype_of(array: Array) -> DType:
    """The dtype of an array that was imported."""
    return DType.from_numpy(array.dtype)


class _Ordered:
    """Wraps a producer: requests memory for Einkorn's stream, and gives NumPy an address on the host."""

    def __init__(self, producer: Any, stream: DeviceStream, place: tuple[int, int]) -> None:
        self._producer, self._stream, self._place = producer, stream, place

    def __dlpack__(self, **keywords: Any) -> Any:
        keywords = {name: value for name, value in keywords.items() if name not in ("dl_device", "copy", "stream")}
        try:
            capsule = self._producer.__dlpack__(stream=self._stream.handle, **keywords)
        except TypeError as error:  # a producer from before DLPack 1.0
            raise_if_of_handler(error)
            capsule = self._producer.__dlpack__(stream=self._stream.handle)
        dlpack.place_of(capsule)[:] = (HOST, 0)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST, 0
