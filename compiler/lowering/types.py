"""Spells types and constants as MLIR does."""

from __future__ import annotations

import struct
from typing import Any

from ...dsl.types.dtype import DType, SIMDType

_ELEMENT = {
    DType.bool: "i1",
    DType.float16: "i16",  # between operations a half number is its bits, see `lowering.half_floats`
    DType.bfloat16: "i16",
    DType.float32: "f32",
    DType.float64: "f64",
}


def element_type(dtype: DType) -> str:
    """How MLIR writes an element in a register; integers have no sign there.

    What is narrower fills a byte: a 4-bit integer with its sign, a narrow float with zeros above its bits.
    """
    if dtype.kind == "complex":
        return f"!llvm.struct<({_ELEMENT[dtype.part]}, {_ELEMENT[dtype.part]})>"
    return _ELEMENT.get(dtype) or f"i{max(dtype.bits, 8)}"


def register_bytes(type: SIMDType) -> int:
    """Bytes that a value takes outside a tensor."""
    return max(type.dtype.bits, 8) // 8 * type.width


def mlir_type(type: SIMDType) -> str:
    """How MLIR writes a value's type; that of complex numbers is a pair of numbers or of vectors."""
    if type.dtype.kind == "complex":
        part = lanes_of(element_type(type.dtype.part), type.width)
        return f"!llvm.struct<({part}, {part})>"
    return lanes_of(element_type(type.dtype), type.width)


def lanes_of(element: str, width: int) -> str:
    """How MLIR writes a number's type, or that of a vector of them."""
    return element if width == 1 else f"vector<{width}x{element}>"


def in_lanes(number: str, width: int) -> str:
    """How MLIR writes a number in every lane."""
    return number if width == 1 else f"dense<{number}>"


def float_bits(value: float, dtype: DType) -> int:
    """The bit pattern of an already rounded number."""
    if dtype in (DType.float64, DType.float32):  # a NaN keeps its sign
        return int.from_bytes(struct.pack(">d" if dtype is DType.float64 else ">f", value), "big")
    return dtype.format.encode(value)


def literal(value: Any, type: SIMDType) -> str:
    """A number in every lane, with its type."""
    dtype = type.dtype
    width = max(dtype.bits, 8)
    if dtype.is_float() and dtype.bits > 16:
        text = f"0x{float_bits(float(value), dtype):0{dtype.bits // 4}X}"
    elif dtype is DType.bool:
        text = "true" if value else "false"
        if type.width == 1:
            return text  # these words carry their type
    else:
        number = float_bits(float(value), dtype) if dtype.is_float() else int(value)
        text = str(number - (1 << width) if number >= 1 << (width - 1) else number)
    return f"{in_lanes(text, type.width)} : {mlir_type(type)}"
