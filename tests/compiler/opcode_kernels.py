"""Kernels that together have every irregular operation of the typed program in them."""

from __future__ import annotations

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    MutableInputTensor,
    OutputTensor,
    atomic,
    bfloat16,
    bitcast,
    bool8,
    complex64,
    constant_table,
    dot2,
    dot4,
    external_call,
    float32,
    foreach,
    gpu,
    int4,
    int8,
    int32,
    int64,
    llvm_intrinsic,
    parallel_for,
    register,
    scratch,
    select,
    stack,
    store,
    uint8,
)
from einkorn.dsl.language.native import exchange


@register("scalars")
def scalars(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], k: InputTensor[int64, "m 3"]):
    """Constants, casts, bits, index arithmetic, control flow, what is printed and checked."""
    n = out.dim(0)
    breakpoint()

    def element(i):
        v = x[i] + bitcast(int32(i[0]), float32)
        return select(v > 0, v, -v) if i[0] % 2 == 0 else v

    foreach(out, element)
    total = 0
    for i in range(n):
        total += k[i % k.dim(0), 1]
    while total > 10:
        total = total // 2
    assert total < 100, f"{total} is too much"
    print(f"{n} elements, {total}")
    out[0] = float32(total)


@register("complex_numbers")
def complex_numbers(out: OutputTensor[complex64, "n"], x: InputTensor[complex64, "n"]):
    """Complex numbers of parts, and their parts."""
    foreach(out, lambda i: complex64(x[i].imag, x[i].real))


def positive(x):
    """The first row that begins above 0."""
    for i in range(x.dim(0)):
        if x[i, 0] > 0:
            return x.pointer(i, 0)
    return x.pointer(0, 0)


@register("memory")
def memory(
    out: OutputTensor[float32, "4 n 8"],
    x: InputTensor[float32, "n 16"],
    m: InputTensor[bool8, "n 8"],
    k: InputTensor[int64, "n 8"],
):
    """All ways to reach memory but atomics."""
    for i in range(out.dim(1)):
        mask, at = m.load(i, 0, width=8), k.load(i, 0, width=8)
        other = x.load(i, 8, width=8, align=4)
        p = x.pointer(i, 1) if i > 0 else x.pointer(0, 0)
        p.prefetch(3)
        out.store(x.load(i, 0, width=8, mask=mask, other=other), 0, i, 0, mask=mask)
        out.store(p.gather(at, mask=mask, other=other), 1, i, 0)
        out.scatter(other, 2, i, at, mask=mask)
        out.store(p.load(width=8), 3, i, 0)
        kept = stack[float32](8, zeroed=True)
        kept[0] = other[0]
        more = scratch[float32](i, 8)
        more[0, 0] = kept[0]
        store(out, (3, i, 0), more[0, 0])
    out[3, 0, 1] = positive(x)[1]


@register("nibbles")
def nibbles(out: OutputTensor[int4, "n"], x: InputTensor[int4, "n"]):
    foreach(out, lambda i: x[i])


@register("lanes")
def lanes(out: OutputTensor[float32, "n 8"], x: InputTensor[float32, "n 8"], k: InputTensor[int32, "n 8"]):
    for i in range(out.dim(0)):
        v, at = x.load(i, 0, width=8), k.load(i, 0, width=8)
        v[2] = v[1] * v.reduce_add()
        v[k[i, 0]] = v[k[i, 1]]
        out.store(v.take(at) + v.reverse() * (v > x[i, 0]).reduce_and().cast(float32), i, 0)


@register("counters")
def counters(seen: MutableInputTensor[int32, "n"], x: InputTensor[int32, "n"]):
    def element(i):
        old = atomic.add(seen, i, x[i], ordering="acq_rel")
        atomic.compare_exchange(seen, i, old, x[i])
        atomic.store(seen, i, atomic.load(seen, i, ordering="acquire"))

    parallel_for(x.dim(0), element)


def turn(out, x):
    i = gpu.thread_idx.x
    kept = gpu.dynamic_shared[float32](gpu.block_dim.x)
    kept[i] = x[i]
    out[i] = kept[i]
    gpu.fence("release", scope="device")
    gpu.warp.sync()
    gpu.barrier(id=3)
    gpu.barrier()
    if gpu.warp.ballot(x[i] > 0) == 3:
        out[i] = gpu.warp.shuffle_up(x[i], 1)
    if gpu.warp.match(x[i]) == 1:
        out[i] = 0.0
    tile = gpu.shared[float32](4)
    gpu.copy_async(tile[i : i + 1], x[i : i + 1])
    gpu.commit().wait(pending=0)
    out[3 - i] = gpu.uniform(x[i])


def paired(out, x):
    i = gpu.thread_idx.x
    kept = gpu.shared[float32](2)
    kept[i] = x[i]
    gpu.cluster.sync()
    out[i] = gpu.cluster.peer(kept, 1)[i]


@register("grid")
def grid(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], ctx: DeviceContext):
    kept = gpu.scratch[float32](out.dim(0))
    ctx.launch(turn, kept, x, grid=1, block=4, shared=16)
    ctx.launch(turn, out, kept, grid=1, block=4, shared=16)
    ctx.launch(paired, out, x, grid=2, block=2, cluster=2)


