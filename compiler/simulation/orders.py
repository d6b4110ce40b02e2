"""The order in which the scheduler runs blocks and threads: as they are numbered, or drawn from the seed of a device.

    @ek.run_block(argument, block)              runs a block from its beginning to its end
    @ek.block_number(argument, b)               which block is run as number b
    @ek.begin_launch(argument, chunk)           a part of a launch begins
    @ek.cluster_turn(argument, block, round)    from which of its blocks on those of a cluster go on

With a seed, the warp that goes on is drawn each time, and an order of its threads: so warps get far ahead of others.
The order of a block depends on the seed and the block alone, so that it comes again. With a schedule (see
`dsl.contract.schedules`) blocks and warps go on in their plain order but for its switches; or all is drawn, and noted.

See also `simulation.scheduler` (what is waited for).
"""

from __future__ import annotations

from typing import Final

MOST_THREADS: Final = 1024  # of a block that is run in a drawn order; larger ones run in order

IN_ORDER: Final = """
define internal void @ek.run_block(ptr %argument, ptr %block) alwaysinline {
entry:
  call void @ek.run_in_order(ptr %argument, ptr %block)
  ret void
}

define internal i64 @ek.block_number(ptr %argument, i64 %b) alwaysinline {
entry:
  ret i64 %b
}

define internal void @ek.begin_launch(ptr %argument, i64 %chunk) alwaysinline {
entry:
  ret void
}

define internal i64 @ek.cluster_turn(ptr %argument, ptr %block, i64 %round) alwaysinline {
entry:
  ret i64 0
}
"""

