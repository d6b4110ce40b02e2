"""Kernels that sort values whose number is known."""

from typing import TypeVar

from einkorn.dsl import Element, InputTensor, OutputTensor, clamp, float32, foreach, register, unroll

T = TypeVar("T", bound=Element)


@register("rows")
def rows(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], *, n: int, reverse: bool = False):
    for i in range(x.dim(0)):
        ordered = sorted((x[i, k] for k in unroll(n)), reverse=reverse)
        for k in unroll(n):
            out[i, k] = ordered[k]


@register("median")
def median(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]):
    def at(i, j):
        return x[clamp(i, 0, x.dim(0) - 1), clamp(j, 0, x.dim(1) - 1)]

    foreach(out, lambda i: sorted(at(i[0] + a, i[1] + b) for a in unroll(-1, 2) for b in unroll(-1, 2))[4])


@register("lanes")
def lanes(out: OutputTensor[T, "3 8"], x: InputTensor[T, "3 8"]):
    ordered = sorted((x.load(0, 0, width=8), x.load(1, 0, width=8), x.load(2, 0, width=8)))
    for k in unroll(3):
        out.store(ordered[k], k, 0)


@register("with_numbers")
def with_numbers(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: sorted((x[i], 0, 1.5))[1])
