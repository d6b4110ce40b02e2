"""HIP's library over `fake_gpu`: a plugin of pytest for a process that finds `libamdhip64.so` in LD_LIBRARY_PATH.

`pytest -p support.fake_hip` installs it before anything else requests GPUs. It executes nothing: there is no way here
to run a code object, so its kernels leave memory as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .fake_cuda import L, N, P, _put, callbacks, kind_of
from .fake_gpu import FakeGpu, Refused

STATUS = {"fault": 700, "memory": 2, "invalid": 1, "not_found": 500, "capture": 900, "not_ready": 600}
TEXTS = {0: "hipSuccess", 1: "hipErrorInvalidValue", 2: "hipErrorOutOfMemory", 700: "hipErrorIllegalAddress"}

KINDS = {1: "to_device", 2: "to_host", 3: "within"}
NAMES = (
    *("hipInit", "hipGetDeviceCount", "hipGetDevice", "hipSetDevice"),
    *("hipGetDevicePropertiesR0600", "hipRuntimeGetVersion"),
    "hipDeviceGetUuid",
    *("hipDeviceCanAccessPeer", "hipDeviceEnablePeerAccess", "hipMemcpyPeerAsync"),
    *("hipGetErrorName", "hipGetErrorString", "hipMalloc", "hipFree", "hipMemGetInfo", "hipHostMalloc", "hipHostFree"),
    *("hipMemcpyAsync", "hipMemsetD8Async", "hipMemsetD16Async", "hipMemsetD32Async"),
    *("hipStreamCreateWithFlags", "hipStreamDestroy", "hipStreamQuery", "hipStreamWaitEvent"),
    *("hipEventCreateWithFlags", "hipEventDestroy", "hipEventRecord", "hipEventQuery", "hipEventElapsedTime"),
    *("hipDeviceSynchronize", "hipModuleLoadData", "hipModuleUnload", "hipModuleGetFunction", "hipModuleLaunchKernel"),
    *(
        "hipStreamBeginCapture",
        "hipStreamIsCapturing",
        "hipStreamEndCapture",
        "hipGraphInstantiateWithFlags",
        "hipGraphDestroy",
    ),
    *("hipGraphLaunch", "hipGraphExecDestroy"),
)


class FakeHip(FakeGpu):
    """AMD's GPUs."""

    has_arguments = False

    def __init__(self) -> None:
        super().__init__(STATUS)
        self.texts = {code: ctypes.create_string_buffer(text.encode()) for code, text in TEXTS.items()}
        self.architecture = b"gfx942:sramecc+:xnack-"
        self.load_status, self.load_log = 0, b""

    def load_code(self, image: int) -> int:
        if self.load_status:
            raise Refused(self.load_status)
        return self.load(code_at(image))

    def write_properties(self, at: int) -> None:
        """Fills hipDeviceProp_tR0600 as far as it is requested."""
        from rocm.bindings import hip

        known = hip.hipDeviceProp_t()
        size, start = known.c_sizeof(), known.as_c_void_p().value
        for name, value in PROPERTIES.items():
            setattr(known, name, value)
        ctypes.memmove(start, b"Fake GPU", 8)  # the first of its fields
        for place in range(256, size, 4):  # texts cannot be set by name: that of the architecture is looked for
            byte = ctypes.c_uint8.from_address(start + place)
            before, byte.value = byte.value, ord("?")
            if known.gcnArchName[:1] in ("?", b"?"):
                ctypes.memmove(start + place, self.architecture, len(self.architecture))
                break
            byte.value = before
        ctypes.memmove(at, start, size)


PROPERTIES = {
    "totalGlobalMem": 1 << 30,
    "multiProcessorCount": 304,
    "warpSize": 64,
    "sharedMemPerBlock": 64 << 10,
}


def code_at(image: int) -> bytes:
    """The ELF file at an address: as long as the table of its sections says, which stands at its end."""
    head = ctypes.string_at(image, 64)
    sections, size, count = int.from_bytes(head[40:48], "little"), head[58], int.from_bytes(head[60:62], "little")
    return ctypes.string_at(image, sections + size * count)


