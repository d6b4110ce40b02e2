"""What the ops of images refuse, and what their cases do not say: sizes that only a call has, layouts, fusion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support import graphs

from einkorn.dsl.diagnostics.errors import EinkornError
from einkorn.graph import ConvInputLayout, FilterLayout, InferenceSession, TensorValue, ops

pytestmark = pytest.mark.as_shipped

F32 = np.float32
IMAGE, FILTER = (1, 8, 9, 4), (3, 3, 4, 6)
NCHW = ConvInputLayout.NCHW


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with graphs.cache_in(tmp_path_factory.mktemp("cache")):
        yield


WRONG: dict[str, tuple[Callable[..., Any], str, str, str]] = {  # call, code, argument, a part of the message
    "an image of another rank": (lambda x, w: ops.conv2d(x[0], w), "EK0421", "x", "rank 3"),
    "a filter of another rank": (lambda x, w: ops.conv2d(x, w[0]), "EK0421", "filter", "rank 3"),
    "conv1d of an image": (lambda x, w: ops.conv1d(x, w), "EK0421", "x", "rank 4"),
    "conv3d of an image": (lambda x, w: ops.conv3d(x, w), "EK0421", "x", "rank 4"),
    "other channels": (lambda x, w: ops.conv2d(x, w[:, :, :3]), "EK0491", "filter", "x has 4 channels"),
    "channels in groups": (lambda x, w: ops.conv2d(x, w, groups=2), "EK0491", "filter", "2 groups"),
    "results in groups": (lambda x, w: ops.conv2d(x, w[:, :, :1, :5], groups=4), "EK0491", "groups", "5 results"),
    "no groups": (lambda x, w: ops.conv2d(x, w, groups=0), "EK0491", "groups", "0 groups"),
    "groups as text": (lambda x, w: ops.conv2d(x, w, groups="2"), "EK0491", "groups", "whole number"),
    "a bias of another size": (lambda x, w: ops.conv2d(x, w, bias=w[0, 0, 0, :5]), "EK0491", "bias", "6 results"),
    "a bias of another rank": (lambda x, w: ops.conv2d(x, w, bias=w[0, 0]), "EK0491", "bias", "6 results"),
    "a bias as a number": (lambda x, w: ops.conv2d(x, w, bias=1.0), "EK0491", "bias", "6 results"),
    "a layout of images": (lambda x, w: ops.conv2d(x, w, input_layout="HWC"), "EK0414", "input_layout", "NHWC"),
    "a layout of filters": (lambda x, w: ops.conv2d(x, w, filter_layout="KCRS"), "EK0414", "filter_layout", "RSCF"),
    "a layout for three axes": (
        lambda x, w: ops.conv2d(x, w, filter_layout=FilterLayout.QRSCF),
        *("EK0414", "filter_layout", "FCRS"),
    ),
    "a stride of 0": (lambda x, w: ops.conv2d(x, w, stride=0), "EK0490", "stride", ">= 1"),
    "three strides": (lambda x, w: ops.conv2d(x, w, stride=(1, 2, 1)), "EK0490", "stride", "2 whole numbers"),
    "a dilation below 0": (lambda x, w: ops.conv2d(x, w, dilation=(1, -1)), "EK0490", "dilation", ">= 1"),
    "a padding below 0": (lambda x, w: ops.conv2d(x, w, padding=(0, 0, -1, 0)), "EK0490", "padding", ">= 0"),
    "three paddings": (lambda x, w: ops.conv2d(x, w, padding=(0, 0, 1)), "EK0490", "padding", "2 or 4"),
    "a padding of floats": (lambda x, w: ops.conv2d(x, w, padding=1.5), "EK0490", "padding", "list"),
    "no place for the filter": (lambda x, w: ops.conv2d(x[:, :1], w), "EK0475", "", "-1"),
    "a number as image": (lambda x, w: ops.conv2d(2.0, w), "EK0421", "x", "rank 0"),
    "channels of a transposed one": (lambda x, w: ops.conv2d_transpose(x, w), "EK0491", "filter", "takes 6"),
    "more at the end": (
        lambda x, w: ops.conv2d_transpose(x[..., :2], w[..., :2], output_paddings=-1),
        *("EK0490", "output_paddings", ">= 0"),
    ),
    "pools of another rank": (lambda x, w: ops.max_pool2d(x[0], 2), "EK0421", "input", "rank 3"),
    "pools without places": (lambda x, w: ops.lp_pool(x[0, 0], 2), "EK0421", "input", "rank 2"),
    "a window of 0": (lambda x, w: ops.max_pool2d(x, (0, 1)), "EK0490", "kernel_size", ">= 1"),
    "one size of two": (lambda x, w: ops.avg_pool2d(x, (2,)), "EK0490", "kernel_size", "2 whole numbers"),
    "a flag": (lambda x, w: ops.avg_pool2d(x, 2, ceil_mode="yes"), "EK0478", "ceil_mode", "True or False"),
    "a norm of 0": (lambda x, w: ops.lp_pool(x, 2, p=0), "EK0490", "p", "0"),
    "a complex norm": (lambda x, w: ops.lp_pool(x, 2, p=np.complex64(2 + 1j)), "EK0490", "p", "a number above 0"),
    "neighbours": (lambda x, w: ops.local_response_norm(x, 0), "EK0490", "size", ">= 1"),
    "fewer blocks": (lambda x, w: ops.fold(x[0, 0], (3, 3), 2), "EK0421", "input", "rank 3"),
    "blocks of another image": (lambda x, w: ops.fold(w[0], (3, 3), (2, 2)), "EK0492", "input", "6 blocks"),
    "taps": (lambda x, w: ops.fold(w[0], (2, 3), (1, 3), padding=(0, 1)), "EK0492", "input", "3 taps"),
    "an image without axes": (lambda x, w: ops.fold(w[0], (), ()), "EK0490", "output_size", "0 sizes"),
    "a resize of another rank": (lambda x, w: ops.resize(x[0], (8, 9, 4)), "EK0421", "input", "rank 3"),
    "a resize to fewer sizes": (lambda x, w: ops.resize(x, (8, 9)), "EK0492", "shape", "2 sizes"),
    "a resize of channels": (lambda x, w: ops.resize(x, (1, 4, 9, 4)), "EK0492", "shape", "channels"),
    "an interpolation": (lambda x, w: ops.resize(x, x.shape, "area"), "EK0414", "interpolation", "BICUBIC"),
    "a resize of nothing": (lambda x, w: ops.resize_linear(x[:, :0], (1, 2, 9, 4)), "EK0492", "input", "no elements"),
    "coordinates": (
        lambda x, w: ops.resize_nearest(x, x.shape, "corners"),
        *("EK0414", "coordinate_transform_mode", "align_corners"),
    ),
    "rounding": (lambda x, w: ops.resize_nearest(x, x.shape, round_mode="up"), "EK0414", "round_mode", "floor"),
    "scales": (lambda x, w: ops.resize_linear(x, x.shape, scales=[1, 2]), "EK0478", "scales", "4 numbers"),
    "a scale of 0": (lambda x, w: ops.resize_linear(x, x.shape, scales=[1, 2, 0, 1]), "EK0478", "scales", "above 0"),
    "a coefficient": (
        lambda x, w: ops.resize_bicubic(x, x.shape, cubic_coeff_a="a"),
        *("EK0478", "cubic_coeff_a", "a number"),
    ),
    "a map": (lambda x, w: ops.affine_grid(w[0], (3, 1, 4, 4)), "EK0492", "theta", "(3, 2, 3)"),
    "the size of a grid": (lambda x, w: ops.affine_grid(w[0], (3, 4)), "EK0492", "size", "2 sizes"),
    "an image for a grid": (lambda x, w: ops.grid_sample(x[0], w), "EK0421", "input", "rank 4 or 5"),
    "a grid of another rank": (lambda x, w: ops.grid_sample(x, w[0]), "EK0421", "grid", "rank 3"),
    "a grid of other axes": (lambda x, w: ops.grid_sample(x, w[:1]), "EK0492", "grid", "(1, 3, 4, 6)"),
    "a mode": (lambda x, w: ops.grid_sample(x, x[..., :2], "cubic"), "EK0414", "mode", "bicubic"),
    "boxes of another rank": (lambda x, w: ops.roi_align(x, w, 2, 2), "EK0421", "rois", "rank 4"),
    "boxes of four numbers": (lambda x, w: ops.roi_align(x, x[0, 0], 2, 2), "EK0492", "rois", "(9, 5)"),
    "no cells": (lambda x, w: ops.roi_align(x, x[0, :, :5, 0], 0, 2), "EK0490", "output_height", ">= 1"),
    "the largest": (lambda x, w: ops.roi_align(x, x[0, :, :5, 0], 2, 2, mode="max"), "EK0414", "mode", "MAX"),
    "scores of another rank": (
        lambda x, w: ops.non_maximum_suppression(x[0], w, 1),
        *("EK0421", "scores", "rank 4"),
    ),
    "scores of other boxes": (
        lambda x, w: ops.non_maximum_suppression(x[0], x[0], 1),
        *("EK0492", "scores", "(8, 9, 9)"),
    ),
    "fewer than no boxes": (
        lambda x, w: ops.non_maximum_suppression(x[0], x[0, :, :, :].permute([0, 2, 1]), -1),
        *("EK0490", "max_output_boxes_per_class", ">= 0"),
    ),
    "blocks of a row": (lambda x, w: ops.unfold(x[0, 0], 2), "EK0421", "input", "rank 3 to 5"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_ops_of_images_refuse(what: str) -> None:
    call, code, argument, part = WRONG[what]
    with pytest.raises(EinkornError) as caught:
        graphs.build(lambda x, w: call(x, w), (F32, IMAGE), (F32, FILTER))
    error = caught.value
    assert error.code == code and part in error.message, str(error)
    assert not argument or error.argument == argument
    assert error.op is not None and error.place is not None and "test_image_ops.py" in str(error)


def test_sizes_that_only_a_call_determines() -> None:
    """Groups and blocks that do not divide, and windows that find no place, are errors of the call."""

    def forward(x: TensorValue, w: TensorValue, b: TensorValue) -> list[TensorValue]:
        return [ops.conv2d(x, w, groups=2), ops.fold(b, (2, 2), 2)]

    model = graphs.load(forward, (F32, [1, "h", 4, 4]), (F32, [3, 3, 2, "f"]), (F32, [1, "c", "l"]))
    good = [(1, 5, 4, 4), (3, 3, 2, 6), (1, 8, 1)]
    assert [o.shape for o in graphs.results(model, *(np.zeros(s, F32) for s in good))] == [(1, 3, 2, 6), (1, 2, 2, 2)]
    for number, shape, code in [
        (0, (1, 1, 4, 4), "EK0475"),
        (1, (3, 3, 2, 5), "EK0491"),
        (2, (1, 6, 1), "EK0492"),
        (2, (1, 8, 2), "EK0492"),
    ]:
        arrays = [np.zeros(shape if k == number else s, F32) for k, s in enumerate(good)]
        with pytest.raises(EinkornError) as caught:
            model(*arrays)
        assert caught.value.code == code


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("names", ["ciob", "4iob", "ci4b"])
def test_channels_that_only_a_call_determines(groups: int, first: bool, names: str) -> None:
    """Channels of image, filter and bias with names of their own: they are compared at the call."""
    layout = ConvInputLayout.NCHW if first else ConvInputLayout.NHWC
    c, i, o, b = (int(name) if name.isdigit() else name for name in names)
    image = [2, c, 5, 6] if first else [2, 5, 6, c]

    def forward(x: TensorValue, w: TensorValue, v: TensorValue, t: TensorValue) -> list[TensorValue]:
        return [
            ops.conv2d(x, w, groups=groups, bias=v, input_layout=layout, padding=(1, 1)),
            ops.conv2d_transpose(x, t, groups=groups, bias=v, input_layout=layout),
        ]

    rng = np.random.default_rng(groups)
    each = 4 // groups
    arrays = [
        rng.standard_normal((2, 4, 5, 6) if first else (2, 5, 6, 4)).astype(F32),
        rng.standard_normal((3, 3, each, 4)).astype(F32),
        rng.standard_normal(4).astype(F32),
        rng.standard_normal((3, 3, each, 4)).astype(F32),
    ]
    known = graphs.load(forward, *((F32, list(array.shape)) for array in arrays))
    shapes = [image, [3, 3, i, o], [b], [3, 3, "j", "t"]]
    model = graphs.load(forward, *((F32, shape) for shape in shapes))
    for entry, wanted in zip(graphs.results(model, *arrays), graphs.results(known, *arrays), strict=True):
        np.testing.assert_allclose(entry, wanted, rtol=1e-5, atol=1e-5)
    for number, axis in ((0, 1 if first else 3), (2, 0)) if names == "ciob" else ():
        wrong = list(arrays)
        wrong[number] = np.concatenate([arrays[number]] * 2, axis)
        with pytest.raises(EinkornError) as caught:
            model(*wrong)
        assert caught.value.code == "EK0491", caught.value


def test_layouts_give_the_same_numbers() -> None:
    """The same convolution, transposed and not, in all orders of axes."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 6, 5, 4)).astype(F32), rng.standard_normal((3, 2, 4, 5)).astype(F32)

    def forward(x: TensorValue, w: TensorValue) -> list[TensorValue]:
        first, back = ops.permute(x, [0, 3, 1, 2]), ops.permute(w, [0, 1, 3, 2])
        results = []
        for layout, order in (("RSCF", [0, 1, 2, 3]), ("FCRS", [3, 2, 0, 1]), ("CFRS", [2, 3, 0, 1])):
            options: dict[str, Any] = {"stride": 2, "padding": 1, "filter_layout": FilterLayout(layout)}
            filter, turned = ops.permute(w, order), ops.permute(back, order)
            results += [ops.conv2d(x, filter, **options), ops.conv2d_transpose(x, turned, **options)]
            for op, weights in ((ops.conv2d, filter), (ops.conv2d_transpose, turned)):
                results.append(ops.permute(op(first, weights, input_layout=NCHW, **options), [0, 2, 3, 1]))
        return results

    actual = graphs.run(forward, x, w)
    for k, result in enumerate(actual):
        like = actual[k % 4 % 2]
        np.testing.assert_allclose(result, like, rtol=1e-5, atol=1e-5, err_msg=str(k))


