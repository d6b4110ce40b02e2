"""Writes the call of an entry that computes sizes: the memory of each stage is taken when its sizes are known.

Outputs whose sizes are computed are allocated by the call. After a failure nothing stays allocated.
"""

from __future__ import annotations

from ...dsl.contract.exports import ExportSpec
from ..ir.llvm_text import FunctionText, Variable
from .c_calls import CALL, FAILURES, CallText
from .c_sizes import PLAN_BYTES


class StagedCallText(CallText):
    """Writes `@call(sizes, tensors, why)`; the computed sizes go behind those that are given."""

    def __init__(self, spec: ExportSpec) -> None:
        super().__init__(spec)
        self.f = f = FunctionText(self.own_call, "i32", CALL, attributes="internal|noinline")
        f.line(f"%plan = getelementptr i8, ptr {self.planned(f)}, i64 0")
        self.arenas = [f.variable("ptr", "null") for _ in range(spec.stages)]
        self.results = {k: f.variable("ptr", "null") for k, each in enumerate(spec.outputs) if each.stage}
        self.status: Variable = f.variable("i32", 0)
        self.computed = f"%{f.fresh('computed')}"
        f.variables.append(f"  {self.computed} = alloca [{max(1, len(spec.late_names))} x i64], align 16")

    def text(self) -> str:
        """The function."""
        spec, f, inputs = self.spec, self.f, len(self.spec.inputs)
        self.begin(f)
        self.check_tensors(f)
        for k in self.results:
            place = f.load("ptr", f.at("%tensors", 8 * (inputs + k)))
            with f.when(f.compare("eq", place, "null", "ptr")):
                f.leave(self.failed(f, spec.row("null") + inputs + k))
        pointers = self.pointers(f)
        self.place_tensors(f, pointers)
        for number, (kind, k) in enumerate(spec.pointers):
            if kind == "sizes":
                f.store("ptr", f.at(self.computed, 8 * self._first(k)), f.at(pointers, 8 * number))
        for stage in range(spec.stages):
            self._stage(stage, pointers)
        self._give(pointers)
        f.line("br label %end.")
        f.label("end.")
        for variable in (*self.arenas, *self.results.values()):
            f.call("@free", [f"ptr {variable.value()}"])
        f.leave(self.status.value())
        return "\n".join((f.text(), self.misplaced(), FAILURES, *self.call_with_stack()))

    def _first(self, step: int) -> int:
        """How many sizes the steps before one compute."""
        return sum(map(len, self.spec.late[:step]))

    def _end(self, code: str) -> None:
        """Ends the call with a status."""
        self.status.set(code)
        self.f.line("br label %end.")
        self.f.label(self.f.fresh("after"))

    def _end_unless_zero(self, code: str) -> None:
        with self.f.when(self.f.compare("ne", code, 0, "i32")):
            self._end(code)

    def _memory(self, size: str) -> str:
        """Memory that is there."""
        f = self.f
        memory = self.allocated(f, size)
        with f.when(f.compare("eq", memory, "null", "ptr")):
            self._end(self.failed(f, "memory", 0, size))
        return memory

    def _stage(self, stage: int, pointers: str) -> None:
        """Computes what follows from the sizes of a stage, takes its memory, and enters it."""
        spec, f, at = self.spec, self.f, self.at
        if stage:
            for k in range(self._first(stage - 1), self._first(stage)):
                size = f.load("i64", f.at(self.computed, 8 * k))
                f.store("i64", size, f.at("%plan", at.dims + 8 * (len(spec.dims) + k)))
            self._end_unless_zero(f.call(f"@plan_{stage}", ["ptr %plan", "ptr %why"], "i32"))
        if any(temp.stage == stage for temp in spec.temps):
            arena = self._memory(f.load("i64", f.at("%plan", PLAN_BYTES)))
            self.arenas[stage].set(arena)
            self.place_temporaries(f, pointers, arena, stage)
        for k, variable in self.results.items():
            if spec.outputs[k].stage == stage:
                memory = self._memory(f.load("i64", f.at("%plan", at.bytes + 8 * (len(spec.inputs) + k))))
                variable.set(memory)
                for number, source in enumerate(spec.pointers):
                    if source == ("output", k):
                        f.store("ptr", memory, f.at(pointers, 8 * number))
        status = self.enter(f, pointers, stage)
        self.note(f, status)
        self._end_unless_zero(status)

    def _give(self, pointers: str) -> None:
        """Copies outputs, and gives the caller what was allocated and computed."""
        spec, f, inputs = self.spec, self.f, len(self.spec.inputs)

        def output(k: int) -> str:
            if k in self.results:
                return self.results[k].value()
            return f.load("ptr", f.at("%tensors", 8 * (inputs + k)))

        self.copies(f, pointers, output)
        for k, variable in self.results.items():
            f.store("ptr", variable.value(), f.load("ptr", f.at("%tensors", 8 * (inputs + k))))
            variable.set("null")
        for k in range(len(spec.late_names)):
            f.store("i64", f.load("i64", f.at(self.computed, 8 * k)), f.at("%sizes", 8 * (len(spec.dims) + k)))
