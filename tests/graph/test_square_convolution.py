"""Convolutions whose results are computed two by two: sizes, padding and special numbers against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.convolutions import load, reference

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.passes.pack_filters import FilterPacking
from einkorn.graph.passes.square_filters import Convolution
from einkorn.graph.types.layouts import ConvInputLayout, FilterLayout

Array = np.ndarray[Any, Any]
ONE = (1, 1)


def case_of(x: tuple[int, ...], results: int, padding: Any = ((1, 1), (1, 1)), stride: Any = ONE) -> Any:
    return x, (results, x[1], 3, 3), stride, ONE, list(padding), 1


CASES = [
    case_of((2, 16, 13, 17), 19),
    case_of((1, 300, 9, 7), 33),  # more steps than a slab has
    case_of((1, 20, 40, 61), 130, [(0, 0), (0, 0)]),  # several blocks along each axis, more strips than are held
    case_of((1, 17, 6, 150), 16),  # rows of several blocks
    case_of((1, 16, 5, 8), 18, [(3, 0), (0, 2)]),
    case_of((3, 16, 40, 1), 16),
    case_of((1, 16, 1, 40), 16),
    case_of((1, 16, 14, 14), 96),  # a panel with one vector
    case_of((1, 16, 5, 70), 16, [(4, 4), (5, 66)]),  # blocks that see padding alone
    case_of((0, 16, 9, 9), 16),
    case_of((2, 16, 13, 17), 19, stride=(2, 2)),
    case_of((1, 20, 60, 150), 80, stride=(2, 2)),
    case_of((1, 270, 9, 8), 17, [(0, 1), (0, 1)], (2, 2)),
    case_of((1, 16, 11, 30), 18, [(0, 2), (3, 0)], (2, 1)),
    case_of((1, 16, 12, 9), 18, [(1, 1), (1, 1)], (1, 2)),
    case_of((1, 16, 2, 2), 16, stride=(2, 2)),
]


@pytest.fixture
def all_by_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions that would not gain are computed by squares, too."""
    monkeypatch.setattr(Convolution, "by_squares", lambda self: 0.0)
    monkeypatch.setattr(FilterPacking, "is_small", lambda self, node: "no")


def numbers(case: Any, dtype: Any, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x, filter = (rng.standard_normal(each).astype(dtype) for each in case[:2])
    return x, filter


@pytest.mark.usefixtures("all_by_squares")
@pytest.mark.parametrize(
    ("case", "dtype"),
    [*((case, np.float32) for case in CASES), *((case, np.float64) for case in CASES[:4] + CASES[10:12])],
)
def test_results_that_are_computed_in_squares(case: Any, dtype: Any) -> None:
    """Sizes that are known and those of a call, which give the same bits. Of float64 each kind of block."""
    x, filter = numbers(case, dtype)
    exact = np.maximum(reference(x + 1, filter, *case[2:]), 0)
    results = []
    for symbolic in (False, True):
        model = load(case, DType.from_numpy(np.dtype(dtype)), filter, symbolic=symbolic)
        assert {each.name: each.prepared for each in model.passes if each.prepared} == {"square_filters": 1}
        results.append(model(x)[0].to_numpy())
    assert results[0].shape == exact.shape
    bound = 2e-6 if dtype == np.float32 else 1e-14
    assert np.abs(results[0] - exact).max(initial=0) <= bound * np.abs(exact).max(initial=1)
    assert results[1].tobytes() == results[0].tobytes()


@pytest.mark.parametrize("stride", [(1, 1), (2, 2)])
def test_errors_of_squares_are_bounded(stride: Any) -> None:
    """By the rounding of sums as large as four times the largest element times the magnitudes of all taps."""
    case = case_of((1, 48, 22, 20), 24, stride=stride)
    for seed in range(3):
        x, filter = numbers(case, np.float32, seed)
        filter *= 10.0 ** np.random.default_rng(seed).integers(-4, 5, filter.shape).astype(np.float32)
        model = load(case, DType.float32, filter, symbolic=False)
        exact = np.maximum(reference(x + 1, filter, *case[2:]), 0)
        largest = 4 * np.abs(x + 1).max() * np.abs(filter.astype(np.float64)).sum((1, 2, 3))
        error = np.abs(model(x)[0].to_numpy() - exact).max((0, 2, 3))
        assert (error <= 2**-24 * largest).all()


@pytest.mark.parametrize("stride", [(1, 1), (2, 2)])
def test_squares_see_what_their_windows_see(stride: Any) -> None:
    """A NaN or an infinity changes the results whose windows have it, and of the others no bit."""
    case = case_of((2, 32, 13, 17), 32, stride=stride)
    x, filter = numbers(case, np.float32)
    model = load(case, DType.float32, filter, symbolic=True)
    assert {each.name for each in model.passes if each.prepared} == {"square_filters"}
    plain = model(x)[0].to_numpy()
    seen = np.ones((1, 1, 3, 3), np.float32)
    for row, column, value in ((0, 0, np.nan), (5, 6, np.nan), (6, 9, np.inf), (12, 16, np.nan)):
        one, mark = x.copy(), np.zeros((1, 1, 13, 17), np.float32)
        one[1, 3, row, column] = value
        mark[0, 0, row, column] = 1
        changed = model(one)[0].to_numpy()
        window = np.zeros(plain.shape, bool)
        window[1] = reference(mark, seen, stride, ONE, case[4], 1)[0] > 0
        assert np.array_equal(changed[~window], plain[~window])
        assert np.isnan(changed[window]).all() or not np.isnan(value)


def test_neighbours_in_a_batch_change_no_bit() -> None:
    case = case_of((3, 24, 15, 12), 40)
    x, filter = numbers(case, np.float32)
    model = load(case, DType.float32, filter, symbolic=True)
    together = model(x)[0].to_numpy()
    for n in range(3):
        assert model(x[n : n + 1])[0].to_numpy().tobytes() == together[n : n + 1].tobytes()


def test_threads_change_no_bit() -> None:
    case = case_of((2, 32, 30, 31), 96)
    x, filter = numbers(case, np.float32)
    type = TensorType(DType.float32, x.shape, DeviceRef.CPU())
    layouts: Any = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}
    graph = Graph("conv", lambda v: ops.conv2d(v, ops.constant(filter), 1, 1, (1, 1, 1, 1), **layouts), [type])
    one, *others = (InferenceSession(devices=[CPU()], num_threads=n).load(graph)(x)[0].to_numpy() for n in (1, 2, 5))
    assert all(other.tobytes() == one.tobytes() for other in others)


