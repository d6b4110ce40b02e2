"""Runs ranks as processes of MPI, by mpi4py. No transport is written here.

Operations are started without waiting and then tested until they are done, so that a rank notices signals and
time-outs. Native code does so (see `compiler.runtime.exchanges`), and Python for what is rare. Each rank notes on a
board in shared memory where it is; a rank that has waited too long reads from it which ranks of its machine have not
come. A rank whose program is over ends the waiting of those of its machine that wait for it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Sequence
from typing import Final

from mpi4py import MPI

from ...dsl.contract.exchange import (
    BROKEN,
    COUNTED,
    MOST_DIRECT,
    MOST_OPEN,
    OTHER_SIZE,
    ROW_SIZE,
    BoardRow,
    OpenExchange,
    RanksTable,
)
from ...dsl.diagnostics.errors import EinkornError
from ..findings.report_callbacks import EXCHANGE
from ..loading.launchers import launcher_library
from .communicator import Alone, Bytes, CollectiveCall
from .ending import end_all_on_failure, remove_shared_files
from .failures import after_failure, different_calls, ended_rank, late_ranks, other_size, timeout_of

SPINS: Final = 2000  # tests before a rank gives its core to others, where each has a core
TAG: Final = 7
STATUS_ROOM: Final = 256  # bytes for a status of MPI
END_PAUSE: Final = 0.005  # seconds between two looks at the board of a rank that has ended


class Board:
    """What each rank of a machine is doing, in memory that they share.

    Attributes:
        rows: by rank of the world, its `BoardRow`; those of other machines have none.
        is_crowded: whether there are more ranks here than cores.
        communicators: those of this rank, each by its name and what it counts.
    """

    def __init__(self, world: MPI.Intracomm) -> None:
        here: MPI.Intracomm = world.Split_type(MPI.COMM_TYPE_SHARED)
        window = MPI.Win.Allocate_shared(ROW_SIZE if here.rank else ROW_SIZE * here.size, 1, comm=here)
        memory, _ = window.Shared_query(0)
        ranks = here.allgather(world.rank)
        self.window = window  # kept: it owns the memory
        self.rows = {rank: BoardRow.from_buffer(memory, ROW_SIZE * number) for number, rank in enumerate(ranks)}
        self.own = self.rows[world.rank]
        self.own.begun = self.own.count = self.own.ended = 0
        self.own.vain = -1
        self.own.text = b""
        self.communicators: list[tuple[str, RanksTable]] = []
        self._rank, self._process = world.rank, os.getpid()
        self.is_crowded = here.size > len(os.sched_getaffinity(0))
        here.Barrier()

    def leave(self) -> None:
        """The program of this rank is over: waits until those of the other ranks are, as MPI does at its end, and ends
        the waiting of ranks that wait for this one."""
        if self.own.ended or os.getpid() != self._process:
            return
        self.own.ended = 1
        before: dict[int, int | None] = {}
        while not all(row.ended for row in self.rows.values()):
            for rank, row in self.rows.items():
                waits = self._waits_in_vain(rank)
                if waits is not None and waits == before.get(rank):  # a row may change while it is read
                    row.vain = waits
                before[rank] = waits
            time.sleep(END_PAUSE)

    def _waits_in_vain(self, rank: int) -> int | None:
        """The number of the operation in which a rank waits for this one, which does not come to it any more."""
        known = None if self.rows[rank].ended else self.at(rank)
        if known is None or str(self._rank) not in known[1].split(","):
            return None
        begun = max((table.begun for name, table in self.communicators if name == known[1]), default=0)
        return known[0] if known[0] > begun else None

    def at(self, rank: int) -> tuple[int, str, str] | None:
        """What a rank has begun last: how many operations, the ranks among which, and the signature of the call; None
        of a rank that is elsewhere."""
        row = self.rows.get(rank)
        if row is None:
            return None
        name, _, signature = row.text.decode(errors="replace").partition("|")
        return row.begun, name, signature.replace("{}", str(row.count))


class NativeMPI:
    """What native code calls of a communicator; see `NativeRanks`."""

    def __init__(self, owner: MPICommunicator, board: Board | None) -> None:
        self._owner = owner
        self._library = launcher_library("mpi")
        mpi = ctypes.CDLL(MPI.__file__)
        counted = "_c" if all(hasattr(mpi, f"MPI_{name}_c") for name in COUNTED) else ""
        self.most = 1 << 62 if counted else (1 << 31) - 1
        self.ranks = ranks = RanksTable()
        for name in COUNTED:
            setattr(ranks, name, _address(mpi, f"MPI_{name}{counted}"))
        ranks.Test = _address(mpi, "MPI_Test")
        ranks.Cancel = _address(mpi, "MPI_Cancel")
        ranks.Request_get_status = _address(mpi, "MPI_Request_get_status")
        ranks.comm, ranks.byte, ranks.tag = owner.comm.handle, MPI.BYTE.handle, TAG
        ranks.pieces, ranks.own = owner.pieces.handle, owner.rank
        ranks.direct = owner.size if 1 < owner.size <= MOST_DIRECT else 0
        self.open = (OpenExchange * MOST_OPEN)()
        for row in self.open:
            row.requests[:] = [MPI.REQUEST_NULL.handle] * len(row.requests)
        ranks.open = ctypes.addressof(self.open)
        ranks.most, ranks.python = self.most, EXCHANGE
        ranks.spins = 1 if board is not None and board.is_crowded else SPINS
        ranks.limit = int((timeout_of() or 0) * 1e9)
        ranks.board = 0 if board is None else ctypes.addressof(board.own)
        if board is not None:
            board.communicators.append((owner.name, ranks))
        self.function = self._library.address("ek_mpi_exchange")
        self.table = ctypes.addressof(ranks)

    def noted(self, signature: str) -> bytes:
        """See `NativeRanks.noted`."""
        return self._owner.noted(signature)

    def end_open(self, seconds: float) -> bool:
        """See `NativeRanks.end_open`."""
        state = ctypes.create_string_buffer(STATUS_ROOM)
        test = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(self.ranks.Test)
        flag, start = ctypes.c_int(0), time.monotonic()
        rows = [row for row in self.open if row.to]
        for row in rows:
            for number in range(len(row.requests)):
                request = ctypes.addressof(row.requests) + number * ctypes.sizeof(ctypes.c_int64)
                while not (test(request, ctypes.addressof(flag), ctypes.addressof(state)) or flag.value):
                    if time.monotonic() - start > seconds:
                        return False
                    time.sleep(0)
            row.to = 0
        return True

    def error(self, code: int, call: CollectiveCall, peers: Sequence[int]) -> BaseException:
        """See `NativeRanks.error`."""
        if code == BROKEN:
            return after_failure(self._owner.world_ranks[self._owner.rank], call)
        if code <= OTHER_SIZE:
            return self._owner.other_size(call, OTHER_SIZE - code)
        if code and MPI.Get_error_class(code) == MPI.ERR_TRUNCATE:
            return self._owner.other_size(call, None)
        return MPI.Exception(code) if code else self._owner.too_late(call, peers)


def _address(library: ctypes.CDLL, name: str) -> int:
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0


class MPICommunicator:
    """A communicator over one of mpi4py's; see `Communicator`. Its `name` says which ranks of the program it has."""

    def __init__(self, comm: MPI.Intracomm, board: Board | None, world_ranks: Sequence[int]) -> None:
        self.comm = comm
        self.pieces = comm.Dup()  # for exchanges whose order is one of their own
        self.rank, self.size = comm.rank, comm.size
        self._board, self.world_ranks = board, tuple(world_ranks)
        self.name = ",".join(map(str, world_ranks))
        self._itself = Alone()  # keeps what this rank sends to itself
        self._native: NativeMPI | None = None

    @property
    def native(self) -> NativeMPI:
        """What native code calls."""
        if self._native is None:
            self._native = NativeMPI(self, self._board)
        return self._native

    def allgather(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """See `Communicator.allgather`."""
        self._wait(self.comm.Iallgather(mine, everyone), call)

    def alltoall(self, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> None:
        """See `Communicator.alltoall`."""
        self._wait(self.comm.Ialltoall(mine, theirs), call)

    def gather_pieces(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """As `allgather`, in an order of its own."""
        self._wait(self.pieces.Iallgather(mine, everyone), call)

    def broadcast(self, data: Bytes, root: int, call: CollectiveCall) -> None:
        """See `Communicator.broadcast`."""
        self._wait(self.comm.Ibcast(data, root), call)

    def send(self, data: Bytes, to: int, call: CollectiveCall) -> None:
        """See `Communicator.send`. What a rank sends to itself is kept: MPI would wait until it is received."""
        if to == self.rank:
            self._itself.send(data, to, call)
            return
        self._wait(self.comm.Isend(data, to, TAG), call, to)

    def receive(self, data: Bytes, source: int, call: CollectiveCall) -> None:
        """See `Communicator.receive`."""
        if source == self.rank:
            self._itself.receive(data, source, call)
            return
        self._wait(self.comm.Irecv(data, source, TAG), call, source)

    def split(self, ranks: Sequence[int]) -> MPICommunicator:
        """See `Communicator.split`."""
        comm = self.comm.Create_group(self.comm.group.Incl(list(ranks)))
        return MPICommunicator(comm, self._board, [self.world_ranks[rank] for rank in ranks])

    def noted(self, signature: str) -> bytes:
        """What this rank notes on the board that waits in a call."""
        return f"{self.name}|{signature}".encode()[: BoardRow.text.size - 1]

    def _wait(self, request: MPI.Request, call: CollectiveCall, peer: int | None = None) -> None:
        """Waits until an operation is done.

        Raises:
            KernelError: EK0862 it takes too long; EK0861 another rank is in another operation by then.
        """
        ranks = self.native.ranks
        ranks.begun += peer is None
        ranks.awaited = ranks.begun
        test = request.Test
        for _ in range(ranks.spins):
            if test():
                return
        if self._board is not None:
            row = self._board.own
            row.begun, row.count, row.text = ranks.begun, 0, self.noted(call.signature)
        seconds, start = timeout_of(), time.monotonic()
        while not test():
            time.sleep(0)
            is_vain = self._board is not None and self._board.own.vain == ranks.begun
            if is_vain or (seconds is not None and time.monotonic() - start > seconds):
                raise self.too_late(call, () if peer is None else (peer,))

    def other_size(self, call: CollectiveCall, sender: int | None) -> EinkornError:
        """The error of a call in which a rank, if it is known, sends another size than this rank expects."""
        return other_size(self.world_ranks[self.rank], call, None if sender is None else self.world_ranks[sender])

    def too_late(self, call: CollectiveCall, peers: Sequence[int]) -> EinkornError:
        """The error of a call that takes too long: of which ranks did not come, or come to another call.

        `peers` are the ranks that send or receive; empty where all take part.
        """
        absent, begun = [], self.native.ranks.awaited
        for rank in peers or range(self.size):
            known = None if self._board is None else self._board.at(self.world_ranks[rank])
            if rank == self.rank or known is None:
                continue
            number, name, signature = known
            if name != self.name or number < begun:
                absent.append(self.world_ranks[rank])
            elif number == begun and not peers and signature != call.signature:
                op, _, details = signature.partition(" (")
                other = CollectiveCall(op, details.removesuffix(")"))
                return different_calls({self.world_ranks[self.rank]: call, self.world_ranks[rank]: other})
        gone = [rank for rank in absent if self._board is not None and self._board.rows[rank].ended]
        if gone:
            return ended_rank(self.world_ranks[self.rank], call, gone)
        return late_ranks(self.world_ranks[self.rank], call, absent, timeout_of())


def world_communicator() -> MPICommunicator:
    """The processes that the launcher has started.

    From here on an exception that ends one of them ends all, and so does the end of one that others wait for.
    """
    comm = MPI.COMM_WORLD
    if comm.size > 1:
        end_all_on_failure(comm)
        remove_shared_files(comm)
    board = Board(comm) if comm.size > 1 else None
    if board is not None:
        atexit.register(board.leave)
        key = MPI.Comm.Create_keyval(delete_fn=lambda *_: board.leave())  # MPI's own end may come before that of Python
        MPI.COMM_SELF.Set_attr(key, board)
    return MPICommunicator(comm, board, range(comm.size))


def over(comm: MPI.Intracomm) -> MPICommunicator:
    """A communicator over one of mpi4py's."""
    return MPICommunicator(comm, None, range(comm.size))
