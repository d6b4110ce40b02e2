"""`fmod`, `remainder`, `%` and `//` of floats in the kernel language; see `math.functions` for what all of these have
in common.

Remainders are exact, so there is one right answer for each pair of numbers. See also `compiler.lowering.arithmetic`
(integers).
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    Bool,
    Floating,
    Integral,
    abs,
    copysign,
    float64,
    floor,
    fma,
    fmod,
    frexp,
    implements,
    int64,
    ldexp,
    min,
    rare,
    remainder,
    select,
    trunc,
)
from .parts import INFINITY, applied_to_two, as_wide, power_of_two, with_sign_of


def _rest(x: Floating, y: Floating) -> Any:
    """x modulo y, for x >= 0 and y >= 0; NaN for infinite x or y = 0.

    Below `reach` the rounded quotient is a whole number or has a fraction, and is off by less than 1. Cut off it is the
    right one or the next. x and y are multiples of y's last place, and so is what is left, which is no larger than y:
    a number without rounding.
    """
    reach = 2.0**24
    if x.dtype == float64:
        reach = 2.0**53
    far = rare((x >= y * reach) & (x < INFINITY) & (y > 0.0))
    rest = fma(-trunc(x / y), y, x)
    rest = select(rest < 0.0, rest + y, rest)
    rest = select(x < y, x, rest)  # y may be infinite
    if x.width > 1:
        rest = select(far, _rest_far(x, y, far), rest)
    else:
        if far:
            rest = _rest_far(x, y, far)
    return rest


def _rest_far(x: Floating, y: Floating, far: bool | Bool) -> Any:
    """The same for x far above y: long division, whose digits have as many bits as a quotient above."""
    mantissa, exponent = frexp(x)
    divisor, place = frexp(y)
    left = as_wide(select(far, exponent - place, 0), x)
    bits = 23
    if x.dtype == float64:
        bits = 52
    rest = select(mantissa < divisor, mantissa, mantissa - divisor)
    for _ in range((_largest(left) + (bits - 1)) // bits):
        now = min(left, bits)
        part = rest * power_of_two(now)
        rest = fma(-trunc(part / divisor), divisor, part)
        rest = select(rest < 0.0, rest + divisor, rest)
        left = left - now
    return ldexp(rest, place)


def _largest(n: Integral) -> Any:
    """The largest of all lanes, as an Int."""
    if n.width > 1:
        return n.reduce_max().cast(int64)
    return n.cast(int64)


@implements(fmod)
def _fmod(x: Floating, y: Floating) -> Any:
    return applied_to_two(_fmod_wide, x, y)


def _fmod_wide(x: Floating, y: Floating) -> Any:
    return with_sign_of(_rest(abs(x), abs(y)), x)


@implements("mod")
def _mod(x: Floating, y: Floating) -> Any:
    """`x % y` with the sign of y, that of zeros included."""
    return applied_to_two(_mod_wide, x, y)


def _mod_wide(x: Floating, y: Floating) -> Any:
    size = abs(y)
    rest = _rest(abs(x), size)
    differ = (x < 0.0) != (y < 0.0)
    return with_sign_of(select(differ & (rest > 0.0), size - rest, rest), y)


@implements("floordiv")
def _floordiv(x: Floating, y: Floating) -> Any:
    return applied_to_two(_floordiv_wide, x, y)


def _floordiv_wide(x: Floating, y: Floating) -> Any:
    """`x // y` in CPython's way (Objects/floatobject.c).

    With the remainder r of x, q = (x - r) / y is whole but for its rounding, and one less where r and y differ in sign.
    A quotient of 0 has the sign of x / y; a division by 0 gives what `/` gives.
    """
    rest = _fmod_wide(x, y)
    quotient = (x - rest) / y
    quotient = select((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), quotient - 1.0, quotient)
    floored = floor(quotient)
    nearest = select(quotient - floored > 0.5, floored + 1.0, floored)
    plain = x / y
    return select(y == 0.0, plain, select(quotient == 0.0, copysign(x.dtype(0.0), plain), nearest))


@implements(remainder)
def _remainder(x: Floating, y: Floating) -> Any:
    return applied_to_two(_remainder_wide, x, y)


def _remainder_wide(x: Floating, y: Floating) -> Any:
    # With 0 <= r < 2 |y| (or r = |x|, where 2 |y| is infinite) it is r, r - |y| or r - 2 |y|, all of them exact. Halves
    # are compared by what is left of |y|, for half of a tiny y is not exact.
    divisor = abs(y)
    r = _rest(abs(x), divisor + divisor)
    above = r > divisor - r
    r = select(above, r - divisor, r)
    again = above & (r >= divisor - r)
    r = select(again, r - divisor, r)
    return r * with_sign_of(x.dtype(1.0), x)
