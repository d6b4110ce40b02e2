"""Filters that are packed when a model is loaded: sizes, strides and padding of all kinds against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.convolutions import load, reference

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.passes.pack_filters import FilterPacking, shared_strip_rows, strip_rows
from einkorn.graph.types.layouts import ConvInputLayout, FilterLayout

Array = np.ndarray[Any, Any]


CASES = [  # x, filter, stride, dilation, padding, groups
    ((2, 5, 13, 17), (19, 5, 3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], 1),
    ((1, 70, 9, 9), (33, 70, 3, 3), (2, 2), (1, 1), [(1, 1), (1, 1)], 1),  # more steps than a slab has
    ((1, 3, 30, 23), (16, 3, 7, 7), (2, 2), (1, 1), [(3, 3), (3, 3)], 1),
    ((2, 20, 8, 9), (30, 20, 1, 1), (1, 1), (1, 1), [(0, 0), (0, 0)], 1),  # read where it lies
    ((1, 20, 3, 3), (30, 20, 1, 1), (1, 1), (1, 1), [(0, 0), (0, 0)], 1),  # fewer places than a panel has
    ((2, 6, 11, 10), (8, 6, 1, 1), (2, 3), (1, 1), [(0, 0), (0, 0)], 1),
    ((1, 6, 20, 15), (9, 2, 3, 2), (3, 2), (2, 3), [(0, 2), (1, 0)], 3),
    ((1, 4, 300), (5, 4, 5), (2,), (2,), [(3, 1)], 1),
    ((1, 2, 6, 7, 8), (3, 2, 3, 2, 3), (1, 2, 1), (2, 1, 1), [(2, 2), (0, 1), (1, 1)], 1),
    ((0, 2, 6, 7), (3, 2, 3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], 1),
    ((5, 90, 6), (40, 90, 3), (2,), (1,), [(1, 1)], 1),  # few places of several images, more than a tile has
    ((3, 30, 1), (45, 10, 3), (1,), (1,), [(1, 1)], 3),  # a tile of few places
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_packed_filters(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that are known and those of a call; the bits are those of filters that are not packed."""
    shape, sizes, stride, dilation, padding, groups = case
    rng = np.random.default_rng(len(shape))
    x, filter = (rng.standard_normal(each).astype(np.float32) for each in (shape, sizes))
    exact = np.maximum(reference(x + 1, filter, stride, dilation, padding, groups), 0)
    results = []
    for symbolic, without in ((False, ""), (True, ""), (False, ",graph.pack_filters")):
        monkeypatch.setenv("EINKORN_WITHOUT", "graph.square_filters" + without)
        model = load(case, DType.float32, filter, symbolic=symbolic)
        packed = sum(each.prepared for each in model.passes if each.name == "pack_filters")
        assert packed == (0 if without else 1)
        results.append(model(x)[0].to_numpy())
    assert results[0].shape == exact.shape
    assert np.abs(results[0] - exact).max(initial=0) <= 2e-6 * np.abs(exact).max(initial=1)
    for other in results[1:]:
        assert other.tobytes() == results[0].tobytes()


PAIRED = [  # as `CASES`: three taps of neighbours along the last axis, 16 channels and results at least
    ((2, 16, 13, 17), (19, 16, 3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], 1),
    ((1, 90, 30, 8), (33, 90, 3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], 1),  # more steps than a slab has
    ((1, 20, 40, 61), (130, 20, 3, 3), (1, 1), (1, 1), [(0, 0), (0, 0)], 1),  # more strips than are held
    ((1, 32, 15, 30), (48, 16, 2, 3), (2, 1), (3, 1), [(3, 0), (0, 2)], 2),
    ((3, 17, 301), (16, 17, 3), (1,), (1,), [(2, 2)], 1),
    ((1, 16, 6, 7, 9), (18, 16, 3, 2, 3), (1, 2, 1), (2, 1, 1), [(2, 2), (0, 1), (1, 1)], 1),
    ((1, 16, 40, 1), (16, 16, 3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], 1),  # rows of one result
    ((1, 16, 40, 3), (16, 16, 1, 3), (1, 1), (1, 1), [(0, 0), (0, 0)], 1),
    ((0, 16, 9, 9), (16, 16, 3, 3), (1, 1), (1, 1), [(1, 1), (1, 1)], 1),
]


