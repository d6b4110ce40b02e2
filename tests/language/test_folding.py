"""Folding a pure function gives the same bits as running it, and numbers adopt types as the language says."""

from __future__ import annotations

import importlib.util
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import FLOATS, KernelFile, assert_same_bits, dtype_name
from references import narrowed, rounded

from einkorn.dsl import DType

FILE = Path(__file__).parent / "folding_kernels.py"


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(FILE)


@pytest.fixture(scope="module")
def table() -> Any:
    spec = importlib.util.spec_from_file_location("folding_kernels_as_python", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def both(kernels: KernelFile, op: str, operands: Any, columns: int, dtype: Any) -> tuple[Any, Any]:
    x = np.array(operands, dtype)
    kind = DType.from_numpy(np.dtype(dtype))
    folded, run = kernels(op, x, outs=[(kind, (len(x), columns))] * 2)
    return folded, run


def test_integers_fold_as_they_run(kernels: KernelFile, table: Any) -> None:
    folded, run = both(kernels, "fold_integers", table.OPERANDS, 14, np.int64)
    assert_same_bits(folded, run)
    for row, (x, y) in zip(folded.tolist(), table.OPERANDS, strict=True):
        assert row[:8] == [x + y, x - y, x * y, x // y, x % y, x & y, x | y, x ^ y]
        assert row[8:] == [-x, ~x, min(x, y), max(x, y), abs(x), -(-x // y)]


def test_floats_fold_as_they_run(kernels: KernelFile, table: Any) -> None:
    folded, run = both(kernels, "fold_floats", table.FLOATS, 11, np.float64)
    assert_same_bits(folded, run)
    for row, (x, y) in zip(folded.tolist(), table.FLOATS, strict=True):
        assert row[:4] == [x + y, x - y, x * y, -x]
        if y:
            assert row[7:10] == [x / y, x // y, x % y]


def test_rounding_folds_as_it_runs(kernels: KernelFile, table: Any) -> None:
    folded, run = both(kernels, "fold_rounding", table.ROUNDED, 4, np.float64)
    assert_same_bits(folded, run)
    x = np.array(table.ROUNDED)
    assert_same_bits(folded, np.stack([np.floor(x), np.ceil(x), np.rint(x), np.trunc(x)], axis=1))


def test_fused_multiplication_folds_as_it_runs(kernels: KernelFile, table: Any) -> None:
    folded, run = both(kernels, "fold_fused", table.FUSED, 2, np.float64)
    assert_same_bits(folded, run)
    for row, (a, b, c) in zip(folded, table.FUSED, strict=True):
        assert row[0] == rounded(Fraction(a) * Fraction(b) + Fraction(c), np.float64)


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_numbers_adopt_their_partners_type(kernels: KernelFile, dtype: Any) -> None:
    (got,) = kernels("adopt", np.array(1.0, dtype))
    numbers = np.array([0.1, 3.0, 0.1, 1e-30, -1e-60, 1e300, 65280.0, 1 / 3])
    assert_same_bits(got, narrowed(numbers, dtype))


def test_constructed_numbers(kernels: KernelFile) -> None:
    floats, whole = kernels("typed_numbers")
    tenth = np.array([0.1])
    halves = [narrowed(tenth, DType.from_numpy(t).to_numpy()).astype(np.float32)[0] for t in FLOATS[:2]]
    assert_same_bits(floats, np.array([0.1, *halves], np.float32))
    assert whole.tolist() == [-4, -2147483648, 255, 0]


def test_parameters_are_pythons_values(kernels: KernelFile) -> None:
    (got,) = kernels("python_values")
    assert got.tolist() == [1, 9, 5, 3, 32, 1, 1, 0, 2, 1, 2, 1]
    given = {"flag": False, "count": 2, "scale": 1.29, "name": "xyz!", "dtype": DType.float64}
    (got,) = kernels("python_values", **given)
    assert got.tolist() == [0, 4, 12, 4, 64, 0, 0, 1, 2, 0, 1, 1]


def test_known_sizes_compute_as_unknown_ones(kernels: KernelFile) -> None:
    (got,) = kernels("sizes_shift", np.zeros(5, np.float32), np.zeros(4, np.float32))
    assert got.tolist() == [0, 0, 20, -2]
