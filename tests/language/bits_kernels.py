"""Kernels that apply the rows on bits and the saturating, widening and bounding rows: scalars and vectors."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Int8,
    Int32,
    Integral,
    OutputTensor,
    UInt16,
    abs_diff,
    add_sat,
    avg_ceil,
    avg_floor,
    bit_and_not,
    bit_reverse,
    bit_width,
    bool8,
    byte_swap,
    clamp,
    clz,
    copysign,
    ctz,
    foreach,
    int64,
    isfinite,
    mul_high,
    mul_wide,
    nextafter,
    popcount,
    register,
    rotl,
    rotr,
    sign,
    sub_sat,
    unroll,
)

I = TypeVar("I", bound=Integral)  # noqa: E741
W = TypeVar("W", bound=Integral)
F = TypeVar("F", bound=Floating)


def put(out, at, width, values):
    for k in unroll(len(values)):
        if width == 1:
            out[k, at] = values[k]
        else:
            out.store(values[k], k, at)


def integer_rows(x, y, z):
    return (
        *(popcount(x), clz(x), ctz(x), bit_width(x), bit_reverse(x), byte_swap(x), rotl(x, y), rotr(x, y)),
        *(add_sat(x, y), sub_sat(x, y), mul_high(x, y), avg_floor(x, y), avg_ceil(x, y), abs_diff(x, y)),
        *(clamp(x, y, z), sign(x), bit_and_not(x, y)),
    )


@register("integers")
def integers(
    o: OutputTensor[I, "17 n"],
    x: InputTensor[I, "n"],
    y: InputTensor[I, "n"],
    z: InputTensor[I, "n"],
    *,
    width: int = 1,
) -> None:
    for b in range(0, x.dim(0), width):
        put(o, b, width, integer_rows(x.load(b, width=width), y.load(b, width=width), z.load(b, width=width)))


@register("mixed")
def mixed(o: OutputTensor[I, "n"], x: InputTensor[I, "n"], y: InputTensor[I, "n"], z: InputTensor[I, "n"]) -> None:
    """Every row, in a form that GPUs run."""

    def body(i):
        rows = integer_rows(x[i], y[i], z[i])
        total = rows[0]
        for k in unroll(1, len(rows)):
            total = total * 3 + rows[k]
        return total

    foreach(o, body)


@register("floats")
def floats(
    o: OutputTensor[F, "6 n"],
    p: OutputTensor[bool8, "n"],
    x: InputTensor[F, "n"],
    y: InputTensor[F, "n"],
    z: InputTensor[F, "n"],
    *,
    width: int = 1,
) -> None:
    for b in range(0, x.dim(0), width):
        u, v, w = x.load(b, width=width), y.load(b, width=width), z.load(b, width=width)
        put(o, b, width, (copysign(u, v), abs_diff(u, v), clamp(u, v, w), sign(u), nextafter(u, v), nextafter(u, 0)))
        p.store(isfinite(u), b)


@register("products")
def products(o: OutputTensor[W, "2 n"], x: InputTensor[I, "n"], y: InputTensor[I, "n"], *, width: int = 1) -> None:
    for b in range(0, x.dim(0), width):
        u = x.load(b, width=width)
        put(o, b, width, (mul_wide(u, y.load(b, width=width)), mul_wide(u, 3)))


@register("known")
def known(o: OutputTensor[int64, "24"], s: InputTensor[int64, "n m"]) -> None:
    """What is known at compile time: plain numbers, sizes (here, 1), and numbers with a type."""
    one = s.dim(1)
    values = (
        *(bit_width(1000), bit_width(-8), bit_width(0), avg_floor(-3, 4), avg_ceil(-3, 4), abs_diff(2, 9)),
        *(clamp(12, 0, 10), clamp(-1, 0, 10), sign(-7), sign(0), bit_and_not(7, 5), popcount(255)),
        *(popcount(one * 7), clz(one), ctz(one * 8), rotl(one, 62), rotr(one, 1), byte_swap(one), bit_reverse(one)),
        *(
            popcount(Int8(-1)).cast(int64),
            clz(UInt16(1)).cast(int64),
            mul_wide(Int32(1 << 30), Int32(6)),
            mul_high(one, one),
        ),
        *(add_sat(one, (1 << 63) - 1),),
    )
    for k in unroll(len(values)):
        o[k] = values[k]
