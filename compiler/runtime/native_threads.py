"""The thread pool of exported files, and their checks of stacks: machine code over the C library's threads.

    void ek_threads_enter(context, int64_t stack)     fills the context's pool, parallel and threads; starts nothing
    void ek_threads_set(int64_t threads)              how many take part, the caller included; 0: one a processor
    void ek_threads_host(parallel, pool, int64_t threads)    regions run by this function; null: by the pool again
    void ek_threads_close(void)                       ends the workers; the next region starts them anew

    int32_t ek_stack_has(int64_t bytes)               whether this thread has so much of its stack left
    int32_t ek_stack_call(function, argument, int64_t bytes)   function(argument) in a thread with so much stack

Workers start with the first region that has several chunks, and sleep after 0.1 ms without one. They block all signals,
which are for threads of the host. The library's destructor ends them. In the child of a fork there are none: it runs
regions alone until it closes the pool, after which it starts workers of its own. A fork is recognised by the number of
the process, because not every C library exports the function that reports forks.

`stack` is what the code needs of a worker's stack. Where workers have less, a call runs alone.

The bounds of a thread's stack are requested once a thread. They are of no use where a host switches stacks itself:
there `ek_stack_has` returns 1. See also `compiler.runtime.thread_pool` (how regions run).
"""

from __future__ import annotations

import ctypes
from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.abi import PoolState
from ...dsl.diagnostics.errors import TargetError
from ..codegen.kept import kept_object
from ..targets import Target
from ..targets.base import ThreadSystem
from .thread_pool import pool_text, with_fields

# The symbols that others may use, and the libraries that the code needs.
THREAD_FUNCTIONS: Final = ("ek_threads_enter", "ek_threads_set", "ek_threads_host", "ek_threads_close")
STACK_FUNCTIONS: Final = ("ek_stack_has", "ek_stack_call")
NEEDED: Final = ("libpthread.so.0", "libc.so.6")

MOST_THREADS: Final = 256
MARGIN: Final = 128 << 10  # bytes of a stack for all but the storage of code
FIRST_STACK: Final = (
    64 << 20
)  # bytes of the first thread's stack that count, where its limit is larger: Linux keeps 128 MiB
SPIN: Final = 100_000  # nanoseconds that a worker looks for a region before it sleeps


def threads_object(target: Target) -> bytes:
    """The pool as a relocatable object.

    Raises:
        TargetError: the target is not a Linux CPU.
    """
    system = _system(target)
    return kept_object(pool_text(target) + _filled(_THREADS + _SIGNALS, system) + system.float_modes, target)


def stack_object(target: Target) -> bytes:
    """The checks of stacks as a relocatable object.

    Raises:
        TargetError: the target is not a Linux CPU.
    """
    text = "declare i64 @syscall(i64, ...)\n" + _STACKS + _SIGNALS
    return kept_object(_filled(text, _system(target)), target)


def _system(target: Target) -> ThreadSystem:
    if target.system is None:
        raise TargetError(f"there are no threads for {target.name}", code="EK0609")
    return target.system


def _filled(text: str, system: ThreadSystem) -> str:
    numbers = {
        "SYS_SIGPROCMASK": system.sigprocmask,
        "SYS_NANOSLEEP": system.nanosleep,
        "SYS_GETAFFINITY": system.getaffinity,
        "SYS_GETPID": system.getpid,
        "SYS_GETTID": system.gettid,
        "POOL_SIZE": ctypes.sizeof(PoolState),
        "MOST_THREADS": MOST_THREADS,
        "MARGIN": MARGIN,
        "FIRST_STACK": FIRST_STACK,
        "SPIN_64": 64 * SPIN,
        "POOL_OFFSET": abi.POOL_OFFSET,
        "PARALLEL_OFFSET": abi.PARALLEL_OFFSET,
        "THREADS_OFFSET": abi.THREADS_OFFSET,
        "PAUSE": system.pause,
        "NO_MEMORY": abi.NO_MEMORY,
    }
    for name, value in numbers.items():
        text = text.replace(name, str(value))
    return with_fields(text, "STATE({})", "getelementptr inbounds (i8, ptr @pool, i64 {})")


