"""Complex numbers: what operators and mathematical functions mean on complex64 and complex128.

Everything is computed on real and imaginary parts, so that vectors and GPUs see floats alone. Products are the textbook
formula and quotients Smith's, as in NumPy: an infinite operand may give NaN parts. `exp`, `log`, `sqrt`, `abs`,
hyperbolic and inverse functions have the special values of C99 (annex G), `**` where its formula gives them.
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    ComplexFloating,
    Floating,
    Parts,
    abs,
    acos,
    asin,
    asinh,
    atan2,
    atanh,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    float32,
    float64,
    fma,
    hypot,
    implements,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    rare,
    select,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from .parts import INFINITY, product_exact, sum_exact

NAN = float("nan")
PI = 3.141592653589793
LN2 = 0.6931471805599453
LOG2_E = 1.4426950408889634
LOG10_E = 0.4342944819032518


def _made(like: ComplexFloating, real: Floating, imag: Floating) -> Any:
    """The complex number of two parts."""
    return like.dtype(real, imag)


# *** operators ***


@implements("complex.add")
def _add(x: ComplexFloating, y: ComplexFloating) -> Any:
    return _made(x, x.real + y.real, x.imag + y.imag)


@implements("complex.sub")
def _sub(x: ComplexFloating, y: ComplexFloating) -> Any:
    return _made(x, x.real - y.real, x.imag - y.imag)


@implements("complex.mul")
def _mul(x: ComplexFloating, y: ComplexFloating) -> Any:
    return _made(x, x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


@implements("complex.reciprocal")
def _reciprocal(x: ComplexFloating) -> Any:
    return 1 / x


@implements("complex.truediv")
def _truediv(x: ComplexFloating, y: ComplexFloating) -> Any:
    """Divides by the larger part first (Smith, "Algorithm 116: Complex division", 1962)."""
    upright = abs(y.real) < abs(y.imag)
    large, small = select(upright, y.imag, y.real), select(upright, y.real, y.imag)
    a, b = select(upright, x.imag, x.real), select(upright, x.real, x.imag)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    real = (a + b * ratio) * scale
    imag = select(upright, (a * ratio - b) * scale, (b - a * ratio) * scale)
    zero = (y.real == 0.0) & (y.imag == 0.0)
    return _made(x, select(zero, x.real / abs(y.real), real), select(zero, x.imag / abs(y.real), imag))


@implements("complex.neg")
def _neg(x: ComplexFloating) -> Any:
    return _made(x, -x.real, -x.imag)


@implements("complex.eq")
def _eq(x: ComplexFloating, y: ComplexFloating) -> Any:
    return (x.real == y.real) & (x.imag == y.imag)


@implements("complex.ne")
def _ne(x: ComplexFloating, y: ComplexFloating) -> Any:
    return (x.real != y.real) | (x.imag != y.imag)


@implements("complex.abs")
def _abs(x: ComplexFloating) -> Any:
    """`hypot` of the parts; of those of complex64 without float64, but where the sum of squares is no normal number."""
    a, b = x.real, x.imag
    if a.dtype == float64:
        return hypot(a, b)
    square = fma(a, a, b * b)
    normal = (square >= 2.0**-100) & (square < INFINITY)
    odd = rare(~(normal | ((a == 0.0) & (b == 0.0))))
    return select(odd, hypot(a, b), sqrt(square))


@implements("complex.isnan")
def _isnan(x: ComplexFloating) -> Any:
    return isnan(x.real) | isnan(x.imag)


@implements("complex.isinf")
def _isinf(x: ComplexFloating) -> Any:
    return isinf(x.real) | isinf(x.imag)


@implements("complex.isfinite")
def _isfinite(x: ComplexFloating) -> Any:
    return isfinite(x.real) & isfinite(x.imag)


# *** roots, powers, exponentials ***


@implements("complex.sqrt")
def _sqrt(x: ComplexFloating) -> Any:
    """The root whose real part is not negative; its imaginary part has the sign of that of x."""
    if x.real.dtype == float32:  # neither overflows nor loses digits in float64
        a, b = x.real.cast(float64), x.imag.cast(float64)
        back = 1.0
    else:
        size = select(abs(x.real) > abs(x.imag), abs(x.real), abs(x.imag))
        large, tiny = size > 2.0**1020, size < 2.0**-960
        factor = select(large, x.real.dtype(0.0625), select(tiny, x.real.dtype(2.0**108), 1.0))
        back = select(large, x.real.dtype(4.0), select(tiny, x.real.dtype(2.0**-54), 1.0))
        a, b = x.real * factor, x.imag * factor
    root = sqrt((abs(a) + hypot(a, b)) * 0.5)
    other = select(root == 0.0, root, abs(b) / (root + root))
    right = a >= 0.0
    real = (select(right, root, other) * back).cast(x.real.dtype)
    imag = copysign(select(right, other, root) * back, b).cast(x.real.dtype)
    # C99: what is infinite, then what is NaN
    endless = isinf(x.imag)
    right_end, left_end = x.real == INFINITY, x.real == -INFINITY
    real = select(right_end, x.real, select(left_end, select(isnan(x.imag), x.imag, 0.0), real))
    imag = select(right_end, select(isnan(x.imag), x.imag, copysign(x.real.dtype(0.0), x.imag)), imag)
    imag = select(left_end, copysign(x.real.dtype(INFINITY), x.imag), imag)
    lost = isnan(x.real)
    real, imag = select(lost, x.real, real), select(lost, x.real, imag)
    return _made(x, select(endless, INFINITY, real), select(endless, x.imag, imag))


@implements("complex.exp")
def _exp(x: ComplexFloating) -> Any:
    a, b = x.real, x.imag
    most, step, back = 80.0, 60.0, 1.1420073898156842e26
    if a.dtype == float64:
        most, step, back = 700.0, 600.0, 3.7730203009299397e260
    far = (a > most) & (a < INFINITY)  # exp(a) may overflow where its product with a small cosine does not
    size = exp(select(far, a - step, a))
    real, imag = size * cos(b), size * sin(b)
    real, imag = select(far, real * back, real), select(far, imag * back, imag)
    imag = select(b == 0.0, b, imag)
    real = select(b == 0.0, select(far, size * back, size), real)
    wild = ~isfinite(b)
    vanishes, grows = (a == -INFINITY) & wild, (a == INFINITY) & wild
    real = select(vanishes, 0.0, select(grows, INFINITY, real))
    return _made(x, real, select(vanishes, 0.0, imag))


@implements("complex.exp2")
def _exp2(x: ComplexFloating) -> Any:
    return exp(_made(x, x.real * LN2, x.imag * LN2))


@implements("complex.log")
def _log(x: ComplexFloating) -> Any:
    return _made(x, _log_size(x.real, x.imag), atan2(x.imag, x.real))


def _log_size(a: Floating, b: Floating) -> Any:
    """The logarithm of hypot(a, b), with all its digits also where that is near 1."""
    if a.dtype == float32:
        wide, other = a.cast(float64), b.cast(float64)
        size = (0.5 * log(wide * wide + other * other)).cast(float32)
        return select(isinf(a) | isinf(b), INFINITY, size)
    size = hypot(a, b)
    swap = abs(b) > abs(a)
    large, small = select(swap, abs(b), abs(a)), select(swap, abs(a), abs(b))
    square, rest = product_exact(large, large)
    other, other_rest = product_exact(small, small)
    total, lost = sum_exact(square - 1.0, other)
    near = 0.5 * log1p(total + (lost + (rest + other_rest)))
    return select((size > 0.75) & (size < 1.5), near, log(size))


@implements("complex.log2")
def _log2(x: ComplexFloating) -> Any:
    result = log(x)
    return _made(x, result.real * LOG2_E, result.imag * LOG2_E)


@implements("complex.log10")
def _log10(x: ComplexFloating) -> Any:
    result = log(x)
    return _made(x, result.real * LOG10_E, result.imag * LOG10_E)


@implements("complex.pow")
def _pow(x: ComplexFloating, y: ComplexFloating) -> Any:
    """exp(y log x); 1 for an exponent of 0, and 0 to a power whose real part is positive is 0, as in NumPy."""
    result = exp(y * log(x))
    nothing = (x.real == 0.0) & (x.imag == 0.0)
    one = (y.real == 0.0) & (y.imag == 0.0)
    real = select(nothing, select(y.real > 0.0, x.real.dtype(0.0), NAN), result.real)
    imag = select(nothing, select(y.real > 0.0, x.real.dtype(0.0), NAN), result.imag)
    return _made(x, select(one, 1.0, real), select(one, 0.0, imag))


# *** circular and hyperbolic functions ***


@implements("complex.sinh")
def _sinh(x: ComplexFloating) -> Any:
    a, b = x.real, x.imag
    kept = ((a == 0.0) | isinf(a)) & ~isfinite(b)
    real = select(kept, a, select(b == 0.0, sinh(a), sinh(a) * cos(b)))
    return _made(x, real, select(b == 0.0, b, cosh(a) * sin(b)))


@implements("complex.cosh")
def _cosh(x: ComplexFloating) -> Any:
    a, b = x.real, x.imag
    real = select(isinf(a) & ~isfinite(b), INFINITY, select(b == 0.0, cosh(a), cosh(a) * cos(b)))
    zero = copysign(a.dtype(0.0), a) * copysign(a.dtype(1.0), b)
    return _made(x, real, select((a == 0.0) | (b == 0.0), zero, sinh(a) * sin(b)))


@implements("complex.tanh")
def _tanh(x: ComplexFloating) -> Any:
    """Kahan's formula ("Branch Cuts for Complex Elementary Functions", 1987)."""
    a, b = x.real, x.imag
    far = abs(a) > (22.0 if a.dtype == float64 else 11.0)
    held = select(far, a.dtype(0.0), a)
    slope, s = tan(b), sinh(held)
    beta, rho = 1.0 + slope * slope, sqrt(1.0 + s * s)
    below = 1.0 + beta * s * s
    real, imag = beta * rho * s / below, slope / below
    tail = 4.0 * sin(b) * cos(b) * exp(-2.0 * abs(a))
    imag = select(isinf(a), copysign(a.dtype(0.0), b), select(far, tail, imag))
    real = select(far, copysign(a.dtype(1.0), a), real)
    wild = ~isfinite(b) & isfinite(a)
    real = select(wild, select(a == 0.0, a, NAN), real)
    return _made(x, real, select(wild, NAN, select(b == 0.0, b, imag)))


