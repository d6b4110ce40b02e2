"""Functions of all kinds, tensors of all ranks, views, storage, vectors, parallel loops, grids."""

from __future__ import annotations

from typing import TypeVar

import helper_functions
from helper_functions import TABLE, compose, cube, first_of, power_of, scaled, smooth, twice

from einkorn.dsl import (
    SIMD,
    DeviceContext,
    DType,
    Element,
    Float32,
    Float64,
    Floating,
    InputTensor,
    Int,
    MutableInputTensor,
    Numeric,
    OutputTensor,
    abs,
    atomic_add,
    bool8,
    ceildiv,
    float32,
    float64,
    foreach,
    gpu,
    int32,
    int64,
    max,
    min,
    parallel_for,
    register,
    select,
    stack,
    static_assert,
    store,
    unroll,
)

T = TypeVar("T", bound=Floating)
N = TypeVar("N", bound=Numeric)
E = TypeVar("E", bound=Element)

SHIFT = -1.5
NAMES = ("red", "green", "blue")
square = power_of(2)
fourth = twice(square)


# *** functions ***


def weighted(a, b=2.0, *, c=0.5, d: Float32 = 1.0):
    return a * b + c * d


@register("calls")
def calls(out: OutputTensor[float32, "12 n"], x: InputTensor[float32, "n"]) -> None:
    for i in range(x.dim(0)):
        v = x[i]
        out[0, i] = weighted(v)
        out[1, i] = weighted(v, 3.0, c=1.0)
        out[2, i] = weighted(b=v, a=2.0, d=v)
        out[3, i] = scaled(v)
        out[4, i] = helper_functions.scaled(v, 2.0, offset=SHIFT)
        out[5, i] = cube(v) + square(v)
        out[6, i] = fourth(v)
        out[7, i] = compose(lambda u: u + 1, lambda u: u * 2)(v)
        out[8, i] = first_of(value=v, default=helper_functions.half)
        out[9, i] = weighted(*(v, 4.0), c=0.0)
        out[10, i] = smooth(lambda k: x[max(0, min(k, x.dim(0) - 1))], i)
        out[11, i] = TABLE[1][2] * v + TABLE[0][0] + len(NAMES[1])


@register("captures")
def captures(out: OutputTensor[int64, "4 n"], x: InputTensor[int64, "n"]) -> None:
    """Functions capture by value, at the moment when they are made."""
    for i in range(x.dim(0)):
        k = x[i]
        add = lambda v: v + k  # noqa: B023, E731

        def twice_k(v):
            return v + k + k  # noqa: B023

        k = k + 100
        out[0, i] = add(0)
        out[1, i] = twice_k(0)
        functions = (add, twice_k, lambda v: v * k)  # noqa: B023
        total = 0
        for f in functions:
            total += f(1)
        out[2, i] = total
        n = 1

        def shadow(k, n=n):
            k = k * 10 + n
            return k

        out[3, i] = shadow(x[i]) + shadow(2, 3) + k


@register("index_values")
def index_values(out: OutputTensor[int64, "a b c"], x: InputTensor[int64, "a b c"]) -> None:
    def body(i):
        a, b, c = i
        rest = i[1:]
        whole = (*i[:2], c)
        return x[i] + x[whole] * 2 + x[(a, *rest)] * 3 + a * 100 + b * 10 + i[2] + len(i)

    foreach(out, body)


@register("parameters")
def parameters(
    out: OutputTensor[E, "n"],
    x: InputTensor[E, "n"],
    *,
    times: int = 2,
    name: str = "none",
    factor: float = 1.0,
    negate: bool = False,
    through: DType = float32,
) -> None:
    static_assert(times >= 0, f"times is {times}, not >= 0")

    def body(i):
        v = x[i].cast(through)
        for k in unroll(times):
            v = v + k + 1
        if name == "red":
            v = v * 2
        elif name != "none":
            v = v * 3
        if factor != 1.0 and through.is_float():
            v = v * factor
        if negate:
            v = -v
        return v.cast(E)

    foreach(out, body)


# *** tensors of every rank ***


@register("twice_plus")
def twice_plus(out: OutputTensor[N, "*s"], x: InputTensor[N, "*s"]) -> None:
    foreach(out, lambda i: x[i] + x[i] + 1)


@register("weigh_indices")
def weigh_indices(out: OutputTensor[int64, "*s"], x: InputTensor[int64, "*s"]) -> None:
    """Uses the components of the index one by one, whatever their number."""

    def body(i):
        total = x[i]
        for axis in unroll(out.rank):
            total = total * 10 + i[axis]
        return total

    foreach(out, body)


@register("sizes")
def sizes(out: OutputTensor[int64, "8"], x: InputTensor[float32, "a b 3"], y: InputTensor[float32, "*s"]) -> None:
    a, b, c = x.shape
    out[0] = a
    out[1] = b
    out[2] = c
    out[3] = x.rank * 10 + y.rank
    out[4] = x.size
    out[5] = len(x) + len(x.shape)
    out[6] = x.dim(-1) + x.dim(0)
    out[7] = x.dtype.bits


