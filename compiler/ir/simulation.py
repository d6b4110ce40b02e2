"""What generated code of kernels and the scheduler of their threads agree on: the layout of their records.

Where no hardware runs grids, threads that wait for each other are coroutines. `lowering.coroutines` writes these,
`codegen.coroutines` makes LLVM's coroutines of them, and `simulation.scheduler` has the scheduler that runs them
block by block.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, Final

from .opcodes import CLUSTER_SYNC, PEER
from .program import PointerType, Region, Value, walk

BEGIN: Final = "ek.begin"  # the thread's storage is made, its coroutine begins
SUSPEND: Final = "ek.suspend"  # the thread waits, as its record says
THREAD: Final = "ek.thread."  # how the names of functions that are run as coroutines begin
RUN: Final = "ek.run_blocks"  # `(argument, chunk)`: a task of a launch, which runs some of its blocks

MOVED: Final = "ek.moved"  # `(argument)`: a thread has left the outermost loop in which it waits for others
CHANGED: Final = "ek.changed"  # `(argument, really)`: a thread in such a loop has changed memory
YIELDS: Final = "ek.yields"  # `(argument) -> i1`: whether a thread gives others their turn behind an atomic write

SLOT_BYTES: Final = 64  # of what a thread gives the others of its warp, and of what it gets
FRAME_ALIGNMENT: Final = 64
SHARED_ALIGNMENT: Final = 1024  # of the shared memory of a block, as much as a kernel may request


# What is said where threads part, with the numbers that the scheduler brings; the first words are of a block.
PARTED: Final = (
    *("the threads of block (", ("", "int64"), ", ", ("", "int64"), ", ", ("", "int64"), ") part: "),
    *(("", "int64"), " wait here, ", ("", "int64"), " have ended, ", ("", "int64"), " wait elsewhere"),
)


WAITERS: Final = 4  # places where threads wait that a report shows
WAITER: Final = 9  # numbers of each: site, state, threads, the first one's block and index
WAITING_VALUES: Final = 3 + WAITERS * WAITER

# What a report that no thread can continue brings: how many wait, in how many clusters, how many blocks have not begun;
# then the places where they wait.
WAITING: Final = (
    *((name, {"value": k, "dtype": "int64"}) for k, name in enumerate(("threads", "resident", "left"))),
    (
        "places",
        [[{"value": 3 + WAITER * n + k, "dtype": "int64"} for k in range(WAITER)] for n in range(WAITERS)],
    ),
)


class Orders(IntEnum):
    """What memory a barrier orders: nothing, all of it, or that alone by which the compiler exchanges values."""

    NOTHING = 0
    ALL = 1
    EXCHANGE = 2


class State(IntEnum):
    """What a thread does; one that waits has its partners. One that spins waits until memory changes."""

    READY = 0
    WARP = 1
    BLOCK = 2
    CLUSTER = 3
    ENDED = 4
    NEW = 5
    SPIN = 6


class Thread(ctypes.Structure):
    """The record of a thread. What the scheduler looks at in every round is its first half.

    Fields:
        frame: the coroutine; before it begins, the memory for it, and without memory the thread says how much it takes.
        state: a `State`.
        wanted: its partners: a mask of lanes, or a number of threads; 0 stands for all.
        key: threads with an equal key synchronise.
        vote: 0 or 1; `ballot` is those of all lanes that arrived, and `members` which lanes these are.
        site: what to report where the threads part.
        block: its block.
        x, y, z, number, lane, warp: where it is; threads of a cluster are numbered block by block, from a multiple of a
            warp on.
        own: where memory is checked, an `Orders`: what memory it orders that threads wait.
    """

    _fields_ = (
        ("frame", ctypes.c_void_p),
        ("state", ctypes.c_int64),
        ("wanted", ctypes.c_int64),
        ("key", ctypes.c_int64),
        ("vote", ctypes.c_int64),
        ("ballot", ctypes.c_int64),
        ("members", ctypes.c_int64),
        ("site", ctypes.c_int64),
        ("block", ctypes.c_void_p),
        ("x", ctypes.c_int64),
        ("y", ctypes.c_int64),
        ("z", ctypes.c_int64),
        ("number", ctypes.c_int64),
        ("lane", ctypes.c_int64),
        ("warp", ctypes.c_int64),
        ("own", ctypes.c_int64),
    )


class BlockRecord(ctypes.Structure):
    """The record of the block that a worker runs.

    Fields:
        argument: that of the launch.
        threads, count: the records of its threads, which lie one after the other, and how many there are.
        slots: for each thread `SLOT_BYTES` that it gives, then as many that it gets.
        shared, dynamic: its shared memory, and the part of it whose size the launch gave.
        frames, frame_bytes: the memory for coroutines.
        x, y, z: where it is.
        own: the state of the checks, where memory is checked (see `dsl.contract.checking`).
        all, blocks: the records of the threads and of the blocks of its cluster.
        last: 1 + the number of its last thread.
        steps: how many turns its warps have had.
    """

    _fields_ = (
        ("argument", ctypes.c_void_p),
        ("threads", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("slots", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        ("dynamic", ctypes.c_void_p),
        ("frames", ctypes.c_void_p),
        ("frame_bytes", ctypes.c_int64),
        ("x", ctypes.c_int64),
        ("y", ctypes.c_int64),
        ("z", ctypes.c_int64),
        ("own", ctypes.c_void_p),
        ("all", ctypes.c_void_p),
        ("blocks", ctypes.c_void_p),
        ("last", ctypes.c_int64),
        ("steps", ctypes.c_int64),
    )


class Argument(ctypes.Structure):
    """What the tasks of a launch get; what the kernel takes from outside lies behind it.

    Fields:
        context, total, step: as of every parallel region: the context, the number of clusters, how many a task runs.
        thread: the function of a thread.
        grid_x, grid_y: the blocks along the first axes.
        block_x, block_y, block_z: the threads of a block.
        shared, dynamic: bytes of shared memory.
        slots: whether threads of a warp exchange values.
        lanes: the threads of a warp.
        cluster_x, cluster_y, cluster_z: the blocks of a cluster, which one task runs; 1 where they do not know of each
            other.
        resident: how many clusters run at the same time, where threads spin; 0 where none does.
        moves: how often a thread has left a loop in which it spins, or a cluster has begun.
        changes: how often a thread that spins has changed memory.
        waiting: the site of the report that no thread can continue.
        draws: how often it was drawn whether a thread gives others their turn.
    """

    _fields_ = (
        ("context", ctypes.c_void_p),
        ("total", ctypes.c_int64),
        ("step", ctypes.c_int64),
        ("thread", ctypes.c_void_p),
        ("grid_x", ctypes.c_int64),
        ("grid_y", ctypes.c_int64),
        ("block_x", ctypes.c_int64),
        ("block_y", ctypes.c_int64),
        ("block_z", ctypes.c_int64),
        ("shared", ctypes.c_int64),
        ("dynamic", ctypes.c_int64),
        ("slots", ctypes.c_int64),
        ("lanes", ctypes.c_int64),
        ("cluster_x", ctypes.c_int64),
        ("cluster_y", ctypes.c_int64),
        ("cluster_z", ctypes.c_int64),
        ("resident", ctypes.c_int64),
        ("moves", ctypes.c_int64),
        ("changes", ctypes.c_int64),
        ("waiting", ctypes.c_int64),
        ("draws", ctypes.c_int64),
    )


def offset(structure: type[ctypes.Structure], name: str) -> int:
    """Where a field lies."""
    field: Any = getattr(structure, name)
    result: int = field.offset
    return result


def of_cluster(region: Region) -> bool:
    """Whether the threads that run a region wait for those of other blocks, or reach their memory."""
    return any(op.opcode is CLUSTER_SYNC or op.opcode is PEER for op in walk(region))


def cooperates(region: Region) -> bool:
    """Whether the threads that run a region wait for each other, or share memory."""
    return any(
        op.opcode.waits or op.opcode.convergent or any(map(_is_shared, op.results)) or "spins" in op.attrs
        for op in walk(region)
    )


def spins(region: Region) -> bool:
    """Whether threads that run a region wait in loops for others to change memory."""
    return any("spins" in op.attrs for op in walk(region))


def _is_shared(value: Value) -> bool:
    return isinstance(value.type, PointerType) and value.type.space == "shared"
