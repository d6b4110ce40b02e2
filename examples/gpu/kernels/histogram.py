"""How often each byte occurs: each block counts in its shared memory, and adds its counts to those of all."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, atomic, ceildiv, gpu, int32, min, register, uint8

BLOCK = 256  # threads, and bins
BLOCKS = 32


def clear_thread(out):
    out[gpu.thread_idx.x] = 0


def count_thread(out, values):
    counts = gpu.shared[int32](BLOCK)
    bin = gpu.thread_idx.x
    counts[bin] = 0
    gpu.barrier()
    for i in range(gpu.global_idx.x, values.dim(0), gpu.grid_dim.x * BLOCK):
        atomic.add(counts, values[i], 1, scope="block")
    gpu.barrier()
    if counts[bin] > 0:
        atomic.add(out, bin, counts[bin])


@register("gpu::histogram")
def histogram(out: OutputTensor[int32, "256"], values: InputTensor[uint8, "n"], ctx: DeviceContext) -> None:
    """out[k] is the number of elements that are k."""
    ctx.launch(clear_thread, out, grid=1, block=BLOCK)
    ctx.launch(count_thread, out, values, grid=min(BLOCKS, ceildiv(values.dim(0), BLOCK)), block=BLOCK)
