"""Atomic operations as MLIR text.

Integers, and additions of float32 and float64, are what LLVM has an operation for. The rest (half types, and the
language's own min and max of floats) tries until nobody came between reading and writing: compare and exchange.

Input: a `FunctionWriter` and an operation. Output: lines. Non-goals: bools and storage types, which have no atomics.
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op
from .arithmetic import row
from .memory import address
from .types import mlir_type
from .writer import FunctionWriter, emits

_ORDERINGS = {o: o for o in ("acquire", "release", "acq_rel", "seq_cst")} | {"relaxed": "monotonic"}
# What may be seen where a comparison fails, and nothing is written.
_FAILURE = {"release": "monotonic", "acq_rel": "acquire"}
_WORDS = {"and": "_and", "or": "_or", "xor": "_xor", "exchange": "xchg"}
_BOOL = SIMDType(DType.bool)


@emits("atomic")
def _atomic(w: FunctionWriter, op: Op) -> None:
    value, pointer, offset = op.operands
    dtype, kind = value.dtype, op.attrs["kind"]
    place, ordering = address(w, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    if kind in ("min", "max") and dtype.kind == "uint":
        word = f"u{kind}"
    elif dtype.is_float() and kind in ("add", "sub") and not dtype.is_half():
        word = f"f{kind}"
    elif dtype.is_float() and kind != "exchange":
        w.result(op, _by_exchange(w, op, place, ordering))
        return
    else:
        word = _WORDS.get(kind, kind)
    before, after = _fences(w, ordering)
    if before or after:
        ordering = "monotonic"
    if before:
        w.line(f"llvm.fence {_scope(w)}{before}")
    text = f"llvm.atomicrmw {word} {place}, {w.name(value)} {_scope(w)}{ordering}"
    w.result(op, w.op(f"{text} : {w.type(pointer.type)}, {w.type(value.type)}"))
    if after:
        w.line(f"llvm.fence {_scope(w)}{after}")


def _scope(w: FunctionWriter) -> str:
    """The threads that see an operation as one step: those of the device that runs the op."""
    return f'syncscope("{w.target.atomic_scope}") ' if w.target.atomic_scope else ""


def _fences(w: FunctionWriter, ordering: str) -> tuple[str, str]:
    """The fences before and after a modification where LLVM forgets its ordering."""
    if w.target.keeps_atomic_order or ordering == "monotonic":
        return "", ""
    strong = "seq_cst" if ordering == "seq_cst" else ""
    before = (strong or "release") if ordering != "acquire" else ""
    return before, "acquire" if ordering != "release" else ""


def _by_exchange(w: FunctionWriter, op: Op, place: str, ordering: str) -> str:
    """Reads, computes, and writes if what was read is still there; what was read in the end."""
    value, pointer, _ = op.operands
    type = value.type
    assert isinstance(type, SIMDType)
    bits, pointer_type = f"i{type.dtype.bits}", w.type(pointer.type)
    align = f"{{alignment = {type.dtype.bits // 8} : i64}}"
    first = w.op(f"llvm.load {place} atomic {_scope(w)}monotonic {align} : {pointer_type} -> {bits}")
    result, old, seen = w.names.fresh(), w.names.fresh(), w.names.fresh()
    w.lines.append(f"{w.indent}{result} = scf.while ({old} = {first}) : ({bits}) -> {bits} {{\n")
    with w.nested():
        new = row(w, op.attrs["kind"], [_as(w, old, bits, mlir_type(type)), w.name(value)], type, frozenset())
        new = _as(w, new, mlir_type(type), bits)
        found, stored = _compare_exchange(w, place, pointer_type, old, new, bits, ordering)
        again = w.op(f"arith.xori {stored}, {w.constant(True, _BOOL)} : i1")
        w.line(f"scf.condition({again}) {found} : {bits}")
    w.lines.append(f"{w.indent}}} do {{\n{w.indent}^bb0({seen}: {bits}):\n")
    with w.nested():
        w.line(f"scf.yield {seen} : {bits}")
    w.lines.append(f"{w.indent}}}{w.at}\n")
    return _as(w, result, bits, mlir_type(type))


def _as(w: FunctionWriter, name: str, source: str, to: str) -> str:
    """The same bits as another type."""
    return name if source == to else w.op(f"llvm.bitcast {name} : {source} to {to}")


def _compare_exchange(
    w: FunctionWriter, place: str, pointer: str, expected: str, desired: str, bits: str, ordering: str
) -> tuple[str, str]:
    """What was there, and whether it was what was expected, so that `desired` is there now."""
    text = f"llvm.cmpxchg {place}, {expected}, {desired} {_scope(w)}{ordering} {_FAILURE.get(ordering, ordering)}"
    pair = w.op(f"{text} : {pointer}, {bits}")
    struct = f"!llvm.struct<({bits}, i1)>"
    return w.op(f"llvm.extractvalue {pair}[0] : {struct}"), w.op(f"llvm.extractvalue {pair}[1] : {struct}")


@emits("atomic_compare_exchange")
def _atomic_compare_exchange(w: FunctionWriter, op: Op) -> None:
    expected, desired, pointer, offset = op.operands
    bits, text = f"i{desired.dtype.bits}", w.type(desired.type)
    place, ordering = address(w, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    old, new = (_as(w, w.name(v), text, bits) for v in (expected, desired))
    found, _ = _compare_exchange(w, place, w.type(pointer.type), old, new, bits, ordering)
    w.result(op, _as(w, found, bits, text))


@emits("atomic_load")
def _atomic_load(w: FunctionWriter, op: Op) -> None:
    pointer, offset = op.operands
    text, bits = w.type(op.results[0].type), f"i{pointer.dtype.bits}"
    place, ordering = address(w, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    align = f"{{alignment = {pointer.dtype.bits // 8} : i64}}"
    value = w.op(f"llvm.load {place} atomic {_scope(w)}{ordering} {align} : {w.type(pointer.type)} -> {bits}")
    w.result(op, _as(w, value, bits, text))


@emits("atomic_store")
def _atomic_store(w: FunctionWriter, op: Op) -> None:
    value, pointer, offset = op.operands
    bits = f"i{pointer.dtype.bits}"
    place, ordering = address(w, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    align = f"{{alignment = {pointer.dtype.bits // 8} : i64}}"
    name = _as(w, w.name(value), w.type(value.type), bits)
    w.line(f"llvm.store {name}, {place} atomic {_scope(w)}{ordering} {align} : {bits}, {w.type(pointer.type)}")
