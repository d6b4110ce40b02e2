"""A kind of device whose kernels something in this process runs: its memory is the host's, launches call a function.

    device = launching_kind(run_ptx, "sm_80")          # a row of `devices.KINDS`, for sessions
    run_unit(spec, "sm_80", run_ptx, arrays)           # one compile unit, without a session

What runs kernels gets the code for the device and a `Launched`. An error that it raises ends the call, and is raised
again behind it.
"""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support import tensor_maps
from support.malloc_device import MallocDriver
from support.recording_device import decoded

from einkorn.compiler.pipeline import compile_entry
from einkorn.compiler.targets import host, lookup
from einkorn.dsl.contract import abi
from einkorn.dsl.contract.kernels import DeviceKernel
from einkorn.dsl.contract.unit import EntrySpec
from einkorn.graph.driver.device import Backend, Code, CodeFile, DeviceMemory
from einkorn.graph.driver.halves import open_halves

FAILED = 1  # what a launch gives whose kernel raised an error


@dataclass(frozen=True)
class Launched:
    """A launch: the sizes, and each argument as the bits of its slot."""

    kernel: DeviceKernel
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared: int
    arguments: tuple[int, ...]


# Runs a kernel of code for a device; memory is given by address -> size.
Run = Callable[[bytes, Launched, Mapping[int, int]], None]


class LaunchingDriver(MallocDriver):
    api = "launching"

    def __init__(self, number: int, run: Run, target: str) -> None:
        super().__init__(number)
        self.targets = ("host", target)
        self.architecture = target
        self.run = run
        self.memory: dict[int, int] = {}  # address -> size
        self.error_raised: BaseException | None = None
        self.launches = 0
        self._codes: dict[int, bytes] = {}
        self._keep: list[Any] = []

    def allocate(self, size: int) -> DeviceMemory:
        taken = super().allocate(size)
        self.memory[taken.address] = size
        free, taken._free = taken._free, self._forget
        self._free = free
        return taken

    def allocate_pinned(self, size: int) -> Any:
        array = super().allocate_pinned(size)
        self.memory[array.ctypes.data] = size  # kernels report into it
        self._keep.append(array)
        return array

    def _forget(self, address: int) -> None:
        del self.memory[address]
        self._free(address)

    def load(self, files: Sequence[CodeFile]) -> Code:
        half = open_halves(files)
        code = Code(half.entry, half.reports, half.keep, half.kernels, (), half.scratch)
        self._codes[id(half.kernels)] = half.code
        self._keep.append(half.kernels)
        return code

    def table(self, code: Code) -> abi.DeviceTable:
        kernels = code.kernels
        assert kernels is not None
        device_code = self._codes[id(kernels)]

        def launch(device: int, launch: Any, arguments: int) -> int:
            self.launches += 1
            said = decoded(kernels, launch.contents, arguments)
            slots = (ctypes.c_void_p * len(said.arguments)).from_address(arguments)
            bits = tuple(
                int.from_bytes(ctypes.string_at(at or 0, 128 if parameter.kind == "map" else 8), "little")
                for parameter, at in zip(said.kernel.parameters, slots, strict=True)
            )
            try:
                self.run(
                    device_code,
                    Launched(said.kernel, said.grid, said.block, said.cluster, said.shared, bits),
                    self.memory,
                )
            except BaseException as error:
                self.error_raised = error
                return FAILED
            return 0

        def copy(device: int, to: int, source: int, size: int, kind: int) -> int:
            ctypes.memmove(to, source, size)
            return 0

        def fill(device: int, to: int, pattern: int, count: int, width: int) -> int:
            ctypes.memmove(to, (pattern & ((1 << 8 * width) - 1)).to_bytes(width, "little") * count, count * width)
            return 0

        def encode(device: int, request: Any, to: int) -> int:
            try:
                tensor_maps.encode(request.contents, to)
            except BaseException as error:
                self.error_raised = error
                return FAILED
            return 0

        functions = abi.LaunchFunction(launch), abi.CopyFunction(copy), abi.FillFunction(fill)
        encoding = abi.EncodeFunction(encode)
        self._keep.append((functions, encoding))
        table = abi.DeviceTable(*(ctypes.cast(function, ctypes.c_void_p) for function in functions))
        table.encode = ctypes.cast(encoding, ctypes.c_void_p).value
        return table

    def error(self, code: int) -> str:
        return str(self.error_raised) if self.error_raised else ""


def launching_kind(run: Run, target: str) -> Backend:
    """The row of a table with one such device."""
    return Backend("gpu", lambda: 1, lambda number: LaunchingDriver(number, run, target))


def run_unit(spec: EntrySpec, target: str, run: Run, arrays: Sequence[Any]) -> None:
    """Compiles a unit without sizes that are known at the call only, and calls its entry with these arrays.

    Raises:
        BaseException: what `run` raised.
    """
    driver = LaunchingDriver(0, run, target)
    pieces = compile_entry(spec, lookup(target), hosts=[host()]).pieces
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for name, piece in zip(("host", "device"), pieces, strict=True):
            path = Path(folder, name)
            path.write_bytes(piece.code)
            files.append(CodeFile(piece.kind, piece.target, path, len(piece.code)))
        code = driver.load(files)
    table, context = driver.table(code), abi.Context()
    dims = (ctypes.c_int64 * 1)()
    taken = driver.allocate(code.scratch(ctypes.addressof(dims), 0)) if code.scratch else None
    if taken is not None:
        table.scratch, table.scratch_size = taken.address, taken.size
    context.threads, context.device = 1, ctypes.addressof(table)
    driver.memory.update({array.ctypes.data: array.nbytes for array in arrays})
    pointers = (ctypes.c_void_p * len(arrays))(*[array.ctypes.data for array in arrays])
    status = code.entry(*(ctypes.addressof(each) for each in (context, pointers, dims)))
    if driver.error_raised is not None:
        raise driver.error_raised
    assert status == 0, status
