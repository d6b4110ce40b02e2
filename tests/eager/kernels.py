"""Kernels that tensors are passed to."""

from typing import TypeVar

from einkorn.dsl import InputTensor, MutableInputTensor, Numeric, OutputTensor, foreach, parallel_for, register

N = TypeVar("N", bound=Numeric)


@register("eager_scaled")
def eager_scaled(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], *, scale: int = 2):
    """x times a parameter."""
    foreach(out, lambda i: x[i] * scale)


SHIFT = 1


@register("eager_shifted")
def eager_shifted(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]):
    """x and a number that the module has."""
    foreach(out, lambda i: x[i] + SHIFT)


@register("eager_both")
def eager_both(
    low: OutputTensor[N, "*s"], high: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], y: InputTensor[N, "*s"]
):
    """The smaller and the larger of two."""
    foreach(low, lambda i: min(x[i], y[i]))
    foreach(high, lambda i: max(x[i], y[i]))


@register("eager_axpy_into")
def eager_axpy_into(y: MutableInputTensor[N, "*s"], a: N, x: InputTensor[N, "*s"]):
    """y += a * x."""
    foreach(y, lambda i: y[i] + a * x[i])


@register("eager_limited")
def eager_limited(out: OutputTensor[N, "n"], x: InputTensor[N, "n"]):
    """x, whose elements are below 10."""

    def one(i):
        assert x[i] < 10, f"{x[i]} is too large"
        out[i] = x[i]

    parallel_for(x.dim(0), one)
