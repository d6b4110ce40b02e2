"""Fixes how the kernels of collectives reach a communicator: a function by its address, and what it needs.

Kernels move bytes only, in a few ways. `abi.Context.collectives` points to a row of slots, one for each report of the
code; a kernel calls the function of its slot:

    int32_t exchange(context, slot, kind, to, from, bytes, count, node) -> 0, or nonzero after a failure

`bytes` are those of one piece, `count` the elements of the op's tensor, and `node` the op's number in its graph. Both
are for messages. After a failure the status of the context says INTERRUPTED.

At first each slot has a function of Python's, which finds the group of ranks and compares the graphs. It leaves there
the communicator's own function, if that has one.

See also `graph.distributed.calls` (that function), `compiler.runtime.exchanges` (that of MPI).
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Final


class Exchange(IntEnum):
    """How bytes are moved. `to` and `from` have one piece, or where a `row` is said one for each rank."""

    ALLGATHER = 0  # the piece of each rank, to a row of them
    ALLTOALL = 1  # piece k of a row goes to rank k; what comes from the ranks is a row
    BROADCAST = 2  # the piece of rank `source` of the slot, in place: `to` is `from`
    # `from` goes to rank `target` of the slot, and what rank `source` sends comes to `to`. Without a source `to` gets
    # zeros, unless it is `from`.
    MOVE = 3
    # Python alone is called so: an exchange was not made. `bytes` is the code of the library, 0 where it took too long,
    # BROKEN, or that of another size.
    FAILED = 4
    GATHER_PIECES = 5  # as ALLGATHER, and in an order of its own: it may overtake what was called before, on some ranks
    # As ALLGATHER and ALLTOALL, which are begun: until WAIT with the same `to`, both memories belong to the exchange.
    # What cannot be begun is made at once.
    START_ALLGATHER = 6
    START_ALLTOALL = 7
    WAIT = 8  # until what was begun with this `to` is done; where nothing was begun, it is
    PROGRESS = 9  # lets what was begun go on, without waiting


BROKEN: Final = -1  # the code of an exchange after one that failed
OTHER_SIZE: Final = -2  # less the rank: the code of a message that is shorter than its receiver expects

# What those that begin do at once where they cannot.
AT_ONCE: Final = {
    Exchange.START_ALLGATHER: Exchange.ALLGATHER,
    Exchange.START_ALLTOALL: Exchange.ALLTOALL,
    Exchange.GATHER_PIECES: Exchange.ALLGATHER,
}


# The words of a slot, of the table of a communicator of MPI, and of a row of the board before its text.
SLOT_WORDS: Final = ("function", "ranks", "target", "source", "text", "size")
COUNTED: Final = ("Iallgather", "Ialltoall", "Ibcast", "Isend", "Irecv", "Get_count")  # with 64 bits in MPI 4
RANKS_WORDS: Final = (
    *(*COUNTED, "Test", "Cancel", "Request_get_status"),
    *("comm", "pieces", "byte", "tag", "own", "direct", "most", "spins", "limit"),
    *("begun", "awaited", "broken", "python", "board", "open"),
)
MOST_DIRECT: Final = 8  # ranks up to which each sends a message to each
MOST_OPEN: Final = 64  # operations of a communicator that are begun and not waited for; further ones are made at once
BOARD_WORDS: Final = ("begun", "count", "vain", "ended")


class ExchangeSlot(ctypes.Structure):
    """What a report of a collective calls.

    Fields:
        function: the function above.
        ranks: what it needs, such as a `RanksTable`.
        target, source: ranks of the group; -1 for none.
        text, size: how the call is described on the board, and how many bytes that takes.
    """

    _fields_ = tuple((name, ctypes.c_int64) for name in SLOT_WORDS)


SLOT_SIZE: Final = ctypes.sizeof(ExchangeSlot)

# exchange(context, slot, kind, to, from, bytes, count, node)
ExchangeFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p),
    *(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64),
)


def exchange_at(context: int, slot: int, *given: int) -> int:
    """Calls the function of a slot, as kernels do."""
    return int(ExchangeFunction(ExchangeSlot.from_address(slot).function)(context, slot, *given))


class RanksTable(ctypes.Structure):
    """What the functions for MPI need of a communicator; its handles are numbers or addresses, as MPI has them.

    Fields:
        Iallgather to Request_get_status: addresses of MPI's functions.
        comm, pieces: handles of the communicator, and of one with the same ranks for `GATHER_PIECES`.
        byte: handle of the type of bytes.
        tag: of messages of `MOVE`; the next one is that of messages to all.
        own: this rank.
        direct: how many ranks there are, if each sends a message to each; otherwise 0.
        most: how many bytes a piece may have; Python moves larger ones.
        spins: how often an operation is tested before the thread gives its core to others.
        limit: how many nanoseconds it may take; 0 for ever.
        begun: how many operations of this communicator have begun.
        awaited: the number of the one that this rank has waited for last.
        broken: whether an exchange has failed, so that what comes from the other ranks belongs to none.
        python: the function of Python's that takes what is too large, and failures.
        board: where this rank notes what it waits for (see `BoardRow`), or null.
        open: `MOST_OPEN` operations that were begun (see `OpenExchange`).
    """

    _fields_ = tuple((name, ctypes.c_int64) for name in RANKS_WORDS)


class OpenExchange(ctypes.Structure):
    """An operation that was begun.

    Fields:
        to: where its result comes; 0 while this row is free.
        number: which operation of the communicator it is.
        bytes: of one piece.
        requests: handles of MPI: by rank, of a message that comes and of one that goes; or the first alone. Others are
            those of no request.
    """

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("to", "number", "bytes")),
        ("requests", ctypes.c_int64 * (2 * MOST_DIRECT)),
    )


class BoardRow(ctypes.Structure):
    """What a rank waits for.

    Fields:
        begun: the number of the operation.
        count: the elements of the op's tensor.
        vain: the number of an operation that will not be, since a rank has ended; that one writes it.
        ended: whether the program of the rank is over.
        text: up to a zero byte; "{}" in it stands for the number of elements.
    """

    _fields_ = (*((name, ctypes.c_int64) for name in BOARD_WORDS), ("text", ctypes.c_char * 480))


ROW_SIZE: Final = ctypes.sizeof(BoardRow)
