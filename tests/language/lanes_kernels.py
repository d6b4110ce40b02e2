"""Kernels that move, read, write and combine the lanes of vectors."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    Element,
    InputTensor,
    Integral,
    Numeric,
    OutputTensor,
    Storable,
    bfloat16,
    bool8,
    dot2,
    dot4,
    float32,
    int8,
    int32,
    int64,
    iota,
    parallel_for,
    register,
    uint8,
    uint16,
    unroll,
)

E = TypeVar("E", bound=Storable)
N = TypeVar("N", bound=Numeric)
I = TypeVar("I", bound=Integral)  # noqa: E741
X = TypeVar("X", bound=Element)
A = TypeVar("A", int8, uint8)
B = TypeVar("B", int8, uint8)


def alternating(w):
    lanes = ()
    for k in unroll(w):
        lanes = (*lanes, k if k % 2 == 0 else w + k)
    return lanes


def backwards(w):
    lanes = ()
    for k in unroll(w):
        lanes = (k, *lanes)
    return lanes


@register("moves")
def moves(o: OutputTensor[E, "24 n w"], x: InputTensor[E, "n w"], y: InputTensor[E, "n w"], *, w: int = 8) -> None:
    h = w // 2
    for i in range(x.dim(0)):
        a = x.load(i, 0, width=w)
        b = y.load(i, 0, width=w)
        low, high = a.split()
        even, odd = a.deinterleave()
        both = a.join(b)
        mixed = a.interleave(b)
        stored = a
        stored[1] = b[0]
        stored[-1] = b[1]
        moved = (
            *(high.join(low), even.join(odd), mixed[:w], mixed[w:], both[h : h + w], both[::2], both[1::2]),
            *(a[::-1], a.reverse(), a.rotate_left(1), a.rotate_right(1), a.rotate_left(h), a.shift_left(1)),
            *(a.shift_right(1, fill=b[0]), a.shift_left(w), a.shuffle(backwards(w))),
            *(a.shuffle(alternating(w), other=b), a.slice(h, h).join(b.slice(0, h)), a.with_lane(0, b[w - 1])),
            *(stored, a.split(w)[-1].broadcast(w), SIMD[E, w](b[1]), a.shift_right(w, b[1]), a[h:].join(a[:h])),
        )
        for k in unroll(len(moved)):
            o.store(moved[k], k, i, 0)


@register("indexed")
def indexed(
    o: OutputTensor[E, "n 3 w"],
    x: InputTensor[E, "n w"],
    table: InputTensor[E, "t"],
    k: InputTensor[I, "n w"],
    *,
    w: int = 8,
    t: int = 8,
) -> None:
    """Lanes chosen at run time; numbers count modulo the width."""
    wide = table.load(0, width=t)
    for i in range(x.dim(0)):
        v = x.load(i, 0, width=w)
        at = k.load(i, 0, width=w)
        o.store(v.take(at), i, 0, 0)
        o.store(wide.take(at), i, 1, 0)
        changed = v
        for j in range(w):
            changed[k[i, j]] = v[j]
        o.store(changed, i, 2, 0)


@register("built")
def built(o: OutputTensor[N, "5 8"], x: InputTensor[N, "8"]) -> None:
    o.store(SIMD[N, 4](x[1], 2, x[3], 4).join(SIMD[N, 4](5, 6, 7, x[0])), 0, 0)
    o.store(iota(N, 8), 1, 0)
    o.store(iota(N, 8, 3, 2), 2, 0)
    o.store(iota(N, 8, x[2]), 3, 0)
    v = SIMD[N, 8](0)
    for j in range(8):
        if j != 5:
            v[j] += x[j]
    o.store(v, 4, 0)


@register("reductions")
def reductions(
    o: OutputTensor[N, "4 n"], p: OutputTensor[int64, "2 n"], x: InputTensor[N, "n w"], *, w: int = 8
) -> None:
    for i in range(x.dim(0)):
        v = x.load(i, 0, width=w)
        values = (v.reduce_add().cast(N), v.reduce_mul().cast(N), v.reduce_min(), v.reduce_max())
        for k in unroll(4):
            o[k, i] = values[k]
        p[0, i] = v.argmin()
        p[1, i] = v.argmax()


@register("bit_reductions")
def bit_reductions(o: OutputTensor[X, "4 n"], x: InputTensor[X, "n w"], *, w: int = 8) -> None:
    for i in range(x.dim(0)):
        v = x.load(i, 0, width=w)
        values = (v.reduce_and(), v.reduce_or(), v.reduce_xor(), v.reduce(lambda a, b: a ^ b))
        for k in unroll(4):
            o[k, i] = values[k]


@register("masks")
def masks(
    o: OutputTensor[bool8, "6 n"],
    c: OutputTensor[int64, "n"],
    x: InputTensor[N, "n w"],
    y: InputTensor[N, "n w"],
    *,
    w: int = 8,
) -> None:
    for i in range(x.dim(0)):
        a = x.load(i, 0, width=w)
        b = y.load(i, 0, width=w)
        low, same = a < b, a == b
        values = (
            low.any(),
            low.all(),
            same.none(),
            (~low & ~same).any(),
            (low | same).all(),
            (low ^ same).reduce_xor(),
        )
        for k in unroll(6):
            o[k, i] = values[k]
        c[i] = low.count()


@register("narrowed")
def narrowed(o: OutputTensor[I, "2 n"], x: InputTensor[X, "n"]) -> None:
    for b in range(0, x.dim(0), 16):
        v = x.load(b, width=16)
        o.store(v.cast(I, saturate=True), 0, b)
        o.store(v.cast(I), 1, b)


@register("lookup")
def lookup(o: OutputTensor[X, "n"], table: InputTensor[X, "t"], k: InputTensor[I, "n"], *, w: int = 8) -> None:
    """A table in registers."""
    v = table.load(0, width=w)
    for b in range(0, k.dim(0), w):
        o.store(v.take(k.load(b, width=w)), b)


@register("nibbles_of_table")
def nibbles_of_table(
    o: OutputTensor[uint8, "2 * n"], table: InputTensor[uint8, "16"], x: InputTensor[uint8, "n"]
) -> None:
    """The bytes of a table at the lower halves of 16 bytes, then at the upper ones."""
    pairs = x.load(0, width=16)
    o.store(table.load(0, width=16).take((pairs & 15).join(pairs >> 4)), 0)


@register("row_sums")
def row_sums(o: OutputTensor[float32, "n"], m: OutputTensor[uint8, "n"], x: InputTensor[float32, "n 16"]) -> None:
    for i in range(x.dim(0)):
        v = x.load(i, 0, width=16)
        o[i] = v.reduce_add()
        m[i] = (v > 0).count().cast(uint8)


@register("packed")
def packed(o: OutputTensor[uint8, "n"], q: OutputTensor[uint16, "n"], x: InputTensor[int32, "n"]) -> None:
    for b in range(0, x.dim(0), 16):
        v = x.load(b, width=16)
        o.store(v.cast(uint8, saturate=True), b)
        q.store(v.cast(uint16, saturate=True).reverse(), b)


@register("mixed")
def mixed(o: OutputTensor[N, "n 8"], x: InputTensor[N, "n 8"], k: InputTensor[int32, "n 8"]) -> None:
    """All kinds of moves, in a form that GPUs run."""

    def row(i):
        v = x.load(i, 0, width=8)
        at = k.load(i, 0, width=8)
        even, odd = v.take(at).reverse().deinterleave()
        w = odd.join(even).shift_left(1, v[at[3]]).shuffle(alternating(8), other=v)
        w[at[0]] = v.reduce_add().cast(N)
        w[2] = v.reduce_max()
        if (v < w).any():
            w[v.argmax()] = v.reduce_min()
        o.store(w, i, 0)

    parallel_for(x.dim(0), row)


@register("dots")
def dots(
    o: OutputTensor[int32, "n w"],
    acc: InputTensor[int32, "n w"],
    x: InputTensor[A, "n (4*w)"],
    y: InputTensor[B, "n (4*w)"],
    *,
    w: int = 4,
) -> None:
    def row(i):
        o.store(dot4(acc.load(i, 0, width=w), x.load(i, 0, width=4 * w), y.load(i, 0, width=4 * w)), i, 0)

    parallel_for(x.dim(0), row)


@register("small_dots")
def small_dots(
    o: OutputTensor[int32, "n w"],
    acc: InputTensor[int32, "n w"],
    x: InputTensor[uint8, "n (4*w)"],
    y: InputTensor[int8, "n (4*w)"],
    *,
    mask: int,
    w: int = 4,
) -> None:
    """As `dots`, of unsigned numbers of which a mask leaves some bits."""

    def row(i):
        small = x.load(i, 0, width=4 * w) & mask
        o.store(dot4(acc.load(i, 0, width=w), small, y.load(i, 0, width=4 * w)), i, 0)

    parallel_for(x.dim(0), row)


@register("half_dots")
def half_dots(
    o: OutputTensor[float32, "n w"],
    acc: InputTensor[float32, "n w"],
    x: InputTensor[bfloat16, "n (2*w)"],
    y: InputTensor[bfloat16, "n (2*w)"],
    *,
    w: int = 4,
) -> None:
    def row(i):
        o.store(dot2(acc.load(i, 0, width=w), x.load(i, 0, width=2 * w), y.load(i, 0, width=2 * w)), i, 0)

    parallel_for(x.dim(0), row)
