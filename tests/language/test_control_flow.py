"""Control flow gives what Python gives: each kernel against the same algorithm in plain Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_harness import FLOATS, KernelFile, assert_same_bits, bfloat16, dtype_name

from einkorn.dsl import DType


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(Path(__file__).parent / "flow_kernels.py")


def normal(*shape: int, dtype: Any = np.float32, scale: float = 1.0, seed: int = 0) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def whole(*shape: int, low: int = -20, high: int = 20, dtype: Any = np.int64, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


# *** loops ***


@pytest.mark.parametrize("dtype", [np.float32, np.float16, bfloat16, np.int32, np.uint8, np.int64], ids=dtype_name)
def test_start_values_adopt_types(kernels: KernelFile, dtype: Any) -> None:
    x = whole(5, 9, low=0, high=9).astype(dtype)
    sums, counts = kernels("row_sums", x)
    assert_same_bits(counts, (x > 2).sum(axis=1))
    assert_same_bits(sums, np.where(x > 2, x, dtype(0)).astype(np.int64).sum(axis=1).astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_nested_loops(kernels: KernelFile, dtype: Any) -> None:
    x = whole(3, 7).astype(dtype)
    (got,) = kernels("nested_sums", x)
    rows = x.astype(np.float64)[:, ::2]
    wanted = [rows.sum(), np.cumsum(rows, axis=1).max(), 0.0, 1.0]
    assert_same_bits(got, np.array(wanted).astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=dtype_name)
def test_a_number_takes_the_type_that_it_combines_with(kernels: KernelFile, dtype: Any) -> None:
    x = whole(3, 7).astype(dtype)
    (got,) = kernels("alternating", x)
    assert_same_bits(got, (x * np.resize([1, -1], 7)).sum(axis=1).astype(dtype))


def test_simultaneous_assignment(kernels: KernelFile) -> None:
    (got,) = kernels("fibonacci", outs=[(DType.int64, (20,))])
    wanted = [0, 1]
    while len(wanted) < 20:
        wanted.append(wanted[-1] + wanted[-2])
    assert got.tolist() == wanted


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=dtype_name)
def test_tuples_go_round(kernels: KernelFile, dtype: Any) -> None:
    x = normal(6, 12, dtype=dtype)
    values, at = kernels("tuple_carried", x)
    for i in range(6):
        best = second = -np.inf
        where = 0
        for j, v in enumerate(x[i]):
            if v > best:
                best, second, where = v, best, j
            elif v > second:
                second = v
        assert values[i].tolist() == [best, second, x[i, -1]]
        assert at[i] == where


def test_bounds_may_be_values(kernels: KernelFile) -> None:
    x = whole(9)
    (got,) = kernels("triangle", x)
    for i in range(9):
        s = 3
        for a in range(i):
            for b in range(a, i):
                s += int(x[a] * x[b])
        assert got[i] == s


def test_while(kernels: KernelFile) -> None:
    x = np.array([1, 2, 3, 7, 27, 97, 1000, 123456789, 1024])
    (got,) = kernels("while_loops", x)
    for k, start in enumerate(x.tolist()):
        n, steps = start, 0
        while n > 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        power = 1
        while power * 2 <= start and power < 1000:
            power *= 2
        assert got[:, k].tolist() == [steps, sum(map(int, str(start))), power]


# *** break and continue ***


def test_break(kernels: KernelFile) -> None:
    x = normal(8, 10)
    for limit in (-5.0, 0.8, 50.0):
        (got,) = kernels("find_first", x, np.array(limit, np.float32))
        wanted = [next((j for j, v in enumerate(row) if v > np.float32(limit)), -1) for row in x]
        assert got.tolist() == wanted


def test_continue_and_break_in_nested_ifs(kernels: KernelFile) -> None:
    x = normal(12, 9, dtype=np.float64, scale=1.2)
    (got,) = kernels("skip_and_stop", x)
    for i in range(len(x)):
        s = seen = 0.0
        for v in x[i]:
            if v < 0:
                if v > -0.5:
                    s += 0.125
                continue
            seen += 1
            if v > 1:
                if v > 2:
                    s += 1000
                    break
                else:
                    s += 10
                    continue
            s += v
        assert got[i].tolist() == [s, seen], i


def test_breaks_in_nested_loops(kernels: KernelFile) -> None:
    x = whole(12, 9, low=0, high=9)
    (got,) = kernels("nested_breaks", x)
    for i in range(len(x)):
        outer = inner = trace = 0
        for a in range(9):
            for b in range(9):
                if x[i, b] == 0:
                    break
                inner += 1
                if x[i, b] == a:
                    trace = trace * 3 + 1
                    continue
                trace = (trace * 5 + b) % 1000003
            if x[i, a] == 7:
                break
            outer += 1
        assert got[i].tolist() == [outer, inner, trace], i


def test_while_with_break_in_for_with_break(kernels: KernelFile) -> None:
    x = whole(20, low=-3, high=60)
    (got,) = kernels("while_in_for", x)
    for i in range(len(x)):
        total = 0
        for a in range(10):
            k = int(x[i])
            while k > 0:
                k -= a + 1
                if k == 5:
                    break
                if k % 2 == 1:
                    continue
                total += k
            if total > 300:
                break
        assert got[i] == total


def test_condition_of_the_last_round(kernels: KernelFile) -> None:
    x = np.random.default_rng(0).integers(0, 5, (10, 6)) == 0
    (got,) = kernels("break_keeps_index", x)
    wanted = [next((j + 1 for j, v in enumerate(row) if v), 6) for row in x]
    assert got.tolist() == wanted


def test_breaks_in_unrolled_loops(kernels: KernelFile) -> None:
    x = whole(12, low=-3, high=200)
    (got,) = kernels("unrolled_breaks", x)
    for i in range(len(x)):
        s = 0
        for k in (0, 1, 3, 4):
            for j in range(100):
                if j * k > x[i]:
                    break
                s += j + k
        assert got[i] == s


# *** branches ***


def test_elif_chains_join(kernels: KernelFile) -> None:
    x = np.linspace(0, 120, 50, dtype=np.float32)
    grade, share = kernels("grades", x)
    for g, s, v in zip(grade, share, x, strict=True):
        if v >= 90:
            wanted = (1, v / np.float32(90))
        elif v >= 70:
            wanted = (2, v / np.float32(70))
        elif v >= 50:
            part = v / np.float32(50)
            wanted = (33 if part > np.float32(1.2) else 3, part)
        else:
            wanted = (4, np.float32(0))
        assert (g, s) == wanted


def test_numbers_and_values_join(kernels: KernelFile) -> None:
    x = normal(30)
    (got,) = kernels("joins", x)
    one, two = np.float32(1), np.float32(2)
    assert_same_bits(got[0], np.where(x > 0, x, one))
    assert_same_bits(got[1], np.where(x > 0, two, x * two))
    assert_same_bits(got[2], x)
    assert_same_bits(got[3], np.where(x > 1, np.float32(5), np.float32(0.5)))
    assert_same_bits(got[4], np.where(x > 0, x + one, x))


@pytest.mark.parametrize("dtype", [np.float32, bfloat16], ids=dtype_name)
def test_early_returns(kernels: KernelFile, dtype: Any) -> None:
    x = np.array([-100, -11, -10, -6, -5, -3, -2.5, -1, 0, 0.5, 3.5, 4, 5, 6, 10, 11], np.float32).astype(dtype)
    clamped, buckets, signs = kernels("early_returns", x)
    assert_same_bits(clamped, np.clip(x.astype(np.float64), -2.5, 3.5).astype(dtype))
    assert buckets.tolist() == [-2, -2] + [-1] * 6 + [0] + [1] * 6 + [2]
    wanted = [(2.0 if v > 5 else v * 0.5) if v > 0 else (-2.0 if v < -5 else -0.5) for v in x.astype(np.float64)]
    assert_same_bits(signs, np.array(wanted).astype(dtype))


def test_return_from_a_kernel(kernels: KernelFile) -> None:
    x = whole(5)
    assert kernels("returns_in_kernel", x, mode=1)[0].tolist() == (x + 1).tolist()
    assert kernels("returns_in_kernel", x)[0].tolist() == x.tolist()


def test_and_or_are_lazy(kernels: KernelFile) -> None:
    x = np.array([0, 3, -1, 1 << 40, 2, -(1 << 50), 5, 1])
    (got,) = kernels("guards", x)
    inside = [0 <= j < 8 for j in x.tolist()]
    high = [bool(ok and x[j] > 2) for ok, j in zip(inside, x, strict=True)]
    assert got[0].tolist() == [int(h) for h in high]
    assert got[1].tolist() == [int(h or not ok) for h, ok in zip(high, inside, strict=True)]
    assert got[2].tolist() == [int(x[j]) if ok else -1 for ok, j in zip(inside, x, strict=True)]
    assert got[3].tolist() == list(range(8))


def test_comparison_chains(kernels: KernelFile) -> None:
    x = np.array([-2, -1, 0, 0.5, 1, 2, np.nan, 0.5, np.inf, 1], np.float32)
    y = np.array([1, -2, 1, 0.75, 1, np.nan, 3, np.inf, 0, 3], np.float32)
    (got,) = kernels("chains", x, y)
    pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    wanted = [
        [0 < a < b for a, b in pairs],
        [a < b <= 1 < 2 for a, b in pairs],
        [not a < b for a, b in pairs],
        [(a > 0) == (b > 0) for a, b in pairs],
        [(a > 0 and b > 0) or a < -1 for a, b in pairs],
        [not (a > 0 or b > 0) and a != b for a, b in pairs],
    ]
    assert got.tolist() == wanted


@pytest.mark.parametrize("dtype", FLOATS, ids=dtype_name)
def test_conditional_expressions(kernels: KernelFile, dtype: Any) -> None:
    x = np.array([-3, -1, 0, 0.5, 1, 1.5, 4], np.float32).astype(dtype)
    (got,) = kernels("conditionals", x)
    wide = x.astype(np.float64)
    wanted = [
        np.where(wide > 0, wide, -wide),
        np.sign(wide),
        np.where(wide > 0, np.where(wide > 1, wide + 1, wide - 1), 0.25),
        np.where(np.arange(7) > 0, wide[0], wide[-1]),
    ]
    assert_same_bits(got, np.array(wanted).astype(dtype))


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float32], ids=dtype_name)
def test_nested_functions_return_tuples(kernels: KernelFile, dtype: Any) -> None:
    x = whole(40, 4, low=0, high=100).astype(dtype)
    (got,) = kernels("swap_network", x)
    assert_same_bits(got, np.sort(x, axis=1))


def test_loops_in_branches_in_loops(kernels: KernelFile) -> None:
    x = np.arange(-8, 14)
    (got,) = kernels("branch_in_loop_in_branch", x)
    for i, v in enumerate(x.tolist()):
        result = 0
        if v > 0:
            for k in range(v):
                if k % 3 == 0:
                    result += sum(range(k))
                elif k % 3 == 1:
                    result -= k
        else:
            result = -sum(2 * j for j in range(-v))
        assert got[i] == result


def test_annotated_variables(kernels: KernelFile) -> None:
    x = normal(4, dtype=np.float64)
    (got,) = kernels("annotated", x)
    assert_same_bits(got, x + np.float64(np.float32(0.1) * np.float32(3)))


def test_steps_of_the_program(kernels: KernelFile) -> None:
    bounds = np.concatenate([whole(60, 2), whole(60, 1, low=-5, high=6, seed=1)], axis=1)
    (got,) = kernels("steps_of_the_program", bounds)
    for row, (low, high, step) in enumerate(bounds.tolist()):
        numbers = range(low, high, step) if step else range(0)  # Python raises; here no rounds
        up = range(low, high, max(step, 1))
        count = sum(up) + sum(sum(range(0, i, up.step)) for i in up)
        assert got[row].tolist() == [
            sum(3 * i + 1 for i in numbers),
            count,
            next((i for i in numbers if i % 4 == 3), 0),
            row,
        ]
