"""Moves bytes between the GPUs of ranks by NCCL, or by RCCL, which has the same functions for AMD's GPUs.

The library is called through its C interface, with addresses of the device, on the stream of the call. It moves bytes
alone: our kernels reduce, in the order of ranks. The identifier by which ranks find each other goes over the
communicator of the host that the group has. The host waits for each exchange, so that errors and time-outs belong to an
op and its line.

Reference: NVIDIA's "NCCL API Documentation". See also `device_exchanges` (what goes through the host instead).
"""

from __future__ import annotations

import ctypes
import functools
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from ...dsl.contract.exchange import Exchange
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import DeviceError, KernelError, ReplayError
from ...dsl.environment.knobs import knobs
from ..driver.device import Driver
from ..driver.gpu import GpuDriver
from ..driver.gpu_names import CollectiveLibrary, library_to_load
from ..driver.gpu_waits import wait_until
from .communicator import CollectiveCall, DeviceExchange, gather_records
from .failures import late_ranks, ranks_text, timeout_of
from .mesh import RankGroup
from .world import current_world

OLDEST: Final = 21000  # 10000 * major + 100 * minor + patch, since 2.9
BYTE: Final = 0  # ncclInt8
IN_PROGRESS: Final = 7
ID_SIZE: Final = 128
RECORD_SIZE: Final = 256
_RECORD: Final = struct.Struct("<i16s4s4s")  # version, GPU, name of the library, choice; a text follows

_CODE: Final = struct.Struct("<i")  # what a function gives back

P, N, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t


class UniqueId(ctypes.Structure):
    """By what the ranks of a communicator find each other."""

    _fields_ = (("bytes", ctypes.c_uint8 * ID_SIZE),)


CType: TypeAlias = type[ctypes.c_void_p] | type[ctypes.c_int] | type[ctypes.c_size_t] | type[UniqueId]
FUNCTIONS: Final[dict[str, tuple[CType, ...]]] = {
    "ncclGetVersion": (P,),
    "ncclGetUniqueId": (P,),
    "ncclCommInitRank": (P, N, UniqueId, N),
    "ncclCommDestroy": (P,),
    "ncclCommAbort": (P,),
    "ncclCommGetAsyncError": (P, P),
    "ncclAllGather": (P, P, SIZE, N, P, P),
    "ncclBroadcast": (P, P, SIZE, N, N, P, P),
    "ncclSend": (P, SIZE, N, N, P, P),
    "ncclRecv": (P, SIZE, N, N, P, P),
    "ncclGroupStart": (),
    "ncclGroupEnd": (),
}


class NcclFault(Exception):
    """A function gave back another number than 0."""

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"{function}: {text}")
        self.code = code


