"""Atomic operations as MLIR text.

Integers, and additions of float32 and float64, are what LLVM has an operation for. The rest (half types, and the
language's own min and max of floats) tries until nobody came between reading and writing: compare and exchange.

Input: a `FunctionEmitter` and an operation. Output: lines. Non-goals: bools and storage types, which have no atomics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op
from .arithmetic import row
from .memory import address
from .types import constant, mlir_type

if TYPE_CHECKING:
    from .writer import FunctionEmitter

_ORDERINGS = {o: o for o in ("acquire", "release", "acq_rel", "seq_cst")} | {"relaxed": "monotonic"}
# What may be seen where a comparison fails, and nothing is written.
_FAILURE = {"release": "monotonic", "acq_rel": "acquire"}
_WORDS = {"and": "_and", "or": "_or", "xor": "_xor", "exchange": "xchg"}
_BOOL = SIMDType(DType.bool)


def _atomic(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offset = op.operands
    dtype, kind = value.dtype, op.attrs["kind"]
    place, ordering = address(e, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    if kind in ("min", "max") and dtype.kind == "uint":
        word = f"u{kind}"
    elif dtype.is_float() and kind in ("add", "sub") and not dtype.is_half():
        word = f"f{kind}"
    elif dtype.is_float() and kind != "exchange":
        e.names.set(op.results[0], _by_exchange(e, op, place, ordering))
        return
    else:
        word = _WORDS.get(kind, kind)
    before, after = _fences(e, ordering)
    if before or after:
        ordering = "monotonic"
    if before:
        e.line(f"llvm.fence {_scope(e)}{before}")
    text = f"llvm.atomicrmw {word} {place}, {e.name(value)} {_scope(e)}{ordering}"
    e.names.set(op.results[0], e.op(f"{text} : {e.type(pointer.type)}, {e.type(value.type)}"))
    if after:
        e.line(f"llvm.fence {_scope(e)}{after}")


def _scope(e: FunctionEmitter) -> str:
    """The threads that see an operation as one step: those of the device that runs the op."""
    return f'syncscope("{e.target.atomic_scope}") ' if e.target.atomic_scope else ""


def _fences(e: FunctionEmitter, ordering: str) -> tuple[str, str]:
    """The fences before and after a modification where LLVM forgets its ordering."""
    if e.target.keeps_atomic_order or ordering == "monotonic":
        return "", ""
    strong = "seq_cst" if ordering == "seq_cst" else ""
    before = (strong or "release") if ordering != "acquire" else ""
    return before, "acquire" if ordering != "release" else ""


def _by_exchange(e: FunctionEmitter, op: Op, place: str, ordering: str) -> str:
    """Reads, computes, and writes if what was read is still there; what was read in the end."""
    value, pointer, _ = op.operands
    type = value.type
    assert isinstance(type, SIMDType)
    bits, pointer_type = f"i{type.dtype.bits}", e.type(pointer.type)
    align = f"{{alignment = {type.dtype.bits // 8} : i64}}"
    first = e.op(f"llvm.load {place} atomic {_scope(e)}monotonic {align} : {pointer_type} -> {bits}")
    result, old, seen = e.names.fresh(), e.names.fresh(), e.names.fresh()
    e.lines.append(f"{e.indent}{result} = scf.while ({old} = {first}) : ({bits}) -> {bits} {{\n")
    with e.nested():
        new = row(e, op.attrs["kind"], [_as(e, old, bits, mlir_type(type)), e.name(value)], type, frozenset())
        new = _as(e, new, mlir_type(type), bits)
        found, stored = _compare_exchange(e, place, pointer_type, old, new, bits, ordering)
        again = e.op(f"arith.xori {stored}, {constant(e, True, _BOOL)} : i1")
        e.line(f"scf.condition({again}) {found} : {bits}")
    e.lines.append(f"{e.indent}}} do {{\n{e.indent}^bb0({seen}: {bits}):\n")
    with e.nested():
        e.line(f"scf.yield {seen} : {bits}")
    e.lines.append(f"{e.indent}}}{e.at}\n")
    return _as(e, result, bits, mlir_type(type))


def _as(e: FunctionEmitter, name: str, source: str, to: str) -> str:
    """The same bits as another type."""
    return name if source == to else e.op(f"llvm.bitcast {name} : {source} to {to}")


def _compare_exchange(
    e: FunctionEmitter, place: str, pointer: str, expected: str, desired: str, bits: str, ordering: str
) -> tuple[str, str]:
    """What was there, and whether it was what was expected, so that `desired` is there now."""
    text = f"llvm.cmpxchg {place}, {expected}, {desired} {_scope(e)}{ordering} {_FAILURE.get(ordering, ordering)}"
    pair = e.op(f"{text} : {pointer}, {bits}")
    struct = f"!llvm.struct<({bits}, i1)>"
    return e.op(f"llvm.extractvalue {pair}[0] : {struct}"), e.op(f"llvm.extractvalue {pair}[1] : {struct}")


def _atomic_compare_exchange(e: FunctionEmitter, op: Op) -> None:
    expected, desired, pointer, offset = op.operands
    bits, text = f"i{desired.dtype.bits}", e.type(desired.type)
    place, ordering = address(e, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    old, new = (_as(e, e.name(v), text, bits) for v in (expected, desired))
    found, _ = _compare_exchange(e, place, e.type(pointer.type), old, new, bits, ordering)
    e.names.set(op.results[0], _as(e, found, bits, text))


def _atomic_load(e: FunctionEmitter, op: Op) -> None:
    pointer, offset = op.operands
    text, bits = e.type(op.results[0].type), f"i{pointer.dtype.bits}"
    place, ordering = address(e, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    align = f"{{alignment = {pointer.dtype.bits // 8} : i64}}"
    value = e.op(f"llvm.load {place} atomic {_scope(e)}{ordering} {align} : {e.type(pointer.type)} -> {bits}")
    e.names.set(op.results[0], _as(e, value, bits, text))


def _atomic_store(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offset = op.operands
    bits = f"i{pointer.dtype.bits}"
    place, ordering = address(e, pointer, offset), _ORDERINGS[op.attrs["ordering"]]
    align = f"{{alignment = {pointer.dtype.bits // 8} : i64}}"
    name = _as(e, e.name(value), e.type(value.type), bits)
    e.line(f"llvm.store {name}, {place} atomic {_scope(e)}{ordering} {align} : {bits}, {e.type(pointer.type)}")


EMITTERS: dict[str, Callable[[FunctionEmitter, Op], None]] = {
    "atomic": _atomic,
    "atomic_compare_exchange": _atomic_compare_exchange,
    "atomic_load": _atomic_load,
    "atomic_store": _atomic_store,
}
