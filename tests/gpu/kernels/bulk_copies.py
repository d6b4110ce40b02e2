"""Copies of tiles of whole rows, which are bulk copies where a target has them."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Numeric, OutputTensor, ceildiv, gpu, register

T = TypeVar("T", bound=Numeric)


def staged_block(out, x, M: int, N: int, stages: int):
    """Each element times 3, by way of shared memory, into which tiles are copied `stages - 1` steps ahead."""
    held = gpu.shared[x.dtype](stages, M, N)
    row = gpu.block_idx.x

    def fetch(k):
        gpu.copy_async(held[k % stages], x.tile(row, k, (M, N)))
        return gpu.commit()

    group = gpu.commit()
    for k in range(stages - 1):
        group = fetch(k)
    for k in range(ceildiv(x.dim(1), N)):
        group.wait(pending=stages - 2)
        gpu.barrier()
        group = fetch(k + stages - 1)
        t = gpu.load(held[k % stages])
        (t + t + t).store(out.tile(row, k, (M, N)))
    group.wait()


@register("bulk_copies::staged")
def staged(
    out: OutputTensor[T, "m n"],
    x: InputTensor[T, "m n"],
    ctx: DeviceContext,
    *,
    M: int = 16,
    N: int = 64,
    stages: int = 3,
    block: int = 64,
) -> None:
    grid = ceildiv(x.dim(0), M)
    ctx.launch(staged_block, out, x, grid=grid, block=block, parameters={"M": M, "N": N, "stages": stages})


def summed_block(out, x, M: int, N: int, ahead: int):
    """The sums over tiles of rows, of which so many are under way; of every third one a copy is awaited by itself."""
    held = gpu.shared[x.dtype](ahead + 1, M, N)
    other = gpu.shared[x.dtype](M, N)
    steps = ceildiv(x.dim(0), M)
    group = gpu.commit()
    for k in range(ahead):
        gpu.copy_async(held[k], x.tile(k, 0, (M, N)))
        group = gpu.commit()
    sums = gpu.tile[x.dtype](M, N)
    for k in range(steps):
        group.wait(pending=ahead - 1)
        gpu.barrier()
        gpu.copy_async(held[(k + ahead) % (ahead + 1)], x.tile(k + ahead, 0, (M, N)))
        group = gpu.commit()
        sums = sums + gpu.load(held[k % (ahead + 1)])
        if k % 3 == 0:
            gpu.copy_async(other, x.tile(k, 0, (M, N))).wait()
            gpu.barrier()
            sums = sums - gpu.load(other)
    group.wait()
    sums.store(out.tile(0, 0, (M, N)))


@register("bulk_copies::summed")
def summed(
    out: OutputTensor[T, "h n"],
    x: InputTensor[T, "m n"],
    ctx: DeviceContext,
    *,
    M: int = 16,
    N: int = 64,
    ahead: int = 2,
) -> None:
    ctx.launch(summed_block, out, x, grid=1, block=64, parameters={"M": M, "N": N, "ahead": ahead})
