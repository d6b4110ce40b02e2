"""Floats of 4, 6 and 8 bits to float32 and back, for every target.

Between operations such a number is its bits in a byte. Both ways are integer arithmetic and one addition, from the
format's own numbers (`dsl.types.formats`, which says what every number becomes), so they are vector code wherever
32-bit integers are, need no instruction for narrow floats and no library, and give the same bits everywhere. No number
on the way is subnormal: a processor that flushes these does no harm.

Input and output: names of MLIR values. Non-goals: other pairs of types (see `lowering.casts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...dsl.types.dtype import SIMDType
from .half_floats import Words

if TYPE_CHECKING:
    from .writer import FunctionEmitter

_NAN, _INFINITY = 0x7FC00000, 0x7F800000


def widen_narrow(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    """The bits of a narrow float as float32, exactly; every NaN as the same one."""
    w, format = Words(e, type.width), type.dtype.format
    byte, single = _types(type)
    code = e.op(f"arith.extui {value} : {byte} to {w.type}")
    if format.family == "scale":  # an exponent of float32, but for the ends
        result = w.do("shli", code, 23)
        result = w.select(w.do("cmpi eq,", code, 0), w.const(1 << 22), result)
        result = w.select(w.do("cmpi eq,", code, format.nan), w.const(_NAN), result)
        return e.op(f"arith.bitcast {result} : {w.type} to {single}")
    shift = 23 - format.mantissa
    size = w.do("andi", code, format.sign - 1)
    placed = w.do("shli", size, shift)
    normal = w.do("addi", placed, (127 - format.bias) << 23)
    # A subnormal number m is (1 + m) - 1 in units of the smallest normal one.
    unit = (128 - format.bias) << 23
    above = e.op(f"arith.bitcast {w.do('addi', placed, unit)} : {w.type} to {single}")
    small = e.op(f"arith.subf {above}, {_float(w, single, unit)} : {single}")
    small_bits = e.op(f"arith.bitcast {small} : {single} to {w.type}")
    result = w.select(w.do("cmpi ult,", size, 1 << format.mantissa), small_bits, normal)
    if format.has_infinity:
        result = w.select(w.do("cmpi eq,", size, format.overflow), w.const(_INFINITY), result)
    sign = w.do("shli", w.do("andi", code, format.sign), 32 - format.bits)
    result = w.do("ori", result, sign)
    if format.family == "fnuz":
        result = w.select(w.do("cmpi eq,", code, format.nan), w.const(_NAN), result)
    elif format.has_nan:
        last = format.overflow if format.has_infinity else format.largest
        result = w.select(w.do("cmpi ugt,", size, last), w.const(_NAN), result)
    return e.op(f"arith.bitcast {result} : {w.type} to {single}")


def narrow_float(e: FunctionEmitter, value: str, type: SIMDType) -> str:
    """A float32 rounded to the narrow type `type`, as bits."""
    w, format = Words(e, type.width), type.dtype.format
    byte, single = _types(type)
    bits = e.op(f"arith.bitcast {value} : {single} to {w.type}")
    if format.family == "scale":
        return e.op(f"arith.trunci {_scale(w, bits, format.nan)} : {w.type} to {byte}")
    shift = 23 - format.mantissa
    size = w.do("andi", bits, 0x7FFFFFFF)
    # Normal numbers: half a unit is added, one less on an even neighbour, and the exponent gets the other bias.
    odd = w.do("andi", w.do("shrui", size, shift), 1)
    halfway = w.do("addi", w.do("addi", size, (1 << (shift - 1)) - 1), odd)
    normal = w.do("subi", w.do("shrui", halfway, shift), (127 - format.bias) << format.mantissa)
    # Below them the hardware's own addition rounds: the last bit of `magic` is where that of a subnormal number is.
    magic = (127 + 24 - format.mantissa - format.bias) << 23
    magnitude = e.op(f"arith.bitcast {size} : {w.type} to {single}")
    moved = e.op(f"arith.addf {magnitude}, {_float(w, single, magic)} : {single}")
    small = w.do("subi", e.op(f"arith.bitcast {moved} : {single} to {w.type}"), magic)
    result = w.select(w.do("cmpi ult,", size, (128 - format.bias) << 23), small, normal)
    beyond = w.do("cmpi ugt,", result, format.largest)  # so is NaN
    result = w.select(beyond, w.const(format.overflow), result)
    sign = w.do("andi", w.do("shrui", bits, 32 - format.bits), format.sign)
    signed = w.do("ori", result, sign)
    if format.family == "fnuz":
        signed = w.select(w.do("cmpi eq,", result, 0), result, signed)
    if format.has_infinity or not format.has_nan:
        beyond = w.do("cmpi ugt,", size, _INFINITY)
    signed = w.select(beyond, w.const(format.nan), signed)
    return e.op(f"arith.trunci {signed} : {w.type} to {byte}")


def _scale(w: Words, bits: str, nan: int) -> str:
    """The nearest power of two as its exponent; halfway between two it is the upper one (1.5 lies between 1 and 2,
    and 2 is the even one). What is subnormal in float32 lies about 2**-127, the smallest, and 2**-126."""
    subnormal = w.do("cmpi ult,", bits, 1 << 23)
    half = w.select(subnormal, w.const(1 << 21), w.const(1 << 22))
    exponent = w.do("shrui", w.do("addi", bits, half), 23)
    # 0, numbers below it and NaN: all that is out of [1, infinity] as an unsigned integer.
    return w.select(w.do("cmpi uge,", w.do("subi", bits, 1), _INFINITY), w.const(nan), exponent)


def _float(w: Words, single: str, pattern: int) -> str:
    """The float32 of a pattern in every lane."""
    number = f"0x{pattern:08X}"
    return w.e.op(f"arith.constant {number if w.width == 1 else f'dense<{number}>'} : {single}")


def _types(type: SIMDType) -> tuple[str, str]:
    """How MLIR writes the bits and the float32 of a width."""
    return ("i8", "f32") if type.width == 1 else (f"vector<{type.width}xi8>", f"vector<{type.width}xf32>")
