"""The public algorithms, compiled and interpreted: the same bits. `KernelFile` compares them at every call."""

from __future__ import annotations

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

HERE = Path(__file__).parent
if str(HERE.parent / "language") not in sys.path:
    sys.path.insert(0, str(HERE.parent / "language"))

from kernel_harness import KernelFile  # noqa: E402


def numbers(*shape: int) -> np.ndarray:
    x = np.random.default_rng(9).standard_normal(shape).astype(np.float32)
    x.flat[1::11] = np.nan
    x.flat[2::13] = -0.0
    return x


@pytest.mark.parametrize("axis", (0, 1))
def test_reductions(axis: int) -> None:
    kernels = KernelFile(HERE / "algorithm_kernels.py")
    for op in ("totals", "places", "moments", "summaries"):
        kernels(op, numbers(3, 70), axis=axis)
    if axis:
        kernels("totals", np.arange(150, dtype=np.int8).reshape(3, 50), axis=axis)
        kernels("moments", numbers(2, 37).astype(ml_dtypes.bfloat16), axis=axis)
        kernels("truths", numbers(2, 33) > 0)
        kernels("of_everything", numbers(5, 9))
        begins, ends = np.array([0, 3, 0, 20, 40], np.int64), np.array([0, 5, 70, 60, 72], np.int64)
        kernels("extremes_of_parts", numbers(80), begins, ends)
        kernels("extremes_of_parts", numbers(80)[3::11], begins // 10, ends // 10)
        kernels("extremes_of_parts", np.abs(np.nan_to_num(numbers(80))), begins, ends)
        kernels("extremes_of_strided", -np.abs(np.nan_to_num(numbers(2, 90))))
        kernels("farthest", numbers(2, 50))
        kernels("composed", np.arange(66, dtype=np.int64).reshape(2, 33))


def test_scans() -> None:
    kernels = KernelFile(HERE / "scan_kernels.py")
    for axis in (0, 1):
        kernels("sums", numbers(3, 37), axis=axis, exclusive=axis == 1)
        kernels("largest", numbers(3, 37), axis=axis)
        kernels("summaries", numbers(3, 37), axis=axis, exclusive=axis == 0)
    kernels("moments", numbers(2, 20))


def test_orders_and_neighbourhoods() -> None:
    kernels = KernelFile(HERE / "order_kernels.py")
    kernels("sorted_rows", numbers(2, 37), axis=1, descending=True, limit=64)
    kernels("best", numbers(2, 37), k=3)
    for border in ("constant", "reflect"):
        kernels("crossed", numbers(2, 5, 9), border=border)
