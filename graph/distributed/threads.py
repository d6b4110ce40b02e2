"""Runs ranks as threads of one process: for tests, and for machines without a launcher.

Ranks synchronise at one condition. A rank leaves a copy of its bytes there, waits until all have come, and reads those
of the others. Each exchange has its number among those of its ranks. What ranks call is compared there.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from ...dsl.contract.exchange import Exchange
from ...dsl.diagnostics.errors import KernelError
from ...dsl.environment.stacks import start_with_room
from .communicator import Bytes, CollectiveCall, unsent
from .failures import different_calls, ended_rank, failed_rank, late_ranks, timeout_of

R = TypeVar("R")

ORDERED, PIECES = "ordered", "pieces"  # kinds of meetings; see `Communicator`
PATIENCE: Final = 0.5  # seconds in which ranks end by themselves after one has failed


class ThreadRanks(Generic[R]):
    """The ranks of a program that runs on threads.

    Attributes:
        size: how many there are.
        changed: notified whenever a rank comes, leaves or fails.
        failure: the first rank that failed, with its exception.
        ended: the ranks that have returned.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.failure: tuple[int, BaseException] | None = None
        self.ended: set[int] = set()
        self.rooms: dict[tuple[int, ...], _Room] = {}

    def run(self, function: Callable[[ThreadCommunicator], R]) -> list[R]:
        """Calls a function on each rank, with its communicator; what each gave back.

        Raises:
            the exception of the first rank that failed.
        """
        results: dict[int, R] = {}
        ranks = tuple(range(self.size))

        def work(rank: int) -> None:
            try:
                results[rank] = function(ThreadCommunicator(self, ranks, rank))
            except BaseException as error:
                self._fail(rank, error)
            finally:
                with self.changed:
                    self.ended.add(rank)
                    self.changed.notify_all()

        threads = [threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in ranks]
        for thread in threads:
            start_with_room(thread)
        try:
            with self.changed:
                self.changed.wait_for(lambda: self._are_over() or self.failure is not None)
        except BaseException as error:
            self._fail(-1, error)
            raise
        if self.failure is not None:
            self._end(threads)
            rank, failure = self.failure
            failure.add_note(f"rank {rank} of {self.size} raised this")
            raise failure
        for thread in threads:
            thread.join()
        return [results[rank] for rank in ranks]

    def _are_over(self) -> bool:
        return len(self.ended) == self.size

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        """Waits for the ranks after one has failed; raises an exception in those that do not end soon."""
        with self.changed:
            if self.changed.wait_for(self._are_over, PATIENCE):
                return
            for rank, thread in enumerate(threads):
                if rank not in self.ended and thread.ident is not None:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
                    )

    def _fail(self, rank: int, error: BaseException) -> None:
        with self.changed:
            if self.failure is None:
                self.failure = rank, error
            self.changed.notify_all()

    def room(self, ranks: tuple[int, ...]) -> _Room:
        """The state that these ranks share."""
        with self.changed:
            return self.rooms.setdefault(ranks, _Room())


Meeting: TypeAlias = "dict[int, tuple[CollectiveCall, Bytes]]"  # by rank, what it calls and has brought


class _Room:
    """What some ranks share: the meetings that not all have come to yet, and the letters that were not read yet.

    Meetings of a kind have numbers: each rank comes to them in this order.
    """

    def __init__(self) -> None:
        self.meetings: dict[tuple[str, int], Meeting] = {}
        self.begun: dict[tuple[str, int], int] = {}  # by kind and rank, to how many it has come
        self.mail: dict[tuple[int, int], list[tuple[CollectiveCall, Bytes]]] = {}


