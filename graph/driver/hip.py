"""Reaches AMD's GPUs through `rocm.bindings.hip` of hip-python, which is loaded only where ROCm is installed.

See also `gpu` (streams' order and errors in the user's words). Reference: AMD's "HIP runtime API".
"""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any, Final

from ...dsl.diagnostics.errors import DeviceError
from .gpu import GpuDriver, package
from .gpu_library import Codes, GpuLibrary, GpuProperties
from .gpu_names import HIP_LIBRARY, RCCL, library_to_load, loaded_files

_NON_BLOCKING = 1
_NO_TIMING = 2
_PORTABLE = 1
_THREAD_LOCAL = 1

_CODES: Final = Codes(
    memory=2,
    lost=frozenset({700, 702, 710, 715, 716, 717, 718, 719}),
    capture=frozenset(range(900, 909)),
    architecture=frozenset({200, 209, 218}),
    version=frozenset(),
)


@functools.cache
def bindings() -> Any:
    """`rocm.bindings.hip`, over the runtime that the process has loaded, where another package brought one.

    Raises:
        DeviceError: EK0831 it is not installed, EK0838 there are two runtimes in the process.
    """
    result = package("rocm.bindings.hip", HIP_LIBRARY, "hip-python")
    paths = package("rocm.bindings.util.paths", HIP_LIBRARY, "hip-python")
    _refuse_two(loaded_files(HIP_LIBRARY))  # before one is called
    path, search = os.fsencode(library_to_load(HIP_LIBRARY)), paths.get_library_path
    paths.get_library_path = lambda name, *more: path if name == "amdhip64" else search(name, *more)
    try:
        result.hipRuntimeGetVersion()  # the first function that is called loads the runtime
    finally:
        paths.get_library_path = search
    _refuse_two(loaded_files(HIP_LIBRARY))
    return result


def _refuse_two(files: list[str]) -> None:
    """Raises where a process has several runtimes: neither has the memory and the streams of the other."""
    if len(files) > 1:
        raise DeviceError(
            f"this process has loaded {len(files)} HIP runtimes, and what one of them makes is nothing to the other",
            code="EK0838",
            expected=f"one {HIP_LIBRARY}",
            got=len(files),
            notes=files,
            hint="import the package that brings a runtime of its own, such as torch, before Einkorn opens a device",
        )


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(library_to_load(HIP_LIBRARY))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value or "")


