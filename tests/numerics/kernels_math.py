"""One kernel for each function of mathematics: over elements, and over vectors of eight lanes."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    bfloat16,
    cos,
    erf,
    exp,
    exp2,
    float16,
    float32,
    foreach,
    log,
    log2,
    parallel_for,
    pow,
    register,
    rsqrt,
    sin,
    tanh,
    unroll,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)


@register("rsqrt_each")
def rsqrt_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: rsqrt(x[i]))


@register("exp_each")
def exp_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp(x[i]))


@register("exp2_each")
def exp2_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: exp2(x[i]))


@register("log_each")
def log_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: log(x[i]))


@register("log2_each")
def log2_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: log2(x[i]))


@register("sin_each")
def sin_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: sin(x[i]))


@register("cos_each")
def cos_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: cos(x[i]))


@register("tanh_each")
def tanh_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: tanh(x[i]))


@register("erf_each")
def erf_each(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: erf(x[i]))


@register("pow_each")
def pow_each(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]):
    foreach(out, lambda i: x[i] ** y[i])


@register("square")
def square(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    foreach(out, lambda i: x[i] ** 2)


@register("vectors")
def vectors(out: OutputTensor[T, "10 n"], x: InputTensor[T, "n"]):
    """Row k is function k of x, computed on vectors."""

    def eight(block):
        i = 8 * block
        v = x.load(i, width=8)
        values = (rsqrt(v), exp(v), exp2(v), log(v), log2(v), sin(v), cos(v), tanh(v), erf(v), pow(v, 2.5))
        for row in unroll(10):
            out.store(values[row], row, i)

    parallel_for(x.dim(0) // 8, eight)


@register("widen")
def widen(out: OutputTensor[float32, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i].cast(float32))


@register("to_float16")
def to_float16(out: OutputTensor[float16, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i].cast(float16))


@register("to_bfloat16")
def to_bfloat16(out: OutputTensor[bfloat16, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i].cast(bfloat16))
