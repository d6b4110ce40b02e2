"""`pow` in the kernel language; see `math.functions` for what all of these have in common."""

from __future__ import annotations

from typing import Any

from ...dsl import (
    Element,
    Floating,
    Integral,
    Numeric,
    abs,
    bitcast,
    float32,
    float64,
    fma,
    implements,
    int32,
    int64,
    pow,
    rare,
    select,
    trunc,
    uint64,
)
from .logarithm import split_of
from .parts import (
    INFINITY,
    NAN,
    ROOT_HALF,
    clamped,
    polynomial,
    polynomial_apart,
    scaled,
    whole,
    whole_multiple,
    with_sign_of,
)

# *** powers ***
#
# |x|**y = 2**(y log2 |x|), with x = 2**k (1 + f) and s = f / (2 + f): log2 x = k + 2 atanh(s) / ln 2, as a sum of two
# floats. What is not a positive normal number, and a power whose result might be none, is rare.

# 2 / ln 2 and 2 / (3 ln 2), of which s and s**3 are multiplied
TWICE_32 = (2.88539, 3.851926e-08)
TWICE_64 = (2.8853900817779268, 4.0710547481862066e-17)
THIRD_64 = (0.9617966939259756, 5.0577616648125907e-17)
# (2 atanh(s) / (s ln 2) - 2 / ln 2) / z with z = s**2 on [0, 0.02945], and the same but for 2 / (3 ln 2), over z**2;
# relative to the logarithm: 2**-36.4 and 2**-66.3
POW_LOG_32 = (
    0.336491019,
    0.411927253,
    0.577078819,
    0.961796701,
)
POW_LOG_64 = (
    0.19038983958325614,
    0.19125475784696663,
    0.22198401178841437,
    0.2623077008957508,
    0.3205989022753024,
    0.41219858309193524,
    0.577078016355618,
)
# (2**r - 1) / r on [-0.5001, 0.5001], relative to 2**r: 2**-28.3 and 2**-57.8
POW_EXP_32 = (
    0.000153289628,
    0.00133909809,
    0.00961850025,
    0.0555035956,
    0.240226477,
    0.693147182,
)
POW_EXP_64 = (
    4.438748100752839e-10,
    7.073239949928891e-09,
    1.0178160877718645e-07,
    1.3215438802083071e-06,
    1.525273363186774e-05,
    0.00015403530449088266,
    0.0013333558146548464,
    0.00961812910760158,
    0.055504108664821715,
    0.24022650695910108,
    0.6931471805599453,
)
# The bits of 1, cut and read as _is_moderate does. That wants the product of the difference and y below 350 or 86
# times the bits of a doubling, and the difference alone below 1021 or 125 times these.
ONE_BITS_64 = 2.0**52 + 1023 * 2.0**40
MODERATE_64 = ((350 / 1021) ** 2, (350 * 2.0**40) ** 2)
MODERATE_32 = ((86 / 125) ** 2, (86 * 2.0**23) ** 2)


@implements(pow)
def _pow(x: Numeric, y: Numeric) -> Any:
    # A compile-time number on either side takes the type of the other.
    dtype = (x * y).dtype
    return _pow_typed(dtype(x), dtype(y))


def _pow_typed(x: Numeric, y: Numeric) -> Any:
    if x.dtype.is_integral():
        return _pow_whole(x, y)
    if x.dtype.is_half():
        return _pow_wide(x.cast(float32), y.cast(float32)).cast(x.dtype)
    return _pow_wide(x, y)


def _pow_wide(x: Floating, y: Floating) -> Any:
    odd = rare(~_is_moderate(x, y))
    size = _pow_size(x, y, odd)
    return select(odd, _pow_special(x, y, size), size)


