"""The code through which collectives reach MPI: machine code between a kernel and the library that mpi4py has loaded.

    int32_t ek_mpi_exchange(context, slot, kind, to, from, bytes, count, node)      see `dsl.contract.exchange`

An operation is started without waiting, and then tested until it is done. Where a kernel only begins it, its request
lies in a row of the communicator's table until a kernel waits for it; without a free row, it is done at once. After so
many tests the rank notes what it waits for and gives its core to other threads between tests, where it also looks for
signals, for the time-out, and for a rank that has ended. What takes longer than `PATIENCE` is tested every `PAUSE`.
Handles of MPI are passed as words: where a library has 32 bits of them, it ignores the others. Python is called where
an exchange fails or is too large.
"""

from __future__ import annotations

import re
from ctypes import sizeof
from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.exchange import (
    BOARD_WORDS,
    BROKEN,
    MOST_DIRECT,
    MOST_OPEN,
    OTHER_SIZE,
    RANKS_WORDS,
    SLOT_WORDS,
    Exchange,
    OpenExchange,
)
from ...dsl.diagnostics.errors import TargetError
from ..codegen.llvm import compile_module
from ..targets import Target
from ..targets.base import ThreadSystem
from .messages_to_all import MESSAGES

PATIENCE: Final = 200_000_000  # nanoseconds; transfers go on in tests, so that pauses would slow them
PAUSE: Final = 50_000  # nanoseconds
END_TESTS: Final = 1_000_000  # of a message that is being transferred while its exchange fails


def exchange_object(target: Target) -> bytes:
    """The code as a shared object.

    Raises:
        TargetError: the target is not a host.
    """
    if target.system is None:
        raise TargetError(f"there is no code for {target.name} that calls MPI", code="EK0609")
    return compile_module(exchange_text(target.system), target, level=2).link("einkorn_mpi.so")


def exchange_text(system: ThreadSystem) -> str:
    """The code as LLVM IR."""
    text = re.sub(r"START\((\w+), (.*)\)\n", _start, _TEXT + MESSAGES)
    text = re.sub(r"  %(\S+) = GET\((\w+), (.*)\)\n", r"  %\1.at = \3\n  %\1 = load \2, ptr %\1.at\n", text)
    for kind in Exchange:
        text = text.replace(f"KIND_{kind.name}", str(int(kind)))
    for name, words in (("slot", SLOT_WORDS), ("ranks", RANKS_WORDS), ("row", (*BOARD_WORDS, "text"))):
        for number, word in enumerate(words):
            place = f"getelementptr inbounds i8, ptr %{name}, i64 {8 * number}"
            text = text.replace(f"{name.upper()}({word})", place)
    for word in ("to", "number", "bytes", "requests"):
        text = text.replace(f"OPEN_{word.upper()}", str(getattr(OpenExchange, word).offset))
    text = text.replace("OPEN_SIZE", str(sizeof(OpenExchange))).replace("MOST_OPEN", str(MOST_OPEN))
    numbers = {"STATUS_OFFSET": abi.STATUS_OFFSET, "POLL_OFFSET": abi.POLL_OFFSET, "PATIENCE": PATIENCE, "PAUSE": PAUSE}
    numbers |= {"OTHER_SIZE": OTHER_SIZE, "BROKEN": BROKEN, "END_TESTS": END_TESTS, "REQUESTS": 2 * MOST_DIRECT}
    for name, number in numbers.items():
        text = text.replace(name, str(number))
    return text.replace("SYS_FUTEX", str(system.futex)).replace("SYS_YIELD", str(system.sched_yield))


def _start(match: re.Match[str]) -> str:
    """Starts an operation of MPI, whose function takes these arguments."""
    name, arguments = match[1], match[2]
    return f"  %{name} = GET(ptr, RANKS({name}))\n  %{name}.code = call i32 %{name}({arguments})\n"


