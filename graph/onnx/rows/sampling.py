"""Converts what samples images: resizing, grids, regions, boxes.

See also `images` (convolutions and pools).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim
from ...types.layouts import ConvInputLayout
from ..agreement import equal_size, with_equal_axes, with_sizes
from ..call import NodeCall
from ..known import KnownTensor
from ..table import Array, Dims, Value, onnx_op

MOST_BOXES: Final = (1 << 31) - 1
MAX_DENOMINATOR: Final = 1000  # of fractions that files hold as float32


def _fraction(scale: float) -> Fraction:
    """The simple fraction of which a float32 is the nearest one; the float32 itself where there is none."""
    simple = Fraction(scale).limit_denominator(MAX_DENOMINATOR)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


def _by_scale(call: NodeCall, dim: Dim, scale: float) -> Dim:
    """A size times a factor, rounded down.

    As in ONNX Runtime, 0.7 of 10 is 7, although the float32 nearest to 0.7 is below it: the product is rounded to
    float32. A symbolic size is multiplied by the simple fraction.
    """
    if not scale > 0:
        call.fail(f"scales a size by {scale}; expected a positive factor", argument="scales")
    if isinstance(dim, StaticDim):
        return Dim(math.floor(np.float32(int(dim)) * np.float32(scale)))
    factor = _fraction(scale)
    return dim * factor.numerator // factor.denominator


def _whole(given: Sequence[object], over: Sequence[int], rest: Sequence[object]) -> list[Any]:
    """What is given for some axes, and `rest` for the others."""
    all_axes = list(rest)
    for axis, each in zip(over, given, strict=True):
        all_axes[axis] = each
    return all_axes


def _fitted(x: TensorValue, sizes: Sequence[int], over: Sequence[int], policy: str) -> tuple[list[Any], list[float]]:
    """Sizes of one proportion, and its factor for each axis."""
    if policy == "stretch":
        return list(sizes), [int(size) / int(x.shape[axis]) for size, axis in zip(sizes, over, strict=True)]
    choose = min if policy == "not_larger" else max
    factor = choose(size / int(x.shape[axis]) for size, axis in zip(sizes, over, strict=True))
    return [math.floor(factor * int(x.shape[axis]) + 0.5) for axis in over], [factor] * len(over)


@onnx_op("Resize", since=11)
def resize(
    call: NodeCall,
    x: TensorValue,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Value = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str,
    nearest_mode: str,
) -> TensorValue:
    """Another size along some axes: by factors, or as it is said."""
    over = [axis % x.rank for axis in axes] if axes is not None else list(range(x.rank))
    factors: list[float] | None = None
    if scales is not None and scales.size:
        given = [float(scale) for scale in scales]
        target = _whole([_by_scale(call, x.shape[a], s) for a, s in zip(over, given, strict=True)], over, x.shape)
        factors = _whole([float(_fraction(scale)) for scale in given], over, [1.0] * x.rank)
    elif sizes is None:
        call.fail("has neither scales nor sizes")
    elif isinstance(sizes, KnownTensor) and not sizes.symbolic and all(isinstance(x.shape[a], StaticDim) for a in over):
        wanted, given = _fitted(x, [int(size) for size in sizes.array], over, keep_aspect_ratio_policy)
        target = _whole(wanted, over, x.shape)
        factors = _whole(given, over, [1.0] * x.rank)
    else:
        if keep_aspect_ratio_policy != "stretch":
            call.numbers(sizes, 3, "sizes")
        target = _whole(call.dims(sizes, 3), over, x.shape)
    ends = None
    if coordinate_transformation_mode == "tf_crop_and_resize":
        if roi is None or roi.size != 2 * len(over):
            call.fail("crops, and has no roi for that")
        numbers = [float(end) for end in roi]
        starts, stops = numbers[: len(over)], numbers[len(over) :]
        ends = [*_whole(starts, over, [0.0] * x.rank), *_whole(stops, over, [1.0] * x.rank)]
    where: dict[str, Any] = {"scales": factors, "roi": ends, "extrapolation_value": extrapolation_value}
    way = coordinate_transformation_mode
    if way == "tf_half_pixel_for_nn":
        call.fail("takes the places tf_half_pixel_for_nn, which have no counterpart")
    if mode == "nearest":
        return ops.resize_nearest(x, target, way, nearest_mode, **where)
    if mode == "linear":
        return ops.resize_linear(x, target, way, bool(antialias), exclude_outside=bool(exclude_outside), **where)
    if mode != "cubic":
        call.fail(f"interpolates nearest, linear or cubic, not {mode!r}", argument="mode")
    where |= {"antialias": bool(antialias), "exclude_outside": bool(exclude_outside)}
    return ops.resize_bicubic(x, target, way, cubic_coeff_a=cubic_coeff_a, **where)


@onnx_op("Resize", "Upsample", since=7)
def upsample(call: NodeCall, x: TensorValue, scales: Array, *, mode: str) -> TensorValue:
    """Another size by factors, from the first element on."""
    factors = [float(_fraction(float(scale))) for scale in scales.reshape(-1)]
    target = [_by_scale(call, dim, scale) for dim, scale in zip(x.shape, factors, strict=True)]
    if mode == "nearest":
        return ops.resize_nearest(x, target, "asymmetric", "floor", scales=factors)
    return ops.resize_linear(x, target, "asymmetric", scales=factors)


@onnx_op("GridSample")
def grid_sample(
    call: NodeCall, x: TensorValue, grid: TensorValue, *, align_corners: int, mode: str, padding_mode: str
) -> TensorValue:
    """Elements at places of their own."""
    x, grid = with_equal_axes(call, "the sizes of the batch axes", (x, 0), (grid, 0))
    places = equal_size(call, grid.shape[-1], Dim(x.rank - 2), "the sizes of a place and of the axes that are sampled")
    grid = with_sizes(grid, [*grid.shape[:-1], places])
    named = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return ops.grid_sample(x, ops.cast(grid, x.dtype), named, padding_mode, bool(align_corners))


@onnx_op("AffineGrid")
def affine_grid(call: NodeCall, theta: TensorValue, size: Dims, *, align_corners: int) -> TensorValue:
    """The places of an affine map."""
    wanted = [Dim(len(size) - 2), Dim(len(size) - 1)]
    sizes = [equal_size(call, *pair, "the sizes of the matrices") for pair in zip(theta.shape[1:], wanted, strict=True)]
    theta = with_sizes(theta, [theta.shape[0], *sizes])
    return ops.affine_grid(theta, [theta.shape[0], *size[1:]], bool(align_corners))


@onnx_op("RoiAlign", since=16)
def roi_align(
    x: TensorValue,
    rois: TensorValue,
    batch_indices: TensorValue,
    *,
    coordinate_transformation_mode: str = "output_half_pixel",
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> TensorValue:
    """Regions of images as small images of one size."""
    numbers = ops.unsqueeze(ops.cast(batch_indices, rois.dtype), 1)
    aligned = coordinate_transformation_mode == "half_pixel"
    sizes = (output_height, output_width, spatial_scale, sampling_ratio, aligned)
    return ops.roi_align(x, ops.concat([numbers, rois], 1), *sizes, mode.upper(), ConvInputLayout.NCHW)


@onnx_op("RoiAlign", since=10)
def roi_align_10(
    x: TensorValue,
    rois: TensorValue,
    batch_indices: TensorValue,
    *,
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> TensorValue:
    """As the newer one, with the places of pixels' corners."""
    return roi_align(
        x,
        rois,
        batch_indices,
        mode=mode,
        output_height=output_height,
        output_width=output_width,
        sampling_ratio=sampling_ratio,
        spatial_scale=spatial_scale,
    )


