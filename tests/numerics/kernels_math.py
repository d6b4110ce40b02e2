"""One kernel for each function of mathematics: over elements, and over vectors of eight lanes."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bfloat16,
    cbrt,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    float16,
    float32,
    fmod,
    foreach,
    frexp,
    gamma,
    hypot,
    i0,
    i1,
    int32,
    j0,
    j1,
    ldexp,
    lgamma,
    log,
    log1p,
    log2,
    log10,
    parallel_for,
    pow,
    register,
    remainder,
    rsqrt,
    sin,
    sinh,
    tan,
    tanh,
    unroll,
    y0,
    y1,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)


@register("rsqrt_each")
def rsqrt_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: rsqrt(x[i]))


@register("cbrt_each")
def cbrt_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: cbrt(x[i]))


@register("exp_each")
def exp_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp(x[i]))


@register("exp2_each")
def exp2_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp2(x[i]))


@register("expm1_each")
def expm1_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: expm1(x[i]))


@register("log_each")
def log_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: log(x[i]))


@register("log2_each")
def log2_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: log2(x[i]))


@register("log10_each")
def log10_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: log10(x[i]))


@register("log1p_each")
def log1p_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: log1p(x[i]))


@register("sin_each")
def sin_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: sin(x[i]))


@register("cos_each")
def cos_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: cos(x[i]))


@register("tan_each")
def tan_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: tan(x[i]))


@register("asin_each")
def asin_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: asin(x[i]))


@register("acos_each")
def acos_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: acos(x[i]))


@register("atan_each")
def atan_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: atan(x[i]))


@register("sinh_each")
def sinh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: sinh(x[i]))


@register("cosh_each")
def cosh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: cosh(x[i]))


@register("tanh_each")
def tanh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: tanh(x[i]))


@register("asinh_each")
def asinh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: asinh(x[i]))


@register("acosh_each")
def acosh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: acosh(x[i]))


@register("atanh_each")
def atanh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: atanh(x[i]))


@register("erf_each")
def erf_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: erf(x[i]))


@register("erfc_each")
def erfc_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: erfc(x[i]))


@register("gamma_each")
def gamma_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: gamma(x[i]))


@register("i0_each")
def i0_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: i0(x[i]))


@register("i1_each")
def i1_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: i1(x[i]))


@register("j0_each")
def j0_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: j0(x[i]))


@register("j1_each")
def j1_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: j1(x[i]))


@register("y0_each")
def y0_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: y0(x[i]))


@register("y1_each")
def y1_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: y1(x[i]))


@register("lgamma_each")
def lgamma_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: lgamma(x[i]))


@register("remainder_each")
def remainder_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: remainder(x[i], y[i]))


@register("eightfold")
def eightfold(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: ldexp(x[i], 3))


@register("fmod_each")
def fmod_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: fmod(x[i], y[i]))


@register("mod_each")
def mod_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] % y[i])


@register("atan2_each")
def atan2_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: atan2(x[i], y[i]))


@register("hypot_each")
def hypot_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: hypot(x[i], y[i]))


@register("frexp_each")
def frexp_each(mantissa: OutputTensor[T, "*s"], exponent: OutputTensor[int32, "*s"], x: InputTensor[T, "*s"]):
    foreach((mantissa, exponent), lambda i: frexp(x[i]))


@register("ldexp_each")
def ldexp_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], n: InputTensor[N, "*s"]):
    foreach(out, lambda i: ldexp(x[i], n[i]))


@register("pow_each")
def pow_each(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]):
    foreach(out, lambda i: x[i] ** y[i])


@register("square")
def square(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    foreach(out, lambda i: x[i] ** 2)


def all_of(v):
    """Every function of v (acosh of 1 + |v|), in the order of `truths.UNARY + truths.BINARY`."""
    odd = (sin(v), tan(v), asin(v), atan(v), sinh(v), tanh(v), asinh(v), atanh(v), erf(v), cbrt(v))
    others = (
        cos(v),
        cosh(v),
        rsqrt(v),
        exp(v),
        exp2(v),
        expm1(v),
        log(v),
        log2(v),
        log10(v),
        log1p(v),
        acos(v),
        acosh(1 + abs(v)),
        erfc(v),
        lgamma(v),
        gamma(v),
        i0(v),
        i1(v),
        j0(v),
        j1(v),
        y0(v),
        y1(v),
    )
    return (*odd, *others, pow(v, 2.5), atan2(v, 2.5), hypot(v, 2.5))


@register("vectors")
def vectors(out: OutputTensor[T, "34 n"], x: InputTensor[T, "n"]):
    """Row k is function k of x, computed on vectors."""

    def eight(block):
        i = 8 * block
        values = all_of(x.load(i, width=8))
        for row in unroll(34):
            out.store(values[row], row, i)

    parallel_for(x.dim(0) // 8, eight)


@register("scalars")
def scalars(out: OutputTensor[T, "34 n"], x: InputTensor[T, "n"]):
    """The same, one number after another."""

    def one(i):
        values = all_of(x[i])
        for row in unroll(34):
            out[row, i] = values[row]

    parallel_for(x.dim(0), one)


@register("folded")
def folded(out: OutputTensor[T, "34 n"], x: InputTensor[T, "n"]):
    """All functions of 0.7, computed when this is compiled."""
    values = all_of(0.7)
    for row in unroll(34):
        out[row, 0] = values[row]


@register("everything")
def everything(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    """All functions in one sum, for targets where one compilation has to do."""

    def total(i):
        values = all_of(x[i])
        result = fmod(x[i], 2.5) + remainder(x[i], 2.5) + x[i] % 2.5 + x[i] // 2.5
        for k in unroll(34):
            result = result + values[k]
        return result

    foreach(out, lambda i: total(i))


@register("widen")
def widen(out: OutputTensor[float32, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i].cast(float32))


@register("to_float16")
def to_float16(out: OutputTensor[float16, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i].cast(float16))


@register("to_bfloat16")
def to_bfloat16(out: OutputTensor[bfloat16, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i].cast(bfloat16))
