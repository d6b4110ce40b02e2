"""Complex numbers: what operators and mathematical functions mean on complex64 and complex128.

Everything is computed on real and imaginary parts, so that vectors and GPUs see floats alone. Products are the textbook
formula and quotients Smith's, as in NumPy: an infinite operand may give NaN parts. `exp`, `log`, `sqrt` and `abs` have
the special values of C99 (annex G); the others have them where their formulas give them.

Input: complex numbers or vectors of one type. Output: the same type; floats of the parts' type from `abs`, Bools from
comparisons. Non-goals: no order among complex numbers.
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    abs,
    atan2,
    copysign,
    cos,
    cosh,
    exp,
    float32,
    float64,
    hypot,
    implements,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    select,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from .parts import INFINITY, product_exact, sum_exact

NAN = float("nan")
LN2 = 0.6931471805599453
LOG2_E = 1.4426950408889634
LOG10_E = 0.4342944819032518


def _made(like: Any, real: Any, imag: Any) -> Any:
    """The complex number of two parts."""
    return like.dtype(real, imag)


# *** operators ***


@implements("complex.add")
def _add(x: Any, y: Any) -> Any:
    return _made(x, x.real + y.real, x.imag + y.imag)


@implements("complex.sub")
def _sub(x: Any, y: Any) -> Any:
    return _made(x, x.real - y.real, x.imag - y.imag)


@implements("complex.mul")
def _mul(x: Any, y: Any) -> Any:
    return _made(x, x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)


@implements("complex.truediv")
def _truediv(x: Any, y: Any) -> Any:
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
def _neg(x: Any) -> Any:
    return _made(x, -x.real, -x.imag)


@implements("complex.eq")
def _eq(x: Any, y: Any) -> Any:
    return (x.real == y.real) & (x.imag == y.imag)


@implements("complex.ne")
def _ne(x: Any, y: Any) -> Any:
    return (x.real != y.real) | (x.imag != y.imag)


@implements("complex.abs")
def _abs(x: Any) -> Any:
    return hypot(x.real, x.imag)


@implements("complex.isnan")
def _isnan(x: Any) -> Any:
    return isnan(x.real) | isnan(x.imag)


@implements("complex.isinf")
def _isinf(x: Any) -> Any:
    return isinf(x.real) | isinf(x.imag)


@implements("complex.isfinite")
def _isfinite(x: Any) -> Any:
    return isfinite(x.real) & isfinite(x.imag)


# *** roots, powers, exponentials ***


@implements("complex.sqrt")
def _sqrt(x: Any) -> Any:
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
def _exp(x: Any) -> Any:
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
def _exp2(x: Any) -> Any:
    return exp(_made(x, x.real * LN2, x.imag * LN2))


@implements("complex.log")
def _log(x: Any) -> Any:
    return _made(x, _log_size(x.real, x.imag), atan2(x.imag, x.real))


def _log_size(a: Any, b: Any) -> Any:
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
def _log2(x: Any) -> Any:
    found = log(x)
    return _made(x, found.real * LOG2_E, found.imag * LOG2_E)


@implements("complex.log10")
def _log10(x: Any) -> Any:
    found = log(x)
    return _made(x, found.real * LOG10_E, found.imag * LOG10_E)


@implements("complex.pow")
def _pow(x: Any, y: Any) -> Any:
    """exp(y log x); 1 for an exponent of 0, and 0 to a power whose real part is positive is 0, as in NumPy."""
    found = exp(y * log(x))
    nothing = (x.real == 0.0) & (x.imag == 0.0)
    one = (y.real == 0.0) & (y.imag == 0.0)
    real = select(nothing, select(y.real > 0.0, x.real.dtype(0.0), NAN), found.real)
    imag = select(nothing, select(y.real > 0.0, x.real.dtype(0.0), NAN), found.imag)
    return _made(x, select(one, 1.0, real), select(one, 0.0, imag))


# *** circular and hyperbolic functions ***


@implements("complex.sinh")
def _sinh(x: Any) -> Any:
    a, b = x.real, x.imag
    return _made(x, select(b == 0.0, sinh(a), sinh(a) * cos(b)), select(b == 0.0, b, cosh(a) * sin(b)))


@implements("complex.cosh")
def _cosh(x: Any) -> Any:
    a, b = x.real, x.imag
    flat = (a == 0.0) | (b == 0.0)
    return _made(x, select(b == 0.0, cosh(a), cosh(a) * cos(b)), select(flat, a * b, sinh(a) * sin(b)))


@implements("complex.tanh")
def _tanh(x: Any) -> Any:
    """Kahan's formula ("Branch Cuts for Complex Elementary Functions", 1987)."""
    a, b = x.real, x.imag
    far = abs(a) > (22.0 if a.dtype == float64 else 11.0)
    held = select(far, a.dtype(0.0), a)
    slope, s = tan(b), sinh(held)
    beta, rho = 1.0 + slope * slope, sqrt(1.0 + s * s)
    below = 1.0 + beta * s * s
    real, imag = beta * rho * s / below, slope / below
    tail = 4.0 * sin(b) * cos(b) * exp(-2.0 * abs(a))
    imag = select(far, select(isfinite(b), tail, copysign(a.dtype(0.0), b)), imag)
    return _made(x, select(far, copysign(a.dtype(1.0), a), real), select(b == 0.0, b, imag))


@implements("complex.sin")
def _sin(x: Any) -> Any:
    turned = sinh(_made(x, -x.imag, x.real))
    return _made(x, turned.imag, -turned.real)


@implements("complex.cos")
def _cos(x: Any) -> Any:
    return cosh(_made(x, -x.imag, x.real))


@implements("complex.tan")
def _tan(x: Any) -> Any:
    turned = tanh(_made(x, -x.imag, x.real))
    return _made(x, turned.imag, -turned.real)
