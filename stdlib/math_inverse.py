"""`asin`, `acos`, `atan` and `atan2` in the kernel language; see `math` for what all of these have in common.

Input: floats of any dtype. Output: values of the same type. Non-goals: as in `math`.
"""

from __future__ import annotations

from typing import Any

from ..dsl import abs, acos, asin, atan, atan2, float64, fma, implements, select, sqrt
from .math_parts import (
    INFINITY,
    NAN,
    applied,
    applied_to_two,
    polynomial,
    quotient_sum,
    sum_exact,
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
# (atan(x) / x - 1) / z with z = x**2 up to tan(pi/8), relative to atan(x): 2**-30 and 2**-59
ATAN_32 = (
    -0.0609005652,
    0.105991691,
    -0.14244391,
    0.199985281,
    -0.333333164,
)
ATAN_64 = (
    -0.017908446439995267,
    0.038065514351594644,
    -0.05039335378598611,
    0.05847894651477997,
    -0.06663104602476042,
    0.07692060251405856,
    -0.09090897759570839,
    0.11111110783551698,
    -0.14285714280200398,
    0.19999999999953677,
    -0.333333333333332,
)

# pi as a sum of two floats
PI_32 = (3.14159274, -8.74227766e-08)
PI_64 = (3.141592653589793, 1.2246467991473532e-16)


def _half_angle(size: Any) -> Any:
    """sqrt((1 - size) / 2) and what it lost, for 1/2 < size <= 1: the sine of half of acos(size)."""
    tiny = 2.0**-100
    if size.dtype == float64:
        tiny = 2.0**-900
    z = fma(-0.5, size, 0.5)
    root = sqrt(z)
    return z, root, fma(-root, root, z) / (root + root + tiny)


def _split_at_half(x: Any) -> Any:
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


def _asin_tail(z: Any, root: Any) -> Any:
    """asin(root) - root for z = root**2."""
    if z.dtype == float64:
        return root * z * polynomial(z, ASIN_64)
    return root * z * polynomial(z, ASIN_32)


@implements(asin)
def _asin(x: Any) -> Any:
    return applied(_asin_wide, x)


def _asin_wide(x: Any) -> Any:
    # Above 1/2: pi/2 - 2 asin(sqrt((1 - size) / 2)). Below, the root is the size.
    far, z, root, root_rest, pi, pi_rest = _split_at_half(x)
    tail = _asin_tail(z, root)
    total, lost = sum_fast(0.5 * pi, -2.0 * root)
    beyond = total + (lost + fma(-2.0, tail + root_rest, 0.5 * pi_rest))
    return with_sign_of(select(far, beyond, root + tail), x)


@implements(acos)
def _acos(x: Any) -> Any:
    return applied(_acos_wide, x)


def _acos_wide(x: Any) -> Any:
    # base - turn * root: pi/2 - asin(x) for |x| <= 1/2, 2 asin(root) and pi - 2 asin(root) beyond.
    far, z, root, root_rest, pi, pi_rest = _split_at_half(x)
    rest = select(far, root_rest, 0.0) + _asin_tail(z, root)
    factor = select(far, select(x > 0.0, x.dtype(2.0), -2.0), select(x > 0.0, x.dtype(-1.0), 1.0))
    share = select(far, select(x > 0.0, x.dtype(0.0), 1.0), 0.5)
    total, lost = sum_fast(share * pi, factor * root)
    return total + (lost + fma(factor, rest, share * pi_rest))


@implements(atan)
def _atan(x: Any) -> Any:
    return applied(_atan_wide, x)


def _atan_wide(x: Any) -> Any:
    size = abs(x)
    total, rest = _angle(select(size > LARGE, LARGE, size), x.dtype(1.0))
    return with_sign_of(select(x == x, total + rest, x), x)


# No number here is larger, for its inverse would be subnormal.
LARGE = 2.0**100


def _angle(y: Any, x: Any) -> Any:
    """The angle of a point with x, y >= 0 as a sum of two floats; the larger of x and y is far from both ends.

    Between tan(pi/8) and its inverse it is pi/4 more than the angle of (x + y, y - x), above it pi/2 more than that of
    (y, -x).
    """
    pi, pi_rest = PI_32
    if x.dtype == float64:
        pi, pi_rest = PI_64
    steep = y > 2.414213562373095 * x
    flat = y <= 0.41421356237309503 * x
    total, total_rest = sum_exact(x, y)
    difference, difference_rest = sum_exact(y, -x)
    above = select(flat, y, select(steep, -x, difference))
    above_rest = select(flat | steep, 0.0, difference_rest)
    below = select(flat, x, select(steep, y, total))
    below_rest = select(flat | steep, 0.0, total_rest)
    share = select(flat, x.dtype(0.0), select(steep, x.dtype(0.5), 0.25))
    t, t_rest = quotient_sum(above, above_rest, below, below_rest)
    z = t * t
    tail = t * z * (polynomial(z, ATAN_64) if x.dtype == float64 else polynomial(z, ATAN_32))
    angle, lost = sum_fast(share * pi, t)
    # atan(t + d) = atan t + d / (1 + t**2)
    return angle, lost + fma(share, pi_rest, tail + fma(-z, t_rest, t_rest))


@implements(atan2)
def _atan2(y: Any, x: Any) -> Any:
    return applied_to_two(_atan2_wide, y, x)


def _atan2_wide(y: Any, x: Any) -> Any:
    pi, pi_rest = PI_32
    if x.dtype == float64:
        pi, pi_rest = PI_64
    high, wide = abs(y), abs(x)
    # Infinities are far beyond all numbers, and equal to each other; (0, 0) lies on the axis.
    infinite = (high == INFINITY) | (wide == INFINITY)
    high = select(infinite, select(high == INFINITY, x.dtype(1.0), 0.0), high)
    wide = select(infinite, select(wide == INFINITY, x.dtype(1.0), 0.0), wide)
    wide = select((high == 0.0) & (wide == 0.0), 1.0, wide)
    high, wide = _brought_near(high, wide)
    angle, rest = _angle(high, wide)
    left = with_sign_of(x.dtype(1.0), x) < 0.0
    total, lost = sum_fast(x.dtype(pi), -angle)
    angle = select(left, total + (lost + (pi_rest - rest)), angle + rest)
    return with_sign_of(select((x == x) & (y == y), angle, NAN), y)


def _brought_near(a: Any, b: Any) -> Any:
    """Two numbers >= 0 times one power of two, so that the inverse of the larger is a normal number."""
    largest = select(a > b, a, b)
    if a.dtype == float64:
        factor = select(largest > 2.0**100, a.dtype(2.0**-100), select(largest < 2.0**-100, a.dtype(2.0**974), 1.0))
    else:
        factor = select(largest > 2.0**60, a.dtype(2.0**-24), select(largest < 2.0**-60, a.dtype(2.0**89), 1.0))
    return a * factor, b * factor
