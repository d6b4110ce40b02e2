"""Kernels of `LayoutTensor`: tiles, vectors, shares of threads, copies, iterators, products."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    Numeric,
    OutputTensor,
    Storable,
    ceildiv,
    float32,
    gpu,
    register,
)
from einkorn.stdlib import (
    Layout,
    LayoutTensor,
    TensorCore,
    copy_dram_to_local,
    copy_dram_to_sram,
    copy_dram_to_sram_async,
    copy_local_to_dram,
    copy_local_to_shared,
    copy_sram_to_dram,
    copy_sram_to_local,
    outer_product_acc,
)

T = TypeVar("T", bound=Numeric)
E = TypeVar("E", bound=Storable)
F = TypeVar("F", bound=Floating)


def copied_block(out, x, width: int):
    """Through shared memory and back, by shares of vectors; the last tiles are ragged."""
    i, j = gpu.block_idx.y, gpu.block_idx.x
    shared = LayoutTensor.stack_allocation(x.dtype, (16, 16), "shared")
    source, to = LayoutTensor(x).tile(i, j, (16, 16)), LayoutTensor(out).tile(i, j, (16, 16))
    threads = Layout.row_major((8, 4))
    copy_dram_to_sram(shared.vectorize(1, width), source.vectorize(1, width), threads)
    gpu.barrier()
    copy_sram_to_dram(to, shared, threads)


@register("views::copied")
def copied(
    out: OutputTensor[E, "m n"], x: InputTensor[E, "m n"], ctx: DeviceContext, *, width: int = 1, block: int = 32
):
    grid = (ceildiv(x.dim(1), 16), ceildiv(x.dim(0), 16))
    ctx.launch(copied_block, out, x, grid=grid, block=block, parameters={"width": width})


def ahead_block(out, x, width: int):
    """The same by asynchronous copies, tile after tile of a row of tiles."""
    shared = LayoutTensor.stack_allocation(x.dtype, (8, 16), "shared")
    at = LayoutTensor(x).tiled_iterator(gpu.block_idx.x, 0, (8, 16), axis=1)
    to = LayoutTensor(out).tiled_iterator(gpu.block_idx.x, 0, (8, 16), axis=1)
    for _ in range(ceildiv(x.dim(1), 16)):
        group = copy_dram_to_sram_async(shared.vectorize(1, width), at.get().vectorize(1, width), (8, 16 // width))
        group.wait()
        gpu.barrier()
        copy_sram_to_dram(to.get(), shared, (8, 4))
        gpu.barrier()
        at = at.next()
        to = to + 1


@register("views::ahead")
def ahead(out: OutputTensor[E, "m n"], x: InputTensor[E, "m n"], ctx: DeviceContext, *, width: int = 4):
    ctx.launch(ahead_block, out, x, grid=ceildiv(x.dim(0), 8), block=64, parameters={"width": width})


def planes_block(out, x):
    """Memory of three axes: a plane a block, through storage of each thread, transposed."""
    b = gpu.block_idx.x
    plane, to = LayoutTensor(x).row(b), LayoutTensor(out).row(b)
    own = LayoutTensor.stack_allocation(x.dtype, (2, 2))
    own.fill(0)
    shared = LayoutTensor.stack_allocation(x.dtype, (8, 16), "shared")
    copy_dram_to_local(own, plane.tile(0, 0, (8, 16)), (4, 8))
    copy_local_to_shared(shared, own, (4, 8))
    gpu.barrier()
    turned = LayoutTensor.stack_allocation(x.dtype, (4, 1))
    copy_sram_to_local(turned, shared.transpose(), (4, 8))
    copy_local_to_dram(to.tile(0, 0, (16, 8)), turned, (4, 8))


@register("views::planes")
def planes(out: OutputTensor[E, "b n m"], x: InputTensor[E, "b m n"], ctx: DeviceContext):
    ctx.launch(planes_block, out, x, grid=x.dim(0), block=32)


def product_block(out, a, b):
    """4 x 4 sums in each of 64 threads: outer products of registers."""
    left = LayoutTensor.stack_allocation(a.dtype, (32, 8), "shared")
    right = LayoutTensor.stack_allocation(b.dtype, (8, 32), "shared")
    row, column = gpu.block_idx.y, gpu.block_idx.x
    t = gpu.thread_idx.x
    sums = LayoutTensor.stack_allocation(out.dtype, (4, 4))
    own_a, own_b = LayoutTensor.stack_allocation(a.dtype, 4), LayoutTensor.stack_allocation(b.dtype, 4)
    for k in range(ceildiv(a.dim(1), 8)):
        copy_dram_to_sram(left, LayoutTensor(a).tile(row, k, (32, 8)), (8, 8))
        copy_dram_to_sram(right, LayoutTensor(b).tile(k, column, (8, 32)), (8, 8))
        gpu.barrier()
        for inner in range(8):
            own_a.copy_from(left.tile(t // 8, inner, (4, 1)))
            own_b.copy_from(right.tile(inner, t % 8, (1, 4)))
            outer_product_acc(sums, own_a, own_b)
        gpu.barrier()
    LayoutTensor(out).tile(row, column, (32, 32)).tile(t // 8, t % 8, (4, 4)).copy_from(sums)


@register("views::product")
def product(out: OutputTensor[T, "m n"], a: InputTensor[T, "m k"], b: InputTensor[T, "k n"], ctx: DeviceContext):
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(product_block, out, a, b, grid=grid, block=64)


def core_block(out, a, b, transpose_b: bool):
    """A product of matrices by the instructions that the target has for them."""
    core = TensorCore(float32, a.dtype, (32, 32, 16), transpose_b)
    left = LayoutTensor.stack_allocation(a.dtype, (32, 16), "shared")
    right = LayoutTensor.stack_allocation(b.dtype, (32, 16) if transpose_b else (16, 32), "shared")
    row, column = gpu.block_idx.y, gpu.block_idx.x
    sums = core.zero()
    for k in range(ceildiv(a.dim(1), 16)):
        copy_dram_to_sram(left, LayoutTensor(a).tile(row, k, (32, 16)), (8, 8))
        if transpose_b:
            copy_dram_to_sram(right, LayoutTensor(b).tile(column, k, (32, 16)), (8, 8))
        else:
            copy_dram_to_sram(right, LayoutTensor(b).tile(k, column, (16, 32)), (8, 8))
        gpu.barrier()
        sums = core.mma_op(core.load_a(left), core.load_b(right), sums)
        gpu.barrier()
    core.store_d(LayoutTensor(out).tile(row, column, (32, 32)), sums)


@register("views::core")
def core(out: OutputTensor[F, "m n"], a: InputTensor[F, "m k"], b: InputTensor[F, "k n"], ctx: DeviceContext):
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(core_block, out, a, b, grid=grid, block=64, parameters={"transpose_b": False})


@register("views::core_turned")
def core_turned(out: OutputTensor[F, "m n"], a: InputTensor[F, "m k"], b: InputTensor[F, "n k"], ctx: DeviceContext):
    grid = (ceildiv(out.dim(1), 32), ceildiv(out.dim(0), 32))
    ctx.launch(core_block, out, a, b, grid=grid, block=64, parameters={"transpose_b": True})


def shapes_block(out, x):
    """Reshapes, a layout over storage, slices, parts, strides and assignments."""
    t = gpu.thread_idx.x
    kept = LayoutTensor.stack_allocation(x.dtype, (4, 8), "shared")
    kept[t // 8, t % 8] = x[t]
    gpu.barrier()
    flat = kept.flatten()
    columns = flat.reshape(Layout((4, 8), (1, 4)))
    inner = kept.slice((1, 3), (2, 6))
    if t == 0:
        inner.split(2, 1, 1).fill(7)
    gpu.barrier()
    view = LayoutTensor(out)
    view[0, t] = flat[t]
    view[1, t] = columns[t // 8, t % 8]
    view[2, t] = kept.reshape((2, 16))[t // 16, t % 16]
    view[2, t] += kept.transpose()[t % 8, t // 8]
    view.store(columns.dtype(kept.stride(0) + kept.dim(1) + columns.size), 3, t)


@register("views::shapes")
def shapes(out: OutputTensor[T, "4 32"], x: InputTensor[T, "32"], ctx: DeviceContext):
    ctx.launch(shapes_block, out, x, grid=1, block=32)
