"""Kernels that are ufuncs, and kernels that are nearly."""

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Integral,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    autotune,
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


@register("times")
def times(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: y[i] * x[i])


@register("larger")
def larger(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    foreach(out, lambda i: max(x[i], y[i]))


@register("common_bits")
def common_bits(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], y: InputTensor[N, "n"]):
    foreach(out, lambda i: x[i] & y[i])


@register("all_bits")
def all_bits(out: OutputTensor[N, "n"], x: InputTensor[N, "n"], y: InputTensor[N, "n"]):
    foreach(out, lambda i: x[i] | y[i])


@register("first_twice")
def first_twice(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]):
    foreach(out, lambda i: x[i] + x[i])


@register("mean")
def mean(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]):
    foreach(out, lambda i: (x[i] + y[i]) / 2)


SHIFT = 2.0


@register("shifted")
def shifted(out: OutputTensor[float32, "*s"], x: InputTensor[float32, "*s"]):
    foreach(out, lambda i: x[i] + SHIFT)


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


@register("weighted")
def weighted(out: OutputTensor[T, "*s"], a: T, x: InputTensor[T, "*s"], y: InputTensor[T, "*s"]):
    """A number for all elements, and two tensors that broadcast."""
    foreach(out, lambda i: a * x[i] - y[i])


@register("both")
def both(
    low: OutputTensor[T, "*s"],
    high: OutputTensor[T, "*s"],
    x: InputTensor[T, "*s"],
    y: InputTensor[T, "*s"],
    z: InputTensor[T, "*s"],
):
    """Three inputs, two outputs."""
    foreach(low, lambda i: x[i] + y[i])
    foreach(high, lambda i: x[i] - z[i])


@register("raised")
def raised(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]):
    """Broadcast arguments may stop it."""

    def element(i):
        assert y[i] != 0, "no quotient"
        return x[i] / y[i]

    foreach(out, element)


@register("row_sums")
def row_sums(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]):
    """Not elementwise."""
    foreach(out, lambda i: x[i] + y[i] * i[0].cast(F))


@register("running")
def running(out: OutputTensor[F, "n"], x: InputTensor[F, "n"], y: InputTensor[F, "n"]):
    """Not elementwise, of one axis."""
    foreach(out, lambda i: x[i] + y[x.dim(0) - 1 - i[0]])


@register("matrix_plus")
def matrix_plus(out: OutputTensor[F, "m n"], x: InputTensor[F, "m n"], y: InputTensor[F, "m n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("one_axis")
def one_axis(out: OutputTensor[F, "n"], x: InputTensor[F, "n"], y: InputTensor[F, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@autotune({"width": (1, 2)})
@register("tuned_plus")
def tuned_plus(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"], *, width: int = 1):
    foreach(out, lambda i: x[i] + y[i] * width // width)
