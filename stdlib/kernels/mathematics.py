"""Computes functions of one number and of two: roots, powers, logarithms, angles, remainders, signs.

The functions are the language's own; half types are computed in float32 and rounded once.

See also `activations` (what neural networks put between layers).
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from ... import dsl
from ...dsl import (
    Floating,
    Index,
    Inexact,
    InputTensor,
    Number,
    Numeric,
    OutputTensor,
    bool8,
    foreach,
    register,
    select,
)
from ..algorithms.references import in_float32, in_float64, plain

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)
M = TypeVar("M", bound=Number)
X = TypeVar("X", bound=Inexact)

ERFC = np.vectorize(math.erfc, otypes=[np.float64])


def _lgamma(x: float) -> float:
    return math.inf if math.isinf(x) or (x <= 0 and x == math.floor(x)) else math.lgamma(x)


LGAMMA = np.vectorize(_lgamma, otypes=[np.float64])


@register("tan")
def tan(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The tangent of x in radians."""
    foreach(out, lambda i: dsl.tan(x[i]))


tan.reference(in_float64(np.tan))


@register("asin")
def asin(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The angle between -pi/2 and pi/2 whose sine is x; NaN beyond -1 and 1."""
    foreach(out, lambda i: dsl.asin(x[i]))


asin.reference(in_float64(np.arcsin))


@register("atan")
def atan(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The angle between -pi/2 and pi/2 whose tangent is x."""
    foreach(out, lambda i: dsl.atan(x[i]))


atan.reference(in_float64(np.arctan))


@register("sinh")
def sinh(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The hyperbolic sine."""
    foreach(out, lambda i: dsl.sinh(x[i]))


sinh.reference(in_float64(np.sinh))


@register("cosh")
def cosh(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The hyperbolic cosine."""
    foreach(out, lambda i: dsl.cosh(x[i]))


cosh.reference(in_float64(np.cosh))


@register("asinh")
def asinh(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The number whose hyperbolic sine is x."""
    foreach(out, lambda i: dsl.asinh(x[i]))


asinh.reference(in_float64(np.arcsinh))


@register("acosh")
def acosh(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The number >= 0 whose hyperbolic cosine is x; NaN below 1."""
    foreach(out, lambda i: dsl.acosh(x[i]))


acosh.reference(in_float64(np.arccosh))


@register("exp2")
def exp2(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """2 to the power x."""
    foreach(out, lambda i: dsl.exp2(x[i]))


exp2.reference(in_float64(np.exp2))


@register("expm1")
def expm1(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """exp(x) - 1, exact also near 0."""
    foreach(out, lambda i: dsl.expm1(x[i]))


expm1.reference(in_float64(np.expm1))


@register("log2")
def log2(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The logarithm to base 2; NaN below 0, -inf at 0."""
    foreach(out, lambda i: dsl.log2(x[i]))


log2.reference(in_float64(np.log2))


@register("log10")
def log10(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The logarithm to base 10; NaN below 0, -inf at 0."""
    foreach(out, lambda i: dsl.log10(x[i]))


log10.reference(in_float64(np.log10))


@register("cbrt")
def cbrt(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The cube root; the sign of x stays."""
    foreach(out, lambda i: dsl.cbrt(x[i]))


cbrt.reference(in_float64(np.cbrt))


@register("erfc")
def erfc(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 - erf(x), exact also for large x."""
    foreach(out, lambda i: dsl.erfc(x[i]))


erfc.reference(in_float64(ERFC))


@register("lgamma")
def lgamma(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The logarithm of the absolute value of the gamma function; inf at 0, -1, -2, …"""
    foreach(out, lambda i: dsl.lgamma(x[i]))


lgamma.reference(in_float64(LGAMMA))


@register("reciprocal")
def reciprocal(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """1 / x."""
    foreach(out, lambda i: 1 / x[i])


reciprocal.reference(in_float32(lambda x: 1 / x))


@register("square")
def square(out: OutputTensor[M, "*s"], x: InputTensor[M, "*s"]) -> None:
    """x * x; integers wrap."""
    foreach(out, lambda i: x[i] * x[i])


square.reference(in_float32(np.square))


@register("sign", laws=("idempotent",))
def sign(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    """-1, 0 or 1 in the dtype of x; NaN of NaN."""
    foreach(out, lambda i: dsl.sign(x[i]))


sign.reference(in_float32(np.sign))


@register("is_finite")
def is_finite(out: OutputTensor[bool8, "*s"], x: InputTensor[X, "*s"]) -> None:
    """Whether x is neither infinite nor NaN."""
    foreach(out, lambda i: dsl.isfinite(x[i]))


is_finite.reference(plain(np.isfinite))


@register("atan2")
def atan2(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]) -> None:
    """The angle of the point (y, x), between -pi and pi: the arctangent of x / y in the right quadrant."""
    foreach(out, lambda i: dsl.atan2(x[i], y[i]))


atan2.reference(in_float64(np.arctan2))


@register("hypot")
def hypot(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]) -> None:
    """sqrt(x * x + y * y) without overflow on the way."""
    foreach(out, lambda i: dsl.hypot(x[i], y[i]))


hypot.reference(in_float64(np.hypot))


@register("copysign")
def copysign(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]) -> None:
    """The magnitude of x with the sign of y, zeros and NaN included."""
    foreach(out, lambda i: dsl.copysign(x[i], y[i]))


copysign.reference(plain(np.copysign))


@register("nextafter")
def nextafter(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]) -> None:
    """The neighbour of x on the way to y; NaN where one of them is."""
    foreach(out, lambda i: dsl.nextafter(x[i], y[i]))


nextafter.reference(plain(np.nextafter))


@register("fmod")
def fmod(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The remainder of x / y with the sign of x: exact; of an integer divided by 0 it is 0."""

    def element(i: Index | tuple[Index, ...]):
        if x.dtype.is_float():
            return dsl.fmod(x[i], y[i])
        rest = x[i] % y[i]
        return select((rest != 0) & ((rest < 0) != (x[i] < 0)), rest - y[i], rest)

    foreach(out, element)


fmod.reference(in_float32(np.fmod))
