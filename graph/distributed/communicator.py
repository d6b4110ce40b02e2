"""Defines what a backend of collectives provides: a few functions that move bytes between ranks.

Everything else (reductions, axes, dtypes, comparisons of programs) is built on these. A new backend is one file, and a
case of `world._launched`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...dsl.contract.exchange import Exchange
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import KernelError
from ...dsl.diagnostics.places import Place

Bytes = np.ndarray[Any, np.dtype[np.uint8]]  # contiguous, of one axis


@dataclass(frozen=True)
class CollectiveCall:
    """What a rank calls, for messages and comparisons.

    Attributes:
        op: such as "allreduce.sum".
        details: what all ranks have to agree on, such as "float32, 12 elements".
        place: the user's line that staged the op.
    """

    op: str
    details: str = ""
    place: Place | None = None

    @property
    def signature(self) -> str:
        """What ranks that call the same collective have in common."""
        return f"{self.op} ({self.details})" if self.details else self.op

    def __str__(self) -> str:
        return f"{self.signature} at {self.place}" if self.place is not None else self.signature


class Communicator(Protocol):
    """Some ranks that communicate. All of them make the same calls in the same order.

    One may have an attribute `native`, which serves native code (see `NativeRanks`); a method `start`, which begins
    what is waited for later (see `StartingRanks`); and a method `gather_pieces`, which is an `allgather` whose calls
    have an order of their own: the other methods may be called before it on some ranks and after it on others.

    Attributes:
        rank: the number of this rank among them.
        size: how many they are.
    """

    rank: int
    size: int

    def allgather(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """Writes the bytes of each rank into `everyone`, in the order of ranks; all have equally many."""

    def alltoall(self, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> None:
        """Sends piece k of `mine` to rank k, and writes what comes from rank k to piece k of `theirs`."""

    def broadcast(self, data: Bytes, root: int, call: CollectiveCall) -> None:
        """Writes the bytes of rank `root` into those of the others."""

    def send(self, data: Bytes, to: int, call: CollectiveCall) -> None:
        """Sends bytes to a rank that receives as many."""

    def receive(self, data: Bytes, source: int, call: CollectiveCall) -> None:
        """Waits for the bytes of a rank."""

    def split(self, ranks: Sequence[int]) -> Communicator:
        """A communicator of some of these ranks, in this order; each of them calls it."""


def gather_records(ranks: Communicator, record: bytes, size: int, call: CollectiveCall) -> list[bytes]:
    """The records of all ranks, of `size` bytes each: a shorter one ends with zeros, a longer one is cut."""
    mine = np.frombuffer(record[:size].ljust(size, b"\0"), np.uint8)
    everyone = np.empty(ranks.size * size, np.uint8)
    ranks.allgather(mine, everyone, call)
    return [row.tobytes() for row in everyone.reshape(ranks.size, size)]


class StartingRanks(Protocol):
    """A communicator that need not wait where an exchange begins."""

    def start(self, kind: Exchange, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> Callable[[], None]:
        """Begins an `ALLGATHER` or `ALLTOALL`: what waits until it is done. All ranks begin theirs in the same order,
        and may wait for them in any other; both arrays stay until then."""


class NativeRanks(Protocol):
    """What a communicator has in `native` that native code can call without Python.

    Attributes:
        function, table: addresses of its `exchange` (see `dsl.contract.exchange`), and of what that needs.
        most: how many bytes a piece may have; for larger ones the functions for Python are called.
    """

    function: int
    table: int
    most: int

    def end_open(self, seconds: float) -> bool:
        """Ends what was begun and is waited for by no kernel any more, since its call has failed: whether all of it was
        done within so many seconds. What was not goes on, and its memory has to stay."""

    def noted(self, signature: str) -> bytes:
        """What a rank notes that waits in a call; in the signature "{}" stands for the number of elements."""

    def error(self, code: int, call: CollectiveCall, peers: Sequence[int]) -> BaseException:
        """The error of an exchange that was not made: of the library's code, or 0 where it took too long.

        `peers` are the ranks that send or receive; empty where all take part.
        """


@dataclass(frozen=True)
class DeviceExchange:
    """One exchange of memory of a device; see `dsl.contract.exchange`.

    Attributes:
        kind, to, source, size: as kernels give them; `size` is in bytes.
        root: the rank that a broadcast comes from.
        pairs: the senders and the receivers of a `MOVE`.
        call: for messages.
    """

    kind: Exchange
    to: int
    source: int
    size: int
    root: int
    pairs: Sequence[tuple[int, int]]
    call: CollectiveCall

    def reads(self, rank: int, ranks: int) -> int:
        """How many bytes at `source` a rank gives away."""
        if self.kind is Exchange.BROADCAST:
            return self.size if rank == self.root else 0
        if self.kind is Exchange.MOVE:
            return self.size if any(rank == sender for sender, _ in self.pairs) else 0
        return self.size * ranks if self.kind is Exchange.ALLTOALL else self.size

    def writes(self, rank: int, ranks: int) -> int:
        """How many bytes at `to` a rank gets."""
        if self.kind is Exchange.BROADCAST:
            return self.size if rank != self.root else 0
        if self.kind is Exchange.MOVE:  # one that sends in place gets nothing
            received = any(rank == receiver for _, receiver in self.pairs)
            return self.size if received or self.to != self.source else 0
        return self.size * ranks


class DeviceRanks(Protocol):
    """Ranks whose GPUs exchange memory by a library, each one GPU."""

    def exchange(self, one: DeviceExchange, stream: int) -> None:
        """Makes an exchange on a stream of the GPU, and waits until it is done."""


def native_of(communicator: Communicator) -> NativeRanks | None:
    """What native code calls of a communicator, or None where it goes through Python."""
    native: NativeRanks | None = getattr(communicator, "native", None)
    return native


def unsent(call: CollectiveCall) -> KernelError:
    """The error of a rank that waits for itself."""
    text = f"{call.signature} waits for a tensor that this rank has not sent to itself"
    return KernelError(text, code="EK0863", place=call.place, op=call.op)


class Alone:
    """The communicator of a process that was started by itself."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self._sent: list[Bytes] = []

    def allgather(self, mine: Bytes, everyone: Bytes, call: CollectiveCall) -> None:
        """Copies the bytes."""
        everyone[:] = mine

    def alltoall(self, mine: Bytes, theirs: Bytes, call: CollectiveCall) -> None:
        """Copies the bytes."""
        theirs[:] = mine

    def broadcast(self, data: Bytes, root: int, call: CollectiveCall) -> None:
        """Leaves the bytes as they are."""

    def send(self, data: Bytes, to: int, call: CollectiveCall) -> None:
        """Keeps the bytes for `receive`."""
        self._sent.append(data.copy())

    def receive(self, data: Bytes, source: int, call: CollectiveCall) -> None:
        """Takes the bytes that were sent first."""
        if not self._sent or self._sent[0].size != data.size:
            raise unsent(call)
        data[:] = self._sent.pop(0)

    def split(self, ranks: Sequence[int]) -> Alone:
        """It itself."""
        return self
