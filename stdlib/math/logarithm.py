"""`log`, `log2`, `log10` and `log1p` in the kernel language; see `math.functions` for what all of these have in
common."""

from __future__ import annotations

from typing import Any

from ...dsl import Bool, Element, Floating, float64, fma, implements, log, log1p, log2, log10, rare, select
from .parts import (
    INFINITY,
    LN2_64,
    LN2_SHORT_32,
    LN2_SHORT_64,
    LOG2_E_64,
    NAN,
    ROOT_HALF,
    applied,
    is_positive,
    mantissa_from,
    polynomial,
    polynomial_apart,
    product_exact,
    split,
    sum_exact,
    sum_fast,
    with_sign_of,
)

# *** logarithms ***
#
# x = 2**k * m with a <= m < 2 a, f = m - 1, then log x = k ln 2 + log(1 + f). a is sqrt(1/2), or 3/4 where that makes f
# exact. What is not a positive normal number is rare.

# (log(1 + f) - f) / f**2 on [-0.25, 0.5], relative to log(1 + f): 2**-27.6
LOG_WIDE_32 = (
    -0.0450758934,
    0.104651265,
    -0.131632015,
    0.144786954,
    -0.166471049,
    0.199908108,
    -0.250001013,
    0.333334506,
    -0.5,
)
# log2(1 + f) / f - 1 and log10(1 + f) / f - LOG10_E on [-0.2929, 0.4143], relative to the logarithms: 2**-27.0 and
# 2**-27.7
LOG2_32 = (
    -0.115500435,
    0.186880946,
    -0.188706815,
    0.204217762,
    -0.239902183,
    0.288610816,
    -0.360684127,
    0.480896741,
    -0.721347511,
    0.442695051,
)
LOG10_32 = (
    -0.0330326296,
    0.0560811013,
    -0.0575621985,
    0.0615870841,
    -0.0721255094,
    0.0868675113,
    -0.108580813,
    0.144764796,
    -0.217147186,
    -1.01215569e-08,
)
# (2 atanh(s) / s - 2) / z with z = s**2 on [0, 0.02944] and on [0, 0.0401], relative to 2 atanh(s): 2**-59 and 2**-55.9
ATANH_64 = (
    0.1479575312443772,
    0.15314074092440802,
    0.18183563217959506,
    0.2222219859918133,
    0.2857142874207166,
    0.39999999999416525,
    0.6666666666666734,
)
ATANH_WIDE_64 = (
    0.1537310009507878,
    0.15249567105955386,
    0.18186386554275455,
    0.2222213777414343,
    0.2857142940394197,
    0.39999999996115243,
    0.6666666666667279,
)

LOG10_E = 0.4342944819032518
# log10(2) as a sum; a multiple of its head by an exponent is exact.
LOG10_2_32 = (0.301025391, 4.60503907e-06)
LOG10_2_64 = (0.3010299956640665, -8.532344317057107e-14)


def log_tail(f: Floating) -> Any:
    """log(1 + f) - f for a float64 with sqrt(1/2) <= 1 + f < sqrt(2)."""
    return _log_tail_64(f, ATANH_64)


def _log_tail_64(f: Floating, coefficients: tuple[float, ...]) -> Any:
    # With s = f / (2 + f): log(1 + f) = 2 atanh(s) = f - s f + s**3 R, and s f = f**2/2 - s f**2/2.
    square = f * f
    s = f / (2.0 + f)
    z = s * s
    return fma(s, fma(0.5, square, z * polynomial(z, coefficients)), -0.5 * square)


def _scaled_sum(k: Floating, one: float, f: Floating, factor: float) -> Any:
    """k * one + f * factor and what its rounding lost; k * one is exact, and 0 or the larger part (Dekker 1971)."""
    total = fma(k, one, f * factor)
    return total, fma(f, factor, -fma(k, -one, total))


