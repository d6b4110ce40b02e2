"""Writes casts and bitcasts between any two element types.

Floats that are narrower than float32 go through it. From wider types they go there rounded to odd, so that the number
is rounded once: `_round_to_odd` for float64, `_sticky` and `_clamped` for integers.

See also `lowering.half_floats` and `lowering.narrow_floats` (what each format makes of a float32).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import STORAGE, DType, SIMDType
from .bits import absolute
from .half_floats import narrow, widen
from .narrow_floats import narrow_float, widen_narrow
from .types import mlir_type
from .writer import FunctionWriter


def cast(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    """A numeric conversion between any two element types."""
    a, b = source.dtype, to.dtype
    if a is b:
        return value
    if a.is_storage():
        value, source = _loaded(w, value, source)
        return cast(w, value, source, to)
    if b.is_storage():
        return _narrow_int(w, value, source, to) if b.is_integral() else _narrow_float(w, value, source, to)
    if a.bits == b.bits and a.is_integral() and b.is_integral():
        return value
    if b is DType.bool:
        if a.is_half():
            value, source = widen(w, value, source), source.with_dtype(DType.float32)
        zero = w.constant(0, source)
        compare = "arith.cmpf une," if a.is_float() else "arith.cmpi ne,"
        return w.op(f"{compare} {value}, {zero} : {mlir_type(source)}")
    if a.is_float() and b.is_float():
        return _float_to_float(w, value, source, to)
    if a.is_float():
        return _float_to_int(w, value, source, to)
    if b.is_float():
        return _int_to_float(w, value, source, to)
    if a.bits > b.bits and a is not DType.bool:
        return w.op(f"arith.trunci {value} : {mlir_type(source)} to {mlir_type(to)}")
    extend = "arith.extsi" if a.kind == "int" else "arith.extui"
    return w.op(f"{extend} {value} : {mlir_type(source)} to {mlir_type(to)}")


def _loaded(w: FunctionWriter, value: str, type: SIMDType) -> tuple[str, SIMDType]:
    """A value of a storage type in the smallest type that computes with it: float32, or the byte that it is in."""
    if type.dtype.is_float():
        return widen_narrow(w, value, type), type.with_dtype(DType.float32)
    return value, type.with_dtype(_byte(type.dtype))


def _byte(dtype: DType) -> DType:
    """The type of the byte that holds a 4-bit integer."""
    return DType.int8 if dtype.kind == "int" else DType.uint8


def _narrow_int(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    """Integers keep their low bits; floats saturate."""
    byte = to.with_dtype(_byte(to.dtype))
    text = mlir_type(byte)
    if source.dtype.is_float() and not w.target.saturating_casts:
        return _float_to_int(w, value, source, to)
    inside = cast(w, value, source, byte)
    if not source.dtype.is_float():
        return low_bits(w, inside, to)
    low, high = (w.constant(limit, byte) for limit in to.dtype.range)
    if to.dtype.kind == "uint":
        return w.op(f"arith.minui {inside}, {high} : {text}")
    return w.op(f"arith.maxsi {w.op(f'arith.minsi {inside}, {high} : {text}')}, {low} : {text}")


def low_bits(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """A byte as a value of a storage type that is narrower: the bits above are made what they have to be."""
    byte = type.with_dtype(DType.int8)
    text, bits = mlir_type(byte), type.dtype.bits
    if bits == 8:
        return value
    if type.dtype.kind != "int":
        return w.op(f"arith.andi {value}, {w.constant((1 << bits) - 1, byte)} : {text}")
    shift = w.constant(8 - bits, byte)
    return w.op(f"arith.shrsi {w.op(f'arith.shli {value}, {shift} : {text}')}, {shift} : {text}")


def _narrow_float(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    """To a float below 16 bits, by way of a float32 that rounds to it as the number itself would."""
    single = source.with_dtype(DType.float32)
    if source.dtype is DType.float64:
        value = _round_to_odd(w, value, source)
    elif source.dtype.is_integral() and source.dtype.bits > 16:
        if to.dtype.format.family != "scale":
            value, source = _clamped(w, value, source)
            value = cast(w, value, source, single)
        else:
            wide = source.with_dtype(DType.float64)
            exact = _sticky(w, value, source) if source.dtype.bits == 64 else value
            value = _round_to_odd(w, cast(w, exact, source, wide), wide)
    else:
        value = cast(w, value, source, single)
    return narrow_float(w, value, to)


_BEYOND = 1 << 20  # above every number of the floats below 16 bits that are not scales; float32 is exact up to 2**24
_NARROW = [dtype.format for dtype in STORAGE if dtype.is_float()]
assert all(format.family == "scale" or format.decode(format.largest) < _BEYOND / 2 for format in _NARROW)


def _clamped(w: FunctionWriter, value: str, type: SIMDType) -> tuple[str, SIMDType]:
    """A 32- or 64-bit integer as an int32 that float32 holds; what is clamped is too large for the target anyhow."""
    text, high = mlir_type(type), w.constant(_BEYOND, type)
    if type.dtype.kind == "uint":
        value = w.op(f"arith.minui {value}, {high} : {text}")
    else:
        value = w.op(f"arith.maxsi {value}, {w.constant(-_BEYOND, type)} : {text}")
        value = w.op(f"arith.minsi {value}, {high} : {text}")
    short = type.with_dtype(DType.int32)
    return cast(w, value, type, short), short


def _float_to_float(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    wide = source.with_dtype(DType.float32)
    if source.dtype.is_half():
        value = widen(w, value, source)
        return _float_to_float(w, value, wide, to) if to != wide else value
    if to.dtype.is_half() and source.dtype is DType.float64:
        return narrow(w, _round_to_odd(w, value, source), to)
    if to.dtype.is_half():
        return narrow(w, value, to)
    op = "arith.extf" if source.dtype.bits < to.dtype.bits else "arith.truncf"
    return w.op(f"{op} {value} : {mlir_type(source)} to {mlir_type(to)}")


def _round_to_odd(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """float64 -> float32 so that rounding once more gives the result of one rounding.

    Where float32 cannot hold the number, the neighbour nearer to zero is taken and its last bit set: that bit says that
    there was more. (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008.)
    """
    single, bits = type.with_dtype(DType.float32), type.with_dtype(DType.int32)
    t64, t32, ti = mlir_type(type), mlir_type(single), mlir_type(bits)
    near = w.op(f"arith.truncf {value} : {t64} to {t32}")
    back = w.op(f"arith.extf {near} : {t32} to {t64}")
    size, back_size = (w.op(f"llvm.intr.fabs({v}) : ({t64}) -> {t64}") for v in (value, back))
    too_big = w.op(f"arith.cmpf ogt, {back_size}, {size} : {t64}")
    inexact = w.op(f"arith.cmpf one, {back}, {value} : {t64}")
    pattern = w.op(f"arith.bitcast {near} : {t32} to {ti}")
    one = w.constant(1, bits)
    lower = w.op(f"arith.subi {pattern}, {one} : {ti}")
    towards_zero = w.select(too_big, lower, pattern, bits)
    odd = w.op(f"arith.ori {towards_zero}, {one} : {ti}")
    result = w.select(inexact, odd, pattern, bits)
    return w.op(f"arith.bitcast {result} : {ti} to {t32}")


def _float_to_int(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    if source.dtype.is_half():
        wide = source.with_dtype(DType.float32)
        value, source = widen(w, value, source), wide
    if not w.target.saturating_casts and to.dtype.bits <= 32:
        return _clamped_to_int(w, value, source, to)
    name = "fptosi" if to.dtype.kind == "int" else "fptoui"
    prefix = f"v{to.width}" if to.width > 1 else ""
    suffix = f"{prefix}i{to.dtype.bits}.{prefix}f{source.dtype.bits}"
    return w.op(f'llvm.call_intrinsic "llvm.{name}.sat.{suffix}"({value}) : ({mlir_type(source)}) -> {mlir_type(to)}')


def _clamped_to_int(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    """Clamped as a float, then converted by way of 32 bits: vector code on CPUs, which the intrinsic of LLVM is not."""
    name, wide = ("fptoui", DType.uint32) if to.dtype is DType.uint32 else ("fptosi", DType.int32)
    text, word = mlir_type(source), to.with_dtype(wide)
    low, high = to.dtype.range
    short = source.dtype is DType.float32 and high >= 1 << 24
    last = float(high - (high >> 24) if short else high)  # the largest float32 below 2**31 or 2**32
    bottom, top = w.constant(float(low), source), w.constant(last, source)
    raised = w.select(w.op(f"arith.cmpf ogt, {value}, {bottom} : {text}"), value, bottom, source)
    inside = w.select(w.op(f"arith.cmpf olt, {raised}, {top} : {text}"), raised, top, source)
    whole = w.op(f"arith.{name} {inside} : {text} to {mlir_type(word)}")
    if short:
        beyond = w.op(f"arith.cmpf oge, {value}, {w.constant(float(high + 1), source)} : {text}")
        whole = w.select(beyond, w.constant(high, word), whole, word)
    no_number = w.op(f"arith.cmpf uno, {value}, {value} : {text}")
    whole = w.select(no_number, w.constant(0, word), whole, word)
    return whole if to.dtype.bits == 32 else w.op(f"arith.trunci {whole} : {mlir_type(word)} to {mlir_type(to)}")


def _int_to_float(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    op = "arith.sitofp" if source.dtype.kind == "int" else "arith.uitofp"
    if to.dtype.is_half():
        # Whole numbers up to 2**24 are exact in float32, and float16 ends before that; bfloat16 does not.
        through = DType.float64 if to.dtype is DType.bfloat16 and source.dtype.bits > 16 else DType.float32
        wide = to.with_dtype(through)
        if through is DType.float64 and source.dtype.bits == 64:
            value = _sticky(w, value, source)
        value = w.op(f"{op} {value} : {mlir_type(source)} to {mlir_type(wide)}")
        return _float_to_float(w, value, wide, to)
    return w.op(f"{op} {value} : {mlir_type(source)} to {mlir_type(to)}")


def _sticky(w: FunctionWriter, value: str, type: SIMDType) -> str:
    """A 64-bit integer that float64 holds exactly and that rounds to bfloat16 as the whole number would.

    Of a number with more than 53 bits, the last 11 are replaced by a single one if any of them is set.
    """
    text = mlir_type(type)
    low_mask, one, big = w.constant(0x7FF, type), w.constant(1 << 11, type), w.constant(1 << 53, type)
    low = w.op(f"arith.andi {value}, {low_mask} : {text}")
    zero = w.constant(0, type)
    any_low = w.op(f"arith.cmpi ne, {low}, {zero} : {text}")
    high = w.op(f"arith.xori {value}, {low} : {text}")
    marked = w.op(f"arith.ori {high}, {one} : {text}")
    odd = w.select(any_low, marked, value, type)
    if type.dtype.kind == "uint":
        is_big = w.op(f"arith.cmpi uge, {value}, {big} : {text}")
    else:
        size = absolute(w, [value], type)
        is_big = w.op(f"arith.cmpi uge, {size}, {big} : {text}")
    return w.select(is_big, odd, value, type)


def bitcast(w: FunctionWriter, value: str, source: SIMDType, to: SIMDType) -> str:
    """The same bits as another type of the same width."""
    if DType.bool in (source.dtype, to.dtype):
        raise InternalError("a bool has no bit pattern")
    if mlir_type(source) != mlir_type(to):
        return w.op(f"arith.bitcast {value} : {mlir_type(source)} to {mlir_type(to)}")
    return low_bits(w, value, to) if to.dtype.bits < 8 else value