def test_sums_with_other_tensors_and_their_checks() -> None:
    """What follows a convolution is computed where its results are stored; every access is checked."""
    case = case_of((1, 16, 11, 10), 16)
    x, filter = numbers(case, np.float32)
    bias = np.linspace(-1, 1, 16, dtype=np.float32)
    type = TensorType(DType.float32, x.shape, DeviceRef.CPU())
    layouts: Any = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}

    def forward(v: Any) -> Any:
        y = ops.conv2d(v, ops.constant(filter), 1, 1, (1, 1, 1, 1), **layouts)
        return ops.relu(y + ops.reshape(ops.constant(bias), [1, 16, 1, 1])) + v

    graph = Graph("residual", forward, [type])
    exact = np.maximum(reference(x, filter, *case[2:]) + bias[:, None, None], 0) + x
    for checks in ("safe", "all"):
        model = InferenceSession(devices=[CPU()], checks=checks).load(graph)
        assert np.abs(model(x)[0].to_numpy() - exact).max() <= 2e-6 * np.abs(exact).max()
    assert len(model.kernel_summaries) == 1


@pytest.mark.parametrize(
    ("sizes", "stride", "dilation", "groups"),
    [
        ((15, 16, 3, 3), ONE, ONE, 1),
        ((16, 15, 3, 3), ONE, ONE, 1),
        ((32, 32, 3, 3), (3, 1), ONE, 1),
        ((16, 16, 3, 3), ONE, (2, 1), 1),
        ((16, 16, 2, 3), ONE, ONE, 1),
        ((32, 16, 3, 3), ONE, ONE, 2),
    ],
)
def test_results_that_are_not_computed_in_squares(sizes: Any, stride: Any, dilation: Any, groups: int) -> None:
    case = ((1, sizes[1] * groups, 20, 20), sizes, stride, dilation, [(1, 1), (1, 1)], groups)
    model = load(case, DType.float32, np.ones(sizes, np.float32), symbolic=False)
    assert "square_filters" not in {each.name for each in model.passes if each.prepared}


@pytest.mark.parametrize(
    ("size", "stride", "channels", "results", "gains"),
    [
        (56, 1, 64, 64, True),
        (80, 1, 16, 16, True),
        (7, 1, 512, 512, True),
        (5, 1, 512, 512, False),  # nine squares take two vectors, their pairs one panel
        (4, 1, 512, 512, False),  # more weights come from memory
        (28, 2, 64, 128, True),
        (160, 2, 16, 32, True),
        (20, 2, 16, 16, False),
        (4, 2, 512, 512, False),
    ],
)
def test_what_gains_is_computed_in_squares(size: int, stride: int, channels: int, results: int, gains: bool) -> None:
    work = Convolution((size, size), (stride, stride), channels, results, 4, 8)
    assert (work.by_squares() < work.by_others()) == gains


def test_one_filter_with_two_strides() -> None:
    rng = np.random.default_rng(2)
    filter = rng.standard_normal((32, 32, 3, 3)).astype(np.float32)
    x = rng.standard_normal((1, 32, 20, 20)).astype(np.float32)
    layouts: Any = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}

    def forward(v: Any) -> Any:
        weight = ops.constant(filter)
        return tuple(ops.conv2d(v, weight, stride, 1, (1, 1, 1, 1), **layouts) for stride in (1, 2))

    graph = Graph("strides", forward, [TensorType(DType.float32, x.shape, DeviceRef.CPU())])
    model = InferenceSession(devices=[CPU()]).load(graph)
    assert {each.name: each.prepared for each in model.passes if each.prepared} == {"square_filters": 2}
    for stride, result in zip((1, 2), model(x), strict=True):
        exact = reference(x, filter, (stride, stride), ONE, [(1, 1), (1, 1)], 1)
        assert np.abs(result.to_numpy() - exact).max() <= 2e-6 * np.abs(exact).max()
