"""Kernels that apply every row of the table of operations: many rows in one kernel, scalars and vectors."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    Element,
    Floating,
    InputTensor,
    Integral,
    OutputTensor,
    abs,
    bfloat16,
    bitcast,
    bool8,
    ceil,
    float16,
    float32,
    float64,
    floor,
    fma,
    fmod,
    foreach,
    int8,
    int16,
    int32,
    int64,
    isinf,
    isnan,
    max,
    min,
    register,
    round,
    select,
    sqrt,
    trunc,
    uint8,
    uint16,
    uint32,
    uint64,
    unroll,
)

I = TypeVar("I", bound=Integral)  # noqa: E741
F = TypeVar("F", bound=Floating)
E = TypeVar("E", bound=Element)
X = TypeVar("X", bound=Element)


def integer_rows(x, y):
    return (
        *(x + y, x - y, x * y, x // y, x % y, x & y, x | y, x ^ y, x << y, x >> y),
        *(-x, ~x, min(x, y), max(x, y), abs(x)),
    )


def comparisons(x, y):
    return x == y, x != y, x < y, x <= y, x > y, x >= y


def bool_rows(x, y):
    return x & y, x | y, x ^ y, ~x, x == y, x != y, min(x, y), max(x, y), not x


def float_rows(x, y, z):
    return (
        *(x + y, x - y, x * y, x / y, x // y, x % y, fmod(x, y), -x, min(x, y), max(x, y), abs(x)),
        *(floor(x), ceil(x), round(x), trunc(x), sqrt(x), fma(x, y, z)),
    )


def put(out, at, width, values):
    for k in unroll(len(values)):
        if width == 1:
            out[k, at] = values[k]
        else:
            out.store(values[k], k, at)


@register("integers")
def integers(
    o: OutputTensor[I, "15 n"],
    p: OutputTensor[bool8, "6 n"],
    x: InputTensor[I, "n"],
    y: InputTensor[I, "n"],
    *,
    width: int = 1,
) -> None:
    for b in range(0, x.dim(0), width):
        a = x.load(b, width=width)
        c = y.load(b, width=width)
        put(o, b, width, integer_rows(a, c))
        put(p, b, width, comparisons(a, c))


@register("bools")
def bools(
    o: OutputTensor[bool8, "9 n"], x: InputTensor[bool8, "n"], y: InputTensor[bool8, "n"], *, width: int = 1
) -> None:
    for b in range(0, x.dim(0), width):
        put(o, b, width, bool_rows(x.load(b, width=width), y.load(b, width=width)))


@register("floats")
def floats(
    o: OutputTensor[F, "17 n"],
    p: OutputTensor[bool8, "8 n"],
    x: InputTensor[F, "n"],
    y: InputTensor[F, "n"],
    z: InputTensor[F, "n"],
    *,
    width: int = 1,
) -> None:
    for b in range(0, x.dim(0), width):
        a = x.load(b, width=width)
        c = y.load(b, width=width)
        put(o, b, width, float_rows(a, c, z.load(b, width=width)))
        put(p, b, width, (*comparisons(a, c), isnan(a), isinf(a)))


@register("selects")
def selects(
    o: OutputTensor[E, "n"],
    p: OutputTensor[E, "n"],
    c: InputTensor[bool8, "n"],
    x: InputTensor[E, "n"],
    y: InputTensor[E, "n"],
) -> None:
    foreach(p, lambda i: select(c[i], x[i], y[i]))
    for b in range(0, x.dim(0), 8):
        o.store(select(c.load(b, width=8), x.load(b, width=8), y.load(b, width=8)), b)


@register("splats")
def splats(o: OutputTensor[F, "5 n"], x: InputTensor[F, "n"], s: InputTensor[F, ""]) -> None:
    """A scalar is combined with a vector; a number is combined with a vector."""
    for b in range(0, x.dim(0), 4):
        v = x.load(b, width=4)
        a = s[()]
        o.store(v + a, 0, b)
        o.store(a - v, 1, b)
        o.store(max(v, 0.5), 2, b)
        o.store(fma(v, a, SIMD[F, 4](1.5)), 3, b)
        o.store(v if a > 0 else -v, 4, b)


@register("lanes")
def lanes(o: OutputTensor[E, "3 n"], x: InputTensor[E, "n 8"]) -> None:
    for i in range(x.dim(0)):
        v = x.load(i, 0, width=8)
        o[0, i] = v[0]
        o[1, i] = v[5]
        o[2, i] = v[-1]


@register("lane_sums")
def lane_sums(o: OutputTensor[E, "3 n"], x: InputTensor[E, "n 8"]) -> None:
    for i in range(x.dim(0)):
        v = x.load(i, 0, width=8)
        o[0, i] = v.reduce_add().cast(E)
        o[1, i] = v.reduce_max()
        o[2, i] = v.reduce_min()


@register("cast_to_all")
def cast_to_all(
    b: OutputTensor[bool8, "n"],
    i8: OutputTensor[int8, "n"],
    i16: OutputTensor[int16, "n"],
    i32: OutputTensor[int32, "n"],
    i64: OutputTensor[int64, "n"],
    u8: OutputTensor[uint8, "n"],
    u16: OutputTensor[uint16, "n"],
    u32: OutputTensor[uint32, "n"],
    u64: OutputTensor[uint64, "n"],
    f16: OutputTensor[float16, "n"],
    bf16: OutputTensor[bfloat16, "n"],
    f32: OutputTensor[float32, "n"],
    f64: OutputTensor[float64, "n"],
    x: InputTensor[X, "n"],
    *,
    width: int = 1,
) -> None:
    outs = (b, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
    for at in range(0, x.dim(0), width):
        v = x.load(at, width=width)
        for k in unroll(len(outs)):
            outs[k].store(v.cast(outs[k].dtype), at)


@register("bitcasts")
def bitcasts(o: OutputTensor[X, "n"], q: OutputTensor[X, "n"], x: InputTensor[E, "n"]) -> None:
    foreach(o, lambda i: bitcast(x[i], X))
    for b in range(0, x.dim(0), 8):
        q.store(bitcast(x.load(b, width=8), X), b)
