"""Lets the sizes of a tile be chosen by trying: a product of matrices, tuned on its first call."""

from __future__ import annotations

import time
from typing import TypeVar

import numpy as np

from einkorn.dsl import SIMD, Floating, InputTensor, OutputTensor, autotune, fma, parallel_for, register, unroll

T = TypeVar("T", bound=Floating)


@autotune({"rows": (4, 6, 8), "width": (8, 16, 32)}, key=("n",))
@register("product")
def product(
    out: OutputTensor[T, "m n"], a: InputTensor[T, "m k"], b: InputTensor[T, "k n"], *, rows: int = 2, width: int = 4
) -> None:
    """The product of two matrices. Tiles of `rows` by `width` elements stay in registers while k runs."""
    m, n = out.shape
    strips, inner = m // rows, n - n % width

    def rest_of_row(i, first):
        for j in range(first, n):
            total = a[i, 0] * 0
            for k in range(a.dim(1)):
                total = fma(a[i, k], b[k, j], total)
            out[i, j] = total

    def strip(number):
        i = number * rows
        for j in range(0, inner, width):
            tile = ()
            for _ in unroll(rows):
                tile = (*tile, SIMD[T, width](0))
            for k in range(a.dim(1)):
                row = b.load(k, j, width=width)
                new = ()
                for r in unroll(rows):
                    new = (*new, fma(SIMD[T, width](a[i + r, k]), row, tile[r]))
                tile = new
            for r in unroll(rows):
                out.store(tile[r], i + r, j)
        for r in unroll(rows):
            rest_of_row(i + r, inner)

    def last_row(number):
        rest_of_row(strips * rows + number, 0)

    parallel_for(strips, strip)
    parallel_for(m - strips * rows, last_row)


def milliseconds(a: np.ndarray, b: np.ndarray, **parameters: int) -> float:
    """The median time of a call."""
    times = []
    for _ in range(9):
        start = time.perf_counter()
        product(a, b, **parameters)
        times.append(time.perf_counter() - start)
    return float(np.median(times)) * 1e3


if __name__ == "__main__":
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 256, 256)).astype(np.float32)
    start = time.perf_counter()
    result = product(a, b)  # tries nine sizes of tiles in another process; later calls find what was best
    print(f"the first call took {time.perf_counter() - start:.1f} s")
    assert np.abs(result - a @ b).max() < 1e-3
    print("matches NumPy")
    print(f"default: {milliseconds(a, b, rows=2, width=4):.2f} ms, tuned: {milliseconds(a, b):.2f} ms")
