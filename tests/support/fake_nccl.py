"""NCCL over `fake_cuda`: a plugin of pytest for a process that finds `libnccl.so.2` in LD_LIBRARY_PATH.

`pytest -p support.fake_nccl` installs both. An operation is a task of its stream: it takes its bytes when its turn
comes, and is over when all ranks have come. What a real library would not bear is a line of the GPU's `violations`.
See also `fake_rccl`.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from einkorn.graph.distributed.nccl import FUNCTIONS, UniqueId
from einkorn.graph.driver.gpu_names import NCCL, CollectiveLibrary

from . import fake_cuda
from .fake_cuda import N, P
from .fake_gpu import FakeGpu, Refused

NAMES = (*FUNCTIONS, "ncclGetErrorString")
TEXTS = {0: b"no error", 1: b"unhandled cuda error", 3: b"internal error", 5: b"invalid usage", 6: b"remote process"}
NOT_READY = 600


@dataclass
class World:
    """The ranks that have an identifier in common, what each brought to each collective, and what was sent."""

    size: int
    ranks: set[int] = field(default_factory=set)
    brought: dict[int, dict[int, tuple[str, bytes]]] = field(default_factory=dict)
    mail: dict[tuple[int, int], list[bytes]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Comm:
    """What a rank has of a communicator."""

    world: World
    rank: int
    device: int
    number: int = 0
    ended: str = ""


class FakeNccl:
    """`refused` has, by the name of a function, the number that it gives back, and `async_error` what was found later.

    `missing` are ranks whose operations never begin, and `absent` those that never come to the start,
    at which the others wait until `gives_up` says that they do not.
    """

    def __init__(self, gpu: FakeGpu, about: CollectiveLibrary = NCCL) -> None:
        self.gpu, self.about = gpu, about
        self.version = 23203
        self.refused: dict[str, int] = {}
        self.async_error = 0
        self.missing: set[int] = set()
        self.absent: set[int] = set()
        self.gives_up = False
        self.log: list[tuple[Any, ...]] = []
        self.worlds: dict[bytes, World] = {}
        self.comms: dict[int, Comm] = {}
        self.came = threading.Condition()
        self.groups = threading.local()
        self.texts = {code: ctypes.create_string_buffer(text) for code, text in TEXTS.items()}
        self._numbers = itertools.count(0x77000, 0x10)

    # --- communicators ---

    def unique_id(self, out: int) -> None:
        number = next(self._numbers)
        ctypes.memmove(out, number.to_bytes(8, "little") * 16, 128)

    def begin(self, out: int, size: int, unique: UniqueId, rank: int) -> None:
        """Returns when all ranks are here."""
        with self.gpu.lock:
            device = self.gpu.current
        with self.came:
            if rank in self.absent:
                self.came.wait_for(lambda: self.gives_up, 60)
                raise Refused(6)
            world = self.worlds.setdefault(bytes(unique.bytes), World(size))
            world.ranks.add(rank)
            self.came.notify_all()
            if not self.came.wait_for(lambda: len(world.ranks) == size or self.gives_up, 60):
                raise Refused(3)
            if len(world.ranks) < size:
                raise Refused(6)
            handle = next(self._numbers)
            self.comms[handle] = Comm(world, rank, device)
            P.from_address(out).value = handle
            self.log.append(("begin", rank, size, device))

    def end(self, handle: int, how: str) -> None:
        comm = self.comms[handle]
        if comm.ended:
            self.gpu.violations.append(f"a communicator is ended twice: by {comm.ended}, then by {how}")
        comm.ended = how
        self.log.append((how, comm.rank))

    # --- operations ---

    def open_group(self) -> None:
        self.groups.moves = []

    def close_group(self) -> None:
        moves, self.groups.moves = self.groups.moves, None
        if not moves:
            return
        handle, stream = moves[0][:2]
        comm, left = self.comms[handle], [(address, size, peer) for *_, sent, address, size, peer in moves if not sent]
        sends = [(address, size, peer) for *_, sent, address, size, peer in moves if sent]
        self.log.append(("group", comm.rank, len(sends), len(left)))

        def turn() -> bool:
            while sends:
                address, size, peer = sends.pop(0)
                comm.world.mail[comm.rank, peer].append(ctypes.string_at(address, size))
            while left and comm.world.mail[left[0][2], comm.rank]:
                address, size, peer = left.pop(0)
                self._put(comm.world.mail[peer, comm.rank].pop(0), address, size)
            return not left

        self._enqueue(comm, stream, "group", turn)

    def move(self, sent: bool, address: int, size: int, peer: int, handle: int, stream: int) -> None:
        self._check("a move", self.comms[handle], address, size)
        self.groups.moves.append((handle, stream, sent, address, size, peer))

    def gather(self, source: int, to: int, size: int, kind: int, handle: int, stream: int) -> None:
        total = size * self.comms[handle].world.size
        self._collective("gather", handle, stream, (source, size), (to, total), lambda sent: b"".join(sent))

    def broadcast(self, source: int, to: int, size: int, kind: int, root: int, handle: int, stream: int) -> None:
        self._collective("broadcast", handle, stream, (source, size), (to, size), lambda sent: sent[root])

    def _collective(
        self,
        name: str,
        handle: int,
        stream: int,
        source: tuple[int, int],
        to: tuple[int, int],
        result: Callable[[list[bytes]], bytes],
    ) -> None:
        comm = self.comms[handle]
        self._check(name, comm, *source)
        self._check(name, comm, *to)
        self.log.append((name, comm.rank, source[1]))
        everyone = comm.world.brought.setdefault(comm.number, {})
        comm.number += 1

        def turn() -> bool:
            if comm.rank not in everyone:
                everyone[comm.rank] = name, ctypes.string_at(*source)
            if len(everyone) < comm.world.size:
                return False
            names = {each for each, _ in everyone.values()}
            if len(names) > 1:
                self.gpu.violations.append(f"ranks are in {names}")
            self._put(result([everyone[rank][1] for rank in sorted(everyone)]), *to)
            return True

        self._enqueue(comm, stream, name, turn)

    def _enqueue(self, comm: Comm, stream: int, name: str, turn: Callable[[], bool]) -> None:
        gpu = self.gpu
        if comm.ended:
            gpu.violations.append(f"{name} of a communicator that has ended")
        if gpu.current != comm.device:
            gpu.violations.append(f"{name} while another GPU than that of the communicator is the thread's")
        queue = gpu.stream(stream)

        def task() -> None:
            if not comm.ended and (comm.rank in self.missing or not turn()):
                queue.done -= 1
                queue.tasks.appendleft(task)
                raise Refused(NOT_READY)

        gpu.enqueue(stream, task)

    def _check(self, name: str, comm: Comm, address: int, size: int) -> None:
        gpu = self.gpu
        if not gpu.holds(address, size):
            gpu.violations.append(f"{name} of {size} bytes at {address:#x}, which are not in memory of a device")
            raise Refused(4)
        if gpu.blocks[max(start for start in gpu.blocks if start <= address)][1] != comm.device:
            gpu.violations.append(f"{name} of memory of another GPU")

    def _put(self, data: bytes, address: int, size: int) -> None:
        if len(data) != size:
            self.gpu.violations.append(f"{len(data)} bytes come where {size} are expected")
        ctypes.memmove(address, data, min(size, len(data)))


def functions(nccl: FakeNccl) -> dict[str, Callable[..., None]]:
    """Name -> what it does."""

    def async_error(handle: int, out: int) -> None:
        N.from_address(out).value = nccl.async_error

    return {
        "ncclGetVersion": lambda out: setattr(N.from_address(out), "value", nccl.version),
        "ncclGetUniqueId": nccl.unique_id,
        "ncclCommInitRank": nccl.begin,
        "ncclCommDestroy": lambda handle: nccl.end(handle, "destroy"),
        "ncclCommAbort": lambda handle: nccl.end(handle, "abort"),
        "ncclCommGetAsyncError": async_error,
        "ncclAllGather": nccl.gather,
        "ncclBroadcast": nccl.broadcast,
        "ncclSend": lambda at, size, kind, *where: nccl.move(True, at, size, *where),
        "ncclRecv": lambda at, size, kind, *where: nccl.move(False, at, size, *where),
        "ncclGroupStart": nccl.open_group,
        "ncclGroupEnd": nccl.close_group,
    }


_kept: list[Any] = []


def install(gpu: FakeGpu, about: CollectiveLibrary = NCCL) -> FakeNccl:
    """Puts the functions behind the library that this process finds, such as `libnccl.so.2`."""
    nccl = FakeNccl(gpu, about)

    def guarded(name: str, does: Callable[..., None]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            try:
                if code := nccl.refused.get(name):
                    return code
                if name == "ncclCommInitRank":  # which waits for the others
                    does(*arguments)
                else:
                    with gpu.lock:
                        does(*arguments)
            except Refused as refused:
                return refused.status
            except Exception as error:
                gpu.violations.append(f"{name}: {error!r}")
                return 3
            return 0

        return call

    known: list[Any] = [
        ctypes.CFUNCTYPE(N, *FUNCTIONS[name])(guarded(name, does)) for name, does in functions(nccl).items()
    ]
    order = list(functions(nccl))
    known.append(ctypes.CFUNCTYPE(P, N)(lambda code: ctypes.addressof(nccl.texts[code]) if code in TEXTS else 0))
    library = ctypes.CDLL(about.file)
    table = (P * len(NAMES)).in_dll(library, "ek_functions")
    for name, function in zip([*order, "ncclGetErrorString"], known, strict=True):
        table[NAMES.index(name)] = ctypes.cast(function, P).value
    _kept.append((known, library))
    return nccl


def pytest_configure(config: Any) -> None:
    config.fake_gpu = fake_cuda.install()
    config.fake_gpu.count = 3
    config.fake_nccl = install(config.fake_gpu)
