"""`exp`, `exp2` and `expm1` in the kernel language; see `math.functions` for what all of these have in common."""

from __future__ import annotations

from typing import Any

from ...dsl import (
    SIMD,
    Floating,
    abs,
    bitcast,
    exp,
    exp2,
    expm1,
    float32,
    float64,
    fma,
    implements,
    int32,
    rare,
    select,
)
from .parts import (
    LN2_32,
    LN2_SHORT_32,
    LN2_SHORT_64,
    LOG2_E_32,
    LOG2_E_64,
    ROUNDER32,
    applied,
    by_instruction,
    clamped,
    exp2_by_instruction,
    exp_core,
    fitted,
    has_approximations,
    polynomial,
    power_of_two,
    scaled,
    sum_fast,
    takes_nvidia,
    whole,
)

# *** exponentials ***

# (2**r - 1) / r on [-0.5, 0.5], relative to 2**r: 2**-26 and 2**-57
EXP2_32 = (1.3335138e-04, 1.3387926e-03, 9.62544e-03, 5.5503663e-02, 2.4022594e-01, 6.931472e-01)
EXP2_64 = (
    4.5181161949189836e-10,
    7.075582046664242e-09,
    1.0177661708481289e-07,
    1.3215424629791886e-06,
    1.5252734729388358e-05,
    0.00015403530478666285,
    0.0013333558145572244,
    0.009618129107577143,
    0.05550410866482457,
    0.24022650695910172,
    0.6931471805599453,
)

# (e**r - 1 - r) / r**2 on [-0.2877, 0.4055], relative to e**r - 1: 2**-31 and 2**-61
EXPM1_32 = (
    0.000209415404,
    0.00139178359,
    0.00833204295,
    0.0416665897,
    0.166666701,
    0.5,
)
EXPM1_64 = (
    2.200176885329196e-09,
    2.5074447055203057e-08,
    2.755482681634476e-07,
    2.755731629029306e-06,
    2.4801589301314102e-05,
    0.0001984126983511193,
    0.0013888888888218425,
    0.00833333333333543,
    0.04166666666666743,
    0.16666666666666666,
    0.5,
)


@implements(exp)
def _exp(x: Floating) -> Any:
    return applied(_exp_wide, x)


def _exp_wide(x: Floating) -> Any:
    if x.dtype != float64 and has_approximations():
        if x.width == 1:
            return _exp_by_instruction(x)
        return SIMD[float32, x.width](*tuple(_exp_by_instruction(x[k]) for k in range(x.width)))
    # Beyond the bounds the result has overflowed, or is less than half the smallest number.
    if x.dtype == float64:
        n, number = exp_core(clamped(x, -746.0, 710.0))
    else:
        n, number = exp_core(clamped(x, -104.0, 89.0))
    return scaled(number, n)


def _exp_by_instruction(x: Floating) -> Floating:
    """e**x of one float32, by the instruction for 2**t."""
    # t is rounded, and what that leaves of x is near 0: e**left = 1 + left. A whole t gives an exact power.
    t = x * LOG2_E_32[0]
    left = fma(t, -LN2_32[1], fma(t, -LN2_32[0], x))
    power = exp2_by_instruction(t)
    result: Floating = fma(power, left, power)
    if rare(~(abs(x) < 87.0)):
        result = _exp_anywhere(x)
    return result


def _exp_anywhere(x: Floating) -> Floating:
    """The same for any x."""
    # 2**n with n from -126 to 127 is a normal number; beyond these what is left of x makes the result subnormal,
    # or too large.
    shifted = fma(clamped(x, -87.0, 88.0), LOG2_E_32[0], ROUNDER32 + 127.0)
    nearest = shifted - (ROUNDER32 + 127.0)
    r = fma(x, LOG2_E_32[1], fma(x, LOG2_E_32[0], -nearest))
    result: Floating = exp2_by_instruction(r) * bitcast(bitcast(shifted, int32) << 23, float32)
    return result


def reciprocal_of_sum(x: Floating) -> Any:
    """1 / x of a sum that is 0 or from 1 to 2**24: within 1 ulp, NaN of 0 and NaN.

    A division has a rare case that ptxas calls a function for, and values that a thread holds are spilled for the call.
    """
    if x.dtype == float32 and takes_nvidia():
        near = by_instruction(x, "llvm.nvvm.rcp.approx.ftz.f", "")
        return fma(near, fma(-x, near, 1.0), near)
    return 1 / x


def exp_of_difference(x: Floating) -> Any:
    """e**x of a difference x <= 0 of terms of a softmax, in float32 or float64.

    Where the target has an instruction for 2**x: relative to the result within 2**-22 + abs(x) * 2**-24, which is less
    than what the rounding of the difference costs; results below 2**-126 are 0.
    """
    if x.dtype == float32 and has_approximations():
        return exp2_by_instruction(x * LOG2_E_32[0])
    return exp(x)


@implements(exp2)
def _exp2(x: Floating) -> Any:
    return applied(_exp2_wide, x)


def _exp2_wide(x: Floating) -> Any:
    if x.dtype == float64:
        near = clamped(x, -1076.0, 1025.0)
        n, nearest = whole(near)
        r = near - nearest
        return scaled(fma(r, polynomial(r, EXP2_64), 1.0), n)
    near = clamped(x, -151.0, 129.0)
    n, nearest = whole(near)
    r = near - nearest
    return scaled(fma(r, polynomial(r, EXP2_32), 1.0), n)


@implements(expm1)
def _expm1(x: Floating) -> Any:
    return applied(_expm1_wide, x)


def _expm1_wide(x: Floating) -> Any:
    # 3/4 <= e**r <= 3/2: then 2**n (e**r - 1) + (2**n - 1) needs no rest of a sum. Half of it: 2**n itself may be too
    # large. Below -40 nothing is left but -1.
    tiny, high, ln2 = 2.0**-26, 89.0, LN2_SHORT_32
    if x.dtype == float64:
        tiny, high, ln2 = 2.0**-55, 710.0, LN2_SHORT_64
    near = clamped(x, -40.0, high)
    n, nearest = whole(fma(near, LOG2_E_64[0], -0.0849625007211562))
    # Exact, as is the product.
    left = fma(nearest, -ln2[0], near)
    rest = nearest * ln2[1]
    r = left - rest
    number = left + fma(r * r, fitted(r, EXPM1_32, EXPM1_64), -rest)
    power = power_of_two(n - 1)
    head, lost = sum_fast(power, -0.5)
    return select(abs(x) < tiny, x, 2.0 * (head + fma(power, number, lost)))
