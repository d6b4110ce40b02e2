"""`log`, `log2`, `log10` and `log1p` in the kernel language; see `math` for what all of these have in common.

Input: a float of any dtype. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import float64, fma, implements, log, log1p, log2, log10, select
from .math_parts import (
    INFINITY,
    LN2_SHORT_32,
    LN2_SHORT_64,
    LOG2_E_32,
    LOG2_E_64,
    NAN,
    applied,
    polynomial,
    product_exact,
    split,
    split_normal,
    sum_exact,
    sum_fast,
)

# *** logarithms ***
#
# x = 2**k * m with sqrt(1/2) <= m < sqrt(2), f = m - 1, then log x = k ln 2 + f + tail(f).

# (log(1 + f) - f + f**2 / 2) / f**3 on [-0.2929, 0.4143], relative to log(1 + f): 2**-29
LOG_32 = (
    6.0427748e-02,
    -1.1299543e-01,
    1.1994712e-01,
    -1.24750465e-01,
    1.4215083e-01,
    -1.6663969e-01,
    2.0002148e-01,
    -2.500008e-01,
    3.3333313e-01,
)
# (2 atanh(s) / s - 2) / z with z = s**2 on [0, 0.02944], relative to 2 atanh(s): 2**-59
ATANH_64 = (
    0.1479575312443772,
    0.15314074092440802,
    0.18183563217959506,
    0.2222219859918133,
    0.2857142874207166,
    0.39999999999416525,
    0.6666666666666734,
)

# log10(e) and log10(2) as sums; a multiple of the head of the latter by an exponent is exact.
LOG10_E_32 = (0.434294492, -1.010305e-08)
LOG10_E_64 = (0.4342944819032518, 1.098319650216765e-17)
LOG10_2_32 = (0.301025391, 4.60503907e-06)
LOG10_2_64 = (0.3010299956640665, -8.532344317057107e-14)


def log_tail(f: Any) -> Any:
    """log(1 + f) - f."""
    square = f * f
    if f.dtype == float64:
        # With s = f / (2 + f): log(1 + f) = 2 atanh(s) = f - s f + s**3 R, and s f = f**2/2 - s f**2/2.
        s = f / (2.0 + f)
        z = s * s
        return fma(s, fma(0.5, square, z * polynomial(z, ATANH_64)), -0.5 * square)
    # The last bits of the square count: near log2(1.4) they are a tenth of an ulp.
    lost = fma(f, f, -square)
    return fma(-0.5, square, fma(-0.5, lost, f * square * polynomial(f, LOG_32)))


def _log_special(x: Any, result: Any) -> Any:
    """The result for ordinary x; log 0 = -infinity, log infinity = infinity, NaN for all else."""
    odd = select(x == INFINITY, x, select(x == 0.0, -INFINITY, x.dtype(NAN)))
    return select((x > 0.0) & (x < INFINITY), result, odd)


@implements(log)
def _log(x: Any) -> Any:
    return applied(_log_wide, x)


def _log_wide(x: Any) -> Any:
    head, rest = LN2_SHORT_32
    if x.dtype == float64:
        head, rest = LN2_SHORT_64
    k, f = split(x)
    total, lost = sum_fast(k * head, f)
    return _log_special(x, total + (lost + fma(k, rest, log_tail(f))))


@implements(log2)
def _log2(x: Any) -> Any:
    return applied(_log2_wide, x)


def _log2_wide(x: Any) -> Any:
    head, rest = LOG2_E_32
    if x.dtype == float64:
        head, rest = LOG2_E_64
    k, f = split(x)
    product = f * head
    product_rest = fma(f, head, -product) + f * rest
    total, lost = sum_fast(k, product)
    return _log_special(x, total + (lost + fma(log_tail(f), head, product_rest)))


@implements(log10)
def _log10(x: Any) -> Any:
    return applied(_log10_wide, x)


def _log10_wide(x: Any) -> Any:
    head, rest = LOG10_E_32
    two, two_rest = LOG10_2_32
    if x.dtype == float64:
        head, rest = LOG10_E_64
        two, two_rest = LOG10_2_64
    k, f = split(x)
    product, lost = product_exact(f, head)
    small = fma(k, two_rest, fma(f, rest, lost))
    total, lost = sum_fast(k * two, product)
    return _log_special(x, total + (lost + fma(log_tail(f), head, small)))


@implements(log1p)
def _log1p(x: Any) -> Any:
    return applied(_log1p_wide, x)


def _log1p_wide(x: Any) -> Any:
    total, lost = sum_exact(x.dtype(1.0), select((x > -1.0) & (x < INFINITY), x, 0.0))
    number = select(x == 0.0, x, log_sum(total, lost, 0.0))
    odd = select(x == -1.0, -INFINITY, select(x == INFINITY, x, NAN))
    return select((x > -1.0) & (x < INFINITY), number, odd)


def log_sum(total: Any, rest: Any, doublings: Any) -> Any:
    """log(2**doublings * (total + rest)) for a normal `total` with a `rest` that hardly changes it."""
    k, f, inverse = split_normal(total)
    # m - 1 with what the rest is to it: for total + rest = 1 + x with a small x that is x again.
    f, f_rest = sum_exact(f, rest * inverse)
    head, ln2_rest = LN2_SHORT_32
    if f.dtype == float64:
        head, ln2_rest = LN2_SHORT_64
    k = k + doublings
    total, lost = sum_fast(k * head, f)
    return total + (lost + (f_rest + fma(k, ln2_rest, log_tail(f))))


# *** the logarithm in twice the digits, for `pow` and `lgamma` ***

# (atanh(s) / s - 1 - z/3 - z**2/5) / z**3 with z = s**2 on [0, 0.02944]: 2**-80 relative to atanh(s) / s
POW_ATANH = (
    0.05473400993417135,
    0.05216323121032327,
    0.05884034886508644,
    0.06666630517518932,
    0.07692308166649087,
    0.09090909087224514,
    0.11111111111126441,
    0.1428571428571426,
)
THIRD = (0.3333333333333333, 1.850371707708594e-17)
FIFTH = (0.2, -1.1102230246251566e-17)


def log_pair(x: Any) -> Any:
    """log x as a sum of two floats, good to about 2**-68, for a float64 0 < x < infinity."""
    k, f = split(x)
    # s = f / (2 + f); `below` is exactly the denominator, but for its rest.
    below = 2.0 + f
    below_rest = f - (below - 2.0)
    s = f / below
    s_rest = (fma(-s, below, f) - s * below_rest) / below
    # z = s**2 and atanh(s) / s = 1 + z (1/3 + z (1/5 + z POW_ATANH(z)))
    z = s * s
    z_rest = fma(s, s, -z) + 2.0 * s * s_rest
    inner, inner_rest = sum_fast(FIFTH[0], z * polynomial(z, POW_ATANH))
    inner, inner_rest = _multiplied(z, z_rest, inner, inner_rest + FIFTH[1])
    outer, lost = sum_fast(THIRD[0], inner)
    outer, outer_rest = _multiplied(z, z_rest, outer, lost + (inner_rest + THIRD[1]))
    extra, extra_rest = _multiplied(2.0 * s, 2.0 * s_rest, outer, outer_rest)
    # log x = k ln 2 + 2 s + extra, largest first
    total, lost = sum_fast(k * LN2_SHORT_64[0], 2.0 * s)
    total, lost_next = sum_fast(total, extra)
    rest = lost + lost_next + (2.0 * s_rest + extra_rest)
    ln2_rest = k * LN2_SHORT_64[1]
    total, lost = sum_fast(total, ln2_rest)
    rest = rest + lost
    return total, rest


def _multiplied(a: Any, a_rest: Any, b: Any, b_rest: Any) -> Any:
    """(a + a_rest) * (b + b_rest) as a sum of two floats (Dekker 1971, with fma)."""
    product = a * b
    return product, fma(a, b, -product) + fma(a, b_rest, a_rest * b)
