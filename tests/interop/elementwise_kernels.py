"""Kernels that are ufuncs, and kernels that are nearly."""

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Integral,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    bool8,
    float32,
    foreach,
    int4,
    int32,
    int64,
    register,
)

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)
N = TypeVar("N", bound=Integral)


@register("plus")
def plus(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    """Adds two tensors."""
    foreach(out, lambda i: x[i] + y[i])


@register("minus")
def minus(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]):
    foreach(out, lambda i: x[i] - y[i])


@register("parts")
def parts(whole: OutputTensor[int32, "*s"], rest: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]):
    foreach(whole, lambda i: x[i].cast(int32))
    foreach(rest, lambda i: x[i] - x[i].cast(int32).cast(F))


@register("scaled")
def scaled(out: OutputTensor[F, "n"], x: InputTensor[F, "n"], *, by: float = 2.0):
    foreach(out, lambda i: x[i] * by)


@register("root")
def root(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    def element(i):
        assert x[i] >= 0, "no root of {x[i]}"
        return x[i]

    foreach(out, element)


@register("next_one")
def next_one(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[(i[0] + 1) % x.dim(0)])


@register("ramp")
def ramp(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i] + i[0].cast(F))


@register("share")
def share(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i] / x.dim(0).cast(F))


@register("matrix")
def matrix(out: OutputTensor[F, "m n"], x: InputTensor[F, "m n"]):
    foreach(out, lambda i: x[i])


@register("changed")
def changed(x: MutableInputTensor[F, "n"]):
    foreach(x, lambda i: x[i] + 1)


@register("with_number")
def with_number(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], a: F):
    foreach(out, lambda i: x[i] * a)


@register("unready")
def unready(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i])


@register("mistaken")
def mistaken(out: OutputTensor[F, "n"], x: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i].nothing())


@register("squared")
def squared(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] * x[i])


@register("squared_backward")
def squared_backward(
    grad_x: OutputTensor[float32, "*s"], grad_out: InputTensor[float32, "*s"], x: InputTensor[float32, "*s"]
):
    foreach(grad_x, lambda i: 2 * grad_out[i] * x[i])


squared.backward(squared_backward)


@register("cubed")
def cubed(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] * x[i] * x[i])


@cubed.backward(graph=True)
def cubed_backward(context, grad):
    (x,) = context.inputs
    return grad * x * x * 3.0


@register("doubled")
def doubled(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] * 2)


@register("drift")
def drift(x: MutableInputTensor[float32, "n"]):
    foreach(x, lambda i: x[i] + 1)


@register("halved")
def halved(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def element(i):
        assert x[i] >= 0, "no half of {x[i]}"
        return x[i] / 2

    foreach(out, element)


@register("widened")
def widened(out: OutputTensor[int64, "n"], x: InputTensor[int32, "n"]):
    foreach(out, lambda i: x[i].cast(int64) * 7)


@register("unpacked")
def unpacked(out: OutputTensor[int32, "n"], x: InputTensor[int4, "n"]):
    foreach(out, lambda i: x[i].cast(int32))


@register("flagged")
def flagged(out: OutputTensor[bool8, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] > 1)
