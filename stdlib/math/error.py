"""`erf` and `erfc` in the kernel language; see `math.functions` for what all of these have in common."""

from __future__ import annotations

from typing import Any

from ...dsl import Floating, abs, erf, erfc, float64, fma, implements, select
from .parts import (
    applied,
    exp_core,
    exp_parts,
    fitted,
    polynomial,
    power_of_two,
    product_exact,
    quotient_sum,
    scaled,
    sum_exact,
    sum_fast,
    with_sign_of,
)

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
ERFC_SCALE_64 = (
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
def _erf(x: Floating) -> Any:
    return applied(_erf_wide, x)


def _erf_wide(x: Floating) -> Any:
    """erf |x| by a polynomial up to 1, and as 1 - erfc |x| above it."""
    size = abs(x)
    square = size * size
    near = fma(size, fitted(square, ERF_32, ERF_64), size)
    if x.dtype == float64:
        bounded = select(size > 6.0, 6.0, size)
        n, number = exp_core(-bounded * bounded)
        scale = polynomial((bounded - 2.0) / (bounded + 2.0), ERFC_SCALE_64)
        far = 1.0 - number * power_of_two(n) * scale
    else:
        bounded = select(size > 4.0, 4.0, size)
        # The last step of the polynomial with what it loses: e**(a + d) = e**a + d e**a.
        power, lost = product_exact(bounded, polynomial(bounded, ERFC_LOG_32[:-1]))
        exponent, lost_next = sum_fast(power, ERFC_LOG_32[-1])
        n, number = exp_core(exponent)
        far = fma(-fma(number, lost + lost_next, number), power_of_two(n), 1.0)
    return with_sign_of(select(size < 1.0, near, far), x)


# *** its complement ***

# (1 + 2x) e**(x**2) erfc(x) - 1.125, relative to the first term, as a polynomial of t = (x - 3.5) / (x + 3.5) from 0 to
# 11: 2**-28.7; and of t = (x - 3) / (x + 3) from 0 to 28: 2**-54.5
ERFC_32 = (
    -6.59415673e-05,
    -0.000110239285,
    0.000587343355,
    -0.000300472631,
    -0.0042232573,
    0.0190974381,
    -0.0488219485,
    0.0879835263,
    -0.115089707,
    0.0975190699,
    -0.0105555933,
    -0.14000918,
    0.117349245,
)
ERFC_64 = (
    -3.981114166674849e-09,
    -7.992207648492444e-09,
    3.243180656063522e-08,
    9.015798627173866e-08,
    -1.3095719192463488e-07,
    -6.025532628952719e-07,
    3.494428200347786e-07,
    3.4620222730927864e-06,
    -7.282013444244649e-07,
    -2.009565321406796e-05,
    4.948511092407908e-06,
    0.000125097845123333,
    -0.00010515961063914552,
    -0.0007798319773459668,
    0.0018886903351740913,
    0.0025293917810077495,
    -0.02377051491673164,
    0.06830802734628837,
    -0.1192736634153941,
    0.12964515870269053,
    -0.04756229435344914,
    -0.13562110612458056,
    0.12800805826972964,
)


@implements(erfc)
def _erfc(x: Floating) -> Any:
    return applied(_erfc_wide, x)


def _erfc_wide(x: Floating) -> Any:
    """1 - x - (erf(x) - x) up to 0.7, and beyond 2**n e**r (1.125 + polynomial) / (1 + 2 |x|) (after Shepherd 1981).

    Every factor is a sum of two floats.
    """
    size = abs(x)
    total, lost = sum_fast(1.0, -x)
    near = total + fma(-x, fitted(x * x, ERF_32, ERF_64), lost)
    if x.dtype == float64:
        bounded = select(size > 28.0, 28.0, size)
        small = polynomial((bounded - 3.0) / (bounded + 3.0), ERFC_64)
    else:
        bounded = select(size > 11.0, 11.0, size)
        small = polynomial((bounded - 3.5) / (bounded + 3.5), ERFC_32)
    scale, scale_rest = sum_fast(1.125, small)
    square, square_rest = product_exact(bounded, bounded)
    n, r, tail = exp_parts(-square)
    number, lost = sum_fast(1.0, r)
    # e**(-square - rest) = e**-square (1 - rest)
    number_rest = fma(-square_rest, number + tail, lost + tail)
    above, above_rest = product_exact(number, scale)
    above_rest = above_rest + fma(number, scale_rest, number_rest * scale)
    below, below_rest = sum_exact(1.0, bounded + bounded)
    quotient, rest = quotient_sum(above, above_rest, below, below_rest)
    # Below 0 it is 2 minus that.
    power = power_of_two(select(n < -100, -100, n))
    total, lost = sum_fast(2.0, -quotient * power)
    far = select(x < 0.0, total + fma(-rest, power, lost), scaled(quotient + rest, n))
    return select(size < 0.7, near, far)
