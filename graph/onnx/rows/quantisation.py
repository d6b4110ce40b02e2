"""Converts quantisation: small integers and floats with a scale and a zero point, for the tensor, an axis, or
blocks."""

from __future__ import annotations

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ..call import Dequantised, NodeCall
from ..table import onnx_op
from .elementwise import LARGEST
from .images import conv_integer


def _spread(call: NodeCall, values: TensorValue, x: TensorValue, axis: int, block_size: int) -> TensorValue:
    """Scales or zero points, shaped to broadcast over a tensor."""
    if values.rank == 0 or (values.rank == 1 and values.shape[0] == 1 and not block_size):
        return ops.reshape(values, [])
    at = axis % x.rank
    if values.rank == 1 and not block_size:
        return ops.reshape(values, [values.shape[0] if k == at else 1 for k in range(x.rank)])
    if not block_size:
        call.fail("has scales of several axes, and block_size is 0", argument="block_size")
    shape = list(values.shape)
    wide = ops.broadcast_to(ops.unsqueeze(values, at + 1), [*shape[: at + 1], block_size, *shape[at + 1 :]])
    merged = ops.reshape(wide, [*shape[:at], shape[at] * block_size, *shape[at + 1 :]])
    if merged.shape[at] == x.shape[at]:
        return merged
    return merged[tuple(slice(0, dim) if k == at else slice(None) for k, dim in enumerate(x.shape))]


def rounded(x: TensorValue, zero: TensorValue | None, dtype: DType) -> TensorValue:
    """Floats as a quantised type: rounded to even, moved by the zero point, cut off."""
    if dtype.is_float():
        moved = x if zero is None else x + ops.cast(zero, x.dtype)
        return ops.cast(ops.maximum(ops.minimum(moved, LARGEST[dtype]), -LARGEST[dtype]), dtype)
    low, high = dtype.range
    whole = ops.round(x)
    moved = whole if zero is None else whole + ops.cast(zero, whole.dtype)
    cut = ops.maximum(ops.minimum(moved, float(high)), float(low))
    return ops.cast(ops.cast(cut, DType.int32), dtype)


@onnx_op("QuantizeLinear")
def quantize_linear(
    call: NodeCall,
    x: TensorValue,
    y_scale: TensorValue,
    y_zero_point: TensorValue | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> TensorValue:
    """x / scale + zero point, rounded and cut off."""
    dtype = y_zero_point.dtype if y_zero_point is not None else DType.uint8
    if y_zero_point is None and output_dtype:
        dtype = call.dtype(output_dtype)
    computed = call.dtype(precision) if precision else y_scale.dtype
    computed = DType.float32 if computed.is_half() or not computed.is_float() else computed
    scale = ops.cast(_spread(call, y_scale, x, axis, block_size), computed)
    zero = None
    if y_zero_point is not None:
        zero = _spread(call, _plain(y_zero_point), x, axis, block_size)
    return rounded(ops.cast(x, computed) / scale, zero, dtype)


def _plain(x: TensorValue) -> TensorValue:
    """A tensor of a dtype that computes."""
    if x.dtype.is_float():
        return ops.cast(x, DType.float32)
    return ops.cast(x, DType.int32) if x.dtype is not DType.uint32 else ops.cast(x, DType.int64)


@onnx_op("DequantizeLinear")
def dequantize_linear(
    call: NodeCall,
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> TensorValue:
    """(x - zero point) * scale."""
    value = _plain(x)
    if x_zero_point is not None:
        value = value - _spread(call, _plain(x_zero_point), x, axis, block_size)
    wide = DType.float32 if x_scale.dtype.is_half() else x_scale.dtype
    scale = ops.cast(_spread(call, x_scale, x, axis, block_size), wide)
    result = ops.cast(ops.cast(value, wide) * scale, call.dtype(output_dtype) if output_dtype else x_scale.dtype)
    if x.rank and not block_size:
        call.dequantised[id(result)] = Dequantised(result, x, x_scale, x_zero_point, axis % x.rank)
    return result


def requantised(product: TensorValue, scale: TensorValue, zero: TensorValue) -> TensorValue:
    """Sums of products, times a scale, in the dtype of a zero point."""
    return rounded(ops.cast(product, DType.float32) * scale, _plain(zero), zero.dtype)


def scalar(x: TensorValue) -> TensorValue:
    """A tensor of one axis and one element without the axis."""
    return ops.reshape(x, []) if x.rank == 1 and x.shape[0] == 1 else x


def _float(x: TensorValue) -> TensorValue:
    return ops.cast(scalar(x), DType.float32)


@onnx_op("QLinearMatMul")
def qlinear_matmul(
    a: TensorValue,
    a_scale: TensorValue,
    a_zero_point: TensorValue,
    b: TensorValue,
    b_scale: TensorValue,
    b_zero_point: TensorValue,
    y_scale: TensorValue,
    y_zero_point: TensorValue,
) -> TensorValue:
    """The product of quantised tensors, quantised again."""
    zero = scalar(_plain(a_zero_point))
    left = _plain(a) - (ops.unsqueeze(zero, -1) if zero.rank == 1 else zero)
    product = ops.matmul(left, _plain(b) - scalar(_plain(b_zero_point)))
    scale_a = _float(a_scale)
    scale = (ops.unsqueeze(scale_a, -1) if scale_a.rank == 1 else scale_a) * _float(b_scale) / _float(y_scale)
    return requantised(product, scale, scalar(y_zero_point))


@onnx_op("QLinearConv")
def qlinear_conv(
    call: NodeCall,
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue,
    w: TensorValue,
    w_scale: TensorValue,
    w_zero_point: TensorValue,
    y_scale: TensorValue,
    y_zero_point: TensorValue,
    b: TensorValue | None = None,
    *,
    auto_pad: str,
    group: int,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """The convolution of quantised tensors, quantised again."""
    attributes = {"kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads}
    product = conv_integer(call, x, w, x_zero_point, w_zero_point, auto_pad=auto_pad, group=group, **attributes)
    channels = [-1, *[1] * (x.rank - 2)]
    if b is not None:
        product = product + ops.reshape(b, channels)
    scale_w = _float(w_scale)
    scale = _float(x_scale) * (ops.reshape(scale_w, channels) if scale_w.rank else scale_w) / _float(y_scale)
    return requantised(product, scale, scalar(y_zero_point))
