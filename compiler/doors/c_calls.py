"""Writes the functions of a C door that call the entry, by arrays: sizes, and the addresses of tensors.

    i32 @run(plan, tensors, workspace, why)         with a prepared plan
    i32 @call_in(sizes, tensors, workspace, why)    plans and runs
    i32 @call(sizes, tensors, why)                  takes a workspace of its own

See also `c_sizes` (plans), `c_stages` (entries that compute sizes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...dsl.contract import abi
from ...dsl.contract.exports import ALIGNMENT, FAILURE_VALUES, ExportedFailure, ExportSpec
from ..ir.llvm_text import FunctionText, Number
from .c_sizes import PLAN_BYTES, PLAN_LARGE, PLAN_MAGIC, SIZE_ATTRIBUTES, PlanLayout, PlanText, plan_magic
from .c_tables import ROW_BYTES
from .text import fill_context

HEAD: Final = """
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @ek_entry(ptr, ptr, ptr)
declare i32 @ek_call_plainly(ptr, ptr, ptr, ptr) cold
declare hidden void @ek_print(i64, ptr)
declare hidden void @ek_set_print(ptr, ptr)
declare i64 @ek_arena(ptr, ptr, ptr, ptr, ptr, i64)
declare void @ek_threads_enter(ptr, i64)
declare i32 @ek_stack_has(i64)
declare i32 @ek_stack_call(ptr, ptr, i64)
"""

# Functions that calls seldom reach. They lie behind `@run`, where its jumps to them are short.
COLD: Final = f'noinline cold {SIZE_ATTRIBUTES} section ".text"'

# fail(why, row, expected, got) -> the row's status.
FAILURES: Final = f"""
define internal i32 @fail(ptr %why, i64 %row, i64 %expected, i64 %got) {COLD} {{
begin.:
  %known = getelementptr inbounds [{ROW_BYTES} x i8], ptr @rows, i64 %row
  %status = load i32, ptr %known
  %none = icmp eq ptr %why, null
  br i1 %none, label %end, label %note
note:
  store i32 %status, ptr %why
  %argument.at = getelementptr inbounds i8, ptr %known, i64 4
  %argument = load i32, ptr %argument.at
  %to.argument = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.argument.offset}
  store i32 %argument, ptr %to.argument
  %axis.at = getelementptr inbounds i8, ptr %known, i64 8
  %axis = load i32, ptr %axis.at
  %to.axis = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.axis.offset}
  store i32 %axis, ptr %to.axis
  %short = trunc i64 %row to i32
  %to.row = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.row.offset}
  store i32 %short, ptr %to.row
  %to.expected = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.expected.offset}
  store i64 %expected, ptr %to.expected
  %to.got = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.got.offset}
  store i64 %got, ptr %to.got
  br label %end
end:
  ret i32 %status
}}
"""

# report(context, site, values) keeps the first failure of a call, and shows a print.
REPORTS: Final = f"""
define internal void @report(ptr %context, i64 %site, ptr %values) minsize optsize {{
begin.:
  %known = getelementptr inbounds [{ROW_BYTES} x i8], ptr @rows, i64 %site
  %status = load i32, ptr %known
  %count.at = getelementptr inbounds i8, ptr %known, i64 12
  %count = load i32, ptr %count.at
  %prints = icmp eq i32 %status, 0
  br i1 %prints, label %print, label %failed
print:
  call void @ek_print(i64 %site, ptr %values)
  ret void
failed:
  %owner.at = getelementptr inbounds i8, ptr %context, i64 {abi.OWNER_OFFSET}
  %why = load ptr, ptr %owner.at
  %none = icmp eq ptr %why, null
  br i1 %none, label %end, label %claim
claim:
  %to.row = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.row.offset}
  %short = trunc i64 %site to i32
  %pair = cmpxchg ptr %to.row, i32 -1, i32 %short monotonic monotonic
  %first = extractvalue {{i32, i1}} %pair, 1
  br i1 %first, label %note, label %end
note:
  %most = call i32 @llvm.umin.i32(i32 %count, i32 {FAILURE_VALUES})
  %wide = zext i32 %most to i64
  %bytes = shl i64 %wide, 3
  %to.values = getelementptr inbounds i8, ptr %why, i64 {ExportedFailure.values.offset}
  call void @llvm.memcpy.p0.p0.i64(ptr %to.values, ptr %values, i64 %bytes, i1 false)
  br label %end
end:
  ret void
}}

