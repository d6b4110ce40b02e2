"""Takes complex numbers apart and makes them: parts, absolute values, and tensors of floats that hold both parts."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ... import dsl
from ...dsl import ComplexFloating, Index, InputTensor, OutputTensor, bool8, float32, float64, foreach, register, select
from ..algorithms.references import Array, plain

C = TypeVar("C", bound=ComplexFloating)
R = TypeVar("R", float32, float64)


@register("real")
def real(out: OutputTensor[R, "*s"], x: InputTensor[C, "*s"]) -> None:
    """The real parts."""
    foreach(out, lambda i: x[i].real)


real.reference(plain(np.real))


@register("imag")
def imag(out: OutputTensor[R, "*s"], x: InputTensor[C, "*s"]) -> None:
    """The imaginary parts."""
    foreach(out, lambda i: x[i].imag)


imag.reference(plain(np.imag))


@register("is_set")
def is_set(out: OutputTensor[bool8, "*s"], x: InputTensor[C, "*s"]) -> None:
    """Whether the numbers are not zero; NaN is not."""
    foreach(out, lambda i: x[i] != 0)


is_set.reference(plain(lambda x: x != 0))


@register("conj")
def conj(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"]) -> None:
    """The numbers with the opposite imaginary parts."""
    foreach(out, lambda i: x[i].conj())


conj.reference(plain(np.conj))


@register("modulus")
def modulus(out: OutputTensor[R, "*s"], x: InputTensor[C, "*s"]) -> None:
    """The absolute values."""
    foreach(out, lambda i: dsl.abs(x[i]))


modulus.reference(plain(np.abs))


@register("angle")
def angle(out: OutputTensor[R, "*s"], x: InputTensor[C, "*s"]) -> None:
    """The angles to the positive real numbers, from -pi to pi."""
    foreach(out, lambda i: dsl.atan2(x[i].imag, x[i].real))


angle.reference(plain(np.angle))


@register("complex_of")
def complex_of(out: OutputTensor[C, "*s"], re: InputTensor[R, "*s"], im: InputTensor[R, "*s"]) -> None:
    """The numbers of two parts."""
    foreach(out, lambda i: C(re[i], im[i]))


@complex_of.reference
def complex_of_reference(re: Array, im: Array):
    out = np.empty(re.shape, np.complex64 if re.dtype == np.float32 else np.complex128)
    out.real, out.imag = re, im
    return out


@register("as_real")
def as_real(out: OutputTensor[R, "*s 2"], x: InputTensor[C, "*s"]) -> None:
    """Both parts in a last axis."""

    def element(i: tuple[Index, ...]):
        z = x[i[:-1]]
        return select(i[-1] == 0, z.real, z.imag)

    foreach(out, element)


@as_real.reference
def as_real_reference(x: Array):
    return np.stack([x.real, x.imag], -1)


@register("as_complex")
def as_complex(out: OutputTensor[C, "*s"], x: InputTensor[R, "*s 2"]) -> None:
    """The numbers whose parts lie in a last axis."""
    foreach(out, lambda i: C(x[(*i, 0)], x[(*i, 1)]))


@as_complex.reference
def as_complex_reference(x: Array):
    return complex_of_reference(x[..., 0], x[..., 1])


@register("as_factor")
def as_factor(out: OutputTensor[R, "*b k 2 n 2"], x: InputTensor[C, "*b k n"]) -> None:
    """Each number as the real matrix (re, im; -im, re), by which pairs of parts are multiplied."""

    def element(i: tuple[Index, ...]):
        z = x[(*i[:-4], i[-4], i[-2])]
        crossed = select(i[-1] == 0, -z.imag, z.real)
        return select(i[-3] == 0, select(i[-1] == 0, z.real, z.imag), crossed)

    foreach(out, element)


@as_factor.reference
def as_factor_reference(x: Array):
    rows = np.stack([x.real, x.imag], -1), np.stack([-x.imag, x.real], -1)
    return np.stack(rows, -3)


@register("complex_prod")
def complex_prod(out: OutputTensor[C, "*a{axis} 1 *b"], x: InputTensor[C, "*a{axis} n *b"], *, axis: int) -> None:
    """The product along `axis`, 1 over no elements, multiplied in their order."""

    def element(i: tuple[Index, ...]):
        product = C(1)
        for k in range(x.dim(axis)):
            product = product * x[(*i[:axis], k, *i[axis + 1 :])]
        return product

    foreach(out, element)


complex_prod.reference(plain(lambda x, axis: np.prod(x, axis, keepdims=True)))
