"""Reaches NVIDIA's GPUs through `cuda.bindings.driver`, which is loaded only where a driver is installed.

Each GPU's primary context is used, which PyTorch, JAX and others use as well: their memory and streams are of use here.

See also `gpu` (streams' order and errors in the user's words). Reference: NVIDIA's "CUDA Driver API".
"""

from __future__ import annotations

import functools
from typing import Any, Final

from ...dsl.diagnostics.errors import DeviceError
from .gpu import GpuDriver, package
from .gpu_library import Codes, GpuLibrary, GpuProperties
from .gpu_names import CUDA_LIBRARY, NCCL

_NON_BLOCKING = 1  # a stream that does not wait for the legacy default stream
_NO_TIMING = 2
_PORTABLE = 1  # pinned memory that every context may use
_THREAD_LOCAL = 1  # of captures: only what this thread does may spoil one
_LOG_SIZE = 16384
_CODED_AGAINST = 12000  # the version of CUDA whose functions native code calls, by their arguments

# CU_DEVICE_ATTRIBUTE_*
_ATTRIBUTES: Final = {
    "lanes": 10,
    "clock_khz": 13,
    "multiprocessors": 16,
    "memory_clock_khz": 36,
    "memory_bus_bits": 37,
    "l2_cache": 38,
    "major": 75,
    "minor": 76,
    "shared_memory": 97,
}

_CODES: Final = Codes(
    memory=2,
    lost=frozenset({214, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719}),
    capture=frozenset(range(900, 909)),
    architecture=frozenset({200, 209, 218}),
    version=frozenset({222}),
)

# A driver of CUDA x.y supports PTX up to this version; both times ten (table of the PTX ISA manual, "Release Notes").
_PTX_OF_CUDA: Final = {110: 70, 111: 71, 112: 72, 113: 73, 114: 74, 115: 75, 116: 76, 117: 77, 118: 78, 120: 80}
_PTX_OF_CUDA_LATER: Final = {121: 81, 122: 82, 123: 83, 124: 84, 125: 85, 126: 85, 127: 86, 128: 87, 129: 88, 130: 90}


def newest_ptx(cuda: int) -> int:
    """Ten times the newest PTX version that a driver of CUDA `cuda` (ten times its version) supports; 0 before CUDA
    11."""
    known = _PTX_OF_CUDA | _PTX_OF_CUDA_LATER
    if cuda > max(known):
        return known[max(known)] + cuda - max(known)
    return max((ptx for version, ptx in known.items() if version <= cuda), default=0)


@functools.cache
def bindings() -> Any:
    """`cuda.bindings.driver`.

    Raises:
        DeviceError: EK0831 it is not installed.
    """
    return package("cuda.bindings.driver", CUDA_LIBRARY, "cuda-bindings")