@register("outer_sum")
def outer_sum(
    out: OutputTensor[T, "m n"], swapped: OutputTensor[T, "n m"], x: InputTensor[T, "m"], y: InputTensor[T, "n"]
) -> None:
    """Two loops one after the other, over different shapes."""
    foreach(out, lambda i: x[i[0]] + y[i[1]])
    foreach(swapped, lambda i: x[i[1]] - y[i[0]])


@register("many_outputs")
def many_outputs(
    a: OutputTensor[T, "m n"], b: OutputTensor[bool8, "m n"], c: OutputTensor[int64, "m n"], x: InputTensor[T, "m n"]
) -> None:
    def body(i):
        if x[i] > 0:
            return x[i] * 2, True, i[0]
        return x[i] * 0.5, False, -i[1]

    foreach((a, b, c), body)


@register("in_place")
def in_place(total: OutputTensor[T, "m"], x: MutableInputTensor[T, "m n"]) -> None:
    """Doubles x where it is, then sums what lies there."""
    foreach(x, lambda i: x[i] * 2)
    for i in range(x.dim(0)):
        acc = 0.0
        for j in range(x.dim(1)):
            x[i, j] += 1
            acc += x[i, j]
        total[i] = acc


@register("accumulate")
def accumulate(out: OutputTensor[N, "n"], x: InputTensor[N, "m n"]) -> None:
    """Reads back what it has stored."""
    foreach(out, lambda i: 0)
    for j in range(x.dim(0)):
        for i in range(x.dim(1)):
            out[i] += x[j, i]
            out[i] *= 2


# *** views ***


def sum_of(v):
    total = 0.0
    for i in range(v.dim(0)):
        total += v[i]
    return total


@register("views")
def views(out: OutputTensor[T, "9"], x: InputTensor[T, "m n"], *, k: int = 1) -> None:
    out[0] = sum_of(x[1, :])
    out[1] = sum_of(x[:, 2])
    out[2] = sum_of(x[0, 1:4])
    out[3] = sum_of(x[0, ::2])
    out[4] = sum_of(x[0, 1:100:3])
    block = x[1:3, k:]
    out[5] = block[0, 1] + block[1, 0] * 2
    out[6] = sum_of(block[:, 1][1:])
    out[7] = sum_of(x[2, x.dim(1) - 2 :])
    out[8] = sum_of(x[0, 5:2]) + T(block.dim(0)) * 100 + 10 * block.dim(1).cast(T)


@register("store_through_view")
def store_through_view(out: OutputTensor[T, "m n"], x: InputTensor[T, "m n"]) -> None:
    for i in range(x.dim(0)):
        row = out[i, :]
        source = x[i, :]
        foreach(row, lambda j: source[j] * 2)  # noqa: B023
        row[0] = 7.0


# *** storage ***


@register("histogram")
def histogram(out: OutputTensor[int64, "8"], x: InputTensor[int64, "n"]) -> None:
    bins = stack[int64](8)
    for i in range(x.dim(0)):
        bins[x[i] % 8] += 1
    for k in range(8):
        out[k] = bins[k]


@register("storage_in_loops")
def storage_in_loops(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"]) -> None:
    """Storage made in a loop is zeroed in every round."""
    for i in range(x.dim(0)):
        grid = stack[T](2, 3)
        for j in range(x.dim(1)):
            grid[j % 2, j % 3] += x[i, j]
        total = 0.0
        for a in range(2):
            for b in unroll(3):
                total += grid[a, b] * (b + 1)
        out[i] = total


@register("running_median")
def running_median(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]) -> None:
    """Storage within the body of a foreach: each element has its own."""

    def body(i):
        window = stack[T](5)
        for k in range(5):
            window[k] = x[max(0, min(i[0] + k - 2, x.dim(0) - 1))]
        for a in range(5):
            for b in range(a + 1, 5):
                if window[b] < window[a]:
                    t = window[a]
                    window[a] = window[b]
                    window[b] = t
        return window[2]

    foreach(out, body)


# *** vectors ***


