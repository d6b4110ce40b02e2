"""A GPU that is none: what a driver's library does, in Python, for the runtime's calls to be looked at.

Its memory is the host's. Work on a stream is not done before something waits for it, so that what is read too early is
wrong, and what is freed too early is found. Every call is written into `log`; whatever a real library would refuse,
or be broken by without saying so, is a line of `violations`.

`fake_cuda` and `fake_hip` give it the names of CUDA's and HIP's functions.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ALIGNMENT = 512
MAXIMUM = 1 << 30  # bytes of each device, so that memory can run out

Task = Callable[[], None]
# runner(gpu, code, symbol, grid, block, cluster, bytes of dynamic shared memory, bits of the arguments)
Runner = Callable[..., None]


class Refused(Exception):
    """A call gives back this number."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Current(threading.local):
    """The device of each thread, or None."""

    def __init__(self, first: int | None) -> None:
        self.device = first


@dataclass
class Stream:
    handle: int
    device: int
    tasks: deque[Task] = field(default_factory=deque)
    recording: list[Task] | None = None
    destroyed: bool = False
    done: int = 0  # tasks so far
    requested: int = 0


@dataclass
class Event:
    handle: int
    device: int
    stream: Stream | None = None
    at: int = 0  # how many tasks of the stream come before it


