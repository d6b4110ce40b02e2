"""Kernels of tiles: products, attention, elementwise work, reductions, ragged borders."""

from __future__ import annotations

from math import inf
from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    ceildiv,
    exp,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float32,
    gpu,
    int32,
    max,
    register,
    select,
    sqrt,
    unroll,
)
from einkorn.stdlib import ArgMax, Layout, Max, Sum

T = TypeVar("T", bound=Numeric)
F = TypeVar("F", bound=Floating)
E = TypeVar("E", float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz)


# *** products ***


def product_block(out, a, b, sums, M: int, N: int, K: int, stages: int):
    """A tile of a @ b, with copies `stages - 1` steps ahead."""
    sa = gpu.shared[a.dtype](stages, M, K, layout="dot")
    sb = gpu.shared[b.dtype](stages, K, N, layout="dot")
    row, column = gpu.block_idx.y, gpu.block_idx.x
    steps = ceildiv(a.dim(1), K)

    def fetch(k):
        gpu.copy_async(sa[k % stages], a.tile(row, k, (M, K)))
        gpu.copy_async(sb[k % stages], b.tile(k, column, (K, N)))
        return gpu.commit()

    acc = gpu.tile[sums](M, N)
    group = gpu.commit()
    for k in range(stages - 1):
        group = fetch(k)
    for k in range(steps):
        group.wait(pending=stages - 2)
        gpu.barrier()
        group = fetch(k + stages - 1)
        acc = gpu.dot(sa[k % stages], sb[k % stages], acc)
    group.wait()
    acc.cast(out.dtype).store(out.tile(row, column, (M, N)))


def launch_product(out, a, b, ctx, sums, M: int, N: int, K: int, stages: int, block: int):
    grid = (ceildiv(out.dim(1), N), ceildiv(out.dim(0), M))
    ctx.launch(
        product_block,
        out,
        a,
        b,
        grid=grid,
        block=block,
        parameters={"M": M, "N": N, "K": K, "stages": stages, "sums": sums},
    )


