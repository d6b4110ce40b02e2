"""The running sum of a vector, in three launches: within blocks, over the sums of the blocks, and both together."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, gpu, int64, register
from einkorn.stdlib import Sum

BLOCK = 256  # threads


def scan_thread(out, sums, x):
    """The running sum within each block; the last thread of a block has the sum of all of it."""
    i = gpu.global_idx.x
    value = int64(0)
    if i < x.dim(0):
        value = x[i]
    running = gpu.block.scan(value, Sum)
    if i < x.dim(0):
        out[i] = running
    if gpu.thread_idx.x == BLOCK - 1:
        sums[gpu.block_idx.x] = running


def offsets_thread(sums):
    """The sums of the blocks before each block; one block goes through all of them."""
    before = int64(0)
    for start in range(0, sums.dim(0), BLOCK):
        i = start + gpu.thread_idx.x
        value = int64(0)
        if i < sums.dim(0):
            value = sums[i]
        running = gpu.block.scan(value, Sum)
        if i < sums.dim(0):
            sums[i] = before + running - value
        before += gpu.block.broadcast(running, BLOCK - 1)


def add_thread(out, sums):
    i = gpu.global_idx.x
    if i < out.dim(0):
        out[i] += sums[gpu.block_idx.x]


@register("gpu::prefix_sum")
def prefix_sum(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"], ctx: DeviceContext) -> None:
    """out[i] is the sum of x[0] to x[i]."""
    blocks = ceildiv(x.dim(0), BLOCK)
    sums = gpu.scratch[int64](blocks)
    ctx.launch(scan_thread, out, sums, x, grid=blocks, block=BLOCK)
    ctx.launch(offsets_thread, sums, grid=1, block=BLOCK)
    ctx.launch(add_thread, out, sums, grid=blocks, block=BLOCK)
