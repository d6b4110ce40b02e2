"""The functions of mathematics: how far they are from the truth, what they do at the edges, and what code they become.

Oracles: NumPy's float64 functions for float32, mpmath for float64, C99's table of special values, and the scalar code
for the vector code.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.dsl import DType

KERNELS = Path(__file__).parent / "kernels_math.py"
FUNCTIONS = ("rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf")
INF, NAN = math.inf, math.nan

# What docs/numerics.md promises, in units in the last place.
LIMITS = {
    np.float32: dict.fromkeys(FUNCTIONS, 1.0) | {"rsqrt": 0.51, "sin": 0.51, "cos": 0.51, "pow": 0.51},
    np.float64: dict.fromkeys(FUNCTIONS, 1.0) | {"rsqrt": 0.51, "pow": 0.75},
}

NUMPY: dict[str, Callable[[Any], Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": lambda x: np.array([math.erf(v) for v in x]),
}

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]


def spread(rng: np.random.Generator, count: int, low: int, high: int, dtype: Any) -> Array:
    """Numbers of both signs with exponents from low to high, all equally likely."""
    sign = rng.choice([-1.0, 1.0], count)
    return (sign * np.ldexp(rng.uniform(1, 2, count), rng.integers(low, high, count))).astype(dtype)


def samples(name: str, dtype: Any, count: int) -> Array:
    """Numbers from every part of a function's domain, the hard parts among them."""
    rng = np.random.default_rng(20)
    info = np.finfo(dtype)
    smallest, largest = info.minexp - info.nmant, info.maxexp
    quarter = count // 4
    if name in ("exp", "exp2"):
        scale = 1.0 if name == "exp2" else math.log(2)
        low, high = (smallest - 1) * scale, largest * scale
        parts = [rng.uniform(low, high, 3 * quarter), rng.uniform(low, 0.8 * low, quarter), rng.uniform(-1, 1, quarter)]
    elif name in ("log", "log2", "rsqrt"):
        near = 1 + rng.uniform(-1, 1, quarter) * 2.0 ** -rng.uniform(1, info.nmant, quarter)
        parts = [np.abs(spread(rng, 2 * quarter, smallest, largest, dtype)), rng.uniform(0.5, 2, quarter), near]
    elif name in ("sin", "cos"):
        turns = rng.integers(1, 1 << 20, quarter) * (math.pi / 2)
        near = turns * (1 + rng.uniform(-1, 1, quarter) * 2.0 ** -rng.uniform(0, info.nmant, quarter))
        parts = [rng.uniform(-10, 10, quarter), spread(rng, 2 * quarter, -30, largest, dtype), near]
    else:
        parts = [rng.uniform(-w, w, quarter) for w in (1, 4, 20)] + [spread(rng, quarter, -30, 4, dtype)]
    return np.concatenate([np.asarray(part, dtype) for part in parts])


def ulps(got: Array, truth: Array) -> Array:
    """The distance in units in the last place of the truth, for float32 against float64."""
    exponent = np.maximum(np.frexp(truth)[1], -125)
    unit = np.ldexp(1.0, exponent - 24)
    beyond = np.ldexp(1.0, 128)  # what infinity stands for
    return np.abs(np.clip(got.astype(np.float64), -beyond, beyond) - np.clip(truth, -beyond, beyond)) / unit


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_is_close_to_the_truth(name: str, run_kernel: Run) -> None:
    x = samples(name, np.float32, 100_000)
    (got,) = run_kernel(KERNELS, f"{name}_each", [x])
    with np.errstate(all="ignore"):
        errors = ulps(got, NUMPY[name](x.astype(np.float64)))
    worst = int(np.argmax(errors))
    assert errors[worst] <= LIMITS[np.float32][name], f"{name}({x[worst]!r}) = {got[worst]!r}: {errors[worst]} ulp"


def distance(mpmath: Any, got: float, truth: Any, dtype: Any) -> float:
    """The same for one number against one of mpmath's."""
    info = np.finfo(dtype)
    if not math.isfinite(got):
        got_exact = mpmath.mpf(2) ** info.maxexp * (1 if got > 0 else -1) if got == got else mpmath.inf
    else:
        got_exact = mpmath.mpf(got)
    if truth == 0:
        return 0.0 if got == 0 else INF
    limit = mpmath.mpf(2) ** info.maxexp
    truth = max(-limit, min(limit, truth))
    exponent = max(mpmath.frexp(abs(truth))[1] - 1, info.minexp)
    return float(abs(got_exact - truth) / mpmath.mpf(2) ** (exponent - info.nmant))


