"""`pow` in the kernel language; see `math` for what all of these have in common.

Input: floats of any dtype, or integers. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import abs, bitcast, float32, float64, fma, implements, int64, pow, rare, select, trunc
from .math_logarithm import log_pair_of, split_of
from .math_parts import (
    INFINITY,
    NAN,
    ROOT_HALF,
    clamped,
    exp_parts,
    is_positive,
    mantissa_from,
    polynomial_apart,
    scaled,
    sum_fast,
    whole,
    with_sign_of,
)

# *** powers ***

# log2(1 + f) / f on [-0.2929, 0.4142], relative to log2(1 + f): 2**-33.2
POW_LOG2 = (
    -0.08635159581899643,
    0.15487319231033325,
    -0.15698909759521484,
    0.15899930894374847,
    -0.17904551327228546,
    0.2060963213443756,
    -0.24050426959066673,
    0.2885406450474532,
    -0.36067279821796544,
    0.48089832066970184,
    -0.7213475252283889,
    1.4426950409395238,
)
# (2**r - 1 - r ln 2) / r**2 on [-0.5, 0.5], relative to 2**r: 2**-28.3
POW_EXP2 = (
    0.0001532111926926155,
    0.0013390176595331786,
    0.009618526556454302,
    0.05550362227288038,
    0.24022647547461473,
)
LN2 = 0.6931471805599453


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
    odd = rare(~(is_positive(x) & (abs(y) < INFINITY)))
    size = _pow_size_64(x, y, odd) if x.dtype == float64 else _pow_size_32(x, y, odd)
    return select(odd, _pow_special(x, y, size), size)


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


def _pow_size_32(x: Any, y: Any, odd: Any) -> Any:
    """|x|**y in float64, as 2**(y log2 x), rounded once at the end."""
    size = select(odd, abs(x), x).cast(float64)
    k, m, _ = mantissa_from(ROOT_HALF, size)
    f = m - 1.0
    power = fma(f, polynomial_apart(f, f * f, POW_LOG2), k)
    power = select(odd, select(size == 0.0, -INFINITY, select(size < INFINITY, power, size)), power)
    power = clamped(power * y.cast(float64), -160.0, 140.0)
    n, nearest = whole(power)
    r = power - nearest
    number = fma(r * r, polynomial_apart(r, r * r, POW_EXP2), fma(r, LN2, 1.0))
    return bitcast(bitcast(number, int64) + (n << 52), float64).cast(float32)


def _pow_size_64(x: Any, y: Any, odd: Any) -> Any:
    """|x|**y as e**(y log x) with log x as a sum of two floats, good to about 2**-65."""
    size = select(odd, abs(x), x)
    k, f = split_of(size, odd, ROOT_HALF)
    total, rest = log_pair_of(k, f)
    total = select(odd, select(size == 0.0, -INFINITY, select(size < INFINITY, total, size)), total)
    power = y * total
    power_rest = fma(y, rest, fma(y, total, -power))
    n, r, rest = exp_parts(clamped(power, -746.0, 710.0))
    number, lost = sum_fast(1.0, r)
    # e**(a + d) = e**a + d e**a; d is of no use, or NaN, where the result is 0 or infinity.
    rest = fma(number + rest, select(abs(power) < 746.0, power_rest, 0.0), rest)
    return scaled(number + (lost + rest), n)
