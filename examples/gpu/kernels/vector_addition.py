"""The sum of two vectors: one thread an element."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, float32, gpu, register

BLOCK = 256  # threads


def add_thread(out, x, y):
    i = gpu.global_idx.x
    if i < out.dim(0):  # the last block reaches beyond the end
        out[i] = x[i] + y[i]


@register("gpu::vector_addition")
def vector_addition(
    out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], y: InputTensor[float32, "n"], ctx: DeviceContext
) -> None:
    """x + y."""
    ctx.launch(add_thread, out, x, y, grid=ceildiv(out.dim(0), BLOCK), block=BLOCK)