def split_of(x: Floating, odd: Element, least: float) -> Any:
    """k as a float and f of x = 2**k (1 + f), with 1 + f from `least` to twice that; `odd` numbers may be subnormal."""
    up, down = 33554432.0, 25.0
    if x.dtype == float64:
        up, down = 18014398509481984.0, 54.0
    k, m, _ = mantissa_from(least, select(odd, select(x < 1.0, x * up, x), x))
    return select(odd, select(x < 1.0, k - down, k), k), m - 1.0


def _log_special(x: Floating, odd: bool | Bool, result: Floating) -> Any:
    """The result for ordinary and subnormal x; log 0 = -infinity, log infinity = infinity, NaN for all else."""
    special = select(x == 0.0, -INFINITY, x.dtype(NAN))
    return select(odd, select(x > 0.0, select(x < 1.0, result, x), special), result)


@implements(log)
def _log(x: Floating) -> Any:
    return applied(_log_wide, x)


def _log_wide(x: Floating) -> Any:
    odd = rare(~is_positive(x))
    if x.dtype == float64:
        k, f = split_of(x, odd, ROOT_HALF)
        return _log_special(x, odd, _log_of_64(k, f, ATANH_64))
    k, f = split_of(x, odd, 0.75)
    return _log_special(x, odd, _log_of_32(k, f))


def _log_of_64(k: Floating, f: Floating, coefficients: tuple[float, ...]) -> Any:
    """k ln 2 + log(1 + f)."""
    total, lost = _scaled_sum(k, LN2_SHORT_64[0], f, 1.0)
    return total + fma(k, LN2_SHORT_64[1], _log_tail_64(f, coefficients) + lost)


def _log_of_32(k: Floating, f: Floating) -> Any:
    """k ln 2 + log(1 + f) for -1/4 <= f < 1/2."""
    total, lost = _scaled_sum(k, LN2_SHORT_32[0], f, 1.0)
    return total + fma(k, LN2_SHORT_32[1], fma(f * f, polynomial(f, LOG_WIDE_32), lost))


@implements(log2)
def _log2(x: Floating) -> Any:
    return applied(_log2_wide, x)


def _log2_wide(x: Floating) -> Any:
    # The logarithm of 1 + f is 1/2 at most. So its rounding is a quarter of the sum's last place at most, unless k = 0.
    odd = rare(~is_positive(x))
    k, f = split_of(x, odd, ROOT_HALF)
    if x.dtype == float64:
        product, lost = product_exact(f, LOG2_E_64[0])
        return _log_special(x, odd, k + (product + fma(log_tail(f), LOG2_E_64[0], fma(f, LOG2_E_64[1], lost))))
    return _log_special(x, odd, k + fma(f, polynomial(f, LOG2_32), f))


@implements(log10)
def _log10(x: Floating) -> Any:
    return applied(_log10_wide, x)


def _log10_wide(x: Floating) -> Any:
    odd = rare(~is_positive(x))
    k, f = split_of(x, odd, ROOT_HALF)
    if x.dtype == float64:
        total, lost = _scaled_sum(k, LOG10_2_64[0], f, LOG10_E)
        return _log_special(x, odd, total + fma(k, LOG10_2_64[1], fma(log_tail(f), LOG10_E, lost)))
    total, lost = _scaled_sum(k, LOG10_2_32[0], f, LOG10_E)
    return _log_special(x, odd, total + fma(k, LOG10_2_32[1], fma(f, polynomial(f, LOG10_32), lost)))


@implements(log1p)
def _log1p(x: Floating) -> Any:
    return applied(_log1p_wide, x)


def _log1p_wide(x: Floating) -> Any:
    """With 1 + x = 2**k m, f = m - 1 = x 2**-k + (2**-k - 1) is exact, as 3/4 <= m < 3/2."""
    limit = 2.0**100
    if x.dtype == float64:
        limit = 2.0**1000
    odd = rare(~((x > -1.0) & (x < limit)))
    large = x >= limit
    near = select(odd, select(large, x * 2.0**-64, x), x)
    k, _, inverse = mantissa_from(0.75, 1.0 + near)
    f = fma(near, inverse, inverse - 1.0)
    k = select(odd, select(large, k + 64.0, k), k)
    number = _log_of_64(k, f, ATANH_WIDE_64) if x.dtype == float64 else _log_of_32(k, f)
    special = select(x == -1.0, -INFINITY, select(x == INFINITY, x, x.dtype(NAN)))
    # -0 is the only number whose sign got lost.
    return select(odd, select(large & (x < INFINITY), number, special), with_sign_of(number, x))


