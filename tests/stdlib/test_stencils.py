"""Stencils against padded slices in NumPy: borders, one to three axes, leading axes, rows shorter than the reach."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.inner_loops import innermost_loops

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import CompileError

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).with_name("order_kernels.py")
BORDERS = ("constant", "edge", "reflect", "wrap")


@pytest.fixture(scope="module")
def run(run_kernel: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    return lambda op, *arrays, **parameters: run_kernel(KERNELS, op, list(arrays), parameters)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def padded(x: Array, reach: tuple[int, ...], border: Any, **options: Any) -> Callable[..., Array]:
    """`near` of the last axes, for all elements at once."""
    wide = np.pad(x, [(0, 0)] * (x.ndim - len(reach)) + [(r, r) for r in reach], mode=border, **options)

    def near(*offsets: int) -> Array:
        sizes = x.shape[x.ndim - len(reach) :]
        cuts = (slice(r + d, r + d + n) for r, d, n in zip(reach, offsets, sizes, strict=True))
        return wide[(..., *cuts)]

    return near


@pytest.mark.parametrize("border", BORDERS)
def test_one_axis(run: Any, border: str) -> None:
    for shape in ((20,), (3, 50), (2, 9000), (4, 4), (5, 1), (0, 6)):
        x = numbers(*shape)
        near = padded(x, (3,), border)
        expected = near(-2) * 4 + near(-1) * 2 + near(0) + near(3) * 8
        assert np.allclose(run("smoothed", x, border=border)[0], expected, atol=1e-5), shape


@pytest.mark.parametrize("border", BORDERS)
def test_two_axes_below_others(run: Any, border: str) -> None:
    options = {"constant_values": 1.5} if border == "constant" else {}
    for shape in ((7, 9), (2, 30, 40), (1, 4)):
        x = numbers(*shape)
        near = padded(x, (1, 2), border, **options)
        expected = near(0, 0)
        for a in (-1, 1):
            expected = expected + (3 + a) * near(a, 0) + (7 + a) * near(0, 2 * a) + near(a, a)
        assert np.allclose(run("crossed", x, border=border, value=1.5)[0], expected, atol=1e-4), shape


@pytest.mark.parametrize("border", BORDERS)
def test_three_axes_and_the_index(run: Any, border: str) -> None:
    x = numbers(4, 5, 6)
    near = padded(x, (1, 1, 1), border)
    expected = -6 * near(0, 0, 0) + np.arange(4, dtype=np.float32)[:, None, None]
    for a in (-1, 1):
        expected = expected + near(a, 0, 0) + near(0, a, 0) + near(0, 0, a)
    assert np.allclose(run("laplacian", x, border=border)[0], expected, atol=1e-4)


def test_the_inner_loop_is_vectors_without_tests(compile_kernel: Any) -> None:
    types = [(DType.float32, (64, 5000))]
    artifact, _ = compile_kernel(KERNELS, "crossed", types, {"border": "edge"}, None, "x86-64-v3")
    loops = [loop for loop in innermost_loops(artifact.asm) if len(loop.packed) >= 14 and "y" in loop.widths]
    assert loops
    for loop in loops:
        assert not loop.scalar and not loop.spills and not loop.calls
        assert sum(line.startswith("j") for line in loop.instructions) == 1  # the one that goes round


def test_mistakes_are_shown_where_they_are(run: Any) -> None:
    with pytest.raises(CompileError, match="border is 'constant', 'edge', 'reflect' or 'wrap'"):
        run("smoothed", numbers(9), border="mirror")


@pytest.mark.parametrize("target", ("sm_80", "gfx942"))
def test_gpus(compile_kernel: Any, target: str) -> None:
    artifact, _ = compile_kernel(KERNELS, "laplacian", [(DType.float32, (4, 5, 60))], {"border": "wrap"}, None, target)
    assert len(artifact.code) > 100
