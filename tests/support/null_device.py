"""A kind of device that does nothing: it accepts every allocation, copy and launch, and counts them.

With `null_kind()` as a row of `devices.KINDS` it is complete: its code has a half for the host and one for the device.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from einkorn.dsl.contract import abi
from einkorn.graph.driver.device import ALIGNMENT, Backend, Code, CodeFile, DeviceMemory, Driver
from einkorn.graph.driver.shared_library import SharedLibrary


class NullDriver(Driver):
    api = "null"
    targets = ("host", "sm_80")
    architecture = "null_1"
    most = 1 << 40  # bytes that can be allocated at a time

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = ALIGNMENT
        self.live: dict[int, int] = {}  # address -> size
        self.copies: list[tuple[Any, Any]] = []
        self.fills: list[tuple[int, int]] = []
        self.loaded: list[list[CodeFile]] = []
        self.launches: list[tuple[int, ...]] = []
        self.waits = 0
        self.result = 0  # of every launch

    def allocate(self, size: int) -> DeviceMemory:
        if size > self.most:
            raise MemoryError(f"{size} bytes are too many")
        address, self.end = self.end, self.end + -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        self.live[address] = size
        return DeviceMemory(address, size, self.live.pop)

    def copy(self, to: Any, source: Any) -> None:
        self.copies.append((type(to).__name__, type(source).__name__))
        sizes = [one.size if isinstance(one, DeviceMemory) else one.nbytes for one in (to, source)]
        assert sizes[0] == sizes[1] and (isinstance(to, DeviceMemory) or isinstance(source, DeviceMemory))

    def fill(self, storage: Any, byte: int) -> None:
        self.fills.append((storage.size, byte))

    def load(self, files: Sequence[CodeFile]) -> Code:
        self.loaded.append(list(files))
        host = SharedLibrary(files[0].path)
        return Code(self.launch, ctypes.string_at(host.address(abi.REPORTS)), host)

    def launch(self, context: int, pointers: int, dims: int) -> int:
        self.launches.append((context, pointers, dims))
        return self.result

    def synchronize(self) -> None:
        self.waits += 1

    def error(self, code: int) -> str:
        return f"NULL_ERROR_{code}"

    def properties(self) -> dict[str, str | int]:
        return {"name": f"null device {self.number}"}


def null_kind(count: int = 2) -> Backend:
    """The row of a table with so many of them."""
    return Backend("gpu", lambda: count, NullDriver)
