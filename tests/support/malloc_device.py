"""A kind of device with memory of its own, from `malloc`, which runs the host's code: what is computed there is right.

The case of docs/procedures/add-a-device.md.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from einkorn.graph.driver.device import ALIGNMENT, Backend, Code, CodeFile, DeviceMemory, Driver
from einkorn.graph.driver.host import HostDriver

_libc = ctypes.CDLL(None)
_libc.aligned_alloc.restype = ctypes.c_void_p
_libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.argtypes = [ctypes.c_void_p]


class MallocDriver(Driver):
    api = "malloc"
    targets = ("host",)
    architecture = "malloc_1"

    def __init__(self, number: int) -> None:
        self.host = HostDriver()

    def allocate(self, size: int) -> DeviceMemory:
        address = _libc.aligned_alloc(ALIGNMENT, -(-max(size, 1) // ALIGNMENT) * ALIGNMENT)
        if address is None:
            raise MemoryError(f"malloc has no {size} bytes")
        return DeviceMemory(address, size, _libc.free)

    def copy(self, to: Any, source: Any) -> None:
        ctypes.memmove(_address(to), _address(source), to.size if isinstance(to, DeviceMemory) else to.nbytes)

    def fill(self, storage: Any, byte: int) -> None:
        ctypes.memset(storage.address, byte, storage.size)

    def load(self, files: Sequence[CodeFile]) -> Code:
        return self.host.load(files)

    def synchronize(self) -> None:
        pass  # nothing is ever under way


def _address(storage: DeviceMemory | np.ndarray[Any, Any]) -> int:
    return storage.address if isinstance(storage, DeviceMemory) else storage.ctypes.data


MALLOC = Backend("gpu", lambda: 1, MallocDriver)
