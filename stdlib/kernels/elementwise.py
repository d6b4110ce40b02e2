"""Elementwise kernels: arithmetic, comparisons, logic, mathematics, casts.

Operands come in one dtype and one shape: promotion and broadcasting happen before. Half types are rounded after every
operation of the language; the functions that take several steps (`sigmoid`, `silu`, `gelu`) take them in float32.

Input and output: tensors of one shape. Non-goals: reductions; the functions themselves, which are the language's own.
"""

from __future__ import annotations

from typing import TypeVar

from ... import dsl
from ...dsl import Element, Floating, InputTensor, Numeric, OutputTensor, Storable, bool8, foreach, register, select
from ..algorithms.algorithm import widened

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)
E = TypeVar("E", bound=Element)
S = TypeVar("S", bound=Storable)
U = TypeVar("U", bound=Storable)

SQRT_HALF = 0.7071067811865476
SQRT_TWO_OVER_PI = 0.7978845608028654

# *** arithmetic ***


@register("add")
def add(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """x + y; integers wrap."""
    foreach(out, lambda i: x[i] + y[i])


@register("sub")
def sub(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """x - y; integers wrap."""
    foreach(out, lambda i: x[i] - y[i])


@register("mul")
def mul(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """x * y; integers wrap."""
    foreach(out, lambda i: x[i] * y[i])


@register("div")
def div(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]) -> None:
    """x / y, correctly rounded."""
    foreach(out, lambda i: x[i] / y[i])


@register("floordiv")
def floordiv(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The quotient rounded down, with Python's signs; an integer divided by 0 gives 0."""
    foreach(out, lambda i: x[i] // y[i])


@register("mod")
def mod(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The remainder with the sign of y; of an integer divided by 0 it is 0."""
    foreach(out, lambda i: x[i] % y[i])


@register("pow")
def pow(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """x to the power y. Integers take a power >= 0 and wrap."""
    foreach(out, lambda i: dsl.pow(x[i], y[i]))


@register("maximum")
def maximum(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The larger of x and y; NaN if either is NaN."""
    foreach(out, lambda i: dsl.max(x[i], y[i]))


@register("minimum")
def minimum(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """The smaller of x and y; NaN if either is NaN."""
    foreach(out, lambda i: dsl.min(x[i], y[i]))


# *** comparisons ***


@register("equal")
def equal(out: OutputTensor[bool8, "*s"], x: InputTensor[E, "*s"], y: InputTensor[E, "*s"]) -> None:
    """Whether x == y; false where either is NaN."""
    foreach(out, lambda i: x[i] == y[i])


@register("not_equal")
def not_equal(out: OutputTensor[bool8, "*s"], x: InputTensor[E, "*s"], y: InputTensor[E, "*s"]) -> None:
    """Whether x != y; true where either is NaN."""
    foreach(out, lambda i: x[i] != y[i])


@register("less")
def less(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x < y; false where either is NaN."""
    foreach(out, lambda i: x[i] < y[i])


@register("less_equal")
def less_equal(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x <= y; false where either is NaN."""
    foreach(out, lambda i: x[i] <= y[i])


@register("greater")
def greater(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x > y; false where either is NaN."""
    foreach(out, lambda i: x[i] > y[i])


@register("greater_equal")
def greater_equal(out: OutputTensor[bool8, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]) -> None:
    """Whether x >= y; false where either is NaN."""
    foreach(out, lambda i: x[i] >= y[i])


# *** logic ***


@register("logical_and")
def logical_and(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"], y: InputTensor[bool8, "*s"]) -> None:
    """Whether both are true."""
    foreach(out, lambda i: x[i] & y[i])


@register("logical_or")
def logical_or(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"], y: InputTensor[bool8, "*s"]) -> None:
    """Whether one or both are true."""
    foreach(out, lambda i: x[i] | y[i])


@register("logical_xor")
def logical_xor(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"], y: InputTensor[bool8, "*s"]) -> None:
    """Whether exactly one is true."""
    foreach(out, lambda i: x[i] ^ y[i])


@register("logical_not")
def logical_not(out: OutputTensor[bool8, "*s"], x: InputTensor[bool8, "*s"]) -> None:
    """Whether x is false."""
    foreach(out, lambda i: not x[i])


# *** functions of one number ***


@register("negate")
def negate(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    """-x; integers wrap."""
    foreach(out, lambda i: -x[i])


@register("abs")
def abs(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    """The absolute value. The smallest signed integer stays as it is."""
    foreach(out, lambda i: dsl.abs(x[i]))


@register("relu")
def relu(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    """x where it is not below 0, else 0; NaN stays NaN."""
    foreach(out, lambda i: select(x[i] < 0, 0, x[i]))


@register("clamp")
def clamp(
    out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], low: InputTensor[N, "*s"], high: InputTensor[N, "*s"]
) -> None:
    """x brought between low and high; high where low is above it, NaN if any of the three is."""
    foreach(out, lambda i: dsl.min(dsl.max(x[i], low[i]), high[i]))


@register("exp")
def exp(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """e to the power x."""
    foreach(out, lambda i: dsl.exp(x[i]))


@register("log")
def log(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The natural logarithm; NaN below 0, -inf at 0."""
    foreach(out, lambda i: dsl.log(x[i]))


@register("log1p")
def log1p(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """log(1 + x), exact also near 0; NaN below -1, -inf at -1."""
    foreach(out, lambda i: dsl.log1p(x[i]))


@register("acos")
def acos(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The angle whose cosine is x; numbers beyond -1 and 1 count as these."""
    foreach(out, lambda i: dsl.acos(dsl.min(dsl.max(x[i], -1), 1)))


@register("atanh")
def atanh(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The number whose hyperbolic tangent is x; NaN beyond -1 and 1."""
    foreach(out, lambda i: dsl.atanh(x[i]))


@register("sqrt")
def sqrt(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The square root, correctly rounded; NaN below 0."""
    foreach(out, lambda i: dsl.sqrt(x[i]))


@register("rsqrt")
def rsqrt(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 / sqrt(x)."""
    foreach(out, lambda i: dsl.rsqrt(x[i]))


@register("sin")
def sin(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The sine of x in radians."""
    foreach(out, lambda i: dsl.sin(x[i]))


@register("cos")
def cos(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The cosine of x in radians."""
    foreach(out, lambda i: dsl.cos(x[i]))


@register("tanh")
def tanh(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The hyperbolic tangent."""
    foreach(out, lambda i: dsl.tanh(x[i]))


@register("erf")
def erf(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The Gauss error function."""
    foreach(out, lambda i: dsl.erf(x[i]))


@register("sigmoid")
def sigmoid(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 / (1 + exp(-x)); half types compute in float32."""
    foreach(out, lambda i: (1 / (1 + dsl.exp(-widened(x[i])))).cast(F))


@register("silu")
def silu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x * sigmoid(x); half types compute in float32."""
    foreach(out, lambda i: (widened(x[i]) / (1 + dsl.exp(-widened(x[i])))).cast(F))


@register("gelu")
def gelu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, approximate: str = "none") -> None:
    """x times the normal distribution function at x; half types compute in float32.

    `approximate` is "none" (by erf), "tanh" (Hendrycks and Gimpel, "Gaussian error linear units", 2016), or "quick"
    (x * sigmoid(1.702 * x), from the same paper).
    """

    def element(i):
        v = widened(x[i])
        if approximate == "none":
            return (0.5 * v * (1 + dsl.erf(v * SQRT_HALF))).cast(F)
        if approximate == "tanh":
            return (0.5 * v * (1 + dsl.tanh(SQRT_TWO_OVER_PI * (v + 0.044715 * v * v * v)))).cast(F)
        dsl.static_assert(approximate == "quick", 'approximate is "none", "tanh" or "quick"')
        return (v / (1 + dsl.exp(-1.702 * v))).cast(F)

    foreach(out, element)


@register("floor")
def floor(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The largest whole number not above x, as a float."""
    foreach(out, lambda i: dsl.floor(x[i]))


@register("ceil")
def ceil(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The smallest whole number not below x, as a float."""
    foreach(out, lambda i: dsl.ceil(x[i]))


@register("round")
def round(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The nearest whole number as a float; ties go to the even one."""
    foreach(out, lambda i: dsl.round(x[i]))


@register("trunc")
def trunc(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x without its fraction, as a float."""
    foreach(out, lambda i: dsl.trunc(x[i]))


@register("is_nan")
def is_nan(out: OutputTensor[bool8, "*s"], x: InputTensor[F, "*s"]) -> None:
    """Whether x is NaN."""
    foreach(out, lambda i: dsl.isnan(x[i]))


@register("is_inf")
def is_inf(out: OutputTensor[bool8, "*s"], x: InputTensor[F, "*s"]) -> None:
    """Whether x is plus or minus infinity."""
    foreach(out, lambda i: dsl.isinf(x[i]))


# *** choice and conversion ***


@register("where")
def where(
    out: OutputTensor[S, "*s"], condition: InputTensor[bool8, "*s"], x: InputTensor[S, "*s"], y: InputTensor[S, "*s"]
) -> None:
    """x where the condition is true, else y."""
    foreach(out, lambda i: select(condition[i], x[i], y[i]))


@register("cast")
def cast(out: OutputTensor[U, "*s"], x: InputTensor[S, "*s"], *, dtype: dsl.DType) -> None:
    """x as `dtype`: rounded to nearest; to integers the fraction is dropped, the ends saturate and NaN becomes 0."""
    dsl.static_assert(dtype == U, "the output has another dtype than the parameter says")
    foreach(out, lambda i: x[i].cast(U))
