"""Kernels that `front_door.py` calls."""

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    ComplexFloating,
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    VariadicTensors,
    abs,
    autotune,
    complex64,
    float32,
    foreach,
    register,
    unroll,
)

T = TypeVar("T", bound=Numeric)
C = TypeVar("C", bound=ComplexFloating)
ONE, TWO, THREE, FOUR = 1.0, 2.0, 3.0, 4.0


@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + 1)


@register("add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("plus")
def plus(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] + y[i])


@register("times")
def times(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"], y: InputTensor[C, "*s"]):
    foreach(out, lambda i: x[i] * y[i])


@register("quotient")
def quotient(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"], y: InputTensor[C, "*s"]):
    foreach(out, lambda i: x[i] / y[i])


@register("modulus")
def modulus(out: OutputTensor[float32, "*s"], x: InputTensor[complex64, "*s"]):
    foreach(out, lambda i: abs(x[i]))


@register("scaled")
def scaled(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, scale: float = 1.0):
    foreach(out, lambda i: x[i] * scale)


@register("polynomial")
def polynomial(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: ONE + x[i] * (TWO + x[i] * (THREE + x[i] * FOUR)))


@register("axpy")
def axpy(out: OutputTensor[T, "n"], a: T, x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: a * x[i] + y[i])


@register("increase")
def increase(x: MutableInputTensor[T, "n"]):
    foreach(x, lambda i: x[i] + 1)


@autotune({"width": (4, 8)}, key="n", exact=False)
@register("total")
def total(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"], *, width: int = 1):
    sums = SIMD[float32, width](0)
    for i in range(0, x.dim(0) - width + 1, width):
        sums += x.load(i, width=width)
    out[0] = sums.reduce_add()


@register("twice")
def twice(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] * 2)


@register("moved")
def moved(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"], *, way: str = "up"):
    step = 1.0 if way == "up" else -1.0
    foreach(out, lambda i: x[i] + step)


@register("first_half")
def first_half(out: OutputTensor[float32, "k"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i])


@first_half.shape
def first_half_shape(x):
    return x.dim(0) // 2


@register("clamped")
def clamped(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], most: T):
    foreach(out, lambda i: min(x[i], most))


@register("sum_of_list")
def sum_of_list(out: OutputTensor[T, "*s"], xs: VariadicTensors[T, "*s"]):
    def element(i):
        added = xs[0][i]
        for k in unroll(1, len(xs)):
            added = added + xs[k][i]
        return added

    foreach(out, element)
