"""Monoids over tuples and structs of numbers, against NumPy; `KernelFile` compares compiled code and interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from einkorn.compiler.check import check_kernels
from einkorn.dsl import DType

HERE = Path(__file__).parent
if str(HERE.parent / "language") not in sys.path:
    sys.path.insert(0, str(HERE.parent / "language"))

from kernel_harness import KernelFile  # noqa: E402

Array = np.ndarray[Any, Any]
SHAPES = (
    ((3, 37), 1),
    ((16,), 0),
    ((40, 3), 0),
    ((2, 5, 300), 1),
    ((9, 2, 17), 2),
    ((4, 0), 1),
    ((0, 4), 0),
    ((1,), 0),
)
LONG = ((2, 33000), 1)  # of several pieces


@pytest.fixture(scope="module")
def kernels() -> KernelFile:
    return KernelFile(HERE / "element_kernels.py")


def numbers(shape: tuple[int, ...], seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def recurrence(a: Array, b: Array, axis: int, exclusive: bool) -> tuple[Array, Array]:
    """The products of a, and h, in float64."""
    a, b = (np.moveaxis(v.astype(np.float64), axis, 0) for v in (a, b))
    products, every = np.empty_like(a), np.empty_like(a)
    p, h = np.ones(a.shape[1:]), np.zeros(a.shape[1:])
    for k in range(len(a)):
        after = p * a[k], h * a[k] + b[k]
        products[k], every[k] = (p, h) if exclusive else after
        p, h = after
    return np.moveaxis(products, 0, axis), np.moveaxis(every, 0, axis)


@pytest.mark.parametrize("exclusive", (False, True))
@pytest.mark.parametrize("dtype", (np.float32, np.float64, ml_dtypes.bfloat16), ids=lambda d: np.dtype(d).name)
def test_linear_recurrences(kernels: KernelFile, dtype: Any, exclusive: bool) -> None:
    some = SHAPES if dtype == np.float32 else SHAPES[:3]
    eps = float(ml_dtypes.finfo(dtype).eps)
    for shape, axis in (*some, LONG) if dtype == np.float32 and not exclusive else some:
        a = np.random.default_rng(1).uniform(-1.01, 1.01, shape).astype(dtype)
        b = numbers(shape).astype(dtype)
        products, every = recurrence(a, b, axis, exclusive)
        (got,) = kernels("recurrence", a, b, axis=axis, exclusive=exclusive)
        assert np.allclose(got.astype(np.float64), every, rtol=eps, atol=1e-12), (shape, axis)
        if len(shape) < 3 and dtype != ml_dtypes.bfloat16:
            product, got = kernels("recurrence_parts", a, b, axis=axis, exclusive=exclusive)
            assert np.allclose(got, every, rtol=60 * eps, atol=60 * eps), (shape, axis)
            assert np.allclose(product, products, rtol=60 * eps, atol=1e-30), (shape, axis)


def test_driven_states(kernels: KernelFile) -> None:
    x, step = numbers((4, 50)).astype(np.float32), np.abs(numbers((4, 50), 4)).astype(np.float32)
    last, every = kernels("driven", x, step)
    h, wanted = np.zeros(4), np.empty((4, 50))
    for k in range(50):
        h = wanted[:, k] = (h + step[:, k].astype(np.float64) * x[:, k]) / (1 + step[:, k].astype(np.float64))
    assert np.allclose(every, wanted, rtol=1e-4, atol=1e-5)
    assert np.allclose(last, wanted[:, -1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", (np.float32, ml_dtypes.bfloat16), ids=lambda d: np.dtype(d).name)
def test_weighted_moments(kernels: KernelFile, dtype: Any) -> None:
    for shape, axis in (((3, 37), 1), ((37, 3), 0), ((2, 300, 5), 1), LONG):
        if dtype != np.float32 and len(shape) > 2:
            continue
        x, w = (numbers(shape) + 100).astype(dtype), np.abs(numbers((shape[axis],), 5)).astype(dtype)
        mean, variance = kernels("weighted", x, w, axis=axis)
        wide, weights = np.moveaxis(x.astype(np.float64), axis, -1), w.astype(np.float64)
        wanted = np.average(wide, -1, weights)
        spread = np.average((wide - wanted[..., None]) ** 2, -1, weights)
        eps = float(ml_dtypes.finfo(dtype).eps)
        assert np.allclose(mean.astype(np.float64), wanted, rtol=eps)
        assert np.allclose(variance.astype(np.float64), spread, rtol=eps)
    x, w = numbers((3, 4, 5)), np.abs(numbers((3, 4, 5), 5))
    (got,) = kernels("weighted_all", x, w)
    wanted = np.average(x, weights=w)
    assert np.allclose(got, [wanted, np.average((x - wanted) ** 2, weights=w)], rtol=1e-13)


def test_the_farthest_with_its_label(kernels: KernelFile) -> None:
    for shape, axis in (((3, 37), 1), ((37, 3), 0), ((2, 300, 5), 1), LONG):
        x = np.round(numbers(shape) * 4).astype(np.float32)  # many are equal
        centre, labels = np.round(numbers((shape[axis],), 6)).astype(np.float32), np.arange(shape[axis])[::-1] * 7
        value, label = kernels("farthest", x, centre, labels, axis=axis)
        moved = np.moveaxis(x, axis, -1)
        away = np.abs(moved - centre)
        best = np.where(away == away.max(-1, keepdims=True), labels, 1 << 60).min(-1)
        assert np.array_equal(label, best)
        place = shape[axis] - 1 - best // 7
        assert np.array_equal(value, np.take_along_axis(moved, place[..., None], -1)[..., 0])


def test_several_monoids_over_pairs(kernels: KernelFile) -> None:
    x, y = numbers((5, 41)), numbers((5, 41), 4)
    re, im, length = kernels("turned", x, y)
    product = np.prod(x + 1j * y, 1)
    assert np.allclose(re + 1j * im, product, rtol=1e-12)
    assert np.allclose(length, np.abs(x + 1j * y).sum(1), rtol=1e-13)


def test_what_a_monoid_does_unless_overridden(kernels: KernelFile) -> None:
    x = numbers((70, 6)).astype(ml_dtypes.bfloat16)
    out, _ = kernels("sums", x)
    squares = (x * x).astype(np.float64)
    wanted = [x.astype(np.float64).sum(0), squares.sum(0)]
    assert np.allclose(out.astype(np.float64), wanted, rtol=2**-8, atol=1e-2)


@pytest.mark.parametrize("target", ("sm_90a", "gfx942"))
def test_gpu_code(kernels: KernelFile, target: str) -> None:
    plane, row = (DType.float32, (4, 50)), (DType.float32, (50,))
    for axis in (0, 1):
        assert kernels.compile("recurrence", [plane, plane], target=target, axis=axis).code
    assert kernels.compile("driven", [plane, plane], target=target).code
    labels = (DType.int64, (50,))
    assert kernels.compile("farthest", [plane, row, labels], target=target, axis=1).code


WRONG = {
    "rowwise((x, y), Sum, lambda row, v: store(out, row, v))": "this monoid takes numbers",
    "rowwise(x, (Pair, Max), lambda row, p, v: store(out, row, v), of=lambda v: (v, v))": "this monoid takes numbers",
    "rowwise(x, Pair, lambda row, p: store(out, row, p[0]), of=lambda v: (v, 1))": "a compile-time number",
    "scan(full, (x, y), Pair)": "gives 2 values for 1 tensors",
    "scan((full, full), x, Sum)": "gives 1 values for 2 tensors",
}


@pytest.mark.parametrize("call", WRONG)
def test_mistakes_are_reported_at_the_call(call: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(
        "from einkorn.dsl import *\nfrom einkorn.stdlib import Max, Monoid, Sum, rowwise, scan\n\n\n"
        "class Pair(Monoid):\n    @staticmethod\n    def combine(a, b):\n        return a[0] + b[0], a[1] + b[1]\n\n\n"
        '@register("op")\ndef op(out: OutputTensor[float32, "*s"], full: OutputTensor[float32, "*s n"], '
        f'x: InputTensor[float32, "*s n"], y: InputTensor[float32, "*s n"]):\n    {call}\n'
    )
    (error,) = check_kernels(str(file)).errors
    assert error.code == "EK0215" and WRONG[call] in error.message
    assert error.place is not None and (error.place.file, error.place.line) == (str(file), 13)
