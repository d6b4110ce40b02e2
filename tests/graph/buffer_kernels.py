"""Kernels that change their inputs in place."""

from typing import TypeVar

from einkorn.dsl import InputTensor, MutableInputTensor, Numeric, OutputTensor, foreach, parallel_for, register

N = TypeVar("N", bound=Numeric)


@register("axpy_into", reads={"x": 1})
def axpy_into(y: MutableInputTensor[N, "*s"], a: N, x: InputTensor[N, "*s"]):
    """y += a * x."""
    foreach(y, lambda i: y[i] + a * x[i])


@register("swap")
def swap(x: MutableInputTensor[N, "n"], y: MutableInputTensor[N, "n"]):
    def one(i):
        kept = x[i]
        x[i] = y[i]
        y[i] = kept

    parallel_for(x.dim(0), one)


@register("bump_and_sum")
def bump_and_sum(out: OutputTensor[N, "m"], y: MutableInputTensor[N, "m n"], by: InputTensor[N, "n"]):
    """Adds a row to every row, and gives the sums of the new rows."""

    def row(r):
        total = by[0] - by[0]
        for c in range(y.dim(1)):
            y[r, c] += by[c]
            total = total + y[r, c]
        out[r] = total

    parallel_for(y.dim(0), row)


@register("row_total")
def row_total(out: OutputTensor[N, "m"], x: InputTensor[N, "m n"]):
    """Reads only; takes a buffer, too."""

    def row(r):
        total = x[r, 0]
        for c in range(1, x.dim(1)):
            total = total + x[r, c]
        out[r] = total

    parallel_for(x.dim(0), row)


@register("stops")
def stops(y: MutableInputTensor[N, "n"], limit: N):
    """Doubles elements in order until one is too large."""
    for i in range(y.dim(0)):
        assert y[i] <= limit, f"{y[i]} is too large"
        y[i] = y[i] + y[i]
