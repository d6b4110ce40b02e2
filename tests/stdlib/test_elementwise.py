"""Elementwise kernels against NumPy, for all dtypes; what every element means is defined in `REFERENCE`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
Run = Callable[..., Array]

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
SHAPES = ((1,), (37,), (0,), (3, 5), (2, 0, 3), (2, 3, 1, 7))
# Shapes are the same to every operation: each takes all of them in float32, sums in dtypes of other widths,
# too, and the rest is of one shape.
WIDTHS = (np.float32, np.float64, ml_dtypes.bfloat16, np.int8)
SHAPES_OF = defaultdict(lambda: SHAPES[1:2], {np.float32: SHAPES})
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 3.0, math.inf, -math.inf, math.nan, 65000.0, 1e-6)

EXACT_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
EXACT_UNARY: dict[str, Callable[..., Any]] = {
    "negate": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
}
ULPS: dict[str, tuple[Callable[..., Any], float]] = {
    # against float64: the bound in units of the result's last place, plus what the reference itself may be off
    "exp": (np.exp, 2),
    "log": (np.log, 2),
    "log1p": (np.log1p, 2),
    "acos": (lambda x: np.arccos(np.clip(x, -1, 1)), 2),
    "atanh": (np.arctanh, 2),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2),
    "sin": (np.sin, 2),
    "cos": (np.cos, 2),
    "tanh": (np.tanh, 3),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 4),
    "silu": (lambda x: x / (1 + np.exp(-x)), 4),
}


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    """Values over a dtype's range for integers; for floats small numbers, and special ones where there is room."""
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return generator.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = generator.standard_normal(shape) * 4
    flat = values.reshape(-1)
    if flat.size > 20:
        flat[: len(SPECIAL)] = np.roll(SPECIAL, seed)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def equal(actual: Array, expected: Array) -> None:
    """Equal numbers, and NaN where NaN is expected."""
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual.astype(np.float64), expected.astype(np.float64))


def in_float32(function: Callable[..., Any], *arrays: Array) -> Array:
    """Half types compute in float32 and are rounded once; all other types as they are."""
    with np.errstate(all="ignore"):
        if arrays[0].dtype.itemsize == 2 and arrays[0].dtype.kind not in "iu":
            return np.asarray(function(*(a.astype(np.float32) for a in arrays))).astype(arrays[0].dtype)
        return np.asarray(function(*arrays))