@implements("complex.sin")
def _sin(x: ComplexFloating) -> Any:
    turned = sinh(_made(x, -x.imag, x.real))
    return _made(x, turned.imag, -turned.real)


@implements("complex.cos")
def _cos(x: ComplexFloating) -> Any:
    return cosh(_made(x, -x.imag, x.real))


@implements("complex.tan")
def _tan(x: ComplexFloating) -> Any:
    turned = tanh(_made(x, -x.imag, x.real))
    return _made(x, turned.imag, -turned.real)


@implements("complex.expm1")
def _expm1(x: ComplexFloating) -> Any:
    """exp(a) cos(b) - 1 is expm1(a) cos(b) less 2 sin(b / 2)**2."""
    a, b = x.real, x.imag
    half = sin(b * 0.5)
    real, imag = expm1(a) * cos(b) - 2.0 * half * half, exp(a) * sin(b)
    wild = ~isfinite(b)
    vanishes, grows = (a == -INFINITY) & wild, (a == INFINITY) & wild
    real = select(b == 0.0, expm1(a) + 0.0, select(vanishes, -1.0, select(grows, INFINITY, real)))
    return _made(x, real, select(b == 0.0, b, select(vanishes, 0.0, imag)))


@implements("complex.log1p")
def _log1p(x: ComplexFloating) -> Any:
    a, b = x.real, x.imag
    wide_a, wide_b = a.cast(float64), b.cast(float64)
    near = 0.5 * log1p(wide_a * (2.0 + wide_a) + wide_b * wide_b)
    small = (abs(a) < 0.5) & (abs(b) < 0.5)
    return _made(x, select(small, near.cast(a.dtype), _log_size(1.0 + a, b)), atan2(b, 1.0 + a))