@onnx_op("MaxRoiPool")
def max_roi_pool(
    call: NodeCall, x: TensorValue, rois: TensorValue, *, pooled_shape: list[int], spatial_scale: float
) -> TensorValue:
    """The largest elements of the cells of boxes that are rounded to whole pixels."""
    if len(pooled_shape) != 2 or min(pooled_shape) < 1:
        call.fail(f"pooled_shape is {pooled_shape}, and is two sizes", argument="pooled_shape")
    if x.rank != 4 or rois.rank != 2:
        text = f"takes images of rank 4 and boxes of rank 2, and gets {x.shape} and {rois.shape}"
        call.fail(text, expected="rank 4 and 2", got=f"{x.shape} and {rois.shape}")
    numbers = equal_size(call, rois.shape[1], Dim(5), "the sizes of a box and of (batch, x1, y1, x2, y2)")
    rois = with_sizes(rois, [rois.shape[0], numbers])
    height, width = pooled_shape
    parameters = {"height": height, "width": width, "scale": spatial_scale}
    return builtin("sampling", "roi_max_pool", [x, ops.cast(rois, x.dtype)], parameters)[0]


@onnx_op("NonMaxSuppression")
def non_max_suppression(
    call: NodeCall,
    boxes: TensorValue,
    scores: TensorValue,
    most: Value = None,
    iou_threshold: Value = None,
    score_threshold: Value = None,
    *,
    center_point_box: int,
) -> TensorValue:
    """The boxes that are left when those that overlap better ones are gone."""
    if boxes.rank == scores.rank == 3:
        boxes, scores = with_equal_axes(call, "the numbers of images", (boxes, 0), (scores, 0))
        boxes, scores = with_equal_axes(call, "the numbers of boxes and of scores", (boxes, 1), (scores, 2))
    limits = [_limit(each) for each in (most, iou_threshold, score_threshold)]
    count, overlap = (0 if each is None else each for each in limits[:2])
    if not isinstance(count, TensorValue):
        count = min(max(int(count), 0), MOST_BOXES)  # PyTorch exports the largest int64
    selected = ops.non_maximum_suppression(boxes, scores, count, overlap, limits[2], bool(center_point_box))
    return ops.cast(selected, DType.int64)


def _limit(value: Value) -> int | float | TensorValue | None:
    """A limit of one element: a number where it is known."""
    if isinstance(value, KnownTensor):
        number: int | float = value.numbers().reshape(-1)[0].item()
        return number
    return value if isinstance(value, TensorValue) else None
