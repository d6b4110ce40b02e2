"""Two ways of writing one op: a grid of threads for GPUs, tasks for the cores of a CPU."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    ceildiv,
    gpu,
    parallel_for,
    register,
    store,
)

N = TypeVar("N", bound=Numeric)


def add_thread(out, a, b, n: Int):
    """What one thread of the grid does: it adds one pair of elements, unless it stands beyond the end."""
    i = gpu.global_idx.x
    if i < n:
        out[i] = a[i] + b[i]


@register("vector_addition")
def vector_addition(
    out: OutputTensor[N, "n"], a: InputTensor[N, "n"], b: InputTensor[N, "n"], ctx: DeviceContext, *, block: int = 256
) -> None:
    """a + b; `block` is how many threads a block of the grid has."""
    n = out.dim(0)
    if ctx.target.is_gpu:  # known at compile time: one of the two branches is compiled
        ctx.launch(add_thread, out, a, b, n, grid=ceildiv(n, block), block=block)
    else:
        parallel_for(n, lambda i: store(out, i, a[i] + b[i]), grain=16384)
