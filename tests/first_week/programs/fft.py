"""A fast Fourier transform of a power of two: the kernel is one stage, and is called for each of them."""

import math

import numpy as np

from einkorn.dsl import InputTensor, OutputTensor, complex128, foreach, register


@register("butterflies")
def butterflies(out: OutputTensor[complex128, "n"], x: InputTensor[complex128, "n"], *, half: int):
    def element(i):
        k = i[0]
        position = k % half
        first = k - k % (2 * half) + position
        angle = -math.pi * position / half
        twiddle = complex(math.cos(angle), math.sin(angle))
        other = x[first + half] * twiddle
        if k % (2 * half) < half:
            return x[first] + other
        return x[first] - other

    foreach(out, element)


def fft(x):
    bits = len(x).bit_length() - 1
    order = [int(format(k, f"0{bits}b")[::-1], 2) for k in range(len(x))]
    x = x[order]
    for stage in range(bits):
        x = butterflies(x, half=2**stage)
    return x


def main():
    rng = np.random.default_rng(0)
    x = rng.normal(size=64) + 1j * rng.normal(size=64)
    yield fft(x), np.fft.fft(x)
