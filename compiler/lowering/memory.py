"""Writes storage, loads and stores in all their forms, and the arithmetic of addresses.

What a target has no instruction for (a masked load of bytes, a gather on a GPU) LLVM writes out lane by lane.

See also `lowering.packed_memory` (elements that share bytes), `lowering.atomics` (atomic operations).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from ..ir.opcodes import GATHER, SCATTER
from ..ir.program import Op, PointerType, Value
from . import casts, coroutines
from .complex import load_complex, masked_load_complex, masked_store_complex, store_complex
from .packed_memory import load_packed, store_packed
from .types import element_type, mlir_type
from .writer import FunctionWriter, emits


def element_of(pointer: Value) -> str:
    """What addresses count in."""
    return "i8" if pointer.dtype is DType.bool else element_type(pointer.dtype)


def address(w: FunctionWriter, pointer: Value, offset: Value) -> str:
    """The address of an element."""
    text = w.type(pointer.type)
    base, index = w.name(pointer), w.name(offset)
    return w.op(f"llvm.getelementptr inbounds {base}[{index}] : ({text}, i64) -> {text}, {element_of(pointer)}")


@emits("alloca")
def _alloca(w: FunctionWriter, op: Op) -> None:
    type = op.results[0].type
    assert isinstance(type, PointerType)
    text, size = w.type(type), type.dtype.bytes_for(op.attrs["count"])
    if type.space == "shared" and w.thread:
        w.result(op, coroutines.shared(w, size, op.attrs["align"]))
        return
    if type.space == "shared" and w.target.has_grid:
        w.result(op, _shared(w, w.module.shared(size, op.attrs["align"]), text))
        return
    name, count = w.storage(size, type=text)
    if op.attrs["zeroed"]:
        zero = w.op("arith.constant 0 : i8")
        w.line(f'"llvm.intr.memset"({name}, {zero}, {count}) <{{isVolatile = false}}> : ({text}, i8, i64) -> ()')
    w.result(op, name)


def _shared(w: FunctionWriter, symbol: str, type: str) -> str:
    """The address of memory of the block."""
    name = w.names.fresh()
    w.prologue.append(f"    {name} = llvm.mlir.addressof @{symbol} : {type}\n")
    return name


@emits("dynamic_shared")
def _dynamic_shared(w: FunctionWriter, op: Op) -> None:
    text = w.type(op.results[0].type)
    symbol = w.module.dynamic_shared(op.attrs.get("align", 16)) if not w.thread else ""
    base = _shared(w, symbol, text) if symbol else coroutines.dynamic_shared(w)
    w.result(op, w.op(f"llvm.getelementptr inbounds {base}[{w.name(op.operands[0])}] : ({text}, i64) -> {text}, i8"))


@emits("offset")
def _offset(w: FunctionWriter, op: Op) -> None:
    w.result(op, _place(w, *op.operands))


def _place(w: FunctionWriter, pointer: Value, offset: Value) -> str:
    """An address that may lie outside, while nothing is read there: so it is not `inbounds`."""
    text = w.type(pointer.type)
    types = f"({text}, i64) -> {text}, {element_of(pointer)}"
    return w.op(f"llvm.getelementptr {w.name(pointer)}[{w.name(offset)}] : {types}")


@emits("pointer_cast")
def _pointer_cast(w: FunctionWriter, op: Op) -> None:
    w.result(op, w.name(op.operands[0]))


@emits("constant_table")
def _constant_table(w: FunctionWriter, op: Op) -> None:
    text = w.type(op.results[0].type)
    w.result(op, _shared(w, w.module.constants(op.attrs["data"]), text))


@emits("null_pointer")
def _null_pointer(w: FunctionWriter, op: Op) -> None:
    w.result(op, w.op(f"llvm.mlir.zero : {w.type(op.results[0].type)}"))


def _memory_type(type: SIMDType) -> SIMDType:
    """A bool takes a byte in memory."""
    return type.with_dtype(DType.uint8) if type.dtype is DType.bool else type


def _from_memory(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """What was read, as a value."""
    if type.dtype.bits < 8:
        return casts.low_bits(w, value, type)
    memory = _memory_type(type)
    return value if memory is type else casts.cast(w, value, memory, type)


def _to_memory(w: FunctionWriter, value: Value) -> str:
    """A value as it is written."""
    type, memory = value.simd, _memory_type(value.simd)
    return w.name(value) if memory is type else casts.cast(w, w.name(value), type, memory)


def alignment(w: FunctionWriter, op: Op, dtype: DType) -> int:
    """What the author promised, else that of an element; a simulated GPU does not depend on the promise."""
    promised: int | None = None if w.target.simulates else op.attrs.get("align")
    return promised or dtype.align


@emits("load")
def _load(w: FunctionWriter, op: Op) -> None:
    pointer, offset = op.operands
    type = op.results[0].simd
    if type.dtype.is_packed():
        w.result(op, load_packed(w, op))
        return
    place = address(w, pointer, offset)
    align, memory = alignment(w, op, type.dtype), mlir_type(_memory_type(type))
    if type.dtype.is_complex():
        w.result(op, load_complex(w, place, w.type(pointer.type), align, type))
        return
    value = w.op(f"llvm.load {place} {{alignment = {align} : i64}} : {w.type(pointer.type)} -> {memory}")
    w.result(op, _from_memory(w, value, type))


@emits("store")
def _store(w: FunctionWriter, op: Op) -> None:
    value, pointer, offset = op.operands
    if value.dtype.is_packed():
        store_packed(w, op)
        return
    name, memory = _to_memory(w, value), mlir_type(_memory_type(value.simd))
    place, align = address(w, pointer, offset), alignment(w, op, value.dtype)
    if value.dtype.is_complex():
        store_complex(w, name, place, w.type(pointer.type), align, value.simd)
        return
    w.line(f"llvm.store {name}, {place} {{alignment = {align} : i64}} : {memory}, {w.type(pointer.type)}")


@emits("masked_load", "gather")
def _masked_load(w: FunctionWriter, op: Op) -> None:
    pointer, offset, mask, other = op.operands
    type = op.results[0].simd
    places, places_type = _addresses(w, pointer, offset)
    memory, filler = mlir_type(_memory_type(type)), _to_memory(w, other)
    if type.dtype.is_complex():
        align = alignment(w, op, type.dtype)
        w.result(op, masked_load_complex(w, places, places_type, w.name(mask), filler, align, type))
        return
    operands = f"{places}, {w.name(mask)}, {filler} {{alignment = {alignment(w, op, type.dtype)} : i32}}"
    types = f"({places_type}, {w.type(mask.type)}, {memory}) -> {memory}"
    value = w.op(f"llvm.intr.masked.{'gather' if op.opcode is GATHER else 'load'} {operands} : {types}")
    w.result(op, _from_memory(w, value, type))


@emits("masked_store", "scatter")
def _masked_store(w: FunctionWriter, op: Op) -> None:
    value, pointer, offset, mask = op.operands
    places, places_type = _addresses(w, pointer, offset)
    memory, written = mlir_type(_memory_type(value.simd)), _to_memory(w, value)
    if value.dtype.is_complex():
        align = alignment(w, op, value.dtype)
        masked_store_complex(w, written, places, places_type, w.name(mask), align, value.simd)
        return
    operands = f"{written}, {places}, {w.name(mask)} {{alignment = {alignment(w, op, value.dtype)} : i32}}"
    types = f"{memory}, {w.type(mask.type)} into {places_type}"
    w.line(f"llvm.intr.masked.{'scatter' if op.opcode is SCATTER else 'store'} {operands} : {types}")


def _addresses(w: FunctionWriter, pointer: Value, offset: Value) -> tuple[str, str]:
    """The address of an element, or the addresses for a vector of offsets, with their type."""
    text, index = w.type(pointer.type), w.type(offset.type)
    if offset.simd.width == 1:
        return address(w, pointer, offset), text
    several = f"vector<{offset.simd.width}x{text}>"
    base = f"{w.name(pointer)}[{w.name(offset)}]"
    return w.op(f"llvm.getelementptr {base} : ({text}, {index}) -> {several}, {element_of(pointer)}"), several


@emits("aligned")
def _aligned(w: FunctionWriter, op: Op) -> None:
    """All addresses are multiples of the alignment: the low bits of their bitwise or are zero."""
    every = ""
    for pointer in op.operands:
        number = w.op(f"llvm.ptrtoint {w.name(pointer)} : {w.type(pointer.type)} to i64")
        every = w.op(f"arith.ori {every}, {number} : i64") if every else number
    mask = w.op(f"arith.constant {op.attrs['align'] - 1} : i64")
    low = w.op(f"arith.andi {every}, {mask} : i64")
    w.result(op, w.op(f"arith.cmpi eq, {low}, {w.op('arith.constant 0 : i64')} : i64"))


@emits("assume_aligned")
def _assume_aligned(w: FunctionWriter, op: Op) -> None:
    (pointer,) = op.operands
    true, size = w.op("arith.constant true"), w.op(f"arith.constant {op.attrs['align']} : i64")
    w.line(f'llvm.intr.assume {true} ["align"({w.name(pointer)}, {size} : {w.type(pointer.type)}, i64)] : i1')


@emits("prefetch")
def _prefetch(w: FunctionWriter, op: Op) -> None:
    place, text = _place(w, *op.operands), w.type(op.operands[0].type)
    locality = op.attrs["locality"]
    if w.target.prefetch:  # LLVM drops its own
        w.line(f'llvm.inline_asm has_side_effects "{w.target.prefetch[locality]}", "l" {place} : ({text}) -> ()')
        return
    hint = f"<{{rw = {int(op.attrs['write'])} : i32, hint = {locality} : i32, cache = 1 : i32}}>"
    w.line(f'"llvm.intr.prefetch"({place}) {hint} : ({text}) -> ()')
