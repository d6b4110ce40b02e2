"""Scans against NumPy: axes, odd sizes, long rows, exclusive ones, monoids that do not commute, and the order, bit
for bit.
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
KERNELS = Path(__file__).with_name("scan_kernels.py")
CASES = (((3, 5), 1), ((16,), 0), ((2, 3, 37), 2), ((9, 16), 1), ((40, 3), 0), ((2, 5, 300), 1), ((4, 0), 1))
LONG = (((2, 40001), 1), ((9, 20000), 1))  # of several pieces: few rows, and more


@pytest.fixture(scope="module")
def run(run_kernel: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    def call(op: str, *arrays: Array, target: str = "host", **parameters: Any) -> list[Array]:
        return run_kernel(KERNELS, op, list(arrays), parameters, None, target)

    return call


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    generator = np.random.default_rng(5)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(-100, 100, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", (np.float32, ml_dtypes.bfloat16, np.int8, np.int64), ids=lambda d: np.dtype(d).name)
def test_running_sums_and_maxima(run: Any, dtype: Any) -> None:
    some = (*CASES, *LONG) if dtype == np.float32 else CASES[2:5]
    for shape, axis in some:
        x = numbers(shape, dtype)
        sums, before, largest = run("sums", x, axis=axis)[0], run("sums", x, axis=axis, exclusive=True)[0], None
        if np.dtype(dtype).kind in "iu":
            assert np.array_equal(sums, x.cumsum(axis, dtype=dtype)), (shape, axis)
            assert np.array_equal(before, (x.cumsum(axis, dtype=dtype) - x).astype(dtype)), (shape, axis)
            continue
        wide = x.astype(np.float64)
        rtol, atol = 2 * float(ml_dtypes.finfo(dtype).eps), 1e-6 + 1e-8 * x.size
        assert np.allclose(sums.astype(np.float64), wide.cumsum(axis), rtol, atol), (shape, axis)
        assert np.allclose(before.astype(np.float64), wide.cumsum(axis) - wide, rtol, atol), (shape, axis)
        if x.size and dtype == np.float32:
            largest, places = run("largest", x, axis=axis)
            assert np.array_equal(largest, np.maximum.accumulate(x, axis)), (shape, axis)
            assert np.array_equal(np.take_along_axis(x, places, axis), largest), (shape, axis)


@pytest.mark.parametrize(
    "dtype", (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.bool_), ids=lambda d: np.dtype(d).name
)
def test_sums_of_narrow_integers_are_as_wide_as_in_numpy(run_kernel: Any, dtype: Any) -> None:
    limits = np.iinfo(dtype) if dtype is not np.bool_ else None
    for m, n in ((3, 5000), (300, 70)):
        x = np.full((m, n), True) if limits is None else np.full((m, n), limits.max, dtype)
        x[:, 3::5] = 0 if limits is None else limits.min
        wide = DType.from_numpy(x.dtype).sum_dtype()
        outs = [(wide, (m,)), (wide, (n,)), (wide, (m,)), (wide, (m, n)), (wide, (m, n))]
        rows, columns, products, running, down = run_kernel(KERNELS, "wide_sums", [x], {}, outs, "host")
        assert np.array_equal(rows, x.sum(1)) and rows.dtype == x.sum(1).dtype
        assert np.array_equal(columns, x.sum(0)) and np.array_equal(products, x.prod(1))
        assert np.array_equal(running, x.cumsum(1))
        assert np.array_equal(down, x[::-1].cumsum(0)[::-1] - x.astype(rows.dtype))


def test_compositions_keep_their_order(run: Any) -> None:
    for n in (1, 15, 16, 50):
        x = numbers((2, n), np.int64)
        expected = np.zeros_like(x)
        for row in range(2):
            a, b = 1, 0
            for k, v in enumerate(x[row].tolist()):
                a, b = a * (v % 3 + 1), b * (v % 3 + 1) + v
                expected[row, k] = ((a + b) + 2**63) % 2**64 - 2**63
        assert np.array_equal(run("composed", x)[0], expected), n


@pytest.mark.parametrize("exclusive", (False, True))
def test_states_that_are_structs(run: Any, exclusive: bool) -> None:
    for shape, axis in (*CASES[:5], *LONG):
        x = numbers(shape, np.float32)
        spread, total = run("summaries", x, axis=axis, exclusive=exclusive)
        assert np.array_equal(total, run("sums", x, axis=axis, exclusive=exclusive)[0]), (shape, axis)
        if not exclusive:
            assert np.array_equal(spread, np.maximum.accumulate(x, axis) - np.minimum.accumulate(x, axis))


def test_values_of_several_parts(run: Any) -> None:
    x = numbers((3, 45), np.float32)
    mean, variance = run("moments", x)
    for k in (0, 1, 15, 16, 44):
        assert np.allclose(mean[:, k], x[:, : k + 1].mean(1, dtype=np.float64), atol=1e-6)
        assert np.allclose(variance[:, k], x[:, : k + 1].var(1, dtype=np.float64), atol=1e-6)


def model_of_a_row(x: Array) -> Array:
    """The documented order of running float32 sums, in NumPy."""
    before, collected = np.float64(0), []
    for piece in (x[k : k + 16384] for k in range(0, x.size, 16384)):
        carry, alone = before, np.float64(0)
        for part in (piece[k : k + 16] for k in range(0, piece.size, 16)):
            lanes = np.zeros(16, np.float32)
            lanes[: part.size] = part
            for step in (1, 2, 4, 8):
                lanes = np.concatenate([np.zeros(step, np.float32), lanes[:-step]]) + lanes
            collected.append((carry + lanes.astype(np.float64)).astype(np.float32)[: part.size])
            carry, alone = carry + np.float64(lanes[15]), alone + np.float64(lanes[15])
        before = before + alone
    return np.concatenate(collected)


def test_the_order_is_the_documented_one(run: Any) -> None:
    for rows in (1, 9):
        x = numbers((rows, 40001), np.float32)
        assert np.array_equal(run("sums", x, axis=1)[0], [model_of_a_row(row) for row in x])


@pytest.mark.parametrize("target", ("sm_80", "gfx1100", "aarch64"))
def test_other_targets_compile(compile_kernel: Any, target: str) -> None:
    for axis in (0, 1):
        artifact, _ = compile_kernel(KERNELS, "sums", [(DType.float32, (64, 100))], {"axis": axis}, None, target)
        assert len(artifact.code) > 100
