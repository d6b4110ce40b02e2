"""A kind of device that records: its memory is the host's, and each launch is decoded and noted instead of run.

With `recording_kind()` as a row of `devices.KINDS` it is complete: code for it has a half for the host, which runs, and
one for the device, which is read for the names of its kernels.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support import tensor_maps
from support.malloc_device import MallocDriver

from einkorn.dsl.contract import abi
from einkorn.dsl.contract.kernels import DeviceKernel, KernelParameter, KernelTable
from einkorn.graph.driver.device import Backend, Code, CodeFile, DeviceMemory
from einkorn.graph.driver.halves import open_halves


@dataclass(frozen=True)
class Recorded:
    """One launch, with its arguments: addresses, integers without a sign, floats of 32 and 64 bits as numbers."""

    kernel: DeviceKernel
    number: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    arguments: tuple[int | float, ...]

    @property
    def threads(self) -> int:
        """How many threads run."""
        result = 1
        for size in (*self.grid, *self.block):
            result *= size
        return result


def decoded(kernels: KernelTable, launch: abi.Launch, arguments: int) -> Recorded:
    """A launch as a driver gets it, read by the table of kernels."""
    kernel = kernels.kernels[launch.kernel]
    addresses = (ctypes.c_void_p * len(kernel.parameters)).from_address(arguments)
    values = tuple(
        _value(p, ctypes.string_at(at or 0, max(8, p.bytes)))
        for p, at in zip(kernel.parameters, addresses, strict=True)
    )
    assert launch.flags == 0
    x = Recorded(kernel, launch.kernel, _three(launch.grid), _three(launch.block), _three(launch.cluster), 0, values)
    return Recorded(x.kernel, x.number, x.grid, x.block, x.cluster, launch.shared, values)


def _three(sizes: Any) -> tuple[int, int, int]:
    x, y, z = sizes
    return x, y, z


def _value(parameter: KernelParameter, slot: bytes) -> int | float:
    """What a slot holds; above its bytes there are zeros."""
    assert not any(slot[parameter.bytes :]), (parameter, slot)
    if parameter.dtype == "float32" and parameter.kind == "float":
        return float(struct.unpack("<f", slot[:4])[0])
    if parameter.dtype == "float64" and parameter.kind == "float":
        return float(struct.unpack("<d", slot)[0])
    return int.from_bytes(slot, "little")


class RecordingDriver(MallocDriver):
    api = "recording"
    targets = ("host", "sm_80")
    architecture = "recording_1"

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.launches: list[Recorded] = []
        self.copies: list[tuple[int, int]] = []  # kind, bytes: of those that entries request
        self.codes: list[bytes] = []  # for the device
        self.fails = 0  # with this code the next launch fails
        self.copies_fail = 0  # with this code all copies do that entries request
        self.answers: list[int] = []  # what the next copies to the host bring; 0 when there are none
        self.live: dict[int, int] = {}  # address -> size
        self.problems: list[str] = []
        self.keep: list[Any] = []

    def allocate(self, size: int) -> DeviceMemory:
        taken = super().allocate(size)
        self.live[taken.address] = size
        free = taken._free

        def forget(address: int) -> None:
            del self.live[address]
            free(address)

        taken._free = forget
        return taken

    def allocate_pinned(self, size: int) -> Any:
        array = super().allocate_pinned(size)
        self.live[array.ctypes.data] = size  # kernels report into it
        self.keep.append(array)
        return array

    def look(self, each: Recorded) -> None:
        """Notes what is wrong with a launch: a pointer that leads to no place, a grid without threads."""
        for parameter, value in zip(each.kernel.parameters, each.arguments, strict=True):
            if parameter.kind == "pointer" and not any(at <= value <= at + n for at, n in self.live.items()):
                self.problems.append(f"{each.kernel.symbol}: {parameter} leads out of all memory")
        if min(each.grid) < 1 or each.block != each.kernel.block or not each.kernel.parameters:
            self.problems.append(f"{each.kernel.symbol}: {each.grid} blocks of {each.block}")

    def load(self, files: Sequence[CodeFile]) -> Code:
        half = open_halves(files)
        self.codes.append(half.code)
        for kernel in half.kernels.kernels:
            assert kernel.symbol.encode() in half.code
        return Code(half.entry, half.reports, half.keep, half.kernels, (), half.scratch)

    def table(self, code: Code) -> abi.DeviceTable:
        kernels = code.kernels
        assert kernels is not None
        known = kernels

        def launch(device: int, launch: Any, arguments: int) -> int:
            self.launches.append(decoded(known, launch.contents, arguments))
            self.look(self.launches[-1])
            failed, self.fails = self.fails, 0
            return failed

        def copy(device: int, to: int, source: int, size: int, kind: int) -> int:
            self.copies.append((kind, size))
            if kind == abi.TO_HOST:  # nothing has computed it
                ctypes.memset(to, self.answers.pop(0) if self.answers else 0, size)
            else:
                ctypes.memmove(to, source, size)
            return self.copies_fail

        def fill(device: int, to: int, pattern: int, count: int, width: int) -> int:
            ctypes.memmove(to, (pattern & ((1 << 8 * width) - 1)).to_bytes(width, "little") * count, count * width)
            return 0

        def encode(device: int, request: Any, to: int) -> int:
            tensor_maps.encode(request.contents, to)
            return 0

        functions = abi.LaunchFunction(launch), abi.CopyFunction(copy), abi.FillFunction(fill)
        encoding = abi.EncodeFunction(encode)
        self.keep.append((functions, encoding))
        table = abi.DeviceTable(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
        table.encode = ctypes.cast(encoding, ctypes.c_void_p).value
        return table

    def error(self, code: int) -> str:
        return f"RECORDING_ERROR_{code}"


def recording_kind(count: int = 1) -> Backend:
    """The row of a table with so many of them."""
    return Backend("gpu", lambda: count, RecordingDriver)
