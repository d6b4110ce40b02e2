"""The exercises with which GPU programming is often taught: from a map to attention, each a kernel of few lines."""

from __future__ import annotations

from math import inf
from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    atomic,
    ceildiv,
    exp,
    float32,
    gpu,
    int32,
    max,
    min,
    register,
)
from einkorn.stdlib import LayoutTensor, Max, Sum, copy_dram_to_sram

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)
BLOCK = 16


def add_ten(out, x):
    """A thread an element; the grid fits."""
    i = gpu.thread_idx.x
    out[i] = x[i] + 10


@register("puzzles::map")
def map_(out: OutputTensor[T, "16"], x: InputTensor[T, "16"], ctx: DeviceContext):
    ctx.launch(add_ten, out, x, grid=1, block=16)


def add_pairs(out, x, y):
    i = gpu.thread_idx.x
    out[i] = x[i] + y[i]


@register("puzzles::zip")
def zip_(out: OutputTensor[T, "16"], x: InputTensor[T, "16"], y: InputTensor[T, "16"], ctx: DeviceContext):
    ctx.launch(add_pairs, out, x, y, grid=1, block=16)


def add_ten_guarded(out, x):
    """More threads than elements."""
    i = gpu.thread_idx.x
    if i < x.dim(0):
        out[i] = x[i] + 10


@register("puzzles::guard")
def guard(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext):
    ctx.launch(add_ten_guarded, out, x, grid=1, block=64)


def add_ten_plane(out, x):
    i, j = gpu.thread_idx.y, gpu.thread_idx.x
    if i < x.dim(0) and j < x.dim(1):
        out[i, j] = x[i, j] + 10


@register("puzzles::map_2d")
def map_2d(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], ctx: DeviceContext):
    ctx.launch(add_ten_plane, out, x, grid=1, block=(8, 8))


def add_outer(out, x, y):
    """A column and a row make a matrix."""
    i, j = gpu.thread_idx.y, gpu.thread_idx.x
    if i < out.dim(0) and j < out.dim(1):
        out[i, j] = x[i, 0] + y[0, j]


@register("puzzles::broadcast")
def broadcast(out: OutputTensor[T, "m n"], x: InputTensor[T, "m 1"], y: InputTensor[T, "1 n"], ctx: DeviceContext):
    ctx.launch(add_outer, out, x, y, grid=1, block=(8, 8))


def add_ten_blocks(out, x):
    i = gpu.global_idx.x
    if i < x.dim(0):
        out[i] = x[i] + 10


@register("puzzles::blocks")
def blocks(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext):
    ctx.launch(add_ten_blocks, out, x, grid=ceildiv(x.dim(0), BLOCK), block=BLOCK)


def add_ten_blocks_2d(out, x):
    i, j = gpu.global_idx.y, gpu.global_idx.x
    if i < x.dim(0) and j < x.dim(1):
        out[i, j] = x[i, j] + 10


