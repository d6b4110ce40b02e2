"""Computes Fourier transforms of lengths with large prime factors, or of lengths that are known at run time only.

With j k = (j**2 + k**2 - (k - j)**2) / 2 a transform becomes a convolution with the chirp exp(i pi k**2 / n), which is
computed by transforms of a power of two (Bluestein, "A linear filtering approach to the computation of the discrete
Fourier transform", 1970). The squares are exact integers modulo 2 n, so that errors do not grow with n.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Int,
    OutputTensor,
    Pointer,
    ceildiv,
    cos,
    float32,
    float64,
    foreach,
    parallel_for,
    register,
    select,
    sin,
    stack,
)
from ..algorithms.rows import TASK
from .signal import NEARBY, TURN, Roots, load_row, scale_of, smallest_factor, stages, store_row, turned

C = TypeVar("C", float32, float64)

MIN_CHIRP_FACTORS = 40  # the sum of prime factors above 5 from which on a convolution is cheaper than their sums
POWERS_OF_2 = 3  # the factors 4 and 2, as bits (see `signal.fft`)


@register("chirp")
def chirp(out: OutputTensor[C, "2 n"]) -> None:
    """exp(-i pi k**2 / n): real parts, then imaginary ones."""

    def element(i: tuple[Index, ...]):
        n = Int(out.dim(1))
        k = Int(i[1])
        angle = (k * k % (2 * n)).cast(float64) * (TURN / 2 / n.cast(float64))
        return (cos(angle) if i[0] == 0 else -sin(angle)).cast(C)

    foreach(out, element)


@register("chirp_roots")
def chirp_roots(out: OutputTensor[C, "2 l"], chirp: InputTensor[C, "2 n"]) -> None:
    """The roots of unity for the length that is transformed: as many real parts, then imaginary ones, then nothing."""
    length = transformed_length(chirp.dim(1))

    def element(i: tuple[Index, ...]):
        at = Int(i[0]) * out.dim(1) + i[1]
        k = select(at < length, at, at - length)
        angle = k.cast(float64) * (TURN / length.cast(float64))
        return select(at < length, cos(angle), -sin(angle)).cast(C)

    foreach(out, element)


@register("chirp_spectrum")
def chirp_spectrum(
    out: OutputTensor[C, "2 l"],
    work: OutputTensor[C, "2 l"],
    chirp: InputTensor[C, "2 n"],
    roots: InputTensor[C, "2 l"],
) -> None:
    """The transform of the conjugate chirp, which goes on before 0, divided by its length; none for small factors."""
    n: Any = Int(chirp.dim(1))
    length = transformed_length(n)
    part = (1 / length.cast(float64)).cast(C)

    def whole(_: Index):
        first = out.pointer(0, 0), out.pointer(0, 0) + length
        second = work.pointer(0, 0), work.pointer(0, 0) + length
        re, im = first
        for k in range(length):
            re[k] = C(0)
            im[k] = C(0)
        for k in range(n):
            re[k] = chirp[0, k] * part
            im[k] = -chirp[1, k] * part
        for k in range(1, n):
            re[length - k] = re[k]
            im[length - k] = im[k]
        real, imaginary = stages(first, second, Roots(roots.pointer(0, 0), length), POWERS_OF_2)
        for k in range(length):
            re[k] = real[k]
            im[k] = imaginary[k]

    parallel_for(select(length == n, 0, 1), whole)


@register("fft_of_any_length")
def fft_of_any_length(
    out: OutputTensor[C, "m k d"],
    work: OutputTensor[C, "w"],
    x: InputTensor[C, "m j c"],
    chirp: InputTensor[C, "2 n"],
    roots: InputTensor[C, "2 l"],
    spectrum: InputTensor[C, "2 l"],
    ctx: DeviceContext,
    *,
    inverse: bool,
    hermitian: bool,
    scaling: str,
    nearby: bool,
    known: bool,
) -> None:
    """The Fourier transform of each row, of as many elements as the chirp has; arguments as of `fft`.

    `work` has 4 l numbers a row, or nothing where l is up to 4096 and rows are transformed `nearby`. With `known` the
    length is one with large factors.
    """
    n: Any = Int(chirp.dim(1))
    length = transformed_length(n)
    space = Int(roots.dim(1))
    scale = scale_of(scaling, n).cast(C)

    def transformed(row: Index, memory: Pointer[Floating]):
        first, second = (memory, memory + length), (memory + 2 * length, memory + 3 * length)
        load_row(x, row, first, n, inverse, hermitian)
        if known or length != n:
            result = _convolved(first, second, chirp, roots, spectrum, n, length)
            store_row(out, row, result, n, x.dim(2) == 1, inverse, hermitian, scale)
        else:
            result = stages(first, second, Roots(roots.pointer(0, 0), n), 31)
            store_row(out, row, result, n, x.dim(2) == 1, inverse, hermitian, scale)

    def row_of(row: Index):
        if nearby:
            transformed(row, stack[C](4 * NEARBY, zeroed=False).pointer(0))
        else:
            transformed(row, work.pointer(4 * space * row))

    parallel_for(x.dim(0), row_of, grain=ceildiv(TASK, 16 * length + 16))


def _convolved(
    first: tuple[Pointer[Floating], ...],
    second: tuple[Pointer[Floating], ...],
    chirp: AnyTensor,
    roots: AnyTensor,
    spectrum: AnyTensor,
    n: Index,
    length: Index,
) -> Any:
    """The transform of n elements in `first`; all of it lies in `first` at the end."""
    re, im = first
    table, wave, filtered = roots.pointer(0, 0), chirp.pointer(0, 0), spectrum.pointer(0, 0)
    for k in range(n):
        a, b = turned(re[k], im[k], wave[k], wave[n + k])
        re[k] = a
        im[k] = b
    for k in range(n, length):
        re[k] = chirp.dtype(0)
        im[k] = chirp.dtype(0)
    real, imaginary = stages(first, second, Roots(table, length), POWERS_OF_2)
    for k in range(length):
        a, b = turned(real[k], imaginary[k], filtered[k], filtered[length + k])
        re[k] = b  # exchanged, for the inverse
        im[k] = a
    imaginary, real = stages(first, second, Roots(table, length), POWERS_OF_2)
    for k in range(n):
        a, b = turned(real[k], imaginary[k], wave[k], wave[n + k])
        re[k] = a
        im[k] = b
    return re, im


def transformed_length(n: Index) -> Any:
    """n itself if its prime factors are small, else the first power of two that holds the convolution: below 4 n."""
    rest, total = Int(n), Int(0)
    while rest % 2 == 0 and rest > 1:
        rest = rest // 2
    while rest % 3 == 0 and rest > 1:
        rest = rest // 3
    while rest % 5 == 0 and rest > 1:
        rest = rest // 5
    while rest > 1 and total < MIN_CHIRP_FACTORS:
        factor = smallest_factor(rest)
        total = total + factor
        rest = rest // factor
    length = Int(n)
    if total >= MIN_CHIRP_FACTORS:
        length = Int(1)
        while length < 2 * n - 1:
            length = length * 2
    return length
