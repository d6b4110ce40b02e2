"""Products of tiles with a scale for each 32 neighbours along the inner axis."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    OutputTensor,
    ceildiv,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float32,
    gpu,
    register,
)

E = TypeVar("E", float8_e4m3fn, float8_e5m2)


def put_scales(to, scales, row, column, rows: int, columns: int):
    """Scales of `rows` by `columns` blocks; those of blocks beyond the matrix are 1."""
    for i in range(gpu.thread_idx.x, rows * columns, gpu.block_dim.x):
        r, c = row * rows + i // columns, column * columns + i % columns
        inside = (r < scales.dim(0)) & (c < scales.dim(1))
        to[i // columns, i % columns] = scales[r, c] if inside else float8_e8m0fnu(1.0)


def scaled_block(out, a, s, b, t, M: int, N: int, K: int):
    left = gpu.shared[a.dtype](M, K, layout="dot")
    right = gpu.shared[b.dtype](K, N, layout="dot")
    of_left = gpu.shared[float8_e8m0fnu](M, K // 32)
    of_right = gpu.shared[float8_e8m0fnu](K // 32, N)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    sums = gpu.tile[float32](M, N)
    for k in range(ceildiv(a.dim(1), K)):
        gpu.copy_async(left, a.tile(row, k, (M, K)))
        gpu.copy_async(right, b.tile(k, column, (K, N)))
        group = gpu.commit()
        put_scales(of_left, s, row, k, M, K // 32)
        put_scales(of_right, t, k, column, K // 32, N)
        group.wait()
        gpu.barrier()
        sums = gpu.dot(left, right, sums, scales=(of_left, of_right))
        gpu.barrier()
    sums.store(out.tile(row, column, (M, N)))


@register("scaled::product")
def product(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "m k"],
    s: InputTensor[float8_e8m0fnu, "m j"],
    b: InputTensor[E, "k n"],
    t: InputTensor[float8_e8m0fnu, "j n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 64,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(scaled_block, out, a, s, b, t, grid=grid, block=64, parameters={"M": M, "N": N, "K": K})


def staged_block(out, a, s, b, t, M: int, N: int, K: int):
    """Two stages; b and its scales lie in memory column by column."""
    left = gpu.shared[a.dtype](2, M, K, layout="dot")
    right = gpu.shared[b.dtype](2, N, K, layout="dot")
    of_left = gpu.shared[float8_e8m0fnu](2, M, K // 32)
    of_right = gpu.shared[float8_e8m0fnu](2, N, K // 32)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    steps = ceildiv(a.dim(1), K)

    def fetch(k):
        if k < steps:
            gpu.copy_async(left[k % 2], a.tile(row, k, (M, K)))
            gpu.copy_async(right[k % 2], b.tile(column, k, (N, K)))
            put_scales(of_left[k % 2], s, row, k, M, K // 32)
            put_scales(of_right[k % 2], t, column, k, N, K // 32)
        return gpu.commit()

    sums = gpu.tile[float32](M, N)
    group = fetch(0)
    for k in range(steps):
        group.wait()
        gpu.barrier()
        group = fetch(k + 1)
        scales = (of_left[k % 2], of_right[k % 2].transpose())
        sums = gpu.dot(left[k % 2], right[k % 2].transpose(), sums, scales=scales)
        gpu.barrier()
    group.wait()
    sums.store(out.tile(row, column, (M, N)))


@register("scaled::staged")
def staged(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "m k"],
    s: InputTensor[float8_e8m0fnu, "m j"],
    b: InputTensor[E, "n k"],
    t: InputTensor[float8_e8m0fnu, "n j"],
    ctx: DeviceContext,
    *,
    M: int = 64,
    N: int = 32,
    K: int = 128,
    threads: int = 128,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(staged_block, out, a, s, b, t, grid=grid, block=threads, parameters={"M": M, "N": N, "K": K})


def joined(sums, left, right, of_left, of_right):
    return gpu.dot(left.transpose(), right, sums, scales=(of_left.transpose(), of_right))


def joined_block(out, a, s, b, t, M: int, N: int, K: int):
    """Two products in a function; a and its scales lie across the inner axis, and scales in the layout of products."""
    left = gpu.shared[a.dtype](K, M, layout="dot")
    right = gpu.shared[b.dtype](K, N, layout="dot")
    of_left = gpu.shared[float8_e8m0fnu](K // 32, M, layout="dot")
    of_right = gpu.shared[float8_e8m0fnu](K // 32, N, layout="dot")
    gpu.copy_async(left, a.tile(0, 0, (K, M)))
    gpu.copy_async(right, b.tile(0, 0, (K, N)))
    gpu.copy_async(of_left, s.tile(0, 0, (K // 32, M)))
    gpu.copy_async(of_right, t.tile(0, 0, (K // 32, N)))
    gpu.commit().wait()
    gpu.barrier()
    sums = joined(gpu.tile[float32](M, N), left, right, of_left, of_right)
    sums = joined(sums * 0.5, left, right, of_left, of_right)
    sums.store(out.tile(0, 0, (M, N)))


@register("scaled::joined")
def twice(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "k m"],
    s: InputTensor[float8_e8m0fnu, "j m"],
    b: InputTensor[E, "k n"],
    t: InputTensor[float8_e8m0fnu, "j n"],
    ctx: DeviceContext,
    *,
    M: int = 16,
    N: int = 32,
    K: int = 512,
) -> None:
    ctx.launch(joined_block, out, a, s, b, t, grid=1, block=64, parameters={"M": M, "N": N, "K": K})


def tiles_block(out, a, s, b, t, M: int, N: int, K: int):
    """One step of tiles that never were in shared memory of the kernel's own."""
    row, column = gpu.block_idx.y, gpu.block_idx.x
    left, right = gpu.load(a.tile(row, 0, (M, K))), gpu.load(b.tile(0, column, (K, N)))
    scales = gpu.load(s.tile(row, 0, (M, K // 32))), gpu.load(t.tile(0, column, (K // 32, N)))
    sums = gpu.dot(left, right, gpu.tile[float32](M, N, value=1.0), scales=scales)
    sums.store(out.tile(row, column, (M, N)))


@register("scaled::tiles")
def tiles(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "m k"],
    s: InputTensor[float8_e8m0fnu, "m j"],
    b: InputTensor[E, "k n"],
    t: InputTensor[float8_e8m0fnu, "j n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 512,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(tiles_block, out, a, s, b, t, grid=grid, block=64, parameters={"M": M, "N": N, "K": K})


def begun_block(out, a, s, b, t, M: int, N: int, K: int):
    """Products under way while the next stage is brought; b and its scales lie in memory column by column."""
    left = gpu.shared[a.dtype](3, M, K, layout="dot")
    right = gpu.shared[b.dtype](3, N, K, layout="dot")
    of_left = gpu.shared[float8_e8m0fnu](3, M, K // 32)
    of_right = gpu.shared[float8_e8m0fnu](3, N, K // 32)
    row, column = gpu.block_idx.y, gpu.block_idx.x
    steps = ceildiv(a.dim(1), K)

    def fetch(k):
        if k < steps:
            gpu.copy_async(left[k % 3], a.tile(row, k, (M, K)))
            gpu.copy_async(right[k % 3], b.tile(column, k, (N, K)))
            put_scales(of_left[k % 3], s, row, k, M, K // 32)
            put_scales(of_right[k % 3], t, column, k, N, K // 32)
        return gpu.commit()

    def begin(k, sums):
        scales = (of_left[k % 3], of_right[k % 3].transpose())
        return gpu.dot_async(left[k % 3], right[k % 3].transpose(), sums, scales=scales)

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


@register("scaled::begun")
def begun(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "m k"],
    s: InputTensor[float8_e8m0fnu, "m j"],
    b: InputTensor[E, "n k"],
    t: InputTensor[float8_e8m0fnu, "n j"],
    ctx: DeviceContext,
    *,
    M: int = 128,
    N: int = 64,
    K: int = 128,
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(begun_block, out, a, s, b, t, grid=grid, block=128, parameters={"M": M, "N": N, "K": K})
