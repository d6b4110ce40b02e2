"""Finds the memory of a model's results.

Input: the device, the dtype and the shape of an output. Output: storage that nobody else sees. Non-goals:
temporaries (see `passes.memory_plan`).
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import DeviceError
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..driver.device import Storage
from ..driver.device_buffer import buffer_class
from ..driver.devices import Device


class Output:
    """Where an output of known size goes.

    Fresh pages for a large output cost as much as the work itself, so the memory of earlier results is taken again once
    nobody can see it any more: a `Buffer`, a view or a DLPack export each hold a reference to the storage.
    """

    KEPT = 2  # with `y = model(x)` in a loop the last result still lives during the next call
    LARGE = 1 << 20

    def __init__(self, device: Device, dtype: DType, shape: tuple[int, ...], pointer: int | None) -> None:
        self.device = device
        self.dtype = dtype
        self.shape = shape
        self.pointer = pointer
        self.size = dtype.bytes_for(math.prod(shape))
        self.allocate, self.arguments = device.driver.allocator(dtype, shape)
        self.buffer_over = buffer_class(device, dtype)._over
        self.keeps = self.size >= self.LARGE and _FREE > 0
        self.kept: list[Storage] = []

    def take(self) -> Storage:
        """Storage that nobody else sees."""
        found = _unseen(self.kept) if self.keeps else None
        if found is not None:
            return found
        try:
            storage = self.allocate(*self.arguments)
        except (MemoryError, ValueError) as error:
            raise DeviceError(
                f"an output of {self.dtype} {self.shape} takes {self.size:,} bytes, which cannot be had",
                code="EK0813",
                place=user_place(),
                got=self.size,
                notes=[str(error)],
            ) from None
        if self.keeps:
            self.kept = [*self.kept, storage][-self.KEPT :]
        return storage


class Filling:
    """What memory is filled with before kernels run, shared by a call and its variants."""

    def __init__(self, byte: int = 0) -> None:
        self.byte = byte
        self.quiet = False  # whether prints are left out

    def fill(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The same memory, with this byte everywhere."""
        memory.reshape(-1).view(np.uint8).fill(self.byte)
        return memory


class FilledOutput(Output):
    """An output of the host whose memory is filled before it is written."""

    def __init__(
        self, device: Device, dtype: DType, shape: tuple[int, ...], pointer: int | None, filling: Filling
    ) -> None:
        super().__init__(device, dtype, shape, pointer)
        self.filling = filling

    def take(self) -> Storage:
        storage: Any = super().take()
        return self.filling.fill(storage)


def _unseen(kept: list[Storage]) -> Storage | None:
    """One of the pieces of storage that nobody but the list refers to, or None."""
    for storage in kept:
        if sys.getrefcount(storage) == _FREE:
            return storage
    return None


def _references_of_unseen() -> int:
    """What `getrefcount` says in `_unseen` of an array that only the list refers to; it differs between Pythons.

    0 where counts say nothing: elsewhere than in CPython, and without the global lock.
    """
    locked = getattr(sys, "_is_gil_enabled", lambda: True)()
    if sys.implementation.name != "cpython" or not locked:
        return 0
    for array in [np.empty(1)]:
        return sys.getrefcount(array)
    return 0


_FREE = _references_of_unseen()
