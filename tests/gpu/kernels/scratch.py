"""Kernels that keep something in memory of the device between two launches."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, Int, OutputTensor, ceildiv, float32, gpu, int8, register


def partial_thread(kept, x, n: Int):
    """A sum for each block of 32 elements."""
    block = gpu.global_idx.x
    if block < kept.dim(0):
        total = float32(0)
        for i in range(block * 32, min(block * 32 + 32, n)):
            total += x[i]
        kept[block] = total


def shifted_thread(out, kept, marks, n: Int):
    """The sum of an element's block and the next one, and how many marks there are before it."""
    i = gpu.global_idx.x
    if i < n:
        block = i // 32
        after = kept[block + 1] if block + 1 < kept.dim(0) else float32(0)
        out[i] = kept[block] + after + marks[block].cast(float32)


def mark_thread(marks):
    block = gpu.global_idx.x
    if block < marks.dim(0):
        marks[block] = int8(block % 100)


@register("scratch::neighbours")
def neighbours(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext) -> None:
    n = x.dim(0)
    blocks = ceildiv(n, 32)
    kept = gpu.scratch[float32](blocks)
    marks = gpu.scratch[int8](blocks)
    grid = ceildiv(blocks, 32)
    ctx.launch(partial_thread, kept, x, n, grid=grid, block=32)
    ctx.launch(mark_thread, marks, grid=grid, block=32)
    ctx.launch(shifted_thread, out, kept, marks, n, grid=ceildiv(n, 64), block=64)


def copy_thread(to, x, n: Int):
    i = gpu.global_idx.x
    if i < n:
        to[i] = x[i] + 1


@register("scratch::rounds")
def rounds(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext) -> None:
    """Scratch of a size that host code computes, only where it is needed."""
    n = x.dim(0)
    if n > 10:
        kept = gpu.scratch[float32](n + n % 7)
        ctx.launch(copy_thread, kept, x, n, grid=ceildiv(n, 32), block=32)
        ctx.launch(copy_thread, out, kept, n, grid=ceildiv(n, 32), block=32)
    else:
        ctx.launch(copy_thread, out, x, n, grid=1, block=32)
