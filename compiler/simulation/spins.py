"""How the scheduler runs launches whose threads wait in loops for others to change memory.

    @ek.run_interleaved(argument, memory, ...)    runs as many clusters by turns as a device would hold at once
    @ek.any_spins(threads, count)                 whether some of these threads spin
    @ek.yields(argument)                          whether a thread gives others their turn: with a seed, one of two
    @ek.moved(argument), @ek.changed(argument, really)    what threads do that may help others

Each resident cluster has a piece of memory of its own. A turn of a cluster lasts until none of its threads can continue
without another turn. Where a cluster has ended, the next one of the grid begins in its place. Threads are deadlocked if
in `ROUNDS` rounds of turns none has left its loop or changed memory, or if in `PATIENCE` rounds none has left its loop:
that is reported with the places where they wait.

See also `passes.mark_spins` (which loops are meant).
"""

from __future__ import annotations

from typing import Final

ROUNDS: Final = 3  # of turns without a change, behind which none can come; values from memory may be kept for one
PATIENCE: Final = 1 << 17  # rounds in which threads change memory or their own values, but none leaves its loop

NO_SPINS: Final = """
define internal i1 @ek.any_spins(ptr %threads, i64 %count) alwaysinline {
  ret i1 false
}

define internal i1 @ek.any_named(ptr %threads, i64 %count) alwaysinline {
  ret i1 false
}

define internal i64 @ek.residents(ptr %argument) alwaysinline {
  ret i64 1
}

define internal i1 @ek.run_interleaved(
    ptr %argument, ptr %memory, i64 %bytes, i64 %count, i64 %high) alwaysinline {
  ret i1 false
}
"""

