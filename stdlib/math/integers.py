"""Functions of integers and of how numbers compare: `gcd`, `lcm`, `next_power_of_two`, `isclose`, `modf`.

Compile-time integers are computed as Python does.
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    SIMD,
    AnyDType,
    Floating,
    Inexact,
    Integral,
    Number,
    Parts,
    abs,
    bit_width,
    copysign,
    float32,
    float64,
    gcd,
    implements,
    isclose,
    isfinite,
    isinf,
    isnan,
    lcm,
    modf,
    next_power_of_two,
    select,
    static_assert,
    trunc,
)


@implements(next_power_of_two)
def _next_power_of_two(x: Integral) -> Any:
    if isinstance(x, int):
        power = 1
        while power < x:
            power = power * 2
        return power
    static_assert(x.dtype.is_integral(), "next_power_of_two takes an integer")
    one = x * 0 + 1
    return select(x <= 1, one, one << bit_width(x - 1))


def _of_one_type(x: Integral, y: Integral) -> Any:
    """Both numbers in the type of their sum; a number on either side takes the type of the other."""
    both = x & y
    lanes = SIMD[both.dtype, both.width]
    return lanes(x), lanes(y)


@implements(gcd)
def _gcd(x: Integral, y: Integral) -> Any:
    """Euclid's algorithm: all lanes of vectors go on until the last is done."""
    if isinstance(x, int) and isinstance(y, int):
        while y != 0:
            x, y = y, x % y
        return -x if x < 0 else x
    a, b = _of_one_type(x, y)
    static_assert(a.dtype.is_integral(), "gcd takes integers")
    if a.width == 1:
        while b != 0:
            a, b = b, a % b
    else:
        going = b != 0
        while going.reduce_or():
            rest = a % select(going, b, 1)
            a, b = select(going, b, a), select(going, rest, 0)
            going = b != 0
    return abs(a)


@implements(lcm)
def _lcm(x: Integral, y: Integral) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        if x == 0 or y == 0:
            return 0
        product = x // gcd(x, y) * y
        return -product if product < 0 else product
    a, b = _of_one_type(x, y)
    divisor = gcd(a, b)
    return abs(a // select(divisor == 0, 1, divisor)) * abs(b)


@implements(isclose)
def _isclose(x: Parts, y: Parts, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    difference = x - y
    if isinstance(difference, (int, float)):
        return _near(float(x), float(y), rtol, atol, equal_nan)
    if difference.dtype.is_half():
        return _near(_as(x, float32), _as(y, float32), rtol, atol, equal_nan)
    if difference.dtype.is_integral():
        return _near(_as(x, float64), _as(y, float64), rtol, atol, equal_nan)
    return _near(x, y, rtol, atol, equal_nan)


def _as(x: Number, dtype: AnyDType) -> Any:
    """A number as a float; one of Python's takes the type of the other."""
    if isinstance(x, (int, float)):
        return dtype(x)
    return x.cast(dtype)


def _near(x: Inexact, y: Inexact, rtol: float, atol: float, equal_nan: bool) -> Any:
    size = abs(y)
    near = (abs(x - y) <= size * rtol + atol) & isfinite(size) | (x == y)
    if equal_nan:
        return near | (isnan(abs(x)) & isnan(size))
    return near


@implements(modf)
def _modf(x: Floating) -> Any:
    static_assert(x.dtype.is_float() and not x.dtype.is_storage(), "modf takes a float: cast the value first")
    whole = trunc(x)
    return copysign(select(isinf(x), 0.0, x - whole), x), whole
