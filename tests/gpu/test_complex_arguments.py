"""Complex numbers, and vectors of them, that kernels take from the host: they are handed over part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from einkorn.dsl import kernels_of
from einkorn.graph import CPU, Accelerator, Buffer

TEXT = """
from typing import TypeVar

from einkorn.dsl import *

C = TypeVar("C", bound=ComplexFloating)


@register("twist")
def twist(out: OutputTensor[C, "n"], x: InputTensor[C, "n"], a: C):
    foreach(out, lambda i: x[i] * a + 1j)


@register("pairs")
def pairs(out: OutputTensor[complex64, "n"], x: InputTensor[complex64, "n"], a: complex64, ctx: DeviceContext):
    both = SIMD[complex64, 2](a) * 2

    def thread():
        i = gpu.global_idx.x
        out[i] = x[i] * (both[0] + both[1]) + a

    ctx.launch(thread, grid=2, block=4)
"""
A = 2 - 1j


@pytest.fixture(scope="module")
def kernels() -> dict[str, Any]:
    return kernels_of(TEXT)


@pytest.mark.parametrize("like", ["sm_90a", "gfx942"])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_number(kernels: dict[str, Any], like: str, dtype: Any) -> None:
    x = (np.arange(8) + 1j * np.arange(8)[::-1]).astype(dtype)
    actual = kernels["twist"](Buffer.from_numpy(x).to(Accelerator("sim", like=like)), A)
    assert np.array_equal(actual.to(CPU()).to_numpy(), x * dtype(A) + dtype(1j))


@pytest.mark.parametrize("like", ["sm_90a", "gfx942"])
def test_a_vector(kernels: dict[str, Any], like: str) -> None:
    x = (np.arange(8) + 1j * np.arange(8)[::-1]).astype(np.complex64)
    actual = kernels["pairs"](Buffer.from_numpy(x).to(Accelerator("sim", like=like)), A)
    assert np.array_equal(actual.to(CPU()).to_numpy(), x * np.complex64(4 * A) + np.complex64(A))
