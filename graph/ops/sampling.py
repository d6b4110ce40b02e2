"""Stages what reads images between their elements, and what chooses boxes."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from ...dsl.types.dtype import DType
from ..arguments import choice_of, flag_of, number_of, wrong
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim
from ..types.layouts import ConvInputLayout
from ..types.tensor_type import shown
from .constant import constant
from .operands import HINT_FOR_SYMBOLS, DimLike, as_shape, cast_to, check_kind, permuted, same_device, tensor, tensors
from .stage import builtin, fail, op
from .windows import is_first, numbers_of

__all__ = ["affine_grid", "grid_sample", "non_maximum_suppression", "roi_align"]

_FAMILY = "sampling"


@op(dtypes={"theta": "float"}, example="ops.affine_grid(theta, (2, 3, 4, 5))")
def affine_grid(theta: TensorValueLike, size: Iterable[DimLike], align_corners: bool = False) -> TensorValue:
    """The places that affine maps give for the pixels of images, for `grid_sample`: (batch, places, axes).

    Args:
        theta: a map for each image: (batch, 2, 3), or (batch, 3, 4) for images with three axes of places.
        size: the shape of the images, (batch, channels, places).
        align_corners: -1 and 1 are the middles of the outermost pixels; else their outer edges.

    Raises:
        GraphError: EK0492, `theta` or `size` is of another shape.
    """
    value = tensor("affine_grid", "theta", theta)
    check_kind("affine_grid", "theta", value, "float")
    shape = Shape(size)
    axes = len(shape) - 2
    if axes not in (2, 3):
        text = f"argument 'size' has {len(shape)} sizes, and not 4 or 5"
        fail("affine_grid", text, code="EK0492", argument="size", expected="4 or 5 sizes", got=shown(shape))
    _expect("affine_grid", "theta", value, [shape[0], Dim(axes), Dim(axes + 1)])
    out = value.type.with_shape([shape[0], *shape[2:], axes])
    return builtin(_FAMILY, "affine_grid", [value], {"corners": flag_of("align_corners", align_corners)}, [out])[0]


@op(dtypes={"input": "float", "grid": "float"}, example="ops.grid_sample(input, grid)")
def grid_sample(
    input: TensorValueLike,
    grid: TensorValueLike,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> TensorValue:
    """Images, read at the places of a grid. Half types compute in float32.

    Args:
        input: (batch, channels, height, width), or one axis of places more, in front.
        grid: (batch, places, axes): x, y (and z) of each place of the result, where -1 and 1 are the ends of the image.
        mode: bilinear, nearest or bicubic.
        padding_mode: what lies outside: zeros, border (the outermost element) or reflection.
        align_corners: -1 and 1 are the middles of the outermost pixels; else their outer edges.

    Raises:
        GraphError: EK0421 another rank; EK0492 a grid of another shape; EK0414 an unknown mode.
    """
    value, places = tensors("grid_sample", input=input, grid=grid)
    for argument, each in (("input", value), ("grid", places)):
        check_kind("grid_sample", argument, each, "float")
    axes = value.rank - 2
    if axes not in (2, 3):
        text = f"argument 'input' has shape {shown(value.shape)}, and not rank 4 or 5"
        fail("grid_sample", text, code="EK0421", argument="input", expected="rank 4 or 5", got=shown(value.shape))
    if places.rank != value.rank:
        text = f"argument 'grid' has rank {places.rank}, {shown(places.shape)}, and not {value.rank}"
        fail(
            "grid_sample", text, code="EK0421", argument="grid", expected=f"rank {value.rank}", got=shown(places.shape)
        )
    _expect("grid_sample", "grid", places, [value.shape[0], *places.shape[1:-1], Dim(axes)])
    chosen = choice_of("mode", mode, ("bilinear", "nearest", "bicubic"), "EK0414")
    parameters = {
        "mode": {"bilinear": "linear", "bicubic": "cubic"}.get(chosen, chosen),
        "padding": choice_of("padding_mode", padding_mode, ("zeros", "border", "reflection"), "EK0414"),
        "corners": flag_of("align_corners", align_corners),
    }
    out = value.type.with_shape([value.shape[0], value.shape[1], *places.shape[1:-1]])
    return builtin(_FAMILY, "grid_sample", [value, places], parameters, [out])[0]


@op(dtypes={"input": "float", "rois": "float"}, example="ops.roi_align(input, rois, 2, 3)")
def roi_align(
    input: TensorValueLike,
    rois: TensorValueLike,
    output_height: int,
    output_width: int,
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = False,
    mode: str = "AVG",
    input_layout: ConvInputLayout = ConvInputLayout.NHWC,
) -> TensorValue:
    """Boxes of images, all brought to one size: each is cut into cells, of which samples between pixels are taken.

    Args:
        input: (batch, height, width, channels), or (batch, channels, height, width) where `input_layout` is NCHW.
        rois: a row for each box: the image's number, x1, y1, x2, y2.
        output_height, output_width: how many cells a box has.
        spatial_scale: what coordinates are multiplied by.
        sampling_ratio: how many samples a cell has along each axis; 0 for as many as it has pixels.
        aligned: coordinates count from the middles of pixels; else boxes have a size of 1 at least.
        mode: AVG, the mean of the samples, or MAX, the largest of their weighted neighbours, as in ONNX.
        input_layout: the order of the axes of `input` and of the result.

    Raises:
        GraphError: EK0421 another rank; EK0492 boxes without five numbers; EK0490 a size or ratio that cannot be.
    """
    name = "roi_align"
    value, boxes = tensors(name, input=input, rois=rois)
    for argument, each, rank in (("input", value, 4), ("rois", boxes, 2)):
        check_kind(name, argument, each, "float")
        if each.rank != rank:
            text = f"argument '{argument}' has rank {each.rank}, {shown(each.shape)}, and not {rank}"
            fail(name, text, code="EK0421", argument=argument, expected=f"rank {rank}", got=shown(each.shape))
    _expect(name, "rois", boxes, [boxes.shape[0], Dim(5)])
    first = is_first(input_layout)
    parameters = {
        "height": numbers_of("output_height", output_height, 1, 1)[0],
        "width": numbers_of("output_width", output_width, 1, 1)[0],
        "scale": _number("spatial_scale", spatial_scale),
        "ratio": numbers_of("sampling_ratio", sampling_ratio, 1, 0)[0],
        "aligned": flag_of("aligned", aligned),
        "largest": choice_of("mode", mode, ("AVG", "MAX"), "EK0414") == "MAX",
    }
    images = permuted(value, [0, 2, 3, 1]) if first else value
    pooled = builtin(_FAMILY, "roi_align", [images, boxes], parameters)[0]
    return permuted(pooled, [0, 3, 1, 2]) if first else pooled


@op(
    dtypes={"boxes": "float", "scores": "float"},
    example="ops.non_maximum_suppression(boxes, scores, 3, 0.5)",
    host_only="the host has to know how many boxes are kept",
)
def non_maximum_suppression(
    boxes: TensorValueLike,
    scores: TensorValueLike,
    max_output_boxes_per_class: int | TensorValueLike,
    iou_threshold: float | TensorValueLike = 0.0,
    score_threshold: float | TensorValueLike | None = None,
    center_point_box: bool = False,
) -> TensorValue:
    """The best boxes of each image and class, without those that overlap a better one: rows (image, class, box), int64.

    Classes follow one another, and the boxes of a class by their scores, the best first; of equal ones the first. How
    many there are depends on the data. The limits are numbers, or tensors of one element that come with the call.

    Args:
        boxes: (batch, boxes, 4): y1, x1, y2, x2 of two opposite corners.
        scores: (batch, classes, boxes); NaN is never kept.
        max_output_boxes_per_class: how many boxes of an image and class are kept at most; none where a tensor has a
            number below 0.
        iou_threshold: a box goes when what it shares with a better one is more than this part of both together.
        score_threshold: only boxes with more than this count; None for all of them.
        center_point_box: boxes are x and y of the middle, width and height.

    Raises:
        GraphError: EK0421 another rank; EK0492 boxes and scores that do not go together; EK0490 a number below 0.
    """
    name = "non_maximum_suppression"
    value, score = tensors(name, boxes=boxes, scores=scores)
    for argument, each in (("boxes", value), ("scores", score)):
        check_kind(name, argument, each, "float")
        if each.rank != 3:
            text = f"argument '{argument}' has rank {each.rank}, {shown(each.shape)}, and not 3"
            fail(name, text, code="EK0421", argument=argument, expected="rank 3", got=shown(each.shape))
    _expect(name, "boxes", value, [value.shape[0], value.shape[1], Dim(4)])
    _expect(name, "scores", score, [value.shape[0], score.shape[1], value.shape[1]])
    ways = {"bounded": score_threshold is not None, "center": flag_of("center_point_box", center_point_box)}
    given = {
        "max_output_boxes_per_class": max_output_boxes_per_class,
        "iou_threshold": iou_threshold,
        "score_threshold": 0.0 if score_threshold is None else score_threshold,
    }
    if any(isinstance(each, TensorValue) or hasattr(each, "__tensorvalue__") for each in given.values()):
        scalars = [_limit(name, argument, each, value) for argument, each in given.items()]
        kept = builtin(_FAMILY, "nms_kept_within", [value, score, *scalars], ways)[0]
    else:
        limits = {
            "most": numbers_of("max_output_boxes_per_class", max_output_boxes_per_class, 1, 0)[0],
            "overlap": _number("iou_threshold", iou_threshold),
            "least": -inf if score_threshold is None else _number("score_threshold", score_threshold),
        }
        kept = builtin(_FAMILY, "nms_kept", [value, score], limits | ways)[0]
    return builtin(_FAMILY, "nms_listed", [kept])[0]


def _limit(name: str, argument: str, given: object, like: TensorValue) -> TensorValue:
    """A limit as a scalar next to the boxes: an int64 for a number of boxes, else a float64."""
    counts = argument == "max_output_boxes_per_class"
    dtype = DType.int64 if counts else DType.float64
    if not isinstance(given, TensorValue) and not hasattr(given, "__tensorvalue__"):
        number = numbers_of(argument, given, 1, 0)[0] if counts else _number(argument, given)
        return constant(number, dtype, like.device)
    limit = tensor(name, argument, given)
    check_kind(name, argument, limit, "integral" if counts else "float")
    if limit.shape.num_elements != 1:
        text = f"argument '{argument}' has shape {shown(limit.shape)}, and not one element"
        fail(name, text, code="EK0492", argument=argument, expected="one element", got=shown(limit.shape))
    same_device(name, {"boxes": like, argument: limit})
    return as_shape(cast_to(limit, dtype), [])


def _expect(name: str, argument: str, value: TensorValue, wanted: list[Dim]) -> None:
    """Refuses another shape."""
    if list(value.shape) == wanted:
        return
    same = len(value.shape) == len(wanted)
    static = not same or any(isinstance(a - b, StaticDim) and a != b for a, b in zip(value.shape, wanted, strict=True))
    fail(
        name,
        f"argument '{argument}' has shape {shown(value.shape)}, and not {shown(wanted)}",
        code="EK0492",
        argument=argument,
        expected=shown(wanted),
        got=shown(value.shape),
        hint=None if static else HINT_FOR_SYMBOLS,
    )


def _number(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong(argument, value, "a number")
    return number_of(argument, value)
