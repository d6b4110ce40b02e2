"""Kernels with derivatives of every kind, for the libraries that differentiate."""

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register

T = TypeVar("T", bound=Floating)


@register("swish")
def swish(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, beta: float = 1.0):
    foreach(out, lambda i: x[i] / (1 + exp(-beta * x[i])))


@register("product")
def product(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * y[i])


@register("cube")
def cube(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@register("cube_backward")
def cube_backward(grad_x: OutputTensor[T, "*s"], grad_out: InputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(grad_x, lambda i: 3 * grad_out[i] * x[i] * x[i])


@register("cube_second")
def cube_second(
    grad_grad_out: OutputTensor[T, "*s"],
    grad_x: OutputTensor[T, "*s"],
    grad_grad_x: InputTensor[T, "*s"],
    grad_out: InputTensor[T, "*s"],
    x: InputTensor[T, "*s"],
):
    foreach(grad_grad_out, lambda i: 3 * grad_grad_x[i] * x[i] * x[i])
    foreach(grad_x, lambda i: 6 * grad_grad_x[i] * grad_out[i] * x[i])


cube.backward(cube_backward)
cube_backward.backward(cube_second)


@register("cube_of_graph")
def cube_of_graph(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@cube_of_graph.backward(graph=True)
def cube_of_graph_backward(context, grad):
    (x,) = context.inputs
    return grad * x * x * 3.0


@register("quadratic")
def quadratic(out: OutputTensor[T, "n"], a: T, x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: a * x[i] * x[i] + y[i])


@register("rotated")
def rotated(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[(i[0] + 1) % x.dim(0)])
