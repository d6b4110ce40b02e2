"""Reductions, scans and broadcasts over the threads of a warp and of a block."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    Numeric,
    OutputTensor,
    ceildiv,
    float32,
    gpu,
    int64,
    register,
)
from einkorn.stdlib import ArgMax, Max, Min, Monoid, Sum, Welford

T = TypeVar("T", bound=Numeric)


class Affine(Monoid):
    """Functions x -> m*x + c, one behind the other: their order matters."""

    @staticmethod
    def identity(dtype):
        return int64(1), int64(0)

    @staticmethod
    def lift(value, place):
        return int64(value) * 2 + 1, int64(value) - 3

    @staticmethod
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    @staticmethod
    def finish(state, dtype):
        return state[0] * 7 + state[1]


def of_warp_thread(out, x):
    i = gpu.global_idx.x
    v = x[i]
    out[0, i] = int64(gpu.warp.reduce(v, Sum))
    out[1, i] = int64(gpu.warp.reduce(v, Max))
    out[2, i] = gpu.warp.reduce(v, ArgMax)
    out[3, i] = gpu.warp.reduce(v, Affine)
    out[4, i] = int64(gpu.warp.scan(v, Sum))
    out[5, i] = int64(gpu.warp.scan(v, Sum, exclusive=True))
    out[6, i] = gpu.warp.scan(v, Affine)
    out[7, i] = gpu.warp.scan(v, Affine, exclusive=True)
    low, high = gpu.warp.reduce(v, (Min, Max))
    out[8, i] = int64(low) * 100 + int64(high)


@register("collectives::of_warp")
def of_warp(out: OutputTensor[int64, "9 n"], x: InputTensor[T, "n"], ctx: DeviceContext, *, block: int = 64) -> None:
    ctx.launch(of_warp_thread, out, x, grid=ceildiv(x.dim(0), block), block=block)


def of_block_thread(out, x):
    """Twice in a loop, so that shared memory is used again at once."""
    i = gpu.global_idx.x
    for k in range(2):
        v = x[k, i]
        out[k, 0, i] = int64(gpu.block.reduce(v, Sum))
        out[k, 1, i] = gpu.block.reduce(v, ArgMax)
        out[k, 2, i] = gpu.block.reduce(v, Affine)
        out[k, 3, i] = int64(gpu.block.scan(v, Sum))
        out[k, 4, i] = int64(gpu.block.scan(v, Sum, exclusive=True))
        out[k, 5, i] = gpu.block.scan(v, Affine)
        out[k, 6, i] = gpu.block.scan(v, Affine, exclusive=True)
        first, four = gpu.block.broadcast((v, 4))
        out[k, 7, i] = int64(first) * four + int64(gpu.block.broadcast(v, 17))


@register("collectives::of_block")
def of_block(
    out: OutputTensor[int64, "2 8 n"], x: InputTensor[T, "2 n"], ctx: DeviceContext, *, block: int = 64
) -> None:
    ctx.launch(of_block_thread, out, x, grid=ceildiv(x.dim(1), block), block=block)


def moments_thread(out, x):
    """Mean and variance of a block, and four sums side by side."""
    i = gpu.thread_idx.x
    mean, variance = gpu.block.reduce(x[i], Welford)
    sums = gpu.block.reduce(x.load(4 * (i % 4), width=4), Sum)
    if i == 0:
        out[0] = mean
        out[1] = variance
        out.store(sums, 2)


@register("collectives::moments")
def moments(out: OutputTensor[float32, "6"], x: InputTensor[float32, "n"], ctx: DeviceContext) -> None:
    ctx.launch(moments_thread, out, x, grid=1, block=120)
