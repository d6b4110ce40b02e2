"""Stages pools: the maximum, the mean or a norm of windows that slide over one to three axes of places.

Input is (batch, places, channels) in the layout NHWC, which is the default as documented, and (batch, channels, places)
in NCHW, whatever the number of axes of places. What lies in the padding never is a maximum; to a mean it counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import axis_of, flag_of, number_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim
from ..types.layouts import ConvInputLayout
from .operands import as_shape, cast_to, check_kind, tensor
from .reduction import max as maximum_of
from .reduction import mean as mean_of
from .stage import builtin, fail, op
from .windows import Windows, image_shape, is_first, numbers_of, places_of, windows_of

Numbers = int | Iterable[int]

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "global_avg_pool",
    "global_max_pool",
    "local_response_norm",
    "lp_pool",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool_with_indices",
]

_FAMILY = "pooling"
_NHWC = ConvInputLayout.NHWC


@op(dtypes={"input": "numeric"}, example="ops.max_pool1d(input, 3)")
def max_pool1d(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The largest element of each window over one axis of places; see `max_pool2d`."""
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    return _max_pool("max_pool1d", 1, input, options)


@op(dtypes={"input": "numeric"}, example="ops.max_pool2d(input, (3, 3), stride=2, padding=1)")
def max_pool2d(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The largest element of each window over two axes of places; NaN where there is one.

    Args:
        input: (batch, height, width, channels), or (batch, channels, height, width) where `input_layout` is NCHW.
        kernel_size: the sizes of windows: one number, or one for each axis of places.
        stride: how far windows lie apart.
        dilation: how far the elements of a window lie apart.
        padding: how much each axis is padded at both ends: a number, one for each axis, or two for each. What lies
            there is never the largest; where a window has nothing else, the result is -inf, or the least integer.
        ceil_mode: also a window counts that begins inside of the image, or in the padding before it, and ends outside.
        input_layout: the order of the axes of `input` and of the result.

    Raises:
        GraphError: EK0421 another rank; EK0490 a size, stride, dilation or padding that cannot be.
    """
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    return _max_pool("max_pool2d", 2, input, options)


@op(dtypes={"input": "numeric"}, example="ops.max_pool3d(input, 2)")
def max_pool3d(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The largest element of each window over three axes of places; see `max_pool2d`."""
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    return _max_pool("max_pool3d", 3, input, options)


@op(dtypes={"input": "numeric"}, example="ops.max_pool_with_indices(input, 2)")
def max_pool_with_indices(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    input_layout: ConvInputLayout = _NHWC,
) -> tuple[TensorValue, TensorValue]:
    """The largest elements of windows, and where they lie: numbers of places of one image and channel, as int64.

    Places are counted in row-major order, over as many axes as `input` has, one to three. Of several equal elements the
    first one counts, and a NaN more than any; -1 stands where a window has no elements. The arguments are those of
    `max_pool2d`.
    """
    name = "max_pool_with_indices"
    axes = tensor(name, "input", input).rank - 2
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    value, windows, first, shape = _pool(name, axes, input, options, "numeric")
    parameters = {**windows.parameters("kernel", "stride", "dilation", "before"), "first": first}
    largest = builtin(_FAMILY, "max_pool", [value], parameters, [value.type.with_shape(shape)])[0]
    places = value.type.with_dtype(DType.int64).with_shape(shape)
    return largest, builtin(_FAMILY, "max_pool_indices", [value], parameters, [places])[0]


@op(dtypes={"input": "float"}, example="ops.avg_pool1d(input, 3)")
def avg_pool1d(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The mean of each window over one axis of places; see `avg_pool2d`."""
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    return _avg_pool("avg_pool1d", 1, input, options, count_boundary)


@op(dtypes={"input": "float"}, example="ops.avg_pool2d(input, (3, 3), stride=2, padding=1)")
def avg_pool2d(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The mean of each window over two axes of places. Half types are summed in float32.

    Args:
        input, kernel_size, stride, dilation, padding, ceil_mode, input_layout: see `max_pool2d`.
        count_boundary: whether zeros in the padding count; what `ceil_mode` adds behind it never does.

    Raises:
        GraphError: see `max_pool2d`.
    """
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    return _avg_pool("avg_pool2d", 2, input, options, count_boundary)


@op(dtypes={"input": "float"}, example="ops.avg_pool3d(input, 2)")
def avg_pool3d(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    count_boundary: bool = True,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The mean of each window over three axes of places; see `avg_pool2d`."""
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    return _avg_pool("avg_pool3d", 3, input, options, count_boundary)


@op(dtypes={"input": "float"}, example="ops.lp_pool(input, 2, p=2)")
def lp_pool(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
    ceil_mode: bool = False,
    p: float = 2.0,
    input_layout: ConvInputLayout = _NHWC,
) -> TensorValue:
    """The p-norm of each window: the p-th root of the sum of the p-th powers of the magnitudes.

    It has as many axes of places, one to three, as `input` has. The other arguments are those of `max_pool2d`.
    """
    axes = tensor("lp_pool", "input", input).rank - 2
    options = (kernel_size, stride, dilation, padding, ceil_mode, input_layout)
    value, windows, first, shape = _pool("lp_pool", axes, input, options, "float")
    power = number_of("p", p, "EK0490", "a number above 0")
    if not power > 0:
        fail("lp_pool", f"p is {power}", code="EK0490", argument="p", expected="a number above 0", got=power)
    parameters = {**windows.parameters("kernel", "stride", "dilation", "before"), "first": first, "p": power}
    return builtin(_FAMILY, "lp_pool", [value], parameters, [value.type.with_shape(shape)])[0]


@op(dtypes={"input": "float"}, example="ops.global_avg_pool(input)")
def global_avg_pool(input: TensorValueLike, input_layout: ConvInputLayout = _NHWC) -> TensorValue:
    """The mean of all places of each image and channel; the axes of places stay, of size 1."""
    return _over_places("global_avg_pool", mean_of, input, input_layout, "float")


@op(dtypes={"input": "numeric"}, example="ops.global_max_pool(input)")
def global_max_pool(input: TensorValueLike, input_layout: ConvInputLayout = _NHWC) -> TensorValue:
    """The largest element of all places of each image and channel; the axes of places stay, of size 1."""
    return _over_places("global_max_pool", maximum_of, input, input_layout, "numeric")


@op(dtypes={"x": "float"}, example="ops.local_response_norm(x, 3)")
def local_response_norm(
    x: TensorValueLike, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, axis: int = 1
) -> TensorValue:
    """x / (k + alpha * m) ** beta, where m is the mean of the squares of `size` neighbours along an axis.

    What lies outside counts as 0. Half types compute in float32.

    Raises:
        GraphError: EK0490, a size below 1; EK0422, an axis that does not exist.
    """
    value = tensor("local_response_norm", "x", x)
    check_kind("local_response_norm", "x", value, "float")
    at = axis_of(axis, value.rank)
    (count,) = numbers_of("size", size, 1, 1)
    wide = cast_to(value, DType.float32) if value.dtype.is_half() else value
    before, behind = value.shape[:at].num_elements, value.shape[at + 1 :].num_elements
    squares = as_shape(wide * wide, [before, value.shape[at], behind])
    pads = ((count - 1) // 2, count // 2)
    means = avg_pool1d(squares, count, padding=pads)
    result = wide / (as_shape(means, wide.shape) * alpha + k) ** beta
    return cast_to(result, value.dtype)


# *** what they share ***


def _pool(
    name: str, axes: int, x: Any, options: tuple[object, ...], kind: str
) -> tuple[TensorValue, Windows, bool, list[Dim]]:
    """The operand, its windows, whether the channels come first, and the shape of the result.

    `options` are kernel_size, stride, dilation, padding, ceil_mode and input_layout.
    """
    kernel_size, stride, dilation, padding, ceil_mode, input_layout = options
    value = tensor(name, "input", x)
    check_kind(name, "input", value, kind)
    first = is_first(input_layout)
    batch, places, channels = places_of(name, "input", value, min(max(axes, 1), 3), first)
    kernel = numbers_of("kernel_size", kernel_size, len(places), 1)
    windows = windows_of(kernel, stride, dilation, padding, sizes=True)
    counts = windows.count(places, up=flag_of("ceil_mode", ceil_mode))
    return value, windows, first, image_shape(batch, counts, channels, first)


def _max_pool(name: str, axes: int, x: object, options: tuple[object, ...]) -> TensorValue:
    value, windows, first, shape = _pool(name, axes, x, options, "numeric")
    parameters = {**windows.parameters("kernel", "stride", "dilation", "before"), "first": first}
    return builtin(_FAMILY, "max_pool", [value], parameters, [value.type.with_shape(shape)])[0]


def _avg_pool(name: str, axes: int, x: object, options: tuple[object, ...], count_boundary: object) -> TensorValue:
    value, windows, first, shape = _pool(name, axes, x, options, "float")
    parameters = windows.parameters("kernel", "stride", "dilation", "before", "after")
    flags = {"first": first, "boundary": flag_of("count_boundary", count_boundary)}
    return builtin(_FAMILY, "avg_pool", [value], {**parameters, **flags}, [value.type.with_shape(shape)])[0]


def _over_places(name: str, reduce: Callable[..., TensorValue], x: Any, input_layout: object, kind: str) -> TensorValue:
    value = tensor(name, "input", x)
    check_kind(name, "input", value, kind)
    first = is_first(input_layout)
    batch, places, channels = places_of(name, "input", value, min(max(value.rank - 2, 1), 3), first)
    axis = 2 if first else 1
    merged = as_shape(value, image_shape(batch, [places.num_elements], channels, first))
    return as_shape(reduce(merged, axis=axis), image_shape(batch, [Dim(1)] * len(places), channels, first))
