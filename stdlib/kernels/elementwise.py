"""Computes element by element: arithmetic, comparisons, logic, mathematics, casts.

Operands come in one dtype and one shape: promotion and broadcasting happen before. Half types are rounded after every
operation of the language; the functions that take several steps (`sigmoid`, `silu`, `gelu`) take them in float32.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from ... import dsl
from ...dsl import (
    Comparable,
    Element,
    Floating,
    Index,
    Inexact,
    InputTensor,
    Number,
    Numeric,
    OutputTensor,
    Storable,
    bool8,
    foreach,
    register,
    select,
)
from ..algorithms.algorithm import widened
from ..algorithms.references import Array, in_float32, in_float64, plain, true_in_float32

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)
K = TypeVar("K", bound=Comparable)
M = TypeVar("M", bound=Number)
X = TypeVar("X", bound=Inexact)
E = TypeVar("E", bound=Element)
S = TypeVar("S", bound=Storable)
U = TypeVar("U", bound=Storable)

SQRT_HALF = 0.7071067811865476
SQRT_TWO_OVER_PI = 0.7978845608028654

ERF = np.vectorize(math.erf, otypes=[np.float64])

# *** arithmetic ***


@register("add", neutral={"x": -0.0, "y": -0.0})
def add(out: OutputTensor[M, "*s"], x: InputTensor[M, "*s"], y: InputTensor[M, "*s"]) -> None:
    """x + y; integers wrap."""
    foreach(out, lambda i: x[i] + y[i])


add.reference(in_float32(np.add))


@register("sub", neutral={"y": 0.0})
def sub(out: OutputTensor[M, "*s"], x: InputTensor[M, "*s"], y: InputTensor[M, "*s"]) -> None:
    """x - y; integers wrap."""
    foreach(out, lambda i: x[i] - y[i])


sub.reference(in_float32(np.subtract))


@register("mul", neutral={"x": 1, "y": 1})
def mul(out: OutputTensor[M, "*s"], x: InputTensor[M, "*s"], y: InputTensor[M, "*s"]) -> None:
    """x * y; integers wrap."""
    foreach(out, lambda i: x[i] * y[i])


mul.reference(in_float32(np.multiply))


@register("div", neutral={"y": 1})
def div(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"], y: InputTensor[X, "*s"]) -> None:
    """x / y, correctly rounded."""
    foreach(out, lambda i: x[i] / y[i])


div.reference(in_float32(np.divide))


@register("floordiv")
def floordiv(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The quotient rounded down, with Python's signs; an integer divided by 0 gives 0."""
    foreach(out, lambda i: x[i] // y[i])


floordiv.reference(in_float32(np.floor_divide))


@register("mod")
def mod(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The remainder with the sign of y; of an integer divided by 0 it is 0."""
    foreach(out, lambda i: x[i] % y[i])


mod.reference(in_float32(np.remainder))


@register("pow")
def pow(out: OutputTensor[M, "*s"], x: InputTensor[M, "*s"], y: InputTensor[M, "*s"]) -> None:
    """x to the power y. Integers wrap; a negative power gives 0, but for the bases 1 and -1."""
    foreach(out, lambda i: dsl.pow(x[i], y[i]))


@pow.reference
def pow_reference(x: Array, y: Array):
    if x.dtype.kind not in "iu":
        return in_float64(np.power)(x, y)
    inverse = np.where(np.abs(x) == 1, np.where(y % 2 == 0, np.abs(x), x), 0)
    return np.where(y < 0, inverse, np.power(x, np.maximum(y, 0))).astype(x.dtype)


@register("maximum", laws=("idempotent",))
def maximum(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The larger of x and y; NaN if either is NaN."""
    foreach(out, lambda i: dsl.max(x[i], y[i]))


maximum.reference(in_float32(np.maximum))


@register("minimum", laws=("idempotent",))
def minimum(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The smaller of x and y; NaN if either is NaN."""
    foreach(out, lambda i: dsl.min(x[i], y[i]))


minimum.reference(in_float32(np.minimum))

# *** comparisons ***


@register("equal")
def equal(out: OutputTensor[bool8, "*s"], x: InputTensor[K, "*s"], y: InputTensor[K, "*s"]) -> None:
    """Whether x == y; false where either is NaN."""
    foreach(out, lambda i: x[i] == y[i])


equal.reference(plain(np.equal))


@register("not_equal")
def not_equal(out: OutputTensor[bool8, "*s"], x: InputTensor[K, "*s"], y: InputTensor[K, "*s"]) -> None:
    """Whether x != y; true where either is NaN."""
    foreach(out, lambda i: x[i] != y[i])


not_equal.reference(plain(np.not_equal))


@register("less")
def less(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x < y; false where either is NaN."""
    foreach(out, lambda i: x[i] < y[i])


less.reference(plain(np.less))


@register("less_equal")
def less_equal(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x <= y; false where either is NaN."""
    foreach(out, lambda i: x[i] <= y[i])


less_equal.reference(plain(np.less_equal))


@register("greater")
def greater(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x > y; false where either is NaN."""
    foreach(out, lambda i: x[i] > y[i])


greater.reference(plain(np.greater))


@register("greater_equal")
def greater_equal(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x >= y; false where either is NaN."""
    foreach(out, lambda i: x[i] >= y[i])


greater_equal.reference(plain(np.greater_equal))

# *** logic ***


@register("logical_and", laws=("idempotent",), neutral={"x": 1, "y": 1})
def logical_and(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"], y: InputTensor[bool8, "*s"]) -> None:
    """Whether both are true."""
    foreach(out, lambda i: x[i] & y[i])


logical_and.reference(plain(np.logical_and))


@register("logical_or", laws=("idempotent",), neutral={"x": 0, "y": 0})
def logical_or(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"], y: InputTensor[bool8, "*s"]) -> None:
    """Whether one or both are true."""
    foreach(out, lambda i: x[i] | y[i])


logical_or.reference(plain(np.logical_or))


@register("logical_xor", neutral={"x": 0, "y": 0})
def logical_xor(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"], y: InputTensor[bool8, "*s"]) -> None:
    """Whether exactly one is true."""
    foreach(out, lambda i: x[i] ^ y[i])


logical_xor.reference(plain(np.logical_xor))


@register("logical_not", laws=("involution",))
def logical_not(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"]) -> None:
    """Whether x is false."""
    foreach(out, lambda i: not x[i])


logical_not.reference(plain(np.logical_not))

# *** functions of one number ***


@register("negate", laws=("involution",))
def negate(out: OutputTensor[M, "*s"], x: InputTensor[M, "*s"]) -> None:
    """-x; integers wrap."""
    foreach(out, lambda i: -x[i])


negate.reference(plain(np.negative))


@register("abs", laws=("idempotent",))
def abs(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    """The absolute value. The smallest signed integer stays as it is."""
    foreach(out, lambda i: dsl.abs(x[i]))


abs.reference(plain(np.abs))


@register("relu", laws=("idempotent",))
def relu(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    """x where it is not below 0, else 0; NaN stays NaN."""
    foreach(out, lambda i: select(x[i] < 0, 0, x[i]))


relu.reference(plain(lambda x: np.where(x < 0, x.dtype.type(0), x)))


@register("clamp")
def clamp(
    out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], low: InputTensor[N, "*s"], high: InputTensor[N, "*s"]
) -> None:
    """x brought between low and high; high where low is above it, NaN if any of the three is."""
    foreach(out, lambda i: dsl.min(dsl.max(x[i], low[i]), high[i]))


clamp.reference(in_float32(lambda x, low, high: np.minimum(np.maximum(x, low), high)))


@register("exp")
def exp(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """e to the power x."""
    foreach(out, lambda i: dsl.exp(x[i]))


exp.reference(in_float64(np.exp))


@register("log")
def log(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The natural logarithm; NaN below 0, -inf at 0."""
    foreach(out, lambda i: dsl.log(x[i]))


log.reference(in_float64(np.log))


@register("log1p")
def log1p(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """log(1 + x), exact also near 0; NaN below -1, -inf at -1."""
    foreach(out, lambda i: dsl.log1p(x[i]))


log1p.reference(in_float64(np.log1p))


@register("acos")
def acos(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The angle whose cosine is x; numbers beyond -1 and 1 count as these."""
    foreach(out, lambda i: dsl.acos(x[i] if X.is_complex() else dsl.min(dsl.max(x[i], -1), 1)))


acos.reference(in_float64(lambda x: np.arccos(x if np.iscomplexobj(x) else np.clip(x, -1, 1))))


@register("atanh")
def atanh(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The number whose hyperbolic tangent is x; NaN beyond -1 and 1."""
    foreach(out, lambda i: dsl.atanh(x[i]))


atanh.reference(in_float64(np.arctanh))


@register("sqrt")
def sqrt(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The square root, correctly rounded; NaN below 0."""
    foreach(out, lambda i: dsl.sqrt(x[i]))


sqrt.reference(in_float32(np.sqrt))


@register("rsqrt")
def rsqrt(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 / sqrt(x)."""
    foreach(out, lambda i: dsl.rsqrt(x[i]))


rsqrt.reference(in_float64(lambda x: 1 / np.sqrt(x)))


@register("sin")
def sin(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The sine of x in radians."""
    foreach(out, lambda i: dsl.sin(x[i]))


sin.reference(in_float64(np.sin))


@register("cos")
def cos(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The cosine of x in radians."""
    foreach(out, lambda i: dsl.cos(x[i]))


cos.reference(in_float64(np.cos))


@register("tanh")
def tanh(out: OutputTensor[X, "*s"], x: InputTensor[X, "*s"]) -> None:
    """The hyperbolic tangent."""
    foreach(out, lambda i: dsl.tanh(x[i]))


tanh.reference(in_float64(np.tanh))


@register("erf")
def erf(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The Gauss error function."""
    foreach(out, lambda i: dsl.erf(x[i]))


erf.reference(in_float64(ERF))


@register("sigmoid")
def sigmoid(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 / (1 + exp(-x)); half types compute in float32."""
    foreach(out, lambda i: (1 / (1 + dsl.exp(-widened(x[i])))).cast(F))


sigmoid.reference(in_float64(lambda x: 1 / (1 + np.exp(-x))))


@register("silu")
def silu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x * sigmoid(x); half types compute in float32."""
    foreach(out, lambda i: (widened(x[i]) / (1 + dsl.exp(-widened(x[i])))).cast(F))


silu.reference(in_float64(lambda x: x / (1 + np.exp(-x))))


@register("gelu")
def gelu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, approximate: str = "none") -> None:
    """x times the normal distribution function at x; half types compute in float32.

    `approximate` is "none" (by erf), "tanh" (Hendrycks and Gimpel, "Gaussian error linear units", 2016), or "quick"
    (x * sigmoid(1.702 * x), from the same paper).
    """

    def element(i: Index | tuple[Index, ...]):
        v = widened(x[i])
        if approximate == "none":
            return (0.5 * v * (1 + dsl.erf(v * SQRT_HALF))).cast(F)
        if approximate == "tanh":
            return (0.5 * v * (1 + dsl.tanh(SQRT_TWO_OVER_PI * (v + 0.044715 * v * v * v)))).cast(F)
        dsl.static_assert(approximate == "quick", 'approximate is "none", "tanh" or "quick"')
        return (v / (1 + dsl.exp(-1.702 * v))).cast(F)

    foreach(out, element)


@gelu.reference
def gelu_reference(x: Array, *, approximate: str):
    wide = x.astype(np.float64)
    if approximate == "none":
        return (0.5 * wide * (1 + ERF(wide * SQRT_HALF))).astype(x.dtype)
    if approximate == "tanh":
        return (0.5 * wide * (1 + np.tanh(SQRT_TWO_OVER_PI * (wide + 0.044715 * wide**3)))).astype(x.dtype)
    return (wide / (1 + np.exp(-1.702 * wide))).astype(x.dtype)


@register("floor", laws=("idempotent",))
def floor(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The largest whole number not above x, as a float."""
    foreach(out, lambda i: dsl.floor(x[i]))


floor.reference(plain(np.floor))


@register("ceil", laws=("idempotent",))
def ceil(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The smallest whole number not below x, as a float."""
    foreach(out, lambda i: dsl.ceil(x[i]))


ceil.reference(plain(np.ceil))


@register("round", laws=("idempotent",))
def round(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The nearest whole number as a float; ties go to the even one."""
    foreach(out, lambda i: dsl.round(x[i]))


round.reference(plain(np.rint))


@register("trunc", laws=("idempotent",))
def trunc(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x without its fraction, as a float."""
    foreach(out, lambda i: dsl.trunc(x[i]))


trunc.reference(plain(np.trunc))


@register("is_nan")
def is_nan(out: OutputTensor[bool8, "*s"], x: InputTensor[X, "*s"]) -> None:
    """Whether x is NaN."""
    foreach(out, lambda i: dsl.isnan(x[i]))


is_nan.reference(plain(np.isnan))


@register("is_inf")
def is_inf(out: OutputTensor[bool8, "*s"], x: InputTensor[X, "*s"]) -> None:
    """Whether x is plus or minus infinity."""
    foreach(out, lambda i: dsl.isinf(x[i]))


is_inf.reference(plain(np.isinf))


@register("isclose")
def isclose(
    out: OutputTensor[bool8, "*s"],
    x: InputTensor[M, "*s"],
    y: InputTensor[M, "*s"],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> None:
    """Whether abs(x - y) <= atol + rtol * abs(y); equal infinities are close."""
    foreach(out, lambda i: dsl.isclose(widened(x[i]), widened(y[i]), rtol=rtol, atol=atol, equal_nan=equal_nan))


isclose.reference(true_in_float32(np.isclose))


# *** choice and conversion ***


@register("where", laws=("idempotent",))
def where(
    out: OutputTensor[S, "*s"], condition: InputTensor[bool8, "*s"], x: InputTensor[S, "*s"], y: InputTensor[S, "*s"]
) -> None:
    """x where the condition is true, else y."""
    foreach(out, lambda i: select(condition[i], x[i], y[i]))


where.reference(plain(np.where))


@register("bitcast")
def bitcast(out: OutputTensor[U, "*s"], x: InputTensor[S, "*s"], *, dtype: dsl.DType) -> None:
    """The bits of x read as `dtype`, which has the same width."""
    dsl.static_assert(dtype == U, "the dtype of the output differs from the parameter")
    foreach(out, lambda i: dsl.bitcast(x[i], U))


@register("cast", laws=("cast",))
def cast(out: OutputTensor[U, "*s"], x: InputTensor[S, "*s"], *, dtype: dsl.DType) -> None:
    """x as `dtype`: rounded to nearest; to integers the fraction is dropped, the ends saturate and NaN becomes 0."""
    dsl.static_assert(dtype == U, "the dtype of the output differs from the parameter")
    foreach(out, lambda i: x[i].cast(U))
