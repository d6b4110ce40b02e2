"""Mathematics, written in the kernel language: what `exp(x)`, `sin(x)`, `x ** y`, … mean inside a kernel.

The functions use additions, multiplications, `fma`, divisions, square roots and operations on bits, in a fixed order,
and no call of a mathematics library. Instructions of a target that approximate are used by `exp`, and by what is called
with `fast=True` (see `fast`). So every target gives the same bits of all others, and a loop over elements becomes
vector code: cases are chosen with `select`.

Complex numbers are in `math.complex`.

How the polynomials were made: each is a minimax polynomial (Remez's exchange at 60 digits) of the function that is
named next to it, on the interval that is named, for a weight that turns its error into the relative error of the final
result. Coefficients stand highest power first. They were rounded one after another, lowest power first, with the others
fitted again after each; "2**-28" is the largest weighted error with the rounded coefficients. The measured errors of
the finished functions stand in `docs/numerics.md`.
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    SIMD,
    Floating,
    Integral,
    abs,
    bitcast,
    cbrt,
    float32,
    float64,
    fma,
    frexp,
    hypot,
    implements,
    int32,
    int64,
    ldexp,
    rare,
    reciprocal,
    rsqrt,
    select,
    sqrt,
    static_assert,
    unroll,
)
from . import bessel as math_bessel  # noqa: F401
from . import circular as math_circular  # noqa: F401
from . import complex as math_complex  # noqa: F401
from . import error as math_error  # noqa: F401
from . import exponential as math_exponential  # noqa: F401
from . import fast as math_fast  # noqa: F401
from . import gamma as math_gamma  # noqa: F401
from . import hyperbolic as math_hyperbolic  # noqa: F401
from . import integers as math_integers  # noqa: F401
from . import inverse as math_inverse  # noqa: F401
from . import logarithm as math_logarithm  # noqa: F401
from . import power as math_power  # noqa: F401
from . import remainder as math_remainder  # noqa: F401
from .parts import (
    INFINITY,
    applied,
    applied_to_two,
    as_wide,
    clamped,
    fitted,
    is_positive,
    power_of_two,
    product_exact,
    sum_fast,
    with_sign_of,
)

# *** square root ***


@implements(rsqrt)
def _rsqrt(x: Floating) -> Any:
    return applied(_rsqrt_wide, x)


def _rsqrt_wide(x: Floating) -> Any:
    # Both roundings of 1 / sqrt(x) are put right by one step of Newton's. Small numbers are scaled by a power of 4, for
    # their residual would underflow.
    tiny, up, down = 2.0**-60, 2.0**64, 2.0**32
    if x.dtype == float64:
        tiny, up, down = 2.0**-800, 2.0**200, 2.0**100
    small = x < tiny
    scaled = select(small, x * up, x)
    root = sqrt(scaled)
    guess = 1.0 / root
    residual = fma(-root, root, scaled)
    step = fma(-root, guess, 1.0) - 0.5 * residual * guess * guess
    refined = fma(guess, step, guess)
    refined = select(small, refined * down, refined)
    return select((x > 0.0) & (x < INFINITY), refined, guess)


@implements(reciprocal)
def _reciprocal(x: Floating) -> Any:
    return applied(_reciprocal_wide, x)


def _reciprocal_wide(x: Floating) -> Any:
    return 1 / x


@implements(hypot)
def _hypot(x: Floating, y: Floating) -> Any:
    return applied_to_two(_hypot_wide, x, y)


def _hypot_wide(x: Floating, y: Floating) -> Any:
    large, small = abs(x), abs(y)
    swap = small > large
    large, small = select(swap, small, large), select(swap, large, small)
    if x.dtype == float64:
        size = _hypot_64(large, small)
    else:
        wide, other = large.cast(float64), small.cast(float64)
        size = sqrt(fma(wide, wide, other * other)).cast(float32)
    return select((large == INFINITY) | (small == INFINITY), INFINITY, size)


def _hypot_64(large: Floating, small: Floating) -> Any:
    """sqrt(large**2 + small**2), with the root's residual of what is a sum of two floats."""
    up, down = large > 2.0**500, large < 2.0**-500
    factor = select(up, large.dtype(2.0**-600), select(down, large.dtype(2.0**600), 1.0))
    back = select(up, large.dtype(2.0**600), select(down, large.dtype(2.0**-600), 1.0))
    a, b = large * factor, small * factor
    square, rest = product_exact(a, a)
    other, other_rest = product_exact(b, b)
    total, lost = sum_fast(square, other)
    root = sqrt(total)
    error = fma(-root, root, total) + (lost + (rest + other_rest))
    return (root + error / (root + root + 2.0**-900)) * back


# *** cube root ***

# ((1 - e)**(-1/3) - 1) / e on [-0.1024, 0.1024], relative to (1 - e)**(-1/3): 2**-18.6 and 2**-23.3
CBRT_32 = (
    0.174409151,
    0.22348313,
    0.333329797,
)
CBRT_64 = (
    0.14573458956591706,
    0.17448589842629178,
    0.22221631552824045,
    0.3333290357308159,
)


