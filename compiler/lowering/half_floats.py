"""float16 and bfloat16 to float32 and back, for every target.

Between operations a half number is its 16 bits, an integer: handed floats of 16 bits that a CPU has no registers for,
LLVM widens and narrows them where it likes, by calls into a library that need not be there. bfloat16 is the upper half
of a float32. float16 is converted by the hardware where it can (`f16c`), else in integers. Rounding is to nearest, ties
to even, subnormals and NaN included.

Input and output: names of MLIR values. Non-goals: other pairs of types (see `lowering.arithmetic`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dsl.types.dtype import DType, SIMDType

if TYPE_CHECKING:
    from .writer import FunctionEmitter


def widen(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    """The bits of a half type as float32, exactly."""
    if type.dtype is DType.bfloat16:
        return _widen_bfloat16(e, value, type)
    if not e.target.supports("f16c"):
        return _widen_float16(e, value, type)
    short, half, single = _types(type)
    number = e.op(f"arith.bitcast {value} : {short} to {half}")
    return e.op(f"arith.extf {number} : {half} to {single}")


def narrow(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    """A float32 rounded to the half type `type`, as bits."""
    if type.dtype is DType.bfloat16:
        return _narrow_bfloat16(e, value, type)
    if not e.target.supports("f16c"):
        return _narrow_float16(e, value, type)
    short, half, single = _types(type)
    number = e.op(f"arith.truncf {value} : {single} to {half}")
    return e.op(f"arith.bitcast {number} : {half} to {short}")


def _types(type: SIMDType) -> tuple[str, str, str]:
    """How MLIR writes the bits, the float16 and the float32 of a width."""
    return tuple(e if type.width == 1 else f"vector<{type.width}x{e}>" for e in ("i16", "f16", "f32"))  # type: ignore[return-value]


class Words:
    """32-bit integer arithmetic of one width."""

    def __init__(self, e: FunctionEmitter, width: int) -> None:
        self.e = e
        self.type = "i32" if width == 1 else f"vector<{width}xi32>"
        self.width = width

    def const(self, number: int) -> str:
        signed = number - (1 << 32) if number >= 1 << 31 else number
        value = str(signed) if self.width == 1 else f"dense<{signed}>"
        return self.e.op(f"arith.constant {value} : {self.type}")

    def do(self, op: str, a: str, b: str | int) -> str:
        other = self.const(b) if isinstance(b, int) else b
        return self.e.op(f"arith.{op} {a}, {other} : {self.type}")

    def select(self, test: str, a: str, b: str) -> str:
        flags = "i1" if self.width == 1 else f"vector<{self.width}xi1>"
        types = self.type if self.width == 1 else f"{flags}, {self.type}"
        return self.e.op(f"arith.select {test}, {a}, {b} : {types}")


def _widen_float16(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    # Exponent and mantissa moved into place are the number times 2**-112, subnormals too; the product with 2**112 is
    # exact. An exponent of all ones has to stay one.
    w = Words(e, type.width)
    short, _, single = _types(type)
    wide = e.op(f"arith.extui {value} : {short} to {w.type}")
    size = w.do("andi", wide, 0x7FFF)
    placed = e.op(f"arith.bitcast {w.do('shli', size, 13)} : {w.type} to {single}")
    factor = e.op(f"arith.constant {'0x77800000' if type.width == 1 else 'dense<0x77800000>'} : {single}")
    scaled = e.op(f"arith.mulf {placed}, {factor} : {single}")
    number = e.op(f"arith.bitcast {scaled} : {single} to {w.type}")
    special = w.do("cmpi uge,", size, 0x7C00)
    number = w.select(special, w.do("ori", number, 0x7F800000), number)
    sign = w.do("shli", w.do("andi", wide, 0x8000), 16)
    return e.op(f"arith.bitcast {w.do('ori', number, sign)} : {w.type} to {single}")


def _narrow_float16(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    w = Words(e, type.width)
    short, _, single = _types(type)
    bits = e.op(f"arith.bitcast {value} : {single} to {w.type}")
    size = w.do("andi", bits, 0x7FFFFFFF)
    # Normal numbers: the exponent's bias goes from 127 to 15, half a unit is added, one less on an even neighbour.
    odd = w.do("andi", w.do("shrui", size, 13), 1)
    biased = w.do("addi", w.do("addi", size, ((15 - 127) << 23) % (1 << 32) + 0xFFF), odd)
    normal = w.do("shrui", biased, 13)
    # Below 2**-14 the hardware's own addition rounds: 0.5 has its last bit where a subnormal has.
    half = e.op(f"arith.constant {'0x3F000000' if type.width == 1 else 'dense<0x3F000000>'} : {single}")
    magnitude = e.op(f"arith.bitcast {size} : {w.type} to {single}")
    shifted = e.op(f"arith.addf {magnitude}, {half} : {single}")
    small = w.do("subi", e.op(f"arith.bitcast {shifted} : {single} to {w.type}"), 0x3F000000)
    result = w.select(w.do("cmpi ult,", size, 0x38800000), small, normal)
    # From 2**16 on infinity; a NaN stays one, with what fits of its payload.
    payload = w.do("ori", w.do("andi", w.do("shrui", size, 13), 0x3FF), 0x7E00)
    special = w.select(w.do("cmpi ugt,", size, 0x7F800000), payload, w.const(0x7C00))
    result = w.select(w.do("cmpi uge,", size, 0x47800000), special, result)
    sign = w.do("andi", w.do("shrui", bits, 16), 0x8000)
    return e.op(f"arith.trunci {w.do('ori', result, sign)} : {w.type} to {short}")


def _widen_bfloat16(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    w = Words(e, type.width)
    short, _, single = _types(type)
    wide = e.op(f"arith.extui {value} : {short} to {w.type}")
    return e.op(f"arith.bitcast {w.do('shli', wide, 16)} : {w.type} to {single}")


def _narrow_bfloat16(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    # Half a unit is added, one less on an even neighbour; a carry into the exponent is right, up to infinity. A NaN
    # keeps the upper part of its payload and is made quiet.
    w = Words(e, type.width)
    short, _, single = _types(type)
    bits = e.op(f"arith.bitcast {value} : {single} to {w.type}")
    odd = w.do("andi", w.do("shrui", bits, 16), 1)
    rounded = w.do("shrui", w.do("addi", w.do("addi", bits, 0x7FFF), odd), 16)
    quiet = w.do("ori", w.do("shrui", bits, 16), 0x40)
    is_nan = e.op(f"arith.cmpf uno, {value}, {value} : {single}")
    return e.op(f"arith.trunci {w.select(is_nan, quiet, rounded)} : {w.type} to {short}")
