"""How MLIR writes types and constants.

Input: dtypes, types, numbers. Output: text, or the name of a constant. Non-goals: no operations.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ..dsl.types import DType, SIMDType

if TYPE_CHECKING:
    from .emit import FunctionEmitter

_ELEMENT = {
    DType.bool: "i1",
    DType.float16: "i16",  # between operations a half number is its bits, see `emit_half`
    DType.bfloat16: "i16",
    DType.float32: "f32",
    DType.float64: "f64",
}


def element_type(dtype: DType) -> str:
    """How MLIR writes an element in a register; integers have no sign there."""
    return _ELEMENT.get(dtype) or f"i{dtype.bits}"


def mlir_type(type: SIMDType) -> str:
    """How MLIR writes a value's type."""
    element = element_type(type.dtype)
    return element if type.width == 1 else f"vector<{type.width}x{element}>"


def float_bits(value: float, dtype: DType) -> int:
    """The bit pattern of an already rounded number."""
    if dtype is DType.float64:
        return int.from_bytes(struct.pack(">d", value), "big")
    if dtype is DType.float16:
        return int.from_bytes(struct.pack(">e", value), "big")
    single = int.from_bytes(struct.pack(">f", value), "big")
    return single if dtype is DType.float32 else single >> 16


def constant(e: FunctionEmitter, value: Any, type: SIMDType) -> str:
    """A number in every lane."""
    dtype = type.dtype
    if dtype.is_half():
        number = float_bits(float(value), dtype)
        text = str(number - (1 << 16) if number >= 1 << 15 else number)
    elif dtype.is_float():
        text = f"0x{float_bits(float(value), dtype):0{dtype.bits // 4}X}"
    elif dtype is DType.bool:
        text = "true" if value else "false"
        if type.width == 1:
            return e.op(f"arith.constant {text}")  # these words carry their type
    else:
        number = int(value)
        text = str(number - (1 << dtype.bits) if number >= 1 << (dtype.bits - 1) else number)
    if type.width > 1:
        text = f"dense<{text}>"
    return e.op(f"arith.constant {text} : {mlir_type(type)}")
