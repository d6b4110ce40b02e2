"""Kernels with functions of integers, and of how numbers compare."""

import math
from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Integral,
    Number,
    OutputTensor,
    align_down,
    align_up,
    bool8,
    gcd,
    int64,
    isclose,
    lcm,
    max,
    min,
    modf,
    next_power_of_two,
    register,
    select,
    stack,
)

T = TypeVar("T", bound=Integral)
F = TypeVar("F", bound=Floating)
N = TypeVar("N", bound=Number)


@register("of_integers")
def of_integers(out: OutputTensor[T, "5 n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    for i in range(x.dim(0)):
        out[0, i] = gcd(x[i], y[i])
        out[1, i] = lcm(x[i], y[i])
        out[2, i] = next_power_of_two(x[i])
        out[3, i] = align_up(x[i], 8)
        out[4, i] = align_down(x[i], 8)


@register("of_lanes")
def of_lanes(out: OutputTensor[T, "3 8"], x: InputTensor[T, "8"], y: InputTensor[T, "8"]):
    a, b = x.load(0, width=8), y.load(0, width=8)
    out.store(gcd(a, b), 0, 0)
    out.store(lcm(a, 6), 1, 0)
    out.store(next_power_of_two(a), 2, 0)


@register("close")
def close(out: OutputTensor[bool8, "3 n"], x: InputTensor[N, "n"], y: InputTensor[N, "n"]):
    for i in range(x.dim(0)):
        out[0, i] = isclose(x[i], y[i])
        out[1, i] = isclose(x[i], y[i], rtol=0.1, atol=0.0, equal_nan=True)
        out[2, i] = isclose(x[i], 1)


@register("parts")
def parts(out: OutputTensor[F, "2 n"], x: InputTensor[F, "n"]):
    for i in range(x.dim(0)):
        out[0, i], out[1, i] = modf(x[i])


@register("at_compile_time")
def at_compile_time(out: OutputTensor[int64, "5"]):
    kept = stack[int64](next_power_of_two(align_up(100, 64)) // gcd(64, 48))
    out[0] = kept.dim(0)
    out[1] = lcm(4, -6)
    out[2] = gcd(-4, 6)
    out[3] = next_power_of_two(-3)
    out[4] = select(isclose(1.0, 1.0 + 1e-9), 1, 0)


@register("of_python")
def of_python(out: OutputTensor[int64, "5 n"], x: InputTensor[int64, "n"]):
    """Functions of Python's `math`."""
    for i in range(x.dim(0)):
        out[0, i] = math.gcd(x[i], 12)
        out[1, i] = math.lcm(x[i], 12)
        out[2, i] = math.gcd(18, 12)
        out[3, i] = math.gcd(x[i], 36, 6 * x[i]) + math.gcd(x[i]) + math.gcd(20, 30, 45)
        out[4, i] = math.lcm(x[i], 4, 6, 5) + lcm(x[i])


@register("of_python_floats")
def of_python_floats(out: OutputTensor[F, "4 n"], x: InputTensor[F, "n"]):
    for i in range(x.dim(0)):
        out[0, i], out[1, i] = math.modf(x[i])
        out[2, i] = math.gamma(x[i])
        out[3, i] = math.lgamma(x[i])


@register("by_positive")
def by_positive(out: OutputTensor[T, "6 n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    """Quotients and rests by what is seen to be more than 0, and by what may be less."""
    for i in range(x.dim(0)):
        out[0, i] = x[i] // max(y[i], 1)
        out[1, i] = x[i] % max(y[i], 1)
        out[2, i] = x[i] // min(max(y[i], 2), 7)
        out[3, i] = x[i] % 5
        out[4, i] = x[i] // max(y[i], 0)
        out[5, i] = x[i] % min(y[i], 3)
