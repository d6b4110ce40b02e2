"""Writes the conversions of floats of 4, 6 and 8 bits to float32 and back, for every target.

Between operations such a number is its bits in a byte. Both ways are integer arithmetic and one addition, from the
format's own numbers (`dsl.types.formats`, which says what every number becomes), so they are vector code wherever
32-bit integers are, need no instruction for narrow floats and no library, and give the same bits everywhere. No number
on the way is subnormal: a processor that flushes these does no harm.

See also `lowering.casts` (other pairs of types).
"""

from __future__ import annotations

from ...dsl.types.dtype import SIMDType
from .half_floats import Words
from .types import in_lanes, lanes_of
from .writer import FunctionWriter

_NAN, _INFINITY = 0x7FC00000, 0x7F800000


def widen_narrow(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """The bits of a narrow float as float32, exactly; every NaN as the same one."""
    words, format = Words(w, type.width), type.dtype.format
    byte, single = _types(type)
    code = w.op(f"arith.extui {value} : {byte} to {words.type}")
    if format.family == "scale":  # an exponent of float32, but for the ends
        result = words.do("shli", code, 23)
        result = words.select(words.do("cmpi eq,", code, 0), words.const(1 << 22), result)
        result = words.select(words.do("cmpi eq,", code, format.nan), words.const(_NAN), result)
        return w.op(f"arith.bitcast {result} : {words.type} to {single}")
    shift = 23 - format.mantissa
    size = words.do("andi", code, format.sign - 1)
    placed = words.do("shli", size, shift)
    normal = words.do("addi", placed, (127 - format.bias) << 23)
    # A subnormal number m is (1 + m) - 1 in units of the smallest normal one.
    unit = (128 - format.bias) << 23
    above = w.op(f"arith.bitcast {words.do('addi', placed, unit)} : {words.type} to {single}")
    small = w.op(f"arith.subf {above}, {_float(words, single, unit)} : {single}")
    small_bits = w.op(f"arith.bitcast {small} : {single} to {words.type}")
    result = words.select(words.do("cmpi ult,", size, 1 << format.mantissa), small_bits, normal)
    if format.has_infinity:
        result = words.select(words.do("cmpi eq,", size, format.overflow), words.const(_INFINITY), result)
    sign = words.do("shli", words.do("andi", code, format.sign), 32 - format.bits)
    result = words.do("ori", result, sign)
    if format.family == "fnuz":
        result = words.select(words.do("cmpi eq,", code, format.nan), words.const(_NAN), result)
    elif format.has_nan:
        last = format.overflow if format.has_infinity else format.largest
        result = words.select(words.do("cmpi ugt,", size, last), words.const(_NAN), result)
    return w.op(f"arith.bitcast {result} : {words.type} to {single}")


def narrow_float(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """A float32 rounded to the narrow type `type`, as bits."""
    words, format = Words(w, type.width), type.dtype.format
    byte, single = _types(type)
    bits = w.op(f"arith.bitcast {value} : {single} to {words.type}")
    if format.family == "scale":
        return w.op(f"arith.trunci {_scale(words, bits, format.nan)} : {words.type} to {byte}")
    shift = 23 - format.mantissa
    size = words.do("andi", bits, 0x7FFFFFFF)
    # Normal numbers: half a unit is added, one less on an even neighbour, and the exponent gets the other bias.
    odd = words.do("andi", words.do("shrui", size, shift), 1)
    halfway = words.do("addi", words.do("addi", size, (1 << (shift - 1)) - 1), odd)
    normal = words.do("subi", words.do("shrui", halfway, shift), (127 - format.bias) << format.mantissa)
    # Below them the hardware's own addition rounds: the last bit of `magic` is where that of a subnormal number is.
    magic = (127 + 24 - format.mantissa - format.bias) << 23
    magnitude = w.op(f"arith.bitcast {size} : {words.type} to {single}")
    moved = w.op(f"arith.addf {magnitude}, {_float(words, single, magic)} : {single}")
    small = words.do("subi", w.op(f"arith.bitcast {moved} : {single} to {words.type}"), magic)
    result = words.select(words.do("cmpi ult,", size, (128 - format.bias) << 23), small, normal)
    beyond = words.do("cmpi ugt,", result, format.largest)  # so is NaN
    result = words.select(beyond, words.const(format.overflow), result)
    sign = words.do("andi", words.do("shrui", bits, 32 - format.bits), format.sign)
    signed = words.do("ori", result, sign)
    if format.family == "fnuz":
        signed = words.select(words.do("cmpi eq,", result, 0), result, signed)
    if format.has_infinity or not format.has_nan:
        beyond = words.do("cmpi ugt,", size, _INFINITY)
    signed = words.select(beyond, words.const(format.nan), signed)
    return w.op(f"arith.trunci {signed} : {words.type} to {byte}")


def _scale(words: Words, bits: str, nan: int) -> str:
    """The nearest power of two as its exponent; halfway between two it is the upper one (1.5 lies between 1 and 2,
    and 2 is the even one). What is subnormal in float32 lies about 2**-127, the smallest, and 2**-126."""
    subnormal = words.do("cmpi ult,", bits, 1 << 23)
    half = words.select(subnormal, words.const(1 << 21), words.const(1 << 22))
    exponent = words.do("shrui", words.do("addi", bits, half), 23)
    # 0, numbers below it and NaN: all that is out of [1, infinity] as an unsigned integer.
    return words.select(words.do("cmpi uge,", words.do("subi", bits, 1), _INFINITY), words.const(nan), exponent)


def _float(words: Words, single: str, pattern: int) -> str:
    """The float32 of a pattern in every lane."""
    return words.w.op(f"arith.constant {in_lanes(f'0x{pattern:08X}', words.width)} : {single}")


def _types(type: SIMDType) -> tuple[str, str]:
    """How MLIR writes the bits and the float32 of a width."""
    return lanes_of("i8", type.width), lanes_of("f32", type.width)