# Blocks all signals of this thread, and restores them: SIG_SETMASK is 2, a set has 8 bytes.
_SIGNALS: Final = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)

; Creates a thread that gets no signals: 0, or an error number. The stack is a multiple of 64 KiB, the largest page.
define internal i32 @create(ptr %thread, ptr %function, ptr %argument, i64 %stack) {
entry:
  %attributes = alloca [128 x i8], align 16
  %all = alloca i64, align 8
  %before = alloca i64, align 8
  store i64 -1, ptr %all
  %ready = call i32 @pthread_attr_init(ptr %attributes)
  %failed = icmp ne i32 %ready, 0
  br i1 %failed, label %give_up, label %go
give_up:
  ret i32 %ready
go:
  %with.margin = add i64 %stack, MARGIN
  %more = add i64 %with.margin, 65535
  %size = and i64 %more, -65536
  %sized = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 %size)
  %blocked = call i64 (i64, ...) @syscall(i64 SYS_SIGPROCMASK, i32 2, ptr %all, ptr %before, i64 8)
  %created = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr %function, ptr %argument)
  %restored = call i64 (i64, ...) @syscall(i64 SYS_SIGPROCMASK, i32 2, ptr %before, ptr null, i64 8)
  %destroyed = call i32 @pthread_attr_destroy(ptr %attributes)
  ret i32 %created
}
"""

# `started`: 0 without workers, 1 while they start or end, 2 with workers. `started.stack` is what these have.
_THREADS: Final = """
@pool = internal global [POOL_SIZE x i8] zeroinitializer, align 64
@threads = internal global [MOST_THREADS x i64] zeroinitializer, align 8
@started = internal global i32 0, align 4
@started.stack = internal global i64 0, align 8
@process = internal global i64 0, align 8
@wanted = internal global i64 0, align 8
@stack = internal global i64 0, align 8
@host.parallel = internal global ptr null, align 8
@host.pool = internal global ptr null, align 8
@host.threads = internal global i64 0, align 8
@at.end = internal constant ptr @ek_threads_close, section ".fini_array"
@llvm.compiler.used = appending global [1 x ptr] [ptr @at.end], section "llvm.metadata"

declare i64 @llvm.ctpop.i64(i64)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

define void @ek_threads_set(i64 %threads) {
  %few = call i64 @llvm.umin.i64(i64 %threads, i64 MOST_THREADS)
  call void @ek_threads_close()
  store atomic i64 %few, ptr @wanted monotonic, align 8
  ret void
}

define void @ek_threads_host(ptr %parallel, ptr %pool, i64 %threads) {
  store atomic ptr null, ptr @host.parallel seq_cst, align 8
  store atomic ptr %pool, ptr @host.pool monotonic, align 8
  %some = call i64 @llvm.umax.i64(i64 %threads, i64 1)
  store atomic i64 %some, ptr @host.threads monotonic, align 8
  store atomic ptr %parallel, ptr @host.parallel release, align 8
  ret void
}

; How many processors this process may use; the bits of a mask of 8192.
define internal i64 @processors() {
entry:
  %mask = alloca [128 x i64], align 8
  %bytes = call i64 (i64, ...) @syscall(i64 SYS_GETAFFINITY, i32 0, i64 1024, ptr %mask)
  %words = ashr i64 %bytes, 3
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %i.next, %add ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %add ]
  %more = icmp slt i64 %i, %words
  br i1 %more, label %add, label %end
add:
  %at = getelementptr inbounds i64, ptr %mask, i64 %i
  %word = load i64, ptr %at
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %sum.next = add i64 %sum, %bits
  %i.next = add i64 %i, 1
  br label %test
