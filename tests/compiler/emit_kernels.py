"""Kernels whose code is looked at."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    atomic_add,
    ceildiv,
    fma,
    foreach,
    gpu,
    int32,
    int64,
    max,
    parallel_for,
    register,
    store,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)
BIAS = 0.5


def biased(v):
    return v * 2 + BIAS


@register("scaled")
def scaled(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    foreach(
        out,
        lambda i: x[i] * 3 + 1,
    )


@register("uses_helper")
def uses_helper(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    foreach(out, lambda i: max(biased(x[i]), 0))


@register("plain", fastmath=())
def plain(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]) -> None:
    foreach(out, lambda i: x[i] * y[i] + x[i])


@register("contracted", fastmath={"contract"})
def contracted(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]) -> None:
    foreach(out, lambda i: x[i] * y[i] + x[i])


@register("fused")
def fused(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"]) -> None:
    foreach(out, lambda i: fma(x[i], y[i], x[i]))


@register("two_axes")
def two_axes(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], row: InputTensor[T, "n"]) -> None:
    def body(i):
        r, c = i
        return x[r, c] + row[c]

    foreach(out, body)


@register("counts")
def counts(out: OutputTensor[int32, "k"], x: InputTensor[int64, "n"]) -> None:
    parallel_for(x.dim(0), lambda i: atomic_add(out, x[i] % 8, 1))


def add_kernel(out, x, y, n: Int):
    i = gpu.global_idx.x
    if i < n:
        out[i] = x[i] + y[i]


@register("launched")
def launched(
    out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"], ctx: DeviceContext, *, block: int = 128
) -> None:
    n = out.dim(0)
    if ctx.target.is_gpu:
        ctx.launch(add_kernel, out, x, y, n, grid=ceildiv(n, block), block=block)
    else:
        parallel_for(n, lambda i: store(out, i, x[i] + y[i]), grain=1024)


@register("collatz")
def collatz(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    def steps(i):
        n = x[i]
        k = 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            k += 1
            if k > 1000:
                break
        return k

    foreach(out, steps)
