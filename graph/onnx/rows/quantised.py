"""Converts elementwise ops, pools and joins of quantised tensors as ONNX Runtime has them, in the domain com.microsoft.

Each is the op on the numbers that its inputs stand for, in float32, quantised again.

See also `quantisation` (the op types of ONNX itself), `quantised_products`.
"""

from __future__ import annotations

import math
from typing import Any

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ..agreement import same_sizes
from ..call import NodeCall
from ..table import MICROSOFT, onnx_op
from .encoders import embed_layer_normalization
from .images import average_pool, max_pool
from .quantisation import dequantize_linear, qlinear_conv, quantize_linear, requantised, rounded, scalar


def _number(x: TensorValue, scale: TensorValue, zero: TensorValue | None) -> TensorValue:
    """What a quantised tensor stands for."""
    plain = ops.cast(x, DType.int32)
    if zero is not None:
        plain = plain - ops.cast(scalar(zero), DType.int32)
    return ops.cast(plain, DType.float32) * scalar(scale)


def _quantised(x: TensorValue, scale: TensorValue, zero: TensorValue | None, dtype: DType) -> TensorValue:
    moved = None if zero is None else ops.cast(scalar(zero), DType.int32)
    return rounded(x / scalar(scale), moved, dtype)


def _zero(zero: TensorValue | None) -> TensorValue | float:
    return 0.0 if zero is None else ops.cast(scalar(zero), DType.float32)


@onnx_op("QLinearAdd", domain=MICROSOFT, broadcasts=True)
def qlinear_add(
    a: TensorValue,
    a_scale: TensorValue,
    a_zero_point: TensorValue | None,
    b: TensorValue,
    b_scale: TensorValue,
    b_zero_point: TensorValue | None,
    c_scale: TensorValue,
    c_zero_point: TensorValue | None = None,
) -> TensorValue:
    """The sum. The zero points are joined to one number before, as ONNX Runtime does, so that ties fall alike."""
    left, right = scalar(a_scale) / scalar(c_scale), scalar(b_scale) / scalar(c_scale)
    rest = _zero(c_zero_point) - (left * _zero(a_zero_point) + right * _zero(b_zero_point))
    total = ops.cast(a, DType.float32) * left + (ops.cast(b, DType.float32) * right + rest)
    return rounded(total, None, a.dtype)


@onnx_op("QLinearMul", domain=MICROSOFT, broadcasts=True)
def qlinear_mul(
    a: TensorValue,
    a_scale: TensorValue,
    a_zero_point: TensorValue | None,
    b: TensorValue,
    b_scale: TensorValue,
    b_zero_point: TensorValue | None,
    c_scale: TensorValue,
    c_zero_point: TensorValue | None = None,
) -> TensorValue:
    """The product."""
    left, right = (
        ops.cast(x, DType.int32) - (0 if zero is None else ops.cast(scalar(zero), DType.int32))
        for x, zero in ((a, a_zero_point), (b, b_zero_point))
    )
    scale = scalar(a_scale) * scalar(b_scale) / scalar(c_scale)
    product = ops.cast(left * right, DType.float32) * scale
    zero = None if c_zero_point is None else ops.cast(scalar(c_zero_point), DType.int32)
    return rounded(product, zero, a.dtype)


@onnx_op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue | None,
    y_scale: TensorValue,
    y_zero_point: TensorValue | None = None,
) -> TensorValue:
    """1 / (1 + exp(-x))."""
    return _quantised(ops.sigmoid(_number(x, x_scale, x_zero_point)), y_scale, y_zero_point, x.dtype)


@onnx_op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue | None,
    y_scale: TensorValue,
    y_zero_point: TensorValue | None = None,
    *,
    alpha: float = 0.01,
) -> TensorValue:
    """x, and alpha * x below 0."""
    return _quantised(ops.leaky_relu(_number(x, x_scale, x_zero_point), alpha), y_scale, y_zero_point, x.dtype)


@onnx_op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(
    call: NodeCall,
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue | None,
    y_scale: TensorValue,
    y_zero_point: TensorValue,
    *,
    axis: int = -1,
    opset: int = 13,
) -> TensorValue:
    """The softmax along an axis; before opset 13 over all axes from this one on."""
    numbers = _number(x, x_scale, x_zero_point)
    if opset >= 13:
        shares = ops.softmax(numbers, axis)
    else:
        at = axis % x.rank
        shares = ops.reshape(ops.softmax(ops.flatten(numbers, at, -1), -1), x.shape)
    return _quantised(shares, y_scale, y_zero_point, x.dtype)


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(
    call: NodeCall, y_scale: TensorValue, y_zero_point: TensorValue, *inputs: TensorValue, axis: int
) -> TensorValue:
    """Tensors, each followed by its scale and zero point, joined along an axis."""
    if not inputs or len(inputs) % 3:
        call.fail(f"has {len(inputs)} inputs behind the scale and the zero point, and they come in threes")
    dtype = y_zero_point.dtype
    numbers = [_number(*inputs[k : k + 3]) for k in range(0, len(inputs), 3)]
    parts = [_quantised(each, y_scale, y_zero_point, dtype) for each in numbers]
    return ops.concat(same_sizes(call, parts, axis % parts[0].rank), axis)


