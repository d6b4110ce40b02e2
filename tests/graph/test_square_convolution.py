"""Convolutions whose results are computed two by two: sizes, padding and special numbers against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.convolutions import load, reference

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.types.layouts import ConvInputLayout, FilterLayout

Array = np.ndarray[Any, Any]
ONE = (1, 1)


def case_of(x: tuple[int, ...], results: int, padding: Any = ((1, 1), (1, 1))) -> Any:
    return x, (results, x[1], 3, 3), ONE, ONE, list(padding), 1


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
]


def numbers(case: Any, dtype: Any, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x, filter = (rng.standard_normal(each).astype(dtype) for each in case[:2])
    return x, filter


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_that_are_computed_in_squares(case: Any, dtype: Any) -> None:
    """Sizes that are known and those of a call, which give the same bits."""
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


def test_errors_of_squares_are_bounded() -> None:
    """By the rounding of sums as large as four times the largest element times the magnitudes of all taps."""
    case = case_of((1, 48, 22, 20), 24)
    for seed in range(3):
        x, filter = numbers(case, np.float32, seed)
        filter *= 10.0 ** np.random.default_rng(seed).integers(-4, 5, filter.shape).astype(np.float32)
        model = load(case, DType.float32, filter, symbolic=False)
        exact = np.maximum(reference(x + 1, filter, *case[2:]), 0)
        largest = 4 * np.abs(x + 1).max() * np.abs(filter.astype(np.float64)).sum((1, 2, 3))
        error = np.abs(model(x)[0].to_numpy() - exact).max((0, 2, 3))
        assert (error <= 2**-24 * largest).all()


def test_squares_see_what_their_windows_see() -> None:
    """A NaN or an infinity changes the results whose windows have it, and of the others no bit."""
    case = CASES[0]
    x, filter = numbers(case, np.float32)
    model = load(case, DType.float32, filter, symbolic=True)
    plain = model(x)[0].to_numpy()
    for row, column, value in ((0, 0, np.nan), (5, 6, np.nan), (6, 9, np.inf), (12, 16, np.nan)):
        one = x.copy()
        one[1, 3, row, column] = value
        changed = model(one)[0].to_numpy()
        window = np.zeros(plain.shape, bool)
        window[1, :, max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2] = True
        assert np.array_equal(changed[~window], plain[~window])
        assert not np.isfinite(changed[window]).any() if np.isnan(value) else True


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
        ((16, 16, 3, 3), (2, 1), ONE, 1),
        ((16, 16, 3, 3), ONE, (2, 1), 1),
        ((16, 16, 2, 3), ONE, ONE, 1),
        ((32, 16, 3, 3), ONE, ONE, 2),
    ],
)
def test_results_that_are_not_computed_in_squares(sizes: Any, stride: Any, dilation: Any, groups: int) -> None:
    case = ((1, sizes[1] * groups, 20, 20), sizes, stride, dilation, [(1, 1), (1, 1)], groups)
    model = load(case, DType.float32, np.ones(sizes, np.float32), symbolic=False)
    assert "square_filters" not in {each.name for each in model.passes if each.prepared}
