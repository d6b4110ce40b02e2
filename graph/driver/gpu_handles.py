"""Holds what lies on a GPU, and notes what is given back.

Python collects garbage in any thread, at any step: so what a finalizer gives back is put into a queue, and no library
is called. The driver takes up what is there at a step of its own.

See also `gpu`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from ...dsl.contract import abi
from .allocator import Block
from .device import Array, DeviceMemory
from .streams import DeviceStream

T = TypeVar("T")


class Replays(Protocol):
    """What replays recorded work, and takes up what is dropped."""

    replayed: deque[int]

    def replay(self, recorded: int, owner: str, storages: Iterable[object]) -> None: ...


class GpuMemory(DeviceMemory):
    """A block of a GPU's pool, returned to the pool when it is dropped, in any thread."""

    __slots__ = ("_returned", "block")

    def __init__(self, block: Block, size: int, returned: deque[Block]) -> None:
        self.address = block.address
        self.size = size
        self.block = block
        self._returned = returned

    def __del__(self) -> None:
        self._returned.append(self.block)


class ForeignMemory(DeviceMemory):
    """Memory of another library on this GPU, and the stream that used it last. `array`, over it, keeps it alive."""

    __slots__ = ("_array", "block", "is_read_only")

    def __init__(self, address: int, size: int, stream: DeviceStream, array: Array) -> None:
        self.address = address
        self.size = size
        self.block = Block(address, size, stream, "memory of another library")
        self.is_read_only = not array.flags.writeable
        self._array: Array | None = array

    def __del__(self) -> None:
        self._array = None


class KeptTable(abi.DeviceTable):
    """A table of a caller, and what its addresses lead to."""

    kept: object


class GpuModule:
    """Code in a GPU, and the handles of its kernels by name."""

    __slots__ = ("__weakref__", "_dropped", "handle", "kernels")

    def __init__(self, handle: int, dropped: deque[int]) -> None:
        self.handle = handle
        self.kernels: dict[str, int] = {}
        self._dropped = dropped

    def __del__(self) -> None:
        self._dropped.append(self.handle)


class RecordedWork:
    """Work that was recorded on a GPU; `keep` is what it needs."""

    __slots__ = ("_driver", "_handle", "keep")

    def __init__(self, driver: Replays, handle: int, keep: object) -> None:
        self._driver, self._handle, self.keep = driver, handle, keep

    def replay(self, owner: str, storages: Iterable[object]) -> None:
        """Enqueues the work once more."""
        self._driver.replay(self._handle, owner, storages)

    def __del__(self) -> None:
        self._driver.replayed.append(self._handle)


def taken(queue: deque[T]) -> Iterator[T]:
    """What is in a queue, taken out; other threads may do the same."""
    while True:
        try:
            yield queue.popleft()
        except IndexError:
            return