declare i32 @llvm.umin.i32(i32, i32)
"""


CALL: Final = ["ptr %sizes", "ptr %tensors", "ptr %why"]
_FEW_TENSORS: Final = 3
_RUN: Final = ["ptr %plan", "ptr %tensors", "ptr %workspace", "ptr %why"]


class CallText:
    """What calls of all entries consist of."""

    def __init__(self, spec: ExportSpec) -> None:
        self.spec, self.at = spec, PlanLayout(spec)
        self.fixed = PlanText(spec).fixed
        tensors = [("input", k) for k in range(len(spec.inputs))] + [("output", k) for k in range(len(spec.outputs))]
        self.shares_tensors = spec.stages == 1 and not spec.branches and list(spec.pointers) == tensors

    @property
    def own_call(self) -> str:
        """The function that calls in the thread of its caller."""
        return "@call_here" if self.spec.looks_at_stacks else "@call"

    def look_at_stack(self, f: FunctionText) -> None:
        """Leaves with a status where the thread has less of a stack than a call needs."""
        if self.spec.looks_at_stacks:
            has = f.call("@ek_stack_has", [f"i64 {self.spec.stack}"], "i32")
            with f.when(f.compare("eq", has, 0, "i32")):
                self.begin(f)
                f.leave(self.failed(f, "stack", self.spec.stack))

    def call_with_stack(self) -> list[str]:
        """`i32 @call(sizes, tensors, why)` where a call needs much of a stack: in a thread of its own, if this one has
        too little."""
        spec = self.spec
        if not spec.looks_at_stacks:
            return []
        there = FunctionText("@call_there", "i32", ["ptr %record"], attributes="internal")
        words = [f"ptr {there.load('ptr', there.at('%record', 8 * k))}" for k in range(len(CALL))]
        there.leave(there.call("@call_here", words, "i32"))
        f = FunctionText("@call", "i32", CALL, attributes="internal")
        has = f.call("@ek_stack_has", [f"i64 {spec.stack}"], "i32")
        with f.when(f.compare("ne", has, 0, "i32")):
            f.leave(f.call("@call_here", CALL, "i32"))
        record = f"%{f.fresh('record')}"
        f.variables.append(f"  {record} = alloca [{len(CALL)} x ptr], align 16")
        for k, each in enumerate(CALL):
            f.store("ptr", each.split()[1], f.at(record, 8 * k))
        self.begin(f)
        f.leave(f.call("@ek_stack_call", ["ptr @call_there", f"ptr {record}", f"i64 {spec.stack}"], "i32"))
        return [there.text(), f.text()]

    def begin(self, f: FunctionText) -> None:
        """Empties the record of failures."""
        self.note(f, 0, is_new=True)

    def failed(self, f: FunctionText, row: str | Number, expected: Number = 0, got: Number = 0) -> str:
        number = self.spec.row(row) if isinstance(row, str) and not row.startswith("%") else row
        return f.call("@fail", ["ptr %why", f"i64 {number}", f"i64 {expected}", f"i64 {got}"], "i32")

    def check_tensors(self, f: FunctionText) -> None:
        """That no address is null or wrongly aligned, and that what is written overlaps with nothing. Tensors without
        elements may have any address. Few tensors are looked at one by one, without a loop."""
        spec, at = self.spec, self.at
        count = len(spec.tensors)

        def tensor(k: Number) -> tuple[str, Number, str]:
            """Its address, its bytes, its facts."""
            place = k * 8 if isinstance(k, int) else f.left(k, 3)
            address = f.load("i64", f.at("%tensors", place))
            size: Number
            if isinstance(k, int) and self.fixed:
                size = self.fixed[at.bytes // 8 + k]
            else:
                size = f.load("i64", f.at(f.at("%plan", at.bytes), place))
            return address, size, f.at("@tensors", place)

        def row(kind: str, k: Number) -> Number:
            return spec.row(kind) + k if isinstance(k, int) else f.add(k, spec.row(kind))

        def compare(k: Number, other: Number, address: str, size: Number) -> None:
            """Leaves where a tensor that is written overlaps with another."""
            there, room, _ = tensor(other)
            if isinstance(size, int) and isinstance(room, int):
                if room > 0 and size > 0:
                    far = f.add(f.sub(address, there), size - 1)
                    with f.when(f.compare("ult", far, room + size - 1)):
                        f.leave(self.failed(f, row("overlap", k), other, address))
                return
            before = f.compare("ult", there, f.add(address, size))
            behind = f.compare("ult", address, f.add(there, room))
            test = f.both(f.both(before, behind, "i1"), f.compare("ne", room, 0), "i1")
            if not isinstance(k, int) or not isinstance(other, int):
                test = f.both(test, f.compare("ne", other, k), "i1")
            with f.when(test):
                f.leave(self.failed(f, row("overlap", k), other, address))

        def check(k: Number) -> None:
            address, size, facts = tensor(k)
            with f.when(f.compare("ne", size, 0)):
                mask = f.wide(f.load("i32", facts), "i32")
                null = f.compare("eq", address, 0)
                odd = f.compare("ne", f.both(address, mask), 0)
                with f.when(f.either(null, odd, "i1")):
                    f.leave(f.call("@misplaced", ["ptr %why", f"i64 {k}", f"i64 {mask}", f"i64 {address}"], "i32"))
                if isinstance(k, int):
                    if self._is_written(k):
                        for other in range(count):
                            if other > k or (other < k and not self._is_written(other)):  # each pair once
                                compare(k, other, address, size)
                    return
                with f.when(f.compare("ne", f.load("i32", f.at(facts, 4)), 0, "i32")), f.each(0, count) as place:
                    compare(k, place, address, size)

        if count <= _FEW_TENSORS:
            for k in range(count):
                check(k)
            return
        with f.each(0, count) as number:
            check(number)

    def misplaced(self) -> str:
        """`i32 @misplaced(why, tensor, mask, address)`: the failure of a tensor that is null or wrongly aligned."""
        given = ["ptr %why", "i64 %tensor", "i64 %mask", "i64 %address"]
        f = FunctionText("@misplaced", "i32", given, attributes=f"internal|{COLD}")
        first = f.select(f.compare("eq", "%address", 0), self.spec.row("null"), self.spec.row("aligned"))
        f.leave(self.failed(f, f.add("%tensor", first), f.add("%mask", 1), "%address"))
        return f.text()

    def _is_written(self, k: int) -> bool:
        return k >= len(self.spec.inputs) or self.spec.inputs[k].changed

    def pointers(self, f: FunctionText) -> str:
        """An array of the entry's pointers, with those that are the same in all calls; where they are those of the
        tensors alone, the caller's array."""
        if self.shares_tensors:
            return "%tensors"
        count = max(1, len(self.spec.pointers))
        block = f"%{f.fresh('pointers')}"
        f.variables.append(f"  {block} = alloca [{count} x ptr], align 16")
        f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {block}, ptr @pointers, i64 {8 * count}, i1 false)")
        if self.spec.given:
            status = f.call("@weights", [f"ptr {block}", "ptr %why"], "i32")
            with f.when(f.compare("ne", status, 0, "i32")):
                f.leave(status)
        return block

    def place_tensors(self, f: FunctionText, pointers: str) -> None:
        """Writes the addresses of the inputs, and of the outputs that the caller has memory for."""
        spec = self.spec
        if self.shares_tensors:
            return
        for number, (kind, k) in enumerate(spec.pointers):
            first = {"input": 0, "output": len(spec.inputs)}.get(kind)
            if first is None or (kind == "output" and spec.outputs[k].stage):
                continue
            f.store("ptr", f.load("ptr", f.at("%tensors", 8 * (first + k))), f.at(pointers, 8 * number))

    def place_temporaries(self, f: FunctionText, pointers: str, arena: str, stage: int) -> None:
        numbers = [number for number, temp in enumerate(self.spec.temps) if temp.stage == stage]
        if not numbers:
            return
        with f.each(numbers[0], numbers[-1] + 1) as number:  # a stage's temporaries follow each other
            place = f.left(number, 3)
            offset = f.load("i64", f.at(f.at("%plan", self.at.offsets), place))
            f.store("ptr", f.at(arena, offset), f.at(pointers, f.load("i64", f.at("@temps", place))))

    def enter(self, f: FunctionText, pointers: str, stage: int) -> str:
        """Calls the entry with floats as kernels take them; its status."""
        context = f"%{f.fresh('context')}"
        f.variables.append(f"  {context} = alloca [{abi.CONTEXT_SIZE} x i8], align 16")
        known = {"owner": "ptr %why", "stage": f"i64 {stage}"} | (
            {"report": "ptr @report"} if self.spec.reports else {}
        )
        fill_context(f, known, context)
        if self.spec.threads:
            at = PLAN_LARGE
            large: Number = self.fixed[at // 8] if self.fixed else f.load("i64", f.at("%plan", at))
            with f.when(f.compare("sgt", large, self.spec.small)):
                f.call("@ek_threads_enter", [f"ptr {context}", f"i64 {self.spec.stack}"])
        words = [f"ptr {context}", f"ptr {pointers}", f"ptr {f.at('%plan', self.at.slots)}"]
        code = f.variable("i32", 0)
        mode = f.call("@float_mode", [], "i64")
        is_plain = f.call("@floats_are_plain", [f"i64 {mode}"], "i1")
        with f.when(is_plain):
            code.set(f.call("@ek_entry", words, "i32"))
        with f.when(f.value(f"xor i1 {is_plain}, true")):
            code.set(f.call("@ek_call_plainly", [*words, "ptr @ek_entry"], "i32"))
        ended = f.narrow(f.load("i64", f.at(context, abi.STATUS_OFFSET)), "i32")
        return f.value(f"select i1 {f.compare('ne', ended, 0, 'i32')}, i32 {ended}, i32 {code.value()}")

    def note(self, f: FunctionText, status: Number, *, is_new: bool = False) -> None:
        """Writes the status that the entry gave into the record of failures; `is_new` empties it, too."""
        with f.when(f.compare("ne", "%why", "null", "ptr")):
            f.store("i32", status, "%why")
            if is_new:
                f.store("i32", -1, f.at("%why", ExportedFailure.row.offset))
                f.store("i32", -1, f.at("%why", ExportedFailure.argument.offset))
                f.store("i32", -1, f.at("%why", ExportedFailure.axis.offset))

    def copies(self, f: FunctionText, pointers: str, output: Callable[[int], str]) -> None:
        for number, pointer in self.spec.copies:
            size = f.load("i64", f.at("%plan", self.at.bytes + 8 * (len(self.spec.inputs) + number)))
            source = f.load("ptr", f.at(pointers, 8 * pointer))
            f.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {output(number)}, ptr {source}, i64 {size}, i1 false)")

    def planned(self, f: FunctionText) -> str:
        """A plan on the stack, filled; a failure is returned. Where all sizes are known, the plan is a constant."""
        if self.fixed:
            return "@fixed"
        plan = f"%{f.fresh('plan')}"
        f.variables.append(f"  {plan} = alloca [{self.at.size} x i8], align 16")
        status = f.call("@plan", ["ptr %sizes", f"ptr {plan}", "ptr %why"], "i32")
        with f.when(f.compare("ne", status, 0, "i32")):
            f.leave(status)
        return plan

    def allocated(self, f: FunctionText, size: Number) -> str:
        """Memory for so many bytes, one at least; null where there is none."""
        most = f.value(f"call i64 @llvm.smax.i64(i64 {size}, i64 1)")
        up = f.both(f.add(most, ALIGNMENT - 1), -ALIGNMENT)
        return f.call("@aligned_alloc", [f"i64 {ALIGNMENT}", f"i64 {up}"], "ptr")


