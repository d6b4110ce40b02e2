"""What a simulated device and the checks of its memory agree on: the layout of their records.

`compiler.simulation.shadow_memory` makes the functions; `graph.driver` fills a `CheckState` for a device, and reads
what was found.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum, IntFlag
from typing import Final

PAGE_BITS: Final = 12
PAGE: Final = 1 << PAGE_BITS  # bytes of memory that have their shadow in one piece
CELL: Final = 32  # bytes of shadow for each byte: last store, last atomic operation, two last readers
HEADER: Final = 64  # bytes of a piece before the flags: the launch that its cells are of
SHADOW: Final = (HEADER + PAGE + PAGE * CELL + PAGE - 1) // PAGE * PAGE  # bytes of a piece
PIECES: Final = 1 << 16  # entries of the table of pieces
PLACES: Final = 1 << 12  # entries of the table of what threads synchronise by

ALLOCATED, INITIALISED, PENDING = 1, 2, 4  # the flags of a byte; a copy into it may be under way
HALVES: Final = 24  # the same: a bit for each half that has a value, where elements are halves of bytes
PROMISES: Final = 1 << 12  # entries of the table of promises
COPIES: Final = 64  # of one thread that are under way and looked after


class What(IntFlag):
    """What an access does."""

    READ = 1
    WRITE = 2
    ATOMIC = 4
    NARROW = 8  # an atomic operation, or a fence, for the threads of a cluster alone
    ACQUIRE = 16
    RELEASE = 32
    UNKNOWN = 64  # what is stored was read from uninitialised memory
    BARRIER = 128  # of a row of the trace alone: threads that waited for each other go on
    BRANCH = 256  # the same: a thread answers a condition, or makes so many rounds, which stands in place of an address
    LOW = 512  # of a byte that two elements share, the lower half alone
    HIGH = 1024
    IN_BLOCK = 2048  # with NARROW: for the threads of a block alone
    EXCHANGE = (
        4096  # memory by which the compiler exchanges values, behind barriers of its own: no races are looked for
    )


class Check(IntFlag):
    """What is looked for."""

    NOTHING = 0
    RACES = 1
    BOUNDS = 2  # and alignment
    UNINITIALISED = 4
    COPIES = 8
    PROMISES = 16


class Found(IntEnum):
    """What was found."""

    NOTHING = 0
    RACE = 1
    OUTSIDE = 2
    UNINITIALISED = 3
    PENDING = 4
    PROMISE = 5
    MISALIGNED = 6


class FindingRecord(ctypes.Structure):
    """The first thing that was found.

    Fields:
        found: a `Found`.
        site, other_site: the accesses.
        thread, other_thread: the threads, over all blocks.
        what, other_what: what they do, as `What`; of a promise, the bits of both values; outside of a thread's own
            storage, what it does, and how many elements there are; where alignment is wrong, what it has to be.
        address: the byte; in a thread's own storage, the element.
        threads: the threads of a block.
    """

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("found", "site", "other_site", "thread", "other_thread", "what", "other_what"),
            *("address", "threads"),
        )
    )


# Of a row of the trace that begins a launch. Threads of a block follow; those of a warp, with the bytes of a block's
# shared memory above `LANE_BITS`; and all threads of the launch.
LAUNCH: Final = -1
LANE_BITS: Final = 8


class TracedAccess(ctypes.Structure):
    """A row of the trace, from which counters are made."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("site_and_what", "thread", "address", "bytes"))


class CheckState(ctypes.Structure):
    """All that is known of a device's memory.

    Fields:
        start, begin, sync, access, use, mark, copy, commit, wait, branch, promise, outside, misaligned,
            switch: functions of the object.
        status: what is set to other than 0 when something is found; null if nothing is.
        looks_for: a `Check`.
        pieces: the table of pieces of shadow memory, of entries (number of the page + 1, address).
        free, limit: memory for more pieces.
        page, piece: what was found last in the table.
        launch: the number of the launch.
        room, room_limit, room_free: memory for one launch.
        threads, total, warp_bits: the threads of a cluster, of the grid, and of a warp as a power of 2; where blocks do
            not know of each other, each is a cluster, of which all that is said here of a block is meant.
        first: 1 + the number of the first thread of this block.
        clock, base: the clock of the block, and what it was at the last barrier.
        own: for each thread of the block its own clock.
        warp_base: for each warp the clock when all of it waited last.
        known, any_known: for each two threads the clock of the other that one has, and whether there is any.
        vectors, informed: for each thread the clocks of all threads that it has from others; whether it has any.
        pending, hinted: the same of what is known as soon as it makes a fence: published to all, to its cluster, and to
            its block.
        fences: for each thread its clock, that of the block and that of the warp when it made its last fence for all,
            for its cluster, and for its block.
        copies, copied: for each thread its copies under way (address, bytes, site and what, group), as a ring; how many
            have ended, and have begun, and its groups.
        informed_count: how many threads are informed.
        shared_vector, shared_informed: what all threads of the block know from elsewhere.
        places: the table of places, of entries (address, vector, block that it is of; 0 for all).
        block_x, block_y, grid_x, grid_y, cluster_x, cluster_y, cluster_z: sizes of the launch.
        pitch: by how much the numbers of the first threads of two blocks of a cluster differ.
        trace, trace_end: where the next accesses are noted.
        exhausted: whether memory for all of this has run out.
        residents, resident: what is kept of the clusters that run by turns, while another one has its turn; and whose
            turn it is.
        promises, promised: the table of values that were said to be equal, of entries (what, value, thread and site),
            and how many it has.
        finding: what was found.
    """

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("start", "begin", "sync", "access", "use", "mark")),
        *(
            (name, ctypes.c_void_p)
            for name in ("copy", "commit", "wait", "branch", "promise", "outside", "misaligned", "switch", "status")
        ),
        ("looks_for", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("pieces", "free", "limit")),
        ("page", ctypes.c_int64),
        ("piece", ctypes.c_void_p),
        ("launch", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("room", "room_limit", "room_free")),
        *((name, ctypes.c_int64) for name in ("threads", "total", "warp_bits", "first", "clock", "base")),
        *((name, ctypes.c_void_p) for name in ("own", "warp_base", "known")),
        ("any_known", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in ("vectors", "informed", "pending", "hinted", "fences")),
        ("copies", ctypes.c_void_p),
        ("copied", ctypes.c_void_p),
        ("informed_count", ctypes.c_int64),
        ("shared_vector", ctypes.c_void_p),
        ("shared_informed", ctypes.c_int64),
        *((name, ctypes.c_int64) for name in ("block_x", "block_y", "grid_x", "grid_y")),
        *((name, ctypes.c_int64) for name in ("cluster_x", "cluster_y", "cluster_z", "pitch")),
        *((name, ctypes.c_void_p) for name in ("places", "trace", "trace_end")),
        ("exhausted", ctypes.c_int64),
        ("residents", ctypes.c_void_p),
        ("resident", ctypes.c_int64),
        ("promises", ctypes.c_void_p),
        ("promised", ctypes.c_int64),
        ("finding", FindingRecord),
    )
