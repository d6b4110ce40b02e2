"""CUDA's driver library over `fake_gpu`: a plugin of pytest for a process that finds `libcuda.so.1` in LD_LIBRARY_PATH.

`pytest -p support.fake_cuda` installs it before anything else requests GPUs.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from . import ptx, tensor_maps
from .fake_gpu import FakeGpu, Refused

STATUS = {"fault": 700, "memory": 2, "invalid": 1, "not_found": 500, "capture": 900, "not_ready": 600}
STATUS["no_context"] = 201
NAMES = {
    0: "CUDA_SUCCESS",
    1: "CUDA_ERROR_INVALID_VALUE",
    2: "CUDA_ERROR_OUT_OF_MEMORY",
    100: "CUDA_ERROR_NO_DEVICE",
    201: "CUDA_ERROR_INVALID_CONTEXT",
    209: "CUDA_ERROR_NO_BINARY_FOR_GPU",
    218: "CUDA_ERROR_INVALID_PTX",
    222: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    500: "CUDA_ERROR_NOT_FOUND",
    600: "CUDA_ERROR_NOT_READY",
    700: "CUDA_ERROR_ILLEGAL_ADDRESS",
    719: "CUDA_ERROR_LAUNCH_FAILED",
    900: "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    999: "CUDA_ERROR_UNKNOWN",
}
TEXTS = {code: name.removeprefix("CUDA_ERROR_").lower().replace("_", " ") for code, name in NAMES.items()}

STARTS = 0  # what cuInit gives back

P, N, L = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64  # pointers, numbers of 32 and of 64 bits
ATTRIBUTES = {10: 32, 13: 1_500_000, 16: 108, 36: 1_000_000, 37: 5120, 38: 40 << 20, 75: 8, 76: 0, 97: 163 << 10}


class LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
    )


class FakeCuda(FakeGpu):
    """`version` is that of the driver: 1000 * major + 10 * minor."""

    first_device = None

    def __init__(self) -> None:
        super().__init__(STATUS)
        self.version = 13000
        self.capability = (8, 0)
        self.load_status, self.load_log = 0, b""
        self.attributes: dict[int, dict[int, int]] = {}  # of functions
        self.resolved: list[tuple[str, int]] = []  # what was looked up by name, and for which version
        self.launched: set[int] = set()
        self.texts = {code: ctypes.create_string_buffer(text.encode()) for code, text in TEXTS.items()}
        self.names = {code: ctypes.create_string_buffer(name.encode()) for code, name in NAMES.items()}

    def attribute(self, kind: int) -> int:
        return {75: self.capability[0], 76: self.capability[1]}.get(kind, ATTRIBUTES.get(kind, 0))

    def load_code(self, image: int, count: int, options: int, values: int) -> int:
        if self.load_status:
            kinds = (ctypes.c_int * count).from_address(options)
            places = (ctypes.c_uint64 * count).from_address(values)
            for kind, place in zip(kinds, places, strict=True):
                if kind == 5:  # CU_JIT_ERROR_LOG_BUFFER
                    ctypes.memmove(place, self.load_log + b"\0", len(self.load_log) + 1)
            raise Refused(self.load_status)
        return self.load(ctypes.string_at(image))

    def function_attribute(self, kind: int, function: int) -> int:
        assert kind == 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        module, symbol = self.functions[function]
        text = self.modules[module].decode(errors="replace")
        body = text[text.index(f".entry {symbol}(") :].split("\n}", 1)[0]
        sizes = re.findall(r"\.shared [^;\[]*?([\w$]+)\[(\d+)\]", text)
        return sum(int(size) for name, size in sizes if name in body)

    def set_function_attribute(self, function: int, kind: int, value: int) -> None:
        if value < 0 or value + self.function_attribute(1, function) > self.attribute(97):
            raise Refused(1)
        if function in self.launched:
            self.violations.append("an attribute of a kernel is set behind a launch, which another thread may make")
        self.attributes.setdefault(function, {})[kind] = value

    def launch_config(self, at: int, function: int, arguments: int) -> None:
        config = LaunchConfig.from_address(at)
        cluster = (1, 1, 1)
        for k in range(config.count):
            base = config.attributes + 72 * k
            if ctypes.c_uint32.from_address(base).value == 4:  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
                cluster = tuple((ctypes.c_uint32 * 3).from_address(base + 8))
        self.launched.add(function)
        if config.shared > 48 << 10 and self.attributes.get(function, {}).get(8, 0) < config.shared:
            self.violations.append("more than 48 KiB of shared memory without requesting it")
            raise Refused(1)
        self.launch(function, config.grid, config.block, cluster, config.shared, config.stream or 0, arguments)


def _put(at: int, value: int, kind: Any = ctypes.c_uint64) -> None:
    kind.from_address(at).value = value


def functions(gpu: FakeCuda) -> dict[str, tuple[tuple[Any, ...], Callable[..., Any]]]:
    """Name -> the types of its arguments, what it does."""

    def text(table: dict[int, Any], status: int, out: int) -> None:
        result = table.get(status)
        _put(out, ctypes.addressof(result) if result else 0)
        if result is None:
            raise Refused(1)

    def info(free: int, total: int) -> None:
        used = sum(size for size, device, _ in gpu.blocks.values() if device == gpu.current)
        _put(free, gpu.maximum - used)
        _put(total, gpu.maximum)

    def instantiate(out: int, graph: int, flags: int) -> None:
        _put(out, graph + 1)
        gpu.graphs[graph + 1] = list(gpu.graphs[graph])

    def done(event: int) -> None:
        if not gpu.is_done(event):
            raise Refused(600)

    def starts() -> None:
        if STARTS:
            raise Refused(STARTS)

    def copy_peer(to: int, at: int, source: int, where: int, size: int, stream: int) -> None:
        gpu.copy_peer(to, at - 0x100, source, where - 0x100, size, stream or 0)

    def fill2d(to: int, pitch: int, value: int, width: int, height: int, stream: int) -> None:
        for row in range(height):
            gpu.fill(to + row * pitch, value, 4, width, stream)

    return {
        "cuGetErrorName": ((N, P), lambda status, out: text(gpu.names, status, out)),
        "cuGetErrorString": ((N, P), lambda status, out: text(gpu.texts, status, out)),
        "cuInit": ((N,), lambda flags: starts()),
        "cuDriverGetVersion": ((P,), lambda out: _put(out, gpu.version, ctypes.c_int)),
        "cuDeviceGetCount": ((P,), lambda out: _put(out, gpu.count, ctypes.c_int)),
        "cuDeviceGet": ((P, N), lambda out, number: _put(out, number, ctypes.c_int)),
        "cuDeviceGetName": ((P, N, N), lambda out, length, number: ctypes.memmove(out, b"Fake GPU\0", 9)),
        "cuDeviceGetUuid": ((P, N), lambda out, number: ctypes.memset(out, number + 1, 16)),
        "cuDeviceTotalMem": ((P, N), lambda out, number: _put(out, gpu.maximum)),
        "cuDeviceGetAttribute": ((P, N, N), lambda out, kind, number: _put(out, gpu.attribute(kind), ctypes.c_int)),
        "cuDevicePrimaryCtxRetain": ((P, N), lambda out, number: _put(out, 0x100 + number)),
        "cuCtxGetCurrent": ((P,), lambda out: _put(out, context_of(gpu.threads.device))),
        "cuCtxSetCurrent": ((P,), lambda context: setattr(gpu.threads, "device", device_of(context))),
        "cuCtxSynchronize": ((), gpu.synchronize),
        "cuDeviceCanAccessPeer": ((P, N, N), lambda out, one, other: _put(out, one != other, ctypes.c_int)),
        "cuMemGetInfo": ((P, P), info),
        "cuMemAlloc": ((P, L), lambda out, size: _put(out, gpu.allocate(size))),
        "cuMemFree": ((L,), gpu.free),
        "cuMemHostAlloc": ((P, L, N), lambda out, size, flags: _put(out, gpu.allocate_pinned(size))),
        "cuMemFreeHost": ((P,), gpu.free_pinned),
        "cuMemcpyHtoDAsync": ((L, P, L, P), lambda to, at, n, s: gpu.copy(to, at, n, "to_device", s or 0)),
        "cuMemcpyDtoHAsync": ((P, L, L, P), lambda to, at, n, s: gpu.copy(to, at, n, "to_host", s or 0)),
        "cuMemcpyDtoDAsync": ((L, L, L, P), lambda to, at, n, s: gpu.copy(to, at, n, "within", s or 0)),
        "cuMemcpyPeerAsync": ((L, P, L, P, L, P), copy_peer),
        "cuCtxEnablePeerAccess": ((P, N), lambda context, flags: gpu.enable_peer(context - 0x100)),
        "cuMemcpyAsync": ((L, L, L, P), lambda to, at, n, s: gpu.copy(to, at, n, kind_of(gpu, to, at), s or 0)),
        "cuMemsetD8Async": ((L, ctypes.c_uint8, L, P), lambda to, v, n, s: gpu.fill(to, v, 1, n, s or 0)),
        "cuMemsetD16Async": ((L, ctypes.c_uint16, L, P), lambda to, v, n, s: gpu.fill(to, v, 2, n, s or 0)),
        "cuMemsetD32Async": ((L, ctypes.c_uint32, L, P), lambda to, v, n, s: gpu.fill(to, v, 4, n, s or 0)),
        "cuMemsetD2D32Async": (
            (L, L, ctypes.c_uint32, L, L, P),
            lambda to, pitch, v, w, h, s: fill2d(to, pitch, v, w, h, s or 0),
        ),
        "cuStreamCreate": ((P, N), lambda out, flags: _put(out, gpu.create_stream())),
        "cuStreamDestroy": ((P,), gpu.destroy_stream),
        "cuStreamQuery": ((P,), lambda stream: gpu.query_stream(stream or 0)),
        "cuStreamWaitEvent": ((P, P, N), lambda stream, event, flags: gpu.wait(stream or 0, event)),
        "cuEventCreate": ((P, N), lambda out, flags: _put(out, gpu.create_event())),
        "cuEventDestroy": ((P,), gpu.destroy_event),
        "cuEventRecord": ((P, P), lambda event, stream: gpu.record(event, stream or 0)),
        "cuEventQuery": ((P,), done),
        "cuEventElapsedTime": ((P, P, P), lambda out, first, second: _put(out, 1.5, ctypes.c_float)),
        "cuModuleLoadDataEx": ((P, P, N, P, P), lambda out, at, n, o, v: _put(out, gpu.load_code(at, n, o, v))),
        "cuModuleUnload": ((P,), gpu.unload),
        "cuModuleGetFunction": ((P, P, ctypes.c_char_p), lambda out, m, s: _put(out, gpu.function(m, s.decode()))),
        "cuFuncGetAttribute": ((P, N, P), lambda out, kind, f: _put(out, gpu.function_attribute(kind, f), N)),
        "cuFuncSetAttribute": ((P, N, N), gpu.set_function_attribute),
        "cuLaunchKernelEx": ((P, P, P, P), lambda config, f, values, extra: gpu.launch_config(config, f, values)),
        "cuTensorMapEncodeTiled": ((P, N, N, P, P, P, P, P, N, N, N, N), encode_tensor_map),
        "cuStreamBeginCapture": ((P, N), lambda stream, mode: gpu.begin_capture(stream)),
        "cuStreamIsCapturing": ((P, P), lambda stream, out: _put(out, gpu.is_capturing(stream or 0), N)),
        "cuStreamEndCapture": ((P, P), lambda stream, out: _put(out, gpu.end_capture(stream))),
        "cuGraphInstantiateWithFlags": ((P, P, L), instantiate),
        "cuGraphDestroy": ((P,), gpu.destroy_graph),
        "cuGraphExecDestroy": ((P,), gpu.destroy_graph),
        "cuGraphLaunch": ((P, P), lambda graph, stream: gpu.replay(graph, stream or 0)),
    }


def encode_tensor_map(*arguments: int) -> None:
    try:
        tensor_maps.encode_tiled(*arguments)
    except tensor_maps.Refused as refused:
        raise Refused(tensor_maps.INVALID) from refused


def context_of(device: int | None) -> int:
    """The primary context of a device."""
    return 0 if device is None else 0x100 + device


def device_of(context: int | None) -> int | None:
    """The device of a primary context."""
    return context - 0x100 if context else None


def kind_of(gpu: FakeGpu, to: int, source: int) -> str:
    """The direction of a copy, by where its ends lie."""
    near, far = gpu.holds(to, 1), gpu.holds(source, 1)
    return "within" if near and far else "to_device" if near else "to_host"


def callbacks(gpu: FakeGpu, table: dict[str, tuple[tuple[Any, ...], Callable[..., Any]]]) -> dict[str, Any]:
    """Each function as one that native code can call: 0, or the number with which it refuses."""

    def guarded(name: str, function: Callable[..., Any]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                with gpu.lock:
                    function(*arguments)
            except Refused as refused:
                return refused.status
            except Exception as error:
                gpu.violations.append(f"{name}: {error!r}")
                return 999
            return 0

        return call

    return {name: ctypes.CFUNCTYPE(N, *types)(guarded(name, does)) for name, (types, does) in table.items()}


def run_ptx(
    gpu: FakeGpu, code: bytes, symbol: str, grid: Any, block: Any, cluster: Any, shared: int, values: list[int]
) -> None:
    """Runs a kernel in the interpreter of PTX, over all memory of the devices."""
    memory = ptx.Memory()
    for address, (size, *_) in gpu.blocks.items():
        memory.lend(np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8))
    for address, (size, _) in gpu.pinned.items():
        memory.lend(np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8))
    sizes = {"grid": grid, "block": block, "cluster": cluster, "shared": shared}
    try:
        ptx.run(code.decode().rstrip("\0"), symbol, arguments=values, memory=memory, **sizes)
    except ptx.Trapped:
        gpu.fault = 719


_kept: list[Any] = []


def install() -> FakeCuda:
    """Puts the functions behind the `libcuda.so.1` that this process finds."""
    gpu = FakeCuda()
    gpu.runner = run_ptx
    known = callbacks(gpu, functions(gpu))

    @ctypes.CFUNCTYPE(N, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), N, L, ctypes.POINTER(N))
    def resolve(name: bytes, out: Any, version: int, flags: int, status: Any) -> int:
        result = known.get(name.decode())
        gpu.resolved.append((name.decode(), version))
        out[0] = ctypes.cast(result, P).value if result else None
        if status:
            status[0] = 0 if result else 1
        return 0 if result else STATUS["not_found"]

    known["cuGetProcAddress"] = resolve
    library = ctypes.CDLL("libcuda.so.1")
    P.in_dll(library, "ek_resolve").value = ctypes.cast(resolve, P).value
    _kept.append((known, resolve, library))  # native code has their addresses
    return gpu


def pytest_configure(config: Any) -> None:
    config.fake_gpu = install()
