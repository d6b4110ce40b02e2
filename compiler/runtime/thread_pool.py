"""The code of the thread pool: a few hundred bytes of machine code that start and join parallel regions.

    void ek_pool_run(pool, chunks, task, argument)   runs task(argument, i) for every i in 0 .. chunks-1, exactly once
    void ek_pool_worker(pool)                        what a worker thread runs, until the pool is stopped
    int32_t ek_pool_stop(pool)                       1 when the workers were stopped, 0 while a region runs
    void ek_pool_poll(context, now)                  looks for signals, and stops the call when a handler raises

The state is `dsl.contract.abi.PoolState`; `graph.driver.threads` drives it: the workers are Python threads inside a
call that has released the interpreter's lock, so that no thread library, OpenMP or compiler is needed.

A region opens with one store and closes with one atomic operation; a thread that has not begun is not waited for:

    caller   busy: 0 -> 1 (else: run alone); write the region; state = epoch+1, open, 0; epoch += 1; wake sleepers
             take chunks until none is left; clear open; wait until active is 0; busy = 0
    worker   wait until epoch changes: spin, then sleep; while state is open and of that epoch: state += 1 by
             compare-and-swap (joined); take chunks until none is left; state -= 1

Where a worker wakes on the caller's own core, systems may leave it there for many milliseconds, so that both take turns
on one core while another is idle. The caller notes its core before it wakes workers, and a worker that finds itself
there excludes that core for a moment, which moves it to another. So that it gets there, a caller that has done all by
itself yields once.

A worker that wakes late finds the region closed, or another epoch, and goes back to waiting: it never delays a caller.
While it is active the caller cannot leave, so the region's fields stay as they are. Nested regions and regions of other
threads find `busy` set and run in their caller. The orders are those of C11: the release store of `state` publishes the
region, each worker's release decrement publishes its work, and epoch against sleepers is sequentially consistent on
both sides, so that no wake-up is lost.

Python handles signals only between two steps of the main thread, and that thread is in native code.
So code polls, and a poll of the main thread lets Python run its handlers, ten times a second: it takes the
interpreter's lock for that. Where a handler raises, the exception is kept and the context's status says INTERRUPTED.
"""

from __future__ import annotations

from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.abi import PoolState
from ...dsl.diagnostics.errors import TargetError
from ..codegen.llvm import compile_module
from ..targets import Target


def pool_object(target: Target) -> bytes:
    """The pool's code as a shared object.

    Raises:
        TargetError: the target is not a Linux CPU that the pool is written for.
    """
    return compile_module(pool_text(target), target, level=2).link("einkorn_pool.so")


def pool_text(target: Target) -> str:
    """The pool's code as LLVM IR.

    Raises:
        TargetError: the target is not a Linux CPU that the pool is written for.
    """
    system = target.system
    if system is None:
        raise TargetError(f"there is no thread pool for {target.name}", code="EK0609")
    text = (_TEMPLATE + _POLL).replace("PAUSE", system.pause).replace("DECLARATION", system.declaration)
    text = text.replace("SYS_FUTEX", str(system.futex)).replace("SYS_YIELD", str(system.sched_yield))
    for name in ("getcpu", "getaffinity", "setaffinity"):
        text = text.replace(f"SYS_{name.upper()}", str(getattr(system, name)))
    text = text.replace("SYS_GETTID", str(system.gettid)).replace("INTERVAL", str(INTERVAL))
    text = text.replace("STATUS_OFFSET", str(abi.STATUS_OFFSET)).replace("INTERRUPTED", str(abi.INTERRUPTED))
    return with_fields(text, "FIELD({})", "getelementptr inbounds i8, ptr %pool, i64 {}")


def with_fields(text: str, word: str, place: str) -> str:
    """A text with the places of the pool's fields: `word` has room for a field's name, `place` for its offset."""
    for name, *_ in PoolState._fields_:
        text = text.replace(word.format(name), place.format(getattr(PoolState, name).offset))
    return text


INTERVAL: Final = 100_000_000  # nanoseconds between two looks for signals

