"""Declares the elementwise functions of the standard. One signature a function; the op it names computes it.

See also `graph.ops` (computation).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import TypeVar

from ...dsl.environment.tracebacks import placed
from ...dsl.types.dtype import DType
from ..eager import functional as F
from ..eager.tensor import Tensor
from .operands import operands

S = TypeVar("S", bound=Callable[..., Tensor])


def function(
    op: Callable[..., Tensor],
    *,
    integers: Callable[..., Tensor] | None = None,
    bools: Callable[..., Tensor] | None = None,
) -> Callable[[S], S]:
    """Makes a signature of tensors a function that calls an op.

    Args:
        op: what computes it.
        integers: what computes it for integers and bools, where that is something else.
        bools: what computes it for bools.
    """

    def declare(signature: S) -> S:
        code = signature.__code__
        names = code.co_varnames[: code.co_argcount]

        @placed
        @functools.wraps(signature)
        def call(*args: object, **kwargs: object) -> Tensor:
            signature(*args, **kwargs)  # refuses what the signature does not take, in Python's own words
            given = operands(dict(zip(names, args, strict=True)))
            dtype = next(each.dtype for each in given if isinstance(each, Tensor))
            chosen = (
                (bools if dtype is DType.bool else None)
                or (integers if dtype is DType.bool or dtype.is_integral() else None)
                or op
            )
            return chosen(*given)

        return call  # type: ignore[return-value]

    return declare


def _itself(x: Tensor) -> Tensor:
    """The same elements in another tensor, so that what is written to it does not show in x."""
    return copy.copy(x)


def _never(x: Tensor) -> Tensor:
    return Tensor.full(x.shape, False, dtype=DType.bool, device=x.device)


def _always(x: Tensor) -> Tensor:
    return Tensor.full(x.shape, True, dtype=DType.bool, device=x.device)


def _acos(x: Tensor) -> Tensor:
    """The op counts numbers beyond 1 as 1; the standard has NaN for them."""
    return F.acos(x) if x.dtype.is_complex() else F.where(F.less_equal(F.abs(x), 1), F.acos(x), math.nan)


def _sign(x: Tensor) -> Tensor:
    """Of complex numbers x / abs(x), and 0 of 0."""
    if not x.dtype.is_complex():
        return F.sign(x)
    return F.where(F.equal(x, 0), 0, F.div(x, F.abs(x)))


def _sign_bit(x: Tensor) -> Tensor:
    """Whether the sign bit is set: of -0.0 and NaN, too."""
    return F.less(F.copysign(1.0 + F.mul(_zeros(x), 0.0), x), 0.0)


def _zeros(x: Tensor) -> Tensor:
    return Tensor.full(x.shape, 0, dtype=x.dtype, device=x.device)


# *** of one tensor ***


@function(F.abs, bools=_itself)
def abs(x: Tensor, /) -> Tensor:
    """The magnitude of each element."""


@function(_acos)
def acos(x: Tensor, /) -> Tensor:
    """The angle whose cosine is x, from 0 to pi; NaN beyond -1 and 1."""


@function(F.acosh)
def acosh(x: Tensor, /) -> Tensor:
    """The number >= 0 whose hyperbolic cosine is x; NaN below 1."""


@function(F.asin)
def asin(x: Tensor, /) -> Tensor:
    """The angle between -pi/2 and pi/2 whose sine is x; NaN beyond -1 and 1."""


@function(F.asinh)
def asinh(x: Tensor, /) -> Tensor:
    """The number whose hyperbolic sine is x."""


@function(F.atan)
def atan(x: Tensor, /) -> Tensor:
    """The angle between -pi/2 and pi/2 whose tangent is x."""


@function(F.atanh)
def atanh(x: Tensor, /) -> Tensor:
    """The number whose hyperbolic tangent is x; NaN beyond -1 and 1."""


@function(F.bitwise_not, bools=F.logical_not)
def bitwise_invert(x: Tensor, /) -> Tensor:
    """All bits of an integer flipped; the other one of a bool."""


@function(F.ceil, integers=_itself)
def ceil(x: Tensor, /) -> Tensor:
    """The smallest whole number >= x."""


@function(F.conj)
def conj(x: Tensor, /) -> Tensor:
    """The complex conjugate, which a real number is itself."""


@function(F.cos)
def cos(x: Tensor, /) -> Tensor:
    """The cosine of x in radians."""


@function(F.cosh)
def cosh(x: Tensor, /) -> Tensor:
    """The hyperbolic cosine."""


@function(F.exp)
def exp(x: Tensor, /) -> Tensor:
    """e to the power x."""


@function(F.expm1)
def expm1(x: Tensor, /) -> Tensor:
    """exp(x) - 1, exact also near 0."""


@function(F.floor, integers=_itself)
def floor(x: Tensor, /) -> Tensor:
    """The largest whole number <= x."""


@function(F.imag)
def imag(x: Tensor, /) -> Tensor:
    """The imaginary part, which is 0 of a real number."""


@function(F.is_finite, integers=_always)
def isfinite(x: Tensor, /) -> Tensor:
    """Whether an element is neither infinite nor NaN."""


@function(F.is_inf, integers=_never)
def isinf(x: Tensor, /) -> Tensor:
    """Whether an element is plus or minus infinity."""


@function(F.is_nan, integers=_never)
def isnan(x: Tensor, /) -> Tensor:
    """Whether an element is NaN."""


@function(F.log)
def log(x: Tensor, /) -> Tensor:
    """The natural logarithm; NaN below 0, -inf at 0."""


@function(F.log10)
def log10(x: Tensor, /) -> Tensor:
    """The logarithm to base 10; NaN below 0, -inf at 0."""


@function(F.log1p)
def log1p(x: Tensor, /) -> Tensor:
    """log(1 + x), exact also near 0."""


@function(F.log2)
def log2(x: Tensor, /) -> Tensor:
    """The logarithm to base 2; NaN below 0, -inf at 0."""


@function(F.logical_not)
def logical_not(x: Tensor, /) -> Tensor:
    """True where x is false; bools only."""


@function(F.negate)
def negative(x: Tensor, /) -> Tensor:
    """-x; integers wrap."""


@function(_itself)
def positive(x: Tensor, /) -> Tensor:
    """+x."""


@function(F.real)
def real(x: Tensor, /) -> Tensor:
    """The real part, which a real number is itself."""


@function(F.reciprocal)
def reciprocal(x: Tensor, /) -> Tensor:
    """1 / x."""


@function(F.round, integers=_itself)
def round(x: Tensor, /) -> Tensor:
    """The nearest whole number; of two the even one."""


@function(_sign)
def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1; NaN of NaN; of complex numbers x / abs(x)."""


@function(_sign_bit)
def signbit(x: Tensor, /) -> Tensor:
    """Whether the sign bit is set, as it is of -0.0; floats only."""


@function(F.sin)
def sin(x: Tensor, /) -> Tensor:
    """The sine of x in radians."""


@function(F.sinh)
def sinh(x: Tensor, /) -> Tensor:
    """The hyperbolic sine."""


@function(F.square)
def square(x: Tensor, /) -> Tensor:
    """x * x; integers wrap."""


@function(F.sqrt)
def sqrt(x: Tensor, /) -> Tensor:
    """The square root; NaN below 0."""


@function(F.tan)
def tan(x: Tensor, /) -> Tensor:
    """The tangent of x in radians."""


@function(F.tanh)
def tanh(x: Tensor, /) -> Tensor:
    """The hyperbolic tangent."""


@function(F.trunc, integers=_itself)
def trunc(x: Tensor, /) -> Tensor:
    """x without its fraction."""
