"""Writes the constants of a C door: the tables that its functions read, and the descriptor of the model.

See also `dsl.contract.exports` (the records), `doors.c` (the functions).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Final

from ...dsl.contract.exports import ALIGNMENT, CHANGED, EXPORT_ABI, LATE, MODEL_FIELDS, ExportSpec, ModelRecord
from ...dsl.types.dtype import DType
from .c_sizes import PlanLayout

ROW_BYTES: Final = 16  # of the table of messages: status, argument, axis, number of values, 4 bytes each


def tables_text(spec: ExportSpec) -> str:
    """Messages, pointers that are the same in all calls, alignments, pointers of temporaries."""
    rows = [
        f"{{i32, i32, i32, i32}} {{i32 {m.status}, i32 {m.argument}, i32 {m.axis}, i32 {m.values}}}"
        for m in spec.messages
    ]
    lines = [array_text("rows", "{i32, i32, i32, i32}", rows)]
    pointers = []
    for kind, k in spec.pointers:
        known = {"weight": f"@ek_weight_{k}", "empty": f"inttoptr (i64 {ALIGNMENT} to ptr)"}
        pointers.append(f"ptr {known.get(kind, 'null')}")
    lines += [
        f"@ek_weight_{k} = external hidden constant [0 x i8], align {ALIGNMENT}"
        for k in dict.fromkeys(k for kind, k in spec.pointers if kind == "weight")
    ]
    lines.append(array_text("pointers", "ptr", pointers))
    facts = [
        f"{{i32, i32}} {{i32 {_alignment(each.dtype) - 1}, i32 {int(k >= len(spec.inputs) or each.changed)}}}"
        for k, each in enumerate(spec.tensors)
    ]
    lines.append(array_text("tensors", "{i32, i32}", facts))
    lines.append(array_text("temps", "i64", [f"i64 {8 * each.pointer}" for each in spec.temps]))
    lines.append(array_text("temps.first", "i64", [f"i64 {each.first}" for each in spec.temps]))
    lines.append(array_text("temps.last", "i64", [f"i64 {each.last}" for each in spec.temps]))
    return "\n".join(lines)


class DescriptorText:
    """Writes the descriptor of a model."""

    def __init__(self, spec: ExportSpec) -> None:
        self.spec = spec
        self.texts: dict[str, str] = {}  # each a constant of its own

    def text(self) -> str:
        """`NAME_model`, and the constants that it points to."""
        spec = self.spec
        names = [*spec.dims, *spec.late_names]
        lines = []
        tensors = []
        for k, each in enumerate(spec.tensors):
            axes = [f"ptr {self._text(str(axis))}" for axis in each.axes]
            lines.append(array_text(f"dims.{k}", "ptr", axes))
            flags = CHANGED * each.changed | LATE * bool(each.stage)
            words = [f"ptr {self._text(each.name)}", f"ptr {self._text(each.dtype.name)}"]
            words += [f"i32 {len(each.axes)}", f"i32 {flags}", f"ptr @dims.{k}"]
            tensors.append(f"{{ptr, ptr, i32, i32, ptr}} {{{', '.join(words)}}}")
        lines.append(array_text("tensor_records", "{ptr, ptr, i32, i32, ptr}", tensors))
        lines.append(array_text("dim_names", "ptr", [f"ptr {self._text(name)}" for name in names]))
        plain = spec.stages == 1
        workspace = "@workspace" if spec.dims else f"@{spec.name}_workspace"  # without sizes they are the same
        values = {
            "size": f"i64 {ctypes.sizeof(ModelRecord)}",
            "abi": f"i64 {EXPORT_ABI}",
            "name": f"ptr {self._text(spec.title)}",
            "target": f"ptr {self._text(spec.target)}",
            "inputs": f"i64 {len(spec.inputs)}",
            "outputs": f"i64 {len(spec.outputs)}",
            "dims": f"i64 {len(spec.dims)}",
            "late_dims": f"i64 {len(spec.late_names)}",
            "tensors": "ptr @tensor_records",
            "dim_names": "ptr @dim_names",
            "plan_bytes": f"i64 {PlanLayout(spec).size}",
            "stack_bytes": f"i64 {spec.stack}",
            "weights_bytes": f"i64 {sum(w.bytes for w in spec.weights) + sum(w.bytes for w in spec.given)}",
            "workspace": f"ptr {workspace if plain else 'null'}",
            "prepare": f"ptr {'@plan' if plain else 'null'}",
            "run": f"ptr {run_function(spec) if plain else 'null'}",
            "call_in": f"ptr {'@call_in' if plain else 'null'}",
            "call": "ptr @call",
            "describe": f"ptr @{spec.name}_describe",
            "digest": f"ptr {self._text(spec.digest)}",
        }
        words = [values[field] for field, _ in MODEL_FIELDS]
        types = ", ".join(word.split()[0] for word in words)
        lines += [f'{name} = private constant [{len(text)} x i8] c"{escaped(text)}"' for text, name in self._texts()]
        lines.append(f"@{spec.name}_model = constant {{{types}}} {{{', '.join(words)}}}, align 8")
        return "\n".join(lines)

    def _text(self, text: str) -> str:
        return self.texts.setdefault(text, f"@text.{len(self.texts)}")

    def _texts(self) -> Iterator[tuple[bytes, str]]:
        for text, name in self.texts.items():
            yield text.encode() + b"\0", name


def run_function(spec: ExportSpec) -> str:
    """The function of the text that calls with a prepared plan."""
    return "@run_checked" if spec.looks_at_stacks else "@run"


def array_text(name: str, type: str, values: Sequence[str]) -> str:
    """A table; one without rows has one of zeros, so that it has an address."""
    listed = f"[{', '.join(values)}]" if values else "zeroinitializer"
    return f"@{name} = internal constant [{max(1, len(values))} x {type}] {listed}, align 16"


def escaped(data: bytes) -> str:
    """Bytes between the quotes of a constant."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)


def _alignment(dtype: DType) -> int:
    return 1 if dtype.is_packed() else dtype.part.size_in_bytes
