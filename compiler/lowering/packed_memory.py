"""Writes loads and stores of elements that share bytes: two to a byte, the first in the low half.

Offsets count elements. A load takes the byte and shifts its half down; a vector is read from its bytes at once,
wherever it starts. A store of one element has to leave its neighbour alone, which another thread may store at the same
time: the half is cleared and set by two atomic operations, neither of which touches the other half. Where no other
thread can be (the host's own code, storage of the function's own), the byte is read, changed and written. Vectors that
begin at a byte are stored as whole bytes. `store_pair` writes a byte whose two elements are at hand; `foreach` does so.

See also `lowering.casts` (the elements' own bits).
"""

from __future__ import annotations

from ...dsl.types.dtype import INT, DType, SIMDType
from ..ir.program import Op, Value
from .casts import low_bits
from .types import mlir_type
from .writer import FunctionWriter, emits

_BYTE = SIMDType(DType.uint8)


def load_packed(w: FunctionWriter, op: Op) -> str:
    """The element at an offset, or a vector of those from there on."""
    pointer, offset = op.operands
    type = op.results[0].simd
    index = w.name(offset)
    low, odd = _place(w, index)
    if type.width == 1:
        shifted = _shifted(w, _read(w, pointer, low, _BYTE), odd, _BYTE)
        return low_bits(w, shifted, type)
    # With an even start, byte k holds elements 2 k and 2 k + 1. With an odd one, element 2 k lies in the upper half of
    # byte k and element 2 k + 1 in the lower half of the byte behind it.
    some = SIMDType(DType.uint8, type.width // 2)
    behind = w.op(f"arith.addi {low}, {odd} overflow<nsw, nuw> : i64")
    even_half = w.op(f"arith.xori {odd}, {w.constant(1, INT)} : i64")
    first = _shifted(w, _read(w, pointer, low, some), odd, some)
    second = _shifted(w, _read(w, pointer, behind, some), even_half, some)
    every = f"vector<{type.width}xi8>"
    both = w.op(f"vector.interleave {_vector(w, first, some)}, {_vector(w, second, some)} : {_text(some)} -> {every}")
    return low_bits(w, both, type)


def store_packed(w: FunctionWriter, op: Op) -> None:
    """A value at an element offset."""
    value, pointer, offset = op.operands
    type = value.simd
    name, index = w.name(value), w.name(offset)
    if type.width == 1:
        _store_half(w, op, index, name)
        return
    low, odd = _place(w, index)
    even = w.op(f"arith.cmpi eq, {odd}, {w.constant(0, INT)} : i64")
    w.open(f"scf.if {even} {{")
    with w.nested():
        some = SIMDType(DType.uint8, type.width // 2)
        text = _text(some)
        halves = w.op(f"vector.deinterleave {name} : {mlir_type(type)} -> {text}", 2)
        bytes_ = _joined(w, f"{halves}#0", f"{halves}#1", some)
        if some.width == 1:
            bytes_ = w.op(f"vector.extract {bytes_}[0] : i8 from {text}")
        _write(w, pointer, low, bytes_, some)
    w.open("} else {")
    with w.nested():
        for lane in range(type.width):
            one = w.op(f"vector.extract {name}[{lane}] : i8 from {mlir_type(type)}")
            place = w.op(f"arith.addi {index}, {w.constant(lane, INT)} overflow<nsw> : i64")
            _store_half(w, op, place, one)
    w.close(w.at)


@emits("store_pair")
def _store_pair(w: FunctionWriter, op: Op) -> None:
    """Two elements, pointer, offset of their byte."""
    first, second, pointer, place = op.operands
    byte = _joined(w, w.name(first), w.name(second), _BYTE)
    _write(w, pointer, w.name(place), byte, _BYTE)


def _place(w: FunctionWriter, index: str) -> tuple[str, str]:
    """The byte of an element, and which half of it."""
    one = w.constant(1, INT)
    return w.op(f"arith.shrsi {index}, {one} : i64"), w.op(f"arith.andi {index}, {one} : i64")


def _text(type: SIMDType) -> str:
    """Bytes as they lie in memory; a vector of one is a vector here."""
    return f"vector<{type.width}xi8>"


def _vector(w: FunctionWriter, value: str, type: SIMDType) -> str:
    return value if type.width > 1 else w.op(f"vector.broadcast {value} : i8 to vector<1xi8>")


def _address(w: FunctionWriter, pointer: Value, byte: str) -> str:
    text = w.type(pointer.type)
    return w.op(f"llvm.getelementptr inbounds {w.name(pointer)}[{byte}] : ({text}, i64) -> {text}, i8")


def _read(w: FunctionWriter, pointer: Value, byte: str, type: SIMDType) -> str:
    address = _address(w, pointer, byte)
    return w.op(f"llvm.load {address} {{alignment = 1 : i64}} : {w.type(pointer.type)} -> {mlir_type(type)}")


def _write(w: FunctionWriter, pointer: Value, byte: str, value: str, type: SIMDType) -> None:
    address = _address(w, pointer, byte)
    text = mlir_type(type) if type.width == 1 else _text(type)
    w.line(f"llvm.store {value}, {address} {{alignment = 1 : i64}} : {text}, {w.type(pointer.type)}")


def _shifted(w: FunctionWriter, value: str, half: str, type: SIMDType) -> str:
    """Bytes with the half that is wanted below."""
    text = mlir_type(type)
    short = w.op(f"arith.trunci {half} : i64 to i8")
    amount = w.op(f"arith.shli {short}, {w.constant(2, _BYTE)} : i8")
    if type.width > 1:
        amount = w.op(f"vector.broadcast {amount} : i8 to {text}")
    return w.op(f"arith.shrui {value}, {amount} : {text}")


def _joined(w: FunctionWriter, first: str, second: str, type: SIMDType) -> str:
    """Whole bytes of the elements for their halves."""
    vectors = type.width > 1 or first.endswith("#0")
    text = _text(type) if vectors else "i8"

    def number(value: int) -> str:
        literal = f"dense<{value}>" if vectors else str(value)
        return w.op(f"arith.constant {literal} : {text}")

    low = w.op(f"arith.andi {first}, {number(15)} : {text}")
    high = w.op(f"arith.shli {second}, {number(4)} : {text}")
    return w.op(f"arith.ori {low}, {high} : {text}")


def _store_half(w: FunctionWriter, op: Op, index: str, value: str) -> None:
    """One element; its neighbour stays as it is, code that stores it meanwhile."""
    low, odd = _place(w, index)
    high_half = w.op(f"arith.cmpi ne, {odd}, {w.constant(0, INT)} : i64")
    lower, upper = w.constant(0x0F, _BYTE), w.constant(0xF0, _BYTE)
    kept = w.select(high_half, lower, upper, _BYTE)
    below = w.op(f"arith.andi {value}, {lower} : i8")
    above = w.op(f"arith.shli {value}, {w.constant(4, _BYTE)} : i8")
    placed = w.select(high_half, above, below, _BYTE)
    pointer = op.operands[1]
    if "lone" in op.attrs:
        old = w.op(f"arith.andi {_read(w, pointer, low, _BYTE)}, {kept} : i8")
        _write(w, pointer, low, w.op(f"arith.ori {old}, {placed} : i8"), _BYTE)
        return
    address, text = _address(w, pointer, low), w.type(pointer.type)
    w.op(f"llvm.atomicrmw _and {address}, {kept} monotonic : {text}, i8")
    w.op(f"llvm.atomicrmw _or {address}, {placed} monotonic : {text}, i8")
