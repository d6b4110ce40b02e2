"""The sum of a vector, by blocks that each sum up a part, and one block that sums up the parts."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, float32, gpu, min, register
from einkorn.stdlib import Sum

BLOCK = 256  # threads
BLOCKS = 64  # at most: each thread adds up many elements before the threads of its block join theirs


def sum_thread(out, x):
    """Puts the sum of what block b reads into out[b]."""
    total = float32(0)
    for i in range(gpu.global_idx.x, x.dim(0), gpu.grid_dim.x * gpu.block_dim.x):
        total += x[i]
    whole = gpu.block.reduce(total, Sum)
    if gpu.thread_idx.x == 0:
        out[gpu.block_idx.x] = whole


@register("gpu::reduction")
def reduction(
    out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"], ctx: DeviceContext, *, blocks: int = BLOCKS
) -> None:
    """The sum of all elements. The order of the additions is fixed: the bits are the same in every run."""
    parts = gpu.scratch[float32](blocks)
    count = min(blocks, ceildiv(x.dim(0), BLOCK))
    ctx.launch(sum_thread, parts, x, grid=count, block=BLOCK)
    ctx.launch(sum_thread, out, parts[:count], grid=1, block=BLOCK)
