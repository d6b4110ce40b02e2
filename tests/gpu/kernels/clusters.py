"""Blocks of a cluster that wait for each other, and reach each other's shared memory."""

from __future__ import annotations

from einkorn.dsl import DeviceContext, InputTensor, Int, OutputTensor, atomic, gpu, int32, int64, register

IN, OUT = InputTensor[int32, "n"], OutputTensor[int32, "n"]


def ring_thread(out, x):
    """Each block takes what the block behind it in its cluster has, twice; the blocks are of 48 threads."""
    t = gpu.thread_idx.x
    rank = gpu.block_in_cluster.x
    kept = gpu.shared[int32](48)
    kept[t] = x[gpu.global_idx.x]
    gpu.cluster.sync()
    for _ in range(2):
        got = gpu.cluster.peer(kept, (rank + 1) % gpu.cluster_dim.x)[47 - t]
        gpu.cluster.sync()
        kept[t] = got + int32(gpu.warp.shuffle_xor(got, 1))
        gpu.cluster.sync()
    out[gpu.global_idx.x] = kept[t]


@register("clusters::ring")
def ring(out: OUT, x: IN, ctx: DeviceContext, *, blocks: int = 4) -> None:
    ctx.launch(ring_thread, out, x, grid=x.dim(0) // 48, block=48, cluster=blocks)


def histogram_thread(out, x, bins: int):
    """Bins are spread over the blocks of a cluster, which count into each other's memory."""
    t = gpu.thread_idx.x
    size = bins // gpu.cluster_dim.x
    counts = gpu.dynamic_shared[int32](size)
    for k in range(t, size, gpu.block_dim.x):
        counts[k] = 0
    gpu.cluster.sync()
    bin = Int(x[gpu.global_idx.x]) % bins
    atomic.add(gpu.cluster.peer(counts, bin // size), bin % size, 1, scope="cluster")
    gpu.cluster.sync()
    for k in range(t, size, gpu.block_dim.x):
        out[gpu.cluster_idx.x, gpu.block_in_cluster.x * size + k] = counts[k]


@register("clusters::histogram")
def histogram(out: OutputTensor[int32, "c b"], x: IN, ctx: DeviceContext, *, bins: int = 64) -> None:
    ctx.launch(histogram_thread, out, x, bins, grid=x.dim(0) // 64, block=64, cluster=2, shared=4 * bins // 2)


def square_thread(out):
    """Which is where in clusters of two by two blocks."""
    mine = gpu.shared[int64](1)
    x, y = gpu.block_idx.x, gpu.block_idx.y
    if gpu.thread_idx.x == 0:
        mine[0] = int64(10 * y + x)
    gpu.cluster.sync()
    for rank in range(4):
        result = gpu.cluster.peer(mine, rank)[0]
        if gpu.thread_idx.x == 0:
            out[y, x, rank] = result
    gpu.cluster.sync()


@register("clusters::square")
def square(out: OutputTensor[int64, "m n 4"], ctx: DeviceContext) -> None:
    ctx.launch(square_thread, out, grid=(out.dim(1), out.dim(0)), block=32, cluster=(2, 2))


def alone_thread(out, x):
    """A cluster of one block: every target has it."""
    kept = gpu.shared[int32](32)
    kept[gpu.thread_idx.x] = x[gpu.global_idx.x]
    gpu.cluster.sync()
    out[gpu.global_idx.x] = gpu.cluster.peer(kept, 0)[31 - gpu.thread_idx.x]


@register("clusters::alone")
def alone(out: OUT, x: IN, ctx: DeviceContext) -> None:
    ctx.launch(alone_thread, out, x, grid=x.dim(0) // 32, block=32)