# FUTEX_WAIT | FUTEX_PRIVATE_FLAG = 128, FUTEX_WAKE | FUTEX_PRIVATE_FLAG = 129; the open bit is 1 << 31.
_TEMPLATE: Final = """
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
DECLARATION

; Takes chunks until none is left.
define internal void @take_chunks(ptr %pool, ptr %task, ptr %argument, i64 %chunks) {
entry:
  %next = FIELD(next)
  br label %take
take:
  %chunk = atomicrmw add ptr %next, i64 1 monotonic
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %run, label %done
run:
  call void %task(ptr %argument, i64 %chunk)
  br label %take
done:
  ret void
}

define internal i32 @core_of_this_thread() {
entry:
  %core.at = alloca i32, align 4
  store i32 -1, ptr %core.at, align 4
  %queried = call i64 (i64, ...) @syscall(i64 SYS_GETCPU, ptr %core.at, ptr null, ptr null)
  %core = load i32, ptr %core.at, align 4
  ret i32 %core
}

; Moves this thread away from a core that it shares with the caller; nothing where it may run on no other.
define internal void @step_aside(i32 %core) {
entry:
  %mask = alloca [128 x i64], align 8
  %bytes = call i64 (i64, ...) @syscall(i64 SYS_GETAFFINITY, i32 0, i64 1024, ptr %mask)
  %core64 = zext i32 %core to i64
  %needed = lshr i64 %core64, 3
  %known = icmp sgt i64 %bytes, %needed
  br i1 %known, label %without, label %end
without:
  %word.number = lshr i64 %core64, 6
  %bit.number = and i64 %core64, 63
  %bit = shl i64 1, %bit.number
  %excluded = xor i64 %bit, -1
  %word = getelementptr inbounds i64, ptr %mask, i64 %word.number
  %all = load i64, ptr %word, align 8
  %rest = and i64 %all, %excluded
  store i64 %rest, ptr %word, align 8
  %moved = call i64 (i64, ...) @syscall(i64 SYS_SETAFFINITY, i32 0, i64 %bytes, ptr %mask)
  store i64 %all, ptr %word, align 8
  %restored = call i64 (i64, ...) @syscall(i64 SYS_SETAFFINITY, i32 0, i64 %bytes, ptr %mask)
  br label %end
end:
  ret void
}

define void @ek_pool_worker(ptr %pool) {
entry:
  %epoch = FIELD(epoch)
  %sleepers = FIELD(sleepers)
  %state = FIELD(state)
  %task.at = FIELD(task)
  %argument.at = FIELD(argument)
  %chunks.at = FIELD(chunks)
  %spin.at = FIELD(spin)
  %stop = FIELD(stop)
  %core.at = FIELD(core)
  br label %wait
wait:                                               ; %seen is the last epoch this worker looked at
  %seen = phi i32 [ 0, %entry ], [ %now, %look ], [ %now, %leave ]
  %spin = load atomic i64, ptr %spin.at monotonic, align 8
  br label %spin.test
spin.test:
  %turn = phi i64 [ 0, %wait ], [ %turn.next, %spin.again ]
  %spun = load atomic i32, ptr %epoch acquire, align 4
  %changed = icmp ne i32 %spun, %seen
  br i1 %changed, label %awake, label %spin.more
spin.more:
  %spinning = icmp slt i64 %turn, %spin
  br i1 %spinning, label %spin.again, label %sleep
spin.again:
  PAUSE
  %turn.next = add i64 %turn, 1
  br label %spin.test
sleep:                                              ; the kernel looks at the epoch again before it sleeps
  %slept = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %waited = call i64 (i64, ...) @syscall(i64 SYS_FUTEX, ptr %epoch, i32 128, i32 %seen, ptr null)
  %woken = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %later = load atomic i32, ptr %epoch acquire, align 4
  %spurious = icmp eq i32 %later, %seen
  br i1 %spurious, label %sleep, label %placed
placed:
  %here = call i32 @core_of_this_thread()
  %there = load atomic i32, ptr %core.at monotonic, align 4
  %together = icmp eq i32 %here, %there
  br i1 %together, label %part, label %awake
part:
  call void @step_aside(i32 %here)
  br label %awake
awake:
  %now = load atomic i32, ptr %epoch acquire, align 4
  %stopped = load atomic i32, ptr %stop acquire, align 4
  %stopping = icmp ne i32 %stopped, 0
  br i1 %stopping, label %end, label %look.first
look.first:
  %first = load atomic i64, ptr %state acquire, align 8
  br label %look
look:                                               ; join only an open region of the epoch that woke this worker
  %found = phi i64 [ %first, %look.first ], [ %other, %join ]
  %found.epoch64 = lshr i64 %found, 32
  %found.epoch = trunc i64 %found.epoch64 to i32
  %current = icmp eq i32 %found.epoch, %now
  %open.bit = and i64 %found, 2147483648
  %open = icmp ne i64 %open.bit, 0
  %joinable = and i1 %current, %open
  br i1 %joinable, label %join, label %wait
join:
  %counted = add i64 %found, 1
  %swap = cmpxchg ptr %state, i64 %found, i64 %counted acq_rel acquire
  %other = extractvalue { i64, i1 } %swap, 0
  %joined = extractvalue { i64, i1 } %swap, 1
  br i1 %joined, label %work, label %look
work:
  %task = load ptr, ptr %task.at, align 8
  %argument = load ptr, ptr %argument.at, align 8
  %chunks = load i64, ptr %chunks.at, align 8
  call void @take_chunks(ptr %pool, ptr %task, ptr %argument, i64 %chunks)
  br label %leave
leave:
  %left = atomicrmw sub ptr %state, i64 1 release
  br label %wait
end:
  ret void
}

define void @ek_pool_run(ptr %pool, i64 %chunks, ptr %task, ptr %argument) {
entry:
  %epoch = FIELD(epoch)
  %sleepers = FIELD(sleepers)
  %state = FIELD(state)
  %next = FIELD(next)
  %task.at = FIELD(task)
  %argument.at = FIELD(argument)
  %chunks.at = FIELD(chunks)
  %workers.at = FIELD(workers)
  %busy = FIELD(busy)
  %core.at = FIELD(core)
  %workers = load atomic i32, ptr %workers.at monotonic, align 4
  %no.workers = icmp eq i32 %workers, 0
  %one.chunk = icmp slt i64 %chunks, 2
  %alone = or i1 %no.workers, %one.chunk
  br i1 %alone, label %serial, label %acquire
acquire:                                            ; a nested region, or one of another thread, runs in its caller
  %swap = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %acquired = extractvalue { i32, i1 } %swap, 1
  br i1 %acquired, label %publish, label %serial
publish:
  store ptr %task, ptr %task.at, align 8
  store ptr %argument, ptr %argument.at, align 8
  store i64 %chunks, ptr %chunks.at, align 8
  store atomic i64 0, ptr %next monotonic, align 8
  %old = load atomic i32, ptr %epoch monotonic, align 4
  %new = add i32 %old, 1
  %new64 = zext i32 %new to i64
  %high = shl i64 %new64, 32
  %opened = or i64 %high, 2147483648
  store atomic i64 %opened, ptr %state release, align 8
  store atomic i32 %new, ptr %epoch seq_cst, align 4
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %anyone = icmp ne i32 %asleep, 0
  br i1 %anyone, label %wake, label %own
wake:                                               ; the caller takes a chunk itself
  %core = call i32 @core_of_this_thread()
  store atomic i32 %core, ptr %core.at monotonic, align 4
  %helpers = sub i64 %chunks, 1
  %few = icmp slt i64 %helpers, 2147483647
  %bounded = select i1 %few, i64 %helpers, i64 2147483647
  %count = trunc i64 %bounded to i32
  %woke = call i64 (i64, ...) @syscall(i64 SYS_FUTEX, ptr %epoch, i32 129, i32 %count)
  %woke32 = trunc i64 %woke to i32
  %left = sub i32 %asleep, %woke32
  br label %own
own:
  %others = phi i32 [ 2147483647, %publish ], [ %left, %wake ]
  call void @take_chunks(ptr %pool, ptr %task, ptr %argument, i64 %chunks)
  %closed = atomicrmw and ptr %state, i64 -2147483649 acq_rel
  %still = load atomic i32, ptr %sleepers monotonic, align 4
  %late = icmp sgt i32 %still, %others
  br i1 %late, label %let, label %join
let:                                                ; the woken thread has not run: it may wait for this core
  %let.run = call i64 (i64, ...) @syscall(i64 SYS_YIELD)
  br label %join
join:
  %turn = phi i64 [ 1, %own ], [ 1, %let ], [ %turn.next, %join.again ]
  %now = load atomic i64, ptr %state acquire, align 8
  %active = and i64 %now, 2147483647
  %finished = icmp eq i64 %active, 0
  br i1 %finished, label %release, label %join.more
join.more:                                          ; a worker that lost its core gets it sooner when this one yields
  PAUSE
  %turn.next = add i64 %turn, 1
  %masked = and i64 %turn, 255
  %long = icmp eq i64 %masked, 0
  br i1 %long, label %yield, label %join.again
yield:
  %yielded = call i64 (i64, ...) @syscall(i64 SYS_YIELD)
  call void @listen(ptr %pool, ptr %argument)
  br label %join.again
join.again:
  br label %join
release:
  store atomic i32 0, ptr %busy release, align 4
  call void @listen(ptr %pool, ptr %argument)
  ret void
serial:
  br label %serial.test
serial.test:
  %chunk = phi i64 [ 0, %serial ], [ %chunk.next, %serial.run ]
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %serial.run, label %serial.end
serial.run:
  call void %task(ptr %argument, i64 %chunk)
  %chunk.next = add i64 %chunk, 1
  br label %serial.test
serial.end:
  ret void
}

; Leaves `busy` set for good: regions after the end run in their caller.
define i32 @ek_pool_stop(ptr %pool) {
entry:
  %epoch = FIELD(epoch)
  %stop = FIELD(stop)
  %busy = FIELD(busy)
  %swap = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %acquired = extractvalue { i32, i1 } %swap, 1
  br i1 %acquired, label %notify, label %refuse
notify:
  store atomic i32 1, ptr %stop release, align 4
  %old = atomicrmw add ptr %epoch, i32 1 seq_cst
  %woke = call i64 (i64, ...) @syscall(i64 SYS_FUTEX, ptr %epoch, i32 129, i32 2147483647)
  ret i32 1
refuse:
  ret i32 0
}
"""

