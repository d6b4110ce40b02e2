"""Kernels for tensors of any rank: each way to go through elements."""

from typing import TypeVar

from einkorn.dsl import (
    Element,
    InputTensor,
    Int,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    foreach,
    int64,
    parallel_for,
    register,
    unroll,
)

N = TypeVar("N", bound=Numeric)
E = TypeVar("E", bound=Element)


@register("by_foreach")
def by_foreach(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    foreach(out, lambda i: x[i] + x[i])


@register("by_components")
def by_components(out: OutputTensor[int64, "*s"], x: InputTensor[E, "*s"]):
    """The sum of the index of each element, which needs its components."""

    def element(i):
        total = Int(0)
        for k in unroll(x.rank):
            total = total + i[k]
        return total

    foreach(out, element)


@register("by_positions")
def by_positions(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    """The elements in the opposite order."""
    parallel_for(x.size, lambda p: out.store(x.at(x.size - 1 - p), *index_of(p, x)))


def index_of(position, x):
    rest = position
    index = ()
    for k in unroll(x.rank):
        axis = x.rank - 1 - k
        size = max(x.dim(axis), 1)
        index = (rest % size, *index)
        rest = rest // size
    return index


@register("two_at_once")
def two_at_once(a: OutputTensor[N, "*s"], b: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]):
    foreach((a, b), lambda i: (x[i] + y[i], x[i] - y[i]))


@register("sizes")
def sizes(out: OutputTensor[int64, "3"], x: InputTensor[E, "*s"]):
    """Rank, number of elements, sum of the sizes."""
    total = Int(0)
    for size in x.shape:
        total = total + size
    out[0] = x.rank
    out[1] = x.size
    out[2] = total


@register("zeroed")
def zeroed(y: MutableInputTensor[N, "*s"]):
    foreach(y, lambda i: y[i] - y[i])
