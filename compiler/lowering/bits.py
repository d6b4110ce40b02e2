"""Writes bit operations, and the forms of arithmetic that keep more than the wrapped result.

Each is written in the form that LLVM's code generators know as one instruction where the hardware has one.
"""

from __future__ import annotations

from ...dsl.types.dtype import SIMDType
from .types import mlir_type
from .writer import Expansion, FunctionWriter, expands


def _count_zeros(intrinsic: str) -> Expansion:
    """Zeros at one end; of 0, the width."""

    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        text = mlir_type(type)
        return w.op(f'"{intrinsic}"({operands[0]}) <{{is_zero_poison = false}}> : ({text}) -> {text}')

    return expand


_leading_zeros = expands("clz")(_count_zeros("llvm.intr.ctlz"))
expands("ctz")(_count_zeros("llvm.intr.cttz"))


@expands("byte_swap")
def _byte_swap(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    text = mlir_type(type)
    return operands[0] if type.dtype.bits == 8 else w.op(f"llvm.intr.bswap({operands[0]}) : ({text}) -> {text}")


def _rotate(intrinsic: str) -> Expansion:
    """A funnel shift of a number into itself takes its count modulo the width."""

    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        x, count = operands
        text = mlir_type(type)
        return w.op(f"{intrinsic}({x}, {x}, {count}) : ({text}, {text}, {text}) -> {text}")

    return expand


expands("rotl")(_rotate("llvm.intr.fshl"))
expands("rotr")(_rotate("llvm.intr.fshr"))


@expands("abs_int")
def absolute(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    """The magnitude of an integer; of the smallest one its own bits."""
    text = mlir_type(type)
    return w.op(f'"llvm.intr.abs"({operands[0]}) <{{is_int_min_poison = false}}> : ({text}) -> {text}')


@expands("bit_width")
def _bit_width(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    zeros = _leading_zeros(w, operands, type)
    return w.op(f"arith.subi {w.constant(type.dtype.bits, type)}, {zeros} : {mlir_type(type)}")


@expands("bit_width_int")
def _bit_width_int(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    # The magnitude of the smallest number is right as bits: its top bit is set.
    return _bit_width(w, [absolute(w, operands, type)], type)


def _multiply_high(op: str) -> Expansion:
    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        both = w.names.fresh()
        w.line(f"{both}:2 = {op} {operands[0]}, {operands[1]} : {mlir_type(type)}")
        return f"{both}#1"

    return expand


expands("mul_high_int")(_multiply_high("arith.mulsi_extended"))
expands("mul_high_uint")(_multiply_high("arith.mului_extended"))


def _average(shift: str, up: bool) -> Expansion:
    """(x + y) / 2 without the carry that x + y may need: the common bits, and half of those that differ."""

    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        text = mlir_type(type)
        x, y = operands
        common = w.op(f"arith.{'ori' if up else 'andi'} {x}, {y} : {text}")
        differ = w.op(f"arith.xori {x}, {y} : {text}")
        half = w.op(f"arith.{shift} {differ}, {w.constant(1, type)} : {text}")
        return w.op(f"arith.{'subi' if up else 'addi'} {common}, {half} : {text}")

    return expand


expands("avg_floor_int")(_average("shrsi", up=False))
expands("avg_floor_uint")(_average("shrui", up=False))
expands("avg_ceil_int")(_average("shrsi", up=True))
expands("avg_ceil_uint")(_average("shrui", up=True))


@expands("isfinite")
def _isfinite(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    text = mlir_type(type)
    size = w.op(f"llvm.intr.fabs({operands[0]}) : ({text}) -> {text}")
    return w.op(f"arith.cmpf olt, {size}, {w.constant(float('inf'), type)} : {text}")


def _abs_diff(larger: str, smaller: str) -> Expansion:
    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        text = mlir_type(type)
        x, y = operands
        top = w.op(f"{larger} {x}, {y} : {text}")
        return w.op(f"arith.subi {top}, {w.op(f'{smaller} {x}, {y} : {text}')} : {text}")

    return expand


expands("abs_diff_int")(_abs_diff("arith.maxsi", "arith.minsi"))
expands("abs_diff_uint")(_abs_diff("arith.maxui", "arith.minui"))


@expands("abs_diff_float")
def _abs_diff_float(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    text = mlir_type(type)
    difference = w.op(f"arith.subf {operands[0]}, {operands[1]} : {text}")
    return w.op(f"llvm.intr.fabs({difference}) : ({text}) -> {text}")


def _clamp(larger: str, smaller: str) -> Expansion:
    def expand(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
        text = mlir_type(type)
        x, low, high = operands
        return w.op(f"{smaller} {w.op(f'{larger} {x}, {low} : {text}')}, {high} : {text}")

    return expand


expands("clamp_int")(_clamp("arith.maxsi", "arith.minsi"))
expands("clamp_uint")(_clamp("arith.maxui", "arith.minui"))
expands("clamp_float")(_clamp("arith.maximumf", "arith.minimumf"))


@expands("sign_int")
def _sign_int(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    text = mlir_type(type)
    one, minus_one = w.constant(1, type), w.constant(-1, type)
    return w.op(f"arith.maxsi {w.op(f'arith.minsi {operands[0]}, {one} : {text}')}, {minus_one} : {text}")


@expands("sign_uint")
def _sign_uint(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    return w.op(f"arith.minui {operands[0]}, {w.constant(1, type)} : {mlir_type(type)}")


@expands("sign_float")
def _sign_float(w: FunctionWriter, operands: list[str], type: SIMDType) -> str:
    # 1 with the sign of x where x is neither zero nor NaN; x + 0 where it is: that of -0.0 is 0.0.
    text = mlir_type(type)
    zero, one = w.constant(0.0, type), w.constant(1.0, type)
    counts = w.op(f"arith.cmpf one, {operands[0]}, {zero} : {text}")
    signed = w.op(f"llvm.intr.copysign({one}, {operands[0]}) : ({text}, {text}) -> {text}")
    rest = w.op(f"arith.addf {operands[0]}, {zero} : {text}")
    return w.select(counts, signed, rest, type)
