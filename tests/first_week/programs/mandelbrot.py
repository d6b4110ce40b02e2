"""Counts the steps after which points of the plane escape."""

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, complex128, foreach, int64, register


@register("mandelbrot")
def mandelbrot(out: OutputTensor[int64, "h w"], c: InputTensor[complex128, "h w"], *, limit: int = 50):
    def escape(i):
        z = 0j
        for k in range(limit):
            if abs(z) > 2:
                return k
            z = z * z + c[i]
        return limit

    foreach(out, escape)


def reference(c, limit=50):
    z = 0j
    for k in range(limit):
        if abs(z) > 2:
            return k
        z = z * z + c
    return limit


def main():
    y, x = np.mgrid[-1.2:1.2:25j, -2.1:0.7:33j]
    c = x + 1j * y
    yield mandelbrot(c), np.vectorize(reference)(c)