def test_neighbours_fuse_in() -> None:
    """Bias and relu are computed where a convolution stores; one before it is computed in its padding."""

    def forward(x: TensorValue, w: TensorValue, b: TensorValue) -> TensorValue:
        return ops.relu(ops.conv2d(ops.relu(x), w, padding=1, bias=b))

    model = graphs.load(forward, (F32, IMAGE), (F32, FILTER), (F32, [6]))
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(shape).astype(F32) for shape in (IMAGE, FILTER, (6,)))
    around = np.pad(np.maximum(x, 0), [(0, 0), (1, 1), (1, 1), (0, 0)])
    views = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (1, 2))
    expected = np.maximum(np.einsum("nhwcrs,rscf->nhwf", views, w) + b, 0)
    np.testing.assert_allclose(graphs.results(model, x, w, b)[0], expected, rtol=1e-4, atol=1e-4)


def test_nothing_is_read_outside() -> None:
    """Rests of vectors, borders and strides, with every access checked and uninitialised memory looked for."""
    shape, weights = (1, 5, 7, 20), (3, 3, 1, 20)

    def forward(x: TensorValue, w: TensorValue) -> list[TensorValue]:
        options: dict[str, Any] = {"padding": 1, "groups": 20}
        first, filter = ops.permute(x, [0, 3, 1, 2]), ops.permute(w, [3, 2, 0, 1])
        results = [ops.conv2d(x, w, stride=stride, **options) for stride in (1, 2)]
        options |= {"input_layout": NCHW, "filter_layout": FilterLayout.FCRS}
        results += [ops.permute(ops.conv2d(first, filter, stride=s, **options), [0, 2, 3, 1]) for s in (1, 2)]
        pools = [ops.avg_pool2d(first, 3, 2, padding=1, input_layout=NCHW), ops.avg_pool2d(x, 3, 2, padding=1)]
        results += [ops.permute(pools[0], [0, 2, 3, 1]), pools[1]]
        return [*results, ops.resize(first, (1, 20, 9, 5)), ops.unfold(first, 2)]

    model = InferenceSession(checks="all").load(graphs.build(forward, (F32, shape), (F32, weights)))
    rng = np.random.default_rng(2)
    actual = graphs.results(model, *(rng.standard_normal(s).astype(F32) for s in (shape, weights)))
    for one, other in ((0, 2), (1, 3), (4, 5)):
        np.testing.assert_allclose(actual[one], actual[other], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_places_of_different_rows_do_not_pass_for_neighbours(stride: int) -> None:
    """Each place stands in a row of its own, some distance from the next, whatever the width of vectors is."""
    shapes = [(np.float32, [1, 1, "h", "w"]), (np.float32, [1, 1, 1, "w"])]
    options: dict[str, Any] = {"stride": (stride, 1), "input_layout": NCHW, "filter_layout": FilterLayout.FCRS}
    model = graphs.load(lambda x, f: ops.conv2d(x, f, **options), *shapes)
    for width in range(1, 36):
        for height in (2, 7, 20):
            x, f = plain((1, 1, height, width)), plain((1, 1, 1, width))
            expected = x[0, 0, ::stride] @ f[0, 0, 0]
            np.testing.assert_allclose(
                graphs.results(model, x, f)[0].ravel(), expected, rtol=1e-5, err_msg=str(x.shape)
            )


def plain(shape: tuple[int, ...]) -> Any:
    return np.random.default_rng(shape).integers(1, 5, shape).astype(np.float32)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("corners", [False, True])
def test_coordinates_that_are_not_finite_stand_for_the_first_place_or_the_last(mode: str, corners: bool) -> None:
    """As PyTorch has it: NaN for the first place, and where places are reflected infinity, too."""
    row = np.arange(5, dtype=F32) + 1
    x = np.stack([row, row]).reshape(1, 1, 2, 5)
    grid = np.array([[[[place, -1] for place in (np.nan, np.inf, -np.inf)]]], F32)
    for padding, expected in (("border", [1, 5, 1]), ("reflection", [1, 1, 1])):
        model = graphs.load(
            lambda x, g, p=padding: ops.grid_sample(x, g, mode, p, corners), (F32, x.shape), (F32, grid.shape)
        )
        np.testing.assert_array_equal(graphs.results(model, x, grid)[0].ravel(), expected)
