"""Fixes how the kernels of collectives reach a communicator: a function by its address, and what it needs.

Kernels move bytes only, in six ways. `abi.Context.collectives` points to a row of slots, one for each report of the
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
    # Python alone is called so: an exchange was not made. `bytes` is the code of the library, 0 where it took too long.
    FAILED = 4


# The words of a slot, of the table of a communicator of MPI, and of a row of the board before its text.
SLOT_WORDS: Final = ("function", "ranks", "target", "source", "text", "size")
COUNTED: Final = ("Iallgather", "Ialltoall", "Ibcast", "Isend", "Irecv")  # of MPI 4 they take counts of 64 bits
RANKS_WORDS: Final = (*COUNTED, "Test", "comm", "byte", "tag", "most", "spins", "limit", "begun", "python", "board")
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
        Iallgather to Test: addresses of MPI's functions.
        comm, byte: handles of the communicator and of the type of bytes.
        tag: of messages between two ranks.
        most: how many bytes a piece may have; Python moves larger ones.
        spins: how often an operation is tested before the thread gives its core to others.
        limit: how many nanoseconds it may take; 0 for ever.
        begun: how many operations of this communicator have begun.
        python: the function of Python's that takes what is too large, and failures.
        board: where this rank notes what it waits for (see `BoardRow`), or null.
    """

    _fields_ = tuple((name, ctypes.c_int64) for name in RANKS_WORDS)


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
