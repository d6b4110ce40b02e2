"""Runs ranks as processes of MPI, by mpi4py. No transport is written here.

Operations are started without waiting and then tested until they are done, so that a rank notices signals and
time-outs. Each rank notes on a board in shared memory where it is; a rank that has waited too long reads from it which
ranks of its machine have not come.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import numpy as np
from mpi4py import MPI

from ...dsl.diagnostics.errors import EinkornError
from .communicator import Alone, Bytes, CollectiveCall
from .ending import end_all_on_failure, remove_shared_files
from .failures import different_calls, late_ranks, timeout_of

SPINS: Final = 2000  # tests before a rank gives its core to others
ROW: Final = 512  # bytes of a rank on the board: how many collectives it has begun, then what the last one was
TAG: Final = 7


class Board:
    """What each rank of a machine is doing, in memory that they share.

    Attributes:
        ranks: by rank of the world, its row; those of other machines have none.
    """

    def __init__(self, world: MPI.Intracomm) -> None:
        here: MPI.Intracomm = world.Split_type(MPI.COMM_TYPE_SHARED)
        window = MPI.Win.Allocate_shared(ROW if here.rank else ROW * here.size, 1, comm=here)
        memory, _ = window.Shared_query(0)
        rows = np.asarray(memory, np.uint8)[: ROW * here.size].reshape(here.size, ROW)
        ranks = here.allgather(world.rank)
        self.window = window  # kept: it owns the memory
        self.ranks = {rank: rows[number] for number, rank in enumerate(ranks)}
        self.own = self.ranks[world.rank]
        self.own[:] = 0
        here.Barrier()

    def note(self, key: str, number: int) -> None:
        """Notes that this rank begins its collective `number` among the ranks that `key` names."""
        data = f"{number}|{key}".encode()[: ROW - 1]
        self.own[: len(data)] = np.frombuffer(data, np.uint8)
        self.own[len(data)] = 0

    def at(self, rank: int) -> tuple[int, str] | None:
        """What a rank has begun last; None of a rank that is elsewhere."""
        row = self.ranks.get(rank)
        if row is None:
            return None
        number, _, key = row.tobytes().partition(b"\0")[0].decode(errors="replace").partition("|")
        return int(number or 0), key


class MPICommunicator:
    """A communicator over one of mpi4py's; see `Communicator`."""

    def __init__(self, comm: MPI.Intracomm, board: Board | None, world_ranks: Sequence[int]) -> None:
        self.comm = comm
        self.rank, self.size = comm.rank, comm.size
        self._board, self._world_ranks = board, tuple(world_ranks)
        self._name = ",".join(map(str, world_ranks))
        self._begun = 0
        self._itself = Alone()  # keeps what this rank sends to itself

    def allgather(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """See `Communicator.allgather`."""
        self._wait(self.comm.Iallgather(mine, everyone), call)

    def alltoall(self, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> None:
        """See `Communicator.alltoall`."""
        self._wait(self.comm.Ialltoall(mine, theirs), call)

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
        return MPICommunicator(comm, self._board, [self._world_ranks[rank] for rank in ranks])

    def _wait(self, request: MPI.Request, call: CollectiveCall, peer: int | None = None) -> None:
        """Waits until an operation is done.

        Raises:
            KernelError: EK0862 it takes too long; EK0861 another rank is in another operation by then.
        """
        self._begun += 1
        test = request.Test
        for _ in range(SPINS):
            if test():
                return
        key = f"{self._name}|{call.signature}"
        if self._board is not None:
            self._board.note(key, self._begun)
        seconds, start = timeout_of(), time.monotonic()
        while not test():
            time.sleep(0)
            if seconds is not None and time.monotonic() - start > seconds:
                raise self._too_late(call, seconds, peer)

    def _too_late(self, call: CollectiveCall, seconds: float, peer: int | None) -> EinkornError:
        absent = []
        others = range(self.size) if peer is None else [peer]
        for rank in others:
            known = None if self._board is None else self._board.at(self._world_ranks[rank])
            if rank == self.rank or known is None:
                continue
            name, _, signature = known[1].partition("|")
            if name != self._name or known[0] < self._begun:
                absent.append(self._world_ranks[rank])
            elif known[0] == self._begun and peer is None and signature != call.signature:
                op, _, details = signature.partition(" (")
                other = CollectiveCall(op, details.removesuffix(")"))
                return different_calls({self._world_ranks[self.rank]: call, self._world_ranks[rank]: other})
        return late_ranks(self._world_ranks[self.rank], call, absent, seconds)


def world_communicator() -> MPICommunicator:
    """The processes that the launcher has started. From here on an exception that ends one of them ends all."""
    comm = MPI.COMM_WORLD
    if comm.size > 1:
        end_all_on_failure(comm)
        remove_shared_files(comm)
    return MPICommunicator(comm, Board(comm) if comm.size > 1 else None, range(comm.size))


def over(comm: MPI.Intracomm) -> MPICommunicator:
    """A communicator over one of mpi4py's."""
    return MPICommunicator(comm, None, range(comm.size))
