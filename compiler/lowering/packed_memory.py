"""Loads and stores of elements that share bytes: two to a byte, the first in the low half.

Offsets count elements. A load takes the byte and shifts its half down; a vector is read from its bytes at once,
wherever it starts. A store of one element has to leave its neighbour alone, which another thread may store at the same
time: the half is cleared and set by two atomic operations, neither of which touches the other half. Where no other
thread can be (the host's own code, storage of the function's own), the byte is read, changed and written. Vectors that
begin at a byte are stored as whole bytes. `store_pair` writes a byte whose two elements are at hand; `foreach` does so.

Input: a `FunctionEmitter` and an operation. Output: lines. Non-goals: the elements' own bits (see `lowering.casts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dsl.types.dtype import INT, DType, SIMDType
from ..ir.program import Op, PointerType, Value
from .arithmetic import select
from .casts import low_bits
from .types import constant, mlir_type

if TYPE_CHECKING:
    from .writer import FunctionEmitter

_BYTE = SIMDType(DType.uint8)


def load_packed(e: FunctionEmitter, op: Op) -> str:
    """The element at an offset, or a vector of those from there on."""
    pointer, offset = op.operands
    type = op.results[0].type
    assert isinstance(type, SIMDType)
    index = e.name(offset)
    low, odd = _place(e, index)
    if type.width == 1:
        shifted = _shifted(e, _read(e, pointer, low, _BYTE), odd, _BYTE)
        return low_bits(e, shifted, type)
    # With an even start, byte k holds elements 2 k and 2 k + 1. With an odd one, element 2 k lies in the upper half of
    # byte k and element 2 k + 1 in the lower half of the byte behind it.
    some = SIMDType(DType.uint8, type.width // 2)
    behind = e.op(f"arith.addi {low}, {odd} overflow<nsw, nuw> : i64")
    even_half = e.op(f"arith.xori {odd}, {constant(e, 1, INT)} : i64")
    first = _shifted(e, _read(e, pointer, low, some), odd, some)
    second = _shifted(e, _read(e, pointer, behind, some), even_half, some)
    every = f"vector<{type.width}xi8>"
    both = e.op(f"vector.interleave {_vector(e, first, some)}, {_vector(e, second, some)} : {_text(some)} -> {every}")
    return low_bits(e, both, type)


def store_packed(e: FunctionEmitter, op: Op) -> None:
    """A value at an element offset."""
    value, pointer, offset = op.operands
    type = value.type
    assert isinstance(type, SIMDType)
    name, index = e.name(value), e.name(offset)
    if type.width == 1:
        _store_half(e, pointer, index, name)
        return
    low, odd = _place(e, index)
    even = e.op(f"arith.cmpi eq, {odd}, {constant(e, 0, INT)} : i64")
    e.lines.append(f"{e.indent}scf.if {even} {{\n")
    with e.nested():
        some = SIMDType(DType.uint8, type.width // 2)
        text = _text(some)
        halves = e.op(f"vector.deinterleave {name} : {mlir_type(type)} -> {text}", 2)
        bytes_ = _joined(e, f"{halves}#0", f"{halves}#1", some)
        if some.width == 1:
            bytes_ = e.op(f"vector.extract {bytes_}[0] : i8 from {text}")
        _write(e, pointer, low, bytes_, some)
    e.lines.append(f"{e.indent}}} else {{\n")
    with e.nested():
        for lane in range(type.width):
            one = e.op(f"vector.extract {name}[{lane}] : i8 from {mlir_type(type)}")
            place = e.op(f"arith.addi {index}, {constant(e, lane, INT)} overflow<nsw> : i64")
            _store_half(e, pointer, place, one)
    e.lines.append(f"{e.indent}}}{e.at}\n")


def store_pair(e: FunctionEmitter, op: Op) -> None:
    """Two elements, pointer, offset of their byte."""
    first, second, pointer, place = op.operands
    byte = _joined(e, e.name(first), e.name(second), _BYTE)
    _write(e, pointer, e.name(place), byte, _BYTE)


def _place(e: FunctionEmitter, index: str) -> tuple[str, str]:
    """The byte of an element, and which half of it."""
    one = constant(e, 1, INT)
    return e.op(f"arith.shrsi {index}, {one} : i64"), e.op(f"arith.andi {index}, {one} : i64")


def _text(type: SIMDType) -> str:
    """Bytes as they lie in memory; a vector of one is a vector here."""
    return f"vector<{type.width}xi8>"


def _vector(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    return value if type.width > 1 else e.op(f"vector.broadcast {value} : i8 to vector<1xi8>")


def _address(e: FunctionEmitter, pointer: Value, byte: str) -> str:
    text = e.type(pointer.type)
    return e.op(f"llvm.getelementptr inbounds {e.name(pointer)}[{byte}] : ({text}, i64) -> {text}, i8")


def _read(e: FunctionEmitter, pointer: Value, byte: str, type: SIMDType) -> str:
    address = _address(e, pointer, byte)
    return e.op(f"llvm.load {address} {{alignment = 1 : i64}} : {e.type(pointer.type)} -> {mlir_type(type)}")


def _write(e: FunctionEmitter, pointer: Value, byte: str, value: str, type: SIMDType) -> None:
    address = _address(e, pointer, byte)
    text = mlir_type(type) if type.width == 1 else _text(type)
    e.line(f"llvm.store {value}, {address} {{alignment = 1 : i64}} : {text}, {e.type(pointer.type)}")


def _shifted(e: FunctionEmitter, value: str, half: str, type: SIMDType) -> str:
    """Bytes with the half that is wanted below."""
    text = mlir_type(type)
    short = e.op(f"arith.trunci {half} : i64 to i8")
    amount = e.op(f"arith.shli {short}, {constant(e, 2, _BYTE)} : i8")
    if type.width > 1:
        amount = e.op(f"vector.broadcast {amount} : i8 to {text}")
    return e.op(f"arith.shrui {value}, {amount} : {text}")


def _joined(e: FunctionEmitter, first: str, second: str, type: SIMDType) -> str:
    """Whole bytes of the elements for their halves."""
    vectors = type.width > 1 or first.endswith("#0")
    text = _text(type) if vectors else "i8"

    def number(value: int) -> str:
        literal = f"dense<{value}>" if vectors else str(value)
        return e.op(f"arith.constant {literal} : {text}")

    low = e.op(f"arith.andi {first}, {number(15)} : {text}")
    high = e.op(f"arith.shli {second}, {number(4)} : {text}")
    return e.op(f"arith.ori {low}, {high} : {text}")


def _store_half(e: FunctionEmitter, pointer: Value, index: str, value: str) -> None:
    """One element; its neighbour stays as it is, whoever stores it meanwhile."""
    low, odd = _place(e, index)
    high_half = e.op(f"arith.cmpi ne, {odd}, {constant(e, 0, INT)} : i64")
    lower, upper = constant(e, 0x0F, _BYTE), constant(e, 0xF0, _BYTE)
    kept = select(e, high_half, lower, upper, _BYTE)
    below = e.op(f"arith.andi {value}, {lower} : i8")
    above = e.op(f"arith.shli {value}, {constant(e, 4, _BYTE)} : i8")
    placed = select(e, high_half, above, below, _BYTE)
    assert isinstance(pointer.type, PointerType)
    if e.alone or pointer in e.private:
        old = e.op(f"arith.andi {_read(e, pointer, low, _BYTE)}, {kept} : i8")
        _write(e, pointer, low, e.op(f"arith.ori {old}, {placed} : i8"), _BYTE)
        return
    address, text = _address(e, pointer, low), e.type(pointer.type)
    e.op(f"llvm.atomicrmw _and {address}, {kept} monotonic : {text}, i8")
    e.op(f"llvm.atomicrmw _or {address}, {placed} monotonic : {text}, i8")
