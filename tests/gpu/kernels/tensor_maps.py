"""Copies of tiles of tensors of two to five axes, which go by tensor maps where a target has them."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import DeviceContext, InputTensor, Numeric, OutputTensor, ceildiv, gpu, register

T = TypeVar("T", bound=Numeric)


def staged_block(out, x, M: int, N: int, stages: int, laid_out: bool):
    """Each element times 3, by way of shared memory, into which tiles are copied `stages - 1` steps ahead."""
    held = gpu.shared[x.dtype](stages, M, N, layout="dot") if laid_out else gpu.shared[x.dtype](stages, M, N)
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


@register("tensor_maps::staged")
def staged(
    out: OutputTensor[T, "m n"],
    x: InputTensor[T, "m n"],
    ctx: DeviceContext,
    *,
    M: int = 16,
    N: int = 32,
    stages: int = 3,
    block: int = 64,
    laid_out: bool = True,
) -> None:
    """A tile is a box of a map: its rows are exchanged in shared memory, or lie behind each other."""
    ctx.launch(
        staged_block,
        out,
        x,
        grid=ceildiv(x.dim(0), M),
        block=block,
        parameters={"M": M, "N": N, "stages": stages, "laid_out": laid_out},
    )


def copied(to, matrix, M: int, N: int):
    """One tile, whose copy arrives at a barrier."""
    held, full = gpu.shared[matrix.dtype](M, N, layout="dot"), gpu.mbarrier(1)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    gpu.copy_async(held, matrix.tile(row, column, (M, N)), arrive=full)
    full.wait(0)
    t = gpu.load(held)
    (t + t).store(to.tile(row, column, (M, N)))


def of_three_block(out, x, M: int, N: int):
    z = gpu.block_idx.z
    copied(out[z, :, :], x[z, :, :], M, N)


@register("tensor_maps::of_three")
def of_three(
    out: OutputTensor[T, "b m n"], x: InputTensor[T, "b m n"], ctx: DeviceContext, *, M: int = 16, N: int = 32
) -> None:
    grid = (ceildiv(x.dim(2), N), ceildiv(x.dim(1), M), x.dim(0))
    ctx.launch(of_three_block, out, x, grid=grid, block=64, parameters={"M": M, "N": N})


def of_middle_block(out, x, M: int, N: int):
    z, h = gpu.block_idx.z // x.dim(2), gpu.block_idx.z % x.dim(2)
    copied(out[z, h, :, :], x[z, :, h, :], M, N)


@register("tensor_maps::of_middle")
def of_middle(
    out: OutputTensor[T, "b h m n"], x: InputTensor[T, "b m h n"], ctx: DeviceContext, *, M: int = 16, N: int = 32
) -> None:
    """Rows lie apart, as those of a head of attention do."""
    grid = (ceildiv(x.dim(3), N), ceildiv(x.dim(1), M), x.dim(0) * x.dim(2))
    ctx.launch(of_middle_block, out, x, grid=grid, block=64, parameters={"M": M, "N": N})


def of_five_block(out, x, M: int, N: int):
    a, rest = gpu.block_idx.z // (x.dim(1) * x.dim(2)), gpu.block_idx.z % (x.dim(1) * x.dim(2))
    b, c = rest // x.dim(2), rest % x.dim(2)
    copied(out[a, b, c, :, :], x[a, b, c, :, :], M, N)


@register("tensor_maps::of_five")
def of_five(
    out: OutputTensor[T, "a b c m n"], x: InputTensor[T, "a b c m n"], ctx: DeviceContext, *, M: int = 16, N: int = 32
) -> None:
    grid = (ceildiv(x.dim(4), N), ceildiv(x.dim(3), M), x.dim(0) * x.dim(1) * x.dim(2))
    ctx.launch(of_five_block, out, x, grid=grid, block=64, parameters={"M": M, "N": N})


def merged_block(out, x, M: int, N: int):
    copied(out.as_matrix(), x.as_matrix(), M, N)


@register("tensor_maps::merged")
def merged(
    out: OutputTensor[T, "b m n"], x: InputTensor[T, "b m n"], ctx: DeviceContext, *, M: int = 16, N: int = 32
) -> None:
    """The sizes of the matrix are computed in the kernel."""
    grid = (ceildiv(x.dim(2), N), ceildiv(x.dim(0) * x.dim(1), M), 1)
    ctx.launch(merged_block, out, x, grid=grid, block=64, parameters={"M": M, "N": N})


def to_all_block(out, x, M: int, N: int, stages: int, blocks: int, threads: int, laid_out: bool):
    """Each block of a cluster gets all tiles of x, of which it copies a part; block b stores their (b + 1)-fold."""
    held = gpu.shared[x.dtype](stages, M, N, layout="dot") if laid_out else gpu.shared[x.dtype](stages, M, N)
    full, empty = gpu.mbarrier(blocks, stages), gpu.mbarrier(blocks * threads, stages)
    block, row = gpu.block_in_cluster.x, gpu.block_idx.y
    gpu.cluster.sync()
    for k in range(ceildiv(x.dim(1), N)):
        at, phase = k % stages, k // stages
        empty[at].wait(phase - 1)
        gpu.copy_async(held[at], x.tile(row, k, (M, N)), arrive=full[at], multicast=True)
        full[at].wait(phase)
        t = gpu.load(held[at])
        empty[at].arrive(cluster=True)
        total = t
        for _ in range(block):
            total = total + t
        total.store(out[block, :, :].tile(row, k, (M, N)))
    gpu.cluster.sync()


@register("tensor_maps::to_all")
def to_all(
    out: OutputTensor[T, "c m n"],
    x: InputTensor[T, "m n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    stages: int = 1,
    blocks: int = 2,
    threads: int = 64,
    laid_out: bool = True,
) -> None:
    ctx.launch(
        to_all_block,
        out,
        x,
        grid=(blocks, ceildiv(x.dim(0), M)),
        block=threads,
        cluster=blocks,
        parameters={
            "M": M,
            "N": N,
            "stages": stages,
            "blocks": blocks,
            "threads": threads,
            "laid_out": laid_out,
        },
    )
