"""How the scheduler runs clusters of blocks: where their records and memory lie, and what lets all of them go on.

    @ek.run_in(argument, memory, ...)           a task's clusters, one after the other, in one piece of memory
    @ek.run_cluster(argument, memory, ...)      its blocks by turns, each until all its threads wait for the others
    @ek.sync_cluster(memory, size)              resumes them when all have arrived at one place

A piece of memory has the records of the blocks of a cluster and of all their threads, frames, slots, and shared memory
for each block. Where blocks do not know of each other, a cluster is one block. Threads of a cluster are numbered block
by block, from a multiple of a warp on; the records between are those of threads that have ended.

See also `simulation.scheduler` (what one block does).
"""

from __future__ import annotations

from typing import Final

CLUSTERS: Final = """
; How many blocks a cluster has.
define internal i64 @ek.cluster_size(ptr %argument) alwaysinline {
entry:
  %x.at = Argument.cluster_x(%argument)
  %x = load i64, ptr %x.at, align 8
  %y.at = Argument.cluster_y(%argument)
  %y = load i64, ptr %y.at, align 8
  %z.at = Argument.cluster_z(%argument)
  %z = load i64, ptr %z.at, align 8
  %xy = mul i64 %x, %y
  %size = mul i64 %xy, %z
  ret i64 %size
}

; By how much the numbers of the first threads of two blocks differ: whole warps, where a cluster has several.
define internal i64 @ek.stride(ptr %argument, i64 %count, i64 %size) alwaysinline {
entry:
  %lanes.at = Argument.lanes(%argument)
  %lanes = load i64, ptr %lanes.at, align 8
  %less = sub i64 %lanes, 1
  %more = add i64 %count, %less
  %warps = udiv i64 %more, %lanes
  %whole = mul i64 %warps, %lanes
  %alone = icmp eq i64 %size, 1
  %stride = select i1 %alone, i64 %count, i64 %whole
  ret i64 %stride
}

; The bytes of the shared memory of a block, with some unused ones behind it.
define internal i64 @ek.shared_pitch(ptr %argument) alwaysinline {
entry:
  %static.at = Argument.shared(%argument)
  %static = load i64, ptr %static.at, align 8
  %dynamic.at = Argument.dynamic(%argument)
  %dynamic = load i64, ptr %dynamic.at, align 8
  %shared = add i64 %static, %dynamic
  %extra = add i64 %shared, LINE
  %more = add i64 %extra, SHARED_LESS
  %pitch = and i64 %more, SHARED_LINES
  ret i64 %pitch
}

; The bytes of a piece of memory for a cluster, of whose threads each frame has so many.
define internal i64 @ek.cluster_bytes(ptr %argument, i64 %bytes, i64 %count) optnone noinline {
entry:
  %size = call i64 @ek.cluster_size(ptr %argument)
  %stride = call i64 @ek.stride(ptr %argument, i64 %count, i64 %size)
  %pitch = call i64 @ek.shared_pitch(ptr %argument)
  %slots.at = Argument.slots(%argument)
  %slots = load i64, ptr %slots.at, align 8
  %slot.bytes = mul i64 %slots, SLOTS
  %each.record = add i64 %bytes, SIZE_OF_THREAD
  %each = add i64 %each.record, %slot.bytes
  %all = mul i64 %each, %stride
  %extra = add i64 %pitch, SIZE_OF_BLOCK
  %of.block = add i64 %all, %extra
  %of.blocks = mul i64 %of.block, %size
  %more = add i64 %of.blocks, SHARED_AND_LINE_LESS
  %total = and i64 %more, LINES
  ret i64 %total
}

; Makes a piece of memory ready for a cluster: the records of blocks and threads, frames, slots, shared memory.
define internal void @ek.lay_out(ptr %argument, ptr %memory, i64 %bytes, i64 %count) optnone noinline {
entry:
  %size = call i64 @ek.cluster_size(ptr %argument)
  %stride = call i64 @ek.stride(ptr %argument, i64 %count, i64 %size)
  %pitch = call i64 @ek.shared_pitch(ptr %argument)
  %all.count = mul i64 %stride, %size
  %threads = getelementptr inbounds [SIZE_OF_BLOCK x i8], ptr %memory, i64 %size
  %frames = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %all.count
  %all.frames = mul i64 %all.count, %bytes
  %slots = getelementptr inbounds i8, ptr %frames, i64 %all.frames
  %exchanges.at = Argument.slots(%argument)
  %exchanges = load i64, ptr %exchanges.at, align 8
  %no.slots = icmp eq i64 %exchanges, 0
  %slots.or.none = select i1 %no.slots, ptr null, ptr %slots
  %slot.count = mul i64 %all.count, %exchanges
  %behind.slots = getelementptr inbounds [SLOTS x i8], ptr %slots, i64 %slot.count
  %slots.end = ptrtoint ptr %behind.slots to i64
  %slots.less = sub i64 0, %slots.end
  %slots.rest = and i64 %slots.less, SHARED_LESS
  %shared = getelementptr inbounds i8, ptr %behind.slots, i64 %slots.rest
  %static.at = Argument.shared(%argument)
  %static = load i64, ptr %static.at, align 8
  %lanes.at = Argument.lanes(%argument)
  %lanes = load i64, ptr %lanes.at, align 8
  %size.x.at = Argument.block_x(%argument)
  %size.x = load i64, ptr %size.x.at, align 8
  %size.y.at = Argument.block_y(%argument)
  %size.y = load i64, ptr %size.y.at, align 8
  br label %block
block:
  %c = phi i64 [ 0, %entry ], [ %c.next, %made ]
  %record = getelementptr inbounds [SIZE_OF_BLOCK x i8], ptr %memory, i64 %c
  %argument.at = Block.argument(%record)
  store ptr %argument, ptr %argument.at, align 8
  %first.number = mul i64 %c, %stride
  %first = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %first.number
  %threads.at = Block.threads(%record)
  store ptr %first, ptr %threads.at, align 8
  %all.at = Block.all(%record)
  store ptr %threads, ptr %all.at, align 8
  %blocks.at = Block.blocks(%record)
  store ptr %memory, ptr %blocks.at, align 8
  %count.at = Block.count(%record)
  store i64 %count, ptr %count.at, align 8
  %last = add i64 %first.number, %count
  %last.at = Block.last(%record)
  store i64 %last, ptr %last.at, align 8
  %frames.before = mul i64 %first.number, %bytes
  %own.frames = getelementptr inbounds i8, ptr %frames, i64 %frames.before
  %frames.at = Block.frames(%record)
  store ptr %own.frames, ptr %frames.at, align 8
  %bytes.at = Block.frame_bytes(%record)
  store i64 %bytes, ptr %bytes.at, align 8
  %slots.at = Block.slots(%record)
  store ptr %slots.or.none, ptr %slots.at, align 8
  %shared.before = mul i64 %c, %pitch
  %own.shared = getelementptr inbounds i8, ptr %shared, i64 %shared.before
  %shared.at = Block.shared(%record)
  store ptr %own.shared, ptr %shared.at, align 8
  %dynamic = getelementptr inbounds i8, ptr %own.shared, i64 %static
  %dynamic.at = Block.dynamic(%record)
  store ptr %dynamic, ptr %dynamic.at, align 8
  br label %thread
thread:
  %n = phi i64 [ 0, %block ], [ %n.next, %thread ]
  %own = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %first, i64 %n
  %state.at = Thread.state(%own)
  store i64 ENDED, ptr %state.at, align 8
  %block.at = Thread.block(%own)
  store ptr %record, ptr %block.at, align 8
  %vote.at = Thread.vote(%own)
  store i64 0, ptr %vote.at, align 8
  %row = udiv i64 %n, %size.x
  %x = urem i64 %n, %size.x
  %x.at = Thread.x(%own)
  store i64 %x, ptr %x.at, align 8
  %y = urem i64 %row, %size.y
  %y.at = Thread.y(%own)
  store i64 %y, ptr %y.at, align 8
  %z = udiv i64 %row, %size.y
  %z.at = Thread.z(%own)
  store i64 %z, ptr %z.at, align 8
  %number = add i64 %first.number, %n
  %number.at = Thread.number(%own)
  store i64 %number, ptr %number.at, align 8
  %lane = urem i64 %n, %lanes
  %lane.at = Thread.lane(%own)
  store i64 %lane, ptr %lane.at, align 8
  %warp = udiv i64 %n, %lanes
  %warp.at = Thread.warp(%own)
  store i64 %warp, ptr %warp.at, align 8
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %stride
  br i1 %n.more, label %thread, label %made
made:
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %size
  br i1 %c.more, label %block, label %end
end:
  ret void
}

; Runs clusters [low, high), in one piece of memory or, where their threads spin, in several.
define internal void @ek.run_in(ptr %argument, ptr %memory, i64 %bytes, i64 %count, i64 %low, i64 %high)
    optnone noinline {
entry:
  %interleaved = call i1 @ek.run_interleaved(ptr %argument, ptr %memory, i64 %bytes, i64 %count, i64 %high)
  br i1 %interleaved, label %end, label %one
one:
  %size = call i64 @ek.cluster_size(ptr %argument)
  %stride = call i64 @ek.stride(ptr %argument, i64 %count, i64 %size)
  %all.count = mul i64 %stride, %size
  call void @ek.lay_out(ptr %argument, ptr %memory, i64 %bytes, i64 %count)
  br label %next
next:
  %b = phi i64 [ %low, %one ], [ %b.next, %run ]
  %more = icmp slt i64 %b, %high
  br i1 %more, label %look, label %end
look:
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %end, label %run
run:
  call void @ek.place(ptr %argument, ptr %memory, i64 %size, i64 %b)
  call void @ek.run_cluster(ptr %argument, ptr %memory, i64 %size, i64 %all.count)
  %b.next = add i64 %b, 1
  br label %next
end:
  ret void
}

; Says where the blocks of a cluster are, and lets their threads begin anew.
define internal void @ek.place(ptr %argument, ptr %memory, i64 %size, i64 %b) optnone noinline {
entry:
  %number = call i64 @ek.block_number(ptr %argument, i64 %b)
  %grid.x.at = Argument.grid_x(%argument)
  %grid.x = load i64, ptr %grid.x.at, align 8
  %grid.y.at = Argument.grid_y(%argument)
  %grid.y = load i64, ptr %grid.y.at, align 8
  %size.x.at = Argument.cluster_x(%argument)
  %size.x = load i64, ptr %size.x.at, align 8
  %size.y.at = Argument.cluster_y(%argument)
  %size.y = load i64, ptr %size.y.at, align 8
  %size.z.at = Argument.cluster_z(%argument)
  %size.z = load i64, ptr %size.z.at, align 8
  %clusters.x = udiv i64 %grid.x, %size.x
  %clusters.y = udiv i64 %grid.y, %size.y
  %row = udiv i64 %number, %clusters.x
  %cluster.x = urem i64 %number, %clusters.x
  %cluster.y = urem i64 %row, %clusters.y
  %cluster.z = udiv i64 %row, %clusters.y
  %first.x = mul i64 %cluster.x, %size.x
  %first.y = mul i64 %cluster.y, %size.y
  %first.z = mul i64 %cluster.z, %size.z
  br label %block
block:
  %c = phi i64 [ 0, %entry ], [ %c.next, %block ]
  %record = getelementptr inbounds [SIZE_OF_BLOCK x i8], ptr %memory, i64 %c
  %rest = udiv i64 %c, %size.x
  %more.x = urem i64 %c, %size.x
  %more.y = urem i64 %rest, %size.y
  %more.z = udiv i64 %rest, %size.y
  %x = add i64 %first.x, %more.x
  %x.at = Block.x(%record)
  store i64 %x, ptr %x.at, align 8
  %y = add i64 %first.y, %more.y
  %y.at = Block.y(%record)
  store i64 %y, ptr %y.at, align 8
  %z = add i64 %first.z, %more.z
  %z.at = Block.z(%record)
  store i64 %z, ptr %z.at, align 8
  %steps.at = Block.steps(%record)
  store i64 0, ptr %steps.at, align 8
  call void @ek.begin_threads(ptr %record)
  call void @ek.check_own(ptr %record)
  %c.next = add i64 %c, 1
  %more = icmp slt i64 %c.next, %size
  br i1 %more, label %block, label %begin
begin:
  call void @ek.check_begin(ptr %memory)
  ret void
}

; Runs the blocks of a cluster until each waits for the others, lets them go on, and so on to their end.
define internal void @ek.run_cluster(ptr %argument, ptr %memory, i64 %size, i64 %count) optnone noinline {
entry:
  %alone = icmp eq i64 %size, 1
  br i1 %alone, label %one, label %round
one:
  call void @ek.run_block(ptr %argument, ptr %memory)
  ret void
round:
  %rounds = phi i64 [ 0, %entry ], [ %rounds.next, %release ]
  %rounds.next = add i64 %rounds, 1
  %turn = call i64 @ek.cluster_turn(ptr %argument, ptr %memory, i64 %rounds)
  br label %next
next:
  %k = phi i64 [ 0, %round ], [ %k.next, %next ]
  %sum = add i64 %k, %turn
  %c = urem i64 %sum, %size
  %record = getelementptr inbounds [SIZE_OF_BLOCK x i8], ptr %memory, i64 %c
  call void @ek.run_block(ptr %argument, ptr %record)
  call void @ek.check_end(ptr %record)
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %size
  br i1 %more, label %next, label %check
check:
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %end, label %query
query:
  %synced = call i64 @ek.sync_cluster(ptr %memory, i64 %size)
  %some = icmp slt i64 %synced, %size
  br i1 %some, label %release, label %end
release:
  br label %round
end:
  ret void
}

; Lets the threads of a cluster go on that have all come to one place: 0; else the number of its blocks, and a report
; unless all have ended or some spin.
define internal i64 @ek.sync_cluster(ptr %memory, i64 %size) optnone noinline {
entry:
  %all.at = Block.all(%memory)
  %all = load ptr, ptr %all.at, align 8
  %state.at = Thread.state(%all)
  %state = load i64, ptr %state.at, align 8
  %key.at = Thread.key(%all)
  %key = load i64, ptr %key.at, align 8
  %waits = icmp eq i64 %state, CLUSTER
  br label %next
next:
  %c = phi i64 [ 0, %entry ], [ %c.next, %counted ]
  %same = phi i1 [ true, %entry ], [ %same.last, %counted ]
  %record = getelementptr inbounds [SIZE_OF_BLOCK x i8], ptr %memory, i64 %c
  %threads.at = Block.threads(%record)
  %threads = load ptr, ptr %threads.at, align 8
  %count.at = Block.count(%record)
  %count = load i64, ptr %count.at, align 8
  br label %look
look:
  %n = phi i64 [ 0, %next ], [ %n.next, %look ]
  %so.far = phi i1 [ %same, %next ], [ %same.next, %look ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %n
  %other.at = Thread.state(%thread)
  %other = load i64, ptr %other.at, align 8
  %other.key.at = Thread.key(%thread)
  %other.key = load i64, ptr %other.key.at, align 8
  %same.state = icmp eq i64 %other, %state
  %same.key = icmp eq i64 %other.key, %key
  %ended = xor i1 %waits, true
  %key.or.end = or i1 %same.key, %ended
  %same.both = and i1 %same.state, %key.or.end
  %same.next = and i1 %so.far, %same.both
  %n.next = add i64 %n, 1
  %n.more = icmp slt i64 %n.next, %count
  br i1 %n.more, label %look, label %counted
counted:
  %same.last = phi i1 [ %same.next, %look ]
  %c.next = add i64 %c, 1
  %c.more = icmp slt i64 %c.next, %size
  br i1 %c.more, label %next, label %decide
decide:
  %last.at = Block.last(%record)
  %behind = load i64, ptr %last.at, align 8
  br i1 %same.last, label %agree, label %look.again
look.again:
  %spins = call i1 @ek.any_spins(ptr %all, i64 %behind)
  br i1 %spins, label %over, label %part
part:
  call void @ek.report_parting(ptr %memory, ptr %all, i64 %behind)
  ret i64 %size
agree:
  br i1 %waits, label %sync, label %over
over:
  ret i64 %size
sync:
  call void @ek.check_sync(ptr %memory, ptr %all, i64 CLUSTER, i64 0, i64 %behind)
  br label %let
let:
  %k = phi i64 [ 0, %sync ], [ %k.next, %let ]
  %synced = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %all, i64 %k
  %synced.state.at = Thread.state(%synced)
  %synced.state = load i64, ptr %synced.state.at, align 8
  %was.there = icmp eq i64 %synced.state, CLUSTER
  %synced.next = select i1 %was.there, i64 READY, i64 %synced.state
  store i64 %synced.next, ptr %synced.state.at, align 8
  %k.next = add i64 %k, 1
  %let.more = icmp slt i64 %k.next, %behind
  br i1 %let.more, label %let, label %gone
gone:
  ret i64 0
}
"""
