"""`rare(condition)`: the numbers are those of the condition itself, whatever else is in the block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import KernelFile

from einkorn.dsl import DType

FILE = Path(__file__).parent / "rare_kernels.py"

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(FILE)


def bent(x: Array) -> Array:
    return np.where(x > 100, x / 2, np.where(x < -100, -x, x))


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
@pytest.mark.parametrize("places", [[], [0], [2047], [2048], [4097], [0, 2048, 4097]])
def test_blocks_with_and_without_the_rare_case(dtype: Any, places: list[int], kernels: KernelFile) -> None:
    x = np.linspace(-90, 90, 4098).astype(dtype)
    x[places] = 500
    x[[place - 1 for place in places if place]] = -300
    assert np.array_equal(kernels("bend", x)[0], bent(x))


@pytest.mark.parametrize("op", ["bend", "bend_in_place"])
@pytest.mark.parametrize("blocks", [[0], [1, 6], [0, 1, 2, 3, 4, 5, 6, 7, 8], [3, 7], [8]])
def test_blocks_after_the_rare_case(op: str, blocks: list[int], kernels: KernelFile) -> None:
    """It is taken for granted in the next three, and looked for again in the fourth."""
    x = np.linspace(-90, 90, 8 * 2048 + 5)
    x[[2048 * block + 3 for block in blocks]] = 500
    want = bent(x)
    assert np.array_equal(kernels(op, x)[0], want)


@pytest.mark.parametrize("shape", [(0,), (1,), (2047,), (3, 5)])
def test_odd_sizes(shape: tuple[int, ...], kernels: KernelFile) -> None:
    x = np.linspace(-200, 200, int(np.prod(shape))).reshape(shape)
    assert np.array_equal(kernels("bend", x)[0], bent(x))


def test_several_outputs_other_loops_and_branches(kernels: KernelFile) -> None:
    x = np.linspace(-200, 200, 60).reshape(6, 10)
    assert all(np.array_equal(a, b) for a, b in zip(kernels("bend_both", x), (bent(x), bent(-x)), strict=True))
    assert np.array_equal(kernels("bend_transposed", x)[0], bent(x.T))
    flat = x.ravel()
    assert np.array_equal(kernels("bend_some", flat)[0], np.where(flat > 0, bent(flat), flat))


def test_one_loop_is_without_the_rare_case(kernels: KernelFile) -> None:
    artifact = kernels.compile("bend", [(DType.float64, (4096,))], target="x86-64-v3")
    # Two loops over a block, of which only one divides.
    assert artifact.typed.count("store ") == artifact.typed.count("load ") == 2
    assert artifact.typed.count("truediv ") == 1
    gpu = kernels.compile("bend", [(DType.float64, (4096,))], target="sm_80")
    assert gpu.typed.count("store ") == 1


def test_loops_in_the_rare_case_and_around_it(kernels: KernelFile) -> None:
    x = np.linspace(-400, 700, 5000)
    want = x.copy()
    for _ in range(3):
        want = np.where(want > 100, want / 2, want)
    assert np.array_equal(kernels("wear", x)[0], want)
    worn = kernels.compile("wear", [(DType.float64, (4096,))], target="x86-64-v3")
    assert worn.typed.count("store ") == 2 and worn.typed.count("truediv ") == 1
    table = np.linspace(-30, 30, 60).reshape(6, 10)
    assert np.allclose(kernels("bend_sums", table, outs=[(DType.float64, (6,))])[0], bent(table.sum(1)), rtol=1e-12)
    sums = kernels.compile("bend_sums", [(DType.float64, (64, 64))], outs=[(DType.float64, (64,))])
    assert sums.typed.count("store ") == 1


@pytest.mark.parametrize("places", [[], [0, 2048, 4097]])
def test_what_is_read_and_written_is_done_once(places: list[int], kernels: KernelFile) -> None:
    x = np.linspace(-90, 90, 4098)
    x[places] = 500
    want = bent(x)
    assert np.array_equal(kernels("bend_in_place", x)[0], want)
    typed = kernels.compile("bend_in_place", [(DType.float64, (4096,))]).typed
    # The first of three loops only looks; the last two of the loads and stores copy.
    assert typed.count("load ") == 3 + 1 and typed.count("store ") == 2 + 1


def test_a_number_that_takes_long_is_not_computed_twice(kernels: KernelFile) -> None:
    x = np.linspace(-6, 6, 3000)
    want = bent(x**6 - x)
    assert np.allclose(kernels("bend_far", x)[0], want, rtol=1e-12)
    assert kernels.compile("bend_far", [(DType.float64, (4096,))]).typed.count("load ") == 2
    assert np.allclose(kernels("bend_far_in_place", x)[0], want, rtol=1e-12)
    assert kernels.compile("bend_far_in_place", [(DType.float64, (4096,))]).typed.count("store ") == 1 + 1


def test_nothing_is_read_that_the_rare_case_keeps_from_it(kernels: KernelFile) -> None:
    x = np.linspace(-6, 6, 3000)
    (got,) = kernels("bend_known", x, outs=[(DType.float64, (5000,))])
    assert np.array_equal(got, np.pad(x + 1, (0, 2000)))
    typed = kernels.compile("bend_known", [(DType.float64, (3000,))], outs=[(DType.float64, (5000,))]).typed
    assert typed.count("load ") == typed.count("store ") == 1
    (got,) = kernels("bend_clamped", x, outs=[(DType.float64, (5000,))])
    assert np.array_equal(got, np.pad(x, (0, 2000), "edge"))
