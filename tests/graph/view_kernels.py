"""Kernels that look at how their tensors lie in memory, and read and write vectors in them."""

from typing import TypeVar

from einkorn.dsl import (
    Element,
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    foreach,
    int64,
    parallel_for,
    register,
    unroll,
)

E = TypeVar("E", bound=Element)
N = TypeVar("N", bound=Numeric)


@register("strides_of")
def strides_of(out: OutputTensor[int64, "r"], x: InputTensor[E, "*s"], *, r: int):
    for k in unroll(r):
        out[k] = x.strides[k]


@register("strides_of_views")
def strides_of_views(out: OutputTensor[int64, "6"], x: InputTensor[E, "m n"]):
    """Of x[::2, ::-3], of a row of it, and of x[1:, 0]; a view of one axis after an index has one stride."""
    view = x[::2, ::-3]
    out[0] = view.strides[0]
    out[1] = view.strides[1]
    out[2] = view[0, :].strides[0]
    out[3] = x[1:, 0].strides[0]
    out[4] = view[1:, ::-1].strides[1]
    out[5] = len(x[0, :].strides) + 0 * x.dim(0)


@register("by_vectors")
def by_vectors(out: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]):
    """x + x by vectors of four along rows; what is left of a row one by one."""

    def row(r):
        whole = x.dim(1) // 4
        for c in range(whole):
            out.store(x.load(r, 4 * c, width=4) + x.load(r, 4 * c, width=4), r, 4 * c)
        for c in range(4 * whole, x.dim(1)):
            out[r, c] = x[r, c] + x[r, c]

    parallel_for(x.dim(0), row)


@register("double_in_place")
def double_in_place(y: MutableInputTensor[N, "m n"]):
    """y += y by vectors of four, where a row has them."""

    def row(r):
        whole = y.dim(1) // 4
        for c in range(whole):
            value = y.load(r, 4 * c, width=4)
            y.store(value + value, r, 4 * c)
        for c in range(4 * whole, y.dim(1)):
            y[r, c] += y[r, c]

    parallel_for(y.dim(0), row)


@register("reversed_steps")
def reversed_steps(out: OutputTensor[E, "a b"], x: InputTensor[E, "m n"]):
    """x[m-2::-2, 5:0:-2] where the shapes are made for it."""
    view = x[x.dim(0) - 2 :: -2, 5:0:-2]
    foreach(out, lambda i: view[i])


@register("flipped")
def flipped(out: OutputTensor[E, "m n"], x: InputTensor[E, "m n"]):
    """Written backwards through a view of the output, by vectors of two where there are two."""
    view = out[::-1, ::-1]

    def row(r):
        pairs = x.dim(1) // 2
        for c in range(pairs):
            view.store(x.load(r, 2 * c, width=2), r, 2 * c)
        for c in range(2 * pairs, x.dim(1)):
            view[r, c] = x[r, c]

    parallel_for(x.dim(0), row)
