"""Kernels that are called without a graph: one for each thing that a signature can say."""

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    OutputVariadicTensors,
    VariadicTensors,
    float32,
    foreach,
    int64,
    parallel_for,
    register,
    unroll,
)

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)
U = TypeVar("U", bound=Numeric)


@register("add_one")
def add_one(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]):
    """Adds one to every element."""
    foreach(out, lambda i: x[i] + 1)


@register("add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i] + y[i])


@register("outer")
def outer(out: OutputTensor[T, "m n"], x: InputTensor[T, "m"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: x[i[0]] * y[i[1]])


@register("scale_and_shift")
def scale_and_shift(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, scale: float = 1.0, shift: float = 0.0):
    foreach(out, lambda i: x[i] * scale + shift)


@register("axpy")
def axpy(out: OutputTensor[T, "n"], a: T, x: InputTensor[T, "n"], y: InputTensor[T, "n"]):
    foreach(out, lambda i: a * x[i] + y[i])


@register("follow")
def follow(mean: MutableInputTensor[float32, "n"], x: InputTensor[float32, "n"], rate: float32):
    foreach(mean, lambda i: mean[i] + (x[i] - mean[i]) * rate)


@register("follow_and_return")
def follow_and_return(
    change: OutputTensor[F, "n"], mean: MutableInputTensor[F, "n"], x: InputTensor[F, "n"], *, rate: float = 0.5
):
    def element(i):
        step = (x[i] - mean[i]) * rate
        mean[i] = mean[i] + step
        return step

    foreach(change, element)


@register("halves")
def halves(low: OutputTensor[T, "(n//2)"], high: OutputTensor[T, "(n - n//2)"], x: InputTensor[T, "n"]):
    foreach(low, lambda i: x[i])
    foreach(high, lambda i: x[x.dim(0) // 2 + i[0]])


@register("pairs")
def pairs(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], twice: InputTensor[T, "(2*n)"]):
    foreach(out, lambda i: x[i] + twice[2 * i[0]])


@register("swap_pairs")
def swap_pairs(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], twice: MutableInputTensor[T, "(2*n)"]):
    def element(i):
        twice[2 * i[0]] = x[i]
        return twice[2 * i[0] + 1]

    foreach(out, element)


@register("converted")
def converted(out: OutputTensor[U, "*s"], x: InputTensor[T, "*s"]):
    foreach(out, lambda i: x[i].cast(out.dtype))


@register("tile_twice")
def tile_twice(out: OutputTensor[T, "n k"], x: InputTensor[T, "n"], *, k: int):
    foreach(out, lambda i: x[i[0]])


@register("total_of")
def total_of(out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n"]):
    def element(i):
        total = xs[0][i]
        for k in unroll(1, len(xs)):
            total = total + xs[k][i]
        return total

    foreach(out, element)


@register("spread")
def spread(outs: OutputVariadicTensors[T, "n", "count"], x: InputTensor[T, "n"], *, count: int):
    for k in unroll(count):
        foreach(outs[k], lambda i, k=k: x[i] + k)


@register("positive")
def positive(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def element(i):
        assert x[i] > 0, "elements have to be positive"
        return x[i]

    foreach(out, element)


@register("kept")
def kept(out: OutputTensor[T, "found"], x: InputTensor[T, "n"]):
    place = int64(0)
    for i in range(x.dim(0)):
        if x[i] > 0:
            out[place] = x[i]
            place = place + 1


@kept.shape
def kept_sizes(x):
    result = int64(0)
    for i in range(x.dim(0)):
        if x[i] > 0:
            result = result + 1
    return result


@register("in_parallel")
def in_parallel(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    def row(i):
        assert x[i] > 0, "elements have to be positive"
        out[i] = x[i]

    parallel_for(x.dim(0), row)


@register("flat_table")
def flat_table(out: OutputTensor[T, "(n*m)"], x: InputTensor[T, "n k"], y: InputTensor[T, "m k"]):
    def element(i):
        place = i[0]
        return x[place // y.dim(0), 0] * y[place % y.dim(0), 0]

    foreach(out, element)
