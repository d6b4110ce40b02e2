"""`rowwise` and `reduce` against NumPy, and their order of combination against a model of it, bit for bit."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support.harness import assembly_of

from einkorn.dsl import DType

Array = np.ndarray[Any, Any]
KERNELS = Path(__file__).with_name("algorithm_kernels.py")

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTEGERS = (np.int8, np.uint8, np.int32, np.uint32, np.int64)
CASES = (((3, 70), 1), ((5,), 0), ((2, 3, 33), 2), ((2, 4500), 1), ((300, 3), 0), ((2, 9, 5), 1), ((0, 4), 1))
EMPTY = (np.float32, ml_dtypes.bfloat16, np.int8, np.uint32)
LONG = (((1, 70001), 1), ((3, 20000), 1), ((9000, 2), 0))  # cut into pieces


@pytest.fixture(scope="module")
def run(run_kernel: Callable[..., list[Array]]) -> Callable[..., list[Array]]:
    def call(op: str, *arrays: Array, target: str = "host", **parameters: Any) -> list[Array]:
        return run_kernel(KERNELS, op, list(arrays), parameters, None, target)

    return call


def numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    generator = np.random.default_rng(5)
    if np.dtype(dtype).kind in "iu":
        return generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return (generator.standard_normal(shape) * 3).astype(dtype)


def close(got: Array, expected: Array, dtype: Any, scale: float) -> bool:
    eps = float(ml_dtypes.finfo(dtype).eps)
    return np.allclose(got.astype(np.float64), expected, rtol=2 * eps, atol=scale * 1e-8 + 1e-300, equal_nan=True)


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=lambda d: np.dtype(d).name)
def test_sum_maximum_and_minimum_in_one_pass(run: Any, dtype: Any) -> None:
    some = CASES if dtype in (np.float32, np.int8) else (CASES[0], CASES[4])
    for shape, axis in (*some, *((((4, 0), 1),) if dtype in EMPTY else ()), *(LONG if dtype == np.float32 else ())):
        x = numbers(shape, dtype)
        total, largest, smallest = run("totals", x, axis=axis)
        if np.dtype(dtype).kind in "iu":
            assert np.array_equal(total, x.sum(axis, dtype=dtype)), (shape, axis)
        else:
            wide = x.astype(np.float64)
            assert close(total, wide.sum(axis), dtype, np.abs(wide).sum() + 1), (shape, axis)
        if x.shape[axis]:
            assert np.array_equal(largest, x.max(axis)) and np.array_equal(smallest, x.min(axis)), (shape, axis)


def test_maximum_keeps_nan_and_signs_of_zero(run: Any) -> None:
    for width in (5, 40, 5000):
        x = np.full((4, width), -math.inf, np.float32)
        x[1, width // 2] = math.nan
        x[2] = -0.0
        x[2, width - 1] = 0.0
        x[3, -1] = -math.nan
        _, largest, smallest = run("totals", x, axis=1)
        assert largest[0] == -math.inf and np.isnan(largest[[1, 3]]).all() and np.isnan(smallest[[1, 3]]).all()
        assert not np.signbit(largest[2]) and np.signbit(smallest[2])


@pytest.mark.parametrize("dtype", (np.float32, np.int8, ml_dtypes.bfloat16), ids=lambda d: np.dtype(d).name)
def test_places_are_the_first_ones(run: Any, dtype: Any) -> None:
    for shape, axis in (*(CASES[:6] if dtype == np.float32 else (CASES[0], CASES[4])), *LONG[1:]):
        x = numbers(shape, dtype)
        for y in (x, np.round(x.astype(np.float32)).astype(dtype), np.zeros_like(x), np.full_like(x, x.min())):
            wide = y.astype(np.float64)
            largest, smallest = run("places", y, axis=axis)
            assert np.array_equal(largest, wide.argmax(axis)), (shape, axis)
            assert np.array_equal(smallest, wide.argmin(axis)), (shape, axis)
    if dtype == np.int8:
        return
    x = np.full((3, 5000), -math.inf, dtype)
    x[1, 4097] = x[1, 4999] = math.nan
    x[2, 100:] = -0.0
    x[2, 3000:] = 0.0
    largest, smallest = run("places", x, axis=1)
    assert largest.tolist() == [0, 4097, 100] and smallest.tolist() == [0, 4097, 0]


def extremes(x: Array) -> tuple[Any, Any, int, int]:
    """Maximum, minimum and their first places, as they are documented."""
    wide = x.astype(np.float64) if x.dtype.kind not in "iu" else x.astype(np.int64)
    if not x.size:
        ends = (-math.inf, math.inf) if x.dtype.kind not in "iu" else (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max)
        return *ends, 0, 0
    if (wide != wide).any():
        place = int(np.flatnonzero(wide != wide)[0])
        return math.nan, math.nan, place, place
    most, least = int(wide.argmax()), int(wide.argmin())
    largest, smallest = wide[wide == wide[most]], wide[wide == wide[least]]  # of zeros of both signs, that of each end
    above, below = largest[np.argmin(np.signbit(largest))], smallest[np.argmax(np.signbit(smallest))]
    return above, below, most, least


def mixtures(size: int, dtype: Any) -> list[Array]:
    """Numbers of many sizes and of one sign; the same with NaNs, infinities and zeros; zeros alone."""
    generator = np.random.default_rng(size)
    x = numbers((size,), dtype)
    if np.dtype(dtype).kind in "iu":
        return [x, np.full_like(x, np.iinfo(dtype).min), x % 3]
    wide = generator.standard_normal(size) * 10.0 ** generator.integers(-4, 5, size)
    collected = [wide.astype(dtype), -np.abs(wide).astype(dtype), np.abs(wide).astype(dtype)]
    for share, values in ((0.05, (math.nan, -math.nan)), (0.2, (math.inf, -math.inf, 0.0, -0.0))):
        for y in collected[:3]:
            y = y.copy()
            there = generator.random(size) < share
            y[there] = generator.choice(np.array(values, dtype), there.sum())
            collected.append(y)
    return [*collected, generator.choice(np.array([0.0, -0.0], dtype), size), np.full(size, -math.inf, dtype)]


def same_extremes(got: list[Array], rows: list[Array]) -> None:
    """Also of the same signs."""
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        same_columns(got, [np.array(column) for column in zip(*map(extremes, rows), strict=True)])


def same_columns(got: list[Array], expected: list[Array]) -> None:
    for result, wanted, name in zip(got, expected, ("max", "min", "argmax", "argmin"), strict=True):
        with np.errstate(invalid="ignore"):
            value = result.astype(wanted.dtype)
        same = (value == wanted) & (np.signbit(value) == np.signbit(wanted)) | (value != value) & (wanted != wanted)
        assert same.all(), (name, np.flatnonzero(~same), value[~same], wanted[~same])


# Parts of a row: all short ones, and long ones from several places.
BEGINS = np.array([*range(71), *(0, 1, 5, 7, 0, 30)], np.int64)
ENDS = BEGINS + np.array([*range(71), *(4095, 4096, 4097, 4128, 20000, 16385)], np.int64)


@cache
def parts(dtype: Any) -> list[tuple[Array, list[Array]]]:
    """Arrays, and the extremes of their parts."""
    with np.errstate(invalid="ignore"):
        actual = [(x, [extremes(x[a:b]) for a, b in zip(BEGINS, ENDS, strict=True)]) for x in mixtures(20000, dtype)]
    return [(x, [np.array(column) for column in zip(*rows, strict=True)]) for x, rows in actual]


@pytest.mark.parametrize("target, level", (("host", 3), ("host", 0), ("x86-64-v2", 3), ("x86-64-v3", 3)))
@pytest.mark.parametrize("dtype", (*FLOATS, np.int8, np.uint32), ids=lambda d: np.dtype(d).name)
def test_extremes_alone(run_kernel: Any, dtype: Any, target: str, level: int) -> None:
    n = 72 if level == 0 else len(ENDS)
    for x, expected in parts(dtype):
        got = run_kernel(KERNELS, "extremes_of_parts", [x, BEGINS[:n], ENDS[:n]], {}, None, target, level)
        same_columns(got, [column[:n] for column in expected])


@pytest.mark.parametrize("position", (0, 1, 15, 16, 31, 32, 50, 68, 69))
def test_one_nan_is_found_anywhere(run_kernel: Any, position: int) -> None:
    ends = np.array([31, 32, 33, 64, 69, 70], np.int64)
    for bits in (0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF):
        x = numbers((70,), np.float32)
        x.view(np.uint32)[position] = bits
        got = run_kernel(KERNELS, "extremes_of_parts", [x, np.zeros_like(ends), ends], {}, None)
        same_extremes(got, [x[:end] for end in ends])


def test_extremes_of_elements_that_lie_apart(run: Any) -> None:
    for x in mixtures(3 * 141, np.float32):
        rows = x.reshape(3, 141)
        same_extremes(run("extremes_of_strided", rows), [row[3::2] for row in rows])


def test_a_monoid_that_derives_from_another_has_its_own_steps(run: Any) -> None:
    x = numbers((3, 100), np.float32)
    assert np.array_equal(run("farthest", x)[0], np.abs(x).max(1))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_moments_and_logarithms_of_sums(run: Any, dtype: Any) -> None:
    some = (*CASES, ((4, 0), 1)) if dtype == np.float32 else CASES[:1]
    for shape, axis in (*some, *(LONG if dtype == np.float32 else ())):
        x = numbers(shape, dtype)
        wide = x.astype(np.float64)
        mean, variance, power = run("moments", x, axis=axis)
        with np.errstate(all="ignore"):
            expected = np.log(np.exp(wide).sum(axis))
            if x.shape[axis]:
                eps = 4 * float(ml_dtypes.finfo(dtype).eps)
                assert np.allclose(mean.astype(np.float64), wide.mean(axis), rtol=eps, atol=eps / 4), (shape, axis)
                assert np.allclose(variance.astype(np.float64), wide.var(axis), rtol=eps), (shape, axis)
            else:
                assert np.isnan(mean.astype(np.float64)).all() and np.isnan(variance.astype(np.float64)).all()
        eps = 4 * float(ml_dtypes.finfo(dtype).eps)
        assert np.allclose(power.astype(np.float64), expected, rtol=eps), (shape, axis)


def test_welford_does_not_cancel_and_logarithms_do_not_overflow(run: Any) -> None:
    x = numbers((3, 20000), np.float32) + np.float32(10000)
    mean, variance, power = run("moments", x, axis=1)
    wide = x.astype(np.float64)
    assert np.allclose(mean, wide.mean(1), rtol=1e-6) and np.allclose(variance, wide.var(1), rtol=1e-4)
    assert np.allclose(power, np.log(np.exp(wide - 10000).sum(1)) + 10000, rtol=1e-6)
    x = np.full((4, 50), -math.inf, np.float32)
    x[1, 3], x[2, 3], x[3, 3] = math.inf, math.nan, 2
    assert np.array_equal(run("moments", x, axis=1)[2], np.float32([-math.inf, math.inf, math.nan, 2]), equal_nan=True)


def test_any_and_all(run: Any) -> None:
    for dtype in (np.bool_, np.float32, np.int8):
        x = np.ones((5, 100), dtype)
        x[0], x[2, 99], x[3, :99] = 0, 0, 0
        some, every = run("truths", x)
        assert some.tolist() == [False, True, True, True, True]
        assert every.tolist() == [False, True, False, False, True]
    some, every = run("truths", np.ones((2, 0), np.float32))
    assert not some.any() and every.all()


def test_products(run: Any) -> None:
    x = (numbers((3, 77), np.float64) * 0.1 + 1).astype(np.float32)
    assert np.allclose(run("product", x)[0], x.astype(np.float64).prod(1), rtol=1e-5)
    x = numbers((3, 77), np.int32) | 1
    assert np.array_equal(run("product", x)[0], x.prod(1, dtype=np.int32))


def test_everything_at_once(run: Any) -> None:
    for shape in ((), (7,), (3, 5, 7), (40, 1000)):
        x = numbers(shape, np.float32)
        largest, total, again = run("of_everything", x)[0]
        assert largest == x.max() and total == again
        assert math.isclose(total, x.sum(dtype=np.float64), rel_tol=1e-6, abs_tol=1e-8 * x.size)


def test_several_tensors_and_a_function_of_their_elements(run: Any) -> None:
    for dtype in (np.float32, ml_dtypes.bfloat16):
        x, w = numbers((4, 101), dtype), numbers((101,), dtype)
        assert np.allclose(run("dots", x, w)[0], x.astype(np.float64) @ w.astype(np.float64), rtol=1e-5)
    x, w = numbers((101, 70), np.float32), numbers((101,), np.float32)
    assert np.allclose(run("dots_of_columns", x, w)[0], w.astype(np.float64) @ x.astype(np.float64), rtol=1e-4)


def test_monoids_of_ones_own(run: Any) -> None:
    x = numbers((3, 50), np.int64) % 10
    expected = []
    for row in x.astype(object):
        a, b = 1, 0
        for v in row:
            a, b = a * (v % 3 + 1), b * (v % 3 + 1) + v
        expected.append((a + b + 2**63) % 2**64 - 2**63)
    actual, squares = run("composed", x)
    assert actual.tolist() == expected and np.array_equal(squares, (x * x).sum(1))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
def test_states_that_are_structs(run: Any, dtype: Any) -> None:
    """Nested ones, with other fields than numbers; sums as `Sum` has them, bit for bit."""
    for shape, axis in (*CASES[:5], *LONG) if dtype == np.float32 else (CASES[0], CASES[4]):
        x = numbers(shape, dtype)
        spread, total = run("summaries", x, axis=axis)
        expected, largest, smallest = run("totals", x, axis=axis)
        assert np.array_equal(total, expected) and np.array_equal(spread, largest - smallest), (shape, axis)


def test_bodies_with_loops_and_reductions_of_their_own(run: Any) -> None:
    x = numbers((6, 301), np.float32)
    assert np.allclose(run("centred", x)[0], x - x.mean(1, keepdims=True, dtype=np.float64), atol=1e-5)


def model_of_a_row(x: Array, lanes: int = 32) -> np.float32:
    """The documented order of a float32 sum, in NumPy."""
    size = max(math.ceil(math.ceil(x.size / 64) / 4096) * 4096, 16384)
    total = np.float64(0)
    for piece in (x[k : k + size] for k in range(0, x.size, size)):
        across = np.zeros(lanes)
        for block in (piece[k : k + 4096] for k in range(0, piece.size, 4096)):
            sums = np.zeros(lanes, np.float32)
            for step in (block[k : k + lanes] for k in range(0, block.size, lanes)):
                sums[: step.size] += step
            across += sums.astype(np.float64)
        while across.size > 1:
            across = across[: across.size // 2] + across[across.size // 2 :]
        total += across[0]
    return np.float32(total)


@pytest.mark.parametrize("n", (1, 31, 32, 100, 4096, 4100, 16384, 40000, 2_000_003))
def test_the_order_of_a_sum_is_the_documented_one(run: Any, n: int) -> None:
    for rows in (1, 9) if n < 2_000_000 else (1,):
        x = numbers((rows, n), np.float32)
        assert np.array_equal(run("totals", x, axis=1)[0], [model_of_a_row(row) for row in x])


def one_by_one(run: Any, op: str, x: Array, *others: Array, **parameters: Any) -> list[Array]:
    """The results of each row by itself: a row alone is not taken with others side by side."""
    return [
        np.concatenate(parts)
        for parts in zip(*(run(op, x[k : k + 1], *others, **parameters) for k in range(len(x))), strict=True)
    ]


@pytest.mark.parametrize("n", (1, 3, 4, 17, 63))
def test_short_rows_have_the_bits_that_each_has_alone(run: Any, n: int) -> None:
    x = np.concatenate(mixtures(41 * n, np.float32)).reshape(-1, n)[:: 11 if n > 1 else 30][:19]
    with np.errstate(all="ignore"):
        for op, y, *others in (
            ("totals", x),
            ("totals", numbers((19, n), np.int8)),
            ("places", x),
            ("moments", x),
            ("truths", x * (numbers(x.shape, np.float32) > 4)),
            ("product", x),
            ("composed", numbers((19, n), np.int64) % 10),
            ("dots", numbers((19, n), ml_dtypes.bfloat16), numbers((n,), ml_dtypes.bfloat16)),
        ):
            parameters = {"axis": 1} if op in ("totals", "places", "moments") else {}
            for got, alone in zip(
                run(op, y, *others, **parameters), one_by_one(run, op, y, *others, **parameters), strict=True
            ):
                assert got.shape == alone.shape and np.array_equal(bits(got), bits(alone)), (op, y.dtype)


@pytest.mark.parametrize("n", (2, 4, 13))
def test_short_rows_of_more_axes_and_of_views(run: Any, n: int) -> None:
    x = numbers((3, 4, 7, n), np.float32)
    expected = [result.reshape(3, 4, 7) for result in run("totals", x.reshape(-1, n), axis=1)]
    views = (x, np.repeat(x, 2, 2)[:, :, ::2], np.asfortranarray(x), x[..., ::-1].copy()[..., ::-1])
    for view in (*views, np.broadcast_to(x[:, :1], x.shape)):
        wanted = expected if view.strides[1] else [np.repeat(e[:, :1], 4, 1) for e in expected]
        for got, total in zip(run("totals", view, axis=3), wanted, strict=True):
            assert np.array_equal(bits(got), bits(total)), view.strides


def bits(x: Array) -> Array:
    """The bits of numbers; all NaNs are the same."""
    kind = np.dtype(f"u{x.dtype.itemsize}")
    return x.view(kind) if x.dtype.kind in "biu" else np.where(x != x, kind.type(1), x.view(kind))


def model_of_columns(x: Array) -> Array:
    """The documented order of float32 sums along the first axis, in NumPy."""
    size = max(math.ceil(math.ceil(len(x) / 16) / 256) * 256, 256)
    total = np.zeros(x.shape[1])
    for piece in (x[k : k + size] for k in range(0, len(x), size)):
        settled = np.zeros(x.shape[1])
        for block in (piece[k : k + 256] for k in range(0, len(piece), 256)):
            settled += np.add.accumulate(block, axis=0, dtype=np.float32)[-1]
        total += settled
    return total.astype(np.float32)


@pytest.mark.parametrize(
    "shape", ((7, 3), (256, 1024), (257, 1025), (600, 2050), (515, 4097), (9001, 70), (4100, 1030))
)
def test_the_order_of_sums_along_columns_is_the_documented_one(run: Any, shape: tuple[int, int]) -> None:
    """In one block of columns, in few that are cut, and in many."""
    x = numbers(shape, np.float32)
    assert np.array_equal(run("dots_of_columns", x, np.ones(len(x), np.float32))[0], model_of_columns(x))
    assert np.array_equal(run("totals", x, axis=0)[0], model_of_columns(x))


@pytest.mark.parametrize(("rows", "n"), ((63, 101), (64, 1), (70, 101), (64, 4100), (64, 16384), (64, 16385)))
def test_weights_of_many_rows_are_copied_and_change_no_bit(run: Any, rows: int, n: int) -> None:
    x, w = numbers((rows, n), np.float32), numbers((2 * n,), np.float32)[1 : n + 1]
    assert np.array_equal(run("dots", x, w)[0], [model_of_a_row(row) for row in x * w])


def test_bits_do_not_depend_on_the_machine(run: Any) -> None:
    x = numbers((3, 4500), np.float32)
    for op in ("moments", "totals"):
        expected = run(op, x, axis=1)
        for again in (run(op, x, axis=1, target="x86-64-v2"), run(op, x, axis=1)):
            assert all(np.array_equal(a, b) for a, b in zip(expected, again, strict=True)), op


@pytest.mark.parametrize("op", ("totals", "places", "moments", "dots_of_columns"))
def test_frames_fit_the_stacks_of_threads(entry_of: Any, op: str) -> None:
    """What pieces of columns keep lies on the caller's stack, which may be one of 1 MiB: half of it is enough."""
    inputs = [(DType.float32, (5000, 700)), (DType.float32, (5000,))]
    own = [inputs, {}] if op == "dots_of_columns" else [inputs[:1], {"axis": 0}]
    asm = assembly_of(entry_of(KERNELS, op, *own)[0], "x86-64-v3")
    frames = [int(size) for size in re.findall(r"subq\s+\$(\d+), %rsp", asm)]
    assert max(frames) > 100_000 and sum(frames) < 500_000, frames


@pytest.mark.parametrize("target", ("sm_80", "gfx942", "aarch64"))
def test_other_targets_compile(compile_kernel: Any, target: str) -> None:
    for op in ("totals", "places", "moments"):
        for axis in (0, 1) if target != "aarch64" else (1,):
            artifact, _ = compile_kernel(KERNELS, op, [(DType.float32, (64, 100))], {"axis": axis}, None, target)
            assert len(artifact.code) > 100
