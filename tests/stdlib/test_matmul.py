"""Matrix products against NumPy: dtypes, sizes around every edge of tiles, blocks and slabs, and empty ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.compiler.targets import fits
from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
Run = Callable[..., Array]
Sizes = tuple[int, int, int]

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.int32, np.int64, np.uint8, np.uint64)
SIZES = (
    (1, 1, 1),
    (3, 5, 7),
    (4, 1, 9),
    (14, 16, 32),
    (15, 17, 33),
    (33, 257, 65),
    (3, 300, 600),
    (70, 2049, 1),
    (65, 300, 7),
    (0, 3, 4),
    (3, 4, 0),
    (20, 0, 30),
)
SOME = ((3, 5, 7), (15, 17, 33), (33, 257, 65), (20, 0, 30))
LARGE = ((270, 257, 530), (130, 600, 1100), (580, 40, 70))  # several blocks and slabs
TURNED = (
    *((m, k, n) for m, k, n in SIZES if m * k * n != 14 * 16 * 32),
    *((8, 300, 100), (5, 16, 64), (20, 31, 33), (130, 270, 300), (7, 2049, 20)),
)


def covering(sizes: Sequence[Sizes], dtypes: Sequence[Any]) -> list[tuple[Any, int, int, int]]:
    """Dtypes with sizes: all for float32 and int8, the widths at which tiles differ most, some for each other dtype."""
    return [(d, *each) for d in dtypes for each in (sizes if d in (np.float32, np.int8) else SOME)]


def numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Array:
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return generator.standard_normal(shape).astype(dtype)


def check(actual: Array, a: Array, b: Array) -> None:
    """Integers exactly; floats within the error of a sum of products in the accumulation dtype, and one rounding."""
    assert actual.dtype == a.dtype
    if a.dtype.kind in "iu":
        np.testing.assert_array_equal(actual, a @ b)
        return
    exact = a.astype(np.float64) @ b.astype(np.float64)
    size = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    unit = 2.0**-52 if a.dtype == np.float64 else 2.0**-23
    bound = 4 * unit * size + float(ml_dtypes.finfo(a.dtype).eps) * np.abs(exact)
    assert (np.abs(actual.astype(np.float64) - exact) <= bound).all()


@pytest.mark.parametrize("dtype, m, k, n", covering(SIZES, FLOATS + INTEGERS))
def test_sizes(run: Run, dtype: Any, m: int, k: int, n: int) -> None:
    a, b = numbers((m, k), dtype, 1), numbers((k, n), dtype, 2)
    check(run("matmul", "matmul", a, b), a, b)


@pytest.mark.parametrize("dtype", (np.float32, np.int32, ml_dtypes.bfloat16))
@pytest.mark.parametrize("m, k, n", LARGE)
def test_several_blocks(run: Run, dtype: Any, m: int, k: int, n: int) -> None:
    a, b = numbers((m, k), dtype, 1), numbers((k, n), dtype, 2)
    check(run("matmul", "matmul", a, b), a, b)


@pytest.mark.parametrize(
    "dtype, batches", ((np.float32, 0), (np.float32, 1), (np.float32, 3), (np.float16, 3), (np.int8, 3))
)
@pytest.mark.parametrize("m, k, n", ((2, 3, 4), (17, 40, 50), (40, 300, 2)))
def test_batches(run: Run, dtype: Any, batches: int, m: int, k: int, n: int) -> None:
    a, b = numbers((batches, m, k), dtype, 1), numbers((batches, k, n), dtype, 2)
    check(run("matmul", "batch_matmul", a, b), a, b)


@pytest.mark.parametrize(
    "dtype, m, k, n", covering(TURNED, (np.float32, np.float64, ml_dtypes.bfloat16, np.int8, np.int64))
)
def test_transposed_sizes(run: Run, dtype: Any, m: int, k: int, n: int) -> None:
    a, b = numbers((m, k), dtype, 1), numbers((n, k), dtype, 2)
    check(run("matmul", "matmul_transposed", a, b), a, b.T)


@pytest.mark.parametrize("m, k, n", ((2, 3, 4), (17, 40, 50), (40, 300, 2), (0, 3, 4), (20, 0, 30)))
def test_transposed_batches(run: Run, run_symbolic: Run, m: int, k: int, n: int) -> None:
    a, b = numbers((3, m, k), np.float32, 1), numbers((3, n, k), np.float32, 2)
    check(run("matmul", "batch_matmul_transposed", a, b), a, b.swapaxes(1, 2))
    check(run_symbolic("matmul", "batch_matmul_transposed", a, b), a, b.swapaxes(1, 2))


@pytest.mark.parametrize("m, k, n", ((3, 5, 7), (40, 300, 2), (33, 257, 65), (0, 3, 4), (20, 0, 30)))
def test_sizes_that_the_code_does_not_know(run_symbolic: Run, m: int, k: int, n: int) -> None:
    a, b = numbers((m, k), np.float32, 1), numbers((k, n), np.float32, 2)
    check(run_symbolic("matmul", "matmul", a, b), a, b)


def test_nan_and_infinity_go_through(run: Run) -> None:
    a, b = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    a[3, 4], b[5, 6] = np.nan, np.inf
    np.testing.assert_array_equal(run("matmul", "matmul", a, b), a @ b)


@pytest.mark.parametrize("dtype", (np.float32, np.int8))
@pytest.mark.parametrize("target", ("x86-64-v2", "x86-64-v3"))
def test_narrower_vectors(run: Run, target: str, dtype: Any) -> None:
    if not fits(target):
        pytest.skip(f"this machine does not run {target}")
    a, b = numbers((33, 70), dtype, 1), numbers((70, 65), dtype, 2)
    check(run("matmul", "matmul", a, b, target=target), a, b)
    check(run("matmul", "matmul_transposed", a, np.ascontiguousarray(b.T), target=target), a, b)


@pytest.mark.parametrize("target", ("sm_80", "gfx942", "aarch64"))
@pytest.mark.parametrize("dtype", (DType.float32, DType.bfloat16, DType.int8))
def test_other_targets(check_compiles: Callable[..., None], target: str, dtype: DType) -> None:
    """Batches, which are the same products, of one dtype each."""
    check_compiles(target, "matmul", "matmul", [(dtype, (30, 40)), (dtype, (40, 50))])
    if dtype == DType.float32:
        check_compiles(target, "matmul", "batch_matmul", [(dtype, (3, 30, 40)), (dtype, (3, 40, 50))])
    if dtype == DType.bfloat16:
        check_compiles(target, "matmul", "batch_matmul_transposed", [(dtype, (3, 30, 40)), (dtype, (3, 50, 40))])
