"""The scheduler of threads that wait for each other: LLVM IR that is added to every module with such threads.

    @ek.run_blocks(argument, chunk)     a task of the pool: runs its part of the blocks of a launch, one after the other
    @ek.run_cluster                     the blocks of a cluster: each until all wait for the others, then again
    @ek.run_block                       runs all threads until they wait for the block, lets them go on, and so on; on a
                                        simulated device in an order that is drawn, where it has a seed
    @ek.run_warp                        the same for the threads of a warp
    @ek.sync                            resumes threads whose partners have all arrived

A thread is a coroutine, whose frame begins with the address of the function that goes on with it. The frames of a
block, its records and its shared memory lie in one piece: on the stack of the thread that runs it while they are small,
else in pages of the system, for as long as the task takes.

Where no thread can go on and some have not ended, they have parted: at another place, or some have ended. That is
reported, and ends the call. So does whatever else has failed, or interrupted it: the status of the context says so.

LLVM makes vectors of loops over records, and writes them out, at a tenth of a second a module: so what runs once a
block or less is left as it is (`optnone`), and the rest is kept short.

See also `lowering.coroutines` (what threads do).
"""

from __future__ import annotations

import ctypes
import re
from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.checking import CheckState
from ...dsl.contract.schedules import BLOCKS, Schedule, ScheduleRow
from ...dsl.diagnostics.errors import InternalError
from ..ir.simulation import (
    FRAME_ALIGNMENT,
    SHARED_ALIGNMENT,
    SLOT_BYTES,
    WAITER,
    WAITERS,
    WAITING_VALUES,
    Argument,
    BlockRecord,
    State,
    Thread,
    offset,
)
from ..targets import Target
from .clusters import CLUSTERS
from .orders import DRAWN, IN_ORDER, MOST_THREADS
from .reports import NOT_REPORTING, REPORT_PARTING, REPORTING
from .spins import NO_SPINS, PATIENCE, ROUNDS, SPINS, YIELDING

ON_STACK: Final = 512 << 10  # bytes of a block's memory that lie on a stack; threads have 2 MiB to spare at least

_FIELD: Final = re.compile(
    r"\b(Thread|Block|Argument|Context|Device|CheckState|Schedule|ScheduleRow)\.(\w+)\((%[\w.]+)\)"
)
_STRUCTURES: Final[dict[str, type[ctypes.Structure]]] = {
    "Thread": Thread,
    "Block": BlockRecord,
    "Argument": Argument,
    "Context": abi.Context,
    "Device": abi.DeviceTable,
    "CheckState": CheckState,
    "Schedule": Schedule,
    "ScheduleRow": ScheduleRow,
}


def scheduler_text(target: Target, *, spins: bool = False) -> str:
    """The scheduler's code as LLVM IR; `spins` if threads wait in loops for others to change memory.

    Raises:
        InternalError: the target is not a CPU whose system is known.
    """
    system = target.system
    if system is None:
        raise InternalError(f"no threads are run on {target.name}")

    def address(match: re.Match[str]) -> str:
        return f"getelementptr inbounds i8, ptr {match[3]}, i64 {offset(_STRUCTURES[match[1]], match[2])}"

    text = (
        _TEMPLATE
        + CLUSTERS
        + REPORT_PARTING
        + (SPINS if spins else NO_SPINS)
        + (YIELDING if spins and target.simulates else "")
    )
    text += REPORTING if target.checks_memory else NOT_REPORTING
    text = _FIELD.sub(address, text + (DRAWN if target.simulates else IN_ORDER))
    numbers = {state.name: int(state) for state in State} | {
        "SIZE_OF_THREAD": ctypes.sizeof(Thread),
        "SIZE_OF_BLOCK": ctypes.sizeof(BlockRecord),
        "SIZE_OF_ROW": ctypes.sizeof(ScheduleRow),
        "BLOCKS": BLOCKS,
        "MOST_THREADS": MOST_THREADS,
        "SLOTS": 2 * SLOT_BYTES,
        "SLOT": SLOT_BYTES,
        "LINE_LESS": FRAME_ALIGNMENT - 1,
        "LINES": -FRAME_ALIGNMENT,
        "LINE": FRAME_ALIGNMENT,
        "SHARED_LESS": SHARED_ALIGNMENT - 1,
        "SHARED_LINES": -SHARED_ALIGNMENT,
        "ON_STACK": ON_STACK,
        "SYS_MMAP": system.mmap,
        "SYS_MUNMAP": system.munmap,
        "NO_MEMORY": abi.NO_MEMORY,
        "SHARED_AND_LINE_LESS": SHARED_ALIGNMENT + FRAME_ALIGNMENT - 2,
        "ROUNDS_STILL": ROUNDS,
        "PATIENCE": PATIENCE,
        "WAITERS": WAITERS,
        "WAITER_BYTES": 8 * WAITER,
        "WAITING_VALUES": WAITING_VALUES,
        "WAITING_BYTES": 8 * WAITING_VALUES,
    }
    return re.sub(rf"\b({'|'.join(numbers)})\b", lambda match: str(numbers[match[0]]), text)


