"""Kernels with parameters to choose: some candidates crash, hang, fail or give other numbers."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import (
    SIMD,
    Floating,
    InputTensor,
    MutableInputTensor,
    OutputTensor,
    autotune,
    float32,
    foreach,
    parallel_for,
    register,
    stack,
    static_assert,
)

T = TypeVar("T", bound=Floating)


@autotune({"way": (0, 1, 2, 3, 4, 5, 6)}, limit=4)
@register("risky")
def risky(out: OutputTensor[float32, "n"], x: InputTensor[float32, "n"], *, way: int = 0) -> None:
    static_assert(way != 5, "five is refused")

    def one(index):
        i = index[0]
        value = x[i] + 1
        if way == 1:  # far behind a small piece of memory
            values = stack[float32](4)
            values[(i + 1) * 1000000000000] = value
            value = values[i * 1000000000000]
        elif way == 2:  # without an end
            k = 0
            while k >= 0:
                k = (k + 1) % 1000
            value += k.cast(float32)
        elif way == 3:
            value += 1
        elif way == 4:
            assert i < 2, "too far"
        return value

    foreach(out, one)


@autotune({"size": (1, 1 << 44)})
@register("repeated")
def repeated(out: OutputTensor[float32, "(n*size)"], x: InputTensor[float32, "n"], *, size: int = 1) -> None:
    foreach(out, lambda i: x[i[0] % x.dim(0)])


@autotune({"width": (1, 4, 8)}, key=("n", "s"), exact=False)
@register("row_sums")
def row_sums(
    out: OutputTensor[T, "m"], x: InputTensor[T, "m n"], shift: InputTensor[T, "*s"], *, width: int = 2
) -> None:
    def row(i):
        total = SIMD[T, width](0)
        for j in range(0, x.dim(1) - width + 1, width):
            total += x.load(i, j, width=width)
        out[i] = total.reduce_add()

    parallel_for(x.dim(0), row)


@autotune({"step": (2, 1)}, exact=False)
@register("bumped")
def bumped(x: MutableInputTensor[T, "n"], *, step: int) -> None:
    foreach(x, lambda i: x[i] + step // step)


@autotune({"width": (1, 3, 4, 8)}, key=("n",), exact=False)
@register("parts")
def parts(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"], *, width: int = 1) -> None:
    total = SIMD[float32, 1](0)
    for j in range(0, x.dim(0) - width + 1, width):
        for k in range(width):
            total += x[j + k]
    out[0] = total


@autotune({"width": (1, 8)}, exact=False)
@register("halved")
def halved(out: OutputTensor[float32, "1"], x: InputTensor[float32, "n"], *, width: int = 1) -> None:
    total = SIMD[float32, 1](0)
    for j in range(0, x.dim(0) - width + 1, width):
        for k in range(width):
            total += x[j + k]
    out[0] = total


@autotune({"way": (0, 1, 2)}, exact=False)
@register("summed")
def summed(out: OutputTensor[T, "1"], x: InputTensor[T, "n"], *, way: int = 0) -> None:
    """Sums one by one, in eight sums, or with an error of a hundredth."""
    if way == 1:
        sums = SIMD[T, 8](0)
        for i in range(0, x.dim(0) - 7, 8):
            sums += x.load(i, width=8)
        out[0] = sums.reduce_add()
    else:
        total = SIMD[T, 1](0)
        for i in range(x.dim(0)):
            total += x[i]
        if way == 2:
            total *= 1.01
        out[0] = total
