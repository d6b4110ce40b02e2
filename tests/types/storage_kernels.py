"""Kernels over storage types: casts between all pairs of types."""

from typing import TypeVar

from einkorn.dsl import (
    InputTensor,
    OutputTensor,
    Storable,
    bfloat16,
    bool8,
    float4_e2m1fn,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    foreach,
    int4,
    int8,
    int16,
    int32,
    int64,
    register,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)

S = TypeVar("S", bound=Storable)
U = TypeVar("U", bound=Storable)


@register("to_storage")
def to_storage(
    a: OutputTensor[int4, "n"],
    b: OutputTensor[uint4, "n"],
    c: OutputTensor[float4_e2m1fn, "n"],
    d: OutputTensor[float6_e2m3fn, "n"],
    e: OutputTensor[float6_e3m2fn, "n"],
    f: OutputTensor[float8_e4m3fn, "n"],
    g: OutputTensor[float8_e4m3fnuz, "n"],
    h: OutputTensor[float8_e5m2, "n"],
    i: OutputTensor[float8_e5m2fnuz, "n"],
    j: OutputTensor[float8_e8m0fnu, "n"],
    x: InputTensor[S, "n"],
):
    """x in every storage type."""

    def casts(index):
        v = x[index]
        small = (v.cast(int4), v.cast(uint4), v.cast(float4_e2m1fn), v.cast(float6_e2m3fn), v.cast(float6_e3m2fn))
        fn = (v.cast(float8_e4m3fn), v.cast(float8_e4m3fnuz))
        return (*small, *fn, v.cast(float8_e5m2), v.cast(float8_e5m2fnuz), v.cast(float8_e8m0fnu))

    foreach((a, b, c, d, e, f, g, h, i, j), casts)


@register("from_storage")
def from_storage(
    a: OutputTensor[bool8, "n"],
    b: OutputTensor[int8, "n"],
    c: OutputTensor[int16, "n"],
    d: OutputTensor[int32, "n"],
    e: OutputTensor[int64, "n"],
    f: OutputTensor[uint8, "n"],
    g: OutputTensor[uint16, "n"],
    h: OutputTensor[uint32, "n"],
    i: OutputTensor[uint64, "n"],
    j: OutputTensor[float16, "n"],
    k: OutputTensor[bfloat16, "n"],
    m: OutputTensor[float32, "n"],
    o: OutputTensor[float64, "n"],
    x: InputTensor[S, "n"],
):
    """x in every type that computes."""

    def casts(index):
        v = x[index]
        signed = (v.cast(int8), v.cast(int16), v.cast(int32), v.cast(int64))
        unsigned = (v.cast(uint8), v.cast(uint16), v.cast(uint32), v.cast(uint64))
        return (v.cast(bool8), *signed, *unsigned, v.cast(float16), v.cast(bfloat16), v.cast(float32), v.cast(float64))

    foreach((a, b, c, d, e, f, g, h, i, j, k, m, o), casts)


@register("cast")
def cast(out: OutputTensor[U, "n"], x: InputTensor[S, "n"]):
    foreach(out, lambda i: x[i].cast(U))


@register("turned")
def turned(out: OutputTensor[S, "n m"], x: InputTensor[S, "m n"]):
    foreach(out, lambda i: x[i[1], i[0]])
