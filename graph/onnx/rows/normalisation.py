"""Converts normalisations.

Statistics of half types are computed in float32.

See also `reduction` (softmax).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ..agreement import with_equal_axes, with_sizes_of
from ..call import NodeCall
from ..table import onnx_op


def widen(x: TensorValue) -> TensorValue:
    """Half types as float32."""
    return ops.cast(x, DType.float32) if x.dtype.is_half() else x


def _channels(values: TensorValue, x: TensorValue, axis: int = 1) -> TensorValue:
    """One number a channel, shaped to broadcast over `x`."""
    return ops.reshape(values, [values.shape[0] if k == axis else 1 for k in range(x.rank)])


def standardised(x: TensorValue, axes: Sequence[int], epsilon: float) -> tuple[TensorValue, TensorValue, TensorValue]:
    """(x - mean) / sqrt(var + epsilon), with the mean and the reciprocal deviation."""
    mean = ops.mean(x, tuple(axes))
    centred = x - mean
    inverse = ops.rsqrt(ops.mean(centred * centred, tuple(axes)) + epsilon)
    return centred * inverse, mean, inverse


@onnx_op("BatchNormalization")
def batch_normalization(
    call: NodeCall,
    x: TensorValue,
    scale: TensorValue,
    bias: TensorValue,
    mean: TensorValue,
    var: TensorValue,
    *,
    epsilon: float,
    momentum: float,
    training_mode: int = 0,
    spatial: int = 1,
) -> Any:
    """By the statistics given; with training_mode by those of the batch, which are given back, too."""
    if not spatial:
        call.fail("statistics of single elements (spatial=0) have no counterpart")
    places = ((x, 1), (scale, 0), (bias, 0), (mean, 0), (var, 0))
    x, scale, bias, mean, var = with_equal_axes(call, "the numbers of channels", *places)
    if not training_mode and epsilon > 0 and x.rank > 1 and _is_of_channels(x, scale, bias, mean, var):
        return ops.batch_norm(x, scale, bias, mean, var, epsilon)
    wide = widen(x)
    if not training_mode:
        factor = ops.rsqrt(widen(var) + epsilon) * widen(scale)
        shifted = (wide - _channels(widen(mean), x)) * _channels(factor, x) + _channels(widen(bias), x)
        return ops.cast(shifted, x.dtype)
    axes = tuple(k for k in range(x.rank) if k != 1)
    here = ops.mean(wide, axes)
    centred = wide - here
    variance = ops.mean(centred * centred, axes)
    result = centred * ops.rsqrt(variance + epsilon) * _channels(widen(scale), x) + _channels(widen(bias), x)
    running = [
        ops.cast(widen(old) * momentum + ops.reshape(new, old.shape) * (1 - momentum), old.dtype)
        for old, new in ((mean, here), (var, variance))
    ]
    return ops.cast(result, x.dtype), *running


def _is_of_channels(x: TensorValue, *statistics: TensorValue) -> bool:
    """Whether statistics are seen to be as many as the channels of `x`, which has floats."""
    return x.dtype.is_float() and all(list(each.shape) == [x.shape[1]] for each in statistics)


@onnx_op("InstanceNormalization")
def instance_normalization(
    call: NodeCall, x: TensorValue, scale: TensorValue, bias: TensorValue, *, epsilon: float
) -> TensorValue:
    """Each channel of each item by its own statistics."""
    x, scale, bias = with_equal_axes(call, "the numbers of channels", (x, 1), (scale, 0), (bias, 0))
    plain, _, _ = standardised(widen(x), range(2, x.rank), epsilon)
    return ops.cast(plain * _channels(widen(scale), x) + _channels(widen(bias), x), x.dtype)


@onnx_op("LayerNormalization")
def layer_normalization(
    call: NodeCall,
    x: TensorValue,
    scale: TensorValue,
    bias: TensorValue | None = None,
    *,
    axis: int,
    epsilon: float,
    stash_type: int = 1,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Over all axes from this one on."""
    x = with_sizes_of(call, x, scale, bias)
    axes = range(axis % x.rank, x.rank)
    plain, mean, inverse = standardised(widen(x), axes, epsilon)
    result = ops.cast(plain, x.dtype) * scale if x.dtype.is_half() else plain * scale
    return result if bias is None else result + bias, mean, inverse


@onnx_op("RMSNormalization")
def rms_normalization(
    call: NodeCall, x: TensorValue, scale: TensorValue, *, axis: int, epsilon: float, stash_type: int = 1
) -> TensorValue:
    """x over its root mean square, over all axes from this one on."""
    x = with_sizes_of(call, x, scale)
    wide = widen(x)
    axes = tuple(range(axis % x.rank, x.rank))
    inverse = ops.rsqrt(ops.mean(wide * wide, axes) + epsilon)
    return ops.cast(wide * inverse, x.dtype) * ops.cast(scale, x.dtype)


def _groups(x: TensorValue, num_groups: int, epsilon: float) -> TensorValue:
    wide = widen(x)
    grouped = ops.reshape(wide, [x.shape[0], num_groups, x.shape[1] // num_groups, *x.shape[2:]])
    plain, _, _ = standardised(grouped, range(2, grouped.rank), epsilon)
    return ops.reshape(plain, x.shape)


@onnx_op("GroupNormalization", since=21)
def group_normalization(
    call: NodeCall,
    x: TensorValue,
    scale: TensorValue,
    bias: TensorValue,
    *,
    epsilon: float,
    num_groups: int,
    stash_type: int = 1,
) -> TensorValue:
    """Groups of channels by their own statistics; scale and bias a channel."""
    x, scale, bias = with_equal_axes(call, "the numbers of channels", (x, 1), (scale, 0), (bias, 0))
    plain = _groups(x, num_groups, epsilon)
    return ops.cast(plain * _channels(widen(scale), x) + _channels(widen(bias), x), x.dtype)


@onnx_op("GroupNormalization", since=18)
def group_normalization_18(
    x: TensorValue, scale: TensorValue, bias: TensorValue, *, epsilon: float, num_groups: int
) -> TensorValue:
    """Scale and bias a group."""
    plain = _groups(x, num_groups, epsilon)
    each = x.shape[1] // num_groups

    def spread(values: TensorValue) -> TensorValue:
        wide = ops.broadcast_to(ops.unsqueeze(widen(values), 1), [values.shape[0], each])
        return _channels(ops.reshape(wide, [x.shape[1]]), x)

    return ops.cast(plain * spread(scale) + spread(bias), x.dtype)


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(x: TensorValue, *, axes: list[int]) -> TensorValue:
    """(x - mean) / (deviation + 1e-9)."""
    wide = widen(x)
    over = tuple(axes)
    centred = wide - ops.mean(wide, over)
    return ops.cast(centred / (ops.sqrt(ops.mean(centred * centred, over)) + 1e-9), x.dtype)


@onnx_op("LpNormalization")
def lp_normalization(call: NodeCall, x: TensorValue, *, axis: int, p: int) -> TensorValue:
    """x over its norm along an axis; 0 where that is 0."""
    wide = widen(x)
    if p == 1:
        norm = ops.sum(ops.abs(wide), axis)
    elif p == 2:
        norm = ops.sqrt(ops.sum(wide * wide, axis))
    else:
        call.fail(f"takes the norms 1 and 2, not {p}", argument="p")
    return ops.cast(ops.where(ops.equal(norm, 0), 0, wide / norm), x.dtype)
