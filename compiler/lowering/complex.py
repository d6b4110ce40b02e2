"""Writes complex numbers: a pair of floats or of vectors of floats, in registers a structure of LLVM's.

In memory the parts of an element are neighbours, the real one first. An element is read as two floats, so that LLVM
makes vectors of loops over them; a vector as twice as many floats, whose lanes are sorted into two vectors.
"""

from __future__ import annotations

from ...dsl.types.dtype import SIMDType
from ..ir.opcodes import IMAG
from ..ir.program import Op
from .types import element_type, mlir_type
from .writer import FunctionWriter, emits


@emits("complex")
def _complex(w: FunctionWriter, op: Op) -> None:
    w.result(op, w.joined(w.name(op.operands[0]), w.name(op.operands[1]), op.results[0].simd))


@emits("real", "imag")
def _part(w: FunctionWriter, op: Op) -> None:
    source = op.operands[0]
    w.result(op, _taken(w, w.name(source), source.simd, int(op.opcode is IMAG)))


def _taken(w: FunctionWriter, value: str, type: SIMDType, number: int) -> str:
    return w.op(f"llvm.extractvalue {value}[{number}] : {mlir_type(type)}")


def parts_of(w: FunctionWriter, value: str, type: SIMDType) -> tuple[str, str]:
    """The names of both parts."""
    return _taken(w, value, type, 0), _taken(w, value, type, 1)


def part_type(type: SIMDType) -> SIMDType:
    """The type of each part."""
    return type.with_dtype(type.dtype.part)


def whole_type(type: SIMDType) -> SIMDType:
    """The type of all parts side by side, as they lie in memory."""
    return SIMDType(type.dtype.part, 2 * type.width)


def next_part(w: FunctionWriter, place: str, pointer: str, type: SIMDType) -> str:
    """The address, or the addresses, of imaginary parts."""
    return w.op(f"llvm.getelementptr inbounds {place}[1] : ({pointer}) -> {pointer}, {element_type(type.dtype.part)}")


def side_by_side(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """The parts of a vector as they lie in memory."""
    real, imag = parts_of(w, value, type)
    return interleaved(w, real, imag, mlir_type(part_type(type)), mlir_type(whole_type(type)))


def interleaved(w: FunctionWriter, a: str, b: str, each: str, both: str) -> str:
    """The lanes of two vectors by turns."""
    return w.op(f"vector.interleave {a}, {b} : {each} -> {both}")


def sorted_apart(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """The vector of complex numbers whose parts lie side by side in `value`."""
    halves = w.op(
        f"vector.deinterleave {value} : {mlir_type(whole_type(type))} -> {mlir_type(part_type(type))}", results=2
    )
    return w.joined(f"{halves}#0", f"{halves}#1", type)


def load_complex(w: FunctionWriter, place: str, pointer: str, align: int, type: SIMDType) -> str:
    """An element, or a vector of neighbours, at an address."""

    def read(at: str, text: str, align: int) -> str:
        return w.op(f"llvm.load {at} {{alignment = {align} : i64}} : {pointer} -> {text}")

    if type.width > 1:
        return sorted_apart(w, read(place, mlir_type(whole_type(type)), align), type)
    text, half = mlir_type(part_type(type)), type.dtype.part.size_in_bytes
    real = read(place, text, align)
    return w.joined(real, read(next_part(w, place, pointer, type), text, min(align, half)), type)


def store_complex(w: FunctionWriter, value: str, place: str, pointer: str, align: int, type: SIMDType) -> None:
    """Writes an element, or a vector of neighbours, at an address."""

    def write(value: str, at: str, text: str, align: int) -> None:
        w.line(f"llvm.store {value}, {at} {{alignment = {align} : i64}} : {text}, {pointer}")

    if type.width > 1:
        write(side_by_side(w, value, type), place, mlir_type(whole_type(type)), align)
        return
    text, half = mlir_type(part_type(type)), type.dtype.part.size_in_bytes
    real, imag = parts_of(w, value, type)
    write(real, place, text, align)
    write(imag, next_part(w, place, pointer, type), text, min(align, half))


def masked_load_complex(
    w: FunctionWriter, places: str, pointer: str, mask: str, other: str, align: int, type: SIMDType
) -> str:
    """Neighbours from an address on, or the elements at several addresses, where a mask holds; else those of `other`.

    `pointer` is how MLIR writes the address or the addresses.
    """
    bits = f"vector<{type.width}xi1>"
    if not pointer.startswith("vector"):
        text = mlir_type(whole_type(type))
        both = interleaved(w, mask, mask, bits, f"vector<{2 * type.width}xi1>")
        filler = side_by_side(w, other, type)
        types = f"({pointer}, vector<{2 * type.width}xi1>, {text}) -> {text}"
        attrs = f"{{alignment = {align} : i32}}"
        return sorted_apart(w, w.op(f"llvm.intr.masked.load {places}, {both}, {filler} {attrs} : {types}"), type)
    text, half = mlir_type(part_type(type)), type.dtype.part.size_in_bytes
    results = []
    for number, filler in enumerate(parts_of(w, other, type)):
        places = next_part(w, places, pointer, type) if number else places
        attrs = f"{{alignment = {min(align, half) if number else align} : i32}}"
        types = f"({pointer}, {bits}, {text}) -> {text}"
        results.append(w.op(f"llvm.intr.masked.gather {places}, {mask}, {filler} {attrs} : {types}"))
    return w.joined(results[0], results[1], type)


def masked_store_complex(
    w: FunctionWriter, value: str, places: str, pointer: str, mask: str, align: int, type: SIMDType
) -> None:
    """The same for stores."""
    bits = f"vector<{type.width}xi1>"
    if not pointer.startswith("vector"):
        text, wide = mlir_type(whole_type(type)), f"vector<{2 * type.width}xi1>"
        both = interleaved(w, mask, mask, bits, wide)
        written, attrs = side_by_side(w, value, type), f"{{alignment = {align} : i32}}"
        w.line(f"llvm.intr.masked.store {written}, {places}, {both} {attrs} : {text}, {wide} into {pointer}")
        return
    text, half = mlir_type(part_type(type)), type.dtype.part.size_in_bytes
    for number, written in enumerate(parts_of(w, value, type)):
        places = next_part(w, places, pointer, type) if number else places
        attrs = f"{{alignment = {min(align, half) if number else align} : i32}}"
        w.line(f"llvm.intr.masked.scatter {written}, {places}, {mask} {attrs} : {text}, {bits} into {pointer}")
