"""The part of the code for MPI in which a few ranks send each other messages, as LLVM IR; see `runtime.exchanges`.

A message says how long it is, so that ranks which call a collective with other sizes are noticed. After a failure the
messages that are still awaited end before the kernel does, since its memory is free then.
"""

from __future__ import annotations

from typing import Final

MESSAGES: Final = """
; Begins to exchange pieces between all ranks. A few ranks send each other messages, whose sizes can be compared; of
; more ranks the library's functions need fewer steps. Row k of `requests` has those of what comes from rank k and of
; what goes there; a function of the library has the first.
define internal i32 @begin(ptr %ranks, i32 %kind, ptr %to, ptr %from, i64 %bytes, ptr %requests) {
entry:
  %byte = GET(i64, RANKS(byte))
  %all = GET(i64, RANKS(comm))
  %pieces = GET(i64, RANKS(pieces))
  %in.pieces = icmp eq i32 %kind, KIND_GATHER_PIECES
  %comm = select i1 %in.pieces, i64 %pieces, i64 %all
  %gathers.now = icmp eq i32 %kind, KIND_ALLGATHER
  %gathers.later = icmp eq i32 %kind, KIND_START_ALLGATHER
  %gathers.some = or i1 %gathers.now, %gathers.later
  %gathers = or i1 %gathers.some, %in.pieces
  %size = GET(i64, RANKS(direct))
  %are.few = icmp ne i64 %size, 0
  br i1 %are.few, label %few, label %many
many:
  %gather = GET(ptr, RANKS(Iallgather))
  %scatter = GET(ptr, RANKS(Ialltoall))
  %function = select i1 %gathers, ptr %gather, ptr %scatter
  %code = call i32 %function(ptr %from, i64 %bytes, i64 %byte, ptr %to, i64 %bytes, i64 %byte, i64 %comm, ptr %requests)
  ret i32 %code
few:
  %moves = GET(i64, RANKS(tag))
  %tag = add i64 %moves, 1
  %step = select i1 %gathers, i64 0, i64 %bytes  ; between what goes to one rank and to the next
  %own = GET(i64, RANKS(own))
  %own.bytes = mul i64 %own, %bytes
  %own.skipped = mul i64 %own, %step
  %own.to = getelementptr inbounds i8, ptr %to, i64 %own.bytes
  %own.from = getelementptr inbounds i8, ptr %from, i64 %own.skipped
  call void @llvm.memcpy.p0.p0.i64(ptr %own.to, ptr %own.from, i64 %bytes, i1 false)
  br label %next.receive
next.receive:
  %k = phi i64 [ 0, %few ], [ %k.next, %received ]
  %k.own = icmp eq i64 %k, %own
  br i1 %k.own, label %received, label %receive
receive:
  %k.bytes = mul i64 %k, %bytes
  %k.to = getelementptr inbounds i8, ptr %to, i64 %k.bytes
  %k.place = mul i64 %k, 16
  %k.request = getelementptr inbounds i8, ptr %requests, i64 %k.place
START(Irecv, ptr %k.to, i64 %bytes, i64 %byte, i64 %k, i64 %tag, i64 %comm, ptr %k.request)
  %k.refused = icmp ne i32 %Irecv.code, 0
  br i1 %k.refused, label %fail, label %received
received:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %size
  br i1 %k.more, label %next.receive, label %next.send
next.send:
  %n = phi i64 [ 1, %received ], [ %n.next, %sent ]
  %turned = add i64 %own, %n
  %peer = urem i64 %turned, %size  ; each rank begins with another one
  %skipped = mul i64 %peer, %step
  %peer.from = getelementptr inbounds i8, ptr %from, i64 %skipped
  %peer.place = mul i64 %peer, 16
  %peer.row = getelementptr inbounds i8, ptr %requests, i64 %peer.place
  %peer.request = getelementptr inbounds i8, ptr %peer.row, i64 8
START(Isend, ptr %peer.from, i64 %bytes, i64 %byte, i64 %peer, i64 %tag, i64 %comm, ptr %peer.request)
  %n.refused = icmp ne i32 %Isend.code, 0
  br i1 %n.refused, label %fail, label %sent
sent:
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %size
  br i1 %n.more, label %next.send, label %begun
begun:
  ret i32 0
fail:
  %why = phi i32 [ %Irecv.code, %receive ], [ %Isend.code, %next.send ]
  ret i32 %why
}

; Waits for what `begin` has begun with this code, of so many bytes from each rank.
define internal i32 @wait_all(
    ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %requests, i32 %code, i64 %number, i64 %bytes
) {
entry:
  %state = alloca [64 x i8], align 8
  %size = GET(i64, RANKS(direct))
  %own = GET(i64, RANKS(own))
  %are.few = icmp ne i64 %size, 0
  %has.begun = icmp eq i32 %code, 0
  %in.messages = and i1 %are.few, %has.begun
  br i1 %in.messages, label %look, label %many
many:
  %ended = call i32 @wait(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %requests, i32 %code,
                          i64 %number, ptr %state)
  ret i32 %ended
look:
  %k = phi i64 [ 0, %entry ], [ %next, %received ]
  %is.own = icmp eq i64 %k, %own
  br i1 %is.own, label %received, label %send
send:
  %place = mul i64 %k, 16
  %request = getelementptr inbounds i8, ptr %requests, i64 %place
  %sending = getelementptr inbounds i8, ptr %request, i64 8
  %sent = call i32 @wait(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %sending, i32 0, i64 %number,
                         ptr %state)
  %failed = icmp ne i32 %sent, 0
  br i1 %failed, label %fail, label %receive
receive:
  %came = call i32 @receive(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i32 0,
                            i64 %number, i64 %bytes, i64 %k)
  %lost = icmp ne i32 %came, 0
  br i1 %lost, label %fail, label %received
received:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %size
  br i1 %more, label %look, label %done
fail:
  ret i32 1
done:
  ret i32 0
}

; Waits for a message of a rank, which has to have so many bytes. (MPI reports an error of longer ones.)
define internal i32 @receive(
    ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i32 %code, i64 %number, i64 %bytes,
    i64 %source
) {
entry:
  %state = alloca [64 x i8], align 8
  %size = alloca i64, align 8
  store i64 0, ptr %size
  %came = call i32 @wait(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, ptr %request, i32 %code,
                         i64 %number, ptr %state)
  %failed = icmp ne i32 %came, 0
  br i1 %failed, label %fail, label %measure
measure:
  %byte = GET(i64, RANKS(byte))
  %get_count = GET(ptr, RANKS(Get_count))
  %got = call i32 %get_count(ptr %state, i64 %byte, ptr %size)
  %received = load i64, ptr %size  ; where a library has 32 bits, the others stay 0
  %same = icmp eq i64 %received, %bytes
  br i1 %same, label %done, label %differs
differs:
  %rank = trunc i64 %source to i32
  %why = sub i32 OTHER_SIZE, %rank
  %reported = call i32 @fail(ptr %context, ptr %slot, ptr %ranks, i64 %count, i64 %node, i32 %why)
  ret i32 1
fail:
  ret i32 1
done:
  ret i32 0
}

; Ends the messages that a failed exchange still waits for, since a kernel's memory is free after it. What the other
; ranks send belongs to no exchange any more: the communicator is not used again.
define internal void @end_all(ptr %ranks, ptr %requests, i32 %code) cold noinline {
entry:
  %size = GET(i64, RANKS(direct))
  %own = GET(i64, RANKS(own))
  %are.many = icmp eq i64 %size, 0
  br i1 %are.many, label %over, label %look
look:
  %k = phi i64 [ 0, %entry ], [ %next, %ended ]
  %is.own = icmp eq i64 %k, %own
  br i1 %is.own, label %ended, label %end
end:
  %place = mul i64 %k, 16
  %request = getelementptr inbounds i8, ptr %requests, i64 %place
  call void @end_one(ptr %ranks, ptr %request, i32 %code)
  br label %ended
ended:
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %size
  br i1 %more, label %look, label %over
over:
  ret void
}

define internal void @end_one(ptr %ranks, ptr %request, i32 %code) cold noinline {
entry:
  %flag = alloca i32, align 4
  %state = alloca [64 x i8], align 8
  %test = GET(ptr, RANKS(Test))
  %cancel = GET(ptr, RANKS(Cancel))
  %broken = GET(i64, RANKS(broken))
  store i64 1, ptr %broken.at
  %is.begun = icmp eq i32 %code, 0
  br i1 %is.begun, label %test.once, label %over
test.once:
  %first = call i32 %test(ptr %request, ptr %flag, ptr %state)
  %set = load i32, ptr %flag
  %is.done = icmp ne i32 %set, 0
  %is.wrong = icmp ne i32 %first, 0
  %ends = or i1 %is.done, %is.wrong
  br i1 %ends, label %over, label %stop
stop:
  %stopped = call i32 %cancel(ptr %request)
  br label %wait
wait:
  %turn = phi i64 [ 0, %stop ], [ %next, %wait ]
  %result = call i32 %test(ptr %request, ptr %flag, ptr %state)
  %now.set = load i32, ptr %flag
  %now.done = icmp ne i32 %now.set, 0
  %next = add i64 %turn, 1
  %is.late = icmp sge i64 %next, END_TESTS
  %leaves = or i1 %now.done, %is.late
  br i1 %leaves, label %over, label %wait
over:
  ret void
}
"""