@pytest.mark.parametrize("op", EXACT_BINARY)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
def test_exact_binary(run: Run, op: str, dtype: Any) -> None:
    for shape in SHAPES if op == "add" and dtype in WIDTHS else SHAPES_OF[dtype]:
        x, y = numbers(shape, dtype, 1), numbers(shape, dtype, 3)
        equal(run("elementwise", op, x, y), in_float32(EXACT_BINARY[op], x, y))


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_of_floats(run: Run, dtype: Any) -> None:
    x, y = numbers((5, 41), dtype, 1), numbers((5, 41), dtype, 4)
    equal(run("elementwise", "div", x, y), in_float32(np.divide, x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_floor_division_of_integers(run: Run, dtype: Any) -> None:
    x, y = numbers((300,), dtype, 1), numbers((300,), dtype, 2)
    y[:150] = np.arange(150) % 5  # small divisors, 0 among them
    if np.dtype(dtype).kind == "i":
        y[:50] = -y[:50]
        x[:2], y[:2] = np.iinfo(dtype).min, -1
    with np.errstate(all="ignore"):
        equal(run("elementwise", "floordiv", x, y), np.floor_divide(x, y))
        equal(run("elementwise", "mod", x, y), np.remainder(x, y))


@pytest.mark.parametrize("dtype", (np.float32, np.float64))
def test_floor_division_of_floats(run: Run, dtype: Any) -> None:
    x = np.array([7, -7, 7, -7, 1, 0, math.nan, 3, 5.5, 1, 0.0], dtype)
    y = np.array([2, 2, -2, -2, 0, 0, 1, math.nan, -1.25, 0.1, -3], dtype)
    with np.errstate(all="ignore"):
        equal(run("elementwise", "floordiv", x, y), np.floor_divide(x, y))
        equal(run("elementwise", "mod", x, y), np.remainder(x, y))


# Every comparison in a dtype of each class; the other dtypes differ in how elements are read, which is the same to all.
COMPARED = [(op, d) for op in COMPARISONS for d in FLOATS + INTEGERS if op == "less" or d in (*WIDTHS, np.uint32)]


@pytest.mark.parametrize("op, dtype", COMPARED)
def test_comparisons(run: Run, op: str, dtype: Any) -> None:
    x, y = numbers((3, 29), dtype, 1), numbers((3, 29), dtype, 2)
    y[:, ::3] = x[:, ::3]
    actual = run("elementwise", op, x, y)
    assert actual.dtype == np.bool_
    np.testing.assert_array_equal(
        actual,
        COMPARISONS[op](x.astype(np.float64), y.astype(np.float64))
        if np.dtype(dtype).kind not in "iu"
        else COMPARISONS[op](x, y),
    )


def test_logic(run: Run) -> None:
    x = np.array([False, False, True, True])
    y = np.array([False, True, False, True])
    for name, function in (("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)):
        np.testing.assert_array_equal(run("elementwise", f"logical_{name}", x, y), function(x, y))
    np.testing.assert_array_equal(run("elementwise", "logical_not", x), ~x)
    np.testing.assert_array_equal(run("elementwise", "equal", x, y), x == y)


@pytest.mark.parametrize("op", EXACT_UNARY)
@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_unary(run: Run, op: str, dtype: Any) -> None:
    for shape in SHAPES_OF[dtype]:
        x = numbers(shape, dtype, 2)
        equal(run("elementwise", op, x), in_float32(EXACT_UNARY[op], x))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_unary_of_integers(run: Run, dtype: Any) -> None:
    x = numbers((61,), dtype, 1)
    x[:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    equal(run("elementwise", "negate", x), np.negative(x))
    equal(run("elementwise", "abs", x), np.abs(x))
    equal(run("elementwise", "relu", x), np.maximum(x, np.zeros_like(x)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_relu_and_predicates(run: Run, dtype: Any) -> None:
    x = numbers((60,), dtype, 0)
    wide = x.astype(np.float64)
    equal(run("elementwise", "relu", x), np.where(wide < 0, 0, wide).astype(dtype))
    np.testing.assert_array_equal(run("elementwise", "is_nan", x), np.isnan(wide))
    np.testing.assert_array_equal(run("elementwise", "is_inf", x), np.isinf(wide))


def check_ulps(actual: Array, expected: Array, bound: float) -> None:
    """`expected` is in float64. A unit is that of the result's dtype; below its normal numbers it stays what it is."""
    info = ml_dtypes.finfo(actual.dtype)
    with np.errstate(all="ignore"):
        rounded = expected.astype(actual.dtype).astype(np.float64)
        wide = actual.astype(np.float64)
        unit = np.maximum(np.abs(expected), float(info.tiny)) * float(info.eps)
        far = ~(np.abs(wide - expected) <= bound * unit) & (wide != rounded)
    far &= ~(np.isnan(wide) & np.isnan(rounded))
    assert not far.any(), (actual[far][:4], expected[far][:4])


@pytest.mark.parametrize("op", ULPS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions(run: Run, op: str, dtype: Any) -> None:
    x = numbers((7, 143), dtype, 0)
    function, bound = ULPS[op]
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.longdouble)).astype(np.float64)
    check_ulps(run("elementwise", op, x), expected, bound)


@pytest.mark.parametrize("dtype", FLOATS)
def test_erf_and_gelu(run: Run, dtype: Any) -> None:
    x = np.linspace(-6, 6, 301).astype(dtype)
    wide = x.astype(np.float64)
    erf = np.array([math.erf(v) for v in wide])
    check_ulps(run("elementwise", "erf", x), erf, 3)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    expected = {
        "none": wide * 0.5 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in wide])),
        "tanh": 0.5 * wide * (1 + np.tanh(inner)),
        "quick": wide / (1 + np.exp(-1.702 * wide)),
    }
    eps = float(ml_dtypes.finfo(np.float32 if np.dtype(dtype).itemsize == 2 else dtype).eps)
    for approximate, values in expected.items():
        actual = run("elementwise", "gelu", x, approximate=approximate).astype(np.float64)
        # 1 + erf loses digits where erf is near -1: the error is absolute there.
        tolerance = 8 * eps * np.abs(wide) + float(ml_dtypes.finfo(dtype).eps) * np.abs(values) + 1e-7 * (eps > 1e-10)
        assert (np.abs(actual - values) <= tolerance).all(), approximate


@pytest.mark.parametrize("dtype", INTEGERS)
def test_power_of_integers_wraps(run: Run, dtype: Any) -> None:
    x = numbers((64,), dtype, 1)
    y = (np.arange(64) % 9).astype(dtype)
    equal(run("elementwise", "pow", x, y), np.power(x, y))


def test_where_and_clamp(run: Run) -> None:
    condition = np.array([True, False, True, False, True])
    for dtype in (*FLOATS, *INTEGERS, np.bool_):
        x, y = (np.arange(5) % 2).astype(dtype), np.ones(5, dtype)
        np.testing.assert_array_equal(run("elementwise", "where", condition, x, y), np.where(condition, x, y))
    x = np.array([-3, 0, 9, math.nan, 2], np.float32)
    low, high = np.full(5, -1, np.float32), np.full(5, 3, np.float32)
    equal(run("elementwise", "clamp", x, low, high), np.clip(x, low, high))


CASTS = (*FLOATS, *INTEGERS, np.bool_)
# From and to every dtype. The language's own tests cast each to each, by the same code.
USUAL = (np.float32, np.int64, np.bool_)


@pytest.mark.parametrize("source, to", [(a, b) for a in CASTS for b in CASTS if a in USUAL or b in USUAL])
def test_cast(run: Run, source: Any, to: Any) -> None:
    if source is np.bool_:
        x = np.array([True, False, True])
    elif np.dtype(source).kind in "iu":
        info = np.iinfo(source)
        x = np.array([0, 1, 2, 100, info.max, info.min, info.max // 3], source)
    else:
        x = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 100.25, 1e-3], np.float64).astype(source)
    target = DType.from_numpy(np.dtype(to))
    if np.dtype(to).kind == "u" and np.dtype(source).kind not in "iub":
        x = np.abs(x)
    with np.errstate(all="ignore"):
        expected = x.astype(to) if to is not np.bool_ else x != 0
    if to in (np.float16, ml_dtypes.bfloat16) and np.dtype(source).kind == "i" and np.dtype(source).itemsize == 8:
        pytest.skip("NumPy rounds large integers twice here")
    with np.errstate(all="ignore"):
        actual = run("elementwise", "cast", x, outputs=[(target, x.shape)], dtype=target)
    equal(actual, expected)


def test_cast_of_floats_saturates(run: Run) -> None:
    x = np.array([300, -300, math.inf, -math.inf, math.nan, 127.9], np.float32)
    for dtype, expected in ((np.int8, [127, -128, 127, -128, 0, 127]), (np.uint8, [255, 0, 255, 0, 0, 127])):
        target = DType.from_numpy(np.dtype(dtype))
        actual = run("elementwise", "cast", x, outputs=[(target, x.shape)], dtype=target)
        np.testing.assert_array_equal(actual, np.array(expected, dtype))


@pytest.mark.parametrize("target", ("sm_80", "gfx942", "x86-64-v3", "aarch64"))
@pytest.mark.parametrize("op", ("add", "mod", "gelu", "where"))
def test_other_targets(check_compiles: Callable[..., None], target: str, op: str) -> None:
    types = [(DType.bfloat16, (3, 5))] * (1 if op == "gelu" else 2)
    if op == "where":
        types = [(DType.bool, (3, 5)), *types]
    check_compiles(target, "elementwise", op, types)