class NcclLibrary:
    """The library of a kind of GPUs.

    Raises:
        OSError: it is not here, or has not the functions that are called.
    """

    def __init__(self, about: CollectiveLibrary) -> None:
        self.name = about.name
        library = ctypes.CDLL(_file_of(about))
        try:
            self._functions = {name: getattr(library, name) for name in FUNCTIONS}
            self._text = library.ncclGetErrorString
        except AttributeError as error:
            raise OSError(f"{about.file} lacks a function: {error}") from None
        for name, types in FUNCTIONS.items():
            self._functions[name].argtypes = types
        self._text.restype, self._text.argtypes = ctypes.c_char_p, (N,)
        version = N()
        self.call("ncclGetVersion", ctypes.addressof(version))
        self.version = version.value

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function.

        Raises:
            NcclFault: what it gave back.
        """
        if code := self._functions[function](*arguments):
            raise self.fault(function, code)

    def fault(self, function: str, code: int) -> NcclFault:
        """What a number means."""
        return NcclFault(function, code, (self._text(code) or b"").decode(errors="replace") or f"error {code}")


def _file_of(about: CollectiveLibrary) -> str:
    """What the process has loaded, such as PyTorch's; else that of a wheel, else the system's."""
    name = library_to_load(about.file)
    try:
        spec = find_spec(about.module) if name == about.file and about.module else None
    except ModuleNotFoundError:
        spec = None
    files = [Path(folder, "lib", name) for folder in (spec.submodule_search_locations or () if spec else ())]
    return str(next((file for file in files if file.exists()), name))


@functools.cache
def _library(about: CollectiveLibrary) -> NcclLibrary | str:
    """The library, or why there is none."""
    try:
        library = NcclLibrary(about)
    except (OSError, NcclFault) as error:
        return f"{about.file} cannot be loaded: {error}"
    if library.version < OLDEST:
        return f"{library.name} {_shown(library.version)} is older than {_shown(OLDEST)}"
    return library


def _shown(version: int) -> str:
    step = 10000 if version >= 10000 else 1000  # as it was before 2.9
    return f"{version // step}.{version % step // 100}.{version % 100}"


# *** what ranks agree on ***


@dataclass(frozen=True)
class _RankRecord:
    """What a rank brings: the version and name of its library, its GPU, what is chosen, and what it lacks."""

    version: int
    gpu: bytes
    name: str
    choice: str
    lack: str

    def packed(self) -> bytes:
        return _RECORD.pack(self.version, self.gpu, self.name.encode(), self.choice.encode()) + self.lack.encode()

    @staticmethod
    def of(data: bytes) -> _RankRecord:
        version, gpu, name, choice = _RECORD.unpack_from(data)
        lack = data[_RECORD.size :].rstrip(b"\0").decode(errors="replace")
        return _RankRecord(version, gpu, name.rstrip(b"\0").decode(), choice.rstrip(b"\0").decode(), lack)


def ranks_on_devices(driver: Driver, stream: int, group: RankGroup, call: CollectiveCall) -> NcclRanks | None:
    """The communicator of a group's GPUs; None where its exchanges go through the host. The ranks agree on it once.

    Raises:
        ReplayError: EK0836, what is enqueued on the stream is recorded.
        DeviceError: EK0868, NCCL is requested and cannot be used, or a rank has tensors on a second GPU.
        KernelError: EK0867, the library refuses.
    """
    assert isinstance(driver, GpuDriver)
    with driver:
        is_recorded = driver.library.is_capturing(stream)
    if is_recorded:
        text = f"{call.signature} cannot be recorded: its ranks wait for each other at each call"
        raise ReplayError(text, code="EK0836", place=call.place, op=call.op, hint="execute the model")
    if not group.has_agreed:
        group.on_devices = _agreed(driver, group, call)
        group.has_agreed = True
    found = group.on_devices
    assert found is None or isinstance(found, NcclRanks)
    if found is not None and found.driver is not driver:
        raise DeviceError(
            f"{call.signature} has a tensor on gpu:{driver.number}, and this rank takes part in {found.name} with "
            f"gpu:{found.driver.number}",
            code="EK0868",
            place=call.place,
            op=call.op,
            expected=f"gpu:{found.driver.number}",
            got=f"gpu:{driver.number}",
            hint="give each rank one GPU, or exchange through the host: Mesh(..., nccl=False)",
        )
    return found


def _agreed(driver: GpuDriver, group: RankGroup, call: CollectiveCall) -> NcclRanks | None:
    about, choice = driver.collectives, group.mesh.nccl or knobs.nccl
    assert about is not None  # others exchange through the host
    found = "it is switched off" if choice == "off" else _library(about)
    with driver:
        gpu = driver.library.uuid()
    version, lack = (0, found) if isinstance(found, str) else (found.version, "")
    mine = _RankRecord(version, gpu, about.name, choice, lack)
    comparison = CollectiveCall("the comparison of GPUs", "", call.place)
    records = gather_records(group.communicator, mine.packed(), RECORD_SIZE, comparison)
    members = [_RankRecord.of(record) for record in records]
    reason = _reason(group.ranks, members)
    if not reason and not isinstance(found, str):
        return NcclRanks(found, driver, group, call)
    if all(member.choice != "on" for member in members):
        return None
    raise DeviceError(
        f"{about.name} is requested, and cannot be used by {call.signature}: {reason}",
        code="EK0868",
        place=call.place,
        op=call.op,
        got=reason,
        hint=about.advice if "cannot be loaded" in reason else None,
    )


def _reason(ranks: Sequence[int], members: Sequence[_RankRecord]) -> str:
    """Why these ranks cannot use the library; empty where they can."""
    for rank, member in zip(ranks, members, strict=True):
        if member.lack:
            return f"on rank {rank} {member.lack}"
    first = members[0]
    for rank, member in zip(ranks, members, strict=True):
        if member.name != first.name:
            return f"rank {ranks[0]} has a GPU of {first.name}, and rank {rank} one of {member.name}"
        if member.version != first.version:
            versions = [_shown(each.version) for each in (first, member)]
            return f"rank {ranks[0]} has {first.name} {versions[0]}, and rank {rank} has {versions[1]}"
    for member in members:
        sharing = [rank for rank, other in zip(ranks, members, strict=True) if other.gpu == member.gpu]
        if len(sharing) > 1:
            return f"{ranks_text(sharing)} have one GPU"
    return ""


# *** exchanges ***


class NcclRanks:
    """The communicator of a group's GPUs; one for each group.

    Args:
        library: the same on all ranks.
        driver: of this rank's GPU.
        group: the ranks. All of them make it at the same exchange.
        call: that exchange, for messages.

    Raises:
        KernelError: EK0867, the library refuses, on any rank.
    """

    def __init__(self, library: NcclLibrary, driver: GpuDriver, group: RankGroup, call: CollectiveCall) -> None:
        self.name, self.driver = library.name, driver
        self._library, self._group = library, group
        self._comm: int | None = None
        fault = None
        try:
            self._begin(call)
        except NcclFault as refused:
            fault = refused
        begun = CollectiveCall(f"the start of {self.name}", "", call.place)
        code = 0 if fault is None else fault.code
        records = gather_records(group.communicator, _CODE.pack(code), _CODE.size, begun)
        codes = [_CODE.unpack(record)[0] for record in records]
        if any(codes):
            self._end("ncclCommAbort")
            rank, code = next((rank, other) for rank, other in zip(group.ranks, codes, strict=True) if other)
            raise self._error(fault or library.fault("ncclCommInitRank", code), call, rank if fault is None else None)
        current_world().at_end.append(self.close)

    def _begin(self, call: CollectiveCall) -> None:
        """Rank 0 makes the identifier, and hands it to the others with the number that the library gave back."""
        group, unique = self._group, UniqueId()
        data = np.zeros(_CODE.size + ID_SIZE, np.uint8)
        fault = None
        if group.rank == 0:
            try:
                self._library.call("ncclGetUniqueId", ctypes.addressof(unique))
            except NcclFault as refused:
                fault = refused
                data[: _CODE.size] = np.frombuffer(_CODE.pack(refused.code), np.uint8)
            data[_CODE.size :] = unique.bytes
        group.communicator.broadcast(data, 0, CollectiveCall(f"the identifier of {self.name}", "", call.place))
        if code := _CODE.unpack(data[: _CODE.size].tobytes())[0]:
            raise fault or self._library.fault("ncclGetUniqueId", code)
        ctypes.memmove(ctypes.addressof(unique), data[_CODE.size :].ctypes.data, ID_SIZE)
        self._start(unique, call)

    def _start(self, unique: UniqueId, call: CollectiveCall) -> None:
        """Makes the communicator, on a thread of its own: the library waits for all ranks, and for ever."""
        comm, faults, seconds = P(), list[NcclFault](), timeout_of()

        def start() -> None:
            with self.driver:
                try:
                    self._library.call(
                        "ncclCommInitRank", ctypes.addressof(comm), self._group.size, unique, self._group.rank
                    )
                except NcclFault as refused:
                    faults.append(refused)

        thread = threading.Thread(target=start, name=f"start of {self.name}", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            begun = CollectiveCall(f"the start of {self.name}", call.signature, call.place)
            raise late_ranks(self._group.ranks[self._group.rank], begun, [], seconds)
        if faults:
            raise faults[0]
        self._comm = comm.value

    def exchange(self, one: DeviceExchange, stream: int) -> None:
        """Makes an exchange on a stream, and waits until it is done.

        Raises:
            KernelError: EK0867 the library refuses; EK0862 not all ranks come in time.
        """
        if one.size == 0:
            return
        if self._comm is None:
            text = f"{self.name} has ended with the exchange that failed before {one.call.signature}"
            raise KernelError(text, code="EK0867", place=one.call.place, op=one.call.op)
        try:
            with self.driver:
                self._enqueue(one, stream, self._comm)
                self._wait(one.call, stream, self._comm)
        except BaseException as error:  # also of a handler of a signal: what is under way would never end
            self._end("ncclCommAbort")
            if isinstance(error, NcclFault):
                raise self._error(error, one.call) from None
            raise

    def _enqueue(self, one: DeviceExchange, stream: int, comm: int) -> None:
        call, rank = self._library.call, self._group.rank
        if one.kind is Exchange.ALLGATHER:
            call("ncclAllGather", one.source, one.to, one.size, BYTE, comm, stream)
        elif one.kind is Exchange.BROADCAST:
            call("ncclBroadcast", one.to, one.to, one.size, BYTE, one.root, comm, stream)
        elif one.kind is Exchange.ALLTOALL:
            places = [(peer, one.size * peer) for peer in range(self._group.size)]
            sends = [(one.source + at, peer) for peer, at in places]
            self._move(sends, [(one.to + at, peer) for peer, at in places], one.size, stream, comm)
        else:
            sends = [(one.source, to) for source, to in one.pairs if source == rank]
            receives = [(one.to, source) for source, to in one.pairs if to == rank]
            if not receives:
                self.driver.library.fill(one.to, 0, one.size, stream)
            self._move(sends, receives, one.size, stream, comm)

    def _move(
        self,
        sends: Sequence[tuple[int, int]],
        receives: Sequence[tuple[int, int]],
        size: int,
        stream: int,
        comm: int,
    ) -> None:
        """Sends and receives pieces, each an address and a rank, at one time."""
        call = self._library.call
        call("ncclGroupStart")
        try:
            for address, peer in sends:
                call("ncclSend", address, size, BYTE, peer, comm, stream)
            for address, peer in receives:
                call("ncclRecv", address, size, BYTE, peer, comm, stream)
        finally:
            call("ncclGroupEnd")

    def _wait(self, call: CollectiveCall, stream: int, comm: int) -> None:
        seconds, start = timeout_of(), time.monotonic()

        def is_done() -> bool:
            done = self.driver.library.is_idle(stream)
            self._look_for_error(comm)
            if not done and seconds is not None and time.monotonic() - start > seconds:
                raise late_ranks(self._group.ranks[self._group.rank], call, [], seconds)
            return done

        wait_until(is_done)

    def _look_for_error(self, comm: int) -> None:
        code = N()
        self._library.call("ncclCommGetAsyncError", comm, ctypes.addressof(code))
        if code.value not in (0, IN_PROGRESS):
            raise self._library.fault("ncclCommGetAsyncError", code.value)

    def _error(self, fault: NcclFault, call: CollectiveCall, elsewhere: int | None = None) -> KernelError:
        rank = self._group.ranks[self._group.rank] if elsewhere is None else elsewhere
        return KernelError(
            f"{self.name} refuses {call.signature} on rank {rank}: {fault}",
            code="EK0867",
            place=call.place,
            op=call.op,
            got=fault.code,
            hint=f"NCCL_DEBUG=WARN shows what {self.name} says; EINKORN_NCCL=off exchanges through the host",
        )

    def close(self, failed: bool) -> None:
        """Ends the communicator, when its rank ends; `failed` where others may not come to that."""
        self._end("ncclCommAbort" if failed else "ncclCommDestroy")

    def _end(self, function: str) -> None:
        comm, self._comm = self._comm, None
        if comm is not None:
            with self.driver, suppress(NcclFault):  # the first error is the one that is raised
                self._library.call(function, comm)
