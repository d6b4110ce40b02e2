"""`asin`, `acos`, `atan` and `atan2` in the kernel language; see `math.functions` for what all of these have in
common."""

from __future__ import annotations

from typing import Any

from ...dsl import Floating, abs, acos, asin, atan, atan2, float64, fma, implements, rare, select, sqrt
from .parts import (
    INFINITY,
    applied,
    applied_to_two,
    fitted,
    polynomial,
    polynomial_in_halves,
    quotient_sum,
    sum_fast,
    with_sign_of,
)

# (asin(x) / x - 1) / z with z = x**2 up to x = 1/2, relative to asin(x): 2**-27 and 2**-59
ASIN_32 = (
    0.0421664193,
    0.0241807718,
    0.0454697721,
    0.0749530643,
    0.166667521,
)
ASIN_64 = (
    0.032648097234067634,
    -0.021028670698423207,
    0.02172722145125919,
    0.003698786332351405,
    0.01078212620677211,
    0.011398606260033977,
    0.013980854083437726,
    0.01735160958450569,
    0.022372215098607526,
    0.030381942704913296,
    0.04464285717464219,
    0.07499999999970813,
    0.1666666666666676,
)
# (atan(x) / x - 1) / z with z = x**2 up to 1, relative to atan(x): 2**-30.9 and 2**-57
ATAN_32 = (
    0.00113439548,
    -0.0074248435,
    0.0227767471,
    -0.0449825041,
    0.0676361397,
    -0.088214539,
    0.110612325,
    -0.142803431,
    0.199997157,
    -0.333333284,
)
ATAN_64 = (
    1.3121868215539996e-05,
    -0.00015122052287184357,
    0.0008273663951539911,
    -0.0028747176051737203,
    0.007178436326828985,
    -0.013877230990834577,
    0.021962099536134344,
    -0.02988672794727017,
    0.03663183033939096,
    -0.04218712844350574,
    0.04722153083863847,
    -0.052534707643275856,
    0.058805174517189696,
    -0.066664023699128,
    0.07692279638961413,
    -0.09090906986353163,
    0.11111111006114553,
    -0.1428571428254507,
    0.19999999999950954,
    -0.33333333333333065,
)

# pi as a sum of two floats
PI_32 = (3.14159274, -8.74227766e-08)
PI_64 = (3.141592653589793, 1.2246467991473532e-16)


def _half_angle(size: Floating) -> Any:
    """sqrt((1 - size) / 2) and what it lost, for 1/2 < size <= 1: the sine of half of acos(size)."""
    tiny = 2.0**-100
    if size.dtype == float64:
        tiny = 2.0**-900
    z = fma(-0.5, size, 0.5)
    root = sqrt(z)
    return z, root, fma(-root, root, z) / (root + root + tiny)


def _split_at_half(x: Floating) -> Any:
    """What asin and acos share: (far, z, root, root_rest, pi, pi_rest), where z = root**2 is at most 1/4.

    Up to 1/2 the root is |x|; beyond (far) it is the sine of half of acos|x|, less its rest. pi comes in two parts.
    """
    pi, pi_rest = PI_32
    if x.dtype == float64:
        pi, pi_rest = PI_64
    size = abs(x)
    far = size > 0.5
    z, root, root_rest = _half_angle(size)
    return far, select(far, z, x * x), select(far, root, size), root_rest, pi, pi_rest


def _asin_tail(z: Floating, root: Floating) -> Any:
    """asin(root) - root for z = root**2."""
    return root * z * fitted(z, ASIN_32, ASIN_64)


@implements(asin)
def _asin(x: Floating) -> Any:
    return applied(_asin_wide, x)


def _asin_wide(x: Floating) -> Any:
    # Above 1/2: pi/2 - 2 asin(sqrt((1 - size) / 2)). Below, the root is the size.
    far, z, root, root_rest, pi, pi_rest = _split_at_half(x)
    tail = _asin_tail(z, root)
    total, lost = sum_fast(0.5 * pi, -2.0 * root)
    beyond = total + (lost + fma(-2.0, tail + root_rest, 0.5 * pi_rest))
    return with_sign_of(select(far, beyond, root + tail), x)


@implements(acos)
def _acos(x: Floating) -> Any:
    return applied(_acos_wide, x)