end:
  %some = call i64 @llvm.umax.i64(i64 %sum, i64 1)
  %few = call i64 @llvm.umin.i64(i64 %some, i64 MOST_THREADS)
  ret i64 %few
}

define void @ek_threads_enter(ptr %context, i64 %stack) {
entry:
  %pool.at = getelementptr inbounds i8, ptr %context, i64 POOL_OFFSET
  %parallel.at = getelementptr inbounds i8, ptr %context, i64 PARALLEL_OFFSET
  %threads.at = getelementptr inbounds i8, ptr %context, i64 THREADS_OFFSET
  %host = load atomic ptr, ptr @host.parallel acquire, align 8
  %own = icmp eq ptr %host, null
  br i1 %own, label %count, label %given
given:
  %host.pool = load atomic ptr, ptr @host.pool monotonic, align 8
  %host.threads = load atomic i64, ptr @host.threads monotonic, align 8
  br label %fill
count:
  %known = load atomic i64, ptr @wanted monotonic, align 8
  %unknown = icmp eq i64 %known, 0
  br i1 %unknown, label %find, label %counted
find:
  %found = call i64 @processors()
  store atomic i64 %found, ptr @wanted monotonic, align 8
  br label %counted
counted:
  %threads = phi i64 [ %known, %count ], [ %found, %find ]
  %several = icmp ugt i64 %threads, 1
  br i1 %several, label %room, label %alone
room:
  %largest = load atomic i64, ptr @stack monotonic, align 8
  %larger = icmp ugt i64 %stack, %largest
  br i1 %larger, label %enlarge, label %check
enlarge:
  %before = atomicrmw umax ptr @stack, i64 %stack monotonic
  br label %check
check:
  %state = load atomic i32, ptr @started acquire, align 4
  %there = icmp eq i32 %state, 2
  br i1 %there, label %compare, label %fill
compare:
  %has = load atomic i64, ptr @started.stack monotonic, align 8
  %short = icmp ugt i64 %stack, %has
  br i1 %short, label %alone, label %fill
alone:
  br label %fill
fill:
  %its.pool = phi ptr [ %host.pool, %given ], [ @pool, %check ], [ @pool, %compare ], [ null, %alone ]
  %its.parallel = phi ptr [ %host, %given ], [ @run, %check ], [ @run, %compare ], [ null, %alone ]
  %its.threads = phi i64 [ %host.threads, %given ], [ %threads, %check ], [ %threads, %compare ], [ 1, %alone ]
  store ptr %its.pool, ptr %pool.at, align 8
  store ptr %its.parallel, ptr %parallel.at, align 8
  store i64 %its.threads, ptr %threads.at, align 8
  ret void
}

; A region: by the workers of this process, which start where there are none yet, or alone.
define internal void @run(ptr %pool, i64 %chunks, ptr %task, ptr %argument) {
entry:
  %several = icmp sgt i64 %chunks, 1
  br i1 %several, label %look, label %alone
look:
  %state = load atomic i32, ptr @started acquire, align 4
  switch i32 %state, label %alone [ i32 0, label %claim  i32 2, label %same ]
claim:
  %swap = cmpxchg ptr @started, i32 0, i32 1 acquire monotonic
  %claimed = extractvalue { i32, i1 } %swap, 1
  br i1 %claimed, label %begin, label %alone
begin:
  call void @start()
  store atomic i32 2, ptr @started release, align 4
  br label %spread
same:
  %now = call i64 (i64, ...) @syscall(i64 SYS_GETPID)
  %then = load atomic i64, ptr @process monotonic, align 8
  %forked = icmp ne i64 %now, %then
  br i1 %forked, label %alone, label %spread
spread:
  call void @ek_pool_run(ptr @pool, i64 %chunks, ptr %task, ptr %argument)
  ret void
alone:
  br label %test
test:
  %chunk = phi i64 [ 0, %alone ], [ %next, %one ]
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %one, label %end
one:
  call void %task(ptr %argument, i64 %chunk)
  %next = add i64 %chunk, 1
  br label %test
end:
  ret void
}

