"""`sinh`, `cosh`, `tanh`, `asinh`, `acosh` and `atanh` in the kernel language; see `math` for what all have in common.

Input: a float of any dtype. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import abs, acosh, asinh, atanh, cosh, float64, fma, implements, select, sinh, sqrt, tanh
from .math_logarithm import log_sum
from .math_parts import (
    EXP_32,
    INFINITY,
    NAN,
    applied,
    exp_parts,
    exp_reduced,
    polynomial,
    power_of_two,
    product_exact,
    quotient_sum,
    sum_exact,
    sum_fast,
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


def _half_exp(size: Any) -> Any:
    """e**size / 4 as a sum of two floats, for 0 <= size; beyond the largest result of sinh and cosh it stays there."""
    high = 89.5
    if size.dtype == float64:
        high = 710.5
    n, r, tail = exp_parts(select(size > high, high, size))
    power = power_of_two(n - 2)
    total, lost = sum_fast(power, power * r)
    return total, fma(power, tail, lost)


@implements(sinh)
def _sinh(x: Any) -> Any:
    return applied(_sinh_wide, x)


def _sinh_wide(x: Any) -> Any:
    size = abs(x)
    square = size * size
    if x.dtype == float64:
        near = fma(size * square, polynomial(square, SINH_64), size)
    else:
        near = fma(size * square, polynomial(square, SINH_32), size)
    total, rest = _half_exp(size)
    far = 2.0 * (total + (rest - 0.0625 / (total + rest)))
    return with_sign_of(select(size < 1.0, near, far), x)


@implements(cosh)
def _cosh(x: Any) -> Any:
    return applied(_cosh_wide, x)


def _cosh_wide(x: Any) -> Any:
    total, rest = _half_exp(abs(x))
    return 2.0 * (total + (rest + 0.0625 / (total + rest)))


# *** hyperbolic tangent ***

# (tanh(x) / x - 1) / z with z = x**2 up to x = 1, relative to tanh(x): 2**-27
TANH_32 = (
    -3.5838148e-04,
    2.3011954e-03,
    -7.945992e-03,
    2.1486672e-02,
    -5.3879846e-02,
    1.3332346e-01,
    -3.3333296e-01,
)


@implements(tanh)
def _tanh(x: Any) -> Any:
    return applied(_tanh_wide, x)


def _tanh_wide(x: Any) -> Any:
    size = abs(x)
    if x.dtype == float64:
        return with_sign_of(_tanh_size_64(size), x)
    square = size * size
    near = fma(size * square, polynomial(square, TANH_32), size)
    # With e**(2x) = power * (1 + t): tanh x = 1 - 2 / (power + 1 + power t). It rounds to 1 from 9.02 on.
    n, r = exp_reduced(2.0 * select(size > 10.0, 10.0, size))
    t = fma(r * r, polynomial(r, EXP_32), r)
    power = power_of_two(n)
    far = 1.0 - 2.0 / fma(power, t, power + 1.0)
    return with_sign_of(select(size < 1.0, near, far), x)


def _tanh_size_64(size: Any) -> Any:
    """tanh x = E / (E + 2) with E = e**(2x) - 1, for x >= 0; all of it in unevaluated sums of two floats."""
    # It rounds to 1 from 19.1 on.
    n, r, rest = exp_parts(2.0 * select(size > 20.0, 20.0, size))
    power = power_of_two(n)
    numerator, lost = sum_fast(power - 1.0, power * r)
    numerator, numerator_rest = sum_fast(numerator, fma(power, rest, lost))
    denominator = numerator + 2.0
    two = denominator - numerator
    denominator_rest = ((numerator - (denominator - two)) + (2.0 - two)) + numerator_rest
    inverse = 1.0 / denominator
    quotient = numerator * inverse
    error = fma(-quotient, denominator, numerator) + fma(-quotient, denominator_rest, numerator_rest)
    return fma(error, inverse, quotient)


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


@implements(asinh)
def _asinh(x: Any) -> Any:
    return applied(_asinh_wide, x)


def _asinh_wide(x: Any) -> Any:
    # log(size + sqrt(size**2 + 1)), for large numbers log(2 size).
    size = abs(x)
    large = 2.0**14
    if x.dtype == float64:
        large = 2.0**30
    beyond = size > large
    bounded = select(beyond, 0.0, size)
    square, square_rest = product_exact(bounded, bounded)
    q, lost = sum_exact(x.dtype(1.0), square)
    root = sqrt(q)
    root_rest = (fma(-root, root, q) + (lost + square_rest)) * (0.5 / root)
    total, lost = sum_exact(root, bounded)
    number = log_sum(select(beyond, size, total), lost + root_rest, select(beyond, x.dtype(1.0), 0.0))
    if x.dtype != float64:
        # Here terms of the logarithm nearly cancel, and their roundings would add up.
        near = fma(size * square, polynomial(square, ASINH_32), size)
        number = select(size < 0.5, near, number)
    return with_sign_of(select(size < INFINITY, number, size), x)


@implements(acosh)
def _acosh(x: Any) -> Any:
    return applied(_acosh_wide, x)


def _acosh_wide(x: Any) -> Any:
    # log(1 + t + sqrt(t**2 + 2t)) with t = x - 1, for large numbers log(2x).
    large = 2.0**14
    tiny = 2.0**-100
    if x.dtype == float64:
        large = 2.0**30
        tiny = 2.0**-900
    beyond = x > large
    t = select(beyond, 1.0, x) - 1.0
    square, square_rest = product_exact(t, t)
    q, lost = sum_exact(t + t, square)
    root = sqrt(q)
    root_rest = (fma(-root, root, q) + (lost + square_rest)) / (root + root + tiny)
    v, lost = sum_exact(t, root)
    total, total_rest = sum_exact(x.dtype(1.0), v)
    inside = select(x >= 1.0, select(beyond, x, total), 1.0)
    number = log_sum(inside, total_rest + (lost + root_rest), select(beyond, x.dtype(1.0), 0.0))
    return select(x >= 1.0, select(x < INFINITY, number, x), NAN)


@implements(atanh)
def _atanh(x: Any) -> Any:
    return applied(_atanh_wide, x)


def _atanh_wide(x: Any) -> Any:
    # Half of log(1 + 2x / (1 - x)).
    size = abs(x)
    inside = select(size < 1.0, size, 0.0)
    below, below_rest = sum_fast(1.0, -inside)
    v, lost = quotient_sum(2.0 * inside, 0.0, below, below_rest)
    total, total_rest = sum_exact(x.dtype(1.0), v)
    number = 0.5 * log_sum(total, total_rest + lost, 0.0)
    return with_sign_of(select(size < 1.0, number, select(size == 1.0, INFINITY, NAN)), x)
