"""Declares functions of one number and of two: roots, powers, logarithms, angles, remainders, signs, bounds.

One row an op (see `rows`).
"""

from __future__ import annotations

from ..staging.value import TensorValue, TensorValueLike
from .elementwise import maximum, minimum
from .operands import broadcast, check_kind, tensor, tensors
from .rows import elementwise
from .stage import builtin, fail, op

# *** of one number ***


@elementwise("inexact")
def tan(x: TensorValueLike) -> TensorValue:
    """The tangent of x in radians."""


@elementwise("inexact")
def asin(x: TensorValueLike) -> TensorValue:
    """The angle between -pi/2 and pi/2 whose sine is x; NaN beyond -1 and 1."""


@elementwise("inexact")
def atan(x: TensorValueLike) -> TensorValue:
    """The angle between -pi/2 and pi/2 whose tangent is x."""


@elementwise("inexact")
def sinh(x: TensorValueLike) -> TensorValue:
    """The hyperbolic sine."""


@elementwise("inexact")
def cosh(x: TensorValueLike) -> TensorValue:
    """The hyperbolic cosine."""


@elementwise("inexact")
def asinh(x: TensorValueLike) -> TensorValue:
    """The number whose hyperbolic sine is x."""


@elementwise("inexact")
def acosh(x: TensorValueLike) -> TensorValue:
    """The number >= 0 whose hyperbolic cosine is x; NaN below 1."""


@elementwise("inexact")
def exp2(x: TensorValueLike) -> TensorValue:
    """2 to the power x."""


@elementwise("inexact")
def expm1(x: TensorValueLike) -> TensorValue:
    """exp(x) - 1, exact also near 0."""


@elementwise("inexact")
def log2(x: TensorValueLike) -> TensorValue:
    """The logarithm to base 2; NaN below 0, -inf at 0."""


@elementwise("inexact")
def log10(x: TensorValueLike) -> TensorValue:
    """The logarithm to base 10; NaN below 0, -inf at 0."""


@elementwise("float")
def cbrt(x: TensorValueLike) -> TensorValue:
    """The cube root; the sign of x stays."""


@elementwise("float")
def erfc(x: TensorValueLike) -> TensorValue:
    """1 - erf(x), exact also for large x."""


@elementwise("float")
def lgamma(x: TensorValueLike) -> TensorValue:
    """The logarithm of the absolute value of the gamma function; inf at 0, -1, -2, …"""


@elementwise("inexact")
def reciprocal(x: TensorValueLike) -> TensorValue:
    """1 / x."""


@elementwise("number")
def square(x: TensorValueLike) -> TensorValue:
    """x * x; integers wrap."""


@elementwise("numeric")
def sign(x: TensorValueLike) -> TensorValue:
    """-1, 0 or 1 in the dtype of x; NaN of NaN."""


@elementwise("inexact")
def is_finite(x: TensorValueLike) -> TensorValue:
    """True where x is neither infinite nor NaN."""


# *** of two ***


@elementwise("float")
def atan2(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The angle of the point (rhs, lhs), between -pi and pi: the arctangent of lhs / rhs in the right quadrant."""


@elementwise("float")
def hypot(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """sqrt(lhs * lhs + rhs * rhs) without overflow on the way."""


@elementwise("float")
def copysign(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The magnitude of lhs with the sign of rhs, zeros and NaN included."""


@elementwise("float")
def nextafter(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The neighbour of lhs on the way to rhs; NaN where one of them is."""


@elementwise("numeric")
def fmod(lhs: TensorValueLike, rhs: TensorValueLike) -> TensorValue:
    """The remainder of lhs / rhs with the sign of lhs, as C has it; of an integer divided by 0 it is 0."""


# *** bounds ***


@op(dtypes={"x": "numeric", "min": "numeric", "max": "numeric"}, example="ops.clamp(x, min, max)", method="clamp")
def clamp(x: TensorValueLike, min: TensorValueLike | None = None, max: TensorValueLike | None = None) -> TensorValue:
    """`x` held between `min` and `max`, of which one may be left out; `max` where `min` is above it. NaN stays NaN.

    Raises:
        GraphError: neither bound is given, or the shapes do not broadcast.
        DTypeError: a bool tensor, or dtypes that do not go together.
    """
    return _held("clamp", x, min, max)


@op(dtypes={"x": "numeric", "min": "numeric", "max": "numeric"}, example="ops.clip(x, min, max)", method="clip")
def clip(x: TensorValueLike, min: TensorValueLike | None = None, max: TensorValueLike | None = None) -> TensorValue:
    """Another name of `clamp`."""
    return _held("clip", x, min, max)


def _held(name: str, x: TensorValueLike, low: TensorValueLike | None, high: TensorValueLike | None) -> TensorValue:
    value = tensor(name, "x", x)
    for argument, one in (("x", value), ("min", low), ("max", high)):
        if isinstance(one, TensorValue):
            check_kind(name, argument, one, "numeric")
    if low is None:
        if high is None:
            fail(name, "takes a bound: min, max or both", code="EK0478", argument="min", expected="a bound", got="None")
        return minimum(value, high)
    if high is None:
        return maximum(value, low)
    first, bottom, top = tensors(name, x=value, min=low, max=high)
    return builtin("elementwise", "clamp", broadcast(name, {"x": first, "min": bottom, "max": top}))[0]