define internal ptr @worker(ptr %pool) {
  %mode = call i64 @float_mode()
  %plain = call i64 @plain_floats(i64 %mode)
  call void @set_float_mode(i64 %plain)
  call void @ek_pool_worker(ptr @pool)
  ret ptr null
}

define internal i64 @nanoseconds() {
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest.at = getelementptr inbounds i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at, align 8
  %whole = mul i64 %seconds, 1000000000
  %result = add i64 %whole, %rest
  ret i64 %result
}

; How many pauses take as long as a worker may look for work: the fastest of four times 64.
define internal i64 @pauses() {
entry:
  br label %again
again:
  %round = phi i64 [ 0, %entry ], [ %round.next, %timed ]
  %best = phi i64 [ SPIN_64, %entry ], [ %better, %timed ]
  %start = call i64 @nanoseconds()
  br label %wait
wait:
  %i = phi i64 [ 0, %again ], [ %i.next, %wait ]
  PAUSE
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, 64
  br i1 %more, label %wait, label %timed
timed:
  %end = call i64 @nanoseconds()
  %took = sub i64 %end, %start
  %some = call i64 @llvm.umax.i64(i64 %took, i64 64)
  %better = call i64 @llvm.umin.i64(i64 %best, i64 %some)
  %round.next = add i64 %round, 1
  %another = icmp ult i64 %round.next, 4
  br i1 %another, label %again, label %done
done:
  %result = udiv i64 SPIN_64, %better
  ret i64 %result
}