@register("tiles::product")
def product(
    out: OutputTensor[F, "m n"],
    a: InputTensor[F, "m k"],
    b: InputTensor[F, "k n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 16,
    stages: int = 3,
    block: int = 64,
) -> None:
    launch_product(out, a, b, ctx, out.dtype if out.dtype.bits > 16 else float32, M, N, K, stages, block)


@register("tiles::product_of_bytes")
def product_of_bytes(
    out: OutputTensor[int32, "m n"],
    a: InputTensor[T, "m k"],
    b: InputTensor[T, "k n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 32,
    stages: int = 2,
    block: int = 64,
) -> None:
    launch_product(out, a, b, ctx, int32, M, N, K, stages, block)


@register("tiles::product_in_float32")
def product_in_float32(
    out: OutputTensor[float32, "m n"],
    a: InputTensor[E, "m k"],
    b: InputTensor[E, "k n"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    K: int = 32,
    stages: int = 2,
    block: int = 64,
) -> None:
    launch_product(out, a, b, ctx, float32, M, N, K, stages, block)


def turned_block(out, a, b, M: int, N: int, K: int, precision: str):
    """a.T @ b.T: both operands are read across."""
    sa = gpu.shared[a.dtype](K, M, layout="dot")
    sb = gpu.shared[b.dtype](N, K, layout="dot")
    row, column = gpu.block_idx.y, gpu.block_idx.x
    acc = gpu.tile[float32](M, N)
    for k in range(ceildiv(a.dim(0), K)):
        gpu.copy_async(sa, a.tile(k, row, (K, M)))
        gpu.copy_async(sb, b.tile(column, k, (N, K)))
        gpu.commit().wait()
        gpu.barrier()
        acc = gpu.dot(sa.transpose(), sb.transpose(), acc, precision=precision)
        gpu.barrier()
    acc.cast(out.dtype).store(out.tile(row, column, (M, N)))


@register("tiles::turned")
def turned(
    out: OutputTensor[F, "m n"],
    a: InputTensor[F, "k m"],
    b: InputTensor[F, "n k"],
    ctx: DeviceContext,
    *,
    precision: str = "ieee",
) -> None:
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(
        turned_block,
        out,
        a,
        b,
        grid=grid,
        block=64,
        parameters={"M": 32, "N": 32, "K": 16, "precision": precision},
    )


def against_rows_block(out, a, b, M: int, N: int, K: int):
    """a @ b.T: both operands are read along their rows."""
    sa = gpu.shared[a.dtype](M, K, layout="dot")
    sb = gpu.shared[b.dtype](N, K, layout="dot")
    row, column = gpu.block_idx.y, gpu.block_idx.x
    acc = gpu.tile[float32](M, N)
    for k in range(ceildiv(a.dim(1), K)):
        gpu.copy_async(sa, a.tile(row, k, (M, K)))
        gpu.copy_async(sb, b.tile(column, k, (N, K)))
        gpu.commit().wait()
        gpu.barrier()
        acc = gpu.dot(sa, sb.transpose(), acc)
        gpu.barrier()
    acc.cast(out.dtype).store(out.tile(row, column, (M, N)))


@register("tiles::against_rows")
def against_rows(
    out: OutputTensor[F, "m n"], a: InputTensor[F, "m k"], b: InputTensor[F, "n k"], ctx: DeviceContext
) -> None:
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(against_rows_block, out, a, b, grid=grid, block=128, parameters={"M": 32, "N": 32, "K": 32})


# *** attention ***


def attention_block(out, q, k, v, M: int, N: int, D: int):
    """Rows of softmax(q @ k.T / sqrt(d)) @ v, for one tile of q: keys go by, N at a time."""
    sk = gpu.shared[k.dtype](N, D, layout="dot")
    sv = gpu.shared[v.dtype](N, D, layout="dot")
    row = gpu.block_idx.x
    queries = gpu.load(q.tile(row, 0, (M, D)))
    acc, zero = gpu.tile[float32](M, D), gpu.tile[float32](M, N)
    m, total = gpu.tile[float32](M, 1, value=-inf), gpu.tile[float32](M, 1)
    scale, keys = 1 / sqrt(float32(D)), k.dim(0)
    for step in range(ceildiv(keys, N)):
        gpu.copy_async(sk, k.tile(step, 0, (N, D)))
        gpu.copy_async(sv, v.tile(step, 0, (N, D)))
        gpu.commit().wait()
        gpu.barrier()
        s = gpu.dot(queries, sk.transpose(), zero) * scale
        left = keys - step * N
        s = s.map(lambda value, i, j: value if j < left else float32(-inf))  # noqa: B023
        new = max(m, s.reduce(1, Max))
        p = exp(s - new)
        old = exp(m - new)
        total = total * old + p.reduce(1, Sum)
        acc = gpu.dot(p.cast(v.dtype), sv, acc * old)
        m = new
        gpu.barrier()
    (acc / total).cast(out.dtype).store(out.tile(row, 0, (M, D)))


@register("tiles::attention")
def attention(
    out: OutputTensor[F, "m d"],
    q: InputTensor[F, "m d"],
    k: InputTensor[F, "n d"],
    v: InputTensor[F, "n d"],
    ctx: DeviceContext,
    *,
    M: int = 32,
    N: int = 32,
    D: int = 32,
    block: int = 64,
) -> None:
    ctx.launch(
        attention_block,
        out,
        q,
        k,
        v,
        grid=ceildiv(q.dim(0), M),
        block=block,
        parameters={"M": M, "N": N, "D": D},
    )


# *** elements ***


def softmax_block(out, x, M: int, N: int):
    """Rows that fit a tile; -inf stands beyond their end."""
    row = gpu.block_idx.x
    t = gpu.load(x.tile(row, 0, (M, N), fill=-inf), float32)
    p = exp(t - t.reduce(1, Max))
    (p / p.reduce(1, Sum)).cast(out.dtype).store(out.tile(row, 0, (M, N)))


@register("tiles::softmax")
def softmax(
    out: OutputTensor[F, "m n"], x: InputTensor[F, "m n"], ctx: DeviceContext, *, N: int = 64, block: int = 64
) -> None:
    ctx.launch(softmax_block, out, x, grid=ceildiv(x.dim(0), 16), block=block, parameters={"M": 16, "N": N})


def halved(t):
    """A tile goes to a function and comes back."""
    return t * 0.5


def mixed_block(out, x, M: int, N: int):
    """Broadcasts, select, map with places, transposes, branches, loops, and matrices in shared memory."""
    i, j = gpu.block_idx.y, gpu.block_idx.x
    t = gpu.load(x.tile(i, j, (M, N)))
    column, row = t.reduce(1, Sum), t.reduce(0, Sum)
    t = select(t > 0, t, halved(t)) + column - row
    t = t.map(lambda v, r, c: v + r.cast(float32) - c.cast(float32))
    kept = gpu.shared[float32](M, N, layout=Layout((M, N), (1, M)))
    t.store(kept)
    gpu.barrier()
    if x.dim(0) > 20:
        t = t + gpu.load(kept)
        t = t * 1.0
    else:
        t = 1 - t
    for _ in range(2):
        t = abs(t) - 2.0 * t
    (column + row).store(kept)
    gpu.barrier()
    (t + gpu.load(kept)).transpose().store(out.tile(j, i, (N, M)))


@register("tiles::mixed")
def mixed(
    out: OutputTensor[float32, "n m"], x: InputTensor[float32, "m n"], ctx: DeviceContext, *, block: int = 64
) -> None:
    grid = (ceildiv(x.dim(1), 16), ceildiv(x.dim(0), 16))
    ctx.launch(mixed_block, out, x, grid=grid, block=block, parameters={"M": 16, "N": 16})


def copied_block(out, x, M: int, N: int):
    """A tile in shared memory of each kind: row by row, for products, by columns, and by columns with gaps."""
    i = gpu.block_idx.x
    plain, swizzled = gpu.shared[x.dtype](M, N), gpu.shared[x.dtype](M, N, layout="dot")
    turned = gpu.shared[x.dtype](M, N, layout=Layout((M, N), (1, M)))
    spread = gpu.shared[x.dtype](M, N, layout=Layout((M, N), (1, M + 1)))
    for to in unroll((plain, swizzled, turned, spread)):
        gpu.copy_async(to, x.tile(i, 0, (M, N)))
    gpu.commit().wait()
    gpu.barrier()
    for at in range(gpu.thread_idx.x, M * N, gpu.block_dim.x):
        row, column = at // N, at % N
        if i * M + row < x.dim(0) and column < x.dim(1):
            out[0, i * M + row, column] = plain[row, column]
            out[1, i * M + row, column] = swizzled[row, column]
            out[2, i * M + row, column] = turned[row, column]
            out[3, i * M + row, column] = spread[row, column]


@register("tiles::copied")
def copied(
    out: OutputTensor[F, "4 m n"], x: InputTensor[F, "m n"], ctx: DeviceContext, *, N: int = 8, block: int = 64
) -> None:
    ctx.launch(copied_block, out, x, grid=ceildiv(x.dim(0), 16), block=block, parameters={"M": 16, "N": N})


def largest_block(places, sums, x, M: int, N: int):
    """Several monoids at once, one of which gives places."""
    t = gpu.load(x.tile(gpu.block_idx.x, 0, (M, N), fill=-inf))
    where, high = t.reduce(1, (ArgMax, Max))
    where.cast(int32).store(places.tile(gpu.block_idx.x, 0, (M, 1)))
    high.store(sums.tile(gpu.block_idx.x, 0, (M, 1)))


@register("tiles::largest")
def largest(
    places: OutputTensor[int32, "m 1"],
    sums: OutputTensor[float32, "m 1"],
    x: InputTensor[float32, "m n"],
    ctx: DeviceContext,
) -> None:
    ctx.launch(largest_block, places, sums, x, grid=ceildiv(x.dim(0), 16), block=128, parameters={"M": 16, "N": 64})
