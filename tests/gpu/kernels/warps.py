"""What the lanes of a warp do together."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    DeviceContext,
    InputTensor,
    OutputTensor,
    Storable,
    bfloat16,
    bool8,
    ceildiv,
    float8_e4m3fn,
    float16,
    float32,
    float64,
    gpu,
    int8,
    int32,
    int64,
    register,
    select,
    struct,
    uint64,
    unroll,
)
from einkorn.stdlib import Max, Min, Sum

T = TypeVar("T", bound=Storable)


def shuffle_thread(out, x, n):
    """Rows of `out`: by constants and by numbers that are known at run time."""
    i = gpu.global_idx.x
    v = x[i]
    one = int64(n[0])
    out[0, i] = gpu.warp.shuffle_idx(v, 3)
    out[1, i] = gpu.warp.shuffle_up(v, 1)
    out[2, i] = gpu.warp.shuffle_down(v, 5)
    out[3, i] = gpu.warp.shuffle_xor(v, 16)
    out[4, i] = gpu.warp.shuffle_idx(v, (i * 7 + 3) % 40)
    out[5, i] = gpu.warp.shuffle_up(v, one)
    out[6, i] = gpu.warp.shuffle_down(v, one + 2)
    out[7, i] = gpu.warp.shuffle_xor(v, i % 8)
    out[8, i] = gpu.warp.broadcast(v, 2)
    out[9, i] = gpu.warp.shuffle_up(v, -2)
    out[10, i] = gpu.warp.shuffle_down(v, 1000)
    out[11, i] = gpu.warp.shuffle_idx(v, one - 100)


@register("warps::shuffle")
def shuffle(
    out: OutputTensor[T, "12 n"],
    x: InputTensor[T, "n"],
    n: InputTensor[int32, "k"],
    ctx: DeviceContext,
    *,
    block: int = 64,
) -> None:
    ctx.launch(shuffle_thread, out, x, n, grid=ceildiv(x.dim(0), block), block=block)


def exchange_thread(out, x):
    """Lanes that differ in bits which are known, and lanes that are."""
    i = gpu.global_idx.x
    for bits in unroll(32):
        out[bits, i] = gpu.warp.shuffle_xor(x[i], bits)
    out[32, i] = gpu.warp.shuffle_idx(x[i], 17) + gpu.warp.broadcast(x[i], 9)


@register("warps::exchange")
def exchange(out: OutputTensor[T, "33 n"], x: InputTensor[T, "n"], ctx: DeviceContext, *, block: int = 64) -> None:
    ctx.launch(exchange_thread, out, x, grid=ceildiv(x.dim(0), block), block=block)


def shuffle_dtypes_thread(outs, xs):
    """A constant, a lane known at run time, and the other half of the warp, of every kind of number."""
    i = gpu.thread_idx.x
    for k in unroll(len(xs)):
        outs[k][0, i] = gpu.warp.shuffle_up(xs[k][i], 1)
        outs[k][1, i] = gpu.warp.shuffle_idx(xs[k][i], (i * 7 + 3) % 40)
        outs[k][2, i] = gpu.warp.shuffle_xor(xs[k][i], 16)


@register("warps::shuffle_dtypes")
def shuffle_dtypes(
    a_out: OutputTensor[float64, "3 n"],
    b_out: OutputTensor[uint64, "3 n"],
    c_out: OutputTensor[bfloat16, "3 n"],
    d_out: OutputTensor[float16, "3 n"],
    e_out: OutputTensor[int8, "3 n"],
    f_out: OutputTensor[bool8, "3 n"],
    g_out: OutputTensor[float8_e4m3fn, "3 n"],
    a: InputTensor[float64, "n"],
    b: InputTensor[uint64, "n"],
    c: InputTensor[bfloat16, "n"],
    d: InputTensor[float16, "n"],
    e: InputTensor[int8, "n"],
    f: InputTensor[bool8, "n"],
    g: InputTensor[float8_e4m3fn, "n"],
    ctx: DeviceContext,
) -> None:
    outs, xs = (a_out, b_out, c_out, d_out, e_out, f_out, g_out), (a, b, c, d, e, f, g)
    ctx.launch(shuffle_dtypes_thread, outs, xs, grid=1, block=64)


@struct
class Pair:
    key: int64
    value: float32


def shuffle_parts_thread(out, x):
    """Vectors, and tuples and structs of numbers of several widths; a block of three axes."""
    i = gpu.thread_idx.x + 3 * (gpu.thread_idx.y + 5 * gpu.thread_idx.z)
    v = x.load(8 * i, width=8)
    w = gpu.warp.shuffle_down(v, 1)
    pair = gpu.warp.shuffle_xor(Pair(int64(i), v[0]), 2)
    number, flag, four = gpu.warp.shuffle_up((i, v[1] > 0, 4), 3)
    out.store(w, i, 0)
    out[i, 8] = pair.value + float32(pair.key)
    out[i, 9] = float32(number * four) + select(flag, 0.5, 0.25)


@register("warps::shuffle_parts")
def shuffle_parts(out: OutputTensor[float32, "45 10"], x: InputTensor[float32, "360"], ctx: DeviceContext) -> None:
    ctx.launch(shuffle_parts_thread, out, x, grid=1, block=(3, 5, 3))


def vote_thread(out, x):
    i = gpu.global_idx.x
    out[0, i] = gpu.warp.ballot(x[i] > 0)
    out[1, i] = uint64(gpu.warp.any(x[i] > 6))
    out[2, i] = uint64(gpu.warp.all(x[i] > -7))


@register("warps::vote")
def vote(out: OutputTensor[uint64, "3 n"], x: InputTensor[int32, "n"], ctx: DeviceContext) -> None:
    ctx.launch(vote_thread, out, x, grid=ceildiv(x.dim(0), 80), block=80)


def match_thread(out, x, wide):
    i = gpu.global_idx.x
    out[0, i] = gpu.warp.match(x[i])
    out[1, i] = gpu.warp.match(wide[i])
    out[2, i] = gpu.warp.match(x[i] > 0)
    out[3, i] = uint64(gpu.warp.elect())


@register("warps::match")
def match(
    out: OutputTensor[uint64, "4 n"], x: InputTensor[int8, "n"], wide: InputTensor[int64, "n"], ctx: DeviceContext
) -> None:
    ctx.launch(match_thread, out, x, wide, grid=ceildiv(x.dim(0), 80), block=80)


def parted_thread(out, x):
    """Lanes that go different ways: each call says which lanes come to it."""
    i = gpu.global_idx.x
    v = x[i]
    even = gpu.warp.ballot(gpu.lane_idx % 2 == 0)
    if gpu.lane_idx % 2 == 0:
        out[0, i] = int64(gpu.warp.shuffle_xor(v, 2, mask=even))
        out[1, i] = int64(gpu.warp.ballot(v > 0, mask=even))
        out[2, i] = int64(gpu.warp.match(v, mask=even))
        out[3, i] = int64(gpu.warp.reduce(v, Sum, mask=even))
        out[4, i] = int64(gpu.warp.scan(v, Sum, mask=even))
        out[5, i] = int64(gpu.warp.broadcast(v, 2, mask=even))
    else:
        odd = ~even
        out[0, i] = int64(gpu.warp.shuffle_down(v, 4, mask=odd)) * 100
        out[1, i] = int64(gpu.warp.any(v > 6, mask=odd))
        out[2, i] = int64(gpu.warp.all(v > -8, mask=odd))
        low, high = gpu.warp.reduce(v, (Min, Max), mask=odd)
        out[3, i] = 100 * int64(low) + int64(high)
        out[4, i] = int64(gpu.warp.scan(v, Max, exclusive=True, mask=odd))
        out[5, i] = int64(gpu.warp.broadcast(v, 3, mask=odd))


@register("warps::parted")
def parted(out: OutputTensor[int64, "6 n"], x: InputTensor[int32, "n"], ctx: DeviceContext) -> None:
    ctx.launch(parted_thread, out, x, grid=ceildiv(x.dim(0), 64), block=64)