@register("dot_products")
def dot_products(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"], *, width: int = 8) -> None:
    """Vectors with a scalar tail: sizes need not be multiples."""
    n = x.dim(1)
    whole = n // width * width
    for i in range(x.dim(0)):
        acc = SIMD[T, width](0.0)
        for j in range(0, whole, width):
            v = x.load(i, j, width=width)
            acc += v * v
        total = acc.reduce_add()
        for j in range(whole, n):
            total += x[i, j] * x[i, j]
        out[i] = total


@register("copy_by_vectors")
def copy_by_vectors(out: OutputTensor[E, "m n"], x: InputTensor[E, "m n"], *, width: int = 4) -> None:
    n = x.dim(1)
    for i in range(x.dim(0)):
        j = 0
        while j + width <= n:
            out.store(x.load(i, j, width=width), i, j)
            j += width
        while j < n:
            out[i, j] = x[i, j]
            j += 1


@register("masked")
def masked(out: OutputTensor[T, "n"], x: InputTensor[T, "n"]) -> None:
    for b in range(0, x.dim(0), 4):
        v = x.load(b, width=4)
        m = (v > 0) & (v < 2)
        out.store(select(m, v * 3, abs(v)), b)


# *** parallel loops ***


@register("parallel_rows")
def parallel_rows(out: OutputTensor[T, "m"], x: InputTensor[T, "m n"], *, grain: int = 1) -> None:
    def row(i):
        acc = 0.0
        for j in range(x.dim(1)):
            acc += x[i, j]
        store(out, i, acc)

    parallel_for(x.dim(0), row, grain=grain)


@register("parallel_nested")
def parallel_nested(out: OutputTensor[int64, "m n"], offset: InputTensor[int64, ""]) -> None:
    """A parallel loop in a parallel loop, and a foreach in it, run in order; captured values of several types."""
    base = offset[()]
    factor = Float64(0.5)
    small = base.cast(int32)
    positive = base > 0

    def row(i):
        parallel_for(out.dim(1), lambda j: store(out, (i, j), i * 1000 + j + base))
        view = out[i, :]
        foreach(view, lambda j: view[j] + select(positive, 1, 2) + small.cast(int64))
        out[i, 0] = (out[i, 0].cast(float64) * factor).cast(int64)

    parallel_for(out.dim(0), row, grain=3)


@register("parallel_phases")
def parallel_phases(out: OutputTensor[int64, "n"], x: InputTensor[int64, "n"]) -> None:
    """Each parallel loop sees all that the one before has stored."""
    n = out.dim(0)
    parallel_for(n, lambda i: store(out, i, x[i] * 2), grain=16)
    last = out[n - 1]
    parallel_for(n // 2, lambda i: store(out, i, out[n - 1 - i] + last), grain=16)
    parallel_for(n - n, lambda i: store(out, i, -1))
    parallel_for(0 - n, lambda i: store(out, i, -1))


@register("count_values")
def count_values(out: OutputTensor[N, "k"], x: InputTensor[int64, "n"]) -> None:
    foreach(out, lambda i: 0)
    parallel_for(x.dim(0), lambda i: atomic_add(out, x[i], 1), grain=64)


# *** targets and grids ***


@register("by_target")
def by_target(out: OutputTensor[int64, "n"], ctx: DeviceContext) -> None:
    if ctx.target.is_gpu:
        foreach(out, lambda i: 1)
    elif ctx.target.is_cpu:
        foreach(out, lambda i: 2)
    else:
        static_assert(False, "neither CPU nor GPU")


def fill_1d(out, n: Int):
    i = gpu.global_idx.x
    if i < n:
        out[i] = i * 10000 + gpu.block_idx.x * 100 + gpu.thread_idx.x


@register("grid_1d")
def grid_1d(out: OutputTensor[int64, "n"], ctx: DeviceContext, *, block: int = 32) -> None:
    n = out.dim(0)
    ctx.launch(fill_1d, out, n, grid=ceildiv(n, block), block=block)


def transpose_tile(out, x):
    i = gpu.global_idx.y
    j = gpu.global_idx.x
    if i < x.dim(0) and j < x.dim(1):
        out[j, i] = x[i, j] + gpu.block_dim.x * 1000


@register("grid_2d")
def grid_2d(out: OutputTensor[int64, "n m"], x: InputTensor[int64, "m n"], ctx: DeviceContext) -> None:
    ctx.launch(transpose_tile, out, x, grid=(ceildiv(x.dim(1), 8), ceildiv(x.dim(0), 4)), block=(8, 4))


def cube_of_threads(out):
    x, y, z = gpu.global_idx.x, gpu.global_idx.y, gpu.global_idx.z
    if x < out.dim(2) and y < out.dim(1) and z < out.dim(0):
        out[z, y, x] = x + 10 * y + 100 * z + 1000 * gpu.grid_dim.z + 10000 * gpu.block_dim.y


@register("grid_3d")
def grid_3d(out: OutputTensor[int64, "a b c"], ctx: DeviceContext) -> None:
    a, b, c = out.shape
    ctx.launch(cube_of_threads, out, grid=(ceildiv(c, 4), ceildiv(b, 2), a), block=(4, 2, 1))


# *** printing ***


@register("prints")
def prints(out: OutputTensor[int64, "n"], x: InputTensor[float32, "n"]) -> None:
    for i in range(x.dim(0)):
        print("x", i, x[i], sep="|")
        print(f"{i:>3}: {x[i]:.2f} {NAMES[1]}")
        out[i] = i
    print((x[0], 3), True, end="!\n")
