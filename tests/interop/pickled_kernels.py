"""What is pickled and copied by name: kernels, and functions of graph values and tensors."""

from typing import TypeVar

import numpy as np

from einkorn import functional as F
from einkorn.dsl import (
    Floating,
    InputTensor,
    Int,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    VariadicTensors,
    foreach,
    int32,
    register,
    unroll,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)
FACTOR = 3


@register("pickled::scaled")
def scaled(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, by: float = 2.0):
    """Multiplies by a parameter and by a constant of the module."""
    foreach(out, lambda i: x[i] * by * FACTOR)


@scaled.reference
def scaled_reference(x, *, by):
    return x * by * FACTOR


@scaled.backward
def scaled_backward(context, grad):
    return (grad * (context.parameters["by"] * FACTOR),)


@register("pickled::square")
def square(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] * x[i])


@register("pickled::square_backward")
def square_backward(grad_x: OutputTensor[T, "n"], x: InputTensor[T, "n"], grad_out: InputTensor[T, "n"]):
    foreach(grad_x, lambda i: 2 * x[i] * grad_out[i])


square.backward(square_backward)


@register("pickled::total")
def total(out: OutputTensor[N, "n"], xs: VariadicTensors[N, "n"]):
    def element(i):
        result = xs[0][i]
        for k in unroll(1, len(xs)):
            result += xs[k][i]
        return result

    foreach(out, element)


@register("pickled::bump")
def bump(x: MutableInputTensor[N, "n"]):
    foreach(x, lambda i: x[i] + 1)


@register("pickled::checked")
def checked(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]):
    def element(i):
        assert x[i] != 7, "seven is not allowed"
        return x[i]

    foreach(out, element)


@register("pickled::Doubled")
class Doubled:
    """A kernel that is written as a class."""

    @staticmethod
    def execute(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
        foreach(out, lambda i: x[i] * 2)


@register("pickled::repeated")
def repeated(out: OutputTensor[N, "m"], x: InputTensor[N, "n"]):
    foreach(out, lambda i: x[i[0] % x.dim(0)])


@repeated.shape
def repeated_shape(x) -> Int:
    return x.dim(0) * 2


@F.functional
def tensors(x):
    return F.relu(x * 2) + 1


def of_graph(x):
    return x * 2 + 1


ARRAY = np.arange(6, dtype=np.float32)
