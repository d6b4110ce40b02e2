"""Fixes the native calling convention: how the runtime calls compiled code, in numbers that both sides share.

Every compiled entry is a C function

    int32_t entry(Context *context, void **pointers, int64_t *dims)

`pointers[i]` is the base address of buffer i, `dims[k]` the value of dim slot k: a size, or a stride in elements. It
returns 0, or nonzero when `context->status` is nonzero. An entry may have several stages, because sizes of its buffers
are computed on the way: it is called once for each, with `context->stage` counting from 0, and between two calls the
caller reads these sizes and fills in what depends on them. The context is 80 bytes, little-endian, in fields of 8
bytes; generated code reads it by the offsets here, Python by the structure here, and a test holds the two together.

Code of ABI 1, which old packages hold, has the first 64 bytes of the context, and reports without it. The last field is
read by code with collectives alone.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

ABI_VERSION: Final = 2
SILENT_ABI: Final = 1  # whose code reports without saying which call it is in

# The symbols of an object: the entry, and the table of what its reports mean (JSON text that ends in a zero byte).
ENTRY: Final = "ek_entry"
REPORTS: Final = "ek_reports"

# Of an entry that launches kernels on a device: the table of these (JSON text that ends in a zero byte; see `kernels`),
# and scratch(dims, stage), how many bytes of the device that stage of a call needs in addition to its buffers, if any
# does.
KERNELS: Final = "ek_kernels"
SCRATCH: Final = "ek_scratch"

# Begins the name of a byte in the code for the device, which ends in the digest that the table of kernels has.
STAMP: Final = "ek_code_"

# The symbols that an object may leave to the system, and the libraries that have them. fma and round are exact, so the
# library that has them does not matter; exp and its kind are not, and are written in the kernel language instead, as is
# fmod, which is slow there.
LIBCALLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("memcpy", "memmove", "memset", "memcmp", "bcmp", "syscall", "clock_gettime", "aligned_alloc", "free"),
        "libc.so.6",
    ),
    **dict.fromkeys(
        (
            f"{name}{suffix}"
            for name in ("fma", "round", "roundeven", "rint", "nearbyint", "floor", "ceil", "trunc", "ldexp")
            for suffix in ("", "f")
        ),
        "libm.so.6",
    ),
}

POOL_OFFSET: Final = 0
PARALLEL_OFFSET: Final = 8
REPORT_OFFSET: Final = 16
STATUS_OFFSET: Final = 24
THREADS_OFFSET: Final = 32
DEVICE_OFFSET: Final = 40
STAGE_OFFSET: Final = 48
POLL_OFFSET: Final = 56
OWNER_OFFSET: Final = 64
COLLECTIVES_OFFSET: Final = 72
CONTEXT_SIZE: Final = 80

INTERRUPTED: Final = -1
NO_MEMORY: Final = -2
STOPPED: Final = 1 << 41  # a check of a simulated device found something

# task(argument, chunk): one chunk of a parallel region; `argument` begins with the address of the context.
TaskFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

# parallel(pool, chunks, task, argument): runs every chunk of 0 .. chunks-1 exactly once, and returns when all are done.
ParallelFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)

# report(context, site, arguments): prints and failures; `arguments` is an array of int64 bit patterns, as long as the
# site says. Code of ABI 1 calls report(site, arguments).
ReportFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
SilentReportFunction = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))

# A traced entry also reports when a group begins and when it ends: sites below zero, without arguments.


def begins(group: int) -> int:
    """The site that says that a group begins."""
    return -1 - 2 * group


def ends(group: int) -> int:
    """The site that says that a group has ended."""
    return -2 - 2 * group


# poll(context, now): what long loops call from time to time, from any thread; it may set the status to INTERRUPTED.
# Where a host has none, the field is null, and nothing is ever interrupted. Older code does not call it.
PollFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)

# entry(context, pointers, dims) -> 0, or nonzero after a failure.
EntryFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Context(ctypes.Structure):
    """What an entry gets next to its buffers.

    `parallel` may be null: the entry then runs its chunks itself, in order. `status` is 0, or 1 + the site of a
    failure, or INTERRUPTED, or NO_MEMORY: code that sees another status than 0 ends as soon as it can. `threads`
    counts the pool's threads, the caller included, and is at least 1. `device` is a `DeviceTable` for entries that
    launch kernels, else null. `poll` may be null. `owner`, which code does not look at, identifies the receiver of the
    reports. `collectives` points to what collectives call (see `contract.exchange`); null for code without any.
    """

    _fields_ = (
        ("pool", ctypes.c_void_p),
        ("parallel", ctypes.c_void_p),
        ("report", ctypes.c_void_p),
        ("status", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("device", ctypes.c_void_p),
        ("stage", ctypes.c_int64),
        ("poll", ctypes.c_void_p),
        ("owner", ctypes.c_int64),
        ("collectives", ctypes.c_void_p),
    )


# *** devices ***

WITHIN: Final = 0  # kinds of copies: within the device, ordered with its launches
TO_DEVICE: Final = 1
TO_HOST: Final = 2  # returns when the bytes are there


class Launch(ctypes.Structure):
    """One launch of a kernel: its number in the table, sizes in blocks and threads, bytes of dynamic shared memory.

    `flags` are 0.
    """

    _fields_ = (
        ("kernel", ctypes.c_int32),
        ("grid", ctypes.c_int32 * 3),
        ("block", ctypes.c_int32 * 3),
        ("cluster", ctypes.c_int32 * 3),
        ("shared", ctypes.c_int32),
        ("flags", ctypes.c_int32),
    )


# launch(device, launch, arguments) -> 0, or the driver's code. `arguments[k]` points to 8 bytes with parameter k of the
# kernel: an address, or a number in the low bytes, with zeros above it; or to the bytes of a tensor map.
LaunchFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(Launch), ctypes.c_void_p)

# copy(device, to, from, bytes, kind) -> 0, or the driver's code.
CopyFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
)

# fill(device, to, pattern, count, width) -> 0, or the driver's code: `count` numbers of `width` bytes.
FillFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
)


class TensorMapRequest(ctypes.Structure):
    """What a tensor map is to say: the tensor in memory, innermost axis first, and the box of it that one copy takes.

    Fields:
        address: of the first element, a multiple of 16.
        sizes: of the tensor along each axis.
        strides: bytes between neighbours along each axis but the first, whose neighbours lie side by side.
        rank: how many axes there are, 1 to 5.
        element: how many bytes an element has: 1, 2, 4 or 8.
        swizzle: pieces of 16 bytes are exchanged within so many bytes of shared memory: 0 (none), 32, 64 or 128.
        box: the sizes of the box.
    """

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("sizes", ctypes.c_uint64 * 5),
        ("strides", ctypes.c_uint64 * 4),
        ("rank", ctypes.c_uint32),
        ("element", ctypes.c_uint32),
        ("swizzle", ctypes.c_uint32),
        ("box", ctypes.c_uint32 * 5),
    )


TENSOR_MAP_SIZE: Final = 128  # bytes of a tensor map, which lies at a multiple of 64
TENSOR_MAP_RANK: Final = 5  # axes that one has at most

# encode(device, request, to) -> 0, or the driver's code: writes the tensor map of a `TensorMapRequest`.
EncodeFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(TensorMapRequest), ctypes.c_void_p)

ScratchFunction = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


class DeviceTable(ctypes.Structure):
    """How an entry reaches its device: functions, and what these need. Each caller of the entry has one of its own.

    Fields:
        launch, copy, fill: the functions above; each gets the address of this structure first.
        stream: the driver's, on which all of them are ordered.
        functions: the driver's handle of each kernel of the table, by its number.
        driver: the address of the driver's own function that `launch` calls; of a simulated device, what it draws
            the order of threads from, or 0.
        scratch, scratch_size: memory of the device for this call; see `SCRATCH`.
        reports: where kernels report, in memory that host and device reach; null when they do not.
        failed_kernel, failed_code: after a function gave another code than 0: the kernel, or -1, and the code.
        context: that of the call, for a device that is simulated, and for waits, which it may interrupt.
        schedule: for one too, the order of blocks and threads (see `schedules.Schedule`), or null.
        encode: the function above, for code with tensor maps alone; null where the device has none.
    """

    _fields_ = (
        ("launch", ctypes.c_void_p),
        ("copy", ctypes.c_void_p),
        ("fill", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("functions", ctypes.c_void_p),
        ("driver", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("scratch_size", ctypes.c_int64),
        ("reports", ctypes.c_void_p),
        ("failed_kernel", ctypes.c_int64),
        ("failed_code", ctypes.c_int64),
        ("context", ctypes.c_void_p),
        ("schedule", ctypes.c_void_p),
        ("encode", ctypes.c_void_p),
    )


LAUNCH_SIZE: Final = 48

# What kernels report, as words of 8 bytes. A record is the number of the site + 1, the block and the thread (x, y, z
# each), how many values there are, and the values. The first failure is the record at 0: a thread that finds 0 there
# writes it. Prints follow each other from `RING_PRINTS` on; before them, how many words they take, and how many found
# no room.
RING_WORDS: Final = 8192
RING_HEAD: Final = 8  # words of a record before its values
RING_VALUES: Final = 120  # of a failure at most
RING_PRINTED: Final = 128
RING_DROPPED: Final = 129
RING_PRINTS: Final = 130

# The functions of a simulated device, in its code; a kernel there is a function (context, launch, arguments) -> 0, or 1
# after a failure.
SIM_LAUNCH: Final = "ek_sim_launch"
SIM_COPY: Final = "ek_sim_copy"
SIM_FILL: Final = "ek_sim_fill"
LAUNCH_FUNCTION_OFFSET: Final = 0
COPY_FUNCTION_OFFSET: Final = 8
FILL_FUNCTION_OFFSET: Final = 16
SCRATCH_OFFSET: Final = 48
REPORTS_OFFSET: Final = 64
FAILED_KERNEL_OFFSET: Final = 72
FAILED_CODE_OFFSET: Final = 80
ENCODE_FUNCTION_OFFSET: Final = 104


class PoolState(ctypes.Structure):
    """The memory of a thread pool, shared between its code (`compiler.runtime.thread_pool`) and its driver
    (`graph.driver.threads`).

    It must lie at a multiple of 64 bytes: what the caller writes, what the workers write and what is only read have
    cache lines of their own. All fields start as 0, but for `spin` and `workers`.

    Fields:
        epoch: the number of the last region, and the word that workers sleep on.
        sleepers: how many workers sleep, or are about to.
        state: epoch << 32 | open << 31 | active, where active counts the workers that joined the region.
        next: the next chunk to take.
        task, argument, chunks: the region itself; fixed while a worker is active.
        spin: how many times a worker looks for a new region before it sleeps.
        workers: how many workers there are; with none, regions run in the caller.
        stop: 1 when the workers shall return.
        busy: 1 while a region runs; another caller then runs its own region alone.
        core: where the caller ran when it last woke workers.
        main: the system's number of the thread that signals are for; 0 where signals are not looked for.
        due: from which time on, in nanoseconds, that thread looks for signals again.
        ensure, release, check, fetch: functions of Python that take and give back its lock, run the handlers of
            signals that came, and take the exception that a handler has raised.
        error: that exception: its type, value and traceback, each with a reference.
    """

    _fields_ = (
        ("epoch", ctypes.c_uint32),
        ("sleepers", ctypes.c_uint32),
        ("_line0", ctypes.c_uint8 * 56),
        ("state", ctypes.c_uint64),
        ("_line1", ctypes.c_uint8 * 56),
        ("next", ctypes.c_int64),
        ("_line2", ctypes.c_uint8 * 56),
        ("task", ctypes.c_void_p),
        ("argument", ctypes.c_void_p),
        ("chunks", ctypes.c_int64),
        ("spin", ctypes.c_int64),
        ("workers", ctypes.c_uint32),
        ("stop", ctypes.c_uint32),
        ("_line3", ctypes.c_uint8 * 24),
        ("busy", ctypes.c_uint32),
        ("core", ctypes.c_int32),
        ("_line4", ctypes.c_uint8 * 56),
        ("main", ctypes.c_int64),
        ("due", ctypes.c_int64),
        ("ensure", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("check", ctypes.c_void_p),
        ("fetch", ctypes.c_void_p),
        ("error", ctypes.c_void_p * 3),
        ("_line5", ctypes.c_uint8 * 56),
    )