def functions(gpu: FakeHip) -> dict[str, tuple[tuple[Any, ...], Callable[..., Any]]]:
    """Name -> the types of its arguments, what it does."""

    def instantiate(out: int, graph: int, flags: int) -> None:
        _put(out, graph + 1)
        gpu.graphs[graph + 1] = list(gpu.graphs[graph])

    def done(event: int) -> None:
        if not gpu.is_done(event):
            raise Refused(600)

    def info(free: int, total: int) -> None:
        used = sum(size for size, device, _ in gpu.blocks.values() if device == gpu.current)
        _put(free, gpu.maximum - used)
        _put(total, gpu.maximum)

    def launch(
        f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, *rest: int
    ) -> None:
        gpu.launch(f, (gx, gy, gz), (bx, by, bz), (1, 1, 1), shared, stream or 0, rest[0])

    known: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]] = {
        "hipInit": ((N,), lambda flags: None),
        "hipGetDeviceCount": ((P,), lambda out: _put(out, gpu.count, ctypes.c_int)),
        "hipGetDevice": ((P,), lambda out: _put(out, gpu.current, ctypes.c_int)),
        "hipSetDevice": ((N,), lambda number: setattr(gpu.threads, "device", number)),
        "hipGetDevicePropertiesR0600": ((P, N), lambda out, number: gpu.write_properties(out)),
        "hipRuntimeGetVersion": ((P,), lambda out: _put(out, 100_000_000, ctypes.c_int)),
        "hipDeviceCanAccessPeer": ((P, N, N), lambda out, one, other: _put(out, one != other, ctypes.c_int)),
        "hipDeviceGetUuid": ((P, N), lambda out, number: ctypes.memset(out, number + 1, 16)),
        "hipMalloc": ((P, L), lambda out, size: _put(out, gpu.allocate(size))),
        "hipFree": ((P,), gpu.free),
        "hipMemGetInfo": ((P, P), info),
        "hipHostMalloc": ((P, L, N), lambda out, size, flags: _put(out, gpu.allocate_pinned(size))),
        "hipHostFree": ((P,), gpu.free_pinned),
        "hipMemcpyAsync": (
            (P, P, L, N, P),
            lambda to, at, n, kind, s: gpu.copy(to, at, n, KINDS.get(kind) or kind_of(gpu, to, at), s or 0),
        ),
        "hipMemcpyPeerAsync": (
            (P, N, P, N, L, P),
            lambda to, at, source, where, n, s: gpu.copy_peer(to, at, source, where, n, s or 0),
        ),
        "hipDeviceEnablePeerAccess": ((N, N), lambda number, flags: gpu.enable_peer(number)),
        "hipMemsetD8Async": ((P, ctypes.c_uint8, L, P), lambda to, v, n, s: gpu.fill(to, v, 1, n, s or 0)),
        "hipMemsetD16Async": ((P, ctypes.c_uint16, L, P), lambda to, v, n, s: gpu.fill(to, v, 2, n, s or 0)),
        "hipMemsetD32Async": ((P, N, L, P), lambda to, v, n, s: gpu.fill(to, v, 4, n, s or 0)),
        "hipStreamCreateWithFlags": ((P, N), lambda out, flags: _put(out, gpu.create_stream())),
        "hipStreamDestroy": ((P,), gpu.destroy_stream),
        "hipStreamQuery": ((P,), lambda stream: gpu.query_stream(stream or 0)),
        "hipStreamWaitEvent": ((P, P, N), lambda stream, event, flags: gpu.wait(stream or 0, event)),
        "hipEventCreateWithFlags": ((P, N), lambda out, flags: _put(out, gpu.create_event())),
        "hipEventDestroy": ((P,), gpu.destroy_event),
        "hipEventRecord": ((P, P), lambda event, stream: gpu.record(event, stream or 0)),
        "hipEventQuery": ((P,), done),
        "hipEventElapsedTime": ((P, P, P), lambda out, first, second: _put(out, 1.5, ctypes.c_float)),
        "hipDeviceSynchronize": ((), gpu.synchronize),
        "hipModuleLoadData": ((P, P), lambda out, image: _put(out, gpu.load_code(image))),
        "hipModuleUnload": ((P,), gpu.unload),
        "hipModuleGetFunction": ((P, P, ctypes.c_char_p), lambda out, m, s: _put(out, gpu.function(m, s.decode()))),
        "hipModuleLaunchKernel": ((P, *[N] * 7, P, P, P), launch),
        "hipStreamBeginCapture": ((P, N), lambda stream, mode: gpu.begin_capture(stream)),
        "hipStreamIsCapturing": ((P, P), lambda stream, out: _put(out, gpu.is_capturing(stream or 0), N)),
        "hipStreamEndCapture": ((P, P), lambda stream, out: _put(out, gpu.end_capture(stream))),
        "hipGraphInstantiateWithFlags": ((P, P, L), instantiate),
        "hipGraphDestroy": ((P,), gpu.destroy_graph),
        "hipGraphExecDestroy": ((P,), gpu.destroy_graph),
        "hipGraphLaunch": ((P, P), lambda graph, stream: gpu.replay(graph, stream or 0)),
    }
    return known


_kept: list[Any] = []


def install(path: str = "libamdhip64.so") -> FakeHip:
    """Puts the functions behind the `libamdhip64.so` that this process finds, or behind another one."""
    gpu = FakeHip()
    known = callbacks(gpu, functions(gpu))

    @ctypes.CFUNCTYPE(P, N)
    def text(status: int) -> Any:
        result = gpu.texts.get(status)
        return ctypes.addressof(result) if result else None

    known["hipGetErrorName"] = known["hipGetErrorString"] = text
    library = ctypes.CDLL(path)
    table = (P * len(NAMES)).in_dll(library, "ek_functions")
    for number, name in enumerate(NAMES):
        table[number] = ctypes.cast(known[name], P).value
    _kept.append((known, library))  # native code has their addresses
    return gpu


def pytest_configure(config: Any) -> None:
    config.fake_gpu = install()
