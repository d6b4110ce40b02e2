"""Kernels that take numbers and vectors of every kind from host code."""

from __future__ import annotations

from einkorn.dsl import (
    SIMD,
    DeviceContext,
    InputTensor,
    OutputTensor,
    bfloat16,
    float16,
    float32,
    float64,
    gpu,
    int8,
    int16,
    register,
    select,
    uint8,
    uint32,
    uint64,
    unroll,
)


def scalars_thread(out, flag, a, b, c, d, e, f, g, h):
    """Each number alone, so that a wrong one shows."""
    if gpu.thread_idx.x == 0:
        values = (float64(flag), a.cast(float64), b.cast(float64), c.cast(float64), d.cast(float64))
        values = (*values, e.cast(float64), f.cast(float64), g.cast(float64), h)
        for k in unroll(9):
            out[k] = values[k]


@register("arguments::scalars")
def scalars(out: OutputTensor[float64, "9"], x: InputTensor[float64, "n"], ctx: DeviceContext) -> None:
    n = x.dim(0)
    small, wide = n.cast(float32), n.cast(float64)
    numbers = (int8(0 - n), uint8(250 + n), int16(-300 * n), uint32(0) - n.cast(uint32), n.cast(uint64) << 60)
    floats = (float16(small / 2), bfloat16(-small * 3), wide / 3)
    ctx.launch(scalars_thread, out, n % 2 == 1, *numbers, *floats, grid=1, block=32)


def vectors_thread(out, x, by, keep, add):
    i = gpu.global_idx.x
    if i < x.dim(0):
        v = SIMD[float32, 4](x[i]) * by + add.cast(float32)
        kept = select(keep, v, SIMD[float32, 4](0.0))
        for k in range(4):
            out[i, k] = kept[k]


@register("arguments::vectors")
def vectors(out: OutputTensor[float32, "n 4"], x: InputTensor[float32, "n"], ctx: DeviceContext) -> None:
    """Vectors that host code computes: of floats, of bools, of bytes; in a loop of the host."""
    n = x.dim(0)
    by = SIMD[float32, 4](n.cast(float32))
    by[1] = 2.0
    add = SIMD[int8, 4](-3)
    add[3] = int8(7)
    for _ in range(2):
        by = by + 1.0
        ctx.launch(vectors_thread, out, x, by, by > 4.0, add, grid=1, block=32)
