"""The reports of the thread scheduler: divergent threads and, where memory is checked, what threads wait for.

See also `simulation.scheduler` (when it is reported), `simulation.shadow_memory` (what the checks make of it).
"""

from __future__ import annotations

from typing import Final

REPORT_PARTING: Final = """
; Whether all of these threads have ended.
define internal i1 @ek.all_ended(ptr %threads, i64 %count) noinline {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %more ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %ended = icmp eq i64 %state, ENDED
  br i1 %ended, label %more, label %no
more:
  %i.next = add i64 %i, 1
  %again = icmp slt i64 %i.next, %count
  br i1 %again, label %next, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Reports that threads part: how many wait at the place of the first that waits, have ended, or wait elsewhere.
define internal void @ek.report_parting(ptr %block, ptr %threads, i64 %count) optnone noinline {
entry:
  %values = alloca [6 x i64], align 8
  br label %find
find:
  %i = phi i64 [ 0, %entry ], [ %i.next, %find ]
  %first = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %i
  %first.state.at = Thread.state(%first)
  %first.state = load i64, ptr %first.state.at, align 8
  %has.ended = icmp eq i64 %first.state, ENDED
  %i.next = add i64 %i, 1
  br i1 %has.ended, label %find, label %found
found:
  %first.key.at = Thread.key(%first)
  %first.key = load i64, ptr %first.key.at, align 8
  %site.at = Thread.site(%first)
  %site = load i64, ptr %site.at, align 8
  br label %count.next
count.next:
  %j = phi i64 [ 0, %found ], [ %j.next, %count.next ]
  %here = phi i64 [ 0, %found ], [ %here.next, %count.next ]
  %ended = phi i64 [ 0, %found ], [ %ended.next, %count.next ]
  %thread = getelementptr inbounds [SIZE_OF_THREAD x i8], ptr %threads, i64 %j
  %state.at = Thread.state(%thread)
  %state = load i64, ptr %state.at, align 8
  %key.at = Thread.key(%thread)
  %key = load i64, ptr %key.at, align 8
  %same.state = icmp eq i64 %state, %first.state
  %same.key = icmp eq i64 %key, %first.key
  %same = and i1 %same.state, %same.key
  %same.count = zext i1 %same to i64
  %here.next = add i64 %here, %same.count
  %over = icmp eq i64 %state, ENDED
  %over.count = zext i1 %over to i64
  %ended.next = add i64 %ended, %over.count
  %j.next = add i64 %j, 1
  %more = icmp slt i64 %j.next, %count
  br i1 %more, label %count.next, label %report
report:
  %others = sub i64 %count, %here.next
  %elsewhere = sub i64 %others, %ended.next
  %x.at = Block.x(%block)
  call void @llvm.memcpy.p0.p0.i64(ptr %values, ptr %x.at, i64 24, i1 false)
  %here.at = getelementptr inbounds i8, ptr %values, i64 24
  store i64 %here.next, ptr %here.at, align 8
  %ended.at = getelementptr inbounds i8, ptr %values, i64 32
  store i64 %ended.next, ptr %ended.at, align 8
  %elsewhere.at = getelementptr inbounds i8, ptr %values, i64 40
  store i64 %elsewhere, ptr %elsewhere.at, align 8
  %argument.at = Block.argument(%block)
  %argument = load ptr, ptr %argument.at, align 8
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %report.at = Context.report(%context)
  %function = load ptr, ptr %report.at, align 8
  call void %function(ptr %context, i64 %site, ptr %values)
  %status.at = Context.status(%context)
  %code = add i64 %site, 1
  store atomic i64 %code, ptr %status.at monotonic, align 8
  ret void
}
"""