# A linear congruence with a factor that has no divisor in common with the count takes every block once.
DRAWN: Final = """
define internal ptr @ek.device(ptr %argument) alwaysinline {
entry:
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %device.at = Context.device(%context)
  %device = load ptr, ptr %device.at, align 8
  ret ptr %device
}

; The seed of the device, or 0.
define internal i64 @ek.seed(ptr %argument) optnone noinline {
entry:
  %device = call ptr @ek.device(ptr %argument)
  %seed.at = Device.driver(%device)
  %seed = load i64, ptr %seed.at, align 8
  ret i64 %seed
}

; The schedule of the device, or null.
define internal ptr @ek.schedule(ptr %argument) optnone noinline {
entry:
  %device = call ptr @ek.device(ptr %argument)
  %schedule.at = Device.schedule(%device)
  %schedule = load ptr, ptr %schedule.at, align 8
  ret ptr %schedule
}

define internal void @ek.begin_launch(ptr %argument, i64 %chunk) optnone noinline {
entry:
  %schedule = call ptr @ek.schedule(ptr %argument)
  %none = icmp eq ptr %schedule, null
  %later = icmp ne i64 %chunk, 0
  %nothing = or i1 %none, %later
  br i1 %nothing, label %end, label %count
count:
  %launch.at = Schedule.launch(%schedule)
  %launch = load i64, ptr %launch.at, align 8
  %next = add i64 %launch, 1
  store i64 %next, ptr %launch.at, align 8
  br label %end
end:
  ret void
}

; The row of a schedule from row `from` on that is for a step of a block in this launch; its address, or null. Any block
; matches where `block` is below 0.
define internal ptr @ek.find_switch(ptr %schedule, i64 %from, i64 %block, i64 %step) optnone noinline {
entry:
  %launch.at = Schedule.launch(%schedule)
  %launch = load i64, ptr %launch.at, align 8
  %rows.at = Schedule.switches(%schedule)
  %rows = load ptr, ptr %rows.at, align 8
  %count.at = Schedule.count(%schedule)
  %count = load i64, ptr %count.at, align 8
  %any = icmp slt i64 %block, 0
  br label %next
next:
  %i = phi i64 [ %from, %entry ], [ %i.next, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %none
look:
  %row = getelementptr inbounds [SIZE_OF_ROW x i8], ptr %rows, i64 %i
  %row.launch.at = ScheduleRow.launch(%row)
  %row.launch = load i64, ptr %row.launch.at, align 8
  %row.block.at = ScheduleRow.block(%row)
  %row.block = load i64, ptr %row.block.at, align 8
  %row.step.at = ScheduleRow.step(%row)
  %row.step = load i64, ptr %row.step.at, align 8
  %same.launch = icmp eq i64 %row.launch, %launch
  %same.block = icmp eq i64 %row.block, %block
  %right.block = or i1 %same.block, %any
  %same.step = icmp eq i64 %row.step, %step
  %same.place = and i1 %right.block, %same.step
  %same = and i1 %same.launch, %same.place
  %i.next = add i64 %i, 1
  br i1 %same, label %found, label %next
found:
  ret ptr %row
none:
  ret ptr null
}

; Which warp has the next step, and by `order` its threads: as drawn, or as the schedule says.
define internal i64 @ek.choose(
    ptr %argument, ptr %block, i64 %step, i64 %before, i64 %awake, i64 %drawn, ptr %order) optnone noinline {
entry:
  %schedule = call ptr @ek.schedule(ptr %argument)
  %none = icmp eq ptr %schedule, null
  br i1 %none, label %as.drawn, label %some
as.drawn:
  ret i64 %drawn
some:
  %lanes.at = Argument.lanes(%argument)
  %lanes = load i64, ptr %lanes.at, align 8
  %last = sub i64 %lanes, 1
  %lanes.to = Schedule.lanes(%schedule)
  store i64 %lanes, ptr %lanes.to, align 8
  %plain = call i64 @ek.awake_from(i64 %awake, i64 %before)
  %launch.at = Schedule.launch(%schedule)
  %launch = load i64, ptr %launch.at, align 8
  %x.at = Block.x(%block)
  %x = load i64, ptr %x.at, align 8
  %y.at = Block.y(%block)
  %y = load i64, ptr %y.at, align 8
  %z.at = Block.z(%block)
  %z = load i64, ptr %z.at, align 8
  %grid.x.at = Argument.grid_x(%argument)
  %grid.x = load i64, ptr %grid.x.at, align 8
  %grid.y.at = Argument.grid_y(%argument)
  %grid.y = load i64, ptr %grid.y.at, align 8
  %planes = mul i64 %z, %grid.y
  %rows = add i64 %planes, %y
  %scaled = mul i64 %rows, %grid.x
  %number = add i64 %scaled, %x
  %offset.at = getelementptr inbounds i8, ptr %order, i64 8
  %drawn.at = Schedule.drawn(%schedule)
  %is.drawn = load i64, ptr %drawn.at, align 8
  %notes = icmp ne i64 %is.drawn, 0
  br i1 %notes, label %note, label %plan
note:
  %noted.at = Schedule.noted(%schedule)
  %noted = load i64, ptr %noted.at, align 8
  %noted.next = add i64 %noted, 1
  store i64 %noted.next, ptr %noted.at, align 8
  %room.at = Schedule.room(%schedule)
  %room = load i64, ptr %room.at, align 8
  %fits = icmp slt i64 %noted, %room
  br i1 %fits, label %write, label %as.drawn
write:
  %to.at = Schedule.notes(%schedule)
  %to = load ptr, ptr %to.at, align 8
  %row = getelementptr inbounds [SIZE_OF_ROW x i8], ptr %to, i64 %noted
  %row.launch = ScheduleRow.launch(%row)
  store i64 %launch, ptr %row.launch, align 8
  %row.block = ScheduleRow.block(%row)
  store i64 %number, ptr %row.block, align 8
  %row.step = ScheduleRow.step(%row)
  store i64 %step, ptr %row.step, align 8
  %drawn.factor = load i64, ptr %order, align 8
  %short.factor = and i64 %drawn.factor, %last
  %row.factor = ScheduleRow.factor(%row)
  store i64 %short.factor, ptr %row.factor, align 8
  %drawn.offset = load i64, ptr %offset.at, align 8
  %lane = and i64 %drawn.offset, %last
  %start = mul i64 %drawn, %lanes
  %thread = add i64 %start, %lane
  %row.thread = ScheduleRow.thread(%row)
  store i64 %thread, ptr %row.thread, align 8
  %same.warp = icmp eq i64 %plain, %drawn
  %same.lane = icmp eq i64 %lane, 0
  %same.factor = icmp eq i64 %short.factor, 1
  %same.order = and i1 %same.lane, %same.factor
  %same = and i1 %same.warp, %same.order
  %is.plain = zext i1 %same to i64
  %row.plain = ScheduleRow.plain(%row)
  store i64 %is.plain, ptr %row.plain, align 8
  ret i64 %drawn
plan:
  store i64 1, ptr %order, align 8
  store i64 0, ptr %offset.at, align 8
  %switch = call ptr @ek.find_switch(ptr %schedule, i64 0, i64 %number, i64 %step)
  %no.switch = icmp eq ptr %switch, null
  br i1 %no.switch, label %as.plain, label %switched
as.plain:
  ret i64 %plain
switched:
  %first.at = ScheduleRow.thread(%switch)
  %first = load i64, ptr %first.at, align 8
  %first.lane = and i64 %first, %last
  store i64 %first.lane, ptr %offset.at, align 8
  %first.factor.at = ScheduleRow.factor(%switch)
  %first.factor = load i64, ptr %first.factor.at, align 8
  store i64 %first.factor, ptr %order, align 8
  %first.warp = udiv i64 %first, %lanes
  %warp = call i64 @ek.awake_from(i64 %awake, i64 %first.warp)
  ret i64 %warp
}

; The first of 64 warps from one on that is awake.
define internal i64 @ek.awake_from(i64 %awake, i64 %from) alwaysinline {
entry:
  %turn = and i64 %from, 63
  %turned = call i64 @llvm.fshr.i64(i64 %awake, i64 %awake, i64 %turn)
  %away = call i64 @llvm.cttz.i64(i64 %turned, i1 false)
  %sum = add i64 %away, %turn
  %warp = and i64 %sum, 63
  ret i64 %warp
}

; A number that looks like nothing: the finalizer of splitmix64.
define internal i64 @ek.mixed(i64 %number) alwaysinline {
entry:
  %a = lshr i64 %number, 30
  %b = xor i64 %number, %a
  %c = mul i64 %b, -4658895280553007687
  %d = lshr i64 %c, 27
  %e = xor i64 %c, %d
  %f = mul i64 %e, -7723592293110705685
  %g = lshr i64 %f, 31
  %h = xor i64 %f, %g
  ret i64 %h
}

define internal i64 @ek.draw(ptr %state) alwaysinline {
entry:
  %before = load i64, ptr %state, align 8
  %after = add i64 %before, -7046029254386353131
  store i64 %after, ptr %state, align 8
  %drawn = call i64 @ek.mixed(i64 %after)
  ret i64 %drawn
}

define internal i64 @ek.block_number(ptr %argument, i64 %b) optnone noinline {
entry:
  %schedule = call ptr @ek.schedule(ptr %argument)
  %unplanned = icmp eq ptr %schedule, null
  br i1 %unplanned, label %query, label %look
look:
  %drawn.at = Schedule.drawn(%schedule)
  %is.drawn = load i64, ptr %drawn.at, align 8
  %planned = icmp eq i64 %is.drawn, 0
  br i1 %planned, label %plan, label %query
plan:                                               ; each switch of blocks, in turn
  %at = phi i64 [ 0, %look ], [ %at.next, %swap ]
  %now = phi i64 [ %b, %look ], [ %now.next, %swap ]
  %row = call ptr @ek.find_switch(ptr %schedule, i64 %at, i64 -1, i64 BLOCKS)
  %no.row = icmp eq ptr %row, null
  br i1 %no.row, label %planned.end, label %swap
swap:
  %rows.at = Schedule.switches(%schedule)
  %rows = load i64, ptr %rows.at, align 8
  %row.address = ptrtoint ptr %row to i64
  %bytes = sub i64 %row.address, %rows
  %index = udiv i64 %bytes, SIZE_OF_ROW
  %at.next = add i64 %index, 1
  %one.at = ScheduleRow.block(%row)
  %one.block = load i64, ptr %one.at, align 8
  %other.at = ScheduleRow.thread(%row)
  %other.block = load i64, ptr %other.at, align 8
  %planned.total.at = Argument.total(%argument)
  %planned.total = load i64, ptr %planned.total.at, align 8
  %one.there = icmp slt i64 %one.block, %planned.total
  %other.there = icmp slt i64 %other.block, %planned.total
  %both.there = and i1 %one.there, %other.there
  %is.one = icmp eq i64 %now, %one.block
  %is.other = icmp eq i64 %now, %other.block
  %from.other = select i1 %is.other, i64 %one.block, i64 %now
  %swapped = select i1 %is.one, i64 %other.block, i64 %from.other
  %now.next = select i1 %both.there, i64 %swapped, i64 %now
  br label %plan
planned.end:
  ret i64 %now
query:
  %seed = call i64 @ek.seed(ptr %argument)
  %none = icmp eq i64 %seed, 0
  br i1 %none, label %plain, label %drawn
plain:
  ret i64 %b
drawn:
  %total.at = Argument.total(%argument)
  %total = load i64, ptr %total.at, align 8
  %start = call i64 @ek.mixed(i64 %seed)
  %which = and i64 %start, 1
  %one = icmp eq i64 %which, 0
  %prime = select i1 %one, i64 1299709, i64 7919
  %rest = urem i64 %total, %prime
  %divides = icmp eq i64 %rest, 0
  %factor = select i1 %divides, i64 1, i64 %prime
  %scaled = mul i64 %b, %factor
  %positive = lshr i64 %start, 24
  %shifted = add i64 %scaled, %positive
  %number = urem i64 %shifted, %total
  ret i64 %number
}

define internal i64 @ek.cluster_turn(ptr %argument, ptr %block, i64 %round) optnone noinline {
entry:
  %seed = call i64 @ek.seed(ptr %argument)
  %none = icmp eq i64 %seed, 0
  %x.at = Block.x(%block)
  %x = load i64, ptr %x.at, align 8
  %more = add i64 %x, %round
  %of.block = call i64 @ek.mixed(i64 %more)
  %from = add i64 %of.block, %seed
  %drawn = call i64 @ek.mixed(i64 %from)
  %positive = lshr i64 %drawn, 24
  %turn = select i1 %none, i64 0, i64 %positive
  ret i64 %turn
}

define internal void @ek.run_block(ptr %argument, ptr %block) optnone noinline {
entry:
  %seed = call i64 @ek.seed(ptr %argument)
  %no.seed = icmp eq i64 %seed, 0
  %schedule = call ptr @ek.schedule(ptr %argument)
  %unplanned = icmp eq ptr %schedule, null
  %none = and i1 %no.seed, %unplanned
  %count.at = Block.count(%block)
  %count = load i64, ptr %count.at, align 8
  %large = icmp sgt i64 %count, MOST_THREADS
  %plain = or i1 %none, %large
  br i1 %plain, label %in.order, label %drawn
in.order:
  call void @ek.run_in_order(ptr %argument, ptr %block)
  ret void
drawn:
  %x.at = Block.x(%block)
  %x = load i64, ptr %x.at, align 8
  %y.at = Block.y(%block)
  %y = load i64, ptr %y.at, align 8
  %z.at = Block.z(%block)
  %z = load i64, ptr %z.at, align 8
  %of.x = call i64 @ek.mixed(i64 %x)
  %xy = add i64 %of.x, %y
  %of.xy = call i64 @ek.mixed(i64 %xy)
  %xyz = add i64 %of.xy, %z
  %of.xyz = call i64 @ek.mixed(i64 %xyz)
  %steps.at = Block.steps(%block)
  %steps = load i64, ptr %steps.at, align 8
  %of.steps = mul i64 %steps, -7046029254386353131
  %from.block = add i64 %of.xyz, %of.steps
  %from = add i64 %from.block, %seed
  call void @ek.run_drawn(ptr %argument, ptr %block, i64 %count, i64 %from)
  ret void
}

; One warp after the other, as drawn from those that can go on; its threads in one of the orders that an odd factor and
; a first lane make.
define internal void @ek.run_drawn(ptr %argument, ptr %block, i64 %count, i64 %from) minsize optsize noinline {
entry:
  %state = alloca i64, align 8
  %order = alloca [2 x i64], align 8
  %order.offset = getelementptr inbounds i8, ptr %order, i64 8
  store i64 %from, ptr %state, align 8
  %threads.at = Block.threads(%block)
  %threads = load ptr, ptr %threads.at, align 8
  %lanes.at = Argument.lanes(%argument)
  %lanes = load i64, ptr %lanes.at, align 8
  %last = sub i64 %lanes, 1
  %more.threads = add i64 %count, %last
  %warps = udiv i64 %more.threads, %lanes
  %idle = sub i64 64, %warps
  %everybody = lshr i64 -1, %idle
  %steps.at = Block.steps(%block)
  %steps = load i64, ptr %steps.at, align 8
  br label %choose
choose:                                             ; the first that is awake, from a drawn one on
  %awake = phi i64 [ %everybody, %entry ], [ %everybody, %block.syncs ], [ %awake, %sync ], [ %fewer, %sleep ]
  %turns = phi i64 [ %steps, %entry ], [ %turns.next, %block.syncs ], [ %turns.next, %sync ], [ %turns.next, %sleep ]
  %earlier = phi i64 [ 0, %entry ], [ 0, %block.syncs ], [ %warp, %sync ], [ %warp, %sleep ]
  %turns.next = add i64 %turns, 1
  store i64 %turns.next, ptr %steps.at, align 8
  %random = call i64 @ek.draw(ptr %state)
  %turn = urem i64 %random, %warps
  %drawn.warp = call i64 @ek.awake_from(i64 %awake, i64 %turn)
  %high = lshr i64 %random, 16
  %drawn.factor = or i64 %high, 1
  store i64 %drawn.factor, ptr %order, align 8
  %drawn.offset = lshr i64 %random, 40
  store i64 %drawn.offset, ptr %order.offset, align 8
  %warp = call i64 @ek.choose(
    ptr %argument, ptr %block, i64 %turns, i64 %earlier, i64 %awake, i64 %drawn.warp, ptr %order)
  %start = mul i64 %warp, %lanes
  %first = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %start
  %left = sub i64 %count, %start
  %size = call i64 @llvm.smin.i64(i64 %left, i64 %lanes)
  %factor = load i64, ptr %order, align 8
  %offset = load i64, ptr %order.offset, align 8
  br label %next
next:
  %i = phi i64 [ 0, %choose ], [ %i.next, %stepped ]
  %waits = phi i1 [ false, %choose ], [ %waits.next, %stepped ]
  %scaled = mul i64 %i, %factor
  %moved = add i64 %scaled, %offset
  %lane = and i64 %moved, %last
  %exists = icmp slt i64 %lane, %size
  br i1 %exists, label %look, label %stepped
look:
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %first, i64 %lane
  %for.warp = call i1 @ek.go_on(ptr %argument, ptr %thread)
  br label %stepped
stepped:
  %one.waits = phi i1 [ false, %next ], [ %for.warp, %look ]
  %waits.next = or i1 %waits, %one.waits
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %lanes
  br i1 %more, label %next, label %decide
decide:
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %sleep, label %query             ; the other warps go as far as they come, for what they do
query:
  br i1 %waits.next, label %sync, label %sleep
sync:
  %synced = call i1 @ek.sync(ptr %block, ptr %first, i64 %size, i64 WARP)
  br i1 %synced, label %choose, label %spin
spin:
  %spins = call i1 @ek.any_spins(ptr %first, i64 %size)
  br i1 %spins, label %sleep, label %part
part:
  call void @ek.report_parting(ptr %block, ptr %first, i64 %size)
  br label %end
sleep:
  %bit = shl i64 1, %warp
  %others = xor i64 %bit, -1
  %fewer = and i64 %awake, %others
  %none = icmp eq i64 %fewer, 0
  br i1 %none, label %block.syncs, label %choose
block.syncs:
  %again = call i1 @ek.sync_block(ptr %argument, ptr %block, ptr %threads, i64 %count)
  br i1 %again, label %choose, label %end
end:
  ret void
}
"""