_POLL: Final = """
; Polls for a region, where signals are checked: its argument begins with the context.
define internal void @listen(ptr %pool, ptr %argument) {
entry:
  %main.at = FIELD(main)
  %main = load atomic i64, ptr %main.at monotonic, align 8
  %unwatched = icmp eq i64 %main, 0
  br i1 %unwatched, label %end, label %poll
poll:
  %context = load ptr, ptr %argument, align 8
  call void @ek_pool_poll(ptr %context, i32 0)
  br label %end
end:
  ret void
}

define void @ek_pool_poll(ptr %context, i32 %now) {
entry:
  %time = alloca [2 x i64], align 8
  %status.at = getelementptr inbounds i8, ptr %context, i64 STATUS_OFFSET
  %pool = load ptr, ptr %context, align 8
  %main.at = FIELD(main)
  %due.at = FIELD(due)
  %status = load atomic i64, ptr %status.at monotonic, align 8
  %over = icmp ne i64 %status, 0
  br i1 %over, label %end, label %clock
clock:                                              ; CLOCK_MONOTONIC = 1: seconds and nanoseconds
  %main = load atomic i64, ptr %main.at monotonic, align 8
  %clock.status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr inbounds i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %nanoseconds = add i64 %whole, %rest
  %due = load atomic i64, ptr %due.at monotonic, align 8
  %late = icmp sge i64 %nanoseconds, %due
  %forced = icmp ne i32 %now, 0
  %look = or i1 %late, %forced
  br i1 %look, label %thread, label %end
thread:                                             ; signals are for the main thread alone
  %self = call i64 (i64, ...) @syscall(i64 SYS_GETTID)
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %receive, label %end
receive:
  %later = add i64 %nanoseconds, INTERVAL
  store atomic i64 %later, ptr %due.at monotonic, align 8
  %ensure.at = FIELD(ensure)
  %ensure = load ptr, ptr %ensure.at, align 8
  %check.at = FIELD(check)
  %check = load ptr, ptr %check.at, align 8
  %release.at = FIELD(release)
  %release = load ptr, ptr %release.at, align 8
  %lock = call i32 %ensure()
  %result = call i32 %check()
  %raised = icmp ne i32 %result, 0
  br i1 %raised, label %keep, label %leave
keep:
  %fetch.at = FIELD(fetch)
  %fetch = load ptr, ptr %fetch.at, align 8
  %type.at = FIELD(error)
  %value.at = getelementptr inbounds i8, ptr %type.at, i64 8
  %trace.at = getelementptr inbounds i8, ptr %type.at, i64 16
  call void %fetch(ptr %type.at, ptr %value.at, ptr %trace.at)
  store atomic i64 INTERRUPTED, ptr %status.at monotonic, align 8
  br label %leave
leave:
  call void %release(i32 %lock)
  br label %end
end:
  ret void
}
"""
