"""Products that four warps compute together where a target has such instructions."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    OutputTensor,
    bfloat16,
    ceildiv,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    gpu,
    int8,
    int32,
    max,
    register,
    uint8,
)
from einkorn.stdlib import Max

F = TypeVar("F", bound=Floating)
E = TypeVar("E", float16, bfloat16, float32, int8, uint8, float8_e4m3fn, float8_e5m2)
R = TypeVar("R", float16, bfloat16, float32, int32)


def product_block(out, a, b, M: int, N: int, K: int, a_turned: bool, b_turned: bool, precision: str):
    """A tile of the product of a and b, either of which may lie by columns."""
    sa = gpu.shared[a.dtype](2, K, M, layout="dot") if a_turned else gpu.shared[a.dtype](2, M, K, layout="dot")
    sb = gpu.shared[b.dtype](2, N, K, layout="dot") if b_turned else gpu.shared[b.dtype](2, K, N, layout="dot")
    row, column = gpu.block_idx.y, gpu.block_idx.x
    depth = a.dim(0) if a_turned else a.dim(1)

    def fetch(k):
        if a_turned:
            gpu.copy_async(sa[k % 2], a.tile(k, row, (K, M)))
        else:
            gpu.copy_async(sa[k % 2], a.tile(row, k, (M, K)))
        if b_turned:
            gpu.copy_async(sb[k % 2], b.tile(column, k, (N, K)))
        else:
            gpu.copy_async(sb[k % 2], b.tile(k, column, (K, N)))
        return gpu.commit()

    sums = gpu.tile[int32 if out.dtype == int32 else float32](M, N)
    group = fetch(0)
    for k in range(ceildiv(depth, K)):
        group.wait()
        gpu.barrier()
        group = fetch(k + 1)
        left = sa[k % 2].transpose() if a_turned else sa[k % 2]
        right = sb[k % 2].transpose() if b_turned else sb[k % 2]
        sums = gpu.dot(left, right, sums, precision=precision)
    group.wait()
    sums.cast(out.dtype).store(out.tile(row, column, (M, N)))


@register("group_products::product")
def product(
    out: OutputTensor[R, "m n"],
    a: InputTensor[E, "h k"],
    b: InputTensor[E, "i j"],
    ctx: DeviceContext,
    *,
    M: int = 64,
    N: int = 64,
    K: int = 32,
    block: int = 128,
    a_turned: bool = False,
    b_turned: bool = False,
    precision: str = "ieee",
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(
        product_block,
        out,
        a,
        b,
        grid=grid,
        block=block,
        parameters={"M": M, "N": N, "K": K, "a_turned": a_turned, "b_turned": b_turned, "precision": precision},
    )


def loaded_block(out, a, b, N: int, K: int, precision: str):
    """Both operands are tiles."""
    row, column = gpu.block_idx.y, gpu.block_idx.x
    sums = gpu.tile[int32 if out.dtype == int32 else float32](64, N)
    for k in range(ceildiv(a.dim(1), K)):
        left, right = gpu.load(a.tile(row, k, (64, K))), gpu.load(b.tile(k, column, (K, N)))
        sums = gpu.dot(left, right, sums, precision=precision)
    sums.cast(out.dtype).store(out.tile(row, column, (64, N)))


@register("group_products::loaded")
def loaded(
    out: OutputTensor[R, "m n"],
    a: InputTensor[E, "m k"],
    b: InputTensor[E, "k n"],
    ctx: DeviceContext,
    *,
    N: int = 32,
    K: int = 64,
    precision: str = "ieee",
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), 64))
    ctx.launch(loaded_block, out, a, b, grid=grid, block=128, parameters={"N": N, "K": K, "precision": precision})


def chained_block(out, a, b, N: int, K: int):
    """(a @ b / 8, rounded) @ b transposed: the first operand is a tile, in the second product one of sums."""
    held = gpu.shared[b.dtype](K, N, layout="dot")
    gpu.copy_async(held, b.tile(0, 0, (K, N))).wait()
    gpu.barrier()
    left = gpu.load(a.tile(gpu.block_idx.x, 0, (64, K)))
    first = gpu.dot(left, held, gpu.tile[float32](64, N))
    second = gpu.dot((first * 0.125).cast(a.dtype), held.transpose(), gpu.tile[float32](64, K, value=1))
    (second - second.reduce(1, Max)).store(out.tile(gpu.block_idx.x, 0, (64, K)))


@register("group_products::chained")
def chained(
    out: OutputTensor[float32, "m k"],
    a: InputTensor[F, "m k"],
    b: InputTensor[F, "k n"],
    ctx: DeviceContext,
    *,
    N: int = 32,
    K: int = 48,
) -> None:
    ctx.launch(chained_block, out, a, b, grid=ceildiv(a.dim(0), 64), block=128, parameters={"N": N, "K": K})


def ahead_block(out, a, b, M: int, N: int, K: int, stages: int, b_turned: bool, precision: str):
    """A product that goes on while the next one begins: when that before it has ended, its stage is filled again."""
    sa = gpu.shared[a.dtype](stages, M, K, layout="dot")
    sb = gpu.shared[b.dtype](stages, *((N, K) if b_turned else (K, N)), layout="dot")
    row, column = gpu.block_idx.y, gpu.block_idx.x

    def fetch(k):
        gpu.copy_async(sa[k % stages], a.tile(row, k, (M, K)))
        if b_turned:
            gpu.copy_async(sb[k % stages], b.tile(column, k, (N, K)))
        else:
            gpu.copy_async(sb[k % stages], b.tile(k, column, (K, N)))
        return gpu.commit()

    def right(k):
        return sb[k % stages].transpose() if b_turned else sb[k % stages]

    sums = int32 if out.dtype == int32 else float32
    group = gpu.commit()
    for k in range(stages - 2):
        group = fetch(k)
    group.wait(pending=stages - 3)
    gpu.barrier()
    product = gpu.dot_async(sa[0], right(0), gpu.tile[sums](M, N), precision=precision)
    group = fetch(stages - 2)
    for k in range(1, ceildiv(a.dim(1), K)):
        group.wait(pending=stages - 3)
        gpu.barrier()
        product = gpu.dot_async(sa[k % stages], right(k), product, precision=precision)
        product.wait(pending=1)
        gpu.barrier()
        group = fetch(k + stages - 2)
    group.wait()
    product.wait().cast(out.dtype).store(out.tile(row, column, (M, N)))


def several_block(out, a, b):
    """Several tiles for each block, and two products for each that are under way together."""
    sa, sb = gpu.shared[a.dtype](128, 32, layout="dot"), gpu.shared[b.dtype](32, 32, layout="dot")
    for row, column in gpu.work((ceildiv(out.dim(0), 128), ceildiv(out.dim(1), 32))):
        gpu.copy_async(sa, a.tile(row, 0, (128, 32)))
        gpu.copy_async(sb, b.tile(0, column, (32, 32)))
        gpu.commit().wait()
        gpu.barrier()
        one = gpu.dot_async(sa, sb, gpu.tile[float32](128, 32))
        two = gpu.dot_async(sa, sb, gpu.tile[float32](128, 32))
        second = two.wait()
        max(one.wait(), second).cast(out.dtype).store(out.tile(row, column, (128, 32)))
        gpu.barrier()


@register("group_products::several")
def several(
    out: OutputTensor[F, "m n"], a: InputTensor[F, "m k"], b: InputTensor[F, "k n"], ctx: DeviceContext
) -> None:
    ctx.launch(several_block, out, a, b, grid=2, block=128)


@register("group_products::ahead")
def ahead(
    out: OutputTensor[R, "m n"],
    a: InputTensor[E, "h k"],
    b: InputTensor[E, "i j"],
    ctx: DeviceContext,
    *,
    M: int = 64,
    N: int = 64,
    K: int = 32,
    stages: int = 4,
    b_turned: bool = False,
    precision: str = "ieee",
) -> None:
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(
        ahead_block,
        out,
        a,
        b,
        grid=grid,
        block=128,
        parameters={"M": M, "N": N, "K": K, "stages": stages, "b_turned": b_turned, "precision": precision},
    )
