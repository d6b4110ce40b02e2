"""Mathematics, written in the kernel language: what `exp(x)`, `sin(x)`, `x ** y`, … mean inside a kernel.

The functions use additions, multiplications, `fma`, divisions, square roots and operations on bits, in a fixed order,
and no call of a mathematics library or of a target's own approximation. So every target gives the same bits, and a loop
over elements becomes vector code: cases are chosen with `select`.

Input: floats of any dtype, scalar or SIMD (half types compute through float32). Output: values of the same type; special
values as C99 (annex F) has them. Non-goals: no rounding modes but to nearest, no floating-point flags, no complex numbers.

How the polynomials were made: each is a minimax polynomial (Remez's exchange at 60 digits) of the function that is named
next to it, on the interval that is named, for a weight that turns its error into the relative error of the final result.
Coefficients stand highest power first. They were rounded one after another, lowest power first, with the others fitted
again after each; "2**-28" is the largest weighted error with the rounded coefficients. The measured errors of the finished
functions stand in `docs/numerics.md`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import (
    Float32,
    Float64,
    UInt32,
    UInt64,
    abs,
    bitcast,
    cos,
    erf,
    exp,
    exp2,
    float32,
    float64,
    fma,
    implements,
    int32,
    int64,
    isnan,
    log,
    log2,
    pow,
    rsqrt,
    select,
    sin,
    sqrt,
    static_assert,
    tanh,
    trunc,
    uint32,
    uint64,
    unroll,
)

INFINITY = float("inf")
NAN = float("nan")

# Adding 1.5 * 2**23 (2**52) to a small number rounds it to a whole number, which then lies in the low bits of the sum.
ROUNDER32 = 12582912.0
ROUNDER32_BITS = 0x4B400000
ROUNDER64 = 6755399441055744.0
ROUNDER64_BITS = 0x4338000000000000

SIGN32 = -0x80000000
SIGN64 = -0x8000000000000000

# ln 2 and log2 e as unevaluated sums. The "short" heads have so few bits that a multiple by an exponent is exact.
LN2_32 = (6.931472e-01, -1.9046542e-09)
LN2_64 = (0.6931471805599453, 2.3190468138462996e-17)
LN2_SHORT_32 = (0.693145751953125, 1.4286068e-06)
LN2_SHORT_64 = (0.6931471805598903, 5.497923018708371e-14)
LOG2_E_32 = (1.442695e00, 1.925963e-08)
LOG2_E_64 = (1.4426950408889634, 2.0355273740931033e-17)


def _polynomial(x: Any, coefficients: Any) -> Any:
    """The polynomial of x by Horner's rule; coefficients stand highest power first."""
    result = coefficients[0]
    for coefficient in coefficients[1:]:
        result = fma(result, x, coefficient)
    return result


def _only_floats(x: Any) -> None:
    static_assert(x.dtype.is_float(), "this function works on floats: cast the value first")


def _with_sign_of(size: Any, x: Any) -> Any:
    """The number size >= 0 with the sign of x, that of zeros included."""
    if x.dtype == float64:
        return bitcast(bitcast(size, int64) | (bitcast(x, int64) & SIGN64), float64)
    return bitcast(bitcast(size, int32) | (bitcast(x, int32) & SIGN32), float32)


# *** square root ***


@implements(rsqrt)
def _rsqrt(x: Any) -> Any:
    _only_floats(x)
    if x.dtype.is_half():
        return (1.0 / sqrt(x.cast(float32))).cast(x.dtype)
    return 1.0 / sqrt(x)


# *** exponentials ***
#
# x = n ln 2 + r with a whole n and |r| <= ln(2) / 2, then e**x = 2**n * (1 + r + r**2 * Q(r)).

# (e**r - 1 - r) / r**2 on [-0.3467, 0.3467], relative to e**r: 2**-28 and 2**-57
EXP_32 = (1.3838036e-03, 8.369166e-03, 4.1668102e-02, 1.6666517e-01, 4.9999994e-01)
EXP_64 = (
    2.50401590877666e-08,
    2.7631176491577773e-07,
    2.7557455819426856e-06,
    2.4801490644767343e-05,
    0.00019841269657471747,
    0.0013888888945754886,
    0.00833333333342231,
    0.04166666666652362,
    0.1666666666666653,
    0.5000000000000011,
)
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


def _whole(x: Any) -> Any:
    """The whole number nearest to a small x, as an integer of the same width and as a float."""
    if x.dtype == float64:
        shifted = x + ROUNDER64
        return bitcast(shifted, int64) - ROUNDER64_BITS, shifted - ROUNDER64
    shifted = x + ROUNDER32
    return bitcast(shifted, int32) - ROUNDER32_BITS, shifted - ROUNDER32


def _power_of_two(n: Any) -> Any:
    """2**n as a float of the width of the integer n, which has to be the exponent of a normal number."""
    if n.dtype == int64:
        return bitcast((n + 1023) << 52, float64)
    return bitcast((n + 127) << 23, float32)


def _scaled(x: Any, n: Any) -> Any:
    """x * 2**n for x near 1: in two steps, of which only the second can round or overflow."""
    half = n >> 1
    return x * _power_of_two(half) * _power_of_two(n - half)


def _clamped(x: Any, low: Any, high: Any) -> Any:
    """x between two bounds; NaN stays."""
    return select(x > high, high, select(x < low, low, x))


def _exp_reduced(x: Any) -> Any:
    """n as an integer, n as a float, and r of x = n ln 2 + r."""
    if x.dtype == float64:
        n, whole = _whole(x * LOG2_E_64[0])
        return n, fma(whole, -LN2_64[1], fma(whole, -LN2_64[0], x))
    n, whole = _whole(x * LOG2_E_32[0])
    return n, fma(whole, -LN2_32[1], fma(whole, -LN2_32[0], x))


def _exp_core(x: Any) -> Any:
    """n and the number near 1 that make e**x = number * 2**n."""
    n, r = _exp_reduced(x)
    if x.dtype == float64:
        return n, fma(r * r, _polynomial(r, EXP_64), r) + 1.0
    return n, fma(r * r, _polynomial(r, EXP_32), r) + 1.0


@implements(exp)
def _exp(x: Any) -> Any:
    _only_floats(x)
    if x.dtype.is_half():
        return _exp(x.cast(float32)).cast(x.dtype)
    # Beyond the bounds the result has overflowed, or is less than half the smallest number.
    if x.dtype == float64:
        n, number = _exp_core(_clamped(x, -746.0, 710.0))
    else:
        n, number = _exp_core(_clamped(x, -104.0, 89.0))
    return _scaled(number, n)


@implements(exp2)
def _exp2(x: Any) -> Any:
    _only_floats(x)
    if x.dtype.is_half():
        return _exp2(x.cast(float32)).cast(x.dtype)
    if x.dtype == float64:
        near = _clamped(x, -1076.0, 1025.0)
        n, whole = _whole(near)
        r = near - whole
        return _scaled(fma(r, _polynomial(r, EXP2_64), 1.0), n)
    near = _clamped(x, -151.0, 129.0)
    n, whole = _whole(near)
    r = near - whole
    return _scaled(fma(r, _polynomial(r, EXP2_32), 1.0), n)
