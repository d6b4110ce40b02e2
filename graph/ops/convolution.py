"""Stages convolutions over one to three axes of places, and what makes images of blocks and blocks of images.

Input is (batch, places, channels) in the layout NHWC and (batch, channels, places) in NCHW, whatever the number of axes
of places. The kernels take filters in the order that suits these, (taps, channels, results) or (results, channels,
taps); other orders are permuted before. Padding becomes a tensor of its own, unless each channel has its own filter.

A transposed convolution is a product with the filter, whose blocks of results are then added up where they overlap
(`fold`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ...dsl.types.dtype import DType
from ..arguments import int_of
from ..staging.value import TensorValue, TensorValueLike
from ..types.dims import Dim, Shape, StaticDim
from ..types.layouts import ConvInputLayout, FilterLayout
from ..types.tensor_type import shown
from .matmul import matmul
from .operands import DimLike, as_shape, broadcast, cast_to, check_kind, permuted, tensor, tensors
from .stage import builtin, fail, op, require
from .windows import Windows, image_shape, is_first, member_of, numbers_of, places_of, windows_of

__all__ = ["conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "fold", "unfold"]

Numbers = int | Iterable[int]

_FAMILY = "convolution"
_NHWC = ConvInputLayout.NHWC
_KINDS = {"x": "numeric", "filter": "numeric", "bias": "numeric"}


@op(dtypes=_KINDS, example="ops.conv1d(x, filter, bias=bias)")
def conv1d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = (0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = _NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """The convolution over one axis of places; see `conv2d`.

    `x` is (batch, width, channels), or (batch, channels, width) where `input_layout` is NCHW. `filter` is (width,
    channels / groups, results); with `filter_layout` FCRS (results, channels / groups, width).
    """
    return _convolution("conv1d", 1, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


@op(dtypes=_KINDS, example="ops.conv2d(x, filter, padding=(1, 1, 1, 1), bias=bias)")
def conv2d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Numbers = (1, 1),
    dilation: Numbers = (1, 1),
    padding: Numbers = (0, 0, 0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = _NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
) -> TensorValue:
    """The convolution over two axes of places: the sums of products of a filter with the windows that it slides over.

    Half types are summed in float32; integers wrap.

    Args:
        x: (batch, height, width, channels), or (batch, channels, height, width) where `input_layout` is NCHW.
        filter: (height, width, channels / groups, results); `filter_layout` says another order.
        stride: how far windows lie apart: one number, or one for each axis of places.
        dilation: how far the elements of a window lie apart.
        padding: how many zeros lie before and after each axis of places, as (top, bottom, left, right); two numbers or
            one say both of an axis.
        groups: into how many groups channels and results are cut; each group of results sees its own channels.
        bias: (results,), added to each place.
        input_layout: the order of the axes of `x` and of the result.
        filter_layout: RSCF, FCRS or CFRS.

    Raises:
        GraphError: EK0421 another rank; EK0490 a stride, dilation or padding that cannot be; EK0491 the channels of
            `x`, `filter` and `bias` do not go together; EK0414 a layout that does not fit two axes.
    """
    return _convolution("conv2d", 2, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


@op(dtypes=_KINDS, example="ops.conv3d(x, filter, bias=bias)")
def conv3d(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Numbers = (1, 1, 1),
    dilation: Numbers = (1, 1, 1),
    padding: Numbers = (0, 0, 0, 0, 0, 0),
    groups: int = 1,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = _NHWC,
    filter_layout: FilterLayout = FilterLayout.QRSCF,
) -> TensorValue:
    """The convolution over three axes of places; see `conv2d`.

    `x` is (batch, depth, height, width, channels), or (batch, channels, depth, height, width) where `input_layout` is
    NCHW. `filter` is (depth, height, width, channels / groups, results), the order QRSCF; FCQRS is the other one.
    """
    return _convolution("conv3d", 3, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


@op(dtypes=_KINDS, example="ops.conv1d_transpose(x, filter, stride=2, bias=bias)")
def conv1d_transpose(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = (0, 0),
    output_paddings: Numbers = 0,
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = _NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
    groups: int = 1,
) -> TensorValue:
    """The transposed convolution over one axis of places; see `conv2d_transpose`."""
    windows = (stride, dilation, padding, output_paddings, groups)
    return _transposed("conv1d_transpose", 1, x, filter, windows, bias, input_layout, filter_layout)


@op(dtypes=_KINDS, example="ops.conv2d_transpose(x, filter, stride=(2, 2), bias=bias)")
def conv2d_transpose(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Numbers = (1, 1),
    dilation: Numbers = (1, 1),
    padding: Numbers = (0, 0, 0, 0),
    output_paddings: Numbers = (0, 0),
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = _NHWC,
    filter_layout: FilterLayout = FilterLayout.RSCF,
    groups: int = 1,
) -> TensorValue:
    """The transposed convolution over two axes of places: the gradient of `conv2d` in its input.

    The letters of layouts are those of the convolution whose gradient this is: F are the channels of `x`, and C those
    of the result. So filters in PyTorch's order, (channels of x, channels of the result, height, width), are FCRS.

    Args:
        x: (batch, height, width, channels), or (batch, channels, height, width) where `input_layout` is NCHW.
        filter: (height, width, results / groups, channels); `filter_layout` says another order.
        stride, dilation: of the windows of the result to which the elements of `x` go.
        padding: what is cut off the result, as (top, bottom, left, right); two numbers or one say both of an axis.
        output_paddings: how many places more the result has at the end of each axis.
        bias: (results,), added to each place.
        input_layout: the order of the axes of `x` and of the result.
        filter_layout: RSCF, FCRS or CFRS.
        groups: into how many groups channels and results are cut.

    Raises:
        GraphError: see `conv2d`.
    """
    windows = (stride, dilation, padding, output_paddings, groups)
    return _transposed("conv2d_transpose", 2, x, filter, windows, bias, input_layout, filter_layout)


@op(dtypes=_KINDS, example="ops.conv3d_transpose(x, filter, stride=2, bias=bias)")
def conv3d_transpose(
    x: TensorValueLike,
    filter: TensorValueLike,
    stride: Numbers = (1, 1, 1),
    dilation: Numbers = (1, 1, 1),
    padding: Numbers = (0, 0, 0, 0, 0, 0),
    output_paddings: Numbers = (0, 0, 0),
    bias: TensorValueLike | None = None,
    input_layout: ConvInputLayout = _NHWC,
    filter_layout: FilterLayout = FilterLayout.QRSCF,
    groups: int = 1,
) -> TensorValue:
    """The transposed convolution over three axes of places; see `conv2d_transpose`."""
    windows = (stride, dilation, padding, output_paddings, groups)
    return _transposed("conv3d_transpose", 3, x, filter, windows, bias, input_layout, filter_layout)


# *** convolutions ***

# Channels of a group that are too small for a product of matrices; where the channels come first, and where they do
# not.
GROUPED_CHANNELS = {True: (2, 4), False: (2, 4, 8, 16)}


def _convolution(
    name: str,
    axes: int,
    x: object,
    filter: object,
    stride: object,
    dilation: object,
    padding: object,
    groups: object,
    bias: object,
    input_layout: object,
    filter_layout: object,
) -> TensorValue:
    image, weights, added = _operands(name, x, filter, bias)
    first = is_first(input_layout)
    batch, places, channels = places_of(name, "x", image, axes, first)
    weights = _ordered(name, weights, axes, filter_layout, first)
    taps, each, results = _filter_sizes(weights, first)
    count = _groups_of(name, groups)
    _check_channels(name, channels, each * count, f"{each} for each of {count} groups")
    _check_divides(name, results, count)
    windows = windows_of(taps, stride, dilation, padding)
    shape = image_shape(batch, windows.count(places), results, first)
    out = image.type.with_shape(shape)
    parameters = {**windows.parameters("stride", "dilation"), "first": first}
    if count > 1 and each == 1 and results == channels:
        parameters |= windows.parameters("before")
        result = builtin(_FAMILY, "depthwise_conv", [image, weights], parameters, [out])[0]
    elif count > 1 and results == channels and each in GROUPED_CHANNELS[first]:
        parameters |= {**windows.parameters("before"), "each": int(each)}
        result = builtin(_FAMILY, "grouped_conv", [image, weights], parameters, [out])[0]
    else:
        padded = _padded(image, windows, first)
        result = builtin(_FAMILY, "conv", [padded, weights], {**parameters, "groups": count}, [out])[0]
    return _biased(name, result, added, results, axes, first)


def _padded(image: TensorValue, windows: Windows, first: bool) -> TensorValue:
    """The image with zeros around its places; itself when there are none."""
    if not any((*windows.before, *windows.after)):
        return image
    batch, places, channels = places_of("pad", "x", image, image.rank - 2, first)
    sizes = [size + b + a for size, b, a in zip(places, windows.before, windows.after, strict=True)]
    shape = image_shape(batch, sizes, channels, first)
    if first or not isinstance(channels, StaticDim):
        layout = {"leading": 2 if first else 1, "trailing": 0 if first else 1}
        out = image.type.with_shape(shape)
        return builtin(_FAMILY, "pad_places", [image], {**windows.parameters("before"), **layout}, [out])[0]
    # The places along the last axis and their channels are one axis, so that short rows of channels become long ones.
    flat = as_shape(image, [batch, *places[:-1], places[-1] * channels])
    out = image.type.with_shape([batch, *sizes[:-1], sizes[-1] * channels])
    before = (*windows.before[:-1], windows.before[-1] * int(channels))
    layout = {"leading": 1, "trailing": 0}
    padded = builtin(_FAMILY, "pad_places", [flat], {"before": before, **layout}, [out])[0]
    return as_shape(padded, shape)


def _operands(name: str, x: Any, filter: Any, bias: Any) -> tuple[TensorValue, TensorValue, TensorValue | None]:
    given = {"x": x, "filter": filter} if bias is None else {"x": x, "filter": filter, "bias": bias}
    for argument, value in given.items():
        if isinstance(value, TensorValue):
            check_kind(name, argument, tensor(name, argument, value), "numeric")
    operands = tensors(name, **given)
    return operands[0], operands[1], operands[2] if bias is not None else None


def _ordered(name: str, weights: TensorValue, axes: int, layout: object, first: bool) -> TensorValue:
    """A filter as (results, channels, taps) where the channels of images come first, else (taps, channels, results)."""
    allowed = [FilterLayout.RSCF, FilterLayout.FCRS, FilterLayout.CFRS]
    if axes == 3:
        allowed = [FilterLayout.QRSCF, FilterLayout.FCQRS]
    order = member_of("filter_layout", layout, FilterLayout, allowed).value
    letters = "QRS"[:axes] if axes == 3 else "RS"[2 - axes :]
    order = "".join(letter for letter in order if letter in letters + "CF")
    if weights.rank != len(order):
        fail(
            name,
            f"argument 'filter' has rank {weights.rank}, {shown(weights.shape)}, and not {len(order)}",
            code="EK0421",
            argument="filter",
            expected=f"rank {len(order)}: {order}",
            got=shown(weights.shape),
        )
    wanted = f"FC{letters}" if first else f"{letters}CF"
    return permuted(weights, [order.index(letter) for letter in wanted])


def _filter_sizes(weights: TensorValue, first: bool) -> tuple[Shape, Dim, Dim]:
    """The taps, C and F of an ordered filter."""
    shape = weights.shape
    return (shape[2:], shape[1], shape[0]) if first else (shape[:-2], shape[-2], shape[-1])


def _groups_of(name: str, groups: object) -> int:
    count = int_of("groups", groups, "EK0491", "a whole number >= 1")
    if count < 1:
        fail(name, f"there are {count} groups", code="EK0491", argument="groups", expected="1 or more", got=count)
    return count


def _check_channels(name: str, channels: Dim, wanted: Dim, text: str, argument: str = "filter") -> None:
    """Refuses channels now, if they can be seen to be others, or else when the graph is called."""
    if channels == wanted:
        return
    text = f"x has {channels} channels, and argument '{argument}' takes {text}"
    if isinstance(channels - wanted, StaticDim):
        fail(name, text, code="EK0491", argument=argument, expected=str(channels), got=str(wanted))
    require(name, "equal", channels, wanted, f"{name}: {text}", "EK0491")


def _check_divides(name: str, results: Dim, groups: int) -> None:
    rest, text = results % groups, f"{results} results do not divide into {groups} groups"
    if rest == 0:
        return
    if isinstance(rest, StaticDim):
        fail(name, text, code="EK0491", argument="groups", expected=f"a divisor of {results}", got=groups)
    require(name, "equal", rest, Dim(0), f"{name}: {text}", "EK0491")


def _biased(
    name: str, result: TensorValue, bias: TensorValue | None, channels: Dim, axes: int, first: bool
) -> TensorValue:
    if bias is None:
        return result
    text = f"argument 'bias' has shape {shown(bias.shape)}, and there are {channels} results"
    if bias.rank != 1 or (bias.shape[0] != channels and isinstance(bias.shape[0] - channels, StaticDim)):
        fail(name, text, code="EK0491", argument="bias", expected=shown([channels]), got=shown(bias.shape))
    if bias.shape[0] != channels:
        require(name, "equal", bias.shape[0], channels, f"{name}: {text}", "EK0491")
    shaped = as_shape(bias, [channels, *[1] * axes] if first else [channels])
    return builtin("elementwise", "add", broadcast(name, {"x": result, "bias": shaped}))[0]


# *** transposed ***


def _transposed(
    name: str,
    axes: int,
    x: object,
    filter: object,
    options: tuple[object, object, object, object, object],
    bias: object,
    input_layout: object,
    filter_layout: object,
) -> TensorValue:
    stride, dilation, padding, output_paddings, groups = options
    image, weights, added = _operands(name, x, filter, bias)
    first = is_first(input_layout)
    batch, places, channels = places_of(name, "x", image, axes, first)
    weights = _ordered(name, weights, axes, filter_layout, True)  # (channels, results, taps)
    taps, each, wanted = _filter_sizes(weights, True)
    _check_channels(name, channels, wanted, f"{wanted}")
    count = _groups_of(name, groups)
    _check_divides(name, channels, count)
    if not taps.is_static:
        text = f"the taps of argument 'filter' have to be known sizes, and are {shown(taps)}"
        fail(name, text, code="EK0491", argument="filter", expected="known sizes", got=shown(taps))
    windows = windows_of(taps, stride, dilation, padding)
    more = numbers_of("output_paddings", output_paddings, axes, 0)
    sizes = [
        (size - 1) * windows.stride[k]
        - windows.before[k]
        - windows.after[k]
        + windows.dilation[k] * (taps[k] - 1)
        + (1 + more[k])
        for k, size in enumerate(places)
    ]
    dtype = image.dtype
    wide = DType.float32 if dtype.is_half() else dtype
    blocks = _blocks(cast_to(image, wide), cast_to(weights, wide), count, first)
    result = _folded(blocks, batch, sizes, each * count, windows, first)
    return _biased(name, cast_to(result, dtype), added, each * count, axes, first)


def _blocks(image: TensorValue, weights: TensorValue, groups: int, first: bool) -> TensorValue:
    """What each place of the image adds to the result: (batch, places, taps * results) or (batch, results * taps,
    places)."""
    axes = image.rank - 2
    batch, places, channels = places_of("conv", "x", image, axes, first)
    taps, each, _ = _filter_sizes(weights, True)
    inner, length = channels // groups, places.num_elements
    if first:
        rows = each * taps.num_elements
        left = as_shape(weights, [groups, inner, rows])
        right = as_shape(image, [batch, groups, inner, length])
        product = matmul(permuted(left, [0, 2, 1]), right)
        return as_shape(product, [batch, groups * rows, *places])
    if groups == 1:
        columns = as_shape(permuted(weights, [0, *range(2, axes + 2), 1]), [channels, taps.num_elements * each])
        return matmul(image, columns)
    grouped = as_shape(weights, [groups, inner, each, *taps])
    right = permuted(grouped, [0, 1, *range(3, axes + 3), 2])  # (groups, channels, taps, results)
    right = as_shape(right, [groups, inner, taps.num_elements * each])
    left = permuted(as_shape(image, [batch * length, groups, inner]), [1, 0, 2])
    product = as_shape(matmul(left, right), [groups, batch * length, taps.num_elements, each])
    product = permuted(product, [1, 2, 0, 3])
    return as_shape(product, [batch, *places, taps.num_elements * groups * each])


def _folded(
    blocks: TensorValue, batch: Dim, sizes: Sequence[Dim], channels: Dim, windows: Windows, first: bool
) -> TensorValue:
    out = blocks.type.with_shape(image_shape(batch, sizes, channels, first))
    parameters = {**windows.parameters("kernel", "stride", "dilation", "before"), "first": first}
    return builtin("folding", "fold", [blocks], parameters, [out])[0]


# *** blocks ***


@op(dtypes={"input": "numeric"}, example="ops.fold(input, (4, 5), (2, 2))")
def fold(
    input: TensorValueLike,
    output_size: Iterable[DimLike],
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
) -> TensorValue:
    """An image of its sliding blocks, which are added up where they overlap. Half types are summed in float32.

    Args:
        input: (batch, channels * taps, blocks): of each block all channels, and of each channel all taps.
        output_size: the sizes of the axes of places of the result, one to three of them, without padding.
        kernel_size: the sizes of blocks, one for each axis.
        stride, dilation: how far blocks and their elements lie apart.
        padding: how much the axes are padded before they are cut into blocks.

    Raises:
        GraphError: EK0421 another rank; EK0490 a number that cannot be; EK0492 the blocks are not as many as there are
            in an image of this size, or the taps do not divide the channels.
    """
    value = tensor("fold", "input", input)
    check_kind("fold", "input", value, "numeric")
    sizes = Shape(output_size)
    axes = _axes_of("fold", "output_size", len(sizes))
    if value.rank != 3:
        _fail_rank("fold", value, "rank 3: (batch, channels * taps, blocks)")
    windows = windows_of(_listed(kernel_size, axes), stride, dilation, padding, sizes=True)
    taps = math.prod(map(int, windows.kernel))
    counts = windows.count(sizes)
    batch, rows, length = value.shape
    _check_size("fold", length, Shape(counts).num_elements, f"{length} blocks", "blocks in an image of this size")
    _check_size("fold", rows % taps, Dim(0), f"{rows} rows, which {taps} taps do not divide, leave", "over")
    blocks = as_shape(value, [batch, rows, *counts])
    return _folded(blocks, batch, list(sizes), rows // taps, windows, True)


@op(dtypes={"input": "storable"}, example="ops.unfold(input, (2, 2))")
def unfold(
    input: TensorValueLike,
    kernel_size: Numbers,
    stride: Numbers = 1,
    dilation: Numbers = 1,
    padding: Numbers = 0,
) -> TensorValue:
    """The sliding blocks of an image: (batch, channels * taps, blocks) of (batch, channels, places).

    Args:
        input: images, the channels first, with one to three axes of places.
        kernel_size, stride, dilation, padding: see `fold`.

    Raises:
        GraphError: EK0421 another rank; EK0490 a number that cannot be.
    """
    value = tensor("unfold", "input", input)
    axes = value.rank - 2
    if not 1 <= axes <= 3:
        _fail_rank("unfold", value, "rank 3 to 5: (batch, channels, places)")
    windows = windows_of(_listed(kernel_size, axes), stride, dilation, padding, sizes=True)
    batch, places, channels = places_of("unfold", "input", value, axes, True)
    counts = windows.count(places)
    taps = math.prod(map(int, windows.kernel))
    out = value.type.with_shape([batch, channels, *windows.kernel, *counts])
    blocks = builtin("folding", "unfold", [value], windows.parameters("stride", "dilation", "before"), [out])[0]
    return as_shape(blocks, [batch, channels * taps, Shape(counts).num_elements])


def _listed(value: int | Iterable[int], axes: int) -> tuple[int, ...]:
    return numbers_of("kernel_size", value, axes, 1)


def _axes_of(name: str, argument: str, axes: int) -> int:
    if not 1 <= axes <= 3:
        text = f"argument '{argument}' has {axes} sizes, and images have one to three axes of places"
        fail(name, text, code="EK0490", argument=argument, expected="1 to 3 sizes", got=axes)
    return axes


def _fail_rank(name: str, value: TensorValue, expected: str) -> None:
    text = f"argument 'input' has shape {shown(value.shape)}, and not {expected}"
    fail(name, text, code="EK0421", argument="input", expected=expected, got=shown(value.shape))


def _check_size(name: str, got: Dim, wanted: Dim, text: str, what: str) -> None:
    if got == wanted:
        return
    if isinstance(got - wanted, StaticDim):
        fail(
            name,
            f"{text}, and not {wanted} {what}",
            code="EK0492",
            argument="input",
            expected=str(wanted),
            got=str(got),
        )
    require(name, "equal", got, wanted, f"{name}: {text}, and not {wanted} {what}", "EK0492")