# *** inverse circular and hyperbolic functions (Kahan, as above) ***


def _roots(a: Floating, b: Parts) -> Any:
    """The roots of 1 - z and of 1 + z, as four parts."""
    below, above = sqrt(complex(1.0 - a, -b)), sqrt(complex(1.0 + a, b))
    return below.real, below.imag, above.real, above.imag


@implements("complex.acos")
def _acos(x: ComplexFloating) -> Any:
    a, b = x.real.cast(float64), x.imag.cast(float64)
    p, q, r, s = _roots(a, b)
    real, imag = 2.0 * atan2(p, r), asinh(r * q - s * p)
    endless = isinf(a) | isinf(b)
    real = select(endless, atan2(abs(b), a), select((a == 0.0) & isnan(b), PI / 2, real))
    imag = select(endless, -copysign(float64(INFINITY), b), imag)
    return _made(x, real.cast(x.real.dtype), imag.cast(x.real.dtype))


@implements("complex.asin")
def _asin(x: ComplexFloating) -> Any:
    a, b = x.real.cast(float64), x.imag.cast(float64)
    p, q, r, s = _roots(a, b)
    real, imag = atan2(a, p * r - q * s), asinh(p * s - q * r)
    endless = isinf(a) | isinf(b)
    real = select(endless, atan2(a, abs(b)), select((a == 0.0) & isnan(b), a, real))
    imag = select(endless, copysign(float64(INFINITY), b), imag)
    return _made(x, real.cast(x.real.dtype), imag.cast(x.real.dtype))


