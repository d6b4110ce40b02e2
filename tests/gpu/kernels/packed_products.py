"""Products of tiles whose bytes are two elements of 4 bits, with scales of 32 or 16 neighbours along the inner axis."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    OutputTensor,
    ceildiv,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e8m0fnu,
    float32,
    gpu,
    register,
    uint8,
)

S = TypeVar("S", float8_e8m0fnu, float8_e4m3fn)


def packed_block(out, a, s, b, t, M: int, N: int, K: int, block: int):
    left = gpu.shared[uint8](2, M, K // 2, layout="dot")
    right = gpu.shared[uint8](2, N, K // 2, layout="dot")
    of_left = gpu.shared[s.dtype](2, M, K // block)
    of_right = gpu.shared[t.dtype](2, N, K // block)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    steps = ceildiv(a.dim(1), K // 2)

    def fetch(k):
        if k < steps:
            gpu.copy_async(left[k % 2], a.tile(row, k, (M, K // 2)))
            gpu.copy_async(right[k % 2], b.tile(column, k, (N, K // 2)))
            gpu.copy_async(of_left[k % 2], s.tile(row, k, (M, K // block)))
            gpu.copy_async(of_right[k % 2], t.tile(column, k, (N, K // block)))
        return gpu.commit()

    sums = gpu.tile[float32](M, N)
    group = fetch(0)
    for k in range(steps):
        group.wait()
        gpu.barrier()
        group = fetch(k + 1)
        scales = (of_left[k % 2], of_right[k % 2].transpose())
        sums = gpu.dot(left[k % 2], right[k % 2].transpose(), sums, scales=scales, packed=float4_e2m1fn)
        gpu.barrier()
    group.wait()
    sums.store(out.tile(row, column, (M, N)))


@register("packed::product")
def product(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[uint8, "m k"],
    s: InputTensor[S, "m j"],
    b: InputTensor[uint8, "n k"],
    t: InputTensor[S, "n j"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 256,
    block: int = 32,
    threads: int = 64,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(
        packed_block, out, a, s, b, t, grid=grid, block=threads, parameters={"M": M, "N": N, "K": K, "block": block}
    )


def tiles_block(out, a, s, b, t, M: int, N: int, K: int, block: int):
    """Tiles, of which b lies across the inner axis."""
    left, right = gpu.load(a.tile(0, 0, (M, K // 2))), gpu.load(b.tile(0, 0, (K // 2, N)))
    scales = gpu.load(s.tile(0, 0, (M, K // block))), gpu.load(t.tile(0, 0, (K // block, N)))
    sums = gpu.dot(left, right, gpu.tile[float32](M, N, value=1.0), scales=scales, packed=float4_e2m1fn)
    sums.store(out.tile(0, 0, (M, N)))


@register("packed::tiles")
def tiles(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[uint8, "m k"],
    s: InputTensor[S, "m j"],
    b: InputTensor[uint8, "k n"],
    t: InputTensor[S, "j n"],
    ctx: DeviceContext,
    *,
    M: int = 16,
    N: int = 16,
    K: int = 512,
    block: int = 32,
) -> None:
    ctx.launch(tiles_block, out, a, s, b, t, grid=1, block=64, parameters={"M": M, "N": N, "K": K, "block": block})


def begun_block(out, a, s, b, t, M: int, N: int, K: int, block: int):
    """Products under way while the next stage is brought."""
    left = gpu.shared[uint8](3, M, K // 2, layout="dot")
    right = gpu.shared[uint8](3, N, K // 2, layout="dot")
    of_left = gpu.shared[s.dtype](3, M, K // block)
    of_right = gpu.shared[t.dtype](3, N, K // block)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    steps = ceildiv(a.dim(1), K // 2)

    def fetch(k):
        if k < steps:
            gpu.copy_async(left[k % 3], a.tile(row, k, (M, K // 2)))
            gpu.copy_async(right[k % 3], b.tile(column, k, (N, K // 2)))
            gpu.copy_async(of_left[k % 3], s.tile(row, k, (M, K // block)))
            gpu.copy_async(of_right[k % 3], t.tile(column, k, (N, K // block)))
        return gpu.commit()

    def begin(k, sums):
        scales = (of_left[k % 3], of_right[k % 3].transpose())
        return gpu.dot_async(left[k % 3], right[k % 3].transpose(), sums, scales=scales, packed=float4_e2m1fn)

    fetch(0).wait()
    gpu.barrier()
    product = begin(0, gpu.tile[float32](M, N))
    group = fetch(1)
    for k in range(1, steps):
        group.wait()
        gpu.barrier()
        product = begin(k, product)
        product.wait(pending=1)
        gpu.barrier()
        group = fetch(k + 1)
    group.wait()
    product.wait().store(out.tile(row, column, (M, N)))


@register("packed::begun")
def begun(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[uint8, "m k"],
    s: InputTensor[S, "m j"],
    b: InputTensor[uint8, "n k"],
    t: InputTensor[S, "n j"],
    ctx: DeviceContext,
    *,
    M: int = 128,
    N: int = 64,
    K: int = 256,
    block: int = 32,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(begun_block, out, a, s, b, t, grid=grid, block=128, parameters={"M": M, "N": N, "K": K, "block": block})