class FakeGpu:
    """What the devices of one library share. `status` has its numbers: memory, invalid, fault, capture, …"""

    has_arguments = True  # whether the code of a kernel says how many it has
    first_device: int | None = 0  # of a thread that has chosen none

    def __init__(self, status: dict[str, int], count: int = 2) -> None:
        self.status = status
        self.lock = threading.RLock()  # one call at a time
        self.count = count
        self.log: list[tuple[Any, ...]] = []
        self.violations: list[str] = []
        self.blocks: dict[int, tuple[int, int, Any]] = {}  # address -> size, device, memory
        self.pinned: dict[int, tuple[int, Any]] = {}
        self.streams: dict[int, Stream] = {}
        self.events: dict[int, Event] = {}
        self.modules: dict[int, bytes] = {}
        self.functions: dict[int, tuple[int, str]] = {}
        self.graphs: dict[int, list[Task]] = {}
        self.peers: set[tuple[int, int]] = set()  # which device reads the memory of which
        self.threads = Current(self.first_device)
        self.fault = 0  # what every call gives back from now on: the context is lost
        self.maximum = MAXIMUM
        self.runner: Runner | None = None
        self._numbers = itertools.count(0x1000, 0x10)

    @property
    def current(self) -> int:
        """The device of the thread, for what needs one."""
        if self.threads.device is None:
            self.violations.append("a call needs a context, and the thread has none")
            raise Refused(self.status["no_context"])
        return self.threads.device

    # --- memory ---

    def allocate(self, size: int) -> int:
        if size + sum(s for s, device, _ in self.blocks.values() if device == self.current) > self.maximum:
            raise Refused(self.status["memory"])
        memory = (ctypes.c_uint8 * (size + ALIGNMENT))()
        ctypes.memset(memory, 0xCD, len(memory))  # uninitialised memory looks like it
        address = -(-ctypes.addressof(memory) // ALIGNMENT) * ALIGNMENT
        self.blocks[address] = size, self.current, memory
        return address

    def free(self, address: int) -> None:
        assert self.current >= 0
        if address not in self.blocks:
            self.violations.append(f"free of {address:#x}, which is not a block")
            raise Refused(self.status["invalid"])
        if any(stream.tasks for stream in self.streams.values()):
            self.violations.append("memory is freed while work is under way")
        del self.blocks[address]

    def allocate_pinned(self, size: int) -> int:
        memory = (ctypes.c_uint8 * size)()
        self.pinned[ctypes.addressof(memory)] = size, memory
        return ctypes.addressof(memory)

    def free_pinned(self, address: int) -> None:
        if self.pinned.pop(address, None) is None:
            self.violations.append(f"free of {address:#x}, which is no pinned memory")

    def holds(self, address: int, size: int) -> bool:
        """Whether all these bytes are in one block of a device."""
        return any(base <= address and address + size <= base + length for base, (length, *_) in self.blocks.items())

    def _is_pinned(self, address: int) -> bool:
        return any(base <= address < base + length for base, (length, _) in self.pinned.items())

    def _check(self, what: str, address: int, size: int) -> None:
        if not self.holds(address, size):
            self.violations.append(f"{what} of {size} bytes at {address:#x}, which are not in memory of a device")
            raise Refused(self.status["invalid"])

    def copy(self, to: int, source: int, size: int, kind: str, stream: int) -> None:
        self.log.append(("copy", kind, size, stream))
        if kind != "to_host":
            self._check("a copy", to, size)
        if kind != "to_device":
            self._check("a copy", source, size)
        if kind == "to_device" and not self._is_pinned(source):
            data = ctypes.string_at(source, size)
            self.enqueue(stream, lambda: self._write(to, data))
        else:
            self.enqueue(stream, lambda: self._move(to, source, size, kind))

    def copy_peer(self, to: int, at: int, source: int, where: int, size: int, stream: int) -> None:
        """Copies to memory of the device `at` from that of the device `where`."""
        self.log.append(("copy", "peer", size, stream))
        for place, device in ((to, at), (source, where)):
            self._check("a copy between devices", place, size)
            base = max(address for address in self.blocks if address <= place)
            if self.blocks[base][1] != device:
                self.violations.append(f"memory of device {device} is that of device {self.blocks[base][1]}")
        self.enqueue(stream, lambda: self._move(to, source, size, "within"))

    def enable_peer(self, device: int) -> None:
        pair = self.current, device
        if pair in self.peers:
            raise Refused(704)
        self.peers.add(pair)

    def _write(self, to: int, data: bytes) -> None:
        if self.holds(to, len(data)):
            ctypes.memmove(to, data, len(data))
        else:
            self.violations.append("a copy runs when its memory is freed")

    def _move(self, to: int, source: int, size: int, kind: str) -> None:
        near = kind == "to_host" or self.holds(to, size)
        far = kind == "to_device" or self.holds(source, size)
        if kind == "to_device" and not self._is_pinned(source):
            self.violations.append("pinned memory is freed before it is copied")
        elif near and far:
            ctypes.memmove(to, source, size)
        else:
            self.violations.append("a copy runs when its memory is freed")

    def fill(self, to: int, pattern: int, width: int, count: int, stream: int) -> None:
        self.log.append(("fill", pattern, width, count, stream))
        self._check("a fill", to, width * count)
        data = (pattern & ((1 << 8 * width) - 1)).to_bytes(width, "little") * count
        self.enqueue(stream, lambda: self._write(to, data))

    # --- streams and events ---

    def create_stream(self) -> int:
        handle = next(self._numbers)
        self.streams[handle] = Stream(handle, self.current)
        return handle

    def stream(self, handle: int) -> Stream:
        if handle in (0, 1, 2):  # those that every library has
            return self.streams.setdefault(handle, Stream(handle, self.current))
        result = self.streams.get(handle)
        if result is None or result.destroyed:
            self.violations.append(f"{handle:#x} is not a stream")
            raise Refused(self.status["invalid"])
        return result

    def destroy_stream(self, handle: int) -> None:
        stream = self.stream(handle)
        self.drain(stream)
        stream.destroyed = True

    def enqueue(self, handle: int, task: Task) -> None:
        if self.fault:
            raise Refused(self.fault)
        stream = self.stream(handle)
        if stream.device != self.current:
            self.violations.append("work is enqueued on a stream of another device than the thread's")
        if stream.recording is not None:
            stream.recording.append(task)
        else:
            stream.tasks.append(task)
            stream.requested += 1

    def drain(self, stream: Stream, until: int | None = None) -> None:
        """Does the work of a stream: all of it, or its first tasks."""
        while stream.tasks and (until is None or stream.done < until):
            self.step(stream)

    def step(self, stream: Stream) -> None:
        """Does the first task of a stream."""
        stream.done += 1
        stream.tasks.popleft()()
        if self.fault:
            raise Refused(self.fault)

    def query_stream(self, handle: int) -> None:
        """Does one task of a stream; says "not ready" while there was one."""
        stream = self.stream(handle)
        if stream.recording is not None:
            raise Refused(self.status["capture"])
        if self.fault:
            raise Refused(self.fault)
        if not stream.tasks:
            self.log.append(("wait for stream", handle))
            return
        self.step(stream)
        raise Refused(self.status["not_ready"])

    def synchronize(self) -> None:
        self.log.append(("wait for device", self.current))
        if self.fault:
            raise Refused(self.fault)
        for stream in list(self.streams.values()):
            if stream.recording is not None:
                raise Refused(self.status["capture"])
            self.drain(stream)

    def create_event(self) -> int:
        handle = next(self._numbers)
        self.events[handle] = Event(handle, self.current)
        return handle

    def destroy_event(self, handle: int) -> None:
        del self.events[handle]

    def record(self, handle: int, stream: int) -> None:
        self.log.append(("record", stream))
        assert self.current >= 0
        result = self.stream(stream)
        if result.recording is not None:
            self.violations.append("an event of a capture is recorded for work outside of it")
        event = self.events[handle]
        if result.device != event.device:
            self.violations.append("an event of one device is recorded on a stream of another")
            raise Refused(self.status["invalid"])
        event.stream, event.at = result, result.requested

    def wait(self, stream: int, handle: int) -> None:
        self.log.append(("wait for event", stream))
        event = self.events[handle]
        source, at = event.stream, event.at
        if source is None:
            return
        if self.stream(stream).recording is not None:
            raise Refused(self.status["capture"])
        self.enqueue(stream, lambda: self.drain(source, at))

    def is_done(self, handle: int) -> bool:
        event = self.events[handle]
        return event.stream is None or event.stream.done >= event.at

    # --- code ---

    def load(self, code: bytes) -> int:
        self.log.append(("load", len(code)))
        assert self.current >= 0
        handle = next(self._numbers)
        self.modules[handle] = code
        return handle

    def unload(self, handle: int) -> None:
        if any(stream.tasks for stream in self.streams.values()):
            self.violations.append("code is unloaded while work is under way")
        del self.modules[handle]

    def function(self, module: int, symbol: str) -> int:
        if symbol.encode() not in self.modules[module]:
            raise Refused(self.status["not_found"])
        known = next((h for h, entry in self.functions.items() if entry == (module, symbol)), None)
        handle = known or next(self._numbers)
        self.functions[handle] = module, symbol
        return handle

    def launch(
        self, function: int, grid: Any, block: Any, cluster: Any, shared: int, stream: int, arguments: int
    ) -> None:
        module, symbol = self.functions[function]
        if module not in self.modules:
            self.violations.append(f"{symbol} is launched, and its code was unloaded")
            raise Refused(self.status["invalid"])
        if self.stream(stream).device != self.current:
            self.violations.append(f"{symbol} is launched on a stream of another device than the thread's")
            raise Refused(self.status["invalid"])
        code = self.modules[module]
        sizes = tuple(grid), tuple(block), tuple(cluster)
        values = arguments_of(code, symbol, arguments)
        self.log.append(("launch", symbol, *sizes, shared, stream, tuple(values)))
        if 0 in grid or 0 in block:
            self.violations.append(f"{symbol} is launched with an empty grid")
            raise Refused(self.status["invalid"])

        def task() -> None:
            if self.runner is not None:
                self.runner(self, code, symbol, *sizes, shared, values)

        self.enqueue(stream, task)

    # --- recorded work ---

    def begin_capture(self, handle: int) -> None:
        self.stream(handle).recording = []

    def is_capturing(self, handle: int) -> bool:
        return self.stream(handle).recording is not None

    def end_capture(self, handle: int) -> int:
        stream = self.stream(handle)
        assert stream.recording is not None
        number = next(self._numbers)
        self.graphs[number], stream.recording = stream.recording, None
        return number

    def replay(self, graph: int, stream: int) -> None:
        self.log.append(("replay", len(self.graphs[graph]), stream))
        for task in self.graphs[graph]:
            self.enqueue(stream, task)

    def destroy_graph(self, graph: int) -> None:
        del self.graphs[graph]

    # --- what tests call ---

    def calls(self, *kinds: str) -> list[tuple[Any, ...]]:
        """The lines of the log of these kinds."""
        return [line for line in self.log if line[0] in kinds]


def arguments_of(code: bytes, symbol: str, arguments: int) -> list[int]:
    """The bits of each argument, as many as the code says that the kernel has."""
    sizes = parameter_sizes(code, symbol)
    addresses = (ctypes.c_uint64 * len(sizes)).from_address(arguments) if sizes else []
    return [int.from_bytes(ctypes.string_at(a, size), "little") for a, size in zip(addresses, sizes, strict=True)]


def parameter_sizes(code: bytes, symbol: str) -> list[int]:
    """Bytes of each parameter of a kernel of PTX text; of other code nothing is known."""
    if not code.lstrip().startswith((b"//", b".version")):
        return []
    text = code.decode(errors="replace")
    start = text.index(f".entry {symbol}(")
    head = text[start : text.index(")", start)]
    lines = [line.split(".param .")[1] for line in head.splitlines() if ".param ." in line]
    arrays = [re.search(r"\.b8 [\w$]+\[(\d+)\]", line) for line in lines]
    return [
        int(line[1:3].strip()) // 8 if array is None else int(array[1])
        for line, array in zip(lines, arrays, strict=True)
    ]
