"""Drives the host: memory is NumPy's, code is a shared object in this process, and everything is done at once.

See also `arrays` (what may be written into the host's memory).
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.contract import abi
from ...dsl.diagnostics.shield import raise_if_of_handler
from ...dsl.types.dtype import DType
from . import arrays
from .device import ALIGNMENT, Allocator, Array, Backend, Code, CodeFile, Driver
from .shared_library import SharedLibrary, scratch_size


class HostDriver(Driver):
    """The process's own memory and processor."""

    api = "cpu"
    is_host = True
    targets = ("host",)

    def allocate(self, size: int) -> Array:
        # NumPy's own memory starts at a multiple of 16.
        try:
            raw = np.empty(size + ALIGNMENT, np.uint8)
        except (ValueError, OverflowError) as error:
            raise_if_of_handler(error)
            raise MemoryError(str(error)) from None
        skip = -raw.ctypes.data % ALIGNMENT
        return raw[skip : skip + size]

    def allocator(self, dtype: DType, shape: tuple[int, ...]) -> Allocator:
        # Kernels need no more than the alignment of an element, and this is the fastest way to memory.
        if dtype.is_packed():
            return np.empty, ((dtype.bytes_for(math.prod(shape)),), np.uint8)
        return np.empty, (shape, dtype.to_numpy())

    address_of = staticmethod(arrays.address_of)

    def place(self, array: Array) -> Array:
        return array

    def copy(self, to: Any, source: Any) -> None:
        to[...] = source

    def integers(self, storage: Any, count: int) -> list[int]:
        result: list[int] = storage.tolist()
        return result

    def fill(self, storage: Any, byte: int) -> None:
        storage.reshape(-1).view(np.uint8).fill(byte)

    def load(self, files: Sequence[CodeFile]) -> Code:
        library = SharedLibrary(files[0].path)
        entry = abi.EntryFunction(library.address(abi.ENTRY))
        reports = ctypes.string_at(library.address(abi.REPORTS))
        return Code(entry, reports, library, scratch=scratch_size(library))

    def synchronize(self) -> None:
        pass  # every call has ended when it returns

    def properties(self) -> dict[str, str | int]:
        known: dict[str, str | int] = {"machine": platform.machine(), "logical_cores": os.cpu_count() or 1}
        for field, name in (("MemTotal", "total_memory"), ("MemAvailable", "free_memory")):
            if (size := _of_status("/proc/meminfo", field)) is not None:
                known[name] = size
        if (size := _of_status("/proc/self/status", "VmRSS")) is not None:
            known["process_memory"] = size
        if hasattr(os, "getloadavg"):
            known["load_percent"] = round(100 * os.getloadavg()[0] / (os.cpu_count() or 1))
        return known


def _of_status(path: str, field: str) -> int | None:
    """A number of bytes from a file of Linux's, where there is one."""
    try:
        with open(path, encoding="ascii") as file:
            line = next((line for line in file if line.startswith(f"{field}:")), "")
    except OSError:
        return None
    return int(line.split()[1]) * 1024 if line else None


HOST = Backend("cpu", lambda: 1, lambda number: HostDriver())