@implements(cbrt)
def _cbrt(x: Floating) -> Any:
    return applied(_cbrt_wide, x)


def _cbrt_wide(x: Floating) -> Any:
    """a y**2 with y near a**(-1/3), put right by its residual. That of small numbers would underflow: they are rare."""
    size = abs(x)
    least, up, down = 2.0**-100, 2.0**54, 2.0**-18
    if x.dtype == float64:
        least, up, down = 2.0**-960, 2.0**120, 2.0**-40
    odd = rare(~((size >= least) & (size < INFINITY)))
    small = size < least
    a = select(odd, select(small, size * up, size), size)
    # a**(-1/3) to 3.5 %, e is 1 - a y**3
    y = _cbrt_guess(a)
    e = fma(y * y, -(a * y), 1.0)
    y = fma(y * e, fitted(e, CBRT_32, CBRT_64), y)
    square = y * y
    root = a * square
    # With t = 1 - root**3 / a the cube root is root (1 - t)**(-1/3) = root + root t (1/3 + 2/9 t + ...).
    residual = fma(root * root, -root, a)
    if x.dtype == float64:
        third = fma(residual * (square * y), 0.2222222222222222, 0.3333333333333333)
        root = fma(residual * square, third, root)
    else:
        root = fma(residual, square * 0.3333333333333333, root)
    root = select(odd, select(small, root * down, root), root)
    return with_sign_of(select(odd, select(small & (size > 0.0), root, size), root), x)


def _cbrt_guess(a: Floating) -> Any:
    """The number whose bits are a constant less a third of those of a, by floats that have the upper bits as digits."""
    if a.dtype == float64:
        digits = bitcast((bitcast(a, int64) >> 32) | 0x4330000000000000, float64)
        return bitcast(bitcast(fma(digits, -0.3333333333333333, 6004800933346816.0), int64) << 32, float64)
    digits = bitcast((bitcast(a, int32) >> 8) | 0x4B000000, float32)
    return bitcast(bitcast(fma(digits, -0.3333333333333333, 16731291.0), int32) << 8, float32)


# *** exponents ***


@implements(frexp)
def _frexp(x: Floating) -> Any:
    static_assert(
        x.dtype.is_float() and not x.dtype.is_storage(), "this function works on floats: cast the value first"
    )
    if x.dtype.is_half():
        mantissa, exponent = _frexp_wide(x.cast(float32))
        return mantissa.cast(x.dtype), exponent
    return _frexp_wide(x)


def _frexp_wide(x: Floating) -> Any:
    odd = rare(~is_positive(abs(x)))
    if x.dtype == float64:
        tiny = abs(x) < 2.2250738585072014e-308
        bits = bitcast(select(odd, select(tiny, x * 18014398509481984.0, x), x), int64)
        exponent = ((bits >> 52) & 0x7FF).cast(int32) - select(odd, select(tiny, int32(1076), 1022), 1022)
        mantissa = bitcast((bits & -0x7FF0000000000001) | 0x3FE0000000000000, float64)
    else:
        tiny = abs(x) < 1.17549435e-38
        bits = bitcast(select(odd, select(tiny, x * 33554432.0, x), x), int32)
        exponent = ((bits >> 23) & 0xFF) - select(odd, select(tiny, int32(151), 126), 126)
        mantissa = bitcast((bits & -0x7F800001) | 0x3F000000, float32)
    ordinary = (x != 0.0) & (x - x == 0.0)
    return select(odd, select(ordinary, mantissa, x), mantissa), select(odd, select(ordinary, exponent, 0), exponent)


@implements(ldexp)
def _ldexp(x: Floating, n: Integral) -> Any:
    static_assert(
        x.dtype.is_float() and not x.dtype.is_storage(), "this function works on floats: cast the value first"
    )
    if x.dtype.is_half():
        return _ldexp_wide(x.cast(float32), n).cast(x.dtype)
    return _ldexp_wide(x, n)


def _ldexp_wide(x: Floating, n: Integral) -> Any:
    up, down, most, step, least = 2.0**127, 2.0**-102, 127, -102, -126
    if x.dtype == float64:
        up, down, most, step, least = 2.0**1023, 2.0**-969, 1023, -969, -1022
    # A product with a normal power of two is rounded once. Others take two steps more to bring the number near its
    # place, which leave it a normal number and so lose nothing.
    wide = SIMD[int64, x.width](n)
    wide = select((n > 0) & (wide < 0), 3000, wide)  # a UInt64 that does not fit Int64
    far = rare((wide > most) | (wide < least))
    left = as_wide(select(far, clamped(wide, -3000, 3000), wide), x)
    for _ in unroll(2):
        above, below = left > most, left < least
        x = select(far, select(above, x * up, select(below, x * down, x)), x)
        left = select(far, select(above, left - most, select(below, left - step, left)), left)
    return x * power_of_two(select(far, clamped(left, least, most), left))