SPINS: Final = """
define internal void @ek.moved(ptr %argument) alwaysinline {
  %moves.at = Argument.moves(%argument)
  %moves = load i64, ptr %moves.at, align 8
  %more = add i64 %moves, 1
  store i64 %more, ptr %moves.at, align 8
  ret void
}

define internal void @ek.changed(ptr %argument, i1 %really) alwaysinline {
  %changes.at = Argument.changes(%argument)
  %changes = load i64, ptr %changes.at, align 8
  %one = zext i1 %really to i64
  %more = add i64 %changes, %one
  store i64 %more, ptr %changes.at, align 8
  ret void
}

; How many clusters have memory at the same time.
define internal i64 @ek.residents(ptr %argument) optnone noinline {
entry:
  %resident.at = Argument.resident(%argument)
  %resident = load i64, ptr %resident.at, align 8
  %total.at = Argument.total(%argument)
  %total = load i64, ptr %total.at, align 8
  %fewer = call i64 @llvm.smin.i64(i64 %resident, i64 %total)
  %none = icmp slt i64 %fewer, 1
  %some = select i1 %none, i64 1, i64 %fewer
  ret i64 %some
}

define internal i1 @ek.any_spins(ptr %threads, i64 %count) noinline {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %more ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %found = icmp eq i64 %state, SPIN
  br i1 %found, label %yes, label %more
more:
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %count
  br i1 %again, label %next, label %no
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether a thread waits at a barrier for some of its block.
define internal i1 @ek.any_named(ptr %threads, i64 %count) noinline {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %any = phi i1 [ false, %entry ], [ %any.next, %next ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %wanted.at = Thread.wanted(%thread)
  %wanted = load i64, ptr %wanted.at, align 8
  %waits = icmp eq i64 %state, BLOCK
  %some = icmp ne i64 %wanted, 0
  %named = and i1 %waits, %some
  %any.next = or i1 %any, %named
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %end
end:
  ret i1 %any.next
}

; Whether all threads of a cluster have ended; those that spin may continue.
define internal i1 @ek.wake(ptr %threads, i64 %count) noinline {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %over = phi i1 [ true, %entry ], [ %over.next, %next ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %spins = icmp eq i64 %state, SPIN
  %woken = select i1 %spins, i64 READY, i64 %state
  store i64 %woken, ptr %state.at, align 8
  %ended = icmp eq i64 %state, ENDED
  %over.next = and i1 %over, %ended
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %count
  br i1 %more, label %next, label %end
end:
  ret i1 %over.next
}

; Runs all clusters of a launch, as many by turns as the device holds; says whether that was to be done.
define internal i1 @ek.run_interleaved(
    ptr %argument, ptr %memory, i64 %bytes, i64 %count, i64 %high) optnone noinline {
entry:
  %next = alloca i64, align 8
  %alive = alloca i64, align 8
  %still = alloca i64, align 8
  %quiet = alloca i64, align 8
  %rounds = alloca i64, align 8
  %wanted.at = Argument.resident(%argument)
  %wanted = load i64, ptr %wanted.at, align 8
  %none = icmp eq i64 %wanted, 0
  br i1 %none, label %not.here, label %begin
not.here:
  ret i1 false
begin:
  %size = call i64 @ek.cluster_size(ptr %argument)
  %stride = call i64 @ek.stride(ptr %argument, i64 %count, i64 %size)
  %threads = mul i64 %stride, %size
  %pitch = call i64 @ek.cluster_bytes(ptr %argument, i64 %bytes, i64 %count)
  %resident = call i64 @ek.residents(ptr %argument)
  %moves.at = Argument.moves(%argument)
  %changes.at = Argument.changes(%argument)
  store i64 %resident, ptr %next, align 8
  store i64 0, ptr %still, align 8
  store i64 0, ptr %quiet, align 8
  store i64 0, ptr %rounds, align 8
  br label %fill
fill:
  %f = phi i64 [ 0, %begin ], [ %f.next, %fill ]
  %f.offset = mul i64 %f, %pitch
  %f.memory = getelementptr inbounds i8, ptr %memory, i64 %f.offset
  call void @ek.lay_out(ptr %argument, ptr %f.memory, i64 %bytes, i64 %count)
  call void @ek.check_switch(ptr %argument, i64 %f)
  call void @ek.place(ptr %argument, ptr %f.memory, i64 %size, i64 %f)
  %f.next = add i64 %f, 1
  %f.more = icmp slt i64 %f.next, %resident
  br i1 %f.more, label %fill, label %round
round:
  %moves.before = load i64, ptr %moves.at, align 8
  %changes.before = load i64, ptr %changes.at, align 8
  store i64 0, ptr %alive, align 8
  %rounds.now = load i64, ptr %rounds, align 8
  %rounds.next = add i64 %rounds.now, 1
  store i64 %rounds.next, ptr %rounds, align 8
  %turn = call i64 @ek.cluster_turn(ptr %argument, ptr %memory, i64 %rounds.next)
  br label %turns
turns:
  %k = phi i64 [ 0, %round ], [ %k.next, %turned ]
  %sum = add i64 %k, %turn
  %r = urem i64 %sum, %resident
  %offset = mul i64 %r, %pitch
  %own = getelementptr inbounds i8, ptr %memory, i64 %offset
  %all.at = Block.all(%own)
  %all = load ptr, ptr %all.at, align 8
  %over = call i1 @ek.wake(ptr %all, i64 %threads)
  br i1 %over, label %turned, label %run
run:
  call void @ek.check_switch(ptr %argument, i64 %r)
  call void @ek.run_cluster(ptr %argument, ptr %own, i64 %size, i64 %threads)
  %stops = call i1 @ek.is_over(ptr %argument)
  br i1 %stops, label %end, label %look
look:
  %ended = call i1 @ek.all_ended(ptr %all, i64 %threads)
  br i1 %ended, label %refill, label %lives
refill:
  call void @ek.moved(ptr %argument)
  %b = load i64, ptr %next, align 8
  %b.exists = icmp slt i64 %b, %high
  br i1 %b.exists, label %place, label %turned
place:
  %b.next = add i64 %b, 1
  store i64 %b.next, ptr %next, align 8
  call void @ek.place(ptr %argument, ptr %own, i64 %size, i64 %b)
  br label %lives
lives:
  %alive.now = load i64, ptr %alive, align 8
  %alive.next = add i64 %alive.now, 1
  store i64 %alive.next, ptr %alive, align 8
  br label %turned
turned:
  %k.next = add i64 %k, 1
  %k.more = icmp slt i64 %k.next, %resident
  br i1 %k.more, label %turns, label %judge
judge:
  %alive.last = load i64, ptr %alive, align 8
  %finished = icmp eq i64 %alive.last, 0
  br i1 %finished, label %end, label %poll
poll:
  call void @ek.query_host(ptr %argument)
  %queried = call i1 @ek.is_over(ptr %argument)
  br i1 %queried, label %end, label %compare
compare:
  %moves.now = load i64, ptr %moves.at, align 8
  %changes.now = load i64, ptr %changes.at, align 8
  %same.moves = icmp eq i64 %moves.now, %moves.before
  %same.changes = icmp eq i64 %changes.now, %changes.before
  %same.both = and i1 %same.moves, %same.changes
  %still.now = load i64, ptr %still, align 8
  %still.more = add i64 %still.now, 1
  %still.next = select i1 %same.both, i64 %still.more, i64 0
  store i64 %still.next, ptr %still, align 8
  %quiet.now = load i64, ptr %quiet, align 8
  %quiet.more = add i64 %quiet.now, 1
  %quiet.next = select i1 %same.moves, i64 %quiet.more, i64 0
  store i64 %quiet.next, ptr %quiet, align 8
  %too.still = icmp sge i64 %still.next, ROUNDS_STILL
  %too.quiet = icmp sge i64 %quiet.next, PATIENCE
  %stuck = or i1 %too.still, %too.quiet
  br i1 %stuck, label %report, label %round
report:
  %b.last = load i64, ptr %next, align 8
  %left = sub i64 %high, %b.last
  %left.blocks = mul i64 %left, %size
  call void @ek.report_waiting(
    ptr %argument, ptr %memory, i64 %pitch, i64 %resident, i64 %threads, i64 %left.blocks)
  br label %end
end:
  ret i1 true
}

; Gives the host the chance to look for signals.
define internal void @ek.query_host(ptr %argument) optnone noinline {
entry:
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %poll.at = Context.poll(%context)
  %poll = load ptr, ptr %poll.at, align 8
  %nothing = icmp eq ptr %poll, null
  br i1 %nothing, label %end, label %query
query:
  call void %poll(ptr %context, i32 0)
  br label %end
end:
  ret void
}

; Reports where threads wait that cannot continue: at the first places that are found, with their number at each.
define internal void @ek.report_waiting(
    ptr %argument, ptr %memory, i64 %pitch, i64 %resident, i64 %count, i64 %left) optnone noinline {
entry:
  %values = alloca [WAITING_VALUES x i64], align 8
  call void @llvm.memset.p0.i64(ptr align 8 %values, i8 0, i64 WAITING_BYTES, i1 false)
  %resident.to = getelementptr inbounds i8, ptr %values, i64 8
  store i64 %resident, ptr %resident.to, align 8
  %left.to = getelementptr inbounds i8, ptr %values, i64 16
  store i64 %left, ptr %left.to, align 8
  %places = getelementptr inbounds i8, ptr %values, i64 24
  br label %cluster
cluster:
  %r = phi i64 [ 0, %entry ], [ %r.next, %cluster.done ]
  %offset = mul i64 %r, %pitch
  %own = getelementptr inbounds i8, ptr %memory, i64 %offset
  %all.at = Block.all(%own)
  %all = load ptr, ptr %all.at, align 8
  br label %thread
thread:
  %n = phi i64 [ 0, %cluster ], [ %n.next, %thread.done ]
  %record = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %all, i64 %n
  %state.at = Thread.state(%record)
  %state = load i64, ptr %state.at, align 8
  %ended = icmp eq i64 %state, ENDED
  br i1 %ended, label %thread.done, label %waits
waits:
  %total = load i64, ptr %values, align 8
  %total.next = add i64 %total, 1
  store i64 %total.next, ptr %values, align 8
  %site.at = Thread.site(%record)
  %site = load i64, ptr %site.at, align 8
  br label %find
find:                                               ; the row of this place, or an empty one
  %g = phi i64 [ 0, %waits ], [ %g.next, %other ]
  %row.bytes = mul i64 %g, WAITER_BYTES
  %row = getelementptr inbounds i8, ptr %places, i64 %row.bytes
  %row.count.at = getelementptr inbounds i8, ptr %row, i64 16
  %row.count = load i64, ptr %row.count.at, align 8
  %row.count.next = add i64 %row.count, 1
  %row.site = load i64, ptr %row, align 8
  %empty = icmp eq i64 %row.count, 0
  br i1 %empty, label %new, label %compare
compare:
  %same = icmp eq i64 %row.site, %site
  br i1 %same, label %known, label %other
other:
  %g.next = add i64 %g, 1
  %g.more = icmp slt i64 %g.next, WAITERS
  br i1 %g.more, label %find, label %thread.done
new:
  store i64 %site, ptr %row, align 8
  %row.state = getelementptr inbounds i8, ptr %row, i64 8
  store i64 %state, ptr %row.state, align 8
  %block.at = Thread.block(%record)
  %block = load ptr, ptr %block.at, align 8
  %block.x = Block.x(%block)
  %row.block = getelementptr inbounds i8, ptr %row, i64 24
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %row.block, ptr align 8 %block.x, i64 24, i1 false)
  %thread.x = Thread.x(%record)
  %row.thread = getelementptr inbounds i8, ptr %row, i64 48
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %row.thread, ptr align 8 %thread.x, i64 24, i1 false)
  br label %known
known:
  store i64 %row.count.next, ptr %row.count.at, align 8
  br label %thread.done
thread.done:
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %count
  br i1 %n.more, label %thread, label %cluster.done
cluster.done:
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %resident
  br i1 %r.more, label %cluster, label %report
report:
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %own.site.at = Argument.waiting(%argument)
  %own.site = load i64, ptr %own.site.at, align 8
  %report.at = Context.report(%context)
  %function = load ptr, ptr %report.at, align 8
  call void %function(ptr %context, i64 %own.site, ptr %values)
  %status.at = Context.status(%context)
  %code = add i64 %own.site, 1
  store atomic i64 %code, ptr %status.at monotonic, align 8
  ret void
}
"""

YIELDING: Final = """
define internal i1 @ek.yields(ptr %argument) noinline {
entry:
  %seed = call i64 @ek.seed(ptr %argument)
  %none = icmp eq i64 %seed, 0
  br i1 %none, label %goes.on, label %drawn
goes.on:
  ret i1 false
drawn:
  %draws.at = Argument.draws(%argument)
  %draws = load i64, ptr %draws.at, align 8
  %draws.next = add i64 %draws, 1
  store i64 %draws.next, ptr %draws.at, align 8
  %mixed = call i64 @ek.mixed(i64 %draws.next)
  %with.seed = add i64 %mixed, %seed
  %number = call i64 @ek.mixed(i64 %with.seed)
  %bit = trunc i64 %number to i1
  ret i1 %bit
}
"""
