"""Kernels that scan, for `test_scans`."""

from __future__ import annotations

from typing import TypeVar

from algorithm_kernels import Composed, Summarised

from einkorn.dsl import Element, Floating, InputTensor, Numeric, OutputTensor, int64, register, store
from einkorn.stdlib import ArgMax, Max, Product, Sum, Welford, rowwise, scan

N = TypeVar("N", bound=Numeric)
E = TypeVar("E", bound=Element)
W = TypeVar("W", bound=Numeric)
F = TypeVar("F", bound=Floating)


class Narrow(Sum):
    """Sums in the dtype of the elements."""

    @staticmethod
    def finish(state, dtype):
        return state.cast(dtype)


@register("sums")
def sums(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], *, axis: int, exclusive: bool = False):
    scan(out, x, Narrow, axis=axis, exclusive=exclusive)


@register("wide_sums")
def wide_sums(
    rows: OutputTensor[W, "m"],
    columns: OutputTensor[W, "n"],
    products: OutputTensor[W, "m"],
    running: OutputTensor[W, "m n"],
    down: OutputTensor[W, "m n"],
    x: InputTensor[E, "m n"],
):
    """As wide as NumPy's; `test_scans` compares them."""
    rowwise(x, (Sum, Product), lambda row, found, product: (store(rows, row, found), store(products, row, product)))
    rowwise(x, Sum, lambda column, found: store(columns, column, found), axis=0)
    scan(running, x, Sum)
    scan(down, x, Sum, axis=0, exclusive=True, reverse=True)


@register("largest")
def largest(out: OutputTensor[N, "*s"], places: OutputTensor[int64, "*s"], x: InputTensor[N, "*s"], *, axis: int):
    scan(out, x, Max, axis=axis)
    scan(places, x, ArgMax, axis=axis)


@register("composed")
def composed(out: OutputTensor[int64, "m n"], x: InputTensor[int64, "m n"]):
    scan(out, x, Composed)


@register("moments")
def moments(mean: OutputTensor[F, "m n"], variance: OutputTensor[F, "m n"], x: InputTensor[F, "m n"]):
    scan((mean, variance), x, Welford)


@register("summaries")
def summaries(
    spread: OutputTensor[F, "*s"], total: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, axis: int, exclusive: bool
):
    scan((spread, total), x, Summarised, axis=axis, exclusive=exclusive)