define internal void @start() {
entry:
  %spin = call i64 @pauses()
  store atomic i64 %spin, ptr STATE(spin) monotonic, align 8
  store atomic i32 0, ptr STATE(stop) monotonic, align 4
  %now = call i64 (i64, ...) @syscall(i64 SYS_GETPID)
  store atomic i64 %now, ptr @process monotonic, align 8
  %stack = load atomic i64, ptr @stack monotonic, align 8
  store atomic i64 %stack, ptr @started.stack monotonic, align 8
  %count = load atomic i64, ptr @wanted monotonic, align 8
  br label %test
test:
  %i = phi i64 [ 1, %entry ], [ %next, %counted ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %create, label %done
create:
  %thread = getelementptr inbounds i64, ptr @threads, i64 %i
  %failure = call i32 @create(ptr %thread, ptr @worker, ptr null, i64 %stack)
  %failed = icmp ne i32 %failure, 0
  br i1 %failed, label %done, label %counted
counted:
  %next = add i64 %i, 1
  br label %test
done:
  %workers64 = sub i64 %i, 1
  %workers = trunc i64 %workers64 to i32
  store atomic i32 %workers, ptr STATE(workers) monotonic, align 4
  store atomic i32 0, ptr STATE(busy) release, align 4
  ret void
}

; A region of another thread is given a second to end. After that its workers are left to the end of the process.
define void @ek_threads_close() {
entry:
  %pause = alloca [2 x i64], align 8
  %swap = cmpxchg ptr @started, i32 2, i32 1 acquire monotonic
  %there = extractvalue { i32, i1 } %swap, 1
  br i1 %there, label %whose, label %end
whose:
  store i64 0, ptr %pause
  %rest = getelementptr inbounds i8, ptr %pause, i64 8
  store i64 1000000, ptr %rest
  %now = call i64 (i64, ...) @syscall(i64 SYS_GETPID)
  %then = load atomic i64, ptr @process monotonic, align 8
  %forked = icmp ne i64 %now, %then
  br i1 %forked, label %forget, label %stop
forget:                                             ; the workers are in another process
  store atomic i64 0, ptr STATE(state) monotonic, align 8
  store atomic i32 0, ptr STATE(sleepers) monotonic, align 4
  br label %closed
stop:
  %turn = phi i32 [ 0, %whose ], [ %turn.next, %busy ]
  %stopped = call i32 @ek_pool_stop(ptr @pool)
  %ends = icmp ne i32 %stopped, 0
  br i1 %ends, label %ended, label %busy
busy:
  %slept = call i64 (i64, ...) @syscall(i64 SYS_NANOSLEEP, ptr %pause, ptr null)
  %turn.next = add i32 %turn, 1
  %again = icmp ult i32 %turn.next, 1000
  br i1 %again, label %stop, label %left
left:
  store atomic i32 2, ptr @started release, align 4
  br label %end
ended:
  %workers = load atomic i32, ptr STATE(workers) monotonic, align 4
  br label %join.test
join.test:
  %i = phi i32 [ 0, %ended ], [ %i.next, %join ]
  %more = icmp ult i32 %i, %workers
  br i1 %more, label %join, label %closed
join:
  %i.next = add i32 %i, 1
  %number = zext i32 %i.next to i64
  %at = getelementptr inbounds i64, ptr @threads, i64 %number
  %thread = load i64, ptr %at
  %joined = call i32 @pthread_join(i64 %thread, ptr null)
  br label %join.test
closed:
  store atomic i32 0, ptr STATE(workers) monotonic, align 4
  store atomic i32 0, ptr @started release, align 4
  br label %end
end:
  ret void
}
"""

# `key.state`: 0 without a key, 1 while it is made, 2 with a key. A thread's value is the lowest address of its stack.
_STACKS: Final = """
@key = internal global i32 0, align 4
@key.state = internal global i32 0, align 4
@at.end = internal constant ptr @forget_key, section ".fini_array"
@llvm.compiler.used = appending global [1 x ptr] [ptr @at.end], section "llvm.metadata"

declare i32 @pthread_key_create(ptr, ptr)
declare i32 @pthread_key_delete(i32)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i64 @pthread_self()
declare i32 @pthread_getattr_np(i64, ptr)
declare i32 @pthread_attr_getstack(ptr, ptr, ptr)
declare i64 @getauxval(i64)
declare i32 @getrlimit(i32, ptr)
declare i64 @llvm.umin.i64(i64, i64)

define internal void @forget_key() {
entry:
  %state = load atomic i32, ptr @key.state acquire, align 4
  %made = icmp eq i32 %state, 2
  br i1 %made, label %delete, label %end
delete:
  store atomic i32 0, ptr @key.state monotonic, align 4
  %key = load i32, ptr @key
  %deleted = call i32 @pthread_key_delete(i32 %key)
  br label %end
end:
  ret void
}

; The lowest address that the limit allows the stack of the process's first thread; -1 in other threads. The name of the
; program, AT_EXECFN, lies in the last bytes of that stack.
define internal i64 @limit() {
entry:
  %limits = alloca [2 x i64], align 8
  %here = alloca i64, align 8
  store i64 FIRST_STACK, ptr %limits
  %process = call i64 (i64, ...) @syscall(i64 SYS_GETPID)
  %thread = call i64 (i64, ...) @syscall(i64 SYS_GETTID)
  %first = icmp eq i64 %process, %thread
  br i1 %first, label %look, label %none
look:
  %name = call i64 @getauxval(i64 31)
  %unnamed = icmp eq i64 %name, 0
  br i1 %unnamed, label %none, label %limited
limited:
  %known = call i32 @getrlimit(i32 3, ptr %limits)
  %most = load i64, ptr %limits
  %size = call i64 @llvm.umin.i64(i64 %most, i64 FIRST_STACK)
  %page = and i64 %name, -4096
  %top = add i64 %page, 8192
  %end = sub i64 %top, %size
  %place = ptrtoint ptr %here to i64
  %inside = icmp ult i64 %end, %place               ; else a stack of the host's own
  br i1 %inside, label %done, label %none
none:
  ret i64 -1
done:
  ret i64 %end
}

; The lowest address of this thread's stack; 0 where the system does not report it. Some C libraries report of the first
; thread's stack what was used so far.
define internal ptr @lowest() {
entry:
  %attributes = alloca [128 x i8], align 16
  %low = alloca ptr, align 8
  %size = alloca i64, align 8
  store ptr null, ptr %low
  %self = call i64 @pthread_self()
  %known = call i32 @pthread_getattr_np(i64 %self, ptr %attributes)
  %failed = icmp ne i32 %known, 0
  br i1 %failed, label %none, label %some
none:
  ret ptr null
some:
  %got = call i32 @pthread_attr_getstack(ptr %attributes, ptr %low, ptr %size)
  %destroyed = call i32 @pthread_attr_destroy(ptr %attributes)
  %end = call i64 @limit()
  %reported = load i64, ptr %low
  %least = call i64 @llvm.umin.i64(i64 %reported, i64 %end)
  %result = inttoptr i64 %least to ptr
  ret ptr %result
}

define i32 @ek_stack_has(i64 %bytes) {
entry:
  %here = alloca i64, align 8
  %state = load atomic i32, ptr @key.state acquire, align 4
  switch i32 %state, label %query [ i32 0, label %claim  i32 2, label %look ]
claim:
  %swap = cmpxchg ptr @key.state, i32 0, i32 1 acquire monotonic
  %claimed = extractvalue { i32, i1 } %swap, 1
  br i1 %claimed, label %make, label %query
make:
  %failure = call i32 @pthread_key_create(ptr @key, ptr null)
  %good = icmp eq i32 %failure, 0
  %next = select i1 %good, i32 2, i32 0
  store atomic i32 %next, ptr @key.state release, align 4
  br i1 %good, label %look, label %query
look:
  %key = load i32, ptr @key
  %kept = call ptr @pthread_getspecific(i32 %key)
  %unknown = icmp eq ptr %kept, null
  br i1 %unknown, label %find, label %compare
find:
  %found = call ptr @lowest()
  %set = call i32 @pthread_setspecific(i32 %key, ptr %found)
  br label %compare
query:
  %uncached = call ptr @lowest()
  br label %compare
compare:
  %low = phi ptr [ %kept, %look ], [ %found, %find ], [ %uncached, %query ]
  %bottom = ptrtoint ptr %low to i64
  %top = ptrtoint ptr %here to i64
  %left = sub i64 %top, %bottom
  %enough = icmp sge i64 %left, %bytes
  %elsewhere = icmp slt i64 %left, 0                ; a stack of the host's own
  %result = or i1 %enough, %elsewhere
  %number = zext i1 %result to i32
  ret i32 %number
}

; What a thread of its own runs: { function, argument, result }.
define internal ptr @called(ptr %record) {
  %function = load ptr, ptr %record, align 8
  %argument.at = getelementptr inbounds i8, ptr %record, i64 8
  %argument = load ptr, ptr %argument.at, align 8
  %result = call i32 %function(ptr %argument)
  %result.at = getelementptr inbounds i8, ptr %record, i64 16
  store i32 %result, ptr %result.at, align 8
  ret ptr null
}

define i32 @ek_stack_call(ptr %function, ptr %argument, i64 %bytes) {
entry:
  %record = alloca [3 x i64], align 8
  %thread = alloca i64, align 8
  store ptr %function, ptr %record, align 8
  %argument.at = getelementptr inbounds i8, ptr %record, i64 8
  store ptr %argument, ptr %argument.at, align 8
  %failure = call i32 @create(ptr %thread, ptr @called, ptr %record, i64 %bytes)
  %failed = icmp ne i32 %failure, 0
  br i1 %failed, label %none, label %wait
none:
  ret i32 NO_MEMORY
wait:
  %number = load i64, ptr %thread
  %joined = call i32 @pthread_join(i64 %number, ptr null)
  %result.at = getelementptr inbounds i8, ptr %record, i64 16
  %result = load i32, ptr %result.at, align 8
  ret i32 %result
}
"""
