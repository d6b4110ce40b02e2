"""Stages what changes the sizes of images.

Each axis whose size changes is a kernel of its own, since all interpolations are products of what they do along one
axis. Sums of half types run in float32 from the first axis to the last; integers are computed in float32 (those of 32
and 64 bits in float64) and rounded to nearest at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import choice_of, flag_of, list_of, number_of, wrong
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim
from ..types.layouts import InterpolationMode
from ..types.tensor_type import shown
from .operands import DimLike, cast_to, check_kind, tensor
from .stage import builtin, fail, op, require
from .windows import member_of

__all__ = ["resize", "resize_bicubic", "resize_linear", "resize_nearest"]

_FAMILY = "resizing"
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_NUMBERED = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")  # what 0, 1, 2, 3 stand for


@op(dtypes={"input": "numeric"}, example="ops.resize(input, (2, 3, 7, 9))")
def resize(
    input: TensorValueLike,
    shape: Iterable[DimLike],
    interpolation: InterpolationMode = InterpolationMode.BILINEAR,
) -> TensorValue:
    """Images (batch, channels, height, width) with another height and width.

    Places are those of pixels' middles (half_pixel); BICUBIC has the coefficient -0.75; of two as near, NEAREST takes
    the left one. `resize_nearest`, `resize_linear` and `resize_bicubic` take other ways, and any rank.

    Args:
        input: (batch, channels, height, width).
        shape: the whole shape of the result; batch and channels stay.
        interpolation: BILINEAR, BICUBIC or NEAREST, by its name, too: "bilinear".

    Raises:
        GraphError: EK0421 another rank; EK0492 a shape of another length, of another batch or other channels; EK0414
            another interpolation.
    """
    value = tensor("resize", "input", input)
    check_kind("resize", "input", value, "numeric")
    if value.rank != 4:
        text = f"argument 'input' has rank {value.rank}, {shown(value.shape)}, and not 4"
        wanted = "rank 4: (batch, channels, height, width)"
        fail("resize", text, code="EK0421", argument="input", expected=wanted, got=shown(value.shape))
    mode = member_of("interpolation", interpolation, InterpolationMode)
    target = _target("resize", value, shape)
    if target[:2] != value.shape[:2]:
        text = f"shape {shown(target)} changes batch or channels of {shown(value.shape)}"
        fail("resize", text, code="EK0492", argument="shape", expected=shown(value.shape[:2]), got=shown(target[:2]))
    if mode is InterpolationMode.NEAREST:
        return _resized("resize", value, target, "resize_nearest", {"rounding": _ROUNDING[0]})
    cubic = mode is InterpolationMode.BICUBIC
    return _weighted("resize", value, target, {}, cubic=cubic)


@op(dtypes={"input": "storable"}, example="ops.resize_nearest(input, (2, 3, 7, 9))")
def resize_nearest(
    input: TensorValueLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: str | int = "half_pixel",
    round_mode: str | int = "round_prefer_floor",
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
) -> TensorValue:
    """A tensor of another shape, of elements that lie nearest.

    Args:
        input: a tensor of any rank.
        size: the shape of the result.
        coordinate_transform_mode: where elements lie: half_pixel, half_pixel_symmetric, pytorch_half_pixel,
            align_corners, asymmetric or tf_crop_and_resize, with the meanings that ONNX gives them; or a number: 0 is
            half_pixel, 1 align_corners, 2 asymmetric, 3 pytorch_half_pixel.
        round_mode: round_prefer_floor, round_prefer_ceil, floor or ceil; or its number in this order, from 0 on.
        scales: for each axis how many elements there are for one of `input`, where that is not what the sizes say.
        roi: for tf_crop_and_resize the starts of all axes, and then their ends; 0 and 1 are those of the input.
        extrapolation_value: what lies outside, for tf_crop_and_resize.

    Raises:
        GraphError: EK0492 a size of another length; EK0414 an unknown mode; EK0478 scales or a roi of another length.
    """
    name = "resize_nearest"
    value = tensor(name, "input", input)
    rounding = choice_of("round_mode", _mode(round_mode, _ROUNDING), _ROUNDING, "EK0414")
    options = _options(value, coordinate_transform_mode, scales, roi, extrapolation_value)
    return _resized(name, value, _target(name, value, size, "size"), name, {"rounding": rounding}, options)


@op(dtypes={"input": "numeric"}, example="ops.resize_linear(input, (2, 3, 7, 9))")
def resize_linear(
    input: TensorValueLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: str | int = "half_pixel",
    antialias: bool = False,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
    exclude_outside: bool = False,
) -> TensorValue:
    """A tensor of another shape, each element between its two neighbours along each axis.

    Args:
        input, size, coordinate_transform_mode, scales, roi, extrapolation_value: see `resize_nearest`.
        antialias: along an axis that shrinks as many neighbours count as there are for one element of the result.
        exclude_outside: neighbours outside have no weight; else they are the outermost element.

    Raises:
        GraphError: see `resize_nearest`.
    """
    value = tensor("resize_linear", "input", input)
    check_kind("resize_linear", "input", value, "numeric")
    options = _options(value, coordinate_transform_mode, scales, roi, extrapolation_value)
    flags = {"antialias": flag_of("antialias", antialias), "exclude": flag_of("exclude_outside", exclude_outside)}
    return _weighted("resize_linear", value, _target("resize_linear", value, size, "size"), options, **flags)


@op(dtypes={"input": "numeric"}, example="ops.resize_bicubic(input, (2, 3, 7, 9))")
def resize_bicubic(
    input: TensorValueLike,
    size: Iterable[DimLike],
    coordinate_transform_mode: str | int = "half_pixel",
    antialias: bool = False,
    cubic_coeff_a: float = -0.75,
    scales: Sequence[float] | None = None,
    roi: Sequence[float] | None = None,
    extrapolation_value: float = 0.0,
    exclude_outside: bool = False,
) -> TensorValue:
    """A tensor of another shape, each element made of its four neighbours along each axis, by a cubic.

    Args:
        input, size, coordinate_transform_mode, scales, roi, extrapolation_value: see `resize_nearest`.
        antialias, exclude_outside: see `resize_linear`.
        cubic_coeff_a: the cubic's coefficient.

    Raises:
        GraphError: see `resize_nearest`.
    """
    value = tensor("resize_bicubic", "input", input)
    check_kind("resize_bicubic", "input", value, "numeric")
    options = _options(value, coordinate_transform_mode, scales, roi, extrapolation_value)
    flags = {"antialias": flag_of("antialias", antialias), "exclude": flag_of("exclude_outside", exclude_outside)}
    a = _number("cubic_coeff_a", cubic_coeff_a)
    target = _target("resize_bicubic", value, size, "size")
    return _weighted("resize_bicubic", value, target, options, cubic=True, coefficient=a, **flags)


# *** what they share ***


def _target(name: str, value: TensorValue, shape: Iterable[int | str | Dim], argument: str = "shape") -> Shape:
    target = Shape(shape)
    if len(target) != value.rank:
        text = f"argument '{argument}' has {len(target)} sizes, and the input has {value.rank} axes"
        fail(name, text, code="EK0492", argument=argument, expected=f"{value.rank} sizes", got=shown(target))
    return target


def _mode(given: Any, numbered: Sequence[str]) -> Any:
    """The name of a mode that is given by its number; anything else as it is."""
    known = type(given) is int and 0 <= given < len(numbered)
    return numbered[given] if known else given


def _number(argument: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        wrong(argument, value, "a number")
    return number_of(argument, value)


def _numbers(argument: str, value: object, count: int) -> list[float]:
    numbers = [_number(f"{argument}[{k}]", each) for k, each in enumerate(list_of(argument, value, "numbers"))]
    if len(numbers) != count:
        wrong(argument, numbers, f"{count} numbers")
    return numbers


def _options(
    value: TensorValue, coordinates: object, scales: object, roi: object, extrapolation: object
) -> dict[str, Any]:
    """How places are found: a list of numbers for each axis, where there is one."""
    rank = value.rank
    mode = _mode(coordinates, _NUMBERED)
    chosen = choice_of("coordinate_transform_mode", mode, _COORDINATES, "EK0414")
    factors = [0.0] * rank if scales is None else _numbers("scales", scales, rank)
    if scales is not None and min(factors, default=1.0) <= 0:
        wrong("scales", factors, "numbers above 0")
    ends = [0.0] * rank + [1.0] * rank if roi is None else _numbers("roi", roi, 2 * rank)
    return {
        "coordinates": chosen,
        "scale": factors,
        "start": ends[:rank],
        "end": ends[rank:],
        "extrapolation": _number("extrapolation_value", extrapolation),
    }


def _weighted(
    name: str,
    value: TensorValue,
    target: Shape,
    options: dict[str, Any],
    *,
    cubic: bool = False,
    coefficient: float = -0.75,
    antialias: bool = False,
    exclude: bool = False,
) -> TensorValue:
    dtype = value.dtype
    if dtype.is_float():
        wide = DType.float32 if dtype.is_half() else dtype
    else:
        wide = DType.float64 if dtype.size_in_bytes >= 4 else DType.float32
    more = {"cubic": cubic, "coefficient": coefficient, "antialias": antialias, "exclude": exclude}
    result = _resized(name, cast_to(value, wide), target, "resize_weighted", more, options)
    if not dtype.is_float():
        result = builtin("elementwise", "round", [result])[0]
    return cast_to(result, dtype)


def _resized(
    name: str,
    value: TensorValue,
    target: Shape,
    kernel: str,
    more: dict[str, Any],
    options: dict[str, Any] | None = None,
) -> TensorValue:
    """One kernel for each axis that changes, the one that shrinks most first."""
    rank = value.rank
    plain = {"coordinates": _COORDINATES[0], "scale": [0.0] * rank, "start": [0.0] * rank, "end": [1.0] * rank}
    given = {**plain, "extrapolation": 0.0, **(options or {})}
    result = value
    for axis in range(rank):
        size, wanted = value.shape[axis], target[axis]
        same = size == wanted and given["scale"][axis] in (0.0, 1.0)
        if same and (
            given["coordinates"] != "tf_crop_and_resize" or (given["start"][axis], given["end"][axis]) == (0, 1)
        ):
            continue
        _check_elements(name, size, wanted, axis)
        here = {key: each[axis] if isinstance(each, list) else each for key, each in given.items()}
        shape = [*result.shape[:axis], wanted, *result.shape[axis + 1 :]]
        result = builtin(_FAMILY, kernel, [result], {"axis": axis, **here, **more}, [result.type.with_shape(shape)])[0]
    return result


def _check_elements(name: str, size: Dim, wanted: Dim, axis: int) -> None:
    """Nothing lies between no elements."""
    least, text = wanted.minimum(1), f"axis {axis} has no elements of which {wanted} could be made"
    if isinstance(size - least, StaticDim):
        if int(size - least) < 0:
            fail(name, text, code="EK0492", argument="input", expected="at least one element", got=str(size))
    else:
        require(name, "at_least", size, least, f"{name}: {text}", "EK0492")
