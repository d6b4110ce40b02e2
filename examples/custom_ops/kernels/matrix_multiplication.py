"""Two algorithms behind one op, chosen by a parameter when it is compiled."""

from __future__ import annotations

from typing import TypeVar

from einkorn.dsl import SIMD, Floating, InputTensor, OutputTensor, fma, parallel_for, register, static_assert, unroll

T = TypeVar("T", bound=Floating)


def naive(out, a, b):
    """Each element of the product by itself: a row of `a` times a column of `b`."""
    rows, columns = out.shape

    def element(position):
        i, j = position // columns, position % columns
        out[i, j] = dot(a, b, i, j)

    parallel_for(rows * columns, element, grain=64)


def dot(a, b, i, j):
    total = 0.0
    for k in range(a.dim(1)):
        total = fma(a[i, k], b[k, j], total)
    return total


def tiled(out, a, b, rows, width):
    """Tiles of `rows` by `width` elements stay in registers while k runs: each value loaded serves a whole tile."""
    m, n = out.shape
    strips = m // rows
    inner = n - n % width

    def strip(number):
        i = number * rows
        for j in range(0, inner, width):
            tile = zeros(a.dtype, rows, width)
            for k in range(a.dim(1)):
                tile = add_outer_product(tile, a, i, k, b.load(k, j, width=width))
            for r in unroll(rows):
                out.store(tile[r], i + r, j)
        for j in range(inner, n):  # columns that fill no tile
            for r in unroll(rows):
                out[i + r, j] = dot(a, b, i + r, j)

    def last_row(number):
        for j in range(n):
            out[strips * rows + number, j] = dot(a, b, strips * rows + number, j)

    parallel_for(strips, strip)
    parallel_for(m - strips * rows, last_row)


def zeros(dtype, rows, width):
    tile = ()
    for _ in unroll(rows):
        tile = (*tile, SIMD[dtype, width](0.0))
    return tile


def add_outer_product(tile, a, i, k, line):
    result = ()
    for r in unroll(len(tile)):
        result = (*result, fma(SIMD[line.dtype, line.width](a[i + r, k]), line, tile[r]))
    return result


@register("matrix_multiplication")
def matrix_multiplication(
    out: OutputTensor[T, "m n"],
    a: InputTensor[T, "m k"],
    b: InputTensor[T, "k n"],
    *,
    algorithm: str = "tiled",
    rows: int = 6,
    width: int = 16,
) -> None:
    """The product of two matrices; `rows` and `width` are the size of a tile."""
    static_assert(algorithm == "naive" or algorithm == "tiled", "algorithm is 'naive' or 'tiled'")
    if algorithm == "naive":
        naive(out, a, b)
    else:
        tiled(out, a, b, rows, width)