def _is_moderate(x: Floating, y: Floating) -> Any:
    """Whether x is positive and normal, and so is x**y, with room to spare; never for an infinite y or NaN.

    The bits of a float are nearly its logarithm: that is less than 1.45 times the difference from those of 1, and less
    than 2.9 times where that is cut to a few units, but not to 0. With a sign, the difference is too large for all y.
    """
    if x.dtype == float64:
        bits = bitcast((bitcast(x, uint64) >> 12) | 0x4330000000000001, float64)
        near = bits - ONE_BITS_64
        return near * near * fma(y, y, MODERATE_64[0]) < MODERATE_64[1]
    near = (bitcast(x, int32) - 0x3F800000).cast(float32)
    return near * near * fma(y, y, MODERATE_32[0]) < MODERATE_32[1]


def _pow_whole(x: Integral, y: Integral) -> Any:
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


def _pow_special(x: Floating, y: Floating, size: Floating) -> Any:
    """x**y from |x|**y: signs and the special values of C99, F.9.4.4."""
    half = 0.5 * y
    whole = trunc(y) == y
    odd = whole & (trunc(half) != half)
    size = select((abs(x) == 1.0) & (y == y), 1.0, size)
    size = select((x < 0.0) & (x > -INFINITY) & (y - y == 0.0) & ~whole, NAN, size)
    negative = odd & (with_sign_of(x.dtype(1.0), x) < 0.0)
    return select((x == 1.0) | (y == 0.0), 1.0, select(negative, -size, size))


def _pow_size(x: Floating, y: Floating, odd: Element) -> Any:
    """|x|**y for numbers; 0 or infinity, or anything where that has to be 1 or NaN, for special values."""
    size = select(odd, abs(x), x)
    k, f = split_of(size, odd, ROOT_HALF)
    total, rest = _log2_pair(k, f)
    total = select(odd, select(size == 0.0, -INFINITY, select(size < INFINITY, total, size)), total)
    power = y * total
    low, high = (-1100.0, 1030.0) if x.dtype == float64 else (-160.0, 140.0)
    far = abs(power) > -low
    n, nearest = whole_multiple(y, total)
    n_odd, nearest_odd = whole(clamped(power, low, high))
    n, nearest = select(odd, n_odd, n), select(odd, nearest_odd, nearest)
    r = fma(y, rest, fma(y, total, -nearest))
    r = select(odd, select(far, 0.0, r), r)
    if x.dtype == float64:
        number = fma(r, polynomial_apart(r, r * r, POW_EXP_64), 1.0)
        return select(odd, scaled(number, n), bitcast(bitcast(number, int64) + (n << 52), float64))
    number = fma(r, polynomial(r, POW_EXP_32), 1.0)
    return select(odd, scaled(number, n), bitcast(bitcast(number, int32) + (n << 23), float32))


def _log2_pair(k: Floating, f: Floating) -> Any:
    """log2 of 2**k (1 + f), good to about 2**-31 or 2**-63; the second number is tiny next to the first."""
    inverse = 1.0 / (2.0 + f)
    s = f * inverse
    # The denominator is not exact, but f - 2 s is: both are nearly the same.
    s_rest = fma(-s, f, f - (s + s)) * inverse
    z = s * s
    z_rest = fma(s, s, -z)
    # The factor of s is twice + z inner + rests.
    if f.dtype == float64:
        twice = TWICE_64[0]
        more = polynomial_apart(z, z * z, POW_LOG_64)
        inner = fma(z, more, THIRD_64[0])
        inner_rest = fma(z, more, THIRD_64[0] - inner)
        rests = fma(z, inner_rest, fma(z_rest, inner, fma(z, THIRD_64[1], TWICE_64[1])))
    else:
        twice = TWICE_32[0]
        inner = polynomial(z, POW_LOG_32)
        rests = fma(z_rest, inner, TWICE_32[1])
    factor = fma(z, inner, twice)
    factor_rest = fma(z, inner, twice - factor) + rests
    total = fma(s, factor, k)
    lost = fma(s, factor, k - total)
    # The derivative by s is 2 / ln 2 / (1 - z), here as a line.
    slope = fma(z, 2.9726264, 2.8850677)
    return total, fma(s, factor_rest, s_rest * slope) + lost
