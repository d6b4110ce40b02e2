"""`pow` in the kernel language; see `math` for what all of these have in common.

Input: floats of any dtype, or integers. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import abs, float32, float64, fma, implements, pow, select, trunc
from .math_logarithm import log_pair
from .math_parts import (
    INFINITY,
    NAN,
    clamped,
    exp_parts,
    polynomial,
    power_of_two,
    scaled,
    split,
    sum_fast,
    whole,
    with_sign_of,
)

# *** powers ***

# 2 atanh(s) / (s ln 2) with z = s**2 on [0, 0.02944]: 2**-45 relative
POW_LOG2 = (
    0.28291033221060813,
    0.3199049575209971,
    0.41220927119465633,
    0.5770779421693032,
    0.9617966941140538,
    2.8853900817778495,
)
# 2**r on [-0.5, 0.5]: 2**-34 relative
POW_EXP2 = (
    1.52018946053697e-05,
    0.00015469370612554935,
    0.0013333923274197587,
    0.009618027007929783,
    0.05550410351825704,
    0.24022651199968423,
    0.6931471807291923,
    0.9999999999614941,
)


@implements(pow)
def _pow(x: Any, y: Any) -> Any:
    # A compile-time number on either side takes the type of the other.
    dtype = (x * y).dtype
    return _pow_typed(dtype(x), dtype(y))


def _pow_typed(x: Any, y: Any) -> Any:
    if x.dtype.is_integral():
        return _pow_whole(x, y)
    if x.dtype.is_half():
        return _pow_wide(x.cast(float32), y.cast(float32)).cast(x.dtype)
    return _pow_wide(x, y)


def _pow_wide(x: Any, y: Any) -> Any:
    if x.dtype == float64:
        return _pow_special(x, y, _pow_size_64(abs(x), y))
    return _pow_special(x, y, _pow_size_32(abs(x), y))


def _pow_whole(x: Any, y: Any) -> Any:
    """By squaring; wraps. A negative power gives what 1 / x**-y truncates to: 0, but for the bases 1 and -1."""
    result = x - x + 1
    base = x
    left = y
    if x.dtype.is_signed():
        result = select((y < 0) & (x != 1) & (x != -1), 0, result)
        left = select(y < 0, y & 1, y)
    while (left != 0).any():
        result = select((left & 1) != 0, result * base, result)
        base = base * base
        left = left >> 1
    return result


def _pow_special(x: Any, y: Any, size: Any) -> Any:
    """x**y from |x|**y: signs and the special values of C99, F.9.4.4."""
    half = 0.5 * y
    whole = trunc(y) == y
    odd = whole & (trunc(half) != half)
    size = select((abs(x) == 1.0) & (y == y), 1.0, size)
    size = select((x < 0.0) & (x > -INFINITY) & (y - y == 0.0) & ~whole, NAN, size)
    negative = odd & (with_sign_of(x.dtype(1.0), x) < 0.0)
    return select((x == 1.0) | (y == 0.0), 1.0, select(negative, -size, size))


def _pow_size_32(x: Any, y: Any) -> Any:
    """x**y for x >= 0 in float64: 2**(y log2 x), rounded once at the end."""
    wide = x.cast(float64)
    k, f = split(wide)
    s = f / (2.0 + f)
    power = fma(s, polynomial(s * s, POW_LOG2), k)
    power = select(x == 0.0, -INFINITY, select(x < INFINITY, power, wide))
    power = clamped(power * y.cast(float64), -160.0, 140.0)
    n, nearest = whole(power)
    return (polynomial(power - nearest, POW_EXP2) * power_of_two(n)).cast(float32)


def _pow_size_64(x: Any, y: Any) -> Any:
    """x**y for x >= 0: e**(y log x) with log x as a sum of two floats, good to about 2**-68."""
    total, rest = log_pair(x)
    total = select(x == 0.0, -INFINITY, select(x < INFINITY, total, x))
    power = y * total
    power_rest = fma(y, total, -power) + y * rest
    inside = (power > -746.0) & (power < 710.0)
    n, r, rest = exp_parts(clamped(power, -746.0, 710.0))
    number, lost = sum_fast(1.0, r)
    # e**(a + d) = e**a + d e**a; d is NaN where a number was infinite.
    rest = fma(number + rest, select(inside, power_rest, 0.0), rest)
    return scaled(number + (lost + rest), n)