NOT_REPORTING: Final = """
define internal void @ek.check_start(ptr %argument, i64 %chunk) alwaysinline {
  ret void
}

define internal void @ek.check_begin(ptr %block) alwaysinline {
  ret void
}

define internal void @ek.check_own(ptr %block) alwaysinline {
  ret void
}

define internal void @ek.check_end(ptr %block) alwaysinline {
  ret void
}

define internal void @ek.check_sync(ptr %block, ptr %thread, i64 %kind, i64 %low, i64 %high) alwaysinline {
  ret void
}

define internal void @ek.check_switch(ptr %argument, i64 %resident) alwaysinline {
  ret void
}
"""

# Calls of the checks of a simulated device, whose state its table has (see `simulation.shadow_memory`).
REPORTING: Final = """
; The checks are about this cluster of those that run by turns.
define internal void @ek.check_switch(ptr %argument, i64 %resident) {
  %checks = call ptr @ek.checks(ptr %argument)
  %switch.at = CheckState.switch(%checks)
  %function = load ptr, ptr %switch.at, align 8
  call void %function(ptr %checks, i64 %resident)
  ret void
}

define internal ptr @ek.checks(ptr %argument) alwaysinline {
  %context.at = Argument.context(%argument)
  %context = load ptr, ptr %context.at, align 8
  %device.at = Context.device(%context)
  %device = load ptr, ptr %device.at, align 8
  %checks.at = Device.reports(%device)
  %checks = load ptr, ptr %checks.at, align 8
  ret ptr %checks
}

define internal void @ek.check_start(ptr %argument, i64 %chunk) {
  %first = icmp eq i64 %chunk, 0
  br i1 %first, label %start, label %end
start:
  %checks = call ptr @ek.checks(ptr %argument)
  %start.at = CheckState.start(%checks)
  %function = load ptr, ptr %start.at, align 8
  call void %function(ptr %checks, ptr %argument)
  br label %end
end:
  ret void
}

define internal void @ek.check_own(ptr %block) {
  %argument.at = Block.argument(%block)
  %argument = load ptr, ptr %argument.at, align 8
  %checks = call ptr @ek.checks(ptr %argument)
  %own.at = Block.own(%block)
  store ptr %checks, ptr %own.at, align 8
  ret void
}

; Where a block of a cluster has ended, its shared memory is unused.
define internal void @ek.check_end(ptr %block) {
entry:
  %threads.at = Block.threads(%block)
  %threads = load ptr, ptr %threads.at, align 8
  %count.at = Block.count(%block)
  %count = load i64, ptr %count.at, align 8
  %ended = call i1 @ek.all_ended(ptr %threads, i64 %count)
  br i1 %ended, label %forget, label %end
forget:
  %own.at = Block.own(%block)
  %checks = load ptr, ptr %own.at, align 8
  %mark.at = CheckState.mark(%checks)
  %function = load ptr, ptr %mark.at, align 8
  %shared.at = Block.shared(%block)
  %shared = load i64, ptr %shared.at, align 8
  %argument.at = Block.argument(%block)
  %argument = load ptr, ptr %argument.at, align 8
  %bytes = call i64 @ek.shared_pitch(ptr %argument)
  call void %function(ptr %checks, i64 %shared, i64 %bytes, i64 0)
  br label %end
end:
  ret void
}

define internal void @ek.check_begin(ptr %block) {
  %own.at = Block.own(%block)
  %checks = load ptr, ptr %own.at, align 8
  %begin.at = CheckState.begin(%checks)
  %function = load ptr, ptr %begin.at, align 8
  call void %function(ptr %checks, ptr %block)
  ret void
}

define internal void @ek.check_sync(ptr %block, ptr %thread, i64 %kind, i64 %low, i64 %high) {
  %own.at = Block.own(%block)
  %checks = load ptr, ptr %own.at, align 8
  %sync.at = CheckState.sync(%checks)
  %function = load ptr, ptr %sync.at, align 8
  call void %function(ptr %checks, ptr %block, ptr %thread, i64 %kind, i64 %low, i64 %high)
  ret void
}
"""
