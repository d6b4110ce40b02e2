"""The order in which the scheduler runs blocks and threads: as they are numbered, or drawn from the seed of a device.

    @ek.run_block(argument, block)              runs a block from its beginning to its end
    @ek.block_number(argument, b)               which block is run as number b

With a seed, the warp that goes on is drawn each time, and an order of its threads: so warps get far ahead of others.
The order of a block depends on the seed and the block alone, so that it comes again.

Output: LLVM IR, with the fields of records as the scheduler's own text has them. Non-goals: what is waited for (see
`codegen.simulator`).
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
"""

# A linear congruence with a factor that has no divisor in common with the count takes every block once.
DRAWN: Final = """
; The seed of the device, or 0.
define internal i64 @ek.seed(ptr %argument) optnone noinline {
entry:
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %device.at = Context.device(%context)
  %device = load ptr, ptr %device.at, align 8
  %seed.at = Device.driver(%device)
  %seed = load i64, ptr %seed.at, align 8
  ret i64 %seed
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

define internal void @ek.run_block(ptr %argument, ptr %block) optnone noinline {
entry:
  %seed = call i64 @ek.seed(ptr %argument)
  %none = icmp eq i64 %seed, 0
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
  %from = add i64 %of.xyz, %seed
  call void @ek.run_drawn(ptr %argument, ptr %block, i64 %count, i64 %from)
  ret void
}

; One warp after the other, as drawn from those that can go on; its threads in one of the orders that an odd factor and
; a first lane make.
define internal void @ek.run_drawn(ptr %argument, ptr %block, i64 %count, i64 %from) minsize optsize noinline {
entry:
  %state = alloca i64, align 8
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
  call void @ek.begin_threads(ptr %block)
  br label %choose
choose:                                             ; the first that is awake, from a drawn one on
  %awake = phi i64 [ %everybody, %entry ], [ %everybody, %block.meets ], [ %awake, %meet ], [ %fewer, %sleep ]
  %random = call i64 @ek.draw(ptr %state)
  %turn = and i64 %random, 63
  %turned = call i64 @llvm.fshr.i64(i64 %awake, i64 %awake, i64 %turn)
  %away = call i64 @llvm.cttz.i64(i64 %turned, i1 false)
  %sum = add i64 %away, %turn
  %warp = and i64 %sum, 63
  %start = mul i64 %warp, %lanes
  %first = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %start
  %left = sub i64 %count, %start
  %size = call i64 @llvm.smin.i64(i64 %left, i64 %lanes)
  %high = lshr i64 %random, 16
  %factor = or i64 %high, 1
  %offset = lshr i64 %random, 40
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
  %state.at = Thread.state(%thread)
  %before = load i64, ptr %state.at, align 8
  %ready = icmp eq i64 %before, READY
  %new = icmp eq i64 %before, NEW
  %runs = or i1 %ready, %new
  br i1 %runs, label %step, label %seen
step:
  call void @ek.step(ptr %argument, ptr %thread)
  br label %seen
seen:
  %after = load i64, ptr %state.at, align 8
  %for.warp = icmp eq i64 %after, WARP
  br label %stepped
stepped:
  %one.waits = phi i1 [ false, %next ], [ %for.warp, %seen ]
  %waits.next = or i1 %waits, %one.waits
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %lanes
  br i1 %more, label %next, label %decide
decide:
  %over = call i1 @ek.is_over(ptr %argument)
  br i1 %over, label %end, label %ask
ask:
  br i1 %waits.next, label %meet, label %sleep
meet:
  %met = call i1 @ek.meet(ptr %block, ptr %first, i64 %size, i64 WARP)
  br i1 %met, label %choose, label %part
part:
  call void @ek.report_parting(ptr %block, ptr %first, i64 %size)
  br label %end
sleep:
  %bit = shl i64 1, %warp
  %others = xor i64 %bit, -1
  %fewer = and i64 %awake, %others
  %none = icmp eq i64 %fewer, 0
  br i1 %none, label %block.meets, label %choose
block.meets:
  %again = call i1 @ek.meet_block(ptr %argument, ptr %block, ptr %threads, i64 %count)
  br i1 %again, label %choose, label %end
end:
  ret void
}
"""