class CudaLibrary(GpuLibrary):
    """One of NVIDIA's GPUs."""

    launchers = "cuda"
    blocking = "CUDA_LAUNCH_BLOCKING=1"
    codes = _CODES
    dlpack_device = 2
    encodes = True
    functions = (
        *("cuLaunchKernelEx", "cuMemcpyAsync", "cuStreamQuery"),
        *("cuMemsetD8Async", "cuMemsetD16Async", "cuMemsetD32Async"),
        *("cuCtxGetCurrent", "cuCtxSetCurrent", "cuMemsetD2D32Async", "cuTensorMapEncodeTiled"),
    )

    def __init__(self, number: int) -> None:
        self._cuda = bindings()
        self.version = 0
        self.version = int(self._call("cuDriverGetVersion"))
        self._device = self._call("cuDeviceGet", number)
        self.context = int(self._call("cuDevicePrimaryCtxRetain", self._device))
        self._get_current, self._set_current = self._cuda.cuCtxGetCurrent, self._cuda.cuCtxSetCurrent

    def _call(self, name: str, *arguments: object) -> Any:
        try:
            status, *results = getattr(self._cuda, name)(*arguments)
        except RuntimeError as error:  # the driver has no such function
            raise DeviceError(
                f"NVIDIA's driver is too old: it is that of {self.driver_name}, and has no {name}",
                code="EK0832",
                expected="a driver of CUDA 12.0 or newer",
                got=self.driver_name,
                notes=[str(error)],
                hint="install a newer driver",
            ) from None
        if status:
            raise self._fault(name, int(status))
        return results[0] if len(results) == 1 else results

    @property
    def driver_name(self) -> str:
        """The driver by the version of CUDA that it is for."""
        return f"CUDA {self.version // 1000}.{self.version % 1000 // 10}"

    def describe(self, status: int) -> tuple[str, str]:
        texts = []
        for function in (self._cuda.cuGetErrorName, self._cuda.cuGetErrorString):
            try:
                known, text = function(self._cuda.CUresult(status))
            except ValueError:  # newer than the package
                known, text = 1, None
            texts.append("" if known or text is None else text.decode())
        return texts[0] or f"CUDA error {status}", texts[1]

    def uuid(self) -> bytes:
        return bytes(self._call("cuDeviceGetUuid", self._device).bytes)

    def can_access(self, number: int) -> bool:
        return bool(self._call("cuDeviceCanAccessPeer", self._device, self._call("cuDeviceGet", number)))

    def current(self) -> int:
        status, context = self._get_current()
        if status:
            raise self._fault("cuCtxGetCurrent", int(status))
        return int(context)

    def activate(self, context: int) -> None:
        (status,) = self._set_current(context)
        if status:
            raise self._fault("cuCtxSetCurrent", int(status))

    def _attribute(self, name: str) -> int:
        kind = self._cuda.CUdevice_attribute(_ATTRIBUTES[name])
        return int(self._call("cuDeviceGetAttribute", kind, self._device))

    def properties(self) -> GpuProperties:
        attributes = {name: self._attribute(name) for name in _ATTRIBUTES}
        major, minor = attributes.pop("major"), attributes.pop("minor")
        name = self._call("cuDeviceGetName", 256, self._device).split(b"\0")[0].decode()
        return GpuProperties(
            name,
            f"sm_{major}{minor}",
            int(self._call("cuDeviceTotalMem", self._device)),
            attributes.pop("multiprocessors"),
            attributes.pop("lanes"),
            attributes.pop("shared_memory"),
            self.driver_name,
            {"compute_capability": f"{major}.{minor}", **attributes},
        )

    def allocate(self, size: int) -> int:
        return int(self._call("cuMemAlloc", size))

    def free(self, address: int) -> None:
        self._call("cuMemFree", address)

    def free_memory(self) -> int:
        return int(self._call("cuMemGetInfo")[0])

    def allocate_pinned(self, size: int) -> int:
        return int(self._call("cuMemHostAlloc", size, _PORTABLE))

    def free_pinned(self, address: int) -> None:
        self._call("cuMemFreeHost", address)

    def copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self._call(("cuMemcpyDtoDAsync", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")[kind], to, source, size, stream)

    def copy_peer(self, to: int, source: int, context: int, size: int, stream: int) -> None:
        self._call("cuMemcpyPeerAsync", to, self.context, source, context, size, stream)

    def enable_access(self, context: int) -> None:
        (status,) = self._cuda.cuCtxEnablePeerAccess(context, 0)
        if int(status) not in (0, self.codes.enabled):
            raise self._fault("cuCtxEnablePeerAccess", int(status))

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        self._call("cuMemsetD8Async", address, byte, size, stream)

    def create_stream(self) -> int:
        return int(self._call("cuStreamCreate", _NON_BLOCKING))

    def destroy_stream(self, stream: int) -> None:
        self._call("cuStreamDestroy", stream)

    def is_idle(self, stream: int) -> bool:
        return self._query("cuStreamQuery", stream)

    def create_event(self, timing: bool = False) -> int:
        return int(self._call("cuEventCreate", 0 if timing else _NO_TIMING))

    def destroy_event(self, event: int) -> None:
        self._call("cuEventDestroy", event)

    def record(self, event: int, stream: int) -> None:
        self._call("cuEventRecord", event, stream)

    def wait(self, stream: int, event: int) -> None:
        self._call("cuStreamWaitEvent", stream, event, 0)

    def is_done(self, event: int) -> bool:
        return self._query("cuEventQuery", event)

    def _query(self, name: str, handle: int) -> bool:
        """Whether what a stream or an event waits for is done."""
        (status,) = getattr(self._cuda, name)(handle)
        return self._is_ready(name, int(status))

    def elapsed(self, first: int, second: int) -> float:
        return float(self._call("cuEventElapsedTime", first, second))

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def load(self, code: bytes, is_text: bool) -> int:
        log = bytes(_LOG_SIZE)  # a fresh one, which the driver writes into
        option = self._cuda.CUjit_option
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        image = code + b"\0" if is_text else code
        status, module = self._cuda.cuModuleLoadDataEx(image, 2, options, [log, _LOG_SIZE])
        if status:
            raise self._fault("cuModuleLoadDataEx", int(status), log.split(b"\0")[0].decode(errors="replace").strip())
        return int(module)

    def unload(self, module: int) -> None:
        self._call("cuModuleUnload", module)

    def function(self, module: int, symbol: str) -> int:
        function = int(self._call("cuModuleGetFunction", module, symbol.encode()))
        kinds = self._cuda.CUfunction_attribute
        own = int(self._call("cuFuncGetAttribute", kinds.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        most = self._attribute("shared_memory") - own  # threads that launch it share the attribute: it never changes
        self._call("cuFuncSetAttribute", function, kinds.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most)
        return function

    def address_of(self, name: str) -> int:
        flags = self._cuda.CUdriverProcAddress_flags.CU_GET_PROC_ADDRESS_DEFAULT
        version = min(self.version, _CODED_AGAINST)  # a later one may have the name for other arguments
        return int(self._call("cuGetProcAddress", name.encode(), version, flags)[0])

    def begin_capture(self, stream: int) -> None:
        self._call("cuStreamBeginCapture", stream, self._cuda.CUstreamCaptureMode(_THREAD_LOCAL))

    def capture_status(self, stream: int) -> int:
        return int(self._call("cuStreamIsCapturing", stream))

    def end_capture(self, stream: int) -> int:
        graph = self._call("cuStreamEndCapture", stream)
        try:
            return int(self._call("cuGraphInstantiate", graph, 0))
        finally:
            self._call("cuGraphDestroy", graph)

    def replay(self, recorded: int, stream: int) -> None:
        self._call("cuGraphLaunch", recorded, stream)

    def destroy_recorded(self, recorded: int) -> None:
        self._call("cuGraphExecDestroy", recorded)


class CudaDriver(GpuDriver):
    """One of NVIDIA's GPUs, as the runtime uses it."""

    api = "cuda"
    collectives = NCCL

    def __init__(self, number: int) -> None:
        count()
        library = CudaLibrary(number)
        self._newest_ptx = newest_ptx(10 * (library.version // 1000) + library.version % 1000 // 10)
        super().__init__(library, number)

    def too_old_for(self, code: bytes) -> tuple[str, str] | None:
        line = next((line for line in code[:4096].splitlines() if line.startswith(b".version")), b".version 0.0")
        major, _, minor = line.split()[1].decode().partition(".")
        wanted = 10 * int(major) + int(minor)
        return None if wanted <= self._newest_ptx else (f"PTX {wanted / 10}", f"PTX {self._newest_ptx / 10}")


_NO_DEVICE = 100


@functools.cache
def count() -> int:
    """How many of NVIDIA's GPUs this process may use.

    Raises:
        DeviceError: EK0831 `cuda.bindings` is not installed, or the driver does not start.
    """
    cuda = bindings()
    (status,) = cuda.cuInit(0)
    if int(status) == _NO_DEVICE:
        return 0
    if not status:
        status, device_count = cuda.cuDeviceGetCount()
    if status:
        raise DeviceError(
            f"NVIDIA's driver does not start: {status.name}",
            code="EK0831",
            got=status.name,
            notes=[f"{CUDA_LIBRARY} is here; the driver's part in the kernel may be missing, or of another version"],
            hint="see `nvidia-smi`",
        )
    return int(device_count)
