"""Converts ONNX Runtime's convolutions and pools on blocks of channels, in the domain com.microsoft.nchwc: what its
optimiser writes at the level that is for one kind of machine.

Here the images between `ReorderInput` and `ReorderOutput` are plain, with as many channels as full blocks have. The
filters lie in the file as blocks, and are put in order.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ... import ops
from ...staging.value import TensorValue
from ..call import NodeCall
from ..table import onnx_op
from .fused import activated
from .images import average_pool, conv, global_average_pool, global_max_pool, max_pool
from .indexing import known_size

DOMAIN = "com.microsoft.nchwc"


def _rounded_up(size: int, block: int) -> int:
    return -(-size // block) * block


@cache
def _widest() -> int:
    """How many channels a block has on this machine: as many as floats in its widest vectors."""
    try:
        return 16 if " avx512f " in Path("/proc/cpuinfo").read_text() else 8
    except OSError:
        return 8


def _block(call: NodeCall, channels: int) -> int:
    """The channels of a block. The file does not say, and is for machines like that which wrote it."""
    return 8 if channels % 16 else _widest()


@onnx_op("ReorderInput", domain=DOMAIN)
def reorder_input(call: NodeCall, x: TensorValue, *, channels_last: int = 0) -> TensorValue:
    """Images with as many channels as full blocks have; the further ones are 0."""
    images = ops.permute(x, [0, x.rank - 1, *range(1, x.rank - 1)]) if channels_last else x
    channels = known_size(call, images.shape[1])
    more = _rounded_up(channels, _widest()) - channels
    return ops.pad(images, [0, 0, 0, more, *[0, 0] * (x.rank - 2)]) if more else images


@onnx_op("ReorderOutput", domain=DOMAIN)
def reorder_output(x: TensorValue, *, channels: int, channels_last: int = 0) -> TensorValue:
    """The first channels."""
    kept = x[:, :channels]
    return ops.permute(kept, [0, *range(2, x.rank), 1]) if channels_last else kept


@onnx_op("Conv", domain=DOMAIN)
def blocked_conv(
    call: NodeCall,
    x: TensorValue,
    w: TensorValue,
    b: TensorValue | None = None,
    sum: TensorValue | None = None,
    *,
    activation: str | None = None,
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    group: int = 1,
    kernel_shape: list[int] | None = None,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """A convolution, to which `sum` is added, and its activation."""
    attributes = {"kernel_shape": kernel_shape, "strides": strides, "dilations": dilations, "pads": pads}
    result = conv(call, x, _in_order(call, w, group), b, auto_pad=auto_pad, group=group, **attributes)
    return activated(call, result if sum is None else result + sum, activation, activation_params)


def _in_order(call: NodeCall, w: TensorValue, group: int) -> TensorValue:
    """Filters (out, in, places) of blocks: of outputs and inputs; of outputs alone where the inputs are not full
    block."""
    outputs, inputs, *places = (known_size(call, dim) for dim in w.shape)
    size = _block(call, outputs)
    axes = range(len(places))
    if inputs < size or (inputs == 1 and group > 1):
        parts = ops.reshape(w, [outputs // size, inputs, *places, size])
        order = [0, 2 + len(places), 1, *(2 + k for k in axes)]
    else:
        parts = ops.reshape(w, [outputs // size, inputs // size, *places, size, size])
        order = [0, 3 + len(places), 1, 2 + len(places), *(2 + k for k in axes)]
    return ops.reshape(ops.permute(parts, order), w.shape)


@onnx_op("MaxPool", domain=DOMAIN)
def blocked_max_pool(
    call: NodeCall,
    x: TensorValue,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    storage_order: int = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> Any:
    """ONNX's own."""
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil_mode}
    return max_pool(call, x, kernel_shape=kernel_shape, auto_pad=auto_pad, storage_order=storage_order, **attributes)


@onnx_op("AveragePool", domain=DOMAIN)
def blocked_average_pool(
    call: NodeCall,
    x: TensorValue,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    strides: list[int] | None = None,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
) -> TensorValue:
    """ONNX's own."""
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "pads": pads, "ceil_mode": ceil_mode}
    options = {"auto_pad": auto_pad, "count_include_pad": count_include_pad, **attributes}
    return average_pool(call, x, kernel_shape=kernel_shape, **options)


@onnx_op("GlobalMaxPool", domain=DOMAIN)
def blocked_global_max_pool(x: TensorValue) -> TensorValue:
    """ONNX's own."""
    return global_max_pool(x)


@onnx_op("GlobalAveragePool", domain=DOMAIN)
def blocked_global_average_pool(x: TensorValue) -> TensorValue:
    """ONNX's own."""
    return global_average_pool(x)


@onnx_op("Upsample", domain=DOMAIN)
def blocked_upsample(
    call: NodeCall,
    x: TensorValue,
    *,
    scales: list[int] | None = None,
    mode: str = "nearest",
    coordinate_transformation_mode: str = "asymmetric",
) -> TensorValue:
    """Images enlarged by whole numbers."""
    factors = list(scales or [1] * x.rank)
    if mode == "linear":
        size = [dim * factor for dim, factor in zip(x.shape, factors, strict=True)]
        return ops.resize_linear(x, size, coordinate_transformation_mode)
    for axis, factor in enumerate(factors):
        x = x if factor == 1 else ops.repeat_interleave(x, factor, axis)
    return x