class ThreadCommunicator:
    """A communicator of threads; see `Communicator`."""

    def __init__(self, world: ThreadRanks[Any], ranks: tuple[int, ...], rank: int) -> None:
        self._world, self._ranks = world, ranks
        self.rank, self.size = rank, len(ranks)
        self._room = world.room(ranks)

    def allgather(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """See `Communicator.allgather`."""
        self.start(Exchange.ALLGATHER, mine, everyone, call)()

    def gather_pieces(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """See `Communicator`."""
        self.start(Exchange.GATHER_PIECES, mine, everyone, call)()

    def alltoall(self, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> None:
        """See `Communicator.alltoall`."""
        self.start(Exchange.ALLTOALL, mine, theirs, call)()

    def broadcast(self, data: Bytes, root: int, call: CollectiveCall) -> None:
        """See `Communicator.broadcast`."""
        brought = self._brought(call, self._come(ORDERED, call, data if self.rank == root else data[:0]))
        if self.rank != root:
            data[:] = brought[root]

    def start(self, kind: Exchange, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> Callable[[], None]:
        """See `StartingRanks.start`."""
        meeting = self._come(PIECES if kind is Exchange.GATHER_PIECES else ORDERED, call, mine)

        def wait() -> None:
            pieces = theirs.reshape(self.size, -1)
            for rank, data in self._brought(call, meeting).items():
                pieces[rank] = data.reshape(self.size, -1)[self.rank] if kind is Exchange.ALLTOALL else data

        return wait

    def send(self, data: Bytes, to: int, call: CollectiveCall) -> None:
        """See `Communicator.send`; it waits for no one."""
        with self._world.changed:
            self._room.mail.setdefault((self.rank, to), []).append((call, data.copy()))
            self._world.changed.notify_all()

    def receive(self, data: Bytes, source: int, call: CollectiveCall) -> None:
        """See `Communicator.receive`."""
        with self._world.changed:
            box = self._room.mail.setdefault((source, self.rank), [])
            if source == self.rank and not box:
                raise unsent(call)
            self._wait(call, lambda: bool(box), lambda: [source])
            sent, found = box.pop(0)
        if found.size != data.size or sent.details != call.details:
            raise different_calls({self._ranks[source]: sent, self._ranks[self.rank]: call})
        data[:] = found

    def split(self, ranks: Sequence[int]) -> ThreadCommunicator:
        """See `Communicator.split`."""
        return ThreadCommunicator(self._world, tuple(self._ranks[rank] for rank in ranks), list(ranks).index(self.rank))

    def _come(self, order: str, call: CollectiveCall, data: Bytes) -> Meeting:
        """Brings bytes to the next meeting."""
        room, world = self._room, self._world
        with world.changed:
            number = room.begun.get((order, self.rank), 0)
            room.begun[order, self.rank] = number + 1
            meeting = room.meetings.setdefault((order, number), {})
            meeting[self.rank] = call, data.copy()
            if len(meeting) == self.size:
                del room.meetings[order, number]
                world.changed.notify_all()
            return meeting

    def _brought(self, call: CollectiveCall, meeting: Meeting) -> dict[int, Bytes]:
        """What all ranks have brought to a meeting, by rank."""
        with self._world.changed:
            missing = lambda: [rank for rank in range(self.size) if rank not in meeting]  # noqa: E731
            self._wait(call, lambda: len(meeting) == self.size, missing)
        if len({each.signature for each, _ in meeting.values()}) > 1:
            raise different_calls({self._ranks[rank]: each for rank, (each, _) in sorted(meeting.items())})
        return {rank: data for rank, (_, data) in meeting.items()}

    def _wait(self, call: CollectiveCall, is_over: Callable[[], bool], missing: Callable[[], list[int]]) -> None:
        """Waits for other ranks; `missing` are those that have not come.

        Raises:
            KernelError: EK0862 they do not come in time; EK0863 a rank has failed, or one that is missing has ended.
        """
        world, seconds = self._world, timeout_of()

        def is_awaited() -> bool:
            gone = world.ended.intersection(self._ranks[rank] for rank in missing())
            return not (is_over() or world.failure is not None or gone)

        world.changed.wait_for(lambda: not is_awaited(), seconds)
        if is_over():
            return
        absent = [self._ranks[rank] for rank in missing()]
        raise self._reason(call, absent, seconds)

    def _reason(self, call: CollectiveCall, absent: list[int], seconds: float | None) -> KernelError:
        world, own = self._world, self._ranks[self.rank]
        if world.failure is not None:
            return failed_rank(own, call, *world.failure)
        gone = sorted(world.ended.intersection(absent))
        return ended_rank(own, call, gone) if gone else late_ranks(own, call, absent, seconds)
