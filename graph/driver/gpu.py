"""Drives a GPU for the runtime: pooled memory, copies in the order of streams, modules, recorded calls, errors.

CUDA and HIP differ in spelling alone; what differs is behind `GpuLibrary`. Everything is enqueued on the stream that
the calling thread has chosen (see `streams`), and only reading on the host and `synchronize` wait.

See also `gpu_kinds` (which GPUs there are), `compiler.runtime.launchers` (how kernels are launched).
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import math
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

import numpy as np

from ...dsl.contract import abi
from ...dsl.contract.code_formats import PTX
from ...dsl.diagnostics.errors import DeviceError, EinkornError, KernelError, ReplayError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from . import arrays
from .allocator import MemoryPool
from .device import LAUNCHERS, Allocator, Array, Code, CodeFile, Deliver, DeviceMemory, Driver, KernelReports, Storage
from .gpu_handles import ForeignMemory, GpuMemory, GpuModule, KeptTable, RecordedWork, taken
from .gpu_library import TO_DEVICE, TO_HOST, WITHIN, GpuFault, GpuLibrary
from .gpu_waits import wait_until
from .halves import open_halves
from .late_reports import LateReports
from .streams import DeviceStream, current_stream, default_stream, stream_of

RECENT: Final = 8  # calls that are named when a kernel fails somewhere behind them
MODULES: Final = 256  # that are kept for later requests of the same code
STAGED: Final = 64 << 10  # bytes of a copy from ordinary memory that the library takes at once, whatever is under way


class _Entered(threading.local):
    """What was the GPU of a thread before each block in which it is the driver's."""

    def __init__(self) -> None:
        self.before: list[int] = []


