"""Reductions, places and softmax against NumPy in float64: dtypes, axes, sizes known and not, ties, NaN, infinities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
Run = Callable[..., Array]
Case = tuple[tuple[int, ...], int]

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.int32, np.int64, np.uint8, np.uint32)
CASES = (
    ((7,), 0),
    ((3, 5), 1),
    ((3, 5), 0),
    ((2, 3, 4), 1),
    ((2, 3, 4, 5), 3),
    ((2, 3, 4, 5), 0),
    ((2, 5, 300), 1),
    ((1, 1), 1),
)
LONG = (
    ((40000,), 0),
    ((3, 20011), 1),
    ((5000, 3), 0),
    ((1, 3000, 300), 1),
    ((270, 4100), 0),
)  # cut into chunks, and wide
# Of rows and of columns, in one vector and in several, and cut into chunks.
SOME = (((3, 5), 1), ((2, 3, 4), 1), ((2, 5, 300), 1), ((40000,), 0))


def covering(
    cases: Sequence[Case], some: Sequence[Case] = SOME, dtypes: Sequence[Any] = FLOATS + INTEGERS, every: Any = np.int8
) -> list[tuple[Any, tuple[int, ...], int]]:
    """Dtypes with shapes and axes: all cases for float32 and for `every`, `some` of them for each other dtype.

    How an axis is walked depends on its place, its size and the width of a dtype: these two are of different widths,
    one computes as it is stored and sums exactly.
    """
    return [(d, shape, axis) for d in dtypes for shape, axis in (cases if d in (np.float32, every) else some)]


def is_float(dtype: Any) -> bool:
    return np.dtype(dtype).kind not in "iu"


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    generator = np.random.default_rng(7)
    if is_float(dtype):
        return (generator.standard_normal(shape) * 3).astype(dtype)
    return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def variants(x: Array) -> list[Array]:
    """The array, and the same with NaN, infinities, ties and zeros of both signs, or with the ends of the range."""
    if not is_float(x.dtype):
        info = np.iinfo(x.dtype)
        return [x, np.full_like(x, info.min), np.full_like(x, info.max), x % 3]
    collected = [x]
    for value in (math.nan, -math.nan, math.inf, -math.inf):
        y = x.copy()
        y.flat[x.size // 2] = y.flat[x.size - 1] = value
        collected.append(y)
    ties = np.zeros_like(x)
    ties[..., ::2] = -0.0
    return [*collected, np.full_like(x, -math.inf), ties]


def wide(x: Array) -> Array:
    return x.astype(np.float64) if is_float(x.dtype) else x


def total(run: Run, x: Array, axis: int) -> Array:
    shape = tuple(1 if k == axis else n for k, n in enumerate(x.shape))
    return run("reduction", "reduce_sum", x, axis=axis, outputs=[(DType.from_numpy(x.dtype).sum_dtype(), shape)])


@pytest.mark.parametrize("dtype, shape, axis", covering(CASES + LONG))
def test_sum(run: Run, dtype: Any, shape: tuple[int, ...], axis: int) -> None:
    x = numbers(shape, dtype)
    actual = total(run, x, axis)
    if not is_float(dtype):
        np.testing.assert_array_equal(actual, np.sum(x, axis=axis, keepdims=True), strict=True)
        return
    exact = np.sum(wide(x), axis=axis, keepdims=True)
    # One rounding to the dtype, and the error of a tree of sums in float32 (float64 for float64).
    unit = 2.0**-53 if dtype is np.float64 else 2.0**-24
    bound = 40 * unit * np.sum(np.abs(wide(x)), axis=axis, keepdims=True)
    bound += float(ml_dtypes.finfo(dtype).eps) * np.abs(exact)
    assert (np.abs(wide(actual) - exact) <= bound).all()


def test_long_sums_keep_their_digits(run: Run) -> None:
    x = np.random.default_rng(0).random(1 << 22).astype(np.float32)
    exact = float(np.sum(x.astype(np.float64)))
    assert abs(float(total(run, x, 0)[0]) - exact) <= 1e-7 * exact
    columns = x.reshape(-1, 4)
    exact_columns = np.sum(columns.astype(np.float64), axis=0, keepdims=True)
    actual = total(run, columns, 0)
    assert (np.abs(actual - exact_columns) <= 2e-6 * exact_columns).all()


@pytest.mark.parametrize("dtype, shape, axis", covering(CASES, SOME[:2], FLOATS, np.float16))
def test_mean(run: Run, dtype: Any, shape: tuple[int, ...], axis: int) -> None:
    x = numbers(shape, dtype)
    exact = np.mean(wide(x), axis=axis, keepdims=True)
    eps = float(ml_dtypes.finfo(dtype).eps)
    np.testing.assert_allclose(
        wide(run("reduction", "reduce_mean", x, axis=axis)), exact, rtol=eps, atol=4 * min(eps, 1e-7)
    )


@pytest.mark.parametrize(
    "op, dtype, shape, axis",
    [
        *(("max", *case) for case in covering(CASES + LONG[:3])),
        *(("min", *case) for case in covering(CASES[:4] + LONG[1:3], every=np.float16)),
    ],
)
def test_extremes_and_their_places(run: Run, dtype: Any, shape: tuple[int, ...], axis: int, op: str) -> None:
    for x in variants(numbers(shape, dtype)):
        value = run("reduction", f"reduce_{op}", x, axis=axis)
        place = run("reduction", f"arg{op}", x, axis=axis)
        assert place.dtype == np.int64
        np.testing.assert_array_equal(wide(value), getattr(np, op)(wide(x), axis=axis, keepdims=True))
        np.testing.assert_array_equal(place, getattr(np, f"arg{op}")(wide(x), axis=axis, keepdims=True))


def test_zeros_have_signs(run: Run) -> None:
    x = np.array([-0.0, 0.0, -0.0], np.float32)
    assert not np.signbit(run("reduction", "reduce_max", x, axis=0)[0])
    assert np.signbit(run("reduction", "reduce_min", x, axis=0)[0])


def test_no_elements(run: Run) -> None:
    for shape, axis in (((2, 0), 1), ((0, 3), 0), ((2, 0, 3), 1)):
        x = np.empty(shape, np.float32)
        np.testing.assert_array_equal(total(run, x, axis), np.sum(x, axis, keepdims=True))
        assert np.isnan(run("reduction", "reduce_mean", x, axis=axis)).all()
    for shape, axis in (((0, 3), 1), ((3, 0), 0), ((2, 3, 0), 1), ((0, 4, 2), 1)):
        x = np.empty(shape, np.float32)
        assert total(run, x, axis).size == 0
        for op in ("reduce_max", "argmax", "softmax"):
            assert run("reduction", op, x, axis=axis).size == 0


def softmax(x: Array, axis: int) -> Array:
    with np.errstate(all="ignore"):
        powers = np.exp(x - x.max(axis, keepdims=True))
        return np.asarray(powers / powers.sum(axis, keepdims=True))


def logsoftmax(x: Array, axis: int) -> Array:
    with np.errstate(all="ignore"):
        below = x - x.max(axis, keepdims=True)
        return np.asarray(below - np.log(np.exp(below).sum(axis, keepdims=True)))


@pytest.mark.parametrize(
    "dtype, shape, axis",
    covering(
        (*CASES, ((2, 4096), 1), ((2, 4097), 1), ((9001,), 0), ((700, 65), 1)),
        (*SOME[:2], ((2, 4097), 1)),
        FLOATS,
        np.float16,
    ),
)
def test_softmax(run: Run, dtype: Any, shape: tuple[int, ...], axis: int) -> None:
    eps = float(ml_dtypes.finfo(dtype).eps)
    single = min(eps, float(np.finfo(np.float32).eps))
    for x in variants(numbers(shape, dtype)):
        actual = wide(run("reduction", "softmax", x, axis=axis))
        smallest = float(ml_dtypes.finfo(dtype).smallest_subnormal)
        np.testing.assert_allclose(actual, softmax(wide(x), axis), rtol=eps + 30 * single, atol=2 * smallest)
        actual = wide(run("reduction", "logsoftmax", x, axis=axis))
        np.testing.assert_allclose(actual, logsoftmax(wide(x), axis), rtol=eps + 4 * single, atol=8 * single)


@pytest.mark.parametrize(
    "shape, axis", (((1, 5), 1), ((17, 5), 1), ((3, 300), 1), ((5, 3), 0), ((9000,), 0), ((4, 1), 1))
)
def test_variance_of_numbers_whose_squares_overflow_is_infinite(run: Run, shape: tuple[int, ...], axis: int) -> None:
    """NaN only of an element that is not finite, as NumPy has it; the row of equal numbers has no variance."""
    for dtype, scale in ((np.float64, 1e200), (np.float32, 1e30)):
        x: Array = (numbers(shape, np.float64) * scale).astype(dtype)
        with np.errstate(over="ignore"):
            expected = np.var(x, axis, keepdims=True)
        np.testing.assert_array_equal(run("reduction", "reduce_var", x, axis=axis), expected)
        np.testing.assert_array_equal(run("reduction", "reduce_var", np.full_like(x, scale), axis=axis), 0)
        x[(0,) * x.ndim] = math.inf
        assert math.isnan(run("reduction", "reduce_var", x, axis=axis).flat[0])


@pytest.mark.parametrize("n", (1, 3, 4, 17, 63))
def test_softmax_of_short_rows_has_the_bits_that_each_has_alone(run: Run, n: int) -> None:
    for dtype in (np.float32, np.float16):
        x = numbers((35, n), dtype)
        x[3], x[4, 0], x[5, n - 1], x[6, 0] = -math.inf, math.nan, -math.inf, math.inf
        for op in ("softmax", "logsoftmax"):
            expected = np.concatenate([run("reduction", op, row[None], axis=1) for row in x])
            np.testing.assert_array_equal(run("reduction", op, x, axis=1), expected)
            np.testing.assert_array_equal(run("reduction", op, x.reshape(5, 7, n), axis=2), expected.reshape(5, 7, n))


def test_softmax_of_large_numbers(run: Run) -> None:
    x = np.array([[1000.0, 999.0, -1000.0], [-3e38, -3e38, -3e38]], np.float32)
    np.testing.assert_allclose(run("reduction", "softmax", x, axis=1), softmax(x.astype(np.float64), 1), rtol=1e-6)
    late = np.full((1, 9000), -math.inf, np.float32)  # the first blocks of the row hold nothing finite
    late[0, 8000] = 5
    np.testing.assert_array_equal(run("reduction", "softmax", late, axis=1), (late > 0).astype(np.float32))


@pytest.mark.parametrize(
    "shape, axis", (((3, 5), 1), ((3, 5), 0), ((2, 3, 4), 1), ((3, 20011), 1), ((1, 3000, 300), 1), ((0, 3), 1))
)
def test_sizes_that_the_code_does_not_know(run: Run, run_symbolic: Run, shape: tuple[int, ...], axis: int) -> None:
    x = numbers(shape, np.float32)
    np.testing.assert_allclose(total(run_symbolic, x, axis), total(run, x, axis), rtol=2e-6, atol=1e-4)
    for op in ("reduce_max", "argmin", "softmax", "logsoftmax"):
        known, symbolic = run("reduction", op, x, axis=axis), run_symbolic("reduction", op, x, axis=axis)
        np.testing.assert_allclose(symbolic, known, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("target", ("sm_80", "gfx942", "x86-64-v3", "aarch64"))
@pytest.mark.parametrize("op", ("reduce_sum", "reduce_mean", "reduce_max", "argmin", "softmax", "logsoftmax"))
def test_other_targets(check_compiles: Callable[..., None], target: str, op: str) -> None:
    """One axis on CPUs, which have that of `host` and differ in what LLVM makes of it."""
    for axis in (0, 1) if target in ("sm_80", "gfx942") else (1,):
        outputs = [(DType.bfloat16, (3, 1) if axis else (1, 5))] if op == "reduce_sum" else None
        check_compiles(target, "reduction", op, [(DType.bfloat16, (3, 5))], outputs, axis=axis)