@register("native")
def native(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]):
    """Tables, pointers to another dtype, and code by name."""
    table = constant_table((1, 2, 3), int32)
    out.pointer().bitcast(uint8)[0] = uint8(1)
    counted = llvm_intrinsic("llvm.ctpop.i32", int32, x[0], has_side_effects=False)
    out[1] = external_call("abs", int32, counted) + table[x.dim(0) % 3]
    halves = x.pointer().bitcast(bfloat16)
    out[3] = bitcast(dot2(float32(0), halves.load(width=2), halves.load(2, width=2)), int32)
    out[2] = dot4(x[0], x.pointer().bitcast(int8).load(width=4), x.pointer().bitcast(uint8).load(width=4))


@register("between_ranks")
def between_ranks(out: OutputTensor[int32, "n"], x: InputTensor[int32, "n"]):
    """Bytes that are moved between ranks."""
    exchange("allgather", "barrier|mesh:*|int32|", out.pointer(), x.pointer(), x.dim(0), x.dim(0), 0)


@register("rows")
def rows(out: OutputTensor[float32, "n 3"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i[0]] * float32(i[1]))


@register("wide")
def wide(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"]):
    foreach(out, lambda i: x[i] * 2)


def multiplying(out, x):
    a, b = gpu.shared[bfloat16](32, 32, layout="dot"), gpu.shared[bfloat16](32, 32, layout="dot")
    gpu.copy_async(a, x.tile(0, 0, (32, 32)))
    gpu.copy_async(b, x.tile(0, 1, (32, 32)))
    gpu.commit().wait()
    gpu.barrier()
    gpu.dot(a, b, gpu.tile[float32](32, 32)).store(out.tile(0, 0, (32, 32)))


@register("matrices")
def matrices(out: OutputTensor[float32, "32 32"], x: InputTensor[bfloat16, "32 64"], ctx: DeviceContext) -> None:
    ctx.launch(multiplying, out, x, grid=1, block=64)


def in_bulk(out, x):
    rows = gpu.shared[float32](32, 64)
    gpu.copy_async(rows, x.tile(gpu.block_idx.x, 0, (32, 64))).wait()
    gpu.barrier()
    gpu.load(rows).store(out.tile(gpu.block_idx.x, 0, (32, 64)))


@register("box_copies")
def box_copies(out: OutputTensor[float32, "40 68"], x: InputTensor[float32, "40 68"], ctx: DeviceContext) -> None:
    ctx.launch(in_bulk, out, x, grid=2, block=64)


def in_long_rows(out, x):
    rows = gpu.shared[float32](2, 16, 512)
    full = gpu.mbarrier(1)
    gpu.copy_async(rows[0], x.tile(gpu.block_idx.x, 0, (16, 512))).wait()
    gpu.copy_async(rows[1], x.tile(gpu.block_idx.x, 0, (16, 512)), arrive=full)
    full.wait(0)
    gpu.barrier()
    (gpu.load(rows[0]) + gpu.load(rows[1])).store(out.tile(gpu.block_idx.x, 0, (16, 512)))


@register("bulk_copies")
def bulk_copies(out: OutputTensor[float32, "40 600"], x: InputTensor[float32, "40 600"], ctx: DeviceContext) -> None:
    ctx.launch(in_long_rows, out, x, grid=3, block=128)


def with_roles(out, x):
    rows = gpu.shared[float32](32, 64)
    full = gpu.mbarrier(1)

    def copy():
        gpu.copy_async(rows, x.tile(gpu.block_idx.x, 0, (32, 64)), arrive=full)

    def store_rows():
        full.wait(0)
        gpu.load(rows).store(out.tile(gpu.block_idx.x, 0, (32, 64)))

    gpu.roles(copy=(copy, 4, 40), store=(store_rows, 4, 232))


@register("roles_of_warps")
def roles_of_warps(out: OutputTensor[float32, "40 68"], x: InputTensor[float32, "40 68"], ctx: DeviceContext) -> None:
    ctx.launch(with_roles, out, x, grid=2, block=256)


def multiplying_in_groups(out, x):
    tile = gpu.shared[bfloat16](64, 64, layout="dot")
    gpu.copy_async(tile, x.tile(0, 0, (64, 64))).wait()
    gpu.barrier()
    product = gpu.dot_async(tile, tile.transpose(), gpu.tile[float32](64, 64))
    product.wait().store(out.tile(0, 0, (64, 64)))


@register("group_products")
def group_products(out: OutputTensor[float32, "64 64"], x: InputTensor[bfloat16, "64 64"], ctx: DeviceContext) -> None:
    ctx.launch(multiplying_in_groups, out, x, grid=1, block=128)


def multiplying_in_tensor_memory(out, x):
    tile = gpu.shared[bfloat16](128, 128, layout="dot")
    gpu.copy_async(tile, x.tile(0, 0, (128, 128))).wait()
    gpu.barrier()
    product = gpu.dot_async(tile, tile.transpose(), gpu.tile[float32](128, 128))
    product.wait().store(out.tile(0, 0, (128, 128)))


@register("tensor_products")
def tensor_products(
    out: OutputTensor[float32, "128 128"], x: InputTensor[bfloat16, "128 128"], ctx: DeviceContext
) -> None:
    ctx.launch(multiplying_in_tensor_memory, out, x, grid=1, block=128)