def log_sum(total: Floating, rest: Floating, doublings: Floating) -> Any:
    """log(2**doublings * (total + rest)) for a float64 `total` above 1/2 with a `rest` that hardly changes it."""
    k, m, inverse = mantissa_from(ROOT_HALF, total)
    # m - 1 with what the rest is to it: for total + rest = 1 + x with a small x that is x again.
    f, f_rest = sum_exact(m - 1.0, rest * inverse)
    k = k + doublings
    total, lost = sum_fast(k * LN2_SHORT_64[0], f)
    return total + (lost + (f_rest + fma(k, LN2_SHORT_64[1], log_tail(f))))


# *** the logarithm in twice the digits, for `lgamma` ***

# (atanh(s) / s - 1 - z/3) / z**2 with z = s**2 on [0, 0.02944]: 2**-73 relative to atanh(s) / s
PAIR_ATANH = (
    0.05473400993417135,
    0.05216323121032327,
    0.05884034886508644,
    0.06666630517518932,
    0.07692308166649087,
    0.09090909087224514,
    0.11111111111126441,
    0.1428571428571426,
    0.2,
)
THIRD = (0.3333333333333333, 1.850371707708594e-17)


def log_pair(x: Floating) -> Any:
    """log x as a sum of two floats, good to about 2**-65, for a float64 0 < x < infinity."""
    k, f = split(x)
    # s = f / (2 + f); `below` is exactly the denominator, but for its rest.
    below = 2.0 + f
    below_rest = f - (below - 2.0)
    inverse = 1.0 / below
    s = f * inverse
    s_rest = fma(-s, below_rest, fma(-s, below, f)) * inverse
    # z = s**2 and atanh(s) / s = 1 + z (1/3 + z PAIR_ATANH(z)); 2 s and what 2 atanh(s) has more.
    z = s * s
    twice, twice_rest = s + s, s_rest + s_rest
    z_rest = fma(twice, s_rest, fma(s, s, -z))
    inner, inner_rest = sum_fast(THIRD[0], z * polynomial_apart(z, z * z, PAIR_ATANH))
    outer, outer_rest = _multiplied(z, z_rest, inner, inner_rest + THIRD[1])
    extra, extra_rest = _multiplied(twice, twice_rest, outer, outer_rest)
    # log x = k ln 2 + 2 s + extra, largest first
    total, lost = _scaled_sum(k, LN2_SHORT_64[0], twice, 1.0)
    total, lost_next = sum_fast(total, extra)
    return sum_fast(total, fma(k, LN2_SHORT_64[1], lost + lost_next + (twice_rest + extra_rest)))


def log_normal(x: Floating) -> Any:
    """log x as `log` has it, for a normal float64 above 0."""
    k, f = split(x)
    return _log_of_64(k, f, ATANH_64)


# (2 atanh(s) / s - 2) / z with z = s**2 on [0, 0.02944], relative to 2 atanh(s): 2**-37.6
ATANH_SHORT = (0.23582057761187245, 0.2853731866615134, 0.40000334933187176, 0.6666666564713342)


def log_short(x: Floating) -> Any:
    """log x to about 2**-35, for a normal float64."""
    k, m, _ = mantissa_from(ROOT_HALF, x)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    return fma(k, LN2_64[0], fma(s * z, polynomial(z, ATANH_SHORT), s + s))


def _multiplied(a: Floating, a_rest: Floating, b: Floating, b_rest: Floating) -> Any:
    """(a + a_rest) * (b + b_rest) as a sum of two floats (Dekker 1971, with fma)."""
    product = a * b
    return product, fma(a, b_rest, fma(a_rest, b, fma(a, b, -product)))
