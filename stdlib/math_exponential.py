"""`exp`, `exp2`, `tanh` and `erf` in the kernel language; see `math` for what all of these have in common.

Input: a float of any dtype. Output: a value of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import (
    abs,
    erf,
    exp,
    exp2,
    float64,
    fma,
    implements,
    select,
    tanh,
)
from .math_parts import (
    EXP_32,
    applied,
    clamped,
    exp_core,
    exp_parts_64,
    exp_reduced,
    polynomial,
    power_of_two,
    scaled,
    sum_fast,
    whole,
    with_sign_of,
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


@implements(exp)
def _exp(x: Any) -> Any:
    return applied(_exp_wide, x)


def _exp_wide(x: Any) -> Any:
    # Beyond the bounds the result has overflowed, or is less than half the smallest number.
    if x.dtype == float64:
        n, number = exp_core(clamped(x, -746.0, 710.0))
    else:
        n, number = exp_core(clamped(x, -104.0, 89.0))
    return scaled(number, n)


@implements(exp2)
def _exp2(x: Any) -> Any:
    return applied(_exp2_wide, x)


def _exp2_wide(x: Any) -> Any:
    if x.dtype == float64:
        near = clamped(x, -1076.0, 1025.0)
        n, nearest = whole(near)
        r = near - nearest
        return scaled(fma(r, polynomial(r, EXP2_64), 1.0), n)
    near = clamped(x, -151.0, 129.0)
    n, nearest = whole(near)
    r = near - nearest
    return scaled(fma(r, polynomial(r, EXP2_32), 1.0), n)


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
    n, r, rest = exp_parts_64(2.0 * select(size > 20.0, 20.0, size))
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


# *** error function ***

# erf(x) / x - 1 as a polynomial of x**2 up to x = 1, relative to erf(x): 2**-29 and 2**-56
ERF_32 = (7.806903e-05, -7.997853e-04, 5.187162e-03, -2.6853347e-02, 1.1283579e-01, -3.7612626e-01, 1.2837917e-01)
ERF_64 = (
    -7.885283244707608e-10,
    1.37668026741059e-08,
    -1.6218851513103823e-07,
    1.6448689362341804e-06,
    -1.4924828478841596e-05,
    0.00012055298825572782,
    -0.0008548326064816517,
    0.00522397760771182,
    -0.02686617064308734,
    0.11283791670942123,
    -0.3761263890318341,
    0.12837916709551256,
)
# log(1 - erf(x)) from 1 to 4, relative to erf(x): 2**-29
ERFC_LOG_32 = (
    1.8636673e-04,
    -2.947547e-03,
    2.183768e-02,
    -1.0310609e-01,
    -6.3814545e-01,
    -1.1270889e00,
    -3.41575e-04,
)
# (1 - erf(x)) e**(x**2) as a polynomial of t = (x - 2) / (x + 2) for x from 1 to 6, relative to erf(x): 2**-58
ERFC_64 = (
    -1.3045284003890986e-05,
    -2.7148993843147527e-05,
    2.7365128131030654e-05,
    0.00017424995943208168,
    4.354539507423725e-05,
    -0.000981972424445496,
    -0.0008471422341479465,
    0.006997461734126502,
    0.003732892387522693,
    -0.07897858101672112,
    0.2416581942425178,
    -0.4271858474139545,
    0.25539567631050575,
)


@implements(erf)
def _erf(x: Any) -> Any:
    return applied(_erf_wide, x)


def _erf_wide(x: Any) -> Any:
    """erf |x| by a polynomial up to 1, and as 1 - erfc |x| above it."""
    size = abs(x)
    square = size * size
    if x.dtype == float64:
        near = fma(size, polynomial(square, ERF_64), size)
        bounded = select(size > 6.0, 6.0, size)
        n, number = exp_core(-bounded * bounded)
        scale = polynomial((bounded - 2.0) / (bounded + 2.0), ERFC_64)
        far = 1.0 - number * power_of_two(n) * scale
    else:
        near = fma(size, polynomial(square, ERF_32), size)
        bounded = select(size > 4.0, 4.0, size)
        n, number = exp_core(polynomial(bounded, ERFC_LOG_32))
        far = fma(-number, power_of_two(n), 1.0)
    return with_sign_of(select(size < 1.0, near, far), x)
