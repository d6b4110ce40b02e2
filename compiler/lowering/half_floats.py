"""Writes the conversions of float16 and bfloat16 to float32 and back, for every target.

Between operations a half number is its 16 bits, an integer: handed floats of 16 bits that a CPU has no registers for,
LLVM widens and narrows them where it likes, by calls into a library that need not be there. bfloat16 is the upper half
of a float32. float16 is converted by the hardware where it can (`f16c`), else in integers, and so is what bfloat16 is
rounded from (`bf16_convert`). Rounding is to nearest, ties to even, subnormals and NaN included; of a NaN the hardware
may keep less of the payload than integers do.

See also `lowering.casts` (other pairs of types).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from .types import in_lanes, lanes_of
from .writer import FunctionWriter


def widen(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """The bits of a half type as float32, exactly."""
    if type.dtype is DType.bfloat16:
        return _widen_bfloat16(w, value, type)
    if not w.target.supports("f16c"):
        return _widen_float16(w, value, type)
    short, half, single = _types(type)
    number = w.op(f"arith.bitcast {value} : {short} to {half}")
    return w.op(f"arith.extf {number} : {half} to {single}")


def narrow(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """A float32 rounded to the half type `type`, as bits."""
    by_hardware = w.target.supports("bf16_convert" if type.dtype is DType.bfloat16 else "f16c")
    if not by_hardware:
        by_hand = _narrow_bfloat16 if type.dtype is DType.bfloat16 else _narrow_float16
        return by_hand(w, value, type)
    short, half, single = _types(type)
    number = w.op(f"arith.truncf {value} : {single} to {half}")
    return w.op(f"arith.bitcast {number} : {half} to {short}")


def _types(type: SIMDType) -> tuple[str, str, str]:
    """How MLIR writes the bits, the half type and the float32 of a width."""
    half = "bf16" if type.dtype is DType.bfloat16 else "f16"
    return lanes_of("i16", type.width), lanes_of(half, type.width), lanes_of("f32", type.width)


class Words:
    """32-bit integer arithmetic of one width."""

    def __init__(self, w: FunctionWriter, width: int) -> None:
        self.w = w
        self.type = lanes_of("i32", width)
        self.width = width

    def const(self, number: int) -> str:
        signed = number - (1 << 32) if number >= 1 << 31 else number
        return self.w.op(f"arith.constant {in_lanes(str(signed), self.width)} : {self.type}")

    def do(self, op: str, a: str, b: str | int) -> str:
        other = self.const(b) if isinstance(b, int) else b
        return self.w.op(f"arith.{op} {a}, {other} : {self.type}")

    def select(self, test: str, a: str, b: str) -> str:
        return self.w.select(test, a, b, SIMDType(DType.int32, self.width))


def _widen_float16(w: FunctionWriter, value: str, type: SIMDType) -> str:
    # Exponent and mantissa moved into place are the number times 2**-112, subnormals too; the product with 2**112 is
    # exact. An exponent of all ones has to stay one.
    words = Words(w, type.width)
    short, _, single = _types(type)
    wide = w.op(f"arith.extui {value} : {short} to {words.type}")
    size = words.do("andi", wide, 0x7FFF)
    placed = w.op(f"arith.bitcast {words.do('shli', size, 13)} : {words.type} to {single}")
    factor = w.op(f"arith.constant {in_lanes('0x77800000', type.width)} : {single}")
    scaled = w.op(f"arith.mulf {placed}, {factor} : {single}")
    number = w.op(f"arith.bitcast {scaled} : {single} to {words.type}")
    special = words.do("cmpi uge,", size, 0x7C00)
    number = words.select(special, words.do("ori", number, 0x7F800000), number)
    sign = words.do("shli", words.do("andi", wide, 0x8000), 16)
    return w.op(f"arith.bitcast {words.do('ori', number, sign)} : {words.type} to {single}")


def _narrow_float16(w: FunctionWriter, value: str, type: SIMDType) -> str:
    words = Words(w, type.width)
    short, _, single = _types(type)
    bits = w.op(f"arith.bitcast {value} : {single} to {words.type}")
    size = words.do("andi", bits, 0x7FFFFFFF)
    # Normal numbers: the exponent's bias goes from 127 to 15, half a unit is added, one less on an even neighbour.
    odd = words.do("andi", words.do("shrui", size, 13), 1)
    biased = words.do("addi", words.do("addi", size, ((15 - 127) << 23) % (1 << 32) + 0xFFF), odd)
    normal = words.do("shrui", biased, 13)
    # Below 2**-14 the hardware's own addition rounds: 0.5 has its last bit where a subnormal has.
    half = w.op(f"arith.constant {in_lanes('0x3F000000', type.width)} : {single}")
    magnitude = w.op(f"arith.bitcast {size} : {words.type} to {single}")
    shifted = w.op(f"arith.addf {magnitude}, {half} : {single}")
    small = words.do("subi", w.op(f"arith.bitcast {shifted} : {single} to {words.type}"), 0x3F000000)
    result = words.select(words.do("cmpi ult,", size, 0x38800000), small, normal)
    # From 2**16 on infinity; a NaN stays one, with what fits of its payload.
    payload = words.do("ori", words.do("andi", words.do("shrui", size, 13), 0x3FF), 0x7E00)
    special = words.select(words.do("cmpi ugt,", size, 0x7F800000), payload, words.const(0x7C00))
    result = words.select(words.do("cmpi uge,", size, 0x47800000), special, result)
    sign = words.do("andi", words.do("shrui", bits, 16), 0x8000)
    return w.op(f"arith.trunci {words.do('ori', result, sign)} : {words.type} to {short}")


def _widen_bfloat16(w: FunctionWriter, value: str, type: SIMDType) -> str:
    words = Words(w, type.width)
    short, _, single = _types(type)
    wide = w.op(f"arith.extui {value} : {short} to {words.type}")
    return w.op(f"arith.bitcast {words.do('shli', wide, 16)} : {words.type} to {single}")


def _narrow_bfloat16(w: FunctionWriter, value: str, type: SIMDType) -> str:
    # Half a unit is added, one less on an even neighbour; a carry into the exponent is right, up to infinity. A NaN
    # keeps the upper part of its payload and is made quiet.
    words = Words(w, type.width)
    short, _, single = _types(type)
    bits = w.op(f"arith.bitcast {value} : {single} to {words.type}")
    odd = words.do("andi", words.do("shrui", bits, 16), 1)
    rounded = words.do("shrui", words.do("addi", words.do("addi", bits, 0x7FFF), odd), 16)
    quiet = words.do("ori", words.do("shrui", bits, 16), 0x40)
    is_nan = w.op(f"arith.cmpf uno, {value}, {value} : {single}")
    return w.op(f"arith.trunci {words.select(is_nan, quiet, rounded)} : {words.type} to {short}")
