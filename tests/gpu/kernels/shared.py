"""Blocks whose threads share memory, and wait for each other."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    Int,
    OutputTensor,
    Storable,
    atomic,
    ceildiv,
    float32,
    gpu,
    int32,
    register,
    uint8,
)

T = TypeVar("T", bound=Storable)


def reverse_thread(out, x):
    """The numbers of each block of 64 back to front."""
    kept = gpu.shared[x.dtype](64)
    i, t = gpu.global_idx.x, gpu.thread_idx.x
    if i < x.dim(0):
        kept[t] = x[i]
    gpu.barrier()
    back = gpu.block_idx.x * 64 + 63 - t
    if back < x.dim(0):
        out[back] = kept[63 - t] if back != 3 else kept.load(63 - t)


@register("shared::reverse_twice")
def reverse_twice(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext) -> None:
    ctx.launch(reverse_thread, out, x, grid=ceildiv(x.dim(0), 64), block=64)


def tile_thread(out, x, *, side: int):
    """A tile, with a padding column against bank conflicts: read by rows, written by columns."""
    tile = gpu.shared[float32](side, side + 1)
    x0, y0 = gpu.block_idx.x * side, gpu.block_idx.y * side
    if y0 + gpu.thread_idx.y < x.dim(0) and x0 + gpu.thread_idx.x < x.dim(1):
        tile[gpu.thread_idx.y, gpu.thread_idx.x] = x[y0 + gpu.thread_idx.y, x0 + gpu.thread_idx.x]
    gpu.barrier()
    if x0 + gpu.thread_idx.y < x.dim(1) and y0 + gpu.thread_idx.x < x.dim(0):
        out[x0 + gpu.thread_idx.y, y0 + gpu.thread_idx.x] = tile[gpu.thread_idx.x, gpu.thread_idx.y]


@register("shared::transpose")
def transpose(
    out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"], ctx: DeviceContext, *, side: int = 16
) -> None:
    grid = (ceildiv(x.dim(1), side), ceildiv(x.dim(0), side))
    ctx.launch(tile_thread, out, x, grid=grid, block=(side, side), parameters={"side": side})


def sum_thread(out, x, n: Int):
    """The sum of each row, in halves: two allocations, a loop with barriers, memory that is used again."""
    kept, t = gpu.shared[float32](128), gpu.thread_idx.x
    for row in range(gpu.block_idx.x, x.dim(0), 3):
        total = float32(0)
        for k in range(t, n, 128):
            total += x[row, k]
        kept[t] = total
        gpu.barrier()
        half = 64
        while half > 0:
            if t < half:
                kept[t] = kept[t] + kept[t + half]
            gpu.barrier()
            half = half // 2
        if t == 0:
            out[row] = kept[0]
        gpu.barrier()


@register("shared::row_sums")
def row_sums(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"], ctx: DeviceContext) -> None:
    ctx.launch(sum_thread, out, x, x.dim(1), grid=3, block=128)


def slices_thread(out, x):
    """Slices, pointers, vectors and filling of a shared tensor."""
    kept, t = gpu.shared[float32](4, 8, align=64), gpu.thread_idx.x
    row = kept[t, :]
    row.fill(float32(t))
    row.store(x.load(t, 0, width=4), 2)
    gpu.barrier()
    there = kept.pointer((t + 1) % 4, 0)
    for k in range(8):
        out[t, k] = there[k] + kept[:, k][t] * 10
    gpu.barrier()
    kept.store(there.load(width=4), t, 4)
    gpu.barrier()
    for k in range(8):
        out[t, 8 + k] = kept[t, k]


@register("shared::slices")
def slices(out: OutputTensor[float32, "4 16"], x: InputTensor[float32, "4 4"], ctx: DeviceContext) -> None:
    ctx.launch(slices_thread, out, x, grid=1, block=4)


def dynamic_thread(out, x, n: Int):
    """Two parts of dynamic shared memory, the first of an odd number of bytes, next to static memory."""
    seen = gpu.dynamic_shared[uint8](n + 1)
    kept = gpu.dynamic_shared[float32](2, n)
    fixed = gpu.shared[float32](1)
    t = gpu.thread_idx.x
    if t < n:
        seen[t] = uint8(t)
        kept[0, t] = x[t]
        kept[1, t] = x[t] * 2
    if t == 0:
        seen[n] = uint8(100)
        fixed[0] = 1000.0
    gpu.barrier()
    if t < n:
        other = n - 1 - t
        out[t] = kept[0, other] + kept[1, t] + seen[other].cast(float32) + fixed[0] + seen[n].cast(float32)


@register("shared::dynamic")
def dynamic(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext) -> None:
    n = x.dim(0)
    ctx.launch(dynamic_thread, out, x, n, grid=1, block=64, shared=ceildiv(n + 1, 16) * 16 + 8 * n)


def large_thread(out, x):
    """More than 48 KiB for the threads of a block, in two tensors, one of which is made in a branch."""
    t = gpu.thread_idx.x
    kept = gpu.shared[float32](12500)
    for i in range(t, 12500, 64):
        kept[i] = x[i]
    gpu.barrier()
    if gpu.grid_dim.x == 1:
        ends = gpu.shared[float32](3, align=256)
        if t < 3:
            ends[t] = t.cast(float32)
        gpu.barrier()
        for i in range(t, 12500, 64):
            out[i] = kept[12499 - i] + kept[i] + ends[1] - 1


@register("shared::large")
def large(out: OutputTensor[float32, "12500"], x: InputTensor[float32, "12500"], ctx: DeviceContext) -> None:
    ctx.launch(large_thread, out, x, grid=1, block=64)


def clear_thread(out):
    out[gpu.thread_idx.x] = 0


def count_thread(out, values):
    """Counts in memory of the block, then adds up."""
    counts, t = gpu.shared[int32](16), gpu.thread_idx.x
    if t < 16:
        counts[t] = 0
    gpu.barrier()
    for i in range(gpu.global_idx.x, values.dim(0), 192):
        atomic.add(counts, values[i], 1)
    gpu.barrier()
    if t < 16:
        atomic.add(out, t, counts[t])


@register("shared::histogram")
def histogram(out: OutputTensor[int32, "16"], values: InputTensor[uint8, "n"], ctx: DeviceContext) -> None:
    ctx.launch(clear_thread, out, grid=1, block=16)
    ctx.launch(count_thread, out, values, grid=3, block=64)
