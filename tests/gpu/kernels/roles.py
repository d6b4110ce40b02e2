"""Kernels whose warps run different functions: producers and consumers, that wait for each other at barriers."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Numeric, OutputTensor, ceildiv, float32, gpu, register
from einkorn.stdlib import Sum

T = TypeVar("T", bound=Numeric)


def tripled_block(out, x, M: int, N: int, stages: int, warps: int):
    """Each element times 3: one warp copies tiles, the others compute."""
    held = gpu.shared[x.dtype](stages, M, N)
    full, empty = gpu.mbarrier(1, stages), gpu.mbarrier(warps * gpu.warp_size, stages)
    row, steps = gpu.block_idx.x, ceildiv(x.dim(1), N)

    def load():
        for k in range(steps):
            empty[k % stages].wait(k // stages - 1)
            gpu.copy_async(held[k % stages], x.tile(row, k, (M, N)), arrive=full[k % stages])

    def compute():
        for k in range(steps):
            full[k % stages].wait(k // stages)
            t = gpu.load(held[k % stages])
            empty[k % stages].arrive()
            (t + t + t).store(out.tile(row, k, (M, N)))

    gpu.roles(load=(load, 1), compute=(compute, warps))


@register("roles::tripled")
def tripled(
    out: OutputTensor[T, "m n"],
    x: InputTensor[T, "m n"],
    ctx: DeviceContext,
    *,
    M: int = 16,
    N: int = 64,
    stages: int = 3,
    warps: int = 2,
) -> None:
    grid, block = ceildiv(x.dim(0), M), (warps + 1) * gpu.warp_size
    ctx.launch(
        tripled_block, out, x, grid=grid, block=block, parameters={"M": M, "N": N, "stages": stages, "warps": warps}
    )


def product_block(out, a, b, M: int, N: int, K: int, stages: int, groups: int):
    """A product whose operands one role copies ahead, while others multiply."""
    left = gpu.shared[a.dtype](stages, M, K, layout="dot")
    right = gpu.shared[b.dtype](stages, K, N, layout="dot")
    threads = 4 * groups * gpu.warp_size
    full, empty = gpu.mbarrier(2, stages), gpu.mbarrier(threads, stages)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    steps = ceildiv(a.dim(1), K)

    def load():
        for k in range(steps):
            at = k % stages
            empty[at].wait(k // stages - 1)
            gpu.copy_async(left[at], a.tile(row, k, (M, K)), arrive=full[at])
            gpu.copy_async(right[at], b.tile(k, column, (K, N)), arrive=full[at])

    def multiply():
        sums = gpu.tile[float32](M, N)
        for k in range(steps):
            full[k % stages].wait(k // stages)
            sums = gpu.dot(left[k % stages], right[k % stages], sums)
            empty[k % stages].arrive()
        sums.cast(out.dtype).store(out.tile(row, column, (M, N)))

    gpu.roles(load=(load, 4, 40), multiply=(multiply, 4 * groups, 232))


@register("roles::product")
def product(
    out: OutputTensor[T, "m n"],
    a: InputTensor[T, "m k"],
    b: InputTensor[T, "k n"],
    ctx: DeviceContext,
    *,
    M: int = 64,
    N: int = 64,
    K: int = 64,
    stages: int = 3,
    groups: int = 1,
) -> None:
    ctx.launch(
        product_block,
        out,
        a,
        b,
        grid=(ceildiv(out.dim(1), N), ceildiv(out.dim(0), M)),
        block=4 * (groups + 1) * gpu.warp_size,
        parameters={"M": M, "N": N, "K": K, "stages": stages, "groups": groups},
    )


def sums_thread(out, x):
    """Two roles: the names of the block are those of a role. Sums of rows by one, of columns by the other."""

    def rows():
        for i in range(x.dim(0)):
            own = float32(0)
            for j in range(gpu.thread_idx.x, x.dim(1), gpu.block_dim.x):
                own += x[i, j]
            total = gpu.block.reduce(own, Sum)
            if gpu.thread_idx.x == 0:
                out[0, i] = total
        for i in range(x.dim(0) + gpu.thread_idx.x, out.dim(1), gpu.block_dim.x):
            out[0, i] = 0

    def columns():
        for j in range(gpu.warp_idx, x.dim(1), gpu.warps_per_block):
            own = float32(0)
            for i in range(gpu.lane_idx, x.dim(0), gpu.warp_size):
                own += x[i, j]
            total = gpu.warp.reduce(own, Sum)
            if gpu.lane_idx == 0:
                out[1, j] = total
        gpu.barrier()
        if gpu.thread_idx.x == gpu.threads_per_block - 1:
            out[1, x.dim(1)] = float32(gpu.threads_per_block + 1000 * gpu.block_dim.y)

    gpu.roles(rows=(rows, 4), columns=(columns, 2))


@register("roles::sums")
def sums(out: OutputTensor[float32, "two n"], x: InputTensor[float32, "m k"], ctx: DeviceContext) -> None:
    ctx.launch(sums_thread, out, x, grid=1, block=(gpu.warp_size, 6))


def handed_thread(out, x, stages: int):
    """Each of three roles adds 1 to what the one before it has stored, through rings of single elements."""
    ring = gpu.shared[x.dtype](2, stages, gpu.warp_size)
    full = gpu.mbarrier(gpu.warp_size, 2 * stages)
    empty = gpu.mbarrier(gpu.warp_size, 2 * stages)
    lanes, steps = gpu.warp_size, x.dim(0) // gpu.warp_size

    def first():
        for k in range(steps):
            at = k % stages
            empty[at].wait(k // stages - 1)
            ring[0, at, gpu.thread_idx.x] = x[k * lanes + gpu.thread_idx.x] + 1
            full[at].arrive()

    def second():
        for k in range(steps):
            at, phase = k % stages, k // stages
            full[at].wait(phase)
            v = ring[0, at, lanes - 1 - gpu.thread_idx.x]
            empty[at].arrive()
            empty[stages + at].wait(phase - 1)
            ring[1, at, gpu.thread_idx.x] = v + 1
            full[stages + at].arrive()

    def third():
        for k in range(steps):
            at = stages + k % stages
            full[at].wait(k // stages)
            out[k * lanes + gpu.thread_idx.x] = ring[1, k % stages, gpu.thread_idx.x] + 1
            empty[at].arrive()

    gpu.roles(first=(first, 1), second=(second, 1), third=(third, 1))


@register("roles::handed")
def handed(out: OutputTensor[T, "n"], x: InputTensor[T, "n"], ctx: DeviceContext, *, stages: int = 2) -> None:
    ctx.launch(handed_thread, out, x, grid=1, block=3 * gpu.warp_size, parameters={"stages": stages})