class GpuDriver(Driver):
    """One GPU, as the runtime uses it."""

    def __init__(self, library: GpuLibrary, number: int) -> None:
        self.library = library
        self.number = number
        self._process = os.getpid()
        self._entered = _Entered()
        with self:
            self.known = library.properties()
        self.architecture = self.known.architecture
        self.targets = ("host", self.architecture)
        self.dlpack_place = library.dlpack_device, number
        self.recent: deque[str] = deque(maxlen=RECENT)
        self._events: list[int] = []  # unused
        self._copying: deque[tuple[int, object]] = deque()  # events, and pinned memory that is read until then
        self._modules: OrderedDict[str, GpuModule] = OrderedDict()
        self._dropped: deque[int] = deque()
        self._library_table: ctypes.Array[ctypes.c_void_p] | None = None
        self._gone: deque[int] = deque()  # streams
        self._streams: set[int] = set()  # that were made here, and record nothing; under `_streams_lock`
        self._streams_lock = fork_lock()
        self.replayed: deque[int] = deque()  # recorded work that is not replayed any more
        self._read: deque[tuple[int, DeviceStream, DeviceMemory]] = deque()  # see `order_later`
        self._pinned: deque[int] = deque()
        self._lock = fork_lock()
        self._reports = LateReports()
        self._seen: set[int] = set()  # numbers of GPUs that were copied from
        self.pool = MemoryPool(self._take, self._give, self._follow, self._settle, self._free_memory)

    # *** errors ***

    def _checked(self, call: Callable[..., Any], *arguments: object) -> Any:
        try:
            return call(*arguments)
        except GpuFault as fault:
            raise self.explained(fault) from None

    def __enter__(self) -> None:
        """Makes this GPU that of the thread until the end of the block; what the library refuses there is explained."""
        library = self.library
        before = self._checked(library.current)
        if before != library.context:
            self._checked(library.activate, library.context)
        self._entered.before.append(before)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        before = self._entered.before.pop()
        try:
            if isinstance(error, GpuFault):
                raise self.explained(error) from None
        finally:
            if before != self.library.context:
                self._checked(self.library.activate, before)

    def explained(self, fault: GpuFault) -> EinkornError:
        """What a refusal means for the user."""
        codes, name = self.library.codes, f"gpu:{self.number}"
        if fault.status in codes.lost:
            try:
                self._reports.deliver()  # which lies on the host
            except EinkornError as reported:
                lost = "the kernel has ended all its threads: nothing can run on this device in this process any more"
                reported.notes.append(lost)
                return reported
            return self._lost(fault)
        if fault.status in codes.capture:
            return ReplayError(
                f"the call cannot be recorded on {name}: {fault}",
                code="EK0836",
                place=user_place(),
                got=fault.name,
                hint="execute it; what waits for the device, such as a branch or a loop, cannot be recorded",
            )
        if fault.status == codes.memory:
            free = self._free_memory()
            return DeviceError(
                f"{name} has no memory left for {fault.call}",
                code="EK0833",
                place=user_place(),
                got=fault.name,
                notes=[
                    f"{free:,} bytes are free",
                    f"buffers and graphs of this process have {self.pool.stats.in_use:,}",
                ],
            )
        notes = []
        if os.getpid() != self._process:
            notes.append("this process is the child of a fork, and GPUs do not outlive one: start it by spawn")
        return DeviceError(f"{name}: {fault}", code="EK0837", place=user_place(), got=fault.name, notes=notes)

    def _lost(self, fault: GpuFault) -> KernelError:
        recent = list(dict.fromkeys(reversed(self.recent)))
        notes = [f"enqueued since the device was last waited for: {', '.join(recent)}"] if recent else []
        variable = self.library.blocking
        return KernelError(
            f"a kernel on gpu:{self.number} failed: {fault.name} ({fault.text})",
            code="EK0834",
            place=user_place(),
            got=fault.name,
            notes=[*notes, "the context is lost: nothing can run on this device in this process any more"],
            hint=f'checks="all" finds what is out of bounds; {variable} in the environment shows which kernel it is',
        )

    def error(self, code: int) -> str:
        name, text = self.library.describe(code)
        return f"{name} ({text})" if text else name

    def launch_error(self, code: int, notes: Sequence[str]) -> EinkornError | None:
        if code not in self.library.codes.lost | self.library.codes.capture:
            return None
        error = self.explained(GpuFault("a launch", code, *self.library.describe(code)))
        error.notes = [*notes, *error.notes]
        return error

    # *** memory ***

    def _take(self, size: int) -> int:
        try:
            return self.library.allocate(size)
        except GpuFault as fault:
            if fault.status == self.library.codes.memory:
                raise MemoryError(str(fault)) from None
            raise

    def _give(self, address: int) -> None:
        with self:
            self.library.free(address)

    def _settle(self) -> None:
        """Waits until the device is idle: for our streams so that signals end the wait, then for those of others."""
        current = current_stream(self)
        with self:
            if not current.is_recording:
                self._wait(current.handle)  # which may be another library's
            for stream in list(self._streams):
                wait_until(lambda stream=stream: self._is_idle(stream))  # type: ignore[misc]
            self.library.synchronize()

    def _free_memory(self) -> int:
        with self:
            return self.library.free_memory()

    def _follow(self, stream: DeviceStream, before: DeviceStream) -> None:
        if stream is not before:
            self.order_streams(before.handle, stream.handle)

    def allocate(self, size: int) -> GpuMemory:
        return self._allocate(size, "a buffer")

    def _allocate(self, size: int, user: str) -> GpuMemory:
        stream = self._stream()
        block = self.pool.allocate(size, stream, user)
        if block is None:
            with self:
                block = self.pool.fresh(size, stream, user)
        return GpuMemory(block, size, self.pool.returned)

    def allocator(self, dtype: DType, shape: tuple[int, ...]) -> Allocator:
        return self._allocate, (dtype.bytes_for(math.prod(shape)), f"results of {dtype} {shape}")

    def foreign(self, address: int, size: int, stream: DeviceStream, array: Array) -> DeviceMemory:
        """Memory of another library, which work on this stream may use now."""
        return ForeignMemory(address, size, stream, array)

    def attribute(self, storage: Storage, user: str) -> None:
        if isinstance(storage, GpuMemory):
            storage.block.user = user

    def allocate_pinned(self, size: int) -> Array:
        with self:
            self._free_pinned()
            try:
                address = self.library.allocate_pinned(max(size, 1))
            except GpuFault as fault:
                if fault.status == self.library.codes.memory:
                    raise MemoryError(f"{size:,} bytes of pinned memory cannot be allocated") from None
                raise
        return np.asarray(arrays.PinnedMemory(address, size, self._pinned.append))

    def _free_pinned(self) -> None:
        for address in taken(self._pinned):
            self.library.free_pinned(address)

    def _ready(self, memory: Any, stream: DeviceStream) -> int:
        """The address of memory, for work on a stream: behind what another stream does with it."""
        block = memory.block
        if block.stream is not stream and not stream.is_recording:
            self._follow(stream, block.stream)
            block.stream = stream
        address: int = memory.address
        return address

    def copy(self, to: Any, source: Any) -> None:
        near, far = isinstance(to, DeviceMemory), isinstance(source, DeviceMemory)
        size = to.size if near else to.nbytes
        if not size:
            return
        stream = self._stream()
        with self:
            there = self._ready(to, stream) if near else arrays.address_of(to)
            here = self._ready(source, stream) if far else arrays.address_of(source)
            kind = WITHIN if near and far else TO_DEVICE if near else TO_HOST
            host = source if near else to
            pinned = arrays.is_pinned(host)
            if not pinned and (not near or (not far and size > STAGED)):
                self._wait(stream.handle)  # the library would, and then no signal ends the wait
            self.library.copy(there, here, size, kind, stream.handle)
            if pinned:
                self._hold(host, stream)
            if not near:
                self._wait(stream.handle)
                self.recent.clear()
        if not near:
            self._reports.deliver(stream.handle)

    def copy_from(self, to: Any, source: Any, other: Driver) -> None:
        """Copies from another GPU of the same maker directly: behind what is done with the source by now, and what is
        done with it later comes behind the copy."""
        if not isinstance(other, GpuDriver) or other.library.dlpack_device != self.library.dlpack_device:
            return super().copy_from(to, source, other)
        if not to.size:
            return
        stream, theirs = self._stream(), source.block.stream
        other._stream()
        with other:
            ready = other._event()
            other.library.record(ready, theirs.handle)
        with self:
            self._see(other)
            there = self._ready(to, stream)
            self.library.wait(stream.handle, ready)
            self.library.copy_peer(there, source.address, other.library.context, to.size, stream.handle)
            done = self._event()
            self.library.record(done, stream.handle)
        with other:
            other.library.wait(theirs.handle, done)
        other._events.append(ready)
        self._events.append(done)

    def _see(self, other: GpuDriver) -> None:
        """Lets the hardware copy from another GPU without the host between, where it can."""
        if other.number not in self._seen:
            self._seen.add(other.number)
            if self.library.can_access(other.number):
                self.library.enable_access(other.library.context)

    def _hold(self, source: Array, stream: DeviceStream) -> None:
        """Keeps an array until it is copied: a library uses pinned memory later, and other memory at once."""
        for event, held in list(taken(self._copying)):
            if self.library.is_done(event):
                self._events.append(event)
            else:
                self._copying.append((event, held))
        event = self._event()
        self.library.record(event, stream.handle)
        self._copying.append((event, source))

    def fill(self, storage: Any, byte: int) -> None:
        if not storage.size:
            return
        stream = self._stream()
        with self:
            self.library.fill(self._ready(storage, stream), byte, storage.size, stream.handle)

    # *** streams ***

    def _event(self) -> int:
        try:
            return self._events.pop()
        except IndexError:
            return self.library.create_event()

    def create_stream(self) -> int:
        with self:
            self._destroy_streams()
            stream = self.library.create_stream()
            with self._streams_lock:
                self._streams.add(stream)
            return stream

    def _destroy_streams(self) -> None:
        for stream in taken(self._gone):
            with self._streams_lock:
                self._streams.discard(stream)
            self.library.destroy_stream(stream)

    def _is_idle(self, stream: int) -> bool:
        """Whether the work on a stream that was made here is done; of one that records none is waited for."""
        with self._streams_lock:
            return stream not in self._streams or self.library.is_idle(stream)

    def _free_replayed(self) -> None:
        for recorded in taken(self.replayed):
            self.library.destroy_recorded(recorded)

    def destroy_stream(self, stream: int) -> None:
        self._gone.append(stream)

    def synchronize_stream(self, stream: int) -> None:
        with self:
            self._wait(stream)
        self._reports.deliver(stream)

    def _wait(self, stream: int) -> None:
        wait_until(lambda: self.library.is_idle(stream))

    def order_streams(self, first: int, then: int) -> None:
        with self:
            event = self._event()
            self.library.record(event, first)
            self.library.wait(then, event)
            self._events.append(event)  # a wait is for the record before it, whatever is recorded later

    def order_later(self, first: int, then: DeviceStream, memory: DeviceMemory) -> None:
        self._read.append((first, then, memory))

    def _stream(self) -> DeviceStream:
        """The stream of the thread, behind what other libraries were said to read meanwhile."""
        stream = current_stream(self)
        if self._read and not stream.is_recording:
            for first, then, memory in list(taken(self._read)):
                with suppress(DeviceError), self:  # the other library's stream may be gone
                    if then.is_recording or self.library.is_capturing(first):
                        self._read.append((first, then, memory))  # which keeps the memory until then
                    else:
                        self.order_streams(first, then.handle)
        return stream

    def synchronize(self) -> None:
        self._stream()
        with self:
            copied, dropped = list(taken(self._copying)), list(taken(self._dropped))  # nothing that comes later
            self._settle()
            self.recent.clear()
            self._events.extend(event for event, _ in copied)
            for module in dropped:
                self.library.unload(module)
            self._free_pinned()
            self._destroy_streams()
            self._free_replayed()
        self._reports.deliver()

    def can_access(self, other: Driver) -> bool:
        if not isinstance(other, GpuDriver) or other.library.dlpack_device != self.library.dlpack_device:
            return False
        return other.number == self.number or bool(self._checked(self.library.can_access, other.number))

    # *** code ***

    def module(self, code: bytes, is_text: bool, made_for: str) -> GpuModule:
        """Code in the GPU; the same code is loaded once.

        Raises:
            DeviceError: EK0832 the driver is too old for it, EK0835 it is for another GPU.
        """
        digest = hashlib.sha256(code).hexdigest()
        with self._lock, self:
            result = self._modules.pop(digest, None)
            if result is None:
                result = GpuModule(self._loaded(code, is_text, made_for), self._dropped)
            self._modules[digest] = result
            while len(self._modules) > MODULES:
                self._modules.popitem(last=False)
            return result

    def _loaded(self, code: bytes, is_text: bool, made_for: str) -> int:
        old = self.too_old_for(code) if is_text else None
        try:
            if old is None:
                return self.library.load(code, is_text)
        except GpuFault as fault:
            codes = self.library.codes
            if fault.status not in codes.version | codes.architecture:
                raise
            if fault.status in codes.architecture:
                self._wrong_architecture(fault, made_for)
            old = "newer than the driver supports", self.known.driver
        raise DeviceError(
            f"the driver of gpu:{self.number} is too old for the code: it supports {old[1]}, and the code is {old[0]}",
            code="EK0832",
            place=user_place(),
            expected=old[0],
            got=old[1],
            notes=[f"the driver is that of {self.known.driver}; the code is for {made_for}"],
            hint="install a newer driver, or load a package that has the op as cubin",
        )

    def too_old_for(self, code: bytes) -> tuple[str, str] | None:
        """Where the driver does not know the version of a text: that version, and the newest that it supports."""
        return None

    def _wrong_architecture(self, fault: GpuFault, made_for: str) -> NoReturn:
        raise DeviceError(
            f"code for {made_for} does not run on gpu:{self.number}, which is {self.architecture}",
            code="EK0835",
            place=user_place(),
            expected=self.architecture,
            got=made_for,
            notes=[str(fault), *fault.log.splitlines()[:8]],
        )

    def load(self, files: Sequence[CodeFile]) -> Code:
        half, file = open_halves(files), files[-1]
        made_for = file.target.rpartition("-")[0] or file.target
        module = self.module(half.code, file.kind == PTX.suffix, made_for)
        handles = [self._kernel(module, kernel.symbol) for kernel in half.kernels.kernels]
        return Code(half.entry, half.reports, (half.keep, module), half.kernels, handles, half.scratch)

    def _kernel(self, module: GpuModule, symbol: str) -> int:
        with self._lock, self:
            if symbol not in module.kernels:
                module.kernels[symbol] = self.library.function(module.handle, symbol)
            return module.kernels[symbol]

    def table(self, code: Code) -> abi.DeviceTable:
        """The table through which one caller's entry launches kernels."""
        launcher = LAUNCHERS.get()(self.library.launchers)
        if self._library_table is None:
            with self:
                table = [*map(self.library.address_of, self.library.functions), self.library.context]
            self._library_table = (ctypes.c_void_p * len(table))(*table)
        functions = (ctypes.c_void_p * max(1, len(code.functions)))(*code.functions)
        made = KeptTable()
        made.kept = launcher, functions
        made.launch, made.copy = launcher.address("ek_launch"), launcher.address("ek_copy")
        made.fill = launcher.address("ek_fill")
        if self.library.encodes:
            made.encode = launcher.address("ek_encode")
        made.functions = ctypes.addressof(functions)
        made.driver = ctypes.addressof(self._library_table)
        made.stream = default_stream(self).handle
        return made

    def begin(self, table: abi.DeviceTable, owner: str, storages: Iterable[Any]) -> None:
        stream = self._stream()
        if self._reports.are_urgent(stream):
            self.synchronize_stream(stream.handle)
        table.stream = stream.handle
        for storage in storages:
            if storage.block.stream is not stream:
                with self:
                    self._ready(storage, stream)
        self.recent.append(owner)

    def expect_reports(self, reports: KernelReports, deliver: Deliver) -> None:
        """The next wait for the stream of the thread delivers them."""
        stream = self._stream()
        before = self._reports.add(reports, stream, deliver)
        if before is not None:
            self.order_streams(before.handle, stream.handle)

    def reports_elsewhere(self, reports: KernelReports) -> bool:
        return self._reports.stream_of(reports) not in (None, current_stream(self))

    # *** recorded calls ***

    def capture(self, run: Callable[[], object], keep: object) -> RecordedWork:
        """Records what `run` enqueues; nothing of it is done.

        Raises:
            ReplayError: EK0836 it waits for the device, or else cannot be recorded.
        """
        stream = stream_of(self)
        stream.is_recording = True
        with self._streams_lock:
            self._streams.discard(stream.handle)
        with self:
            self._free_replayed()
            self.library.begin_capture(stream.handle)
            try:
                with stream:
                    run()
            except BaseException:
                with suppress(GpuFault):
                    self.library.destroy_recorded(self.library.end_capture(stream.handle))
                raise
            return RecordedWork(self, self.library.end_capture(stream.handle), keep)

    def replay(self, recorded: int, owner: str, storages: Iterable[object]) -> None:
        """Enqueues recorded work."""
        stream = self._stream()
        with self:
            for storage in storages:
                self._ready(storage, stream)
            self.library.replay(recorded, stream.handle)
        self.recent.append(owner)

    # *** for people ***

    def properties(self) -> dict[str, str | int]:
        known, stats = self.known, self.pool.stats
        return {
            "name": known.name,
            "architecture": known.architecture,
            "driver": known.driver,
            "total_memory": known.total_memory,
            "free_memory": self._free_memory(),
            "multiprocessors": known.multiprocessors,
            "warp_size": known.lanes,
            "shared_memory": known.shared_memory,
            **known.more,
            "pool_in_use": stats.in_use,
            "pool_reserved": stats.reserved,
            "pool_peak": stats.peak,
            "pool_reused": stats.reused,
        }


def package(module: str, library: str, distribution: str) -> Any:
    """A package that reaches a GPU's library.

    Raises:
        DeviceError: EK0831 it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DeviceError(
            f"the library {library} is here, and the package {distribution} that Einkorn reaches it by is not",
            code="EK0831",
            expected=distribution,
            notes=[str(error)],
            hint=f"pip install {distribution}",
        ) from None