def precise(mpmath: Any, name: str) -> Callable[[Any], Any]:
    table = {"rsqrt": lambda x: 1 / mpmath.sqrt(x), "exp2": lambda x: mpmath.mpf(2) ** x}
    table["log2"] = lambda x: mpmath.log(x, 2)
    return table.get(name) or getattr(mpmath, name)  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_is_close_to_the_truth(name: str, run_kernel: Run) -> None:
    mpmath = pytest.importorskip("mpmath")
    x = samples(name, np.float64, 2_000)
    (got,) = run_kernel(KERNELS, f"{name}_each", [x])
    function = precise(mpmath, name)
    with mpmath.workprec(1300 if name in ("sin", "cos") else 140):
        errors = [
            distance(mpmath, float(b), function(mpmath.mpf(float(a))), np.float64) for a, b in zip(x, got, strict=True)
        ]
    worst = int(np.argmax(errors))
    assert errors[worst] <= LIMITS[np.float64][name], f"{name}({x[worst]!r}) = {got[worst]!r}: {errors[worst]} ulp"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_powers_are_close_to_the_truth(dtype: Any, run_kernel: Run) -> None:
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(21)
    info = np.finfo(dtype)
    bases = np.concatenate(
        [
            np.abs(spread(rng, 500, info.minexp - info.nmant, info.maxexp, dtype)),
            1 + rng.uniform(-1, 1, 500) * 2.0 ** -rng.uniform(1, info.nmant - 1, 500),
        ]
    ).astype(dtype)
    bases = bases[bases != 1]
    # Powers whose result lies anywhere between the smallest and the largest number, and a little beyond.
    powers = rng.uniform(-1.03, 1.03, bases.size) * info.maxexp * math.log(2) / np.log(bases.astype(np.float64))
    powers = powers.astype(dtype)
    bases = np.concatenate([bases, -rng.uniform(0.1, 4, 500).astype(dtype)])
    powers = np.concatenate([powers, rng.integers(-60, 60, 500).astype(dtype)])
    (got,) = run_kernel(KERNELS, "pow_each", [bases, powers])
    with mpmath.workprec(200):
        for x, y, z in zip(bases, powers, got, strict=True):
            truth = mpmath.power(mpmath.mpf(float(x)), int(y) if x < 0 else mpmath.mpf(float(y)))
            error = distance(mpmath, float(z), mpmath.re(truth), dtype)
            assert error <= LIMITS[dtype]["pow"], f"{x!r} ** {y!r} = {z!r}: {error} ulp"


SPECIAL = {  # for 0, -0, inf, -inf, nan
    "rsqrt": (INF, -INF, 0.0, NAN, NAN),
    "exp": (1.0, 1.0, INF, 0.0, NAN),
    "exp2": (1.0, 1.0, INF, 0.0, NAN),
    "log": (-INF, -INF, INF, NAN, NAN),
    "log2": (-INF, -INF, INF, NAN, NAN),
    "sin": (0.0, -0.0, NAN, NAN, NAN),
    "cos": (1.0, 1.0, NAN, NAN, NAN),
    "tanh": (0.0, -0.0, 1.0, -1.0, NAN),
    "erf": (0.0, -0.0, 1.0, -1.0, NAN),
}
FLOATS = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)


