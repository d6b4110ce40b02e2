"""Conversions of the half types, on this machine and on one without their instructions.

Oracles: NumPy for float16, ml_dtypes for bfloat16.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

KERNELS = Path(__file__).parent / "kernels_math.py"
INF, NAN = math.inf, math.nan

Array = np.ndarray[Any, Any]
Run = Callable[..., list[Array]]


def same(a: Array, b: Array) -> Array:
    """Equal with the sign of zero, or both NaN."""
    return ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


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
