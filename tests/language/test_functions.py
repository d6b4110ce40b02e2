"""Functions, tensors, views, storage, vectors, parallel loops and grids, each against NumPy or plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import ALL, FLOATS, KernelFile, assert_same_bits, bfloat16, dtype_name, random_values

from einkorn.dsl import DType
from einkorn.dsl.diagnostics.errors import CompileError


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "function_kernels.py")


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0, seed: int = 0) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def whole(*shape: int, low: int = -20, high: int = 20, dtype: Any = np.int64, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


# *** functions ***


def test_calls(kernels: KernelFile) -> None:
    x = whole(9).astype(np.float32)
    (got,) = kernels("calls", x)
    f = np.float32
    wide = x.astype(np.float64)
    edge = np.pad(wide, 1, mode="edge")
    wanted = [
        *(x * 2 + f(0.5), x * 3 + 1, 2 * x + f(0.5) * x, x * 3, x * 2 - f(1.5)),
        *(wide**3 + wide**2, wide**4, x * 2 + 1, np.maximum(x, f(0.5)), x * 4),
        *(0.25 * edge[:-2] + 0.5 * edge[1:-1] + 0.25 * edge[2:], 6 * x + 6),
    ]
    for row, want in zip(got, wanted, strict=True):
        assert_same_bits(row, (np.asarray(want) + 0.0).astype(np.float32))


def test_functions_capture_by_value(kernels: KernelFile) -> None:
    x = whole(6)
    (got,) = kernels("captures", x)
    assert got[0].tolist() == x.tolist()
    assert got[1].tolist() == (2 * x).tolist()
    assert got[2].tolist() == ((1 + x) + (1 + 2 * x) + (x + 100)).tolist()
    assert got[3].tolist() == ((x * 10 + 1) + 23 + (x + 100)).tolist()


def test_indices_are_tuples(kernels: KernelFile) -> None:
    x = whole(2, 3, 4)
    (got,) = kernels("index_values", x)
    a, b, c = np.indices(x.shape)
    assert_same_bits(got, x * 6 + a * 100 + b * 10 + c + 3)


def test_parameters(kernels: KernelFile) -> None:
    x = np.arange(5, dtype=np.float32)
    assert_same_bits(kernels("parameters", x)[0], x + 3)
    assert_same_bits(kernels("parameters", x, times=0, name="red", negate=True)[0], -(x * 2))
    assert_same_bits(kernels("parameters", x, times=1, name="blue", factor=0.5)[0], (x + 1) * 3 * np.float32(0.5))
    whole_numbers = x.astype(np.int16)
    got = kernels("parameters", whole_numbers, factor=0.1, through=DType.float64)[0]
    assert_same_bits(got, ((whole_numbers + 3) * 0.1).astype(np.int16))


def test_static_assert(kernels: KernelFile) -> None:
    with pytest.raises(CompileError) as caught:
        kernels("parameters", np.ones(3, np.float32), times=-1)
    assert caught.value.code == "EK0215"
    assert "times is -1, not >= 0" in str(caught.value)


# *** tensors of every rank ***

SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 4), (2, 1, 3, 2), (2, 3, 1, 2, 4)]
EMPTY = [(0,), (3, 0), (0, 4), (2, 0, 3), (1, 2, 0, 3, 4)]


@pytest.mark.parametrize("shape", [*SHAPES, *EMPTY], ids=str)
def test_ranks(kernels: KernelFile, shape: tuple[int, ...]) -> None:
    x = whole(*shape) if shape else np.array(5)
    assert_same_bits(kernels("twice_plus", x)[0], 2 * x + 1)
    wanted = x.copy()
    for axis in np.indices(shape):
        wanted = wanted * 10 + axis
    assert_same_bits(kernels("weigh_indices", x)[0], wanted)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 127, 1000])
def test_odd_sizes(kernels: KernelFile, n: int) -> None:
    x = whole(n, dtype=np.int16)
    assert_same_bits(kernels("twice_plus", x)[0], 2 * x + np.int16(1))


def test_sizes(kernels: KernelFile) -> None:
    x, y = np.zeros((4, 2, 3), np.float32), np.zeros((1, 2, 3, 4), np.float32)
    assert kernels("sizes", x, y)[0].tolist() == [4, 2, 3, 34, 24, 7, 7, 32]


def test_several_foreach(kernels: KernelFile) -> None:
    x, y = normal(5), normal(7, seed=1)
    out, swapped = kernels("outer_sum", x, y)
    assert_same_bits(out, x[:, None] + y)
    assert_same_bits(swapped, x - y[:, None])


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_tuples_of_outputs(kernels: KernelFile, dtype: Any) -> None:
    x = normal(4, 6, dtype=dtype)
    a, b, c = kernels("many_outputs", x)
    i, j = np.indices(x.shape)
    assert_same_bits(a, np.where(x > 0, x * dtype(2), x * dtype(0.5)))
    assert_same_bits(b, x > 0)
    assert_same_bits(c, np.where(x > 0, i, -j))


def test_in_place(kernels: KernelFile) -> None:
    x = whole(3, 4).astype(np.float64)
    given = x.copy()
    (total,) = kernels("in_place", given)
    assert_same_bits(given, x * 2 + 1)
    assert_same_bits(total, (x * 2 + 1).sum(axis=1))


def test_stores_are_read_back(kernels: KernelFile) -> None:
    x = whole(4, 5)
    wanted = np.zeros(5, np.int64)
    for row in x:
        wanted = (wanted + row) * 2
    assert_same_bits(kernels("accumulate", x)[0], wanted)


# *** views and storage ***


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_views(kernels: KernelFile, dtype: Any) -> None:
    x = whole(4, 7, low=-5, high=5).astype(dtype)
    w = x.astype(np.float64)
    block = w[1:3, 1:]
    wanted = [w[1].sum(), w[:, 2].sum(), w[0, 1:4].sum(), w[0, ::2].sum(), w[0, 1:100:3].sum()]
    wanted += [block[0, 1] + 2 * block[1, 0], block[1:, 1].sum(), w[2, 5:].sum(), 200.0 + 60.0]
    assert_same_bits(kernels("views", x)[0], (np.array(wanted) + 0.0).astype(dtype))


def test_stores_through_views(kernels: KernelFile) -> None:
    x = normal(3, 5)
    wanted = x * 2
    wanted[:, 0] = 7
    assert_same_bits(kernels("store_through_view", x)[0], wanted)


def test_stack_storage(kernels: KernelFile) -> None:
    x = whole(200, low=-100, high=100)
    assert kernels("histogram", x)[0].tolist() == np.bincount(x % 8, minlength=8).tolist()


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_storage_is_zeroed_in_every_round(kernels: KernelFile, dtype: Any) -> None:
    x = whole(5, 11, low=-4, high=4).astype(dtype)
    wanted = [sum(float(v) * (j % 3 + 1) for j, v in enumerate(row)) for row in x]
    assert_same_bits(kernels("storage_in_loops", x)[0], np.array(wanted).astype(dtype))


def test_storage_of_each_element(kernels: KernelFile) -> None:
    x = normal(50)
    padded = np.pad(x, 2, mode="edge")
    wanted = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    assert_same_bits(kernels("running_median", x)[0], wanted)


# *** vectors ***


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 24, 31])
@pytest.mark.parametrize("dtype", [np.float32, bfloat16], ids=dtype_name)
def test_vectors_with_tails(kernels: KernelFile, n: int, dtype: Any) -> None:
    x = whole(3, n, low=-3, high=3).astype(dtype)
    assert_same_bits(kernels("dot_products", x)[0], (x.astype(np.float64) ** 2).sum(axis=1).astype(dtype))


@pytest.mark.parametrize("dtype", ALL, ids=dtype_name)
def test_vector_loads_and_stores(kernels: KernelFile, dtype: Any) -> None:
    x = random_values(np.random.default_rng(0), dtype, 33).reshape(3, 11)
    for width in (2, 8):
        (got,) = kernels("copy_by_vectors", x, width=width)
        assert got.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_vector_masks(kernels: KernelFile, dtype: Any) -> None:
    x = normal(16, dtype=dtype, scale=2.0)
    wanted = np.where((x > 0) & (x < 2), x * dtype(3), np.abs(x))
    assert_same_bits(kernels("masked", x)[0], wanted)


# *** parallel loops, targets, grids ***


@pytest.mark.parametrize("grain", [1, 4, 1000])
def test_parallel_rows(kernels: KernelFile, grain: int) -> None:
    x = whole(9, 5).astype(np.float32)
    assert_same_bits(kernels("parallel_rows", x, grain=grain)[0], x.sum(axis=1))


@pytest.mark.parametrize("base", [5, -3])
def test_nested_parallel_loops(kernels: KernelFile, base: int) -> None:
    (got,) = kernels("parallel_nested", np.array(base), outs=[(DType.int64, (10, 7))])
    i, j = np.indices((10, 7))
    wanted = i * 1000 + j + base + (1 if base > 0 else 2) + base
    wanted[:, 0] = np.trunc(wanted[:, 0] * 0.5)
    assert_same_bits(got, wanted)


def test_parallel_loops_follow_each_other(kernels: KernelFile) -> None:
    x = whole(101)
    wanted = x * 2
    wanted[:50] = wanted[51:][::-1] + wanted[-1]
    assert_same_bits(kernels("parallel_phases", x)[0], wanted)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64], ids=dtype_name)
def test_atomic_addition(kernels: KernelFile, dtype: Any) -> None:
    x = whole(500, low=0, high=7)
    (got,) = kernels("count_values", x, outs=[(DType.from_numpy(np.dtype(dtype)), (7,))])
    assert_same_bits(got, np.bincount(x, minlength=7).astype(dtype))


def test_target_is_known_at_compile_time(kernels: KernelFile) -> None:
    assert kernels("by_target", outs=[(DType.int64, (3,))])[0].tolist() == [2, 2, 2]


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_grid_of_one_dimension(kernels: KernelFile, n: int) -> None:
    (got,) = kernels("grid_1d", outs=[(DType.int64, (n,))])
    i = np.arange(n)
    assert_same_bits(got, i * 10000 + i // 32 * 100 + i % 32)


def test_grid_of_two_dimensions(kernels: KernelFile) -> None:
    x = whole(9, 19)
    assert_same_bits(kernels("grid_2d", x)[0], x.T + 8000)


def test_grid_of_three_dimensions(kernels: KernelFile) -> None:
    (got,) = kernels("grid_3d", outs=[(DType.int64, (3, 5, 9))])
    z, y, x = np.indices((3, 5, 9))
    assert_same_bits(got, x + 10 * y + 100 * z + 1000 * 3 + 10000 * 2)


# *** printing ***


def test_prints_reach_their_site(kernels: KernelFile) -> None:
    kernels("prints", np.array([1.5, -2.25], np.float32))
    parts = [json.loads(r) for r in kernels.reports]
    assert len(parts) == 5
    assert parts[0] == ["x", "|", ["", "int64"], "|", ["", "float32"], "\n"]
    assert [">3", "int64"] in parts[1] and [".2f", "float32"] in parts[1]
    assert parts[4][-1] == "!\n"
