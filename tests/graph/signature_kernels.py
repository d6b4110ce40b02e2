"""Kernels whose signatures have more than plain tensors: scalars and variadic arguments."""

from typing import TypeVar

from einkorn.dsl import (
    Bool,
    Element,
    Float32,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    OutputVariadicTensors,
    VariadicTensors,
    foreach,
    parallel_for,
    register,
    select,
    static_assert,
    unroll,
)

T = TypeVar("T", bound=Numeric)
E = TypeVar("E", bound=Element)


@register("blend")
def blend(out: OutputTensor[T, "*s"], a: T, x: InputTensor[T, "*s"], n: Int, flag: Bool):
    """a * x where the flag is set, else n."""
    foreach(out, lambda i: select(flag, a * x[i], n.cast(T)))


@register("ramp")
def ramp(out: OutputTensor[T, "count"], start: T, step: T, *, count: int):
    """start + k*step, from a loop of its own: not elementwise."""
    parallel_for(count, lambda k: out.store(start + step * k.cast(T), k))


@register("scaled_rows", reads={"x": 1})
def scaled_rows(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], scale: Float32):
    """Each row times a number that is read before the loop."""
    by = scale.cast(T)

    def row(r):
        for c in range(x.dim(1)):
            out[r, c] = x[r, c] * by

    parallel_for(x.dim(0), row)


@register("stacked")
def stacked(out: OutputTensor[E, "(sum(n_k)) *rest"], xs: VariadicTensors[E, "n_k *rest"]):
    """Tensors one below the other; each has a height of its own."""
    start = Int(0)
    for x in xs:
        first = start

        def element(i, x=x, first=first):
            out[(first + i[0], *i[1:])] = x[i]

        visit(x, element)
        start = start + x.dim(0)


def visit(x, element):
    """element(i) for each index of x."""
    for position in range(x.size):
        rest = position
        index = ()
        for k in unroll(x.rank):
            axis = x.rank - 1 - k
            size = max(x.dim(axis), 1)
            index = (rest % size, *index)
            rest = rest // size
        element(index)


@register("total")
def total(out: OutputTensor[T, "*s"], xs: VariadicTensors[T, "*s"]):
    """The sum of any number of tensors of one shape."""
    static_assert(len(xs) > 0, "there is nothing to add")

    def element(i):
        result = xs[0][i]
        for x in xs[1:]:
            result = result + x[i]
        return result

    foreach(out, element)


@register("scaled_all")
def scaled_all(outs: OutputVariadicTensors[T, "*s_k"], xs: VariadicTensors[T, "*s_k"], by: T):
    """Each tensor times a number."""
    for k in unroll(len(xs)):
        foreach(outs[k], lambda i, k=k: xs[k][i] * by)


@register("parts")
def parts(outs: OutputVariadicTensors[T, "n_k", "count"], x: InputTensor[T, "n"], *, count: int = 2):
    """x cut into pieces whose sizes the caller requests."""
    start = Int(0)
    for out in outs:
        first = start
        foreach(out, lambda i, first=first: x[first + i[0]])
        start = start + out.dim(0)


@register("weighted", reads={"xs": 1})
def weighted(
    out: OutputTensor[T, "n"], xs: VariadicTensors[T, "n", 2], ys: VariadicTensors[T, "n"], w: InputTensor[T, ""]
):
    """(xs[0] - xs[1]) * the number of ys + w."""
    parallel_for(out.dim(0), lambda i: out.store((xs[0][i] - xs[1][i]) * len(ys) + w[()], i))