_TEMPLATE: Final = """
declare i64 @syscall(i64, ...)

; Begins a thread, or goes on with it.
define internal void @ek.step(ptr %argument, ptr %thread) alwaysinline {
entry:
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %new = icmp eq i64 %state, NEW
  br i1 %new, label %begin, label %resume
begin:
  %function.at = Argument.thread(%argument)
  %function = load ptr, ptr %function.at, align 8
  call void %function(ptr %thread, ptr %argument)
  ret void
resume:
  %frame.at = Thread.frame(%thread)
  %frame = load ptr, ptr %frame.at, align 8
  %rest = load ptr, ptr %frame, align 8
  call fastcc void %rest(ptr %frame)
  ret void
}

; Lets a thread go on that can; says whether it then waits for its warp.
define internal i1 @ek.go_on(ptr %argument, ptr %thread) alwaysinline {
entry:
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %ready = icmp eq i64 %state, READY
  %new = icmp eq i64 %state, NEW
  %runs = or i1 %ready, %new
  br i1 %runs, label %step, label %stepped
step:
  call void @ek.step(ptr %argument, ptr %thread)
  br label %stepped
stepped:
  %now = load i64, ptr %state.at, align 8
  %waits = icmp eq i64 %now, WARP
  ret i1 %waits
}

; Whether the call shall end.
define internal i1 @ek.is_over(ptr %argument) alwaysinline {
entry:
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %status.at = Context.status(%context)
  %status = load atomic i64, ptr %status.at monotonic, align 8
  %over = icmp ne i64 %status, 0
  ret i1 %over
}

; Resumes threads in a state whose partners have all arrived; returns whether there are any. Those that may sync are
; looked for once from each thread that waits: where all have come to one place, that is once.
define internal i1 @ek.sync(ptr %block, ptr %threads, i64 %count, i64 %kind) minsize optsize noinline {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %again ]
  %any = phi i1 [ false, %entry ], [ %any.next, %again ]
  %first = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %first.state.at = Thread.state(%first)
  %first.state = load i64, ptr %first.state.at, align 8
  %waits = icmp eq i64 %first.state, %kind
  br i1 %waits, label %gather, label %again
gather:
  %key.at = Thread.key(%first)
  %key = load i64, ptr %key.at, align 8
  %wanted.at = Thread.wanted(%first)
  %wanted = load i64, ptr %wanted.at, align 8
  br label %look
look:                                               ; threads that wait for the same
  %j = phi i64 [ 0, %gather ], [ %j.next, %look ]
  %here = phi i64 [ 0, %gather ], [ %here.next, %look ]
  %members = phi i64 [ 0, %gather ], [ %members.next, %look ]
  %ballot = phi i64 [ 0, %gather ], [ %ballot.next, %look ]
  %other = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %j
  %state.at = Thread.state(%other)
  %state = load i64, ptr %state.at, align 8
  %other.key.at = Thread.key(%other)
  %other.key = load i64, ptr %other.key.at, align 8
  %other.wanted.at = Thread.wanted(%other)
  %other.wanted = load i64, ptr %other.wanted.at, align 8
  %vote.at = Thread.vote(%other)
  %vote = load i64, ptr %vote.at, align 8
  %same.state = icmp eq i64 %state, %kind
  %same.key = icmp eq i64 %other.key, %key
  %same.wanted = icmp eq i64 %other.wanted, %wanted
  %same.place = and i1 %same.state, %same.key
  %same = and i1 %same.place, %same.wanted
  %one = zext i1 %same to i64
  %here.next = add i64 %here, %one
  %shift = and i64 %j, 63
  %bit = shl i64 %one, %shift
  %members.next = or i64 %members, %bit
  %says = and i64 %vote, %one
  %yes = shl i64 %says, %shift
  %ballot.next = or i64 %ballot, %yes
  %j.next = add i64 %j, 1
  %more = icmp slt i64 %j.next, %count
  br i1 %more, label %look, label %decide
decide:
  %warp = icmp eq i64 %kind, WARP
  %whole = icmp eq i64 %wanted, 0
  %counted = select i1 %whole, i64 %count, i64 %wanted
  %full.count = icmp eq i64 %here.next, %counted
  %empty = sub i64 64, %count
  %empty.shift = and i64 %empty, 63
  %existing = lshr i64 -1, %empty.shift
  %queried = select i1 %whole, i64 -1, i64 %wanted
  %mask = and i64 %queried, %existing
  %there = and i64 %members.next, %mask
  %full.mask = icmp eq i64 %there, %mask
  %full = select i1 %warp, i1 %full.mask, i1 %full.count
  br i1 %full, label %release, label %again
release:
  %low.at = Thread.number(%threads)
  %low = load i64, ptr %low.at, align 8
  %high = add i64 %low, %count
  call void @ek.check_sync(ptr %block, ptr %first, i64 %kind, i64 %low, i64 %high)
  %slots.at = Block.slots(%block)
  %slots = load ptr, ptr %slots.at, align 8
  %exchanges = icmp ne ptr %slots, null
  %copies = and i1 %warp, %exchanges
  br label %let
let:
  %k = phi i64 [ 0, %release ], [ %k.next, %let.next ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %k
  %thread.state.at = Thread.state(%thread)
  %thread.state = load i64, ptr %thread.state.at, align 8
  %thread.key.at = Thread.key(%thread)
  %thread.key = load i64, ptr %thread.key.at, align 8
  %thread.wanted.at = Thread.wanted(%thread)
  %thread.wanted = load i64, ptr %thread.wanted.at, align 8
  %is.state = icmp eq i64 %thread.state, %kind
  %is.key = icmp eq i64 %thread.key, %key
  %is.wanted = icmp eq i64 %thread.wanted, %wanted
  %is.place = and i1 %is.state, %is.key
  %is.synced = and i1 %is.place, %is.wanted
  br i1 %is.synced, label %go, label %let.next
go:
  store i64 READY, ptr %thread.state.at, align 8
  %members.at = Thread.members(%thread)
  store i64 %there, ptr %members.at, align 8
  %ballot.at = Thread.ballot(%thread)
  store i64 %ballot.next, ptr %ballot.at, align 8
  br i1 %copies, label %copy, label %let.next
copy:
  %number.at = Thread.number(%thread)
  %number = load i64, ptr %number.at, align 8
  %given = getelementptr inbounds [SLOTS x i8], ptr %slots, i64 %number
  %got = getelementptr inbounds i8, ptr %given, i64 SLOT
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %got, ptr align 8 %given, i64 SLOT, i1 false)
  br label %let.next
let.next:
  %k.next = add i64 %k, 1
  %let.more = icmp slt i64 %k.next, %count
  br i1 %let.more, label %let, label %again
again:
  %any.next = phi i1 [ %any, %next ], [ %any, %decide ], [ true, %let.next ]
  %i.next = add i64 %i, 1
  %i.more = icmp slt i64 %i.next, %count
  br i1 %i.more, label %next, label %end
end:
  ret i1 %any.next
}

; Runs the threads of a warp until none can go on without another warp.
define internal void @ek.run_warp(ptr %argument, ptr %block, ptr %threads, i64 %count) minsize optsize noinline {
entry:
  br label %round
round:
  br label %next
next:
  %i = phi i64 [ 0, %round ], [ %i.next, %next ]
  %any = phi i1 [ false, %round ], [ %any.next, %next ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %waits = call i1 @ek.go_on(ptr %argument, ptr %thread)
  %any.next = or i1 %any, %waits
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %check
check:
  br i1 %any.next, label %look, label %end
look:
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %end, label %sync
sync:
  %synced = call i1 @ek.sync(ptr %block, ptr %threads, i64 %count, i64 WARP)
  br i1 %synced, label %round, label %spin
spin:
  %spins = call i1 @ek.any_spins(ptr %threads, i64 %count)
  br i1 %spins, label %end, label %part
part:
  call void @ek.report_parting(ptr %block, ptr %threads, i64 %count)
  br label %end
end:
  ret void
}

; Lets all threads of a block begin anew.
define internal void @ek.begin_threads(ptr %block) optnone noinline {
entry:
  %threads.at = Block.threads(%block)
  %threads = load ptr, ptr %threads.at, align 8
  %count.at = Block.count(%block)
  %count = load i64, ptr %count.at, align 8
  %frames.at = Block.frames(%block)
  %frames = load ptr, ptr %frames.at, align 8
  %bytes.at = Block.frame_bytes(%block)
  %bytes = load i64, ptr %bytes.at, align 8
  br label %begin
begin:
  %n = phi i64 [ 0, %entry ], [ %n.next, %begin ]
  %new = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %n
  %new.state = Thread.state(%new)
  store i64 NEW, ptr %new.state, align 8
  %new.frame = Thread.frame(%new)
  %place = mul i64 %n, %bytes
  %frame = getelementptr inbounds i8, ptr %frames, i64 %place
  store ptr %frame, ptr %new.frame, align 8
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %count
  br i1 %n.more, label %begin, label %end
end:
  ret void
}

; Lets threads go on that wait for the block, when none is left that could run; says whether any does.
define internal i1 @ek.sync_block(ptr %argument, ptr %block, ptr %threads, i64 %count) minsize optsize noinline {
entry:
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %end, label %compare
compare:                                            ; all at one barrier, or all at their end
  %zero.state.at = Thread.state(%threads)
  %zero.state = load i64, ptr %zero.state.at, align 8
  %zero.key.at = Thread.key(%threads)
  %zero.key = load i64, ptr %zero.key.at, align 8
  br label %test
test:
  %i = phi i64 [ 0, %compare ], [ %i.next, %test ]
  %all = phi i1 [ true, %compare ], [ %all.next, %test ]
  %alike = phi i1 [ true, %compare ], [ %alike.next, %test ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %key.at = Thread.key(%thread)
  %key = load i64, ptr %key.at, align 8
  %wanted.at = Thread.wanted(%thread)
  %wanted = load i64, ptr %wanted.at, align 8
  %same.state = icmp eq i64 %state, %zero.state
  %same.key = icmp eq i64 %key, %zero.key
  %whole = icmp eq i64 %wanted, 0
  %same = and i1 %same.key, %whole
  %all.next = and i1 %all, %same.state
  %alike.next = and i1 %alike, %same
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %test, label %decide
decide:
  %ended = icmp eq i64 %zero.state, ENDED
  %all.ended = and i1 %all.next, %ended
  br i1 %all.ended, label %end, label %away
away:                                               ; all wait for other blocks
  %of.cluster = icmp eq i64 %zero.state, CLUSTER
  %all.away = and i1 %all.next, %of.cluster
  br i1 %all.away, label %end, label %spin
spin:
  %of.spin = icmp eq i64 %zero.state, SPIN
  br i1 %of.spin, label %sync, label %barrier
barrier:
  %all.here = and i1 %all.next, %alike.next
  br i1 %all.here, label %all.sync, label %sync
all.sync:
  %low.at = Thread.number(%threads)
  %low = load i64, ptr %low.at, align 8
  %high = add i64 %low, %count
  call void @ek.check_sync(ptr %block, ptr %threads, i64 BLOCK, i64 %low, i64 %high)
  br label %release
release:
  %r = phi i64 [ 0, %all.sync ], [ %r.next, %release ]
  %released = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %r
  %released.state = Thread.state(%released)
  store i64 READY, ptr %released.state, align 8
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %count
  br i1 %r.more, label %release, label %again
sync:
  %spins = call i1 @ek.any_spins(ptr %threads, i64 %count)
  br i1 %spins, label %named, label %try
named:                                              ; a barrier of the whole block cannot be reached
  %some.sync = call i1 @ek.any_named(ptr %threads, i64 %count)
  br i1 %some.sync, label %try, label %end
try:
  %synced = call i1 @ek.sync(ptr %block, ptr %threads, i64 %count, i64 BLOCK)
  br i1 %synced, label %again, label %look
look:
  br i1 %spins, label %end, label %part
part:
  call void @ek.report_parting(ptr %block, ptr %threads, i64 %count)
  br label %end
again:
  ret i1 true
end:
  ret i1 false
}

; Runs a block from its beginning to its end, its threads in their order.
define internal void @ek.run_in_order(ptr %argument, ptr %block) minsize optsize noinline {
entry:
  %threads.at = Block.threads(%block)
  %threads = load ptr, ptr %threads.at, align 8
  %count.at = Block.count(%block)
  %count = load i64, ptr %count.at, align 8
  %lanes.at = Argument.lanes(%argument)
  %lanes = load i64, ptr %lanes.at, align 8
  br label %round
round:
  br label %warp
warp:
  %w = phi i64 [ 0, %round ], [ %w.next, %warp ]
  %first = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %w
  %left = sub i64 %count, %w
  %short = icmp slt i64 %left, %lanes
  %size = select i1 %short, i64 %left, i64 %lanes
  call void @ek.run_warp(ptr %argument, ptr %block, ptr %first, i64 %size)
  %w.next = add i64 %w, %lanes
  %w.more = icmp slt i64 %w.next, %count
  br i1 %w.more, label %warp, label %check
check:
  %again = call i1 @ek.sync_block(ptr %argument, ptr %block, ptr %threads, i64 %count)
  br i1 %again, label %round, label %end
end:
  ret void
}


define internal void @ek.run_on_stack(ptr %argument, i64 %total, i64 %bytes, i64 %count, i64 %low, i64 %high)
    optnone noinline {
entry:
  %memory = alloca i8, i64 %total, align LINE
  call void @ek.run_in(ptr %argument, ptr %memory, i64 %bytes, i64 %count, i64 %low, i64 %high)
  ret void
}

; Pages that are private and anonymous, and of which the system promises nothing: 0x4022.
define internal void @ek.run_in_pages(ptr %argument, i64 %total, i64 %bytes, i64 %count, i64 %low, i64 %high)
    optnone noinline {
entry:
  %got = call i64 (i64, ...) @syscall(i64 SYS_MMAP, ptr null, i64 %total, i64 3, i64 16418, i64 -1, i64 0)
  %failed = icmp eq i64 %got, -1
  br i1 %failed, label %none, label %some
none:
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %status.at = Context.status(%context)
  store atomic i64 NO_MEMORY, ptr %status.at monotonic, align 8
  ret void
some:
  %memory = inttoptr i64 %got to ptr
  call void @ek.run_in(ptr %argument, ptr %memory, i64 %bytes, i64 %count, i64 %low, i64 %high)
  %freed = call i64 (i64, ...) @syscall(i64 SYS_MUNMAP, ptr %memory, i64 %total)
  ret void
}

define internal void @ek.run_blocks(ptr %argument, i64 %chunk) optnone noinline {
entry:
  %probe = alloca [SIZE_OF_THREAD x i8], align LINE
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %end, label %query
query:
  call void @ek.check_start(ptr %argument, i64 %chunk)
  call void @ek.begin_launch(ptr %argument, i64 %chunk)
  %total.at = Argument.total(%argument)
  %blocks = load i64, ptr %total.at, align 8
  %step.at = Argument.step(%argument)
  %step = load i64, ptr %step.at, align 8
  %low = mul nsw i64 %chunk, %step
  %behind = add nsw i64 %low, %step
  %high = call i64 @llvm.smin.i64(i64 %behind, i64 %blocks)
  %function.at = Argument.thread(%argument)
  %function = load ptr, ptr %function.at, align 8
  %frame.at = Thread.frame(%probe)
  store ptr null, ptr %frame.at, align 8
  call void %function(ptr %probe, ptr %argument)
  %wanted = load i64, ptr %frame.at, align 8
  %wanted.more = add i64 %wanted, LINE_LESS
  %bytes = and i64 %wanted.more, LINES
  %x.at = Argument.block_x(%argument)
  %x = load i64, ptr %x.at, align 8
  %y.at = Argument.block_y(%argument)
  %y = load i64, ptr %y.at, align 8
  %z.at = Argument.block_z(%argument)
  %z = load i64, ptr %z.at, align 8
  %xy = mul i64 %x, %y
  %count = mul i64 %xy, %z
  %piece = call i64 @ek.cluster_bytes(ptr %argument, i64 %bytes, i64 %count)
  %pieces = call i64 @ek.residents(ptr %argument)
  %total = mul i64 %piece, %pieces
  %small = icmp ule i64 %total, ON_STACK
  br i1 %small, label %stack, label %pages
stack:
  call void @ek.run_on_stack(ptr %argument, i64 %total, i64 %bytes, i64 %count, i64 %low, i64 %high)
  br label %end
pages:
  call void @ek.run_in_pages(ptr %argument, i64 %total, i64 %bytes, i64 %count, i64 %low, i64 %high)
  br label %end
end:
  ret void
}
"""
