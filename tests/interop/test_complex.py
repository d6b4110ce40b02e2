"""Complex numbers in calls of kernels from NumPy, ufuncs, PyTorch, JAX and numba, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest

pytest.importorskip("einkorn.jax")
pytest.importorskip("einkorn.torch")

import einkorn.jax
import einkorn.numba
import einkorn.torch
import jax
import jax.numpy as jnp
import numba
import numpy as np
import torch

from einkorn.dsl import ComplexFloating, Floating, InputTensor, Number, OutputTensor, foreach, register
from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType

F = TypeVar("F", bound=Floating)
C = TypeVar("C", bound=ComplexFloating)
N = TypeVar("N", bound=Number)


@register("complex_calls::turned")
def turned(out: OutputTensor[C, "*s"], x: InputTensor[C, "*s"], y: InputTensor[C, "*s"]) -> None:
    foreach(out, lambda i: x[i] * y[i] + 1j)


@register("complex_calls::scaled")
def scaled(out: OutputTensor[N, "n"], a: InputTensor[N, ""], x: InputTensor[N, "n"]) -> None:
    foreach(out, lambda i: a[()] * x[i])


@register("complex_calls::rigid")
def rigid(out: OutputTensor[C, "n"], a: C, x: InputTensor[C, "n"]) -> None:
    foreach(out, lambda i: a * x[i])


@register("complex_calls::stretched")
def stretched(out: OutputTensor[F, "n"], a: F, x: InputTensor[F, "n"]) -> None:
    foreach(out, lambda i: a * x[i])


def numbers(dtype: Any = np.complex64) -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 6, 8)) + 1j * rng.standard_normal((2, 6, 8))
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_numpy(dtype: Any) -> None:
    x, y = numbers(dtype)
    wanted = x * y + dtype(1j)
    for _ in range(4):  # the first calls go another way than later ones
        got: Any = turned(x, y)
        assert got.dtype == dtype and np.allclose(got, wanted, atol=1e-5)
    assert np.allclose(turned(x[:, ::2].T, y[:, ::2].T), wanted[:, ::2].T, atol=1e-5)
    out = np.empty_like(x)
    turned(x, y, out=out)
    assert np.allclose(out, wanted, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_ufuncs(dtype: Any) -> None:
    x, y = numbers(dtype)
    wanted = x * y + dtype(1j)
    assert turned.ufunc(x, y).dtype == dtype and np.allclose(turned.ufunc(x, y), wanted, atol=1e-5)
    assert np.allclose(turned.ufunc(x[:, ::2].T, y[:, ::2].T), wanted[:, ::2].T, atol=1e-5)
    assert np.allclose(turned.ufunc(x, y[0]), x * y[0] + dtype(1j), atol=1e-5)


def test_numbers_of_python() -> None:
    x = numbers(np.complex128)[0][0]
    for number in (2j, 2.5, 2, np.complex64(1 + 1j)):
        for _ in range(3):
            assert np.allclose(scaled(number, x), number * x)
    with pytest.raises(EinkornError, match="2j is complex and cannot become float64") as caught:
        scaled(2j, x.real.copy())
    assert caught.value.code == "EK0412"


TORCH: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda z: z,
    "transposed": lambda z: z.T,
    "every second": lambda z: z[:, ::2],
    "conjugated later": lambda z: z.conj(),
    "wide": lambda z: z.to(torch.complex128),
}


@pytest.mark.parametrize("name", TORCH)
def test_torch(name: str) -> None:
    x, y = map(torch.from_numpy, numbers())
    form, op = TORCH[name], einkorn.torch.op(turned)
    for _ in range(3):
        assert torch.allclose(op(form(x), form(y)), form(x) * form(y) + 1j, atol=1e-5)


def test_torch_compiles() -> None:
    x, y = map(torch.from_numpy, numbers())
    op = einkorn.torch.op(turned)
    compiled = torch.compile(lambda a, b: op(a, b) * 2, backend="aot_eager")
    assert torch.allclose(compiled(x, y), (x * y + 1j) * 2, atol=1e-5)


def test_jax() -> None:
    x, y = map(jnp.asarray, numbers())
    op, wanted = einkorn.jax.op(turned), x * y + 1j
    for call in (op, jax.jit(op), jax.vmap(op)):
        got = call(x, y)
        assert got.dtype == jnp.complex64 and jnp.allclose(got, wanted, atol=1e-5)


def test_numba() -> None:
    turned_of, scaled_of = einkorn.numba.function(turned), einkorn.numba.function(rigid)

    @numba.njit
    def run(a: Any, x: Any, y: Any) -> Any:
        return turned_of(x, y) * 2, scaled_of(a, x[0]) + scaled_of(2j, x[0])

    x, y = numbers()
    for number in (2j, 2.5, 2):
        first, second = run(number, x, y)
        assert first.dtype == second.dtype == np.complex64
        assert np.allclose(first, (x * y + 1j) * 2, atol=1e-5) and np.allclose(second, (number + 2j) * x[0], atol=1e-5)


def test_numbers_of_models() -> None:
    types = [TensorType(DType.complex64, shape, DeviceRef.CPU()) for shape in ((8,), ())]
    model = InferenceSession().load(Graph("scaled", lambda x, a: x * a, types))
    x = numbers()[0][0]
    for number in (2j, 2.5, 2):
        assert np.allclose(model(x, number)[0].to_numpy(), x * number, atol=1e-5)


def test_float_arguments_refuse_complex_numbers() -> None:
    x = np.ones(3, np.float32)
    for call in (lambda: stretched(2j, x), lambda: stretched(2j, jnp.asarray(x))):
        with pytest.raises(EinkornError, match="2j is complex and cannot become float32") as caught:
            call()
        assert caught.value.code == "EK0412"
    with pytest.raises(EinkornError, match="argument 'a' takes a real number, not 2j"):
        stretched(2j, torch.from_numpy(x))
