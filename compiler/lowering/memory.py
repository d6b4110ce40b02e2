"""Loads and stores in all their forms, and the arithmetic of addresses, as MLIR text.

What a target has no instruction for (a masked load of bytes, a gather on a GPU) LLVM writes out lane by lane.

Input: a `FunctionEmitter` and an operation. Output: lines. Non-goals: elements that share bytes (see
`lowering.packed_memory`), atomic operations (see `lowering.atomics`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, Value
from . import casts as emit_cast
from .packed_memory import load_packed, store_packed, store_pair
from .types import element_type, mlir_type

if TYPE_CHECKING:
    from .writer import FunctionEmitter


def _simd(value: Value) -> SIMDType:
    assert isinstance(value.type, SIMDType)
    return value.type


def _element(pointer: Value) -> str:
    """What addresses count in."""
    return "i8" if pointer.dtype is DType.bool else element_type(pointer.dtype)


def address(e: FunctionEmitter, pointer: Value, offset: Value) -> str:
    """The address of an element."""
    text = e.type(pointer.type)
    base, index = e.name(pointer), e.name(offset)
    return e.op(f"llvm.getelementptr inbounds {base}[{index}] : ({text}, i64) -> {text}, {_element(pointer)}")


def _offset(e: FunctionEmitter, op: Op) -> None:
    e.names.set(op.results[0], _place(e, *op.operands))


def _place(e: FunctionEmitter, pointer: Value, offset: Value) -> str:
    """An address that may lie outside, while nothing is read there: so it is not `inbounds`."""
    text = e.type(pointer.type)
    types = f"({text}, i64) -> {text}, {_element(pointer)}"
    return e.op(f"llvm.getelementptr {e.name(pointer)}[{e.name(offset)}] : {types}")


def _nowhere(e: FunctionEmitter, op: Op) -> None:
    e.names.set(op.results[0], e.op(f"llvm.mlir.zero : {e.type(op.results[0].type)}"))


def _memory_type(type: SIMDType) -> SIMDType:
    """A bool takes a byte in memory."""
    return type.with_dtype(DType.uint8) if type.dtype is DType.bool else type


def _from_memory(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    """What was read, as a value."""
    if type.dtype.bits < 8:
        return emit_cast.low_bits(e, value, type)
    memory = _memory_type(type)
    return value if memory is type else emit_cast.cast(e, value, memory, type)


def _to_memory(e: FunctionEmitter, value: Value) -> str:
    """A value as it is written."""
    type, memory = _simd(value), _memory_type(_simd(value))
    return e.name(value) if memory is type else emit_cast.cast(e, e.name(value), type, memory)


def alignment(op: Op, dtype: DType) -> int:
    """What the author promised, else that of an element."""
    promised: int | None = op.attrs.get("align")
    return promised or max(1, dtype.bits // 8)


def _load(e: FunctionEmitter, op: Op) -> None:
    pointer, offset = op.operands
    type = _simd(op.results[0])
    if type.dtype.is_packed():
        e.names.set(op.results[0], load_packed(e, op))
        return
    place = address(e, pointer, offset)
    align, memory = alignment(op, type.dtype), mlir_type(_memory_type(type))
    value = e.op(f"llvm.load {place} {{alignment = {align} : i64}} : {e.type(pointer.type)} -> {memory}")
    e.names.set(op.results[0], _from_memory(e, value, type))


def _store(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offset = op.operands
    if value.dtype.is_packed():
        store_packed(e, op)
        return
    name, memory = _to_memory(e, value), mlir_type(_memory_type(_simd(value)))
    place, align = address(e, pointer, offset), alignment(op, value.dtype)
    e.line(f"llvm.store {name}, {place} {{alignment = {align} : i64}} : {memory}, {e.type(pointer.type)}")


def _masked_load(e: FunctionEmitter, op: Op) -> None:
    pointer, offset, mask, other = op.operands
    _read(e, op, address(e, pointer, offset), e.type(pointer.type), "load", mask, other)


def _gather(e: FunctionEmitter, op: Op) -> None:
    pointer, offsets, mask, other = op.operands
    places, types = _addresses(e, pointer, offsets)
    _read(e, op, places, types, "gather", mask, other)


def _read(e: FunctionEmitter, op: Op, places: str, places_type: str, name: str, mask: Value, other: Value) -> None:
    type = _simd(op.results[0])
    memory, filler = mlir_type(_memory_type(type)), _to_memory(e, other)
    align = alignment(op, type.dtype)
    operands = f"{places}, {e.name(mask)}, {filler} {{alignment = {align} : i32}}"
    types = f"({places_type}, {e.type(mask.type)}, {memory}) -> {memory}"
    value = e.op(f"llvm.intr.masked.{name} {operands} : {types}")
    e.names.set(op.results[0], _from_memory(e, value, type))


def _masked_store(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offset, mask = op.operands
    _write(e, op, address(e, pointer, offset), e.type(pointer.type), "store", value, mask)


def _scatter(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offsets, mask = op.operands
    places, types = _addresses(e, pointer, offsets)
    _write(e, op, places, types, "scatter", value, mask)


def _write(e: FunctionEmitter, op: Op, places: str, places_type: str, name: str, value: Value, mask: Value) -> None:
    memory, written = mlir_type(_memory_type(_simd(value))), _to_memory(e, value)
    operands = f"{written}, {places}, {e.name(mask)} {{alignment = {alignment(op, value.dtype)} : i32}}"
    e.line(f"llvm.intr.masked.{name} {operands} : {memory}, {e.type(mask.type)} into {places_type}")


def _addresses(e: FunctionEmitter, pointer: Value, offsets: Value) -> tuple[str, str]:
    """The addresses of elements, and their type."""
    text, index = e.type(pointer.type), e.type(offsets.type)
    several = f"vector<{_simd(offsets).width}x{text}>"
    base = f"{e.name(pointer)}[{e.name(offsets)}]"
    return e.op(f"llvm.getelementptr {base} : ({text}, {index}) -> {several}, {_element(pointer)}"), several


def _prefetch(e: FunctionEmitter, op: Op) -> None:
    place, text = _place(e, *op.operands), e.type(op.operands[0].type)
    locality = op.attrs["locality"]
    if e.target.prefetch:  # LLVM drops its own
        e.line(f'llvm.inline_asm has_side_effects "{e.target.prefetch[locality]}", "l" {place} : ({text}) -> ()')
        return
    hint = f"<{{rw = {int(op.attrs['write'])} : i32, hint = {locality} : i32, cache = 1 : i32}}>"
    e.line(f'"llvm.intr.prefetch"({place}) {hint} : ({text}) -> ()')


EMITTERS: dict[str, Callable[[FunctionEmitter, Op], None]] = {
    "offset": _offset,
    "nowhere": _nowhere,
    "load": _load,
    "store": _store,
    "store_pair": store_pair,
    "masked_load": _masked_load,
    "masked_store": _masked_store,
    "gather": _gather,
    "scatter": _scatter,
    "prefetch": _prefetch,
}
