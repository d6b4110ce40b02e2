"""`sorted` of run-time values: every dtype and length, NaN last, vectors, and a median of nine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import ALL, KernelFile

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "sorting_kernels.py")


def numbers(dtype: Any, *shape: int) -> Array:
    """Few different ones, with NaN and infinities where there are any."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 5, shape).astype(dtype)
    if np.dtype(dtype).kind in "fV":
        x[rng.random(shape) < 0.2] = np.nan
        x[rng.random(shape) < 0.1] = -np.inf
    return x


def in_order(x: Array, axis: int) -> Array:
    return np.sort(x.astype(np.float64), axis)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("dtype", "n"), [*((dtype, 5) for dtype in ALL), *((np.float32, n) for n in (1, 2, 3, 9, 14))])
def test_rows(kernels: KernelFile, dtype: Any, n: int, reverse: bool) -> None:
    x = numbers(dtype, 25, n)
    (got,) = kernels("rows", x, n=n, reverse=reverse)
    wanted = in_order(x, 1)
    assert np.array_equal(got.astype(np.float64), wanted[:, ::-1] if reverse else wanted, equal_nan=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_median_of_nine(kernels: KernelFile, dtype: Any) -> None:
    x = np.random.default_rng(1).integers(0, 255, (8, 13)).astype(dtype)
    padded = np.pad(x, 1, mode="edge")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3)).reshape(8, 13, 9)
    assert np.array_equal(kernels("median", x)[0], np.median(windows, axis=2).astype(dtype))


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.float16, np.float64], ids=str)
def test_vectors(kernels: KernelFile, dtype: Any) -> None:
    x = numbers(dtype, 3, 8)
    assert np.array_equal(kernels("lanes", x)[0].astype(np.float64), in_order(x, 0), equal_nan=True)


def test_numbers_of_python_take_the_dtype(kernels: KernelFile) -> None:
    x = np.array([-1, 0.5, 3, np.nan], np.float32)
    assert kernels("with_numbers", x)[0].tolist() == [0, 0.5, 1.5, 1.5]