@pytest.mark.parametrize(
    ("case", "dtype"), [*((case, np.float32) for case in PAIRED), *((case, np.float64) for case in PAIRED[:4])]
)
def test_results_that_are_computed_in_pairs(case: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two results take four products; without the pass each takes three."""
    shape, sizes, stride, dilation, padding, groups = case
    rng = np.random.default_rng(len(shape))
    x, filter = (rng.standard_normal(each).astype(dtype) for each in (shape, sizes))
    exact = np.maximum(reference(x + 1, filter, stride, dilation, padding, groups), 0)
    for symbolic, pairs in ((False, True), (True, True), (False, False)):
        without = "graph.square_filters" if pairs else "graph.square_filters,graph.pair_filters"
        monkeypatch.setenv("EINKORN_WITHOUT", without)
        model = load(case, DType.from_numpy(np.dtype(dtype)), filter, symbolic=symbolic)
        prepared = {each.name: each.prepared for each in model.passes}
        # a row of any length may have few places, which each take a vector of results
        paired = pairs and not (symbolic and len(shape) == 3)
        assert (prepared.get("pair_filters", 0), prepared["pack_filters"]) == ((1, 0) if paired else (0, 1))
        result = model(x)[0].to_numpy()
        assert result.shape == exact.shape
        bound = 2e-6 if dtype == np.float32 else 1e-14
        assert np.abs(result - exact).max(initial=0) <= bound * np.abs(exact).max(initial=1)


def test_pairs_see_what_their_windows_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN stays in the results whose windows have it, and of the other results no bit changes."""
    monkeypatch.setenv("EINKORN_WITHOUT", "graph.square_filters")
    rng = np.random.default_rng(5)
    case = PAIRED[0]
    x, filter = (rng.standard_normal(each).astype(np.float32) for each in case[:2])
    model = load(case, DType.float32, filter, symbolic=True)
    plain = model(x)[0].to_numpy()
    for column in (0, 6, 9, 16):
        one = x.copy()
        one[1, 3, 5, column] = np.nan
        changed = np.isnan(model(one)[0].to_numpy())
        window = np.zeros_like(changed)
        window[1, :, 4:7, max(column - 1, 0) : column + 2] = True
        assert np.array_equal(changed, window)
        assert np.array_equal(model(one)[0].to_numpy()[~window], plain[~window])


@pytest.mark.parametrize(
    ("sizes", "stride", "dilation"),
    [
        ((15, 16, 3, 3), 1, 1),
        ((16, 15, 3, 3), 1, 1),
        ((16, 16, 3, 3), 2, 1),
        ((16, 16, 3, 3), 1, 2),
        ((16, 16, 3, 2), 1, 1),
    ],
)
def test_results_that_are_computed_one_by_one(sizes: Any, stride: int, dilation: int) -> None:
    case = ((1, sizes[1], 20, 20), sizes, (stride,) * 2, (dilation,) * 2, [(1, 1), (1, 1)], 1)
    model = load(case, DType.float32, np.ones(sizes, np.float32), symbolic=False)
    assert {each.name: each.prepared for each in model.passes if each.prepared} == {"pack_filters": 1}


def test_packed_filters_of_float64() -> None:
    rng = np.random.default_rng(0)
    shape, sizes, stride, dilation, padding, groups = CASES[0]
    x, filter = rng.standard_normal(shape), rng.standard_normal(sizes)
    model = load(CASES[0], DType.float64, filter, symbolic=False)
    exact = np.maximum(reference(x + 1, filter, stride, dilation, padding, groups), 0)
    assert np.abs(model(x)[0].to_numpy() - exact).max() <= 1e-13 * np.abs(exact).max()


def test_packed_filters_of_bytes_without_their_zero_point() -> None:
    """The filter is cast and subtracted from when the model is loaded; sums are exact, in int32."""
    rng = np.random.default_rng(1)
    x, filter = rng.integers(0, 256, (2, 20, 9, 11)), rng.integers(0, 256, (30, 20, 3, 3))
    cpu = DeviceRef.CPU()
    layouts: Any = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}

    def forward(x: Any) -> Any:
        w = ops.constant_external("w", TensorType(DType.uint8, filter.shape, cpu))
        return ops.conv2d(ops.cast(x, DType.int32) - 7, ops.cast(w, DType.int32) - 121, 1, 1, (1, 1, 1, 1), **layouts)

    graph = Graph("bytes", forward=forward, input_types=[TensorType(DType.uint8, x.shape, cpu)])
    model = InferenceSession(devices=[CPU()]).load(graph, weights_registry={"w": filter.astype(np.uint8)})
    assert sum(each.prepared for each in model.passes if each.name == "pack_filters") == 1
    exact = reference(x - 7, filter - 121, (1, 1), (1, 1), [(1, 1), (1, 1)], 1)
    assert np.array_equal(model(x.astype(np.uint8))[0].to_numpy(), exact)


