"""Kernels to check: some right, some wrong in ways that only some cases show."""

from typing import TypeVar

import numpy as np

from einkorn.dsl import (
    Floating,
    InputTensor,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    VariadicTensors,
    float32,
    foreach,
    int64,
    max,
    register,
    select,
    store,
)
from einkorn.stdlib import Sum, reduce, rowwise

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)


@register("scaled")
def scaled(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], by: F, *, shift: float = 0.5):
    foreach(out, lambda i: x[i] * by + shift)


@scaled.reference
def scaled_reference(x, by, *, shift):
    if x.dtype.itemsize == 2:
        return (x.astype(np.float32) * np.float32(by) + np.float32(shift)).astype(x.dtype)
    return x * by + x.dtype.type(shift)


@register("row_sum")
def row_sum(out: OutputTensor[F, "m"], x: InputTensor[F, "m n"]):
    def total(i):
        sum = 0.0
        for k in range(x.dim(1)):
            sum += x[i[0], k]
        return sum

    foreach(out, total)


@register("add_into")
def add_into(x: MutableInputTensor[float32, "n"], y: InputTensor[float32, "n"]):
    for i in range(x.dim(0)):
        x[i] += y[i]


@register("add_all")
def add_all(out: OutputTensor[float32, "n"], xs: VariadicTensors[float32, "n"]):
    foreach(out, lambda i: xs[0][i] + xs[1][i])


@register("doubled")
def doubled(out: OutputTensor[float32, "(2*n)"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i[0] // 2])


@register("picked")
def picked(out: OutputTensor[float32, "m"], x: InputTensor[float32, "n"], index: InputTensor[int64, "m"]):
    foreach(out, lambda i: x[index[i]])


@register("row_totals", batch="b")
def row_totals(
    out: OutputTensor[float32, "*b n"],
    total: OutputTensor[float32, "*b"],
    x: InputTensor[float32, "*b n"],
    weight: InputTensor[float32, "n"],
):
    foreach(out, lambda i: x[i] * weight[i[-1]])
    rowwise(x, Sum, lambda row, value: store(total, row, value))


# Wrong ones.


@register("mixes_rows", batch="b")
def mixes_rows(out: OutputTensor[float32, "*b n"], x: InputTensor[float32, "*b n"]):
    whole = reduce(x, Sum)
    foreach(out, lambda i: x[i] + whole)


@register("forgets_the_tail")
def forgets_the_tail(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]):
    whole = x.dim(0) // 8 * 8
    foreach(out, lambda i: select(i[0] < max(whole, 8), x[i] + 1, x[i]))


@register("loses_nan")
def loses_nan(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]):
    foreach(out, lambda i: select(x[i] > 0, x[i], 0.0))


@register("wraps")
def wraps(out: OutputTensor[int64, "n"], x: InputTensor[T, "n"]):
    foreach(out, lambda i: (x[i] * x[i]).cast(int64))


@register("aliased")
def aliased(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], y: InputTensor[float32, "n"]):
    foreach(out, lambda i: select(x[i] == y[i], x[i], x[i] - y[i]))