@onnx_op("QLinearWhere", domain=MICROSOFT, broadcasts=True)
def qlinear_where(
    condition: TensorValue,
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue,
    y: TensorValue,
    y_scale: TensorValue,
    y_zero_point: TensorValue,
    z_scale: TensorValue,
    z_zero_point: TensorValue,
) -> TensorValue:
    """Elements of one tensor or the other."""
    sides = [
        _quantised(_number(*side), z_scale, z_zero_point, x.dtype)
        for side in ((x, x_scale, x_zero_point), (y, y_scale, y_zero_point))
    ]
    return ops.where(condition, *sides)


@onnx_op("QEmbedLayerNormalization", domain=MICROSOFT)
def quantised_embed_layer_normalization(
    call: NodeCall,
    input_ids: TensorValue,
    segment_ids: TensorValue | None,
    word_embedding: TensorValue,
    position_embedding: TensorValue,
    segment_embedding: TensorValue | None,
    gamma: TensorValue,
    beta: TensorValue,
    mask: TensorValue | None,
    word_scale: TensorValue,
    position_scale: TensorValue,
    segment_scale: TensorValue | None,
    gamma_scale: TensorValue,
    beta_scale: TensorValue,
    word_zero_point: TensorValue,
    position_zero_point: TensorValue,
    segment_zero_point: TensorValue | None,
    gamma_zero_point: TensorValue,
    beta_zero_point: TensorValue,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """EmbedLayerNormalization of quantised tables."""
    segments = None
    if segment_embedding is not None and segment_scale is not None:
        segments = _number(segment_embedding, segment_scale, segment_zero_point)
    tables = (
        _number(word_embedding, word_scale, word_zero_point),
        _number(position_embedding, position_scale, position_zero_point),
        segments,
        _number(gamma, gamma_scale, gamma_zero_point),
        _number(beta, beta_scale, beta_zero_point),
    )
    return embed_layer_normalization(call, input_ids, segment_ids, *tables, mask, epsilon=epsilon)[:2]


# *** images; with `channels_last` their channels are the last axis ***


def _first(x: TensorValue, channels_last: int) -> TensorValue:
    return ops.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)]) if channels_last else x


def _last(x: TensorValue, channels_last: int) -> TensorValue:
    return ops.permute(x, [0, *range(2, x.rank), 1]) if channels_last else x


@onnx_op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(
    call: NodeCall,
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue | None,
    y_scale: TensorValue,
    y_zero_point: TensorValue | None = None,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    strides: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """The mean of each window."""
    attributes: dict[str, Any] = {"auto_pad": auto_pad, "ceil_mode": ceil_mode, "count_include_pad": count_include_pad}
    numbers = _number(_first(x, channels_last), x_scale, x_zero_point)
    means = average_pool(call, numbers, kernel_shape=kernel_shape, strides=strides, pads=pads, **attributes)
    return _last(_quantised(means, y_scale, y_zero_point, x.dtype), channels_last)


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(
    x: TensorValue,
    x_scale: TensorValue,
    x_zero_point: TensorValue,
    y_scale: TensorValue,
    y_zero_point: TensorValue,
    *,
    channels_last: int = 0,
) -> TensorValue:
    """The mean of all places, of the sum of their integers."""
    axes = tuple(range(1, x.rank - 1)) if channels_last else tuple(range(2, x.rank))
    whole = ops.cast(x, DType.int32) - ops.cast(scalar(x_zero_point), DType.int32)
    total = ops.cast(ops.sum(whole, axes), DType.int32)
    places = ops.shape_to_tensor([math.prod((x.shape[axis] for axis in axes), start=1)])
    scale = scalar(x_scale) / (scalar(y_scale) * ops.cast(ops.reshape(places, []), DType.float32))
    return requantised(total, scale, scalar(y_zero_point))


@onnx_op("QLinearConv", domain=MICROSOFT)
def qlinear_conv_channels_last(
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
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """ONNX's own, with the channels of the images first or last; filters are the same."""
    result = qlinear_conv(
        call,
        _first(x, channels_last),
        x_scale,
        x_zero_point,
        w,
        w_scale,
        w_zero_point,
        y_scale,
        y_zero_point,
        b,
        auto_pad=auto_pad,
        group=group,
        kernel_shape=kernel_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    return _last(result, channels_last)


@onnx_op("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    call: NodeCall,
    x: TensorValue,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """The largest element of each window, of images with the channels last."""
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil_mode}
    result = max_pool(call, _first(x, 1), kernel_shape=kernel_shape, auto_pad=auto_pad, **attributes)
    return _last(result, 1)


# *** ONNX Runtime's own of before ONNX had types of 16 and 4 bits ***


@onnx_op("QuantizeLinear", domain=MICROSOFT)
def quantize(
    call: NodeCall, x: TensorValue, y_scale: TensorValue, y_zero_point: TensorValue | None = None, *, axis: int = 1
) -> TensorValue:
    """ONNX's own."""
    return quantize_linear(call, x, y_scale, y_zero_point, axis=axis)


@onnx_op("DequantizeLinear", domain=MICROSOFT)
def dequantize(
    call: NodeCall, x: TensorValue, x_scale: TensorValue, x_zero_point: TensorValue | None = None, *, axis: int = 1
) -> TensorValue:
    """ONNX's own."""
    return dequantize_linear(call, x, x_scale, x_zero_point, axis=axis)
