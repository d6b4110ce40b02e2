"""Sorting against NumPy's stable sort: directions, axes, ties, NaN, signs of zero, keys, dtypes, rows that are too
long.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).with_name("order_kernels.py")


@pytest.fixture(scope="module")
def run(run_kernel: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    return lambda op, *arrays, **parameters: run_kernel(KERNELS, op, list(arrays), parameters)


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    """With ties, NaN, infinities and both zeros where the dtype has them."""
    x = np.round(np.random.default_rng(3).standard_normal(shape) * 3).astype(dtype)
    if x.size and np.dtype(dtype).kind not in "iu":
        x.flat[:: max(x.size // 5, 1)] = np.nan
        x.flat[1 :: max(x.size // 3, 2)] = -np.inf
        x.flat[2 :: max(x.size // 4, 3)] = -0.0
    return x


def order(x: Array, axis: int, descending: bool) -> Array:
    """The places of a stable sort with NaN last."""
    wide = x.astype(np.float64) + 0.0
    return np.argsort(-wide if descending else wide, axis, kind="stable")


@pytest.mark.parametrize(
    "dtype", (np.float32, ml_dtypes.bfloat16, np.int8, np.uint16, np.bool_), ids=lambda d: np.dtype(d).name
)
def test_rows_and_columns_in_both_directions(run: Any, dtype: Any) -> None:
    some = ((1,), (3, 16), (2, 17), (5, 100), (2, 333), (3, 0)) if dtype == np.float32 else ((3, 40),)
    for shape in some:
        x = numbers(shape, dtype)
        for axis in range(len(shape)) if dtype == np.float32 else (1,):
            for descending in (False, True):
                values, places = run("sorted_rows", x, axis=axis, descending=descending)
                expected = order(x, axis, descending)
                assert np.array_equal(places, expected), (shape, axis, descending)
                taken = np.take_along_axis(x, expected, axis)
                assert values.tobytes() == taken.tobytes(), (shape, axis, descending)


def test_the_ends_of_integers(run: Any) -> None:
    x = np.array([[-128, 127, 0, -1, 127, -128]], np.int8)
    assert run("sorted_rows", x, axis=1, descending=True)[1].tolist() == [[1, 4, 2, 3, 0, 5]]


def test_by_a_key(run: Any) -> None:
    x = numbers((4, 90), np.float32)
    expected = np.take_along_axis(x, np.argsort(np.abs(x), 1, kind="stable"), 1)
    assert np.array_equal(run("by_size", x)[0], expected, equal_nan=True)


@pytest.mark.parametrize("descending", (True, False))
def test_the_best_few(run: Any, descending: bool) -> None:
    for k, n, dtype in ((1, 50, np.float32), (5, 50, np.float32), (50, 50, np.bool_), (3, 2000, np.float32)):
        x = numbers((3, n), dtype)
        values, places = run("best", x, k=k, descending=descending)
        expected = order(x, 1, descending)[:, :k]
        assert np.array_equal(places, expected), (k, n)
        assert values.tobytes() == np.take_along_axis(x, expected, 1).tobytes()
    if descending:
        x = numbers((30, 7), np.float32)
        assert np.array_equal(run("best_of_columns", x, k=4)[0], order(x, 0, True)[:4])


def test_rows_that_are_too_long_say_so(run: Any) -> None:
    for op, parameters, text in (
        ("sorted_rows", {"limit": 8}, "elements is longer than limit="),
        ("best", {"k": 10}, "top_k is to find "),
    ):
        with pytest.raises(AssertionError, match=text):
            run(op, np.zeros((1, 9), np.float32), **parameters)


@pytest.mark.parametrize("target", ("sm_80", "gfx942"))
def test_gpus(compile_kernel: Any, target: str) -> None:
    for op, parameters in (("sorted_rows", {"limit": 32}), ("best", {"k": 4})):
        artifact, _ = compile_kernel(KERNELS, op, [(DType.float32, (64, 20))], parameters, None, target)
        assert len(artifact.code) > 100
