"""Kernels in which integers of two types are combined, without a cast."""

import math
from typing import TypeVar

from einkorn.dsl import (
    Floating,
    InputTensor,
    Int,
    Int32,
    Integral,
    OutputTensor,
    bool8,
    clamp,
    float32,
    foreach,
    int16,
    int32,
    int64,
    max,
    parallel_for,
    register,
    rotl,
    select,
    sin,
    stack,
    struct,
)

A = TypeVar("A", bound=Integral)
B = TypeVar("B", bound=Integral)


@register("compared")
def compared(out: OutputTensor[bool8, "6 n"], a: InputTensor[A, "n"], b: InputTensor[B, "n"]):
    for i in range(a.dim(0)):
        out[0, i] = a[i] < b[i]
        out[1, i] = a[i] <= b[i]
        out[2, i] = a[i] > b[i]
        out[3, i] = a[i] >= b[i]
        out[4, i] = a[i] == b[i]
        out[5, i] = a[i] != b[i]


@register("compared_lanes")
def compared_lanes(out: OutputTensor[bool8, "2 8"], a: InputTensor[A, "8"], b: InputTensor[B, "8"]):
    left, right = a.load(0, width=8), b.load(0, width=8)
    out.store(left < right, 0, 0)
    out.store(left >= b[0], 1, 0)


@register("computed")
def computed(out: OutputTensor[int64, "9 n"], a: InputTensor[A, "n"], b: InputTensor[B, "n"]):
    for i in range(a.dim(0)):
        out[0, i] = a[i] + b[i]
        out[1, i] = a[i] - b[i]
        out[2, i] = a[i] * b[i]
        out[3, i] = a[i] // b[i]
        out[4, i] = a[i] % b[i]
        out[5, i] = max(a[i], b[i])
        out[6, i] = clamp(a[i], 0, b[i])
        out[7, i] = a[i] if i % 2 == 0 else b[i]
        out[8, i] = select(a[i] > b[i], a[i], b[i]) ^ b[i]


@register("shifted")
def shifted(
    left: OutputTensor[A, "n"],
    right: OutputTensor[A, "n"],
    turned: OutputTensor[A, "n"],
    a: InputTensor[A, "n"],
    b: InputTensor[B, "n"],
):
    for i in range(a.dim(0)):
        left[i] = a[i] << b[i]
        right[i] = a[i] >> b[i]
        turned[i] = rotl(a[i], b[i])


@register("indexed")
def indexed(out: OutputTensor[float32, "n"], x: InputTensor[float32, "m"], at: InputTensor[A, "n"]):
    """Indices, bounds, positions, offsets and arguments of a narrower type."""

    def element(values, k: Int):
        return values[k]

    pointer = x.pointer()
    for i in range(at.dim(0)):
        total = x[at[i]] + x.at(at[i]) + pointer[at[i]] + element(x, at[i])
        for k in range(at[i]):
            total += x[k]
        for k in range(0, at[i], 2):
            total += x[k]
        out[i] = total


@register("parallel")
def parallel(out: OutputTensor[float32, "m"], x: InputTensor[float32, "m"], count: Int32):
    parallel_for(count, lambda k: out.store(x[k] * 2, k))
    for k in range(count, x.dim(0)):
        out[k] = 0.0


@register("assigned")
def assigned(out: OutputTensor[int64, "7"], a: InputTensor[int32, "n"], b: InputTensor[int64, "n"]):
    """Variables keep their type, and take narrower integers."""
    k = b[0]
    k = a[0]
    out[0] = k + 2147483647
    m = b[0]
    for i in range(a.dim(0)):
        m = max(a[i], 5)
    out[1] = m
    if a[0] > 3:  # noqa: SIM108
        n = a[1]
    else:
        n = b[1]
    out[2] = n
    p = b[2]
    p += a[2]
    out[3] = p
    storage = stack[int64](2)
    storage[0] = a[3]
    storage[1] = 7
    out[4] = storage[0]
    out[5] = b[0] if a[0] == b[0] else a[0]
    best = 0
    for i in range(a.dim(0)):
        best = max(best, a[i])
        if best > b[i]:
            best = best - 1
    out[6] = best


@register("lanes")
def lanes(out: OutputTensor[int64, "8"], a: InputTensor[int16, "8"], b: InputTensor[int64, "8"]):
    v = a.load(0, width=8) * b.load(0, width=8) + a[0]
    out.store(a.load(0, width=8), 0)
    out.store(v, 0)


@struct
class Range:
    low: Int
    high: Int

    def size(self):
        return self.high - self.low


@register("fields")
def fields(out: OutputTensor[int64, "2"], a: InputTensor[int32, "2"]):
    span = Range(a[0], a[1])
    out[0] = span.size()
    span.high = a[0]
    out[1] = span.size()


@register("guarded")
def guarded(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], at: InputTensor[int32, "n"]):
    """A comparison of a narrow index proves its accesses."""

    def element(i):
        k = at[i]
        return x[k] if 0 <= k < x.dim(0) else -1.0

    foreach(out, element)


F = TypeVar("F", bound=Floating)


@register("numbers")
def numbers(out: OutputTensor[F, "4 n"], x: InputTensor[F, "n"]):
    """Python's numbers take the type of any floats: rounded to the nearest one."""
    half = math.pi / 2
    for i in range(x.dim(0)):
        out[0, i] = x[i] * 1001 + 257
        out[1, i] = x[i] + math.pi / 2
        out[2, i] = sin(x[i] * half)
        out[3, i] = max(x[i], 2049) - 4099
