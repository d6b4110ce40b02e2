"""Cases of Fourier transforms, windows and complex numbers, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.graphs import FLOATS, numbers
from support.op_cases import T, case, plain_numbers

from einkorn.graph import DeviceRef, DType, ops

LENGTHS = [1, 2, 3, 4, 5, 6, 8, 16, 30, 49, 64, 120, 143, 256, 1000]
ROWS = [{"m": 3}, {"m": 1}, {"m": 0}]


def high(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    """Numbers whose transform is far from 0: a peak at the beginning, little elsewhere."""
    x = numbers(shape, np.float64, seed) / 300
    x[..., :1] += 4
    return x.astype(dtype)


COMPLEX = [np.complex64, np.complex128]


def complex_numbers(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    """Complex numbers of ordinary parts."""
    part = np.float32 if dtype == np.complex64 else np.float64
    return plain_numbers(shape, part, sizes, seed) + 1j * plain_numbers(shape, part, sizes, seed + 1).astype(dtype)


def complex_peaks(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    """Complex numbers whose transforms are far from 0: a peak at the beginning, little elsewhere."""
    z = numbers(shape, np.float64, seed) / 3000 + 1j * numbers(shape, np.float64, seed + 1) / 3000
    z[(..., *([0] * min(len(shape) - 1, 2)))] += 4 - 2j
    return z.astype(dtype)


def corner(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    """Numbers whose transforms along two axes are far from 0."""
    return complex_peaks(shape, np.complex128, sizes, seed).real.astype(dtype)


def peaks(axis: int) -> Any:
    """Pairs whose transforms along an axis are far from 0, real and imaginary parts alike."""

    def make(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
        x = numbers(shape, np.float64, seed) / 300
        index = [slice(None)] * len(shape)
        index[axis] = slice(0, 1)
        x[tuple(index)] += 4
        return x.astype(dtype)

    return make


def pairs(x: Any) -> Any:
    return x[..., 0].astype(np.float64) + 1j * x[..., 1].astype(np.float64)


def parts(z: Any, like: Any) -> Any:
    return np.stack([z.real, z.imag], -1).astype(like.dtype)


def transform(function: Any, **more: Any) -> Any:
    return lambda x: parts(function(pairs(x), **more), x)


def inverse_of_half(x: Any) -> Any:
    return np.fft.irfft(pairs(x), n=6).astype(x.dtype)


def product(x: Any, y: Any) -> Any:
    a, b, c, d = (p.astype(np.float64) for p in (x[..., 0], x[..., 1], y[..., 0], y[..., 1]))
    return np.stack([a * c - b * d, a * d + b * c], -1).astype(x.dtype)


CASES = [
    case("fft", transform(np.fft.fft), input_tensor=T("m", "n", 2, make=peaks(-2)), ulps=16,
         sizes=[{"m": 3, "n": 12}, {"m": 0, "n": 4}, *({"m": 2, "n": n} for n in LENGTHS)],
         dtypes=FLOATS),
    case("fft", transform(np.fft.fft, axis=0, norm="ortho"), input_tensor=T("n", "m", 2, make=peaks(0)), ulps=16,
         call=lambda input_tensor: ops.fft(input_tensor, axis=-2, normalization="ortho"), dtypes=[np.float32],
         sizes=[{"n": n, "m": 3} for n in (8, 1, 7, 60, 5000)]),
    case("ifft", transform(np.fft.ifft, n=5, norm="forward"), input_tensor=T("m", 12, 2, make=peaks(-2)), sizes=ROWS,
         call=lambda input_tensor: ops.ifft(input_tensor, 5, normalization="forward"), ulps=8,
         dtypes=[np.float32, np.float16]),
    case("rfft", lambda x: parts(np.fft.rfft(x.astype(np.float64)), x), input_tensor=T("m", 9, make=high),
         call=lambda input_tensor: ops.view_as_real(ops.rfft(input_tensor)), sizes=ROWS, ulps=16,
         dtypes=[np.float32, np.float64]),
    case("irfft", inverse_of_half, input_tensor=T("m", 4, 2, make=peaks(-2)), sizes=ROWS[:2], ulps=32,
         dtypes=[np.float32, np.float64]),
    *(
        case(name, lambda x, name=name: getattr(np.fft, name)(x, axes=(1, 2)), x=T("m", 5, 6, make=complex_peaks),
             sizes=ROWS[:2], dtypes=COMPLEX, ulps=ulps,
             call=lambda x, name=name: getattr(ops, name)(x, axes=(1, 2)))
        for name, ulps in (("fftn", 64), ("ifftn", 64), ("irfftn", 256))
    ),
    case("rfftn", lambda x: np.fft.rfftn(x, axes=(1, 2)), x=T(2, 5, 6, make=corner),
         call=lambda x: ops.rfftn(x, axes=[1, 2]), dtypes=[np.float32, np.float64], ulps=512),
    case("fft2", np.fft.fft2, x=T("m", 5, 6, make=complex_peaks), sizes=ROWS[:2], dtypes=COMPLEX, ulps=64),
    case("ifft2", np.fft.ifft2, x=T("m", 5, 6, make=complex_peaks), sizes=ROWS[:2], dtypes=COMPLEX, ulps=64),
    case("rfft2", np.fft.rfft2, x=T("m", 5, 6, make=corner), sizes=ROWS[:2], dtypes=[np.float32, np.float64], ulps=512),
    case("irfft2", np.fft.irfft2, x=T("m", 5, 6, make=complex_peaks), sizes=ROWS[:2], dtypes=COMPLEX, ulps=256),
    case("hfft", np.fft.hfft, x=T("m", 5, make=complex_peaks), sizes=ROWS, dtypes=COMPLEX, ulps=256),
    case("ihfft", np.fft.ihfft, x=T("m", 6, make=corner), sizes=ROWS, dtypes=[np.float32, np.float64], ulps=256),
    case("fftshift", np.fft.fftshift, x=T(3, 4), dtypes=[np.float32, np.int32, np.bool_]),
    case("ifftshift", np.fft.ifftshift, x=T(3, 4), dtypes=[np.float32, np.int32]),
    case("fftfreq", lambda: np.fft.fftfreq(8, 0.5).astype(np.float32), dtypes=[np.float32],
         call=lambda: ops.fftfreq(8, 0.5)),
    case("rfftfreq", lambda: np.fft.rfftfreq(8, 0.5).astype(np.float32), dtypes=[np.float32],
         call=lambda: ops.rfftfreq(8, 0.5)),
    case("hann_window", lambda: np.hanning(9)[:-1].astype(np.float32), dtypes=[np.float32], ulps=2,
         call=lambda: ops.hann_window(8, DeviceRef.CPU())),
    case("hann_window", lambda: [np.hanning(7), np.ones(1), np.zeros(0)], dtypes=[np.float32], ulps=16,
         call=lambda: [ops.hann_window(n, DeviceRef.CPU(), periodic=False, dtype=DType.float64) for n in (7, 1, 0)]),
    case("as_interleaved_complex", lambda x: x.reshape(*x.shape[:-1], 3, 2), x=T("m", 6), sizes=ROWS),
    case("real", np.real, x=T("m", 5, make=complex_numbers), sizes=ROWS, dtypes=COMPLEX),
    case("real", lambda x: x, x=T("m", 5), sizes=ROWS[:1], dtypes=[np.int32]),
    case("imag", np.imag, x=T("m", 5, make=complex_numbers), sizes=ROWS, dtypes=COMPLEX),
    case("conj", np.conj, x=T("m", 5, make=complex_numbers), sizes=ROWS, dtypes=COMPLEX),
    case("angle", np.angle, x=T("m", 5, make=complex_numbers), sizes=ROWS, dtypes=COMPLEX, ulps=2),
    case("abs", np.abs, x=T("m", 5, make=complex_numbers), sizes=ROWS, dtypes=COMPLEX, ulps=2),
    case("abs", np.abs, x=T("m", 5), sizes=ROWS[:1], dtypes=[np.int32, np.float32]),
    case("view_as_real", lambda x: np.stack([x.real, x.imag], -1), x=T("m", 5, make=complex_numbers), sizes=ROWS,
         dtypes=COMPLEX),
    case("view_as_complex", lambda x: x.astype(x.dtype if x.itemsize > 2 else np.float32).view(
        np.complex128 if x.dtype == np.float64 else np.complex64)[..., 0], x=T("m", 2, make=plain_numbers), sizes=ROWS),
    case("complex_of", lambda real, imag: (real + 1j * imag).astype(np.complex64), real=T("m", 3, make=plain_numbers),
         imag=T(3, make=plain_numbers), sizes=ROWS, dtypes=[np.float32]),
    case("complex.mul", product, lhs=T("m", 3, 2, make=plain_numbers), rhs=T(3, 2, make=plain_numbers), sizes=ROWS),
]  # fmt: skip
