"""Kernels with backwards, right and wrong ones."""

from typing import TypeVar

import numpy as np

from einkorn.dsl import Floating, InputTensor, OutputTensor, VariadicTensors, foreach, int32, register, unroll

T = TypeVar("T", bound=Floating)


@register("product_of")
def product_of(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"], *, factor: float = 2.0):
    foreach(out, lambda i: x[i] * y[i] * factor)


@product_of.backward
def product_of_backward(context, grad):
    x, y = context.inputs
    return grad * y * context.parameters["factor"], grad * x * context.parameters["factor"]


@register("square")
def square(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i])


@register("square_backward")
def square_backward(grad_x: OutputTensor[T, "*s"], grad_out: InputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: grad_out[i] * x[i] * 2)


square.backward(square_backward)


@register("picked")
def picked(
    out: OutputTensor[T, "k"], rest: OutputTensor[T, "(n - 1)"], x: InputTensor[T, "n"], at: InputTensor[int32, "k"]
):
    foreach(out, lambda i: x[at[i]] * 3)
    foreach(rest, lambda i: x[i] + x[i[0] + 1])


@picked.backward
def picked_backward(context, grad, rest):
    x, at = context.inputs
    result = np.zeros_like(x)
    np.add.at(result, at, grad * 3)
    result[:-1] += rest
    result[1:] += rest
    return result, None


@register("softplus_of")
def softplus_of(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@softplus_of.backward(graph=True)
def softplus_of_backward(context, grad):
    (x,) = context.inputs
    return grad * 3.0 * x * x


@register("all_of")
def all_of(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n"]):
    def element(i):
        total = xs[0][i]
        for k in unroll(1, len(xs)):
            total = total * xs[k][i]
        return total

    foreach(out, element)


@all_of.backward
def all_of_backward(context, grad):
    (xs,), (out,) = context.inputs, context.outputs
    return [[grad * out / x for x in xs]]


@register("wrong_sign")
def wrong_sign(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] * 2)


@wrong_sign.backward
def wrong_sign_backward(context, grad):
    return grad * -2


@register("no_backward")
def no_backward(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i])
