"""Converts convolutions and pools. ONNX has images with the channels first, and filters in PyTorch's order.

See also `sampling` (resizing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ....dsl.diagnostics.dataclass import dataclass
from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Dim, Shape, StaticDim, dim_max
from ...types.layouts import ConvInputLayout, FilterLayout
from ..call import NodeCall
from ..known import known_dims
from ..table import Dims, Ints, onnx_op
from .indexing import along, steps
from .padding import padded_axis

_FIRST = ConvInputLayout.NCHW
_CONVOLUTIONS = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}
_TRANSPOSED = {1: ops.conv1d_transpose, 2: ops.conv2d_transpose, 3: ops.conv3d_transpose}
_MAX_POOLS = {1: ops.max_pool1d, 2: ops.max_pool2d, 3: ops.max_pool3d}
_MEAN_POOLS = {1: ops.avg_pool1d, 2: ops.avg_pool2d, 3: ops.avg_pool3d}

Padding = TypeVar("Padding", int, Dim)


@dataclass(frozen=True)
class ImageWindows:
    """Windows over the axes of places: sizes, strides, dilations, and paddings before and after each axis."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]  # before and after the first axis, before and after the second, ...


def windows(
    call: NodeCall,
    x: TensorValue,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: Sequence[int] | None,
    auto_pad: str,
) -> ImageWindows:
    """What ONNX says of windows, with the padding worked out."""
    axes = x.rank - 2
    if axes not in _CONVOLUTIONS:
        call.fail(f"takes one to three axes of places, and gets {axes}")
    by, apart = list(strides or [1] * axes), list(dilations or [1] * axes)
    if any(len(each) != axes for each in (kernel, by, apart)) or len(pads or [0] * 2 * axes) != 2 * axes:
        call.fail(f"has windows of another number of axes than the {axes} of its input")
    if auto_pad in ("NOTSET", ""):
        given = list(pads or [0] * 2 * axes)
        return ImageWindows(list(kernel), by, apart, [given[k // 2 + (k % 2) * axes] for k in range(2 * axes)])
    flat = []
    for k, dim in enumerate(x.shape[2:]):
        total = Dim(0) if auto_pad == "VALID" else _same(dim, (kernel[k] - 1) * apart[k] + 1, by[k])
        if not isinstance(total, StaticDim):
            call.fail(f"auto_pad with a stride of {by[k]} needs sizes that are known, and one is {dim}", code="EK0529")
        flat += _shares(int(total), auto_pad)
    return ImageWindows(list(kernel), by, apart, flat)


def _same(dim: Dim, extent: int, stride: int) -> Dim:
    """The padding of an axis that makes as many windows as there are strides in it."""
    total = ((dim + (stride - 1)) // stride - 1) * stride + extent - dim
    if isinstance(total, StaticDim):
        return Dim(max(int(total), 0))
    if stride == 1 or extent == 1:  # the last window then begins at an element
        return Dim(extent - 1)
    return total if extent >= stride else dim_max(total, 0)


def _shares(total: Padding, auto_pad: str) -> list[Padding]:
    """A padding as those before and after an axis."""
    less = total // 2
    return [less, total - less] if auto_pad == "SAME_UPPER" else [total - less, less]


def _padded_ahead(
    call: NodeCall,
    x: TensorValue,
    kernel: Sequence[int],
    strides: Sequence[int] | None,
    dilations: Sequence[int] | None,
    pads: list[int] | None,
    auto_pad: str,
    fill: float,
) -> tuple[TensorValue, list[int] | None, str]:
    """`x` with its padding where `auto_pad` makes this depend on sizes; and the `pads` and `auto_pad` that remain."""
    axes = x.rank - 2
    by, apart = list(strides or [1] * axes), list(dilations or [1] * axes)
    if not auto_pad.startswith("SAME") or any(len(each) != axes for each in (kernel, by, apart)):
        return x, pads, auto_pad
    totals = [
        _same(dim, (size - 1) * far + 1, step)
        for dim, size, step, far in zip(x.shape[2:], kernel, by, apart, strict=True)
    ]
    if all(isinstance(total, StaticDim) for total in totals):
        return x, pads, auto_pad
    filled = ops.constant(fill, x.dtype, x.device)
    rest: list[list[int]] = []
    for k, total in enumerate(totals):
        if isinstance(total, StaticDim):
            rest.append(_shares(int(total), auto_pad))
            continue
        counts = known_dims(_shares(total, auto_pad)).tensor(call.device)
        size = x.shape[2 + k] + total
        x = padded_axis(call, x, 2 + k, (counts[0], counts[1]), size, ("constant", filled))
        rest.append([0, 0])
    return x, [each[end] for end in (0, 1) for each in rest], "NOTSET"


# *** convolutions ***


def _filters(x: TensorValue) -> FilterLayout:
    return FilterLayout.FCQRS if x.rank == 5 else FilterLayout.FCRS


@onnx_op("Conv")
def conv(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    b: TensorValue | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """A convolution, in groups of channels."""
    sizes = _kernel_of(call, w, kernel_shape)
    x, pads, auto_pad = _padded_ahead(call, x, sizes, strides, dilations, pads, auto_pad, 0)
    over = windows(call, x, sizes, strides, dilations, pads, auto_pad)
    function = _CONVOLUTIONS[x.rank - 2]
    return function(x, w, over.strides, over.dilations, over.pads, group, b, _FIRST, _filters(x))


def _kernel_of(call: NodeCall, w: TensorValue, kernel_shape: list[int] | None) -> list[int]:
    sizes = w.shape[2:]
    if not sizes.is_static:
        call.fail(f"has filters of the symbolic shape {w.shape}", code="EK0529")
    if kernel_shape is not None and kernel_shape != sizes.static_dims:
        call.fail(f"kernel_shape is {kernel_shape}, and the filters have {sizes}", argument="kernel_shape")
    return sizes.static_dims


@onnx_op("ConvTranspose")
def conv_transpose(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    b: TensorValue | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
) -> TensorValue:
    """The gradient of a convolution; `output_shape` or `auto_pad` say what is cut off."""
    axes = x.rank - 2
    sizes = _kernel_of(call, w, kernel_shape)
    named = auto_pad if auto_pad == "VALID" else "NOTSET"
    over = windows(call, x, sizes, strides, dilations, pads, named)
    extra = list(output_padding or [0] * axes)
    cut = over.pads
    if output_shape is not None or auto_pad.startswith("SAME"):
        cut = []
        for k, dim in enumerate(x.shape[2:]):
            extent = (sizes[k] - 1) * over.dilations[k] + 1
            if output_shape is not None:
                size = Dim(output_shape[-axes:][k])
                total = (dim - 1) * over.strides[k] + extra[k] + extent - size
            else:
                total = Dim(max(extent + extra[k] - over.strides[k], 0))
            if not isinstance(total, StaticDim):
                call.fail(f"output_shape needs sizes that are known, and one is {dim}", code="EK0529")
            if int(total) < 0:
                extra[k] -= int(total)
                total = StaticDim(0)
            less, more = int(total) // 2, int(total) - int(total) // 2
            cut += [less, more] if auto_pad == "SAME_UPPER" else [more, less]
    function = _TRANSPOSED[axes]
    return function(x, w, over.strides, over.dilations, cut, extra, b, _FIRST, _filters(x), groups=group)


def _without_zero(x: TensorValue, zero_point: TensorValue | None, axis: int | None) -> TensorValue:
    """8-bit integers in int32, less their zero point."""
    wide = ops.cast(x, DType.int32)
    if zero_point is None:
        return wide
    zero = ops.cast(zero_point, DType.int32)
    if zero.rank and axis is not None and str(zero.shape[0]) != "1":
        return wide - along(zero, axis, x.rank)
    return wide - (ops.reshape(zero, []) if zero.rank else zero)


@onnx_op("ConvInteger")
def conv_integer(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    x_zero_point: TensorValue | None = None,
    w_zero_point: TensorValue | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """A convolution of 8-bit integers, in int32; padding counts as the zero point."""
    left, right = _without_zero(x, x_zero_point, None), _without_zero(w, w_zero_point, 0)
    attributes = {"kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads}
    return conv(call, left, right, None, auto_pad=auto_pad, group=group, **attributes)


@onnx_op("Col2Im")
def col2im(
    call: NodeCall,
    input: TensorValue,
    image_shape: Dims,
    block_shape: Ints,
    *,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """An image of its blocks, added up where they overlap."""
    axes = len(block_shape)
    given = list(pads or [0] * 2 * axes)
    flat = [given[k // 2 + (k % 2) * axes] for k in range(2 * axes)]
    return ops.fold(input, image_shape, block_shape, strides or [1] * axes, dilations or [1] * axes, flat)


# *** pools ***


@onnx_op("MaxPool")
def max_pool(
    call: NodeCall,
    x: TensorValue,
    *,
    kernel_shape: list[int],
    auto_pad: str,
    ceil_mode: int = 0,
    storage_order: int = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> Any:
    """The largest element of each window, and its place among all elements."""
    if call.outputs < 2:
        fill = float("-inf") if x.dtype.is_float() else 0 if x.dtype is DType.uint8 else -128
        x, pads, auto_pad = _padded_ahead(call, x, kernel_shape, strides, dilations, pads, auto_pad, fill)
    over = windows(call, x, kernel_shape, strides, dilations, pads, auto_pad)
    options = (over.kernel, over.strides, over.dilations, over.pads, bool(ceil_mode), _FIRST)
    if call.outputs < 2:
        return _MAX_POOLS[x.rank - 2](x, *options)
    largest, places = ops.max_pool_with_indices(x, *options)
    if storage_order:
        places = _columns_first(x, places)
    count = ops.reshape(ops.shape_to_tensor([Shape(x.shape[2:]).num_elements]), [])
    items = x.shape[0] * x.shape[1]
    before = ops.reshape(steps(items, x.device), [x.shape[0], x.shape[1], *[1] * (x.rank - 2)]) * count
    return largest, places + before


def _columns_first(x: TensorValue, places: TensorValue) -> TensorValue:
    """Places counted with the first axis running fastest."""
    result, rest = None, places
    sizes = list(x.shape[2:])
    for k, size in reversed(list(enumerate(sizes))):
        number = ops.reshape(ops.shape_to_tensor([size]), [])
        factor = ops.reshape(ops.shape_to_tensor([Shape(sizes[:k]).num_elements]), [])
        part = ops.mod(rest, number) * factor
        result = part if result is None else result + part
        rest = ops.floordiv(rest, number)
    assert result is not None
    return result


@onnx_op("AveragePool")
def average_pool(
    call: NodeCall,
    x: TensorValue,
    *,
    kernel_shape: list[int],
    auto_pad: str,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """The mean of each window."""
    if not count_include_pad:
        around = (kernel_shape, strides, dilations, pads, auto_pad, 0)
        wide, rest, named = _padded_ahead(call, x, *around)
        if wide is not x:  # the means of windows, divided by how much of each lies inside
            ones = ops.broadcast_to(ops.constant(1, x.dtype, x.device), [1, 1, *x.shape[2:]])
            over = windows(call, wide, kernel_shape, strides, dilations, rest, named)
            whole = (over.kernel, over.strides, over.dilations, over.pads, bool(ceil_mode), True, _FIRST)
            pool = _MEAN_POOLS[x.rank - 2]
            return pool(wide, *whole) / pool(_padded_ahead(call, ones, *around)[0], *whole)
    x, pads, auto_pad = _padded_ahead(call, x, kernel_shape, strides, dilations, pads, auto_pad, 0)
    over = windows(call, x, kernel_shape, strides, dilations, pads, auto_pad)
    options = (over.kernel, over.strides, over.dilations, over.pads, bool(ceil_mode))
    return _MEAN_POOLS[x.rank - 2](x, *options, bool(count_include_pad), _FIRST)


@onnx_op("LpPool")
def lp_pool(
    call: NodeCall,
    x: TensorValue,
    *,
    kernel_shape: list[int],
    auto_pad: str,
    p: int,
    ceil_mode: int = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """The p-norm of each window."""
    x, pads, auto_pad = _padded_ahead(call, x, kernel_shape, strides, dilations, pads, auto_pad, 0)
    over = windows(call, x, kernel_shape, strides, dilations, pads, auto_pad)
    options = (over.kernel, over.strides, over.dilations, over.pads, bool(ceil_mode))
    return ops.lp_pool(x, *options, float(p), _FIRST)


@onnx_op("GlobalAveragePool")
def global_average_pool(x: TensorValue) -> TensorValue:
    """The mean of all places."""
    return ops.mean(x, tuple(range(2, x.rank)))


@onnx_op("GlobalMaxPool")
def global_max_pool(x: TensorValue) -> TensorValue:
    """The largest element of all places."""
    return ops.max(x, axis=tuple(range(2, x.rank)))


@onnx_op("GlobalLpPool")
def global_lp_pool(x: TensorValue, *, p: int) -> TensorValue:
    """The p-norm of all places."""
    axes = tuple(range(2, x.rank))
    if p == 2:
        return ops.l2_norm(x, axes)
    return ops.pow(ops.sum(ops.pow(ops.abs(x), float(p)), axes), 1 / p)


@onnx_op("MaxUnpool")
def max_unpool(
    call: NodeCall,
    x: TensorValue,
    places: TensorValue,
    output_shape: Ints | None = None,
    *,
    kernel_shape: list[int],
    strides: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """Elements put back to where their maxima were, 0 elsewhere."""
    axes = x.rank - 2
    by, given = strides or [1] * axes, pads or [0] * 2 * axes
    own = [(dim - 1) * by[k] + kernel_shape[k] - given[k] - given[k + axes] for k, dim in enumerate(x.shape[2:])]
    natural = [*x.shape[:2], *own]
    empty = ops.broadcast_to(ops.constant(0, x.dtype, x.device), [Shape(natural).num_elements])
    filled = ops.scatter(empty, ops.flatten(x), ops.flatten(places), 0)
    image = ops.reshape(filled, natural)
    if output_shape is None:
        return image
    paddings = []
    for wanted, dim in zip(output_shape, natural, strict=True):
        more = Dim(wanted) - dim
        paddings += [0, int(more)]
    return ops.pad(image, paddings)


@onnx_op("LRN")
def local_response_norm(x: TensorValue, *, alpha: float, beta: float, bias: float, size: int) -> TensorValue:
    """x over a power of the squares of its neighbours among the channels."""
    return ops.local_response_norm(x, size, alpha, beta, bias, 1)