def same(a: Array, b: Array) -> Array:
    """Equal with the sign of zero, or both NaN."""
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, dtype: Any, run_kernel: Run) -> None:
    (got,) = run_kernel(KERNELS, f"{name}_each", [np.array([0.0, -0.0, INF, -INF, NAN], dtype)])
    assert same(got.astype(np.float64), np.array(SPECIAL[name])).all(), got


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


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_half_types_compute_through_float32(name: str, dtype: Any, run_kernel: Run) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    (got,) = run_kernel(KERNELS, f"{name}_each", [every])
    (wide,) = run_kernel(KERNELS, f"{name}_each", [every.astype(np.float32)])
    with np.errstate(all="ignore"):
        assert same(got, wide.astype(dtype)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_vectors_give_the_bits_of_scalars(dtype: Any, run_kernel: Run) -> None:
    edges = [1e30, 0.0, -0.0, -1.0, INF, -INF, NAN, 1e-40, 3e8, -2e9, 1e-6, 700.0, -700.0, 88.0, 4.0, 1.0]
    with np.errstate(over="ignore"):
        x = np.concatenate([np.linspace(0.1, 9, 48), edges]).astype(dtype)
    (rows,) = run_kernel(KERNELS, "vectors", [x], outputs=[(DType.from_numpy(x.dtype), (10, 64))])
    names = ("rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "pow")
    for name, row in zip(names, rows, strict=True):
        inputs = [x, np.full_like(x, 2.5)] if name == "pow" else [x]
        assert same(row, run_kernel(KERNELS, f"{name}_each", inputs)[0]).all(), name


# *** conversions ***


def midpoints() -> Iterator[float]:
    """Numbers at, and closely around, the middle between two float16."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (halves[:-1] + halves[1:]) / 2
    for factor in (1.0, 1 + 2.0**-40, 1 - 2.0**-40):
        yield from middle * factor
    yield from (65519.0, 65520.0, 1e300, 1e-300, INF, -INF, NAN)


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
def test_float16_conversions(target: str, run_kernel: Run) -> None:
    skip_foreign(target)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    assert same(run_kernel(KERNELS, "widen", [every], target=target)[0], every.astype(np.float32)).all()
    wide = np.array(list(midpoints()))
    with np.errstate(over="ignore"):
        for x in (wide, wide.astype(np.float32)):
            assert same(run_kernel(KERNELS, "to_float16", [x], target=target)[0], x.astype(np.float16)).all()


@pytest.mark.parametrize("target", ["host", "x86-64-v2"])
def test_bfloat16_conversions(target: str, run_kernel: Run) -> None:
    skip_foreign(target)
    every = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    assert same(run_kernel(KERNELS, "widen", [every], target=target)[0], every.astype(np.float32)).all()
    x = np.random.default_rng(22).integers(0, 1 << 32, 50_000, dtype=np.uint32).view(np.float32)
    got = run_kernel(KERNELS, "to_bfloat16", [x], target=target)[0]
    with np.errstate(invalid="ignore"):
        assert same(got, x.astype(ml_dtypes.bfloat16)).all()
    # One rounding from float64, not two: just above the middle of 1 and the next bfloat16.
    y = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, 1 + 2.0**-8 - 2.0**-40])
    assert run_kernel(KERNELS, "to_bfloat16", [y], target=target)[0].astype(float).tolist() == [1 + 2.0**-7, 1.0, 1.0]


def skip_foreign(target: str) -> None:
    from einkorn.compiler.targets import fits

    if target != "host" and not fits(target):
        pytest.skip(f"this machine does not run {target}")


# *** code ***


@pytest.mark.parametrize("dtype", [DType.float32, DType.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_become_vector_code_without_calls(name: str, dtype: DType, compile_kernel: Callable[..., Any]) -> None:
    artifact, _ = compile_kernel(KERNELS, f"{name}_each", [(dtype, (4096,))], target="x86-64-v3")
    assert artifact.compiled.undefined == ()
    assert "vector.body" in artifact.llvm
    # The sine of a float32 computes in float64.
    lanes = "4 x double" if dtype is DType.float64 or name in ("sin", "cos") else "8 x float"
    assert re.search(rf"@llvm.fma\S*\(<{lanes}>", artifact.llvm)
    assert "%ymm" in artifact.asm


@pytest.mark.parametrize("target", ["sm_80", "gfx942"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gpu_code_has_no_calls_and_no_approximations(
    name: str, target: str, compile_kernel: Callable[..., Any], tmp_path: Path
) -> None:
    for dtype in (DType.float32, DType.float64):
        artifact, _ = compile_kernel(KERNELS, f"{name}_each", [(dtype, (4096,))], target=target)
        assert not [line for line in artifact.asm.splitlines() if ".approx" in line or "call" in line.split()[:1]]
        if target == "sm_80" and shutil.which("ptxas"):
            text = tmp_path / f"{name}.ptx"
            text.write_bytes(artifact.code)
            subprocess.run(["ptxas", "-arch=sm_80", str(text), "-o", str(tmp_path / "out")], check=True)
