"""Kernels for `test_dask`: a module that the processes of workers import."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, foreach, register

T = TypeVar("T", bound=Floating)


@register("dask_swish")
def swish(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"], *, beta: float = 1.0):
    foreach(out, lambda i: x[i] / (1 + exp(-x[i] * beta)))


@register("dask_outer")
def outer(out: OutputTensor[T, "n m"], x: InputTensor[T, "n"], y: InputTensor[T, "m"]):
    foreach(out, lambda i: x[i[0]] * y[i[1]])


@register("dask_rise")
def rise(out: OutputTensor[T, "n m"], x: InputTensor[T, "n m"]):
    """How much more an element is than those before it along both axes; the element itself at the edges."""

    def difference(i):
        return x[i] - x[i[0] - 1, i[1] - 1] if i[0] > 0 and i[1] > 0 else x[i]

    foreach(out, difference)