@register("puzzles::blocks_2d")
def blocks_2d(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"], ctx: DeviceContext):
    ctx.launch(add_ten_blocks_2d, out, x, grid=(ceildiv(x.dim(1), 4), ceildiv(x.dim(0), 4)), block=(4, 4))


def mirrored_in_shared(out, x):
    """Through shared memory: each thread reads what another has stored."""
    kept = gpu.shared[x.dtype](BLOCK)
    t, i = gpu.thread_idx.x, gpu.global_idx.x
    kept[t] = x[i] if i < x.dim(0) else x.dtype(0)
    gpu.barrier()
    j = gpu.block_idx.x * BLOCK + (BLOCK - 1 - t)
    if j < x.dim(0):
        out[j] = kept[BLOCK - 1 - t] + 10


@register("puzzles::shared")
def shared(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext):
    ctx.launch(mirrored_in_shared, out, x, grid=ceildiv(x.dim(0), BLOCK), block=BLOCK)


def pool_thread(out, x):
    """The sum of an element and the two before it, across the borders of blocks."""
    kept = gpu.shared[x.dtype](BLOCK + 2)
    t, i = gpu.thread_idx.x, gpu.global_idx.x
    kept[t + 2] = x[i] if i < x.dim(0) else x.dtype(0)
    if t < 2:
        kept[t] = x[i - 2] if i >= 2 else x.dtype(0)
    gpu.barrier()
    if i < x.dim(0):
        out[i] = kept[t] + kept[t + 1] + kept[t + 2]


@register("puzzles::pooling")
def pooling(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext):
    ctx.launch(pool_thread, out, x, grid=ceildiv(x.dim(0), BLOCK), block=BLOCK)


def dot_thread(out, x, y):
    """A tree of sums in shared memory: half of the threads go on each time."""
    kept = gpu.shared[x.dtype](64)
    t = gpu.thread_idx.x
    kept[t] = x[t] * y[t] if t < x.dim(0) else x.dtype(0)
    gpu.barrier()
    half = 32
    while half > 0:
        if t < half:
            kept[t] += kept[t + half]
        gpu.barrier()
        half //= 2
    if t == 0:
        out[0] = kept[0]


@register("puzzles::dot")
def dot(out: OutputTensor[T, "1"], x: InputTensor[T, "n"], y: InputTensor[T, "n"], ctx: DeviceContext):
    ctx.launch(dot_thread, out, x, y, grid=1, block=64)


def convolve_thread(out, x, w, taps: int):
    """Each element with those behind it, by weights; a block reads its elements and the first ones of the next."""
    kept = gpu.shared[x.dtype](BLOCK + taps - 1)
    weights = gpu.shared[x.dtype](taps)
    t, i = gpu.thread_idx.x, gpu.global_idx.x
    for at in range(t, BLOCK + taps - 1, BLOCK):
        place = gpu.block_idx.x * BLOCK + at
        kept[at] = x[place] if place < x.dim(0) else x.dtype(0)
    if t < taps:
        weights[t] = w[t]
    gpu.barrier()
    total = x.dtype(0)
    for k in range(taps):
        total += kept[t + k] * weights[k]
    if i < x.dim(0):
        out[i] = total


@register("puzzles::convolution")
def convolution(
    out: OutputTensor[F, "n"], x: InputTensor[F, "n"], w: InputTensor[F, "taps"], ctx: DeviceContext, *, size: int = 4
):
    grid = ceildiv(x.dim(0), BLOCK)
    ctx.launch(convolve_thread, out, x, w, grid=grid, block=BLOCK, parameters={"taps": size})


def prefix_block(out, sums, x):
    """Sums up to each element of a block, in as many steps as bits; the sum of all goes to `sums`."""
    kept = gpu.shared[x.dtype](BLOCK)
    t, i = gpu.thread_idx.x, gpu.global_idx.x
    kept[t] = x[i] if i < x.dim(0) else x.dtype(0)
    gpu.barrier()
    step = 1
    while step < BLOCK:
        before = kept[t - step] if t >= step else x.dtype(0)
        gpu.barrier()
        kept[t] += before
        gpu.barrier()
        step *= 2
    if i < x.dim(0):
        out[i] = kept[t]
    if t == BLOCK - 1:
        sums[gpu.block_idx.x] = kept[t]


def prefix_add(out, sums):
    i = gpu.global_idx.x
    before = out.dtype(0)
    for k in range(gpu.block_idx.x):
        before += sums[k]
    if i < out.dim(0):
        out[i] += before


@register("puzzles::prefix_sum")
def prefix_sum(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"], ctx: DeviceContext):
    grid = ceildiv(x.dim(0), BLOCK)
    sums = gpu.scratch[int32](grid)
    ctx.launch(prefix_block, out, sums, x, grid=grid, block=BLOCK)
    ctx.launch(prefix_add, out, sums, grid=grid, block=BLOCK)


def axis_sum_block(out, x):
    """A block a row."""
    row, t = gpu.block_idx.x, gpu.thread_idx.x
    total = float32(0)
    for j in range(t, x.dim(1), gpu.threads_per_block):
        total += x[row, j]
    whole = gpu.block.reduce(total, Sum)
    if t == 0:
        out[row, 0] = whole


@register("puzzles::axis_sum")
def axis_sum(out: OutputTensor[float32, "m 1"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(axis_sum_block, out, x, grid=x.dim(0), block=64)


def matmul_block(out, a, b):
    """Tiles of both in shared memory; a thread an element."""
    left = LayoutTensor.stack_allocation(a.dtype, (8, 8), "shared")
    right = LayoutTensor.stack_allocation(a.dtype, (8, 8), "shared")
    y, x = gpu.thread_idx.y, gpu.thread_idx.x
    total = a.dtype(0)
    for k in range(ceildiv(a.dim(1), 8)):
        copy_dram_to_sram(left, LayoutTensor(a).tile(gpu.block_idx.y, k, (8, 8)), (8, 8))
        copy_dram_to_sram(right, LayoutTensor(b).tile(k, gpu.block_idx.x, (8, 8)), (8, 8))
        gpu.barrier()
        for inner in range(8):
            total += left[y, inner] * right[inner, x]
        gpu.barrier()
    i, j = gpu.global_idx.y, gpu.global_idx.x
    if i < out.dim(0) and j < out.dim(1):
        out[i, j] = total


@register("puzzles::matmul")
def matmul(out: OutputTensor[F, "m n"], a: InputTensor[F, "m k"], b: InputTensor[F, "k n"], ctx: DeviceContext):
    ctx.launch(matmul_block, out, a, b, grid=(ceildiv(out.dim(1), 8), ceildiv(out.dim(0), 8)), block=(8, 8))


def softmax_block(out, x):
    """A block a row: the greatest, then the sum of powers, then their shares."""
    row, t = gpu.block_idx.x, gpu.thread_idx.x
    high = float32(-inf)
    for j in range(t, x.dim(1), gpu.threads_per_block):
        high = max(high, x[row, j])
    high = gpu.block.reduce(high, Max)
    total = float32(0)
    for j in range(t, x.dim(1), gpu.threads_per_block):
        total += exp(x[row, j] - high)
    total = gpu.block.reduce(total, Sum)
    for j in range(t, x.dim(1), gpu.threads_per_block):
        out[row, j] = exp(x[row, j] - high) / total


@register("puzzles::softmax")
def softmax(out: OutputTensor[float32, "m n"], x: InputTensor[float32, "m n"], ctx: DeviceContext):
    ctx.launch(softmax_block, out, x, grid=x.dim(0), block=64)


def attention_warp(out, q, k, v):
    """A warp a query: its lanes take keys, and join what they have."""
    row, lane = gpu.block_idx.x, gpu.lane_idx
    high, total = float32(-inf), float32(0)
    sums = LayoutTensor.stack_allocation(float32, 8)
    for key in range(lane, k.dim(0), gpu.warp_size):
        score = float32(0)
        for d in range(8):
            score += q[row, d] * k[key, d]
        new = max(high, score)
        old, weight = exp(high - new), exp(score - new)
        total = total * old + weight
        for d in range(8):
            sums[d] = sums[d] * old + weight * v[key, d]
        high = new
    most = gpu.warp.reduce(high, Max)
    share = exp(high - most) if high > -inf else float32(0)
    whole = gpu.warp.reduce(total * share, Sum)
    for d in range(8):
        each = gpu.warp.reduce(sums[d] * share, Sum)
        if lane == 0:
            out[row, d] = each / whole


@register("puzzles::attention")
def attention(
    out: OutputTensor[float32, "m 8"],
    q: InputTensor[float32, "m 8"],
    k: InputTensor[float32, "n 8"],
    v: InputTensor[float32, "n 8"],
    ctx: DeviceContext,
):
    ctx.launch(attention_warp, out, q, k, v, grid=q.dim(0), block=gpu.warp_size)


def histogram_thread(out, x):
    """Counts of a block in shared memory, added to those of all at the end."""
    counts = gpu.shared[int32](8)
    t = gpu.thread_idx.x
    if t < 8:
        counts[t] = 0
    gpu.barrier()
    for i in range(gpu.global_idx.x, x.dim(0), gpu.grid_dim.x * gpu.threads_per_block):
        atomic.add(counts, min(max(x[i], 0), 7), 1, scope="block")
    gpu.barrier()
    if t < 8:
        atomic.add(out, t, counts[t])


def clear(out):
    out[gpu.thread_idx.x] = 0


@register("puzzles::histogram")
def histogram(out: OutputTensor[int32, "8"], x: InputTensor[int32, "n"], ctx: DeviceContext):
    ctx.launch(clear, out, grid=1, block=8)
    ctx.launch(histogram_thread, out, x, grid=3, block=32)


def transposed_block(out, x):
    """A tile turns in shared memory, so that both sides are read and written along rows."""
    kept = gpu.shared[x.dtype](16, 17)
    i, j = gpu.thread_idx.y, gpu.thread_idx.x
    top, left = gpu.block_idx.y * 16, gpu.block_idx.x * 16
    if top + i < x.dim(0) and left + j < x.dim(1):
        kept[i, j] = x[top + i, left + j]
    gpu.barrier()
    if left + i < x.dim(1) and top + j < x.dim(0):
        out[left + i, top + j] = kept[j, i]


@register("puzzles::transpose")
def transpose(out: OutputTensor[T, "n m"], x: InputTensor[T, "m n"], ctx: DeviceContext):
    ctx.launch(transposed_block, out, x, grid=(ceildiv(x.dim(1), 16), ceildiv(x.dim(0), 16)), block=(16, 16))
