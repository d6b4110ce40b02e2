"""Corners of control flow, each against plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import FLOATS, KernelFile, assert_same_bits, dtype_name

from einkorn.graph import DeviceRef, DType, Graph, InferenceSession, TensorType, ops

FILE = Path(__file__).parent / "edge_kernels.py"


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(FILE)


def whole(*shape: int, low: int = -20, high: int = 20, dtype: Any = np.int64, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def test_a_condition_is_not_computed_after_a_break(kernels: KernelFile) -> None:
    x = np.array([[1, 1, 1], [0, 1, 1], [1, 1, 0]])
    assert kernels("condition_calls", x)[0].tolist() == [[3, 3], [0, 1], [2, 3]]


def test_chains_are_lazy(kernels: KernelFile) -> None:
    x = np.array([-1, 0, 4, 5])
    assert kernels("chain_calls", x)[0].tolist() == [[0, 0], [1, 1], [1, 1], [0, 1]]


def test_a_chain_goes_on_from_an_operand_that_is_read_late(kernels: KernelFile) -> None:
    x = np.array([1, 3, -2, 5, 0, 4, 2, 12])
    wanted = [int(0 < a < b < 10) for a, b in zip(x.tolist(), x[::-1].tolist(), strict=True)]
    assert kernels("long_chain", x)[0].tolist() == wanted and 1 in wanted


def test_return_from_an_unrolled_loop(kernels: KernelFile) -> None:
    x = np.array([0, 1, 2, 4, 5, -7])
    assert kernels("return_in_unrolled", x)[0].tolist() == [-1, 0, 1, 3, 4, 4]


def test_continue_in_an_unrolled_loop(kernels: KernelFile) -> None:
    x = np.arange(-30, 61)
    wanted = [sum(k + 1 for k in range(6) if v % (k + 2) != 0) for v in x.tolist()]
    assert kernels("value_from_unrolled", x)[0].tolist() == wanted


def test_guards_without_a_value(kernels: KernelFile) -> None:
    x = np.array([-5, 0, 3, 10, 11, 20, 21, 99])
    assert kernels("guards_without_value", x)[0].tolist() == [-1, 0, 6, 20, 20, 20, 20, 20]


@pytest.mark.parametrize("n", [1, 15, 16, 17, 50])
def test_grids_with_guards_and_strides(kernels: KernelFile, n: int) -> None:
    x = whole(n)
    assert_same_bits(kernels("guarded_grid", x)[0], np.cumsum(x))
    assert_same_bits(kernels("grid_stride", x)[0], x * 2)


@pytest.mark.parametrize("dtype", [np.int8, np.float64], ids=dtype_name)
def test_swaps(kernels: KernelFile, dtype: Any) -> None:
    for n in (1, 2, 7):
        x = whole(3, n, dtype=dtype)
        assert_same_bits(kernels("swaps", x)[0], np.ascontiguousarray(x[:, ::-1]))


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_conditionals_of_numbers(kernels: KernelFile, dtype: Any) -> None:
    x = np.array([-2, -0.5, 0.25, 1, 1.5, 3], np.float32).astype(dtype)
    (got,) = kernels("open_conditionals", x)
    one, tenth, fifth = (np.array(v).astype(dtype) for v in (1, 0.1, 0.2))
    part = np.where(x > 0, tenth, fifth)
    assert_same_bits(got[0], np.where(x > 0, x, -x))
    assert_same_bits(got[1], np.where(x > one, x * dtype(2), x * dtype(3)))
    assert_same_bits(got[2], part + x)
    assert_same_bits(got[3], part + np.where(x > one, x, x * dtype(0)))


def test_assigning_a_loop_variable(kernels: KernelFile) -> None:
    x = np.array([0, 1, 3, -2])
    assert kernels("loop_variable", x)[0].tolist() == [[0, -1], [1, 0], [3, 20], [0, -1]]


def test_steps(kernels: KernelFile) -> None:
    count = 31017
    assert kernels("negative_steps")[0].tolist() == [531, count, count + 15, 43]


def test_four_levels(kernels: KernelFile) -> None:
    x = np.arange(-3, 12)
    (got,) = kernels("deep_nest", x)
    for i, v in enumerate(x.tolist()):
        s = 0
        for a in range(4):
            if a == v % 5:
                continue
            b = 0
            while b < 5:
                b += 1
                for c in range(3):
                    if c == 1:
                        continue
                    for d in range(6):
                        if d > v:
                            break
                        if d == c:
                            continue
                        s += a * 1000 + b * 100 + c * 10 + d
                if s > 40000:
                    break
            if s > 80000:
                break
            s += 1
        assert got[i] == s, v


def test_printed_text(capfd: pytest.CaptureFixture[str]) -> None:
    """What a kernel prints is what Python prints for the same values."""
    types = [(DType.uint64, 1), (DType.int8, 1), (DType.float32, 4)]
    graph = Graph(
        "prints",
        forward=lambda *values: ops.custom("print_types", DeviceRef.CPU(), list(values))[0],
        input_types=[TensorType(dtype, [n], DeviceRef.CPU()) for dtype, n in types],
        custom_extensions=[FILE],
    )
    model = InferenceSession().load(graph)
    big = 2**64 - 3
    model(np.array([big], np.uint64), np.array([-7], np.int8), np.array([1.5, -0.25, np.inf, np.nan], np.float32))
    wanted = [
        f"{big} -7 1.5 [1.5, -0.25, inf, nan] True",
        f"{big:x} {-7:+d} {-0.25:8.3f}|{1.5:e} ({big}, -0.25)",
        "no newline",
    ]
    assert capfd.readouterr().out.splitlines() == wanted