@pytest.mark.parametrize(
    ("dtypes", "zeros", "taps", "groups", "exact"),
    [
        (("uint8", "int8"), (7, 0), 3, 1, True),
        (("uint8", "uint8"), (0, 0), 3, 1, True),
        (("uint8", "uint8"), (255, 0), 1, 2, True),
        (("int8", "int8"), (-128, 127), 1, 1, True),
        (("uint8", "uint8"), (-3, 0), 3, 1, False),  # a slab of 258 times 255 is too large for float32
        (("int32", "uint8"), (0, 0), 3, 1, False),
    ],
)
def test_sums_of_bytes_in_floats(
    dtypes: Any, zeros: Any, taps: int, groups: int, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of bytes are summed in float32 where that is exact, and wrap in int32 elsewhere."""
    decided = []
    is_exact = FilterPacking.is_exact

    def noted(self: FilterPacking, node: Any) -> bool:
        decided.append(is_exact(self, node))
        return decided[-1]

    monkeypatch.setattr(FilterPacking, "is_exact", noted)
    kinds = [np.dtype(each) for each in dtypes]
    ends = [(0, 2**20) if each.itemsize > 1 else (np.iinfo(each).min, np.iinfo(each).max) for each in kinds]
    rng = np.random.default_rng(4)
    shapes = (1, 300 * groups, 9, 10), (12 * groups, 300, taps, taps)
    x, filter = (rng.choice(each, shape).astype(kind) for each, shape, kind in zip(ends, shapes, kinds, strict=True))
    x[:, :, :5] = ends[0][1]
    filter[0] = ends[1][0]
    filter[1] = ends[1][1]
    layouts: Any = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS, "groups": groups}
    types = [
        TensorType(DType.from_numpy(each), shape, DeviceRef.CPU()) for each, shape in zip(kinds, shapes, strict=True)
    ]

    def forward(v: Any) -> Any:
        w = ops.cast(ops.constant_external("w", types[1]), DType.int32) - zeros[1]
        return ops.conv2d(ops.cast(v, DType.int32) - zeros[0], w, 1, 1, (taps // 2,) * 4, **layouts)

    graph = Graph("bytes", forward=forward, input_types=types[:1])
    result = InferenceSession(devices=[CPU()]).load(graph, weights_registry={"w": filter})(x)[0].to_numpy()
    numbers = (each.astype(np.int64) - zero for each, zero in zip((x, filter), zeros, strict=True))
    sums = reference(*numbers, (1, 1), (1, 1), [(taps // 2,) * 2] * 2, groups)
    assert np.array_equal(result, sums.astype(np.int64).astype(np.int32))
    assert set(decided) == {exact}


def test_filters_and_matrices_of_branches_are_packed() -> None:
    """Both arms of a branch read the same weights; what is packed stands before the branch."""
    rng = np.random.default_rng(3)
    x, filter = rng.standard_normal((2, 8, 20)).astype(np.float32), rng.standard_normal((24, 8, 3)).astype(np.float32)
    matrix = rng.standard_normal((20, 1 << 13)).astype(np.float32)
    cpu = DeviceRef.CPU()
    layouts: Any = {"input_layout": ConvInputLayout.NCHW, "filter_layout": FilterLayout.FCRS}

    def forward(x: Any, flag: Any) -> Any:
        w = ops.constant_external("w", TensorType(DType.float32, filter.shape, cpu))
        m = ops.constant_external("m", TensorType(DType.float32, matrix.shape, cpu))

        def arm(scale: float) -> Any:
            return lambda: (ops.conv1d(x * scale, w, 1, 1, (1, 1), **layouts) @ m)[:, :, :50]

        return ops.cond(flag, [TensorType(DType.float32, (2, 24, 50), cpu)], arm(1.0), arm(2.0))[0]

    types = [TensorType(DType.float32, x.shape, cpu), TensorType(DType.bool, [], cpu)]
    graph = Graph("branches", forward=forward, input_types=types)
    model = InferenceSession(devices=[CPU()]).load(graph, weights_registry={"w": filter, "m": matrix})
    assert {each.name: each.prepared for each in model.passes if each.prepared} == {
        "pack_filters": 1,
        "pack_weights": 1,
    }
    exact = reference(x, filter, (1,), (1,), [(1, 1)], 1) @ matrix[:, :50].astype(np.float64)
    for flag, scale in ((True, 1.0), (False, 2.0)):
        result = model(x, np.bool_(flag))[0].to_numpy()
        assert np.abs(result - scale * exact).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("results", "bits", "rows"), [(1, 512, 1), (14, 512, 14), (16, 512, 8), (64, 512, 13), (7, 256, 4)]
)
def test_strips_have_few_rows_in_vain(results: int, bits: int, rows: int) -> None:
    assert strip_rows(results, bits) == rows


@pytest.mark.parametrize(
    ("rows", "bits"),
    [
        ({1: 1}, 512),
        ({24: 12, 48: 12, 96: 12, 120: 12}, 512),
        ({16: 8, 32: 8, 64: 8, 88: 8}, 512),
        ({48: 6, 24: 6}, 256),
    ],
)
def test_strips_are_alike_where_that_costs_little(rows: dict[int, int], bits: int) -> None:
    assert shared_strip_rows(rows, bits) == rows


def test_one_filter_over_maps_of_few_and_of_many_places() -> None:
    """Its results lie side by side in vectors for the one, and its strips are of other rows for the other."""
    rng = np.random.default_rng(3)
    filter = rng.standard_normal((24, 8, 3, 3)).astype(np.float32)
    few, many = (rng.standard_normal((2, 8, n, n)).astype(np.float32) for n in (3, 20))

    def forward(*images: Any) -> Any:
        weight = ops.constant(filter, DType.float32, DeviceRef.CPU())
        return tuple(
            ops.conv2d(
                x, weight, padding=(1, 1, 1, 1), input_layout=ConvInputLayout.NCHW, filter_layout=FilterLayout.FCRS
            )
            for x in images
        )

    types = [TensorType(DType.float32, x.shape, DeviceRef.CPU()) for x in (few, many)]
    model = InferenceSession(devices=[CPU()]).load(Graph("few", forward, input_types=types))
    for x, result in zip((few, many), model.execute(few, many), strict=True):
        exact = reference(x, filter, (1, 1), (1, 1), [(1, 1), (1, 1)], 1)
        assert np.abs(result.to_numpy() - exact).max() <= 1e-5 * np.abs(exact).max()


@pytest.mark.parametrize(
    ("size", "kernel", "padding", "dilation"), [((9, 7), 5, 2, 1), ((70, 40), 3, 1, 1), ((12, 9), 3, 1, 2)]
)
def test_pools_and_filters_of_single_channels(size: Any, kernel: int, padding: int, dilation: int) -> None:
    """Windows of stride one see a copy with what stands for the places outside; a NaN stays one."""
    rng = np.random.default_rng(kernel)
    x, filter = rng.standard_normal((2, 3, *size)).astype(np.float32), rng.standard_normal((3, 1, kernel, kernel))
    filter = filter.astype(np.float32)
    x[0, 1, 2, 3] = np.nan
    layouts: dict[str, Any] = {"input_layout": ConvInputLayout.NCHW}

    def forward(image: Any) -> Any:
        pooled = ops.max_pool2d(image, kernel, stride=1, dilation=dilation, padding=padding, **layouts)
        clean = ops.where(ops.is_nan(image), 0.0, image)
        both = {**layouts, "filter_layout": FilterLayout.FCRS, "dilation": dilation, "padding": padding, "groups": 3}
        return pooled, ops.conv2d(clean, ops.constant(filter), **both)

    types = [TensorType(DType.float32, x.shape, DeviceRef.CPU())]
    model = InferenceSession(devices=[CPU()]).load(Graph("windows", forward=forward, input_types=types))
    pooled, summed = (each.to_numpy() for each in model(x))
    sides = [(0, 0), (0, 0), (padding, padding), (padding, padding)]
    reach = (kernel - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, sides, constant_values=-np.inf), (reach, reach), (2, 3)
    )
    assert np.array_equal(pooled, windows[..., ::dilation, ::dilation].max((4, 5)), equal_nan=True)
    exact = reference(np.nan_to_num(x), filter, (1, 1), (dilation,) * 2, [(padding, padding)] * 2, 3)
    assert np.abs(summed - exact).max() <= 2e-6 * np.abs(exact).max()
