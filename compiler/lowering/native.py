"""Writes what authors name themselves: instructions as text, intrinsics of LLVM, functions of libraries; and exchanges
between ranks, which are called by address.
"""

from __future__ import annotations

from ...dsl.contract import abi
from ...dsl.contract.exchange import SLOT_SIZE
from ..ir.program import Op
from .reports import site_number
from .writer import LEAVE, FunctionWriter, emits


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


@emits("exchange")
def _exchange(w: FunctionWriter, op: Op) -> None:
    """Calls the function of the slot that the site has, and leaves after a failure."""
    slots = w.op(f"llvm.load {w.field('%ctx', abi.COLLECTIVES_OFFSET)} : !llvm.ptr -> !llvm.ptr")
    size = w.op(f"arith.constant {SLOT_SIZE} : i64")
    offset = w.op(f"arith.muli {site_number(w, op.attrs['site'])}, {size} : i64")
    slot = w.op(f"llvm.getelementptr {slots}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
    function = w.op(f"llvm.load {slot} : !llvm.ptr -> !llvm.ptr")
    kind = w.op(f"arith.constant {op.attrs['kind']} : i32")
    given = ", ".join(w.name(value) for value in op.operands)
    types = "!llvm.ptr, !llvm.ptr, i32, !llvm.ptr, !llvm.ptr, i64, i64, i64"
    code = w.op(f"llvm.call {function}(%ctx, {slot}, {kind}, {given}) : !llvm.ptr, ({types}) -> i32")
    zero = w.op("arith.constant 0 : i32")
    failed = w.op(f"arith.cmpi ne, {code}, {zero} : i32")
    w.line(f"scf.if {failed} {{ {LEAVE} }}")


def escaped(text: str) -> str:
    """A text as MLIR and LLVM write it between quotes."""
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode())
