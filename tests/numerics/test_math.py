"""The functions of mathematics: how far they are from the truth, and that the table of docs/numerics.md says so.

Oracles: NumPy's float64 functions for float32, mpmath for float64 (see `benchmarks/truths.py`). All numbers of float32
are tried by `benchmarks/accuracy.py`, here some.
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
from mpmath import mp, mpf
from truths import BESSEL, BINARY, BOUNDS, NUMPY, UNARY, distance, precise, precision, samples, size_of, ulps

from einkorn.dsl import DType

KERNELS = Path(__file__).parent / "kernels_math.py"
PAGE = Path(__file__).parents[2] / "docs" / "numerics.md"
FUNCTIONS = UNARY + BINARY
INF = math.inf

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]


def same(a: Array, b: Array) -> Array:
    """Equal with the sign of zero, or both NaN."""
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_close_to_the_truth(name: str, run_kernel: Run) -> None:
    x = [values[:60_000] for values in samples(name, np.float32, 600 if name in BESSEL else 80_000)]
    (got,) = run_kernel(KERNELS, f"{name}_each", x)
    with np.errstate(all="ignore"):
        errors = ulps(got, NUMPY[name](*(values.astype(np.float64) for values in x)))
    worst = int(np.argmax(errors))
    at = [float(values[worst]) for values in x]
    assert errors[worst] <= BOUNDS[name][0], f"{name}{at} = {got[worst]!r}: {errors[worst]} ulp"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_close_to_the_truth(name: str, run_kernel: Run) -> None:
    x = samples(name, np.float64, 200 if name in BESSEL else 800)
    (got,) = run_kernel(KERNELS, f"{name}_each", x)
    function = precise(name)
    with mp.workprec(precision(name)):
        for value, *at in zip(got, *x, strict=True):
            truth = function(*(mpf(float(a)) for a in at))
            error = distance(float(value), truth, np.float64, size_of(name, truth, mpf(float(at[0]))))
            assert error <= BOUNDS[name][1], f"{name}{at} = {value!r}: {error} ulp"


def test_lgamma_below_zero_is_close_to_its_neighbours_size(run_kernel: Run) -> None:
    x = np.concatenate([np.linspace(-40, 0, 801)[1:-1], [-2.4570247382208006, -2.7476826467274127, -1e-30]])
    x = x[x != np.floor(x)]
    (got,) = run_kernel(KERNELS, "lgamma_each", [x])
    (narrow,) = run_kernel(KERNELS, "lgamma_each", [x.astype(np.float32)])
    with mp.workprec(200):
        for at, value in zip(x, got, strict=True):
            truth = precise("lgamma")(mpf(float(at)))
            assert abs(mpf(float(value)) - truth) <= mpf(2) ** -52 * max(1, abs(truth)), at
        for at32, value32 in zip(x.astype(np.float32), narrow, strict=True):
            assert distance(float(value32), precise("lgamma")(mpf(float(at32))), np.float32) <= 1, at32


def test_lgamma_of_a_float32_is_right_next_to_its_zeros(run_kernel: Run) -> None:
    """Below -2 there are two zeros between whole numbers, until no float32 is left between zero and number."""
    lgamma = precise("lgamma")
    next_to: list[np.float32] = []
    with mp.workprec(200):
        for whole in range(2, 12):
            for end in (np.float32(whole), np.float32(whole + 1)):  # |gamma(-x)| is infinite there, and below 1 between
                low, high = np.float32(whole + 0.5), end
                while (middle := np.float32((low + high) / 2)) not in (low, high):
                    low, high = (middle, high) if lgamma(mpf(-float(middle))) < 0 else (low, middle)
                for side in (low - end, end - low):
                    at = low
                    for _ in range(4):
                        next_to.append(at)
                        at = np.nextafter(at, np.float32(at + side))
        x = -np.array([at for at in next_to if at != np.floor(at)], np.float32)
        (got,) = run_kernel(KERNELS, "lgamma_each", [x])
        errors = [distance(float(y), lgamma(mpf(float(at))), np.float32) for at, y in zip(x, got, strict=True)]
    assert len(x) > 100 and max(errors) < 0.75, (max(errors), x[int(np.argmax(errors))])


def test_the_table_of_errors_names_every_function_with_its_bounds() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("<!-- table: accuracy -->")[2].partition("<!--")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \| [^|]+ \| ([\d.]+) \| ([\d.]+) \|$", table, re.MULTILINE)
    assert tuple(row[0] for row in rows) == FUNCTIONS
    for name, low, low_found, high, high_found in rows:
        assert (float(low), float(high)) == BOUNDS[name]
        assert 0.4 < float(low_found) <= float(low) and 0.4 < float(high_found) <= float(high), name


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["exp", "sin", "lgamma", "cbrt", "tanh", "acos", "gamma", "j0"])
def test_half_types_compute_through_float32(name: str, dtype: Any, run_kernel: Run) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    (got,) = run_kernel(KERNELS, f"{name}_each", [every])
    (wide,) = run_kernel(KERNELS, f"{name}_each", [every.astype(np.float32)])
    with np.errstate(all="ignore"):
        assert same(got, wide.astype(dtype)).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", ["pow", "atan2", "hypot", "remainder"])
def test_half_types_of_two_numbers_compute_through_float32(name: str, dtype: Any, run_kernel: Run) -> None:
    rng = np.random.default_rng(23)
    x, y = (rng.integers(0, 1 << 16, 3000, dtype=np.uint16).view(dtype) for _ in range(2))
    (got,) = run_kernel(KERNELS, f"{name}_each", [x, y])
    (wide,) = run_kernel(KERNELS, f"{name}_each", [x.astype(np.float32), y.astype(np.float32)])
    with np.errstate(all="ignore"):
        assert same(got, wide.astype(dtype)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_give_the_bits_of_scalars(dtype: Any, run_kernel: Run) -> None:
    edges = [1e30, 0.0, -0.0, -1.0, INF, -INF, math.nan, 1e-40, 3e8, -2e9, 1e-6, 700.0, -700.0, 88.0, 4.0, 1.0]
    with np.errstate(over="ignore"):
        x = np.concatenate([np.linspace(0.1, 9, 48), edges]).astype(dtype)
    count = len(FUNCTIONS)
    (rows,) = run_kernel(KERNELS, "vectors", [x], outputs=[(DType.from_numpy(x.dtype), (count, 64))])
    (scalars,) = run_kernel(KERNELS, "scalars", [x], outputs=[(DType.from_numpy(x.dtype), (count, 64))])
    for name, row, want in zip(FUNCTIONS, rows, scalars, strict=True):
        assert same(row, want).all(), name


def test_what_is_computed_at_compile_time_has_the_same_bits(run_kernel: Run) -> None:
    x = np.array([0.7])
    outputs = [(DType.float64, (len(FUNCTIONS), 1))]
    (folded,) = run_kernel(KERNELS, "folded", [x], outputs=outputs)
    assert same(folded, run_kernel(KERNELS, "scalars", [x], outputs=outputs)[0]).all()


# *** exponents and remainders ***


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_frexp_and_ldexp_are_exact(dtype: Any, run_kernel: Run) -> None:
    info = np.finfo(dtype)
    rng = np.random.default_rng(24)
    low, high = int(info.minexp - info.nmant), int(info.maxexp)
    x = np.ldexp(rng.uniform(-2, 2, 1000), rng.integers(low, high, 1000)).astype(dtype)
    x = np.concatenate([x, np.array([0.0, -0.0, INF, -INF, math.nan, info.max, info.tiny], dtype)])
    with np.errstate(all="ignore"):
        mantissa, exponent = np.frexp(x)
    got, got_exponent = run_kernel(KERNELS, "frexp_each", [x])
    assert same(got, mantissa).all()
    ordinary = np.isfinite(x)
    assert got_exponent.dtype == np.int32 and np.array_equal(got_exponent[ordinary], exponent[ordinary])
    assert (got_exponent[~ordinary] == 0).all()
    n = rng.integers(-2 * high - 80, 2 * high + 80, x.size)
    n[:4] = [2**31 - 1, -(2**31), 2 * high, 0]
    with np.errstate(all="ignore"):
        want = np.ldexp(x.astype(np.float32) if dtype is np.float16 else x, n.astype(np.int32)).astype(dtype)
    assert same(run_kernel(KERNELS, "ldexp_each", [x, n.astype(np.int64)])[0], want).all()
    assert same(run_kernel(KERNELS, "ldexp_each", [x, n.astype(np.int32)])[0], want).all()
    n = np.array([2**64 - 1, 2**63, 5, 0] * 8, np.uint64)
    (got,) = run_kernel(KERNELS, "ldexp_each", [np.ones(32, dtype), n])
    assert np.array_equal(got, np.array([INF, INF, 32, 1] * 8, dtype))
    with np.errstate(over="ignore"):
        assert same(run_kernel(KERNELS, "eightfold", [x])[0], x * dtype(8)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_are_exact(dtype: Any, run_kernel: Run) -> None:
    rng = np.random.default_rng(25)
    info = np.finfo(dtype)
    odd = [0.0, -0.0, 1.0, -1.5, 2.5, 3.0, INF, -INF, math.nan, float(info.smallest_subnormal), float(info.max)]
    pairs = [part.ravel() for part in np.meshgrid(odd, odd)]
    whole = rng.integers(-40, 40, 900) / 2, rng.integers(1, 9, 900)
    wide = [rng.normal(size=900) * 2.0 ** rng.integers(-100, 100, 900) for _ in range(2)]
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    x, y = (np.concatenate(parts).astype(dtype) for parts in zip(pairs, whole, wide, strict=True))
    # Any two numbers: quotients of hundreds of bits, and subnormal numbers below any others.
    top = np.iinfo(unsigned).max
    bits, other = (rng.integers(0, top, 3000, unsigned).view(dtype) for _ in range(2))
    tiny = rng.integers(0, 1 << info.nmant, 3000, unsigned).view(dtype)
    multiples = x[-900:] * rng.integers(1, 1 << 12, 900).astype(dtype)
    above = np.nextafter(multiples, dtype(INF))
    y = np.concatenate([y, other, tiny, tiny[::-1], x[-900:], x[-900:]])
    x = np.concatenate([x, bits, bits, tiny, multiples, above])
    for name, function in (("remainder", math.remainder), ("fmod", math.fmod)):
        want = np.array([c99(function, float(a), float(b)) for a, b in zip(x, y, strict=True)])
        assert same(run_kernel(KERNELS, f"{name}_each", [x, y])[0], want.astype(dtype)).all(), name
    with np.errstate(all="ignore"):
        rest = np.fmod(x, y)
        want = np.where(rest == 0, np.copysign(rest, y), np.where((rest < 0) != (y < 0), rest + y, rest))
    assert same(run_kernel(KERNELS, "mod_each", [x, y])[0], want).all()


def c99(function: Callable[..., float], *arguments: float) -> float:
    """Python's own, with C's answer where Python raises an error."""
    try:
        return function(*arguments)
    except ValueError:
        return math.nan
