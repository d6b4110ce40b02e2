"""Rows of convolutions, pools, resizing and sampling: sizes of image networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.graph import ConvInputLayout, ops

from .row import MAKE, Array, Call, Row, floats, functional, jax_module, torch_module

NCHW = ConvInputLayout.NCHW
OUTER_FIRST = {1: "FCRS", 2: "FCRS", 3: "FCQRS"}


def _conv(size: str, x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, pad: int = 0, groups: int = 1) -> Row:
    """A convolution, channels first; the filter as PyTorch and ONNX have it."""
    axes = len(x) - 2
    name = f"conv{axes}d"
    given = {"stride": [stride] * axes, "padding": [pad] * 2 * axes, "groups": groups}

    def ours(x: Any, w: Any) -> Any:
        return getattr(ops, name)(x, w, **given, input_layout=NCHW, filter_layout=OUTER_FIRST[axes])

    return Row(
        name,
        size,
        lambda: [floats(*x), floats(*w)],
        ours,
        None,
        lambda x, w: getattr(functional(), name)(x, w, stride=stride, padding=pad, groups=groups),
        ("Conv", {"strides": [stride] * axes, "pads": [pad] * 2 * axes, "group": groups}),
        tolerance=1e-4,
        jax=lambda x, w: jax_module().lax.conv_general_dilated(
            x, w, [stride] * axes, [(pad, pad)] * axes, feature_group_count=groups
        ),
    )


def _channels_last(x: Any, w: Any) -> Any:
    last = torch_module().channels_last
    return x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1).contiguous(memory_format=last)


def _conv_nhwc(
    size: str, x: tuple[int, ...], w: tuple[int, ...], stride: int = 1, pad: int = 0, groups: int = 1
) -> Row:
    """conv2d as it is by default: channels last, filters RSCF."""
    return Row(
        "conv2d",
        size,
        lambda: [floats(*x), floats(*w)],
        lambda x, w: ops.conv2d(x, w, stride, 1, pad, groups),
        None,
        lambda x, w: functional().conv2d(x, w, stride=stride, padding=pad, groups=groups).permute(0, 2, 3, 1),
        tolerance=1e-4,
        prepare=_channels_last,
        jax=lambda x, w: jax_module().lax.conv_general_dilated(
            x, w, [stride] * 2, [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        ),
    )


def _transpose(size: str, x: tuple[int, ...], w: tuple[int, ...], stride: int = 2) -> Row:
    axes = len(x) - 2
    name = f"conv{axes}d_transpose"

    def ours(x: Any, w: Any) -> Any:
        return getattr(ops, name)(x, w, stride, input_layout=NCHW, filter_layout=OUTER_FIRST[axes])

    return Row(
        name,
        size,
        lambda: [floats(*x), floats(*w)],
        ours,
        None,
        lambda x, w: getattr(functional(), f"conv_transpose{axes}d")(x, w, stride=stride),
        ("ConvTranspose", {"strides": [stride] * axes}),
        tolerance=1e-4,
    )


CONVOLUTIONS = [
    _conv("1 x 64 x 56 x 56, 64 of 3 x 3", (1, 64, 56, 56), (64, 64, 3, 3), pad=1),
    _conv("1 x 256 x 28 x 28, 256 of 1 x 1", (1, 256, 28, 28), (256, 256, 1, 1)),
    _conv("1 x 3 x 224 x 224, 64 of 7 x 7, stride 2", (1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    _conv("1 x 3 x 224 x 224, 32 of 3 x 3, stride 2", (1, 3, 224, 224), (32, 3, 3, 3), 2, 1),
    _conv("1 x 96 x 56 x 56, each channel 3 x 3", (1, 96, 56, 56), (96, 1, 3, 3), pad=1, groups=96),
    _conv("1 x 128 x 28 x 28, 3 x 3, 32 groups", (1, 128, 28, 28), (128, 4, 3, 3), pad=1, groups=32),
    _conv_nhwc("1 x 56 x 56 x 64, 64 of 3 x 3, NHWC", (1, 56, 56, 64), (3, 3, 64, 64), pad=1),
    _conv_nhwc("1 x 56 x 56 x 96, each channel, NHWC", (1, 56, 56, 96), (3, 3, 1, 96), pad=1, groups=96),
    _conv_nhwc("1 x 28 x 28 x 128, 32 groups, NHWC", (1, 28, 28, 128), (3, 3, 4, 128), pad=1, groups=32),
    _conv_nhwc("1 x 224 x 224 x 3, 32 of 3 x 3, stride 2, NHWC", (1, 224, 224, 3), (3, 3, 3, 32), 2, 1),
    _conv("8 x 64 x 1024, 128 of 3", (8, 64, 1024), (128, 64, 3), pad=1),
    _conv("1 x 16 x 16 x 56 x 56, 32 of 3 x 3 x 3", (1, 16, 16, 56, 56), (32, 16, 3, 3, 3), pad=1),
    _transpose("8 x 64 x 512 to 32 x 1024", (8, 64, 512), (64, 32, 2)),
    _transpose("1 x 64 x 56 x 56 to 32 x 112 x 112", (1, 64, 56, 56), (64, 32, 2, 2)),
    _transpose("1 x 32 x 8 x 28 x 28 to 16 x 16 x 56 x 56", (1, 32, 8, 28, 28), (32, 16, 2, 2, 2)),
    Row(
        "unfold", "1 x 64 x 56 x 56, 3 x 3", lambda: [floats(1, 64, 56, 56)],
        lambda x: ops.unfold(x, 3, padding=1), None, lambda x: functional().unfold(x, 3, padding=1),
    ),
    Row(
        "fold", "1 x 576 x 3136 to 64 x 56 x 56, 3 x 3", lambda: [floats(1, 576, 3136)],
        lambda x: ops.fold(x, (56, 56), 3, padding=1), None,
        lambda x: functional().fold(x, (56, 56), 3, padding=1), tolerance=1e-5,
    ),
]  # fmt: skip


def _pool(op: str, size: str, shape: tuple[int, ...], window: int, stride: int, pad: int, torch: str, onnx: str) -> Row:
    """A pool, channels first."""
    axes = len(shape) - 2
    attributes = {"kernel_shape": [window] * axes, "strides": [stride] * axes, "pads": [pad] * 2 * axes}
    if onnx == "AveragePool":
        attributes["count_include_pad"] = 1

    def ours(x: Any) -> Any:
        pooled = getattr(ops, op)(x, window, stride, 1, pad, input_layout=NCHW)
        return pooled[0] if isinstance(pooled, tuple) else pooled

    more = {"return_indices": True} if op == "max_pool_with_indices" else {}

    def peer(x: Any) -> Any:
        pooled = getattr(functional(), torch)(x, window, stride, padding=pad, **more)
        return pooled[0] if isinstance(pooled, tuple) else pooled

    return Row(op, size, lambda: [floats(*shape)], ours, None, peer, (onnx, attributes), tolerance=1e-5)


def _pool_nhwc(op: str, torch: str, window: int, stride: int, pad: int) -> Row:
    def peer(x: Any) -> Any:
        return getattr(functional(), torch)(x.permute(0, 3, 1, 2), window, stride, padding=pad).permute(0, 2, 3, 1)

    return Row(op, f"1 x 112 x 112 x 64, {window} x {window}, NHWC", lambda: [floats(1, 112, 112, 64)],
               lambda x: getattr(ops, op)(x, window, stride, 1, pad), None, peer, tolerance=1e-5)  # fmt: skip


def _whole(x: Any) -> Any:
    return x.mean((2, 3), keepdim=True)


IMAGE = (1, 64, 112, 112)
POOLS = [
    _pool("max_pool1d", "8 x 64 x 1024, 3, stride 2", (8, 64, 1024), 3, 2, 1, "max_pool1d", "MaxPool"),
    _pool("max_pool2d", "1 x 64 x 112 x 112, 3 x 3, stride 2", IMAGE, 3, 2, 1, "max_pool2d", "MaxPool"),
    _pool_nhwc("max_pool2d", "max_pool2d", 3, 2, 1),
    _pool("max_pool3d", "1 x 16 x 16 x 56 x 56, 2", (1, 16, 16, 56, 56), 2, 2, 0, "max_pool3d", "MaxPool"),
    _pool("avg_pool1d", "8 x 64 x 1024, 2", (8, 64, 1024), 2, 2, 0, "avg_pool1d", "AveragePool"),
    _pool("avg_pool2d", "1 x 64 x 112 x 112, 2 x 2", IMAGE, 2, 2, 0, "avg_pool2d", "AveragePool"),
    _pool("avg_pool2d", "1 x 64 x 112 x 112, 3 x 3, stride 1", IMAGE, 3, 1, 1, "avg_pool2d", "AveragePool"),
    _pool_nhwc("avg_pool2d", "avg_pool2d", 2, 2, 0),
    _pool("avg_pool3d", "1 x 16 x 16 x 56 x 56, 2", (1, 16, 16, 56, 56), 2, 2, 0, "avg_pool3d", "AveragePool"),
    Row("max_pool_with_indices", "1 x 64 x 112 x 112, 3 x 3, stride 2", lambda: [floats(*IMAGE)],
        lambda x: ops.max_pool_with_indices(x, 3, 2, 1, 1, input_layout=NCHW)[1], None,
        lambda x: functional().max_pool2d(x, 3, 2, padding=1, return_indices=True)[1]),
    Row("lp_pool", "1 x 64 x 112 x 112, 2 x 2", lambda: [floats(*IMAGE)],
        lambda x: ops.lp_pool(x, 2, 2, input_layout=NCHW), None, lambda x: functional().lp_pool2d(x, 2.0, 2, 2),
        ("LpPool", {"kernel_shape": [2, 2], "strides": [2, 2]}), tolerance=1e-5),
    Row("global_avg_pool", "1 x 512 x 28 x 28", lambda: [floats(1, 512, 28, 28)],
        lambda x: ops.global_avg_pool(x, NCHW), lambda x: x.mean((2, 3), keepdims=True), _whole,
        ("GlobalAveragePool", {}), tolerance=1e-5),
    Row("global_max_pool", "1 x 512 x 28 x 28", lambda: [floats(1, 512, 28, 28)],
        lambda x: ops.global_max_pool(x, NCHW), lambda x: x.max((2, 3), keepdims=True),
        lambda x: x.amax((2, 3), keepdim=True), ("GlobalMaxPool", {})),
    Row("local_response_norm", "1 x 64 x 56 x 56, 5", lambda: [floats(1, 64, 56, 56)],
        lambda x: ops.local_response_norm(x, 5), None, lambda x: functional().local_response_norm(x, 5),
        ("LRN", {"size": 5}), tolerance=1e-5),
]  # fmt: skip


def _given(arrays: list[Array]) -> list[Array]:
    nothing = np.array([], np.float32)
    return [arrays[0], nothing, nothing, np.array(TO)]


def _resize(op: str, ours: Call, mode: str, onnx: dict[str, Any]) -> Row:
    corners = {} if mode == "nearest-exact" else {"align_corners": False}
    return Row(op, f"1 x 64 x 56 x 56 to 112 x 112, {mode.split('-')[0]}", lambda: [floats(1, 64, 56, 56)], ours, None,
               lambda x: functional().interpolate(x, (112, 112), mode=mode, **corners),
               ("Resize", onnx), onnx_given=_given, tolerance=1e-4)  # fmt: skip


TO = (1, 64, 112, 112)
CUBIC = {"mode": "cubic", "cubic_coeff_a": -0.75}


def _boxes() -> list[Array]:
    corner = MAKE.uniform(0, 40, (64, 2))
    extent = MAKE.uniform(4, 16, (64, 2))
    return [floats(1, 64, 56, 56), np.hstack([np.zeros((64, 1)), corner, corner + extent]).astype(np.float32)]


def _candidates(count: int, classes: int) -> list[Array]:
    corner = MAKE.uniform(0, 1000, (1, count, 2))
    boxes = np.concatenate([corner, corner + MAKE.uniform(10, 200, (1, count, 2))], 2).astype(np.float32)
    return [boxes, MAKE.random((1, classes, count)).astype(np.float32)]


def _suppress(count: int, classes: int, most: int) -> Row:
    return Row("non_maximum_suppression", f"{count} boxes, {classes} classes, {most} kept",
               lambda: _candidates(count, classes), lambda b, s: ops.non_maximum_suppression(b, s, most, 0.5),
               onnx=("NonMaxSuppression", {}), onnx_inputs=(np.array([most]), np.array([0.5], np.float32)))  # fmt: skip


SAMPLES = [
    _resize("resize", lambda x: ops.resize(x, TO), "bilinear", {"mode": "linear"}),
    _resize("resize_nearest", lambda x: ops.resize_nearest(x, TO), "nearest-exact", {"mode": "nearest"}),
    _resize("resize_linear", lambda x: ops.resize_linear(x, TO), "bilinear", {"mode": "linear"}),
    _resize("resize_bicubic", lambda x: ops.resize_bicubic(x, TO), "bicubic", CUBIC),
    Row("affine_grid", "4 x 112 x 112", lambda: [floats(4, 2, 3)], lambda t: ops.affine_grid(t, (4, 3, 112, 112)),
        None, lambda t: functional().affine_grid(t, (4, 3, 112, 112), align_corners=False),
        ("AffineGrid", {}), (np.array([4, 3, 112, 112]),), tolerance=1e-5),
    Row("grid_sample", "1 x 64 x 56 x 56 at 56 x 56",
        lambda: [floats(1, 64, 56, 56), MAKE.uniform(-1, 1, (1, 56, 56, 2)).astype(np.float32)], ops.grid_sample, None,
        lambda x, g: functional().grid_sample(x, g, align_corners=False), ("GridSample", {}), tolerance=1e-4),
    Row("roi_align", "64 boxes of 1 x 64 x 56 x 56 to 7 x 7", _boxes,
        lambda x, r: ops.roi_align(x, r, 7, 7, 1.0, 2, input_layout=NCHW), tolerance=1e-4,
        onnx_given=lambda given: [given[0], given[1][:, 1:].copy(), given[1][:, 0].astype(np.int64)],
        onnx=("RoiAlign", {"output_height": 7, "output_width": 7, "sampling_ratio": 2,
                           "coordinate_transformation_mode": "output_half_pixel"})),
    _suppress(1000, 1, 100), _suppress(100, 8, 20),
]  # fmt: skip

IMAGES = [*CONVOLUTIONS, *POOLS, *SAMPLES]
