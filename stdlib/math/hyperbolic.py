"""`sinh`, `cosh`, `tanh`, `asinh`, `acosh` and `atanh` in the kernel language; see `math.functions` for what all have
in common.
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    Bool,
    Floating,
    abs,
    acosh,
    asinh,
    atanh,
    bitcast,
    cosh,
    float32,
    float64,
    fma,
    implements,
    int32,
    int64,
    rare,
    select,
    sinh,
    sqrt,
    tanh,
    unroll,
)
from .logarithm import log_sum
from .parts import (
    EXP_32,
    EXP_64,
    INFINITY,
    LN2_32,
    LN2_64,
    LOG2_E_32,
    LOG2_E_64,
    NAN,
    ROUNDER64,
    ROUNDER64_BITS,
    applied,
    exp_parts,
    fitted,
    polynomial,
    power_of_two,
    product_exact,
    quotient,
    sum_fast,
    whole_multiple,
    with_sign_of,
)

# (sinh(x) / x - 1) / z with z = x**2 up to x = 1, relative to sinh(x): 2**-31 and 2**-63
SINH_32 = (
    2.78221319e-06,
    0.000198428956,
    0.00833331048,
    0.166666672,
)
SINH_64 = (
    6.474717946124654e-15,
    7.50328251616657e-13,
    1.606133898961061e-10,
    2.5052089413568634e-08,
    2.7557319310089307e-06,
    0.0001984126984106116,
    0.008333333333333573,
    0.16666666666666666,
)


def _overflowing(size: Floating) -> Any:
    """size, or where sinh and cosh of it overflow, a number hardly larger than the last of which they do not."""
    high = 89.5
    if size.dtype == float64:
        high = 710.5
    return select(size > high, high, size)


def _half_exp(size: Floating) -> Any:
    """e**size / 4 as a sum of two floats, for 0 <= size; beyond the largest result of sinh and cosh it stays there."""
    n, r, tail = exp_parts(_overflowing(size))
    power = power_of_two(n - 2)
    total, lost = sum_fast(power, power * r)
    return total, fma(power, tail, lost)


@implements(sinh)
def _sinh(x: Floating) -> Any:
    return applied(_sinh_wide, x)


def _sinh_wide(x: Floating) -> Any:
    size = abs(x)
    # With a quarter of e**size as power * (1 + lead + tail), a quarter of 2 sinh, smallest parts first.
    n, lead, tail = _exp_lead(_overflowing(size))
    power = power_of_two(n - 2)
    inverse = 0.0625 / fma(power, lead + tail, power)
    far = 2.0 * (power + fma(power, lead, fma(power, tail, -inverse)))
    square = size * size
    near = fma(size * square, fitted(square, SINH_32, SINH_64), size)
    return with_sign_of(select(size < 1.0, near, far), x)


def _exp_lead(x: Floating) -> Any:
    """n, an exact lead and a small tail that make e**x = 2**n * (1 + lead + tail)."""
    inverse, ln2 = LOG2_E_32[0], LN2_32
    if x.dtype == float64:
        inverse, ln2 = LOG2_E_64[0], LN2_64
    n, nearest = whole_multiple(x, inverse)
    lead = fma(nearest, -ln2[0], x)
    r = fma(nearest, -ln2[1], lead)
    return n, lead, fma(nearest, -ln2[1], r * r * fitted(r, EXP_32, EXP_64))


@implements(cosh)
def _cosh(x: Floating) -> Any:
    return applied(_cosh_wide, x)


def _cosh_wide(x: Floating) -> Any:
    total, rest = _half_exp(abs(x))
    return 2.0 * (total + (rest + 0.0625 / (total + rest)))


# *** hyperbolic tangent ***

# (tanh(x) / x - 1) / z with z = x**2 up to x = 1, relative to tanh(x): 2**-27.7
TANH_NEAR_32 = (
    -0.000358380057,
    0.00230119308,
    -0.00794599112,
    0.0214866716,
    -0.0538798459,
    0.133323461,
    -0.333332956,
)
# (2**r - 1) / r on [-0.5, 0.5], relative to 2**r: 2**-28.3; and 0, to be as many as the others
TANH_FAR_32 = (
    0.0,
    0.000153289715,
    0.00133909809,
    0.00961850025,
    0.0555035956,
    0.240226477,
    0.693147182,
)


@implements(tanh)
def _tanh(x: Floating) -> Any:
    return applied(_tanh_wide, x)


def _tanh_wide(x: Floating) -> Any:
    size = abs(x)
    if x.dtype == float64:
        return with_sign_of(_tanh_size_64(size), x)
    # From 1 on, tanh x = 1 - 2 / (e**(2x) + 1); it rounds to 1 from 9.02 on. The odd polynomial below that has the same
    # form as e**(2x) + 1 = (2**n + 1) + 2**n r p(r), so one is computed, of chosen coefficients.
    near = size < 1.0
    bounded = select(size > 10.0, 10.0, size)
    n, nearest = whole_multiple(bounded, 2.0 * LOG2_E_32[0])
    t = select(near, size * size, fma(bounded, 2.0 * LOG2_E_32[0], -nearest))
    unit = select(near, size, power_of_two(n))
    p = select(near, float32(TANH_NEAR_32[0]), TANH_FAR_32[0])
    for k in unroll(1, len(TANH_NEAR_32)):
        p = fma(p, t, select(near, float32(TANH_NEAR_32[k]), TANH_FAR_32[k]))
    number = fma(unit * t, p, unit + select(near, float32(0.0), 1.0))
    return with_sign_of(select(near, number, 1.0 - 2.0 / number), x)


def _tanh_size_64(size: Floating) -> Any:
    """tanh x = E / (E + 2) with E = e**(2x) - 1, for x >= 0; all of it in unevaluated sums of two floats."""
    # It rounds to 1 from 19.1 on.
    n, r, rest = exp_parts(2.0 * select(size > 20.0, 20.0, size))
    power = power_of_two(n)
    numerator, lost = sum_fast(power - 1.0, power * r)
    numerator, numerator_rest = sum_fast(numerator, fma(power, rest, lost))
    denominator = numerator + 2.0
    two = denominator - numerator
    denominator_rest = ((numerator - (denominator - two)) + (2.0 - two)) + numerator_rest
    return quotient(numerator, numerator_rest, denominator, denominator_rest)


# *** inverses ***

# (asinh(x) / x - 1) / z with z = x**2 up to x = 1/2, relative to asinh(x): 2**-33.9
ASINH_32 = (
    0.00925529376,
    -0.0200488511,
    0.0300334394,
    -0.0446160883,
    0.0749990717,
    -0.166666657,
)
# (acosh(1 + t) / sqrt(2t) - 1) / t up to t = 1/2, relative to acosh(1 + t): 2**-29.6
ACOSH_32 = (-0.000413219386, 0.00176005764, -0.00554786855, 0.0187466014, -0.0833332166)
# (atanh(x) / x - 1) / z with z = x**2 up to x = 1/2, relative to atanh(x): 2**-29.4 and 2**-57
ATANH_NEAR_32 = (
    0.177739114,
    0.0506472252,
    0.118415296,
    0.142207593,
    0.200026155,
    0.333332986,
)
ATANH_NEAR_64 = (
    0.22494638049672203,
    -0.15315811626868764,
    0.14510788044376616,
    0.014493487770179385,
    0.05984216790960807,
    0.0577408706694323,
    0.0667798028003058,
    0.07691491923224313,
    0.09090948632792914,
    0.11111109883808602,
    0.1428571430812428,
    0.1999999999979432,
    0.3333333333333399,
)


# (log(1 + f) - f + f**2 / 2) / f**3 on [-0.2929, 0.4143], without regard to how small log(1 + f) is: 2**-26.9
LOG_ABOVE_32 = (
    0.0821754187,
    -0.142512769,
    0.150764436,
    -0.165840954,
    0.199474752,
    -0.250009745,
    0.333343536,
)


@implements(asinh)
def _asinh(x: Floating) -> Any:
    return applied(_asinh_wide, x)


def _asinh_wide(x: Floating) -> Any:
    # log(size + sqrt(size**2 + 1)), for large numbers log(2 size).
    beyond, bounded, one = _bounded(abs(x))
    close = bounded < 0.5
    q = fma(bounded, bounded, one)
    root, root_rest = _root(q, fma(bounded, bounded, one - q))
    total, lost = sum_fast(root, bounded)
    if x.dtype == float64:
        number = log_sum(total, lost + root_rest, select(beyond, x.dtype(512.0), 0.0))
    else:
        number = _log_above(total, lost + root_rest, beyond)
        # Below 1/2 terms of the logarithm nearly cancel, and their roundings would add up.
        square = bounded * bounded
        near = fma(bounded * square, polynomial(square, ASINH_32), bounded)
        number = select(close & ~beyond, near, number)
    return with_sign_of(select(beyond, select(bounded == INFINITY, INFINITY, number), number), x)


def _bounded(size: Floating) -> Any:
    """Whether the square of a number would overflow; the number, then times 2**-64 or 2**-512; and 1, then 0."""
    if size.dtype == float64:
        beyond = rare(size > 2.0**511)
        return beyond, select(beyond, size * 2.0**-512, size), select(beyond, size.dtype(0.0), 1.0)
    beyond = rare(size > 2.0**63)
    return beyond, select(beyond, size * 2.0**-64, size), select(beyond, size.dtype(0.0), 1.0)


def _root(q: Floating, rest: Floating) -> Any:
    """The square root of q + rest for normal numbers q and q = 0, as a sum of two floats."""
    root = sqrt(q)
    # 0.5 / root to a few bits, and exactly for 1: all bits of a float together are nearly its logarithm.
    if q.dtype == float64:
        half = bitcast(0x5FD8000000000000 - (bitcast(q, int64) >> 1), float64)
    else:
        half = bitcast(0x5EC00000 - (bitcast(q, int32) >> 1), float32)
    return root, (fma(-root, root, q) + rest) * half


def _log_above(total: Floating, rest: Floating, beyond: bool | Bool) -> Any:
    """log(total + rest), and 64 ln 2 more where it is `beyond`.

    For a float32 `total` above 1 with a `rest` that hardly changes it.
    """
    bits = bitcast(total, int32)
    place = (bits - 0x3F3504F3) & -0x800000
    f = bitcast(bits - place, float32) - 1.0
    small = rest * bitcast(0x3F800000 - place, float32)
    # log(1 + f + d) = log(1 + f) + d / (1 + f)
    tail = f * (f * f) * polynomial(f, LOG_ABOVE_32)
    tail = fma(-0.5 * f, f, tail) + fma(-f, small, small)
    # The exponent is a float last of all: registers are short up to here.
    k = (place + select(beyond, int32(64 << 23), 0)).cast(float32)
    return fma(k, 2.0**-23 * LN2_32[0], f + fma(k, 2.0**-23 * LN2_32[1], tail))


@implements(acosh)
def _acosh(x: Floating) -> Any:
    return applied(_acosh_wide, x)


def _acosh_wide(x: Floating) -> Any:
    # log(x + sqrt(x**2 - 1)), for large numbers log(2x).
    close = x < 1.5
    beyond, bounded, one = _bounded(x)
    square, square_rest = product_exact(bounded, bounded)
    q = square - one
    if x.dtype == float64:
        q, square_rest = sum_fast(q, square_rest)
        root, root_rest = _root(q, square_rest)
        total, lost = sum_fast(bounded, root)
        number = log_sum(total, lost + root_rest, select(beyond, x.dtype(512.0), 0.0))
        number = select(x >= 1.0, number, NAN)
    else:
        # Below 3/2, with t = x - 1: sqrt(2t) times a polynomial; a NaN for t < 0.
        t = bounded - 1.0
        root, root_rest = _root(select(close, t + t, q), select(close, 0.0, square_rest))
        near = root + fma(root * t, polynomial(t, ACOSH_32), root_rest)
        total, lost = sum_fast(bounded, root)
        number = select(close, near, _log_above(total, lost + root_rest, beyond))
    return select(beyond, select(bounded == INFINITY, INFINITY, number), number)


@implements(atanh)
def _atanh(x: Floating) -> Any:
    return applied(_atanh_wide, x)


def _atanh_wide(x: Floating) -> Any:
    """k ln 2 / 2 + atanh(y) with 2**k = (1 + x) / (1 - x) * (1 - y) / (1 + y); up to 1/2, k is 0 and y is x."""
    size = abs(x)
    near = size < 0.5
    # 1 - x = m 2**-j with m about 1, and k = j + 1.
    left = 1.0 - size
    if x.dtype == float64:
        bits = bitcast(left, int64)
        place = (bits - 0x3FE4CCCCCCCCCCCD) & -0x10000000000000
        m = 2.0 * bitcast(bits - place, float64)
        k = 1.0 - (bitcast((place >> 52) + ROUNDER64_BITS, float64) - ROUNDER64)
        head, rest = 0.5 * LN2_64[0], 0.5 * LN2_64[1]
    else:
        bits = bitcast(left, int32)
        place = (bits - 0x3F266666) & -0x800000
        m = 2.0 * bitcast(bits - place, float32)
        k = 1.0 - (place >> 23).cast(float32)
        head, rest = 0.5 * LN2_32[0], 0.5 * LN2_32[1]
    k = select(near, 0.0, k)
    y = select(near, size, (size + (1.0 - m)) / (size + (1.0 + m)))
    z = y * y
    tail = y * z * fitted(z, ATANH_NEAR_32, ATANH_NEAR_64)
    number = fma(k, head, y + fma(k, rest, tail))
    return with_sign_of(select(size < 1.0, number, select(size == 1.0, INFINITY, NAN)), x)
