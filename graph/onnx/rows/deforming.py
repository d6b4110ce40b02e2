"""Converts deformable convolutions: windows whose taps are moved by offsets, then a product with the filters."""

from __future__ import annotations

from ... import ops
from ...ops.stage import builtin
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim
from ..agreement import equal_size, with_equal_axes, with_sizes
from ..call import NodeCall
from ..table import onnx_op
from .images import ImageWindows, windows


@onnx_op("DeformConv")
def deform_conv(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    offset: TensorValue,
    b: TensorValue | None = None,
    mask: TensorValue | None = None,
    *,
    group: int,
    offset_group: int,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """A convolution whose taps lie where offsets say, each times an element of a mask."""
    for name, given in (("X", x), ("W", w), ("offset", offset), ("mask", x if mask is None else mask)):
        if given.rank != 4:
            text = f"takes tensors of rank 4, and {name} has the shape {given.shape}"
            call.fail(text, expected="rank 4", got=str(given.shape))
    if not w.shape.is_static or not isinstance(x.shape[1], StaticDim):
        call.fail(f"takes known channels and filters, and has {x.shape} and {w.shape}", code="EK0529")
    filters, *_ = w.shape.static_dims
    channels, sizes = int(x.shape[1]), w.shape.static_dims[2:]
    if kernel_shape is not None and list(kernel_shape) != sizes:
        call.fail(f"kernel_shape is {kernel_shape}, and the filters have {sizes}", argument="kernel_shape")
    for argument, parts, whole in (
        ("group", group, channels),
        ("group", group, filters),
        ("offset_group", offset_group, channels),
    ):
        if parts < 1 or whole % parts:
            text = f"{argument} is {parts}, and does not divide {whole} channels"
            call.fail(text, argument=argument, expected=f"a divisor of {whole}", got=parts)
    over = windows(call, x, sizes, strides, dilations, pads, "NOTSET")
    taps = sizes[0] * sizes[1]
    offset = _checked(call, "offset", x, offset, 2 * taps * offset_group, over)
    columns = _columns(x, offset, offset_group, over)
    n, _, _, height, width = columns.shape
    if mask is not None:
        mask = _checked(call, "mask", x, mask, taps * offset_group, over)
        mask = with_sizes(mask, [n, mask.shape[1], height, width])
        grouped = ops.reshape(columns, [n, offset_group, channels // offset_group, taps, height, width])
        columns = grouped * ops.reshape(mask, [n, offset_group, 1, taps, height, width])
    length = channels // group * taps
    columns = ops.reshape(columns, [n, group, length, height * width])
    if w.shape[1] * group != Dim(channels):
        text = f"the filters have {w.shape[1]} channels, and a group of X has {channels // group}"
        call.fail(text, expected=channels // group, got=str(w.shape[1]))
    products = ops.reshape(w, [group, filters // group, length]) @ columns
    result = ops.reshape(products, [n, filters, height, width])
    return result if b is None else result + ops.reshape(b, [filters, 1, 1])


def _columns(x: TensorValue, offset: TensorValue, groups: int, over: ImageWindows) -> TensorValue:
    """What each tap reads: (batch, channels, taps, height, width)."""
    parameters: dict[str, object] = {"groups": groups}
    for k, axis in enumerate("hw"):
        parameters |= {
            f"k{axis}": over.kernel[k],
            f"stride_{axis}": over.strides[k],
            f"dilation_{axis}": over.dilations[k],
            f"pad_{axis}": over.pads[2 * k],
        }
    taps = over.kernel[0] * over.kernel[1]
    out = x.type.with_shape([x.shape[0], x.shape[1], taps, *offset.shape[2:]])
    return builtin("deforming", "deformed_windows", [x, ops.cast(offset, x.dtype)], parameters, [out])[0]


def _checked(
    call: NodeCall, name: str, x: TensorValue, given: TensorValue, channels: int, over: ImageWindows
) -> TensorValue:
    """An input with an element for each tap and place of the result, under the sizes that it has to have."""
    if given.shape[1] != Dim(channels):
        text = f"{name} has the shape {given.shape}, and not {channels} channels"
        call.fail(text, expected=f"{channels} channels", got=str(given.shape[1]))
    given = with_equal_axes(call, f"the numbers of images and of {name}", (x, 0), (given, 0))[1]
    sizes = []
    for k in range(2):
        extent = (over.kernel[k] - 1) * over.dilations[k] + 1
        size = (x.shape[2 + k] + (over.pads[2 * k] + over.pads[2 * k + 1] - extent)) // over.strides[k] + 1
        own = given.shape[2 + k]
        if isinstance(own, StaticDim) and isinstance(size, StaticDim) and own != size:
            text = f"{name} has the shape {given.shape}, and the result has {size} places on axis {2 + k}"
            call.fail(text, expected=str(size), got=str(own))
        sizes.append(equal_size(call, own, size, f"the sizes of {name} and of the result on axis {2 + k}"))
    return with_sizes(given, [given.shape[0], Dim(channels), *sizes])
