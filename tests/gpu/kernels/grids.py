"""Grids whose threads do not wait for each other."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    Numeric,
    OutputTensor,
    atomic,
    ceildiv,
    float32,
    gpu,
    int32,
    register,
    stack,
    uint8,
)

T = TypeVar("T", bound=Numeric)


def add_thread(out, x, y):
    i = gpu.global_idx.x
    if i < out.dim(0):
        out[i] = x[i] + y[i]


@register("grids::add")
def add(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], y: InputTensor[T, "n"], ctx: DeviceContext) -> None:
    ctx.launch(add_thread, out, x, y, grid=ceildiv(out.dim(0), 64), block=64)


def transpose_thread(out, x):
    row, column = gpu.global_idx.y, gpu.global_idx.x
    if row < x.dim(0) and column < x.dim(1):
        out[column, row] = x[row, column]


@register("grids::transpose")
def transpose(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"], ctx: DeviceContext) -> None:
    grid = (ceildiv(x.dim(1), 8), ceildiv(x.dim(0), 8))
    ctx.launch(transpose_thread, out, x, grid=grid, block=(8, 8))


def clear_thread(out):
    out[gpu.thread_idx.x] = 0


def count_thread(out, values):
    """Counts every 128th value in storage of its own, then adds up."""
    counts = stack[int32](16)
    for i in range(gpu.global_idx.x, values.dim(0), 128):
        counts[values[i]] += 1
    for k in range(16):
        if counts[k] > 0:
            atomic.add(out, k, counts[k])


@register("grids::histogram")
def histogram(out: OutputTensor[int32, "16"], values: InputTensor[uint8, "n"], ctx: DeviceContext) -> None:
    ctx.launch(clear_thread, out, grid=1, block=16)
    ctx.launch(count_thread, out, values, grid=4, block=32)
