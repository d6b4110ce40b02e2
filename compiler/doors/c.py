"""Writes the door of an exported graph: C functions that check sizes, find memory and call the entry.

    int32_t NAME(inputs, sizes, outputs, why)                  takes a workspace of its own
    int64_t NAME_workspace(sizes)                              the bytes of a workspace, or a status below 0
    int32_t NAME_in(inputs, sizes, outputs, workspace, why)    allocates nothing
    int32_t NAME_prepare(sizes, plan, why)                     everything that follows from sizes
    int32_t NAME_run(plan, inputs, outputs, workspace, why)
    void    NAME_set_print(print, data)                        of models that print
    const einkorn_model NAME_model

Not of the door are NAME_describe (see `compiler.runtime.messages`) and NAME_set_threads, NAME_set_parallel and
NAME_close (see `compiler.runtime.native_threads`).

Each of them passes its arguments on as arrays: sizes, and the addresses of tensors. The functions that take arrays are
internal, and programs reach them by the descriptor. They keep no state between calls.

See also `dsl.contract.exports` (what a door is written from), `c_calls`, `c_stages`, `c_sizes`, `c_tables`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ...dsl.contract.exports import ExportSpec
from ...dsl.diagnostics.errors import TargetError
from ...dsl.signature.dims import names_in
from ..ir.llvm_text import FunctionText
from ..targets import Target
from .c_calls import HEAD, REPORTS, PlainCallText
from .c_sizes import SIZE_ATTRIBUTES, PlanText
from .c_stages import StagedCallText
from .c_tables import DescriptorText, array_text, run_function, tables_text
from .c_weights import weights_texts
from .text import DECLARATIONS

_IN_REGISTERS: Final = 5  # so many arguments, and one more, are passed in registers by each convention


def c_text(spec: ExportSpec, target: Target) -> str:
    """The text of a door. It leaves `ek_entry`, `ek_print`, `NAME_describe` and the weights, `ek_weight_K`, to others.

    Raises:
        TargetError: the target is not a CPU that doors are written for.
    """
    if target.system is None:
        raise TargetError(f"there are no doors for {target.name}", code="EK0609")
    plans = PlanText(spec)
    describe = f"declare i64 @{spec.name}_describe(ptr, ptr, i64)\n"
    head = f"{DECLARATIONS}{describe}{HEAD}{target.system.float_modes}{REPORTS if spec.reports else ''}"
    parts = [head, tables_text(spec), *weights_texts(spec)]
    parts += [array_text("fixed", "i64", [f"i64 {word}" for word in plans.fixed])] if plans.fixed else []
    parts += [plans.text(stage) for stage in range(spec.stages)]
    parts += [StagedCallText(spec).text()] if spec.stages > 1 else PlainCallText(spec).texts()
    return "\n".join((*parts, *_PublicText(spec).texts(), DescriptorText(spec).text()))


class _PublicText:
    """Writes the functions that programs call."""

    def __init__(self, spec: ExportSpec) -> None:
        self.spec = spec
        self.sizes = [f"i64 %n{k}" for k in range(len(spec.dims))]
        self.inputs = [f"ptr %x{k}" for k in range(len(spec.inputs))]
        self.outputs = [f"ptr %y{k}" for k in range(len(spec.outputs))]
        self.tensors = [*self.inputs, *self.outputs]

    def texts(self) -> Iterator[str]:
        """The functions."""
        yield self._call()
        if any(each.stage for each in self.spec.outputs):
            yield self._handing("_free", ["ptr %memory"], "@free", result="void")
        if self.spec.prints:
            yield self._handing("_set_print", ["ptr %print", "ptr %data"], "@ek_set_print", result="void")
        if self.spec.stages == 1:
            tensors = [*self.inputs, *self.sizes, *self.outputs, "ptr %workspace", "ptr %why"]
            yield self._handing("_in", tensors, "@call_in")
            yield self._handing("_workspace", self.sizes, "@workspace", result="i64")
            yield self._handing("_prepare", [*self.sizes, "ptr %plan", "ptr %why"], "@plan")
            yield self._handing(
                "_run", ["ptr %plan", *self.tensors, "ptr %workspace", "ptr %why"], run_function(self.spec)
            )

    def _handing(self, name: str, parameters: Sequence[str], to: str, result: str = "i32") -> str:
        """A function that hands its parameters on: sizes as an array, tensors as one, the others as they are."""
        f = FunctionText(f"@{self.spec.name}{name}", result, parameters, attributes=f"dso_local|{SIZE_ATTRIBUTES}")
        given = []
        if to == run_function(self.spec):
            given.append("ptr %plan")
        if to in ("@call_in", "@workspace", "@plan"):
            given.append(f"ptr {_array(f, 'i64', self.sizes)}")
        if to in ("@call_in", run_function(self.spec)):
            given.append(f"ptr {_array(f, 'ptr', self.tensors)}")
        known = {*self.sizes, *self.tensors, *given}
        given += [each for each in parameters if each not in known]
        f.leave(f.call(to, given, result))
        return f.text()

    def _call(self) -> str:
        """The plain form, which gives back computed sizes."""
        spec, shown = self.spec, shown_late(self.spec)
        late = [f"ptr %k{k}" for k in shown]
        given = [*self.inputs, *self.sizes, *self.outputs, *late]
        f = FunctionText(f"@{spec.name}", "i32", [*given, "ptr %why"], attributes=f"dso_local|{SIZE_ATTRIBUTES}")
        if spec.stages == 1 and not spec.temps and not spec.looks_at_stacks and len(given) < _IN_REGISTERS:
            words = [*given, "ptr null", "ptr %why"]
            f.leave(f.call(f"@{spec.name}_in", words, "i32"))
            return f.text()
        sizes = _array(f, "i64", self.sizes, len(spec.late_names))
        status = f.call("@call", [f"ptr {sizes}", f"ptr {_array(f, 'ptr', self.tensors)}", "ptr %why"], "i32")
        for k in shown:
            wanted = f.compare("ne", f"%k{k}", "null", "ptr")
            with f.when(f.both(wanted, f.compare("eq", status, 0, "i32"), "i1")):
                f.store("i64", f.load("i64", f.at(sizes, 8 * (len(spec.dims) + k))), f"%k{k}")
        f.leave(status)
        return f.text()


def _array(f: FunctionText, type: str, values: Sequence[str], room: int = 0) -> str:
    """Parameters as an array on the stack; of none, null."""
    if not values and not room:
        return "null"
    name = f"%{f.fresh('array')}"
    f.variables.append(f"  {name} = alloca [{len(values) + room} x {type}], align 16")
    for k, value in enumerate(values):
        f.store(type, value.split()[1], f.at(name, 8 * k))
    return name


def shown_late(spec: ExportSpec) -> list[int]:
    """The numbers of the computed sizes that outputs have, and that a call gives back."""
    used = {name.name for each in spec.outputs for axis in each.axes for name in names_in(axis)}
    return [k for k, name in enumerate(spec.late_names) if name in used]
