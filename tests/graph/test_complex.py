"""Complex tensors in graphs and as eager tensors, against NumPy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, TensorValue, ops
from einkorn.graph.weights import load_weights

HOST = DeviceRef.CPU()
TYPES = pytest.mark.parametrize("dtype", [np.complex64, np.complex128], ids=lambda d: d.__name__)
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]


def numbers(*shape: int, dtype: Any = np.complex64, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed + sum(shape))
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def run(forward: Callable[..., Any], *arrays: Any) -> Any:
    types = [TensorType(DType.from_numpy(a.dtype), a.shape, HOST) for a in arrays]
    return InferenceSession().load(Graph("complex", forward, types))(*arrays)[0].to_numpy()


ONE: tuple[tuple[int, ...], ...] = ((5, 7),)
TWO: tuple[tuple[int, ...], ...] = ((5, 7), (5, 7))

ELEMENTWISE: dict[str, Case] = {
    "arithmetic": (lambda a, b: (a + b * 2j - 1) / (a - b), lambda a, b: (a + b * 2j - 1) / (a - b), TWO),
    "broadcast": (lambda a, b: a * b, lambda a, b: a * b, ((5, 7), (7,))),
    "powers": (lambda a, b: a**2 + a**b, lambda a, b: a**2 + a**b, TWO),
    "negate": (lambda a: -a, lambda a: -a, ONE),
    "abs": (lambda a: abs(a) + 1, lambda a: abs(a) + 1, ONE),
    "equal": (lambda a, b: (a == b) | (a != b), lambda a, b: (a == b) | (a != b), TWO),
    "parts": (lambda a: ops.real(a) - ops.imag(a), lambda a: a.real - a.imag, ONE),
    "conj": (lambda a: ops.conj(a) * a, lambda a: a.conj() * a, ONE),
    "angle": (ops.angle, np.angle, ONE),
    "pairs": (lambda a: ops.view_as_complex(ops.view_as_real(a) * 2), lambda a: a * 2, ONE),
    "complex_of": (lambda a: ops.complex_of(ops.real(a), 2.0), lambda a: a.real + 2j, ONE),
    "predicates": (lambda a: ops.is_nan(a) | ops.is_inf(a) | ops.is_finite(a), np.isfinite, ONE),
    "where": (lambda a, b: ops.where(abs(a) > 1, a, b), lambda a, b: np.where(abs(a) > 1, a, b), TWO),
    "square": (lambda a: ops.square(a) + ops.reciprocal(a), lambda a: a * a + 1 / a, ONE),
}
ELEMENTWISE |= {
    name: (getattr(ops, name), getattr(np, name), ONE)
    for name in ["exp", "log", "log2", "log10", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh"]
}
ELEMENTWISE |= {
    name: (getattr(ops, name), getattr(np, name.replace("a", "arc", 1) if name[0] == "a" else name), ONE)
    for name in ["acos", "asin", "atan", "acosh", "asinh", "atanh", "expm1", "log1p"]
}
MOVED: dict[str, Case] = {
    "permute": (lambda a: a.T, lambda a: a.T, ONE),
    "concat": (lambda a, b: ops.concat([a, b], 0), lambda a, b: np.concatenate([a, b]), TWO),
    "slices": (lambda a: a[1:, ::2], lambda a: a[1:, ::2], ONE),
    "gather": (lambda a: ops.gather(a, ops.constant(np.array([2, 0])), 0), lambda a: a[[2, 0]], ONE),
    "pad": (lambda a: ops.pad(a, [1, 1, 0, 2]), lambda a: np.pad(a, ((1, 1), (0, 2))), ONE),
    "constant": (lambda a: a + ops.constant([1j] * 7, a.dtype), lambda a: a + 1j, ONE),
    "full": (lambda a: a * ops.full([5, 7], 2j, a.dtype), lambda a: a * 2j, ONE),
}
REDUCED: dict[str, Case] = {
    f"{name}_{axis}": (
        lambda a, name=name, axis=axis: getattr(ops, name)(a, axis, False),
        lambda a, name=name, axis=axis: getattr(np, name)(a, axis),
        ((3, 4, 5),),
    )
    for name in ("sum", "mean", "prod")
    for axis in (0, -1, (0, 2), None)
}
REDUCED["cumsum"] = (lambda a: ops.cumsum(a, 1), lambda a: np.cumsum(a, 1), ONE)
PRODUCTS: dict[str, Case] = {
    name: (lambda a, b: a @ b, lambda a, b: a @ b, shapes)
    for name, shapes in {
        "matrices": ((33, 40), (40, 21)),
        "row": ((40,), (40, 21)),
        "column": ((5, 40), (40,)),
        "batch": ((3, 9, 8), (8, 4)),
        "batches": ((3, 9, 8), (3, 8, 4)),
        "empty": ((3, 0), (0, 4)),
        "one": ((1, 1), (1, 1)),
    }.items()
}
PRODUCTS["fused"] = (
    lambda a, b: (ops.conj(a) + 1) @ (b * 2j).T + 1j,
    lambda a, b: (a.conj() + 1) @ (b * 2j).T + 1j,
    ((6, 40), (7, 40)),
)
TRANSFORMS: dict[str, Case] = {
    "fft": (ops.fft, np.fft.fft, ((4, 64),)),
    "fft of 63": (lambda a: ops.fft(a, axis=0), lambda a: np.fft.fft(a, axis=0), ((63, 3),)),
    "ifft": (lambda a: ops.ifft(a, 30), lambda a: np.fft.ifft(a, 30), ((4, 20),)),
    "irfft": (ops.irfft, np.fft.irfft, ((4, 33),)),
    "rfft": (lambda a: ops.rfft(ops.real(a)), lambda a: np.fft.rfft(a.real), ((2, 20),)),
    "there and back": (lambda a: ops.ifft(ops.fft(a) * 2), lambda a: a * 2, ((3, 49),)),
}


def hermitian(a: Any) -> Any:
    """A positive definite matrix that depends on `a`."""
    turned = a.T
    product = a @ (ops.conj(turned) if isinstance(a, TensorValue) else turned.conj())
    return product + np.eye(6, dtype=np.complex64) * 6


def of_eigh(a: Any) -> Any:
    values, vectors = ops.eigh(hermitian(a))
    return ops.concat([vectors * ops.cast(values, a.dtype) @ ops.conj(vectors.T), ops.cast(values, a.dtype)[None]], 0)


def of_svd(a: Any) -> Any:
    left, sizes, right = ops.svd(a)
    return ops.concat([left * ops.cast(sizes, a.dtype) @ right, ops.cast(sizes, a.dtype)[:, None]], -1)


def of_qr(a: Any, complete: bool) -> Any:
    q, r = ops.qr(a, complete)
    return ops.concat([q @ r, ops.conj(q.T) @ q], -1)


SQUARE = ((6, 6),)
FACTORS: dict[str, Case] = {
    "solve": (ops.solve, np.linalg.solve, ((2, 6, 6), (6, 3))),
    "det": (ops.det, np.linalg.det, ((3, 6, 6),)),
    "sign": (lambda a: ops.slogdet(a)[0], lambda a: np.linalg.slogdet(a)[0], SQUARE),
    "slogdet": (lambda a: ops.slogdet(a)[1], lambda a: np.linalg.slogdet(a)[1], SQUARE),
    "cholesky": (lambda a: ops.cholesky(hermitian(a)), lambda a: np.linalg.cholesky(hermitian(a)), SQUARE),
    "upper": (
        lambda a: ops.cholesky(hermitian(a), upper=True),
        lambda a: np.linalg.cholesky(hermitian(a)).T.conj(),
        SQUARE,
    ),
    "eigh": (of_eigh, lambda a: np.vstack([hermitian(a), np.linalg.eigvalsh(hermitian(a))]), SQUARE),
    "svd": (of_svd, lambda a: np.hstack([a, np.linalg.svd(a)[1][:, None]]), ((4, 7),)),
    "qr": (lambda a: of_qr(a, True), lambda a: np.hstack([a, np.eye(7)]).astype(a.dtype), ((7, 3),)),
    "qr of a wide matrix": (lambda a: of_qr(a, False), lambda a: np.hstack([a, np.eye(4)]).astype(a.dtype), ((4, 6),)),
}
SETS: dict[str, Case] = {
    name: (
        lambda a, name=name: getattr(ops, name)(a * ops.cast(ops.real(a) > 0, a.dtype), 1, False),
        lambda a, name=name: getattr(np, name)(a * (a.real > 0), 1),
        ONE,
    )
    for name in ("any", "all", "count_nonzero")
}
SETS["nonzero"] = (
    lambda a: ops.nonzero(a * ops.cast(ops.real(a) > 0, a.dtype), "found"),
    lambda a: np.argwhere(a * (a.real > 0)),
    ONE,
)
ALL = FACTORS | SETS | ELEMENTWISE | MOVED | REDUCED | PRODUCTS | TRANSFORMS


@TYPES
@pytest.mark.parametrize("name", ALL)
def test_ops(name: str, dtype: Any) -> None:
    forward, reference, shapes = ALL[name]
    arrays = [numbers(*shape, dtype=dtype, seed=k) for k, shape in enumerate(shapes)]
    got, wanted = run(forward, *arrays), np.asarray(reference(*arrays))
    assert got.shape == wanted.shape
    assert got.dtype.kind == wanted.dtype.kind and got.dtype.itemsize <= wanted.dtype.itemsize
    tolerance = 1e-4 if dtype is np.complex64 else 1e-11
    assert np.allclose(got, wanted, rtol=tolerance, atol=tolerance)


SPECIAL = [complex(a, b) for a in (0.0, -0.0, 1.5, -np.inf, np.inf, np.nan) for b in (0.0, -0.0, 2.0, np.inf, np.nan)]


@TYPES
@pytest.mark.parametrize("name", ["acos", "asin", "atan", "acosh", "asinh", "sinh", "cosh", "tanh"])
def test_infinite_numbers(name: str, dtype: Any) -> None:
    """What is infinite, zero or NaN is so in NumPy, too; signs where C99 says one."""
    z = np.array(SPECIAL, dtype)
    with np.errstate(all="ignore"):
        wanted = getattr(np, name.replace("a", "arc", 1) if name[0] == "a" else name)(z)
    got = run(getattr(ops, name), z)
    for part in (np.real, np.imag):
        a, b = np.abs(part(got)), np.abs(part(wanted))
        assert np.allclose(a, b, rtol=1e-6, equal_nan=True), list(zip(z, got, wanted, strict=True))


def test_reals_are_promoted() -> None:
    z = numbers(4)
    for x in (np.arange(4, dtype=np.float32), np.arange(4), np.array([True, False, True, True])):
        got = run(lambda a, b: a * b + b, z, x)
        assert got.dtype == np.complex64 and np.allclose(got, z * x + x)
    got = run(lambda a, b: a * b, z, np.arange(4.0))
    assert got.dtype == np.complex128 and np.array_equal(got, z * np.arange(4.0))
    got = run(lambda a: a + np.arange(4) * 1j, z)
    assert np.allclose(got, z + np.arange(4) * 1j)
    got = run(lambda a: ops.cast(a, DType.complex128) * 1j, np.arange(4))
    assert got.dtype == np.complex128 and np.array_equal(got, np.arange(4) * 1j)


MISTAKES: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "an order": ("EK0413", "has to be numeric, and is complex64", lambda z, x: z < z),
    "a maximum": ("EK0413", "has to be numeric, and is complex64", lambda z, x: ops.max(z)),
    "a sorted one": ("EK0413", "is complex64", lambda z, x: ops.argsort(z)),
    "whole numbers": ("EK0413", "has to be floating-point, and is complex64", lambda z, x: ops.floor(z)),
    "a cast to floats": ("EK0413", "would drop their imaginary parts", lambda z, x: ops.cast(z, DType.float32)),
    "a number for floats": ("EK0412", "1j is complex and cannot become float32", lambda z, x: x + 1j),
    "an array for floats": ("EK0412", "an array of complex128", lambda z, x: x + np.array([1j])),
    "an angle of floats": ("EK0413", "has to be complex", lambda z, x: ops.angle(x)),
    "pairs of three": ("EK0421", "has to hold pairs", lambda z, x: ops.view_as_complex(x)),
    "bits": ("EK0413", "the bits of complex64", lambda z, x: ops.bitcast(z, DType.int64)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    code, text, forward = MISTAKES[name]
    types = [TensorType(DType.complex64, [3], HOST), TensorType(DType.float32, [3], HOST)]
    with pytest.raises(EinkornError, match=text) as caught:
        Graph("mistaken", forward, types)
    assert caught.value.code == code


@pytest.mark.parametrize("n", [41, 997, 2 * 1009])
def test_lengths_of_large_primes(n: int) -> None:
    z = numbers(3, n, dtype=np.complex128)
    wanted = np.fft.fft(z), np.fft.ifft(z), np.fft.rfft(z.real), np.fft.irfft(z, n)
    transforms = (ops.fft, ops.ifft, lambda a: ops.rfft(ops.real(a)), lambda a: ops.irfft(a, n))
    for transform, expected in zip(transforms, wanted, strict=True):
        got = run(transform, z)
        assert np.linalg.norm(got - expected) < 3e-15 * np.linalg.norm(expected)


def test_a_convolution_by_transforms() -> None:
    """Written as a newcomer writes it, with sizes that are known at the call only."""
    types = [TensorType(DType.float32, [name], HOST) for name in ("n", "k")]
    graph = Graph("convolved", lambda x, y: ops.irfftn(ops.rfftn(x, [64]) * ops.rfftn(y, [64]), [64]), types)
    x, y = numbers(40).real, numbers(9).real
    assert np.allclose(InferenceSession().load(graph)(x, y)[0].to_numpy()[:48], np.convolve(x, y), atol=1e-4)


SPECTRA: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "lengths": (lambda z: ops.fftn(z, [3, 8]), lambda z: np.fft.fftn(z, [3, 8], axes=[-2, -1])),
    "ortho": (lambda z: ops.ifftn(z, axes=[0, 2], norm="ortho"), lambda z: np.fft.ifftn(z, axes=[0, 2], norm="ortho")),
    "an axis": (lambda z: ops.fftn(z, axes=1, norm="forward"), lambda z: np.fft.fft(z, axis=1, norm="forward")),
    "of reals": (lambda z: ops.fft2(ops.real(z)), lambda z: np.fft.fft2(z.real)),
    "of halves": (lambda z: ops.irfft2(ops.real(z), [5, 7]), lambda z: np.fft.irfft2(z.real, [5, 7])),
    "rfftn": (lambda z: ops.rfftn(ops.imag(z), [4, 9], [2, 0]), lambda z: np.fft.rfftn(z.imag, [4, 9], [2, 0])),
    "hfft": (lambda z: ops.hfft(z, 7, 0, "ortho"), lambda z: np.fft.hfft(z, 7, 0, "ortho")),
    "ihfft": (lambda z: ops.ihfft(ops.real(z), 4, 1, "forward"), lambda z: np.fft.ihfft(z.real, 4, 1, "forward")),
    "shifts": (lambda z: ops.ifftshift(ops.fftshift(z, 1) * 2, [0, 2]), 
               lambda z: np.fft.ifftshift(np.fft.fftshift(z, 1) * 2, [0, 2])),
    "frequencies": (lambda z: z[0, 0] * ops.fftfreq(6, 0.25), lambda z: z[0, 0] * np.fft.fftfreq(6, 0.25)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECTRA)
def test_several_axes(name: str) -> None:
    forward, reference = SPECTRA[name]
    z = numbers(3, 5, 6)
    got, wanted = run(forward, z), reference(z)
    assert got.shape == wanted.shape and got.dtype.kind == wanted.dtype.kind
    assert np.allclose(got, wanted, atol=1e-4)


WRONG: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "an axis twice": ("EK0422", "each axis once", lambda z, x: ops.fftn(z, axes=[1, -1])),
    "an axis too far": ("EK0422", "axes", lambda z, x: ops.fft2(z, axes=[0, 2])),
    "too few lengths": ("EK0421", "2 lengths, one for each axis", lambda z, x: ops.fftn(z, [3], [0, 1])),
    "too many lengths": ("EK0421", "s has 3 lengths, and x 2 axes", lambda z, x: ops.fftn(z, [3, 3, 3])),
    "no axis": ("EK0421", "no axis to transform", lambda z, x: ops.ifftn(z, axes=[])),
    "a length of 0": ("EK0421", "an int from 1 on", lambda z, x: ops.rfftn(x, [0])),
    "a scaling": ("EK0414", "normalization", lambda z, x: ops.fftn(z, norm="none")),
    "half of complex numbers": ("EK0413", "has to be floating-point", lambda z, x: ops.rfftn(z)),
    "a distance of 0": ("EK0421", "a number other than 0", lambda z, x: ops.fftfreq(8, 0)),
    "frequencies of ints": ("EK0413", "floating-point dtype", lambda z, x: ops.fftfreq(8, 1, DType.int32)),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_transforms(name: str) -> None:
    code, text, forward = WRONG[name]
    types = [TensorType(DType.complex64, [3, 4], HOST), TensorType(DType.float32, [3, 4], HOST)]
    with pytest.raises(EinkornError, match=text) as caught:
        Graph("mistaken", forward, types)
    assert caught.value.code == code


def test_no_elements_are_no_transform() -> None:
    graph = Graph("empty", ops.fft, [TensorType(DType.complex64, ["m", "n"], HOST)])
    with pytest.raises(EinkornError, match="nothing to transform along axis 1"):
        InferenceSession().load(graph)(np.zeros((2, 0), np.complex64))


def test_weights_in_safetensors(tmp_path: Path) -> None:
    x, path = numbers(4, 6), tmp_path / "w.safetensors"
    entry = {"w": {"dtype": "C64", "shape": [4, 6], "data_offsets": [0, x.nbytes]}}
    header = json.dumps(entry).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + x.tobytes())
    weights = load_weights([path])
    assert np.array_equal(np.from_dlpack(weights.w.data()), x)


def test_constants_are_printed_whole() -> None:
    graph = Graph("printed", lambda a: a * (1 - 2j), [TensorType(DType.complex64, (3,), HOST)])
    assert "constant (1-2j) : Tensor[complex64" in str(graph)
