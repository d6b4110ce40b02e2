"""Kernels that scan, for `test_scans`."""

from __future__ import annotations

from typing import TypeVar

from algorithm_kernels import Composed, Summarised

from einkorn.dsl import Floating, InputTensor, Numeric, OutputTensor, int64, register
from einkorn.stdlib import ArgMax, Max, Sum, Welford, scan

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)


@register("sums")
def sums(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"], *, axis: int, exclusive: bool = False):
    scan(out, x, Sum, axis=axis, exclusive=exclusive)


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
