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
    int64,
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


def place_thread(out):
    """What a thread has of itself, a row each."""
    block = gpu.block_idx.x + gpu.grid_dim.x * (gpu.block_idx.y + gpu.grid_dim.y * gpu.block_idx.z)
    x, y, z = gpu.thread_idx.x, gpu.thread_idx.y, gpu.thread_idx.z
    thread = x + gpu.block_dim.x * (y + gpu.block_dim.y * z)
    row = block * (gpu.block_dim.x * gpu.block_dim.y * gpu.block_dim.z) + thread
    out[row, 0] = gpu.warp_idx * gpu.warp_size + gpu.lane_idx
    out[row, 1] = gpu.lane_idx
    out[row, 2] = gpu.warps_per_block
    out[row, 3] = gpu.cluster_idx.x + 10 * gpu.cluster_idx.y + 100 * gpu.cluster_idx.z
    out[row, 4] = gpu.block_in_cluster.x + 10 * gpu.block_in_cluster.y + 100 * gpu.block_in_cluster.z
    out[row, 5] = gpu.cluster_dim.x + 10 * gpu.cluster_dim.y + 100 * gpu.cluster_dim.z
    out[row, 6] = gpu.global_idx.x + 100 * gpu.global_idx.y + 10000 * gpu.global_idx.z


@register("grids::places")
def places(out: OutputTensor[int64, "n 7"], ctx: DeviceContext) -> None:
    ctx.launch(place_thread, out, grid=(4, 3, 2), block=(5, 3, 7))


@register("grids::cluster_places")
def cluster_places(out: OutputTensor[int64, "n 7"], ctx: DeviceContext) -> None:
    ctx.launch(place_thread, out, grid=(4, 3, 2), block=(5, 3, 7), cluster=(2, 1, 2))