class PlainCallText(CallText):
    """Writes the functions of an entry that computes no sizes."""

    def texts(self) -> list[str]:
        """The functions."""
        functions = [self.run(), self.misplaced(), FAILURES, self.call_in(), self.call(), *self.call_with_stack()]
        if self.spec.looks_at_stacks:
            functions.append(self.run_checked())
        return [*functions, self.workspace()]

    def run(self) -> str:
        """`i32 @run(plan, tensors, workspace, why)`: a call with a prepared plan."""
        spec = self.spec
        f = FunctionText("@run", "i32", _RUN, attributes=f"internal|noinline {SIZE_ATTRIBUTES}")
        if spec.reports:
            self.begin(f)
        with f.when(f.compare("eq", "%plan", "null", "ptr")):
            f.leave(self.failed(f, "plan"))
        with f.when(f.compare("ne", f.load("i64", f.at("%plan", PLAN_MAGIC)), plan_magic(self.spec))):
            f.leave(self.failed(f, "plan"))
        self.check_tensors(f)
        if spec.temps:
            some = f.compare("ne", f.load("i64", f.at("%plan", PLAN_BYTES)), 0)
            with f.when(some):
                address = f.value("ptrtoint ptr %workspace to i64")
                with f.when(f.compare("eq", address, 0)):
                    f.leave(self.failed(f, "workspace_null"))
                with f.when(f.compare("ne", f.both(address, ALIGNMENT - 1), 0)):
                    f.leave(self.failed(f, "workspace_aligned", ALIGNMENT, address))
        pointers = self.pointers(f)
        self.place_tensors(f, pointers)
        self.place_temporaries(f, pointers, "%workspace", 0)
        status = self.enter(f, pointers, 0)
        self.note(f, status, is_new=not spec.reports)
        if spec.copies:
            with f.when(f.compare("eq", status, 0, "i32")):
                self.copies(f, pointers, lambda k: f.load("ptr", f.at("%tensors", 8 * (len(spec.inputs) + k))))
        f.leave(status)
        return f.text()

    def run_checked(self) -> str:
        """`@run`, where the thread has enough of a stack."""
        f = FunctionText("@run_checked", "i32", _RUN, attributes=f"internal|{SIZE_ATTRIBUTES}")
        self.look_at_stack(f)
        f.leave(f.call("@run", _RUN, "i32"))
        return f.text()

    def call_in(self) -> str:
        """`i32 @call_in(sizes, tensors, workspace, why)`: plans and runs."""
        given = ["ptr %sizes", "ptr %tensors", "ptr %workspace", "ptr %why"]
        f = FunctionText(
            "@call_in", "i32", given, attributes=f"internal|{'noinline ' if self.fixed else ''}{SIZE_ATTRIBUTES}"
        )
        self.look_at_stack(f)
        plan = self.planned(f)
        f.leave(f.call("@run", [f"ptr {plan}", "ptr %tensors", "ptr %workspace", "ptr %why"], "i32"))
        return f.text()

    def call(self) -> str:
        """`i32 @call(sizes, tensors, why)`: plans, takes a workspace, and runs."""
        f = FunctionText(self.own_call, "i32", CALL, attributes=f"internal|{SIZE_ATTRIBUTES}")
        if not self.spec.temps and not self.spec.looks_at_stacks:
            f.leave(f.call("@call_in", ["ptr %sizes", "ptr %tensors", "ptr null", "ptr %why"], "i32"))
            return f.text()
        plan = self.planned(f)
        if not self.spec.temps:
            f.leave(f.call("@run", [f"ptr {plan}", "ptr %tensors", "ptr null", "ptr %why"], "i32"))
            return f.text()
        workspace = self.allocated(f, f.load("i64", f.at(plan, PLAN_BYTES)))
        with f.when(f.compare("eq", workspace, "null", "ptr")):
            f.leave(self.failed(f, "memory", 0, f.load("i64", f.at(plan, PLAN_BYTES))))
        status = f.call("@run", [f"ptr {plan}", "ptr %tensors", f"ptr {workspace}", "ptr %why"], "i32")
        f.call("@free", [f"ptr {workspace}"])
        f.leave(status)
        return f.text()

    def workspace(self) -> str:
        """`i64 @workspace(sizes)`: the bytes of a workspace, or a status."""
        f = FunctionText("@workspace", "i64", ["ptr %sizes"], attributes=f"internal|{SIZE_ATTRIBUTES}")
        if self.fixed:
            f.leave(self.fixed[PLAN_BYTES // 8])
            return f.text()
        plan = f"%{f.fresh('plan')}"
        f.variables.append(f"  {plan} = alloca [{self.at.size} x i8], align 16")
        status = f.call("@plan", ["ptr %sizes", f"ptr {plan}", "ptr null"], "i32")
        fits = f.compare("eq", status, 0, "i32")
        f.leave(f.select(fits, f.load("i64", f.at(plan, PLAN_BYTES)), f.value(f"sext i32 {status} to i64")))
        return f.text()
