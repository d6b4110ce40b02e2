"""Copies into shared memory that run next to the threads."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Numeric, OutputTensor, ceildiv, float32, gpu, register

T = TypeVar("T", bound=Numeric)


def turned_thread(out, x, width):
    """Each thread copies some neighbours, and stores those that another one copied."""
    i, n = gpu.thread_idx.x, 64 * width
    tile = gpu.shared[x.dtype](n)
    base = gpu.block_idx.x * n
    token = gpu.copy_async(
        tile[width * i : width * i + width],
        x[base + width * i : base + width * i + width],
        mask=base + width * i + width <= x.dim(0),
    )
    token.wait()
    gpu.barrier()
    for k in range(width):
        at = base + width * i + k
        if at < out.dim(0):
            out[at] = tile[n - 1 - (width * i + k)]


@register("async_copies::turned")
def turned(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext, *, width: int = 4) -> None:
    ctx.launch(turned_thread, out, x, width, grid=ceildiv(x.dim(0), 64 * width), block=64)


def stage(tile, x, row, slot):
    """Begins to copy a row of 128 numbers into a slot, and gives the group."""
    i = gpu.thread_idx.x
    gpu.copy_async(tile[slot, 4 * i : 4 * i + 4], x[row, 4 * i : 4 * i + 4])
    return gpu.commit()


def pipeline_thread(out, x):
    """The sum of each column, in which threads read what others copied, one row ahead."""
    i = gpu.thread_idx.x
    tile = gpu.shared[float32](2, 128)
    rows = x.dim(0)
    group = stage(tile, x, 0, 0)
    total = float32(0)
    for k in range(rows - 1):
        ahead = stage(tile, x, k + 1, (k + 1) % 2)
        group.wait(pending=1)
        gpu.barrier()
        total += tile[k % 2, 127 - i]
        gpu.barrier()
        group = ahead
    group.wait()
    gpu.barrier()
    out[i] = total + tile[(rows - 1) % 2, 127 - i]


@register("async_copies::pipeline")
def pipeline(out: OutputTensor[float32, "32"], x: InputTensor[float32, "m 128"], ctx: DeviceContext) -> None:
    ctx.launch(pipeline_thread, out, x, grid=1, block=32)
