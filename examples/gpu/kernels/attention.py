"""Attention in one kernel, which never stores the scores: softmax(q @ transposed k / sqrt(d)) @ v.

A warp a row of `q`, lanes along the keys, four rows a block; keys and values go through shared memory by tiles, and the
softmax is kept up to date as they come (M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, 2018).
"""

from __future__ import annotations

from math import inf

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    OutputTensor,
    ceildiv,
    exp,
    float32,
    fma,
    gpu,
    max,
    register,
    rsqrt,
    stack,
    static_assert,
    unroll,
)
from einkorn.stdlib import Max, Sum

KEYS = 32  # in shared memory at a time
ROWS = 4  # of a block


def attention_thread(out, q, k, v, *, width: int):
    """Lane l holds elements l, l + lanes, ... of its row of the result."""
    lanes = gpu.warp_size
    each = (width + lanes - 1) // lanes
    keys = gpu.shared[float32](KEYS, width + 1)
    values = gpu.shared[float32](KEYS, width + 1)
    query = gpu.shared[float32](ROWS, width)
    weights = gpu.shared[float32](ROWS, KEYS)
    mixed = stack[float32](each)
    warp, lane, t = gpu.warp_idx, gpu.lane_idx, gpu.thread_idx.x
    head, row = gpu.block_idx.y, gpu.block_idx.x * ROWS + warp
    for c in range(lane, width, lanes):
        query[warp, c] = q[head, row, c] * rsqrt(float32(width)) if row < q.dim(1) else 0.0
    largest, total = float32(-inf), float32(0)
    for start in range(0, k.dim(1), KEYS):
        for n in range(t, KEYS * width, ROWS * lanes):
            i, c = n // width, n % width
            keys[i, c] = k[head, start + i, c] if start + i < k.dim(1) else 0.0
            values[i, c] = v[head, start + i, c] if start + i < k.dim(1) else 0.0
        gpu.barrier()
        score = float32(-inf)
        if lane < KEYS and start + lane < k.dim(1):
            score = float32(0)
            for c in range(width):
                score = fma(query[warp, c], keys[lane, c], score)
        raised = max(largest, gpu.warp.reduce(score, Max))
        weight = exp(score - raised)
        if lane < KEYS:
            weights[warp, lane] = weight
        shrink = exp(largest - raised)
        total = fma(total, shrink, gpu.warp.reduce(weight, Sum))
        largest = raised
        gpu.barrier()
        for n in unroll(each):
            c = lane + n * lanes
            if c < width:
                grown = mixed[n] * shrink
                for i in range(KEYS):
                    grown = fma(weights[warp, i], values[i, c], grown)
                mixed[n] = grown
        gpu.barrier()
    for n in unroll(each):
        c = lane + n * lanes
        if c < width and row < q.dim(1):
            out[head, row, c] = mixed[n] / total


@register("gpu::attention")
def attention(
    out: OutputTensor[float32, "h m d"],
    q: InputTensor[float32, "h m d"],
    k: InputTensor[float32, "h n d"],
    v: InputTensor[float32, "h n d"],
    ctx: DeviceContext,
    *,
    width: int = 64,
) -> None:
    """Attention of each head; `width` is the size of the last axis."""
    static_assert(width <= 128, "width= is at most 128: two tiles fill the shared memory")
    assert q.dim(2) == width, "the last axis has another size than width="
    grid = (ceildiv(q.dim(1), ROWS), q.dim(0))
    ctx.launch(attention_thread, out, q, k, v, grid=grid, block=ROWS * gpu.warp_size, parameters={"width": width})
