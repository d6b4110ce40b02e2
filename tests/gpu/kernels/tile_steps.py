"""Kernels of tiles whose steps depend on each other; `tests/gpu/test_tile_mistakes.py` plants mistakes in them."""

from __future__ import annotations

from math import inf

from einkorn.dsl import DeviceContext, InputTensor, OutputTensor, ceildiv, exp, float32, gpu, max, register, sqrt
from einkorn.stdlib import LayoutTensor, Max, Sum, copy_dram_to_sram, copy_dram_to_sram_async, outer_product_acc

STAGES = 3


def product_block(out, a, b, M: int, N: int, K: int):
    row, column = gpu.block_idx.y, gpu.block_idx.x
    left = gpu.shared[a.dtype](STAGES, M, K, layout="dot")
    right = gpu.shared[b.dtype](STAGES, K, N, layout="dot")

    def fetch(k):
        gpu.copy_async(left[k % STAGES], a.tile(row, k, (M, K)))
        gpu.copy_async(right[k % STAGES], b.tile(k, column, (K, N)))
        return gpu.commit()

    group = gpu.commit()
    for k in range(STAGES - 1):
        group = fetch(k)
    sums = gpu.tile[float32](M, N)
    for k in range(ceildiv(a.dim(1), K)):
        group.wait(pending=STAGES - 2)
        gpu.barrier()
        group = fetch(k + STAGES - 1)
        sums = gpu.dot(left[k % STAGES], right[k % STAGES], sums)
    group.wait()
    sums.store(out.tile(row, column, (M, N)))


@register("steps::product")
def product(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[float32, "m k"],
    b: InputTensor[float32, "k n"],
    ctx: DeviceContext,
):
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(product_block, out, a, b, grid=grid, block=64, parameters={"M": 32, "N": 32, "K": 16})


def attention_block(out, q, k, v, M: int, N: int, D: int):
    keys = gpu.shared[k.dtype](N, D, layout="dot")
    values = gpu.shared[v.dtype](N, D, layout="dot")
    row = gpu.block_idx.x
    queries = gpu.load(q.tile(row, 0, (M, D)))
    sums, zero = gpu.tile[float32](M, D), gpu.tile[float32](M, N)
    high, total = gpu.tile[float32](M, 1, value=-inf), gpu.tile[float32](M, 1)
    scale = 1 / sqrt(float32(D))
    for step in range(ceildiv(k.dim(0), N)):
        gpu.copy_async(keys, k.tile(step, 0, (N, D)))
        first = gpu.commit()
        gpu.copy_async(values, v.tile(step, 0, (N, D)))
        second = gpu.commit()
        first.wait(pending=1)
        gpu.barrier()
        scores = gpu.dot(queries, keys.transpose(), zero) * scale
        left = k.dim(0) - step * N
        scores = scores.map(lambda value, i, j: value if j < left else float32(-inf))  # noqa: B023
        new = max(high, scores.reduce(1, Max))
        weights = exp(scores - new)
        old = exp(high - new)
        total = total * old + weights.reduce(1, Sum)
        second.wait()
        gpu.barrier()
        sums = gpu.dot(weights.cast(v.dtype), values, sums * old)
        high = new
        gpu.barrier()
    (sums / total).cast(out.dtype).store(out.tile(row, 0, (M, D)))


@register("steps::attention")
def attention(
    out: OutputTensor[float32, "m d"],
    q: InputTensor[float32, "m d"],
    k: InputTensor[float32, "n d"],
    v: InputTensor[float32, "n d"],
    ctx: DeviceContext,
):
    grid = ceildiv(q.dim(0), 32)
    ctx.launch(attention_block, out, q, k, v, grid=grid, block=64, parameters={"M": 32, "N": 32, "D": 32})


def turned_block(out, x):
    """A tile goes through shared memory as a value, and element by element."""
    i, j = gpu.block_idx.y, gpu.block_idx.x
    kept = gpu.shared[float32](32, 32)
    other = gpu.shared[float32](32, 32)
    tile = gpu.load(x.tile(i, j, (32, 32)))
    tile.store(kept)
    gpu.barrier()
    largest = gpu.load(kept.tile(0, 0, (16, 32))).reduce(0, Max)
    gpu.barrier()
    (tile - largest).store(kept)
    gpu.barrier()
    for at in range(gpu.thread_idx.x, 32 * 32, gpu.block_dim.x):
        other[at % 32, at // 32] = kept[at // 32, at % 32]
    gpu.barrier()
    for at in range(gpu.thread_idx.x, 32 * 32, gpu.block_dim.x):
        row, column = j * 32 + at // 32, i * 32 + at % 32
        if row < out.dim(0) and column < out.dim(1):
            out[row, column] = other[at // 32, at % 32]


@register("steps::turned")
def turned(out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(turned_block, out, x, grid=(ceildiv(x.dim(1), 32), ceildiv(x.dim(0), 32)), block=64)


def views_block(out, a, b):
    """Sums in registers of views, with one operand copied ahead."""
    row, column, thread = gpu.block_idx.y, gpu.block_idx.x, gpu.thread_idx.x
    left = LayoutTensor.stack_allocation(float32, (32, 8), "shared")
    right = LayoutTensor.stack_allocation(float32, (8, 32), "shared")
    sums = LayoutTensor.stack_allocation(float32, (4, 4))
    own_a, own_b = LayoutTensor.stack_allocation(float32, 4), LayoutTensor.stack_allocation(float32, 4)
    for k in range(ceildiv(a.dim(1), 8)):
        group = copy_dram_to_sram_async(left, LayoutTensor(a).tile(row, k, (32, 8)), (8, 8))
        copy_dram_to_sram(right, LayoutTensor(b).tile(k, column, (8, 32)), (2, 32))
        group.wait()
        gpu.barrier()
        for inner in range(8):
            own_a.copy_from(left.tile(thread // 8, inner, (4, 1)))
            own_b.copy_from(right.tile(inner, thread % 8, (1, 4)))
            outer_product_acc(sums, own_a, own_b)
        gpu.barrier()
    LayoutTensor(out).tile(row, column, (32, 32)).tile(thread // 8, thread % 8, (4, 4)).copy_from(sums)


@register("steps::views")
def views(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[float32, "m k"],
    b: InputTensor[float32, "k n"],
    ctx: DeviceContext,
):
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(views_block, out, a, b, grid=grid, block=64)
