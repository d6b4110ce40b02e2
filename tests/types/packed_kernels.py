"""Kernels whose elements share bytes: every way to reach half a byte."""

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    Float4_e2m1fn,
    Float8_e4m3fn,
    InputTensor,
    Int4,
    MutableInputTensor,
    OutputTensor,
    Storable,
    UInt4,
    bitcast,
    float4_e2m1fn,
    float8_e4m3fn,
    float8_e5m2,
    float32,
    foreach,
    int4,
    int8,
    int32,
    iota,
    max,
    min,
    parallel_for,
    register,
    round,
    select,
    stack,
    store,
    uint4,
    uint8,
)

P = TypeVar("P", int4, uint4, float4_e2m1fn)
S = TypeVar("S", bound=Storable)
U = TypeVar("U", bound=Storable)


@register("scatter")
def scatter(out: OutputTensor[P, "n"], x: InputTensor[P, "n"], *, step: int):
    """Every task stores all over the place."""
    n = x.dim(0)
    parallel_for(n, lambda i: store(out, i * step % n, x[i]), grain=64)


@register("windows")
def windows(out: OutputTensor[float32, "(n - 7) 8"], x: InputTensor[P, "n"]):
    """Eight elements from every position on."""
    parallel_for(out.dim(0), lambda i: out.store(x.load(i, width=8).cast(float32), i, 0))


@register("apart")
def apart(out: OutputTensor[P, "(9 * m)"], x: InputTensor[P, "m 8"]):
    """Vectors of eight with one element between them, at even and odd positions."""

    def row(i):
        out[9 * i + 8] = P(1)
        out.store(x.load(i, 0, width=8), 9 * i)

    parallel_for(x.dim(0), row)


@register("rows")
def rows(out: OutputTensor[P, "n m"], x: InputTensor[P, "m n"]):
    """Components of the index are used, and a row may begin in the middle of a byte."""
    foreach(out, lambda i: x[i[1], i[0]])


@register("window_of")
def window_of(out: OutputTensor[P, "m n"], x: InputTensor[P, "m n"]):
    """Views: the elements are stored into part of another tensor."""
    foreach(out, lambda i: P(0))
    parallel_for(out.dim(0), lambda r: foreach(out[r, 1:], lambda i: x[r, 1:][i]))


@register("counted")
def counted(out: OutputTensor[int32, "rows 16"], x: InputTensor[uint4, "rows n"]):
    """Storage of half bytes of a task's own: counts that wrap at 16."""

    def row(r):
        counts = stack[uint4](17)
        for k in range(x.dim(1)):
            at = x[r, k].cast(int32)
            counts[at] = (counts[at].cast(int32) + 1).cast(uint4)
        for k in range(16):
            out[r, k] = counts[k].cast(int32)

    parallel_for(x.dim(0), row)


@register("shared_table")
def shared_table(out: OutputTensor[int4, "n"]):
    """Storage of the host's code, filled by tasks and read by others."""
    table = stack[int4](1001)
    parallel_for(1001, lambda i: store(table, i, (i % 13 - 6).cast(int4)))
    foreach(out, lambda i: table[1000 - i[0]])


@register("carried")
def carried(out: OutputTensor[int4, "n"], x: InputTensor[int4, "n"]):
    """A variable of a storage type goes round a loop and through branches."""
    last = Int4(-1)
    for i in range(x.dim(0)):
        if x[i].cast(int32) > 2:
            last = x[i]
        out[i] = last if x[i].cast(int32) > -5 else Int4(0)


@register("in_place")
def in_place(out: OutputTensor[int4, "n"], x: MutableInputTensor[int4, "n"]):
    n = x.dim(0)
    parallel_for(n, lambda i: store(x, i, (x[i].cast(int32) * 3).cast(int4)))
    foreach(out, lambda i: x[n - 1 - i[0]])


@register("patterns")
def patterns(
    a: OutputTensor[uint8, "n"],
    b: OutputTensor[uint4, "n"],
    c: OutputTensor[int4, "n"],
    d: OutputTensor[float4_e2m1fn, "n"],
    e: OutputTensor[S, "n"],
    x: InputTensor[uint8, "n"],
):
    """Bits as other types, there and back."""

    def element(i):
        low = x[i].cast(uint4)
        signed = bitcast(low, int4)
        number = bitcast(signed, float4_e2m1fn)
        return bitcast(bitcast(x[i], float8_e5m2), uint8), bitcast(number, uint4), signed, number, bitcast(x[i], S)

    foreach((a, b, c, d, e), element)


@register("constants")
def constants(
    a: OutputTensor[float8_e4m3fn, "n"],
    b: OutputTensor[S, "n"],
    c: OutputTensor[float32, "n"],
    x: InputTensor[float32, "n"],
):
    """Numbers known now, and the same numbers computed when the kernel runs."""
    foreach(a, lambda i: select(x[i] > 0, Float8_e4m3fn(0.1), Float8_e4m3fn(-1000.0)))
    foreach(b, lambda i: 0.7 if x[i] > 0 else S(4))
    foreach(
        c,
        lambda i: (
            Float4_e2m1fn(2.6).cast(float32) + SIMD[float8_e5m2, 4](0.3)[2].cast(float32) + UInt4(15).cast(float32)
        ),
    )


@register("quantize")
def quantize(q: OutputTensor[int4, "m n"], scale: OutputTensor[float32, "m"], x: InputTensor[float32, "m n"]):
    """Symmetric quantisation of rows to 4 bits."""

    def row(r):
        top = x[r, 0].cast(float32) * 0
        for k in range(x.dim(1)):
            top = max(top, max(x[r, k], -x[r, k]))
        scale[r] = top / 7
        factor = 7 / top if top > 0 else top
        foreach(q[r, :], lambda k: max(min(round(x[r, :][k] * factor), 7), -8).cast(int4))

    parallel_for(x.dim(0), row)


@register("dequantize")
def dequantize(out: OutputTensor[float32, "m n"], q: InputTensor[P, "m n"], scale: InputTensor[float32, "m"]):
    foreach(out, lambda i: q[i].cast(float32) * scale[i[0]])


@register("saturate")
def saturate(a: OutputTensor[int4, "n"], b: OutputTensor[uint4, "n"], x: InputTensor[int32, "n"]):
    foreach((a, b), lambda i: (x[i].cast(int4, saturate=True), x[i].cast(uint4, saturate=True)))


@register("shown")
def shown(out: OutputTensor[int8, "n"], x: InputTensor[S, "n"]):
    for i in range(x.dim(0)):
        print(f"{i}: {x[i]}")
        out[i] = 0


@register("memory")
def memory(
    a: OutputTensor[S, "m 4"],
    b: OutputTensor[S, "m 4"],
    c: OutputTensor[S, "m 4"],
    d: OutputTensor[S, "n"],
    x: InputTensor[S, "n"],
):
    """Gathers, steps, masks and scatters."""
    for r in range(a.dim(0)):
        a.store(x.gather((iota(int32, 4) * 3 + r.cast(int32)) % x.dim(0).cast(int32)), r, 0)
        b.store(x.load(r, width=4, stride=2), r, 0)
        c.store(x.load(r, width=4, mask=iota(int32, 4) < 2, other=S(1)), r, 0)
    foreach(d, lambda i: S(1))
    d.scatter(x.load(0, width=4), iota(int32, 4) * 2 + 1)
    d.store(x.load(4, width=4), 8, mask=iota(int32, 4) != 1)
