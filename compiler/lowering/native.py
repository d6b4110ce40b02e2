"""Writes what authors name themselves: instructions as text, intrinsics of LLVM, functions of libraries."""

from __future__ import annotations

from ..ir.program import Op
from .writer import FunctionWriter, emits


@emits("native", "native_pure")
def _native(w: FunctionWriter, op: Op) -> None:
    types = [w.type(value.type) for value in op.operands]
    given = ", ".join(w.name(value) for value in op.operands)
    result = w.type(op.results[0].type) if op.results else ""
    signature, name, kind = f"({', '.join(types)}) -> {result or '()'}", op.attrs["code"], op.attrs["kind"]
    if kind == "assembly":
        effects = "has_side_effects " if op.opcode.has_effects else ""
        text, constraints = escaped(name), escaped(op.attrs["constraints"])
        written = f'llvm.inline_asm {effects}"{text}", "{constraints}" {given} : {signature}'
    elif kind == "intrinsic":
        written = f'llvm.call_intrinsic "{name}"({given}) : {signature}'
    else:
        w.module.declare(name, f"({', '.join(types)}){f' -> {result}' if result else ''}")
        written = f"llvm.call @{name}({given}) : {signature}"
    if op.results:
        w.result(op, w.op(written))
    else:
        w.line(written)


def escaped(text: str) -> str:
    """A text as MLIR and LLVM write it between quotes."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