class HipLibrary(GpuLibrary):
    """One of AMD's GPUs."""

    launchers = "hip"
    blocking = "HIP_LAUNCH_BLOCKING=1"
    codes = _CODES
    dlpack_device = 10
    functions = (
        *("hipModuleLaunchKernel", "hipMemcpyAsync", "hipStreamQuery"),
        *("hipMemsetD8Async", "hipMemsetD16Async", "hipMemsetD32Async", "hipGetDevice", "hipSetDevice"),
    )

    def __init__(self, number: int) -> None:
        self._hip = bindings()
        self._number = self.context = number
        self._get_device, self._set_device = self._hip.hipGetDevice, self._hip.hipSetDevice
        self._kinds = [
            self._hip.hipMemcpyKind.hipMemcpyDeviceToDevice,
            self._hip.hipMemcpyKind.hipMemcpyHostToDevice,
            self._hip.hipMemcpyKind.hipMemcpyDeviceToHost,
        ]

    def _call(self, name: str, *arguments: object) -> Any:
        status, *results = getattr(self._hip, name)(*arguments)
        if int(status):
            raise self._fault(name, int(status))
        return results[0] if len(results) == 1 else results

    def describe(self, status: int) -> tuple[str, str]:
        try:
            error = self._hip.hipError_t(status)
        except ValueError:  # newer than the package
            return f"HIP error {status}", ""
        texts = [self._hip.hipGetErrorName(error), self._hip.hipGetErrorString(error)]
        texts = [each[-1] if isinstance(each, tuple) else each for each in texts]
        name, text = map(_text, texts)
        return name or f"HIP error {status}", text

    def uuid(self) -> bytes:
        return bytes(self._call("hipDeviceGetUuid", self._number).bytes)

    def can_access(self, number: int) -> bool:
        return bool(self._call("hipDeviceCanAccessPeer", self._number, number))

    def current(self) -> int:
        status, number = self._get_device()
        if int(status):
            raise self._fault("hipGetDevice", int(status))
        return int(number)

    def activate(self, context: int) -> None:
        (status,) = self._set_device(context)
        if int(status):
            raise self._fault("hipSetDevice", int(status))

    def properties(self) -> GpuProperties:
        known = self._call("hipGetDeviceProperties", self._number)
        architecture, _, features = _text(known.gcnArchName).partition(":")
        version = int(self._call("hipRuntimeGetVersion"))
        return GpuProperties(
            _text(known.name),
            architecture,
            int(known.totalGlobalMem),
            int(known.multiProcessorCount),
            int(known.warpSize),
            int(known.sharedMemPerBlock),
            f"HIP {version // 10_000_000}.{version // 100_000 % 100}",
            {"features": features},
        )

    def allocate(self, size: int) -> int:
        return int(self._call("hipMalloc", size))

    def free(self, address: int) -> None:
        self._call("hipFree", address)

    def free_memory(self) -> int:
        return int(self._call("hipMemGetInfo")[0])

    def allocate_pinned(self, size: int) -> int:
        return int(self._call("hipHostMalloc", size, _PORTABLE))

    def free_pinned(self, address: int) -> None:
        self._call("hipHostFree", address)

    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self._call("hipMemcpyAsync", to, source, size, self._kinds[kind], stream)

    def copy_peer(self, to: int, source: int, context: int, size: int, stream: int) -> None:
        self._call("hipMemcpyPeerAsync", to, self.context, source, context, size, stream)

    def enable_access(self, context: int) -> None:
        (status,) = self._hip.hipDeviceEnablePeerAccess(context, 0)
        if int(status) not in (0, self.codes.enabled):
            raise self._fault("hipDeviceEnablePeerAccess", int(status))

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        self._call("hipMemsetD8Async", address, byte, size, stream)

    def create_stream(self) -> int:
        return int(self._call("hipStreamCreateWithFlags", _NON_BLOCKING))

    def destroy_stream(self, stream: int) -> None:
        self._call("hipStreamDestroy", stream)

    def is_idle(self, stream: int) -> bool:
        return self._query("hipStreamQuery", stream)

    def create_event(self, timing: bool = False) -> int:
        return int(self._call("hipEventCreateWithFlags", 0 if timing else _NO_TIMING))

    def destroy_event(self, event: int) -> None:
        self._call("hipEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        self._call("hipEventRecord", event, stream)

    def wait(self, stream: int, event: int) -> None:
        self._call("hipStreamWaitEvent", stream, event, 0)

    def is_done(self, event: int) -> bool:
        return self._query("hipEventQuery", event)

    def _query(self, name: str, handle: int) -> bool:
        """Whether what a stream or an event waits for is done."""
        (status,) = getattr(self._hip, name)(handle)
        return self._is_ready(name, int(status))

    def elapsed(self, first: int, second: int) -> float:
        return float(self._call("hipEventElapsedTime", first, second))

    def synchronize(self) -> None:
        self._call("hipDeviceSynchronize")

    def load(self, code: bytes, is_text: bool) -> int:
        return int(self._call("hipModuleLoadData", code))

    def unload(self, module: int) -> None:
        self._call("hipModuleUnload", module)

    def function(self, module: int, symbol: str) -> int:
        return int(self._call("hipModuleGetFunction", module, symbol.encode()))

    def address_of(self, name: str) -> int:
        address = ctypes.cast(getattr(_library(), name), ctypes.c_void_p).value
        assert address is not None
        return address

    def begin_capture(self, stream: int) -> None:
        self._call("hipStreamBeginCapture", stream, self._hip.hipStreamCaptureMode(_THREAD_LOCAL))

    def capture_status(self, stream: int) -> int:
        return int(self._call("hipStreamIsCapturing", stream))

    def end_capture(self, stream: int) -> int:
        graph = self._call("hipStreamEndCapture", stream)
        try:
            return int(self._call("hipGraphInstantiateWithFlags", graph, 0))
        finally:
            self._call("hipGraphDestroy", graph)

    def replay(self, recorded: int, stream: int) -> None:
        self._call("hipGraphLaunch", recorded, stream)

    def destroy_recorded(self, recorded: int) -> None:
        self._call("hipGraphExecDestroy", recorded)


class HipDriver(GpuDriver):
    """One of AMD's GPUs, as the runtime uses it."""

    api = "hip"
    collectives = RCCL

    def __init__(self, number: int) -> None:
        count()
        _refuse_two(loaded_files(HIP_LIBRARY))  # another may have come since the devices were counted
        super().__init__(HipLibrary(number), number)


_NO_DEVICE = 100


@functools.cache
def count() -> int:
    """How many of AMD's GPUs this process may use.

    Raises:
        DeviceError: EK0831 `rocm.bindings` is not installed, or the driver does not start.
    """
    status, *result = bindings().hipGetDeviceCount()
    if int(status) == _NO_DEVICE:
        return 0
    if int(status):
        raise DeviceError(
            f"AMD's driver does not start: {status.name}",
            code="EK0831",
            got=status.name,
            notes=[f"{HIP_LIBRARY} is here; the driver's part in the kernel may be missing, or /dev/kfd not be yours"],
            hint="see `rocminfo`",
        )
    return int(result[0])
