"""Complex tensors in graphs and as eager tensors, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

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
    "rfft": (lambda a: ops.view_as_complex(ops.rfft(ops.real(a))), lambda a: np.fft.rfft(a.real), ((2, 20),)),
    "there and back": (lambda a: ops.ifft(ops.fft(a) * 2), lambda a: a * 2, ((3, 49),)),
}
ALL = ELEMENTWISE | MOVED | REDUCED | PRODUCTS | TRANSFORMS


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


def test_reals_are_promoted() -> None:
    z = numbers(4)
    for x in (np.arange(4, dtype=np.float32), np.arange(4), np.array([True, False, True, True])):
        got = run(lambda a, b: a * b + b, z, x)
        assert got.dtype == np.complex64 and np.allclose(got, z * x + x)
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
    "wide floats": ("EK0410", "complex64 cannot hold", lambda z, x: z + ops.cast(x, DType.float64)),
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