@implements("complex.acosh")
def _acosh(x: ComplexFloating) -> Any:
    turned = acos(x)
    lost = (x.real == 0.0) & isnan(x.imag)
    return _made(x, select(lost, x.imag, abs(turned.imag)), copysign(turned.real, x.imag))


@implements("complex.asinh")
def _asinh(x: ComplexFloating) -> Any:
    turned = asin(_made(x, -x.imag, x.real))
    return _made(x, turned.imag, -turned.real)


@implements("complex.atanh")
def _atanh(x: ComplexFloating) -> Any:
    """Half the logarithm of (1 + z) / (1 - z), whose size is that of 1 + 4 a / |1 - z|**2."""
    a, b = abs(x.real.cast(float64)), x.imag.cast(float64)
    away = (1.0 - a) * (1.0 - a) + b * b
    size = hypot(a, b)
    far = (size > 1e150) & isfinite(size)
    real = select(far, a / size / size, 0.25 * log1p(4.0 * a / away))
    imag = 0.5 * atan2(2.0 * b, (1.0 - a) * (1.0 + a) - b * b)
    endless = isinf(a) | isinf(b)
    real = select(endless, 0.0, select((a == 0.0) & isnan(b), 0.0, real))
    imag = select(
        endless, select(isnan(b), b, copysign(float64(PI / 2), b)), select(b == 0.0, _real_cut(x, a, b), imag)
    )
    return _made(x, copysign(real, x.real.cast(float64)).cast(x.real.dtype), imag.cast(x.real.dtype))


def _real_cut(x: ComplexFloating, a: Floating, b: Floating) -> Any:
    """The imaginary part for real numbers: a turn of a quarter beyond 1; NaN of NaN but at 0."""
    return select(a > 1.0, copysign(float64(PI / 2), b), select(isnan(a), a, b))


@implements("complex.atan")
def _atan(x: ComplexFloating) -> Any:
    turned = atanh(_made(x, -x.imag, x.real))
    return _made(x, turned.imag, -turned.real)
