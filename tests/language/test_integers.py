"""Functions of integers, and `isclose` and `modf`: against NumPy, and on numbers of Python."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import INTS, UINTS, KernelFile

from einkorn import dsl

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "integer_kernels.py")


def pair(dtype: Any) -> tuple[Array, Array]:
    low = 0 if np.dtype(dtype).kind == "u" else -60
    x, y = np.random.default_rng(0).integers(low, 60, (2, 40)).astype(dtype)
    x[:3] = y[2:5] = 0
    return x, y


@pytest.mark.parametrize("dtype", [*INTS, *UINTS])
def test_integers(kernels: KernelFile, dtype: Any) -> None:
    x, y = pair(dtype)
    (got,) = kernels("of_integers", x, y)
    wanted = [
        np.gcd(x, y),
        np.lcm(x, y),
        [dsl.next_power_of_two(int(v)) for v in x],
        [-(-int(v) // 8) * 8 for v in x],
        [int(v) // 8 * 8 for v in x],
    ]
    assert np.array_equal(got.astype(np.int64), np.array(wanted).astype(np.int64))


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64])
def test_vectors(kernels: KernelFile, dtype: Any) -> None:
    x, y = (values[:8].copy() for values in pair(dtype))
    (got,) = kernels("of_lanes", x, y)
    six = np.full(8, 6, dtype)
    powers = np.array([dsl.next_power_of_two(int(v)) for v in x])
    assert np.array_equal(got, np.stack([np.gcd(x, y), np.lcm(x, six), powers]))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.complex64])
def test_close_as_numpy_says(kernels: KernelFile, dtype: Any) -> None:
    values = np.array([0, 1, 1 + 1e-6, 1e-9, np.inf, -np.inf, np.nan, 5e4, -5e4, 1.05, 2])
    if dtype in (np.int32, np.complex64):
        values = values[np.isfinite(values)]
    x, y = (each.ravel().astype(dtype) for each in np.meshgrid(values, values))
    (got,) = kernels("close", x, y)
    with np.errstate(all="ignore"):
        wanted = [np.isclose(x, y), np.isclose(x, y, rtol=0.1, atol=0, equal_nan=True), np.isclose(x, dtype(1))]
    assert np.array_equal(got, wanted)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_parts(kernels: KernelFile, dtype: Any) -> None:
    x = np.array([0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 1e4], dtype)
    (got,) = kernels("parts", x)
    wanted = np.array(np.modf(x))
    assert np.array_equal(got, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(got[:, :6]), np.signbit(wanted[:, :6]))


def test_compile_time_and_python(kernels: KernelFile) -> None:
    assert kernels("at_compile_time")[0].tolist() == [8, 12, 2, 1, 1]
    assert (dsl.gcd(12, 18), dsl.lcm(4, 6), dsl.next_power_of_two(np.int64(17))) == (6, 12, 32)
    assert (dsl.align_up(13, 8), dsl.align_down(-13, 8), dsl.modf(-2.5)) == (16, -16, (-0.5, -2.0))
    values = [0.0, 1.0, 1 + 1e-9, float("inf"), float("-inf"), float("nan")]
    for x in values:
        for y in values:
            assert dsl.isclose(x, y) == np.isclose(x, y)
            assert dsl.isclose(x, y, equal_nan=True) == np.isclose(x, y, equal_nan=True)


def test_functions_of_python(kernels: KernelFile) -> None:
    x = np.array([0, -8, 9, 60])
    divisors = [math.gcd(v, 36, 6 * v) + abs(v) + 5 for v in x]
    multiples = [math.lcm(v, 4, 6, 5) + abs(v) for v in x]
    wanted = [[math.gcd(v, 12) for v in x], [math.lcm(v, 12) for v in x], [6] * 4, divisors, multiples]
    assert kernels("of_python", x)[0].tolist() == wanted
    y = np.array([0.5, 1.0, 4.25, -2.5])
    (got,) = kernels("of_python_floats", y)
    assert np.array_equal(got[:2], np.modf(y))
    assert np.allclose(got[2:], [[math.gamma(v) for v in y], [math.lgamma(v) for v in y]], rtol=1e-14)


@pytest.mark.parametrize("dtype", [*INTS, *UINTS])
def test_divisors_that_are_positive(kernels: KernelFile, dtype: Any) -> None:
    x, y = pair(dtype)
    x[5:8] = np.iinfo(dtype).min, np.iinfo(dtype).min, np.iinfo(dtype).max
    y[5:8] = 1, np.iinfo(dtype).max, np.iinfo(dtype).max
    (got,) = kernels("by_positive", x, y)
    above, below = np.maximum(y, 1), np.minimum(y, 3)
    few = np.minimum(np.maximum(y, 2), 7)
    assert np.array_equal(got[:4], [x // above, x % above, x // few, x % 5])
    with np.errstate(divide="ignore"):  # by 0 both give 0
        assert np.array_equal(got[4:], [x // np.maximum(y, 0), x % below])
