"""Special values of mathematics: what C99 (annex F) says of 0, infinity, NaN and the ends of domains.

Oracles: the table of docs/numerics.md for functions of one number, checked here against NumPy and Python's `math`, and
these for functions of two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from truths import NUMPY, UNARY

KERNELS = Path(__file__).parent / "kernels_math.py"
PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"
INF, NAN = math.inf, math.nan
FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]


def same(a: Array, b: Array) -> Array:
    """Equal with the sign of zero, or both NaN."""
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def number(text: str) -> float:
    return float(text.replace("infinity", "inf").strip())


def special_values() -> dict[str, list[tuple[float, float]]]:
    """Arguments and results, as the page has them."""
    text = PAGE.read_text(encoding="utf-8").partition("Special values follow C99")[2].partition("\n## ")[0]
    table: dict[str, list[tuple[float, float]]] = {}
    for row in re.findall(r"^\| (`.*) \|$", text, re.MULTILINE):
        names, *cells, others = [cell.strip() for cell in row.split("|")]
        pairs = [(at, number(cell)) for at, cell in zip((0.0, -0.0, INF, -INF), cells, strict=True) if cell]
        for pair in filter(None, others.split(";")):
            at, _, result = pair.partition(":")
            pairs.append((number(at), number(result)))
        for name in re.findall(r"`(\w+)`", names):
            table[name] = [*pairs, (NAN, NAN)]
    return table


def test_the_page_names_every_function_and_agrees_with_others() -> None:
    table = special_values()
    assert set(table) == set(UNARY)
    for name, pairs in table.items():
        x, want = (np.array(column) for column in zip(*pairs, strict=True))
        with np.errstate(all="ignore"):
            assert same(np.asarray(NUMPY[name](x), float), want).all(), name


@pytest.mark.parametrize("name", UNARY)
def test_special_values(name: str, run_kernel: Run) -> None:
    x, want = (np.array(column) for column in zip(*special_values()[name], strict=True))
    for dtype in FLOATS if name in ("exp", "atan", "lgamma") else FLOATS[2:]:
        # As many of them as other tests have numbers, so that nothing is compiled once more.
        (got,) = run_kernel(KERNELS, f"{name}_each", [x.astype(dtype)])
        assert same(got.astype(np.float64), want).all(), (dtype, x, got)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_values_of_two_numbers(dtype: Any, run_kernel: Run) -> None:
    info = np.finfo(dtype)
    numbers = [0.0, 1.0, 0.5, 3.0, 1e30, float(info.smallest_subnormal), float(info.max), INF, NAN]
    numbers = [*numbers, *(-v for v in numbers)]
    x, y = (np.array(v, dtype).ravel() for v in np.meshgrid(numbers, numbers))
    for name, function in (("atan2", math.atan2), ("hypot", math.hypot)):
        (got,) = run_kernel(KERNELS, f"{name}_each", [x, y])
        want = np.array([function(float(a), float(b)) for a, b in zip(x, y, strict=True)])
        with np.errstate(all="ignore"):
            want = want.astype(dtype)
            near = np.isfinite(want) & (np.abs(got - want) <= np.spacing(np.abs(want)))
        assert ((near & (np.signbit(got) == np.signbit(want))) | same(got, want)).all(), name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_subnormal_results_and_arguments(dtype: Any, run_kernel: Run) -> None:
    info = np.finfo(dtype)
    exponents = np.arange(info.minexp - info.nmant - 2, info.minexp + 2).astype(dtype)
    (got,) = run_kernel(KERNELS, "exp2_each", [exponents])
    assert np.array_equal(got, np.ldexp(dtype(1), exponents.astype(np.int32)))
    assert got[0] == got[1] == 0 < got[2] == info.smallest_subnormal  # a tie goes to the even 0
    positive = got[2:]
    (logs,) = run_kernel(KERNELS, "log2_each", [positive])
    assert np.array_equal(logs, exponents[2:])
    for name in ("sin", "tanh"):
        assert np.array_equal(run_kernel(KERNELS, f"{name}_each", [positive])[0], positive)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_are_the_same_next_to_rare_ones(dtype: Any, run_kernel: Run) -> None:
    info = np.finfo(dtype)
    rng = np.random.default_rng(27)
    x = (2.0 ** rng.uniform(-3, 3, 2000)).astype(dtype)
    y = (rng.uniform(-0.3, 0.3, 2000) * info.maxexp / np.log2(x)).astype(dtype)
    (alone,) = run_kernel(KERNELS, "pow_each", [x, y])
    x[::7], y[::5] = info.smallest_subnormal, info.max
    (next_to,) = run_kernel(KERNELS, "pow_each", [x, y])
    ordinary = (np.arange(2000) % 7 != 0) & (np.arange(2000) % 5 != 0)
    assert np.array_equal(alone[ordinary], next_to[ordinary])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_special_powers(dtype: Any, run_kernel: Run) -> None:
    tiny, huge = float(np.finfo(dtype).smallest_subnormal), float(np.finfo(dtype).max)
    numbers = [0.0, 1.0, 0.5, 2.0, 3.0, 1.5, 2.0**24 + 2, 1e30, tiny, huge, INF, NAN]
    numbers = [*numbers, *(-v for v in numbers)]
    x, y = (np.array(v, dtype).ravel() for v in np.meshgrid(numbers, numbers))
    (got,) = run_kernel(KERNELS, "pow_each", [x, y])
    want = np.array([c99_pow(float(a), float(b)) for a, b in zip(x, y, strict=True)])
    kinds = np.isfinite(want) & (want != 0)
    assert same(got[~kinds].astype(np.float64), want[~kinds]).all()
    with np.errstate(all="ignore"):
        ratio = got[kinds].astype(np.float64) / want[kinds]
    inside = np.abs(np.log2(np.abs(want[kinds]))) < np.finfo(dtype).maxexp - 2
    assert np.all(np.abs(ratio[inside] - 1) < 2 * np.finfo(dtype).eps)


def c99_pow(x: float, y: float) -> float:
    """Python's own, with C's answers where Python raises an error."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -INF if x < 0 and y % 2 == 1 else INF
    except ValueError:
        if x == 0:  # and y < 0
            return math.copysign(INF, x) if y % 2 == 1 else INF
        return NAN


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint64])
def test_powers_of_whole_numbers_wrap(dtype: Any, run_kernel: Run) -> None:
    info = np.iinfo(dtype)
    x = np.array([0, 0, 1, 2, 3, 7, 2, 5, info.max, info.min, 3], dtype)
    y = np.array([0, 3, 9, 5, 4, 2, info.bits, 3, 3, 2, 100], dtype)
    want = [pow(int(a), int(b), 1 << info.bits) for a, b in zip(x, y, strict=True)]
    assert [int(v) % (1 << info.bits) for v in run_kernel(KERNELS, "pow_each", [x, y])[0]] == want
    assert np.array_equal(run_kernel(KERNELS, "square", [x])[0], x * x)


def test_negative_powers_of_whole_numbers(run_kernel: Run) -> None:
    x = np.array([2, 1, -1, -1, 0, 100], np.int32)
    y = np.array([-1, -5, -3, -4, -1, -(2**31)], np.int32)
    assert run_kernel(KERNELS, "pow_each", [x, y])[0].tolist() == [0, 1, -1, 1, 0, 0]