def _acos_wide(x: Floating) -> Any:
    # base - turn * root: pi/2 - asin(x) for |x| <= 1/2, 2 asin(root) and pi - 2 asin(root) beyond.
    far, z, root, root_rest, pi, pi_rest = _split_at_half(x)
    rest = select(far, root_rest, 0.0) + _asin_tail(z, root)
    factor = select(far, select(x > 0.0, x.dtype(2.0), -2.0), select(x > 0.0, x.dtype(-1.0), 1.0))
    share = select(far, select(x > 0.0, x.dtype(0.0), 1.0), 0.5)
    total, lost = sum_fast(share * pi, factor * root)
    return total + (lost + fma(factor, rest, share * pi_rest))


@implements(atan)
def _atan(x: Floating) -> Any:
    return applied(_atan_wide, x)


def _atan_wide(x: Floating) -> Any:
    # Above 1: pi/2 + atan(-1 / size).
    pi, pi_rest = PI_32
    if x.dtype == float64:
        pi, pi_rest = PI_64
    size = abs(x)
    size = select(size > MAX_ARGUMENT, MAX_ARGUMENT, size)
    far = size > 1.0
    t = select(far, -1.0 / size, size)
    # atan(t + t e) = atan t + e t / (1 + t**2), which counts near 1.
    error = fma(t, size, 1.0)
    rest = fma(0.6 * t, error, 0.5 * pi_rest)
    cube, factor = _atan_tail(t)
    head, lost = sum_fast(x.dtype(0.5 * pi), t)
    return with_sign_of(select(far, head + fma(cube, factor, lost + rest), fma(cube, factor, t)), x)


# No number here is larger, for its inverse would be subnormal.
MAX_ARGUMENT = 2.0**100


def _atan_tail(t: Floating) -> Any:
    """Two factors whose product is atan(t) - t, for |t| <= 1."""
    z = t * t
    factor = polynomial_in_halves(z, ATAN_64) if t.dtype == float64 else polynomial(z, ATAN_32)
    return t * z, factor


@implements(atan2)
def _atan2(y: Floating, x: Floating) -> Any:
    return applied_to_two(_atan2_wide, y, x)


def _atan2_wide(y: Floating, x: Floating) -> Any:
    """atan(small / large) of the two sizes, from 0, pi/2 or pi on, upwards or downwards."""
    pi, pi_rest = PI_32
    least, most, tiny = 2.0**-60, 2.0**60, 2.0**-126
    if x.dtype == float64:
        pi, pi_rest = PI_64
        least, most, tiny = 2.0**-500, 2.0**500, 2.0**-1022
    high, wide = abs(y), abs(x)
    small, large = select(high > wide, wide, high), select(high > wide, high, wide)
    extreme = rare(((small < least) & (small != 0.0)) | (large > most))
    if x.width > 1:
        high_near, wide_near = _brought_near(high, wide, large)
        high, wide = select(extreme, high_near, high), select(extreme, wide_near, wide)
    else:
        if extreme:
            high, wide = _brought_near(high, wide, large)
    steep = high > wide
    small, large = select(steep, wide, high), select(steep, high, wide)
    large = select(large < tiny, tiny, large)  # then `small` is 0
    # Downwards from pi, and from pi/2 where x > 0.
    below = with_sign_of(large, x)
    below = select(steep, -below, below)
    t, t_rest = quotient_sum(small, 0.0, below, 0.0)
    left = with_sign_of(x.dtype(1.0), x) < 0.0
    base = select(steep, x.dtype(0.5 * pi), select(left, x.dtype(pi), 0.0))
    rest = select(steep, x.dtype(0.5 * pi_rest), select(left, x.dtype(pi_rest), 0.0))
    # atan(t + d) = atan t + d / (1 + t**2)
    rest = rest + fma(-0.5 * t * t, t_rest, t_rest)
    cube, factor = _atan_tail(t)
    head, lost = sum_fast(base, t)
    return with_sign_of(head + fma(cube, factor, lost + rest), y)


def _brought_near(a: Floating, b: Floating, large: Floating) -> Any:
    """Two numbers >= 0 times one power of two, so that neither the larger nor its inverse is near the ends.

    An infinity is far beyond all numbers, and equal to another one.
    """
    if a.dtype == float64:
        factor = select(large > 2.0**500, a.dtype(2.0**-100), 2.0**520)
    else:
        factor = select(large > 2.0**60, a.dtype(2.0**-24), 2.0**64)
    infinite = large == INFINITY
    return select(infinite, _infinities(a), a * factor), select(infinite, _infinities(b), b * factor)


def _infinities(a: Floating) -> Any:
    """1 for infinity, 0 for other numbers."""
    return select(a < INFINITY, 0.0, select(a == INFINITY, 1.0, a))