_TEXT: Final = """
declare i64 @syscall(i64, ...)
declare i32 @clock_gettime(i32, ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i64 @llvm.umax.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i32 @ek_mpi_exchange(ptr %context, ptr %slot, i32 %kind, ptr %to, ptr %from, i64 %bytes, i64 %count, i64 %node) {
entry:
  %request = alloca i64, align 8
  %sending = alloca i64, align 8
  %requests = alloca [REQUESTS x i64], align 8
  %state = alloca [64 x i8], align 8
  %ranks = GET(ptr, SLOT(ranks))
  %source = GET(i64, SLOT(source))
  %target = GET(i64, SLOT(target))
  %comm = GET(i64, RANKS(comm))
  %byte = GET(i64, RANKS(byte))
  %tag = GET(i64, RANKS(tag))
  %most = GET(i64, RANKS(most))
  %large = icmp sgt i64 %bytes, %most
  br i1 %large, label %hand.over, label %begin
hand.over:
  %python = GET(ptr, RANKS(python))
  %made = call i32 %python(ptr %context, ptr %slot, i32 %kind, ptr %to, ptr %from, i64 %bytes, i64 %count, i64 %node)
  ret i32 %made
begin:
  %broken = GET(i64, RANKS(broken))
  %is.broken = icmp ne i64 %broken, 0
  br i1 %is.broken, label %refuse, label %choose
refuse:
  %refused = call i32 @fail(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, i32 BROKEN)
  ret i32 1
choose:
  switch i32 %kind, label %move [
    i32 KIND_ALLGATHER, label %together
    i32 KIND_ALLTOALL, label %together
    i32 KIND_GATHER_PIECES, label %together
    i32 KIND_BROADCAST, label %broadcast
    i32 KIND_START_ALLGATHER, label %find.free
    i32 KIND_START_ALLTOALL, label %find.free
    i32 KIND_WAIT, label %find.open
    i32 KIND_PROGRESS, label %go.on
  ]
together:
  call void @count(ptr %ranks)
  %together.code = call i32 @begin(ptr %ranks, i32 %kind, ptr %to, ptr %from, i64 %bytes, ptr %requests)
  %now.begun = GET(i64, RANKS(begun))
  %ended = call i32 @wait_all(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %requests,
                              i32 %together.code, i64 %now.begun, i64 %bytes)
  %not.made = icmp ne i32 %ended, 0
  br i1 %not.made, label %give.up, label %done
give.up:
  call void @end_all(ptr %ranks, ptr %requests, i32 %together.code)
  ret i32 1
broadcast:
  call void @count(ptr %ranks)
START(Ibcast, ptr %to, i64 %bytes, i64 %byte, i64 %source, i64 %comm, ptr %request)
  %cast = GET(i64, RANKS(begun))
  %got = call i32 @wait(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i32 %Ibcast.code,
                        i64 %cast, ptr %state)
  ret i32 %got
find.free:
  %free = call ptr @open_row(ptr %ranks, ptr null)
  %no.row = icmp eq ptr %free, null
  %no.bytes = icmp eq i64 %bytes, 0
  %at.once = or i1 %no.row, %no.bytes
  br i1 %at.once, label %together, label %start
start:
  call void @count(ptr %ranks)
  %number = GET(i64, RANKS(begun))
  call void @open(ptr %free, ptr %to, i64 %number)
  %free.bytes = getelementptr inbounds i8, ptr %free, i64 OPEN_BYTES
  store i64 %bytes, ptr %free.bytes
  %free.requests = getelementptr inbounds i8, ptr %free, i64 OPEN_REQUESTS
  %begin.code = call i32 @begin(ptr %ranks, i32 %kind, ptr %to, ptr %from, i64 %bytes, ptr %free.requests)
  %not.begun = icmp ne i32 %begin.code, 0
  br i1 %not.begun, label %begin.failed, label %done
begin.failed:
  call void @open(ptr %free, ptr null, i64 0)
  %begin.reported = call i32 @fail(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, i32 %begin.code)
  ret i32 1
find.open:
  %begun.row = call ptr @open_row(ptr %ranks, ptr %to)
  %not.open = icmp eq ptr %begun.row, null
  %no.place = icmp eq ptr %to, null
  %nothing.begun = or i1 %not.open, %no.place
  br i1 %nothing.begun, label %done, label %wait.open
wait.open:
  %open.requests = getelementptr inbounds i8, ptr %begun.row, i64 OPEN_REQUESTS
  %open.number.at = getelementptr inbounds i8, ptr %begun.row, i64 OPEN_NUMBER
  %open.number = load i64, ptr %open.number.at
  %open.bytes.at = getelementptr inbounds i8, ptr %begun.row, i64 OPEN_BYTES
  %open.bytes = load i64, ptr %open.bytes.at
  %open.ended = call i32 @wait_all(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %open.requests,
                                   i32 0, i64 %open.number, i64 %open.bytes)
  %still.open = icmp ne i32 %open.ended, 0
  br i1 %still.open, label %failed, label %close
close:
  call void @open(ptr %begun.row, ptr null, i64 0)
  ret i32 0
go.on:
  call void @progress(ptr %ranks)
  ret i32 0
move:
  %so.far = GET(i64, RANKS(begun))
  %receives = icmp sge i64 %source, 0
  %sends = icmp sge i64 %target, 0
  br i1 %receives, label %receive, label %nothing
receive:
START(Irecv, ptr %to, i64 %bytes, i64 %byte, i64 %source, i64 %tag, i64 %comm, ptr %request)
  br label %send.too
nothing:
  %same = icmp eq ptr %to, %from
  br i1 %same, label %send.too, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %bytes, i1 false)
  br label %send.too
send.too:
  %begun = phi i32 [ %Irecv.code, %receive ], [ 0, %nothing ], [ 0, %clear ]
  br i1 %sends, label %send, label %received
send:
START(Isend, ptr %from, i64 %bytes, i64 %byte, i64 %target, i64 %tag, i64 %comm, ptr %sending)
  %sent = call i32 @wait(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %sending, i32 %Isend.code,
                         i64 %so.far, ptr %state)
  %lost = icmp ne i32 %sent, 0
  br i1 %lost, label %failed, label %received
failed:
  ret i32 1
received:
  br i1 %receives, label %await, label %done
await:
  %came = call i32 @receive(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i32 %begun,
                            i64 %so.far, i64 %bytes, i64 %source)
  %not.come = icmp ne i32 %came, 0
  br i1 %not.come, label %end.receive, label %done
end.receive:
  call void @end_one(ptr %ranks, ptr %request, i32 %begun)
  ret i32 1
done:
  ret i32 0
}

define internal void @count(ptr %ranks) {
entry:
  %begun = GET(i64, RANKS(begun))
  %now = add i64 %begun, 1
  store i64 %now, ptr %begun.at
  ret void
}

; The row of what was begun with this result, or null; with null, a free one.
define internal ptr @open_row(ptr %ranks, ptr %to) {
entry:
  %first = GET(ptr, RANKS(open))
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %other ]
  %place = mul i64 %k, OPEN_SIZE
  %row = getelementptr inbounds i8, ptr %first, i64 %place
  %known = load ptr, ptr %row
  %same = icmp eq ptr %known, %to
  br i1 %same, label %found, label %other
other:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, MOST_OPEN
  br i1 %more, label %look, label %none
found:
  ret ptr %row
none:
  ret ptr null
}

define internal void @open(ptr %row, ptr %to, i64 %number) {
entry:
  store ptr %to, ptr %row
  %number.at = getelementptr inbounds i8, ptr %row, i64 OPEN_NUMBER
  store i64 %number, ptr %number.at
  ret void
}

; Lets what was begun go on: looks at its requests, which stay open until a kernel waits for them.
define internal void @progress(ptr %ranks) {
entry:
  %flag = alloca i32, align 4
  %state = alloca [64 x i8], align 8
  %look_at = GET(ptr, RANKS(Request_get_status))
  %first = GET(ptr, RANKS(open))
  %size = GET(i64, RANKS(direct))
  %twice = mul i64 %size, 2
  %requests = call i64 @llvm.umax.i64(i64 %twice, i64 1)
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %other ]
  %place = mul i64 %k, OPEN_SIZE
  %row = getelementptr inbounds i8, ptr %first, i64 %place
  %known = load ptr, ptr %row
  %is.free = icmp eq ptr %known, null
  br i1 %is.free, label %other, label %try
try:
  %n = phi i64 [ 0, %look ], [ %n.next, %try ]
  %n.place = mul i64 %n, 8
  %n.at = add i64 %n.place, OPEN_REQUESTS
  %request = getelementptr inbounds i8, ptr %row, i64 %n.at
  %handle = load i64, ptr %request
  %result = call i32 %look_at(i64 %handle, ptr %flag, ptr %state)
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %requests
  br i1 %n.more, label %try, label %other
other:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, MOST_OPEN
  br i1 %more, label %look, label %over
over:
  ret void
}

; Reports to Python that an exchange was not made.
define internal i32 @fail(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, i32 %code) cold noinline {
entry:
  %python = GET(ptr, RANKS(python))
  %wide = sext i32 %code to i64
  %reported = call i32 %python(ptr %context, ptr %slot, i32 KIND_FAILED, ptr null, ptr null, i64 %wide, i64 %count,
                           i64 %node)
  ret i32 1
}

; Waits for an operation of this number, which was started with this code, and keeps its status.
define internal i32 @wait(
    ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i32 %code, i64 %number, ptr %state
) {
entry:
  %flag = alloca i32, align 4
  %test = GET(ptr, RANKS(Test))
  %spins = GET(i64, RANKS(spins))
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %wrong, label %spin
spin:
  %turn = phi i64 [ 0, %entry ], [ %next, %again ]
  %result = call i32 %test(ptr %request, ptr %flag, ptr %state)
  %refused = icmp ne i32 %result, 0
  br i1 %refused, label %wrong, label %look
look:
  %set = load i32, ptr %flag
  %is.done = icmp ne i32 %set, 0
  br i1 %is.done, label %done, label %again
again:
  %next = add i64 %turn, 1
  %more = icmp slt i64 %next, %spins
  br i1 %more, label %spin, label %slow
slow:
  %ended = call i32 @wait_long(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i64 %number,
                               ptr %state)
  ret i32 %ended
wrong:
  %why = phi i32 [ %code, %entry ], [ %result, %spin ]
  %reported = call i32 @fail(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, i32 %why)
  ret i32 1
done:
  ret i32 0
}

define internal i64 @now() {
entry:
  %time = alloca [2 x i64], align 8
  %result = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr inbounds i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

define internal i32 @wait_long(
    ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i64 %number, ptr %state
) noinline {
entry:
  %flag = alloca i32, align 4
  %test = GET(ptr, RANKS(Test))
  %limit = GET(i64, RANKS(limit))
  %status.at = getelementptr inbounds i8, ptr %context, i64 STATUS_OFFSET
  %poll.at = getelementptr inbounds i8, ptr %context, i64 POLL_OFFSET
  %poll = load ptr, ptr %poll.at
  %polls = icmp ne ptr %poll, null
  %start = call i64 @now()
  %none = alloca i64, align 8
  store i64 -1, ptr %none
  %pause = alloca [2 x i64], align 8
  store i64 0, ptr %pause
  %pause.rest = getelementptr inbounds i8, ptr %pause, i64 8
  store i64 PAUSE, ptr %pause.rest
  %awaited.at = RANKS(awaited)
  store i64 %number, ptr %awaited.at
  %row = GET(ptr, RANKS(board))
  %known = icmp ne ptr %row, null
  %row.vain = ROW(vain)
  %vain.at = select i1 %known, ptr %row.vain, ptr %none
  br i1 %known, label %note, label %again
note:
  %row.begun = ROW(begun)
  store i64 %number, ptr %row.begun
  %row.count = ROW(count)
  store i64 %count, ptr %row.count
  %text = GET(ptr, SLOT(text))
  %size = GET(i64, SLOT(size))
  %row.text = ROW(text)
  call void @llvm.memcpy.p0.p0.i64(ptr %row.text, ptr %text, i64 %size, i1 false)
  br label %again
again:
  %result = call i32 %test(ptr %request, ptr %flag, ptr %state)
  %refused = icmp ne i32 %result, 0
  br i1 %refused, label %fail, label %look
look:
  %set = load i32, ptr %flag
  %is.done = icmp ne i32 %set, 0
  br i1 %is.done, label %done, label %yield
yield:
  %yielded = call i64 (i64, ...) @syscall(i64 SYS_YIELD)
  br i1 %polls, label %listen, label %watch
listen:
  call void %poll(ptr %context, i32 0)
  br label %watch
watch:
  %status = load atomic i64, ptr %status.at monotonic, align 8
  %stopped = icmp ne i64 %status, 0
  br i1 %stopped, label %stop, label %time
time:
  %now = call i64 @now()
  %waited = sub i64 %now, %start
  %over = icmp sgt i64 %waited, %limit
  %limited = icmp ne i64 %limit, 0
  %late = and i1 %over, %limited
  %vain = load atomic i64, ptr %vain.at monotonic, align 8
  %is.vain = icmp eq i64 %vain, %number
  %ends = or i1 %late, %is.vain
  br i1 %ends, label %fail, label %rest
rest:
  %long = icmp sgt i64 %waited, PATIENCE
  br i1 %long, label %sleep, label %again
sleep:
  ; it always takes the whole time
  %slept = call i64 (i64, ...) @syscall(i64 SYS_FUTEX, ptr %none, i32 128, i32 -1, ptr %pause, ptr null, i32 0)
  br label %again
fail:
  %why = phi i32 [ %result, %again ], [ 0, %time ]
  %reported = call i32 @fail(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, i32 %why)
  ret i32 1
stop:
  ret i32 1
done:
  ret i32 0
}
"""
