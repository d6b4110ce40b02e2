"""Declares the mathematics that is written in the language itself: names, signatures and meanings (see `stubs`).

How exact each function is, and its special values, stand in `docs/numerics.md`. With `fast=True` float32 and half types
take the instructions that a GPU has for approximations; elsewhere nothing changes. See also `stdlib/math/functions.py`
and its neighbours (the functions themselves).
"""

from __future__ import annotations

import math
from typing import Any, overload

from .stubs import stub

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fmod",
    "frexp",
    "gamma",
    "hypot",
    "i0",
    "i1",
    "j0",
    "j1",
    "ldexp",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "modf",
    "pow",
    "reciprocal",
    "remainder",
    "rsqrt",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "y0",
    "y1",
]


@stub("library")
def rsqrt(x: Any, *, fast: bool = False) -> Any:
    """`1 / sqrt(x)`."""


@stub("library")
def reciprocal(x: Any, *, fast: bool = False) -> Any:
    """`1 / x`; with `fast` to 1 ulp on GPUs, where it costs less than a division."""


@stub("library")
def cbrt(x: Any) -> Any:
    """The cube root; the sign of x stays."""


@stub("library")
def hypot(x: Any, y: Any) -> Any:
    """`sqrt(x * x + y * y)` without overflow on the way; infinity if either is, even if the other is NaN."""


@stub("library")
def exp(x: Any, *, fast: bool = False) -> Any:
    """e to the power x."""


@stub("library")
def exp2(x: Any, *, fast: bool = False) -> Any:
    """2 to the power x."""


@stub("library")
def expm1(x: Any) -> Any:
    """`exp(x) - 1`, exact also near 0."""


@stub("library")
def log(x: Any, *, fast: bool = False) -> Any:
    """The natural logarithm."""


@stub("library")
def log2(x: Any, *, fast: bool = False) -> Any:
    """The logarithm to base 2."""


@stub("library")
def log10(x: Any, *, fast: bool = False) -> Any:
    """The logarithm to base 10."""


@stub("library")
def log1p(x: Any) -> Any:
    """`log(1 + x)`, exact also near 0."""


@overload
def pow(x: Any, y: Any) -> Any: ...
@overload
def pow(x: Any, y: Any, mod: int | None) -> Any: ...
@stub("library")  # type: ignore[misc]
def pow(x: Any, y: Any) -> Any:
    """x to the power y, also written `x ** y`. Integers take a power >= 0 and wrap."""


@stub("library")
def sin(x: Any, *, fast: bool = False) -> Any:
    """The sine of x in radians."""


@stub("library")
def cos(x: Any, *, fast: bool = False) -> Any:
    """The cosine of x in radians."""


@stub("library")
def tan(x: Any) -> Any:
    """The tangent of x in radians."""


@stub("library")
def asin(x: Any) -> Any:
    """The angle between -pi/2 and pi/2 whose sine is x."""


@stub("library")
def acos(x: Any) -> Any:
    """The angle between 0 and pi whose cosine is x."""


@stub("library")
def atan(x: Any) -> Any:
    """The angle between -pi/2 and pi/2 whose tangent is x."""


@stub("library")
def atan2(y: Any, x: Any) -> Any:
    """The angle of the point (x, y), between -pi and pi; the sign is that of y."""


@stub("library")
def sinh(x: Any) -> Any:
    """The hyperbolic sine."""


@stub("library")
def cosh(x: Any) -> Any:
    """The hyperbolic cosine."""


@stub("library")
def tanh(x: Any, *, fast: bool = False) -> Any:
    """The hyperbolic tangent."""


@stub("library")
def asinh(x: Any) -> Any:
    """The number whose hyperbolic sine is x."""


@stub("library")
def acosh(x: Any) -> Any:
    """The number >= 0 whose hyperbolic cosine is x."""


@stub("library")
def atanh(x: Any) -> Any:
    """The number whose hyperbolic tangent is x."""


@stub("library")
def erf(x: Any, *, fast: bool = False) -> Any:
    """The Gauss error function."""


@stub("library")
def erfc(x: Any) -> Any:
    """`1 - erf(x)`, exact also for large x."""


@stub("library")
def gamma(x: Any) -> Any:
    """The gamma function, `(x - 1)!` of whole numbers: infinity with the sign of x at 0, NaN at the other poles."""


@stub("library")
def lgamma(x: Any) -> Any:
    """The logarithm of the absolute value of the gamma function."""


@stub("library")
def i0(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 0."""


@stub("library")
def i1(x: Any) -> Any:
    """The modified Bessel function of the first kind, of order 1."""


@stub("library")
def j0(x: Any) -> Any:
    """The Bessel function of the first kind, of order 0."""


@stub("library")
def j1(x: Any) -> Any:
    """The Bessel function of the first kind, of order 1."""


@stub("library")
def y0(x: Any) -> Any:
    """The Bessel function of the second kind, of order 0: minus infinity at 0, NaN below."""


@stub("library")
def y1(x: Any) -> Any:
    """The Bessel function of the second kind, of order 1: minus infinity at 0, NaN below."""


@stub("library")
def fmod(x: Any, y: Any) -> Any:
    """The remainder of a float x / y with the sign of x: exact."""


@stub("library")
def remainder(x: Any, y: Any) -> Any:
    """`x - n * y` with the whole number n nearest to x / y, ties to even: exact (IEEE 754)."""


@stub("library")
def frexp(x: Any) -> tuple[Any, Any]:
    """`(mantissa, exponent)` with x = mantissa * 2**exponent, 0.5 <= |mantissa| < 1 and an Int32 exponent."""
    raise NotImplementedError


@stub("written", in_python=True)
def modf(x: Any) -> tuple[Any, Any]:
    """`(fraction, whole)` of a float, which both have its sign: exact; the fraction of an infinity is 0."""
    return math.modf(x)


@stub("library")
def ldexp(x: Any, n: Any) -> Any:
    """`x * 2**n` for an integer n, rounded once."""
