"""Kernels that run in vectors, tiles and chunks."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    InputTensor,
    Numeric,
    OutputTensor,
    float32,
    int64,
    max,
    parallel_chunks,
    parallel_for,
    register,
    tile,
    vectorize,
)

N = TypeVar("N", bound=Numeric)
SIZES = ((8, 1), (16, 4, 1), (4, 1), (16, 8), (1,))


@register("vectorized")
def vectorized(
    a: OutputTensor[N, "n"],
    b: OutputTensor[N, "n"],
    widths: OutputTensor[int64, "n"],
    x: InputTensor[N, "n"],
    *,
    w: int = 8,
) -> None:
    def whole(i, width):
        a.store(x.load(i, width=width) + 1, i)
        for k in range(width):
            widths[i + k] = width

    def masked(i, width, mask):
        b.store(x.load(i, width=width, mask=mask) * 3, i, mask=mask)

    vectorize(x.dim(0), w, whole)
    vectorize(x.dim(0), w, masked, masked=True)


@register("tiled")
def tiled(o: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], *, which: int = 0) -> None:
    def one(i, size):
        for k in range(size):
            o[i + k] = size * 1000 + i

    tile(o.dim(0), SIZES[which], one)


@register("chunked")
def chunked(o: OutputTensor[N, "n"], x: InputTensor[N, "n"], *, grain: int = 1) -> None:
    """Running sums within each chunk, and where it begins."""

    def some(low, high):
        total = x[low] * 0
        for i in range(low, high):
            total += x[i]
            o[i] = total

    parallel_chunks(x.dim(0), some, grain=grain)


@register("scaled")
def scaled(o: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]) -> None:
    def some(low, high):
        def lanes(i, width):
            o.store(max(x.load(low + i, width=width) * 2, 0), low + i)

        vectorize(high - low, 16, lanes)

    parallel_chunks(x.dim(0), some, grain=4096)


@register("in_tasks")
def in_tasks(o: OutputTensor[N, "m n"], x: InputTensor[N, "m n"]) -> None:
    def row(i):
        vectorize(x.dim(1), 4, lambda j, width: o.store(x.load(i, j, width=width) + 1, i, j))

    parallel_for(x.dim(0), row)
