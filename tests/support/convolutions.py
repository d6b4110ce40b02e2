"""Convolutions of images whose filter is a weight, for tests: a model, and the exact result."""

from __future__ import annotations

from typing import Any

import numpy as np

from einkorn.graph import CPU, DeviceRef, DType, Graph, InferenceSession, TensorType, ops
from einkorn.graph.types.layouts import ConvInputLayout, FilterLayout

Array = np.ndarray[Any, Any]


def reference(x: Array, filter: Array, stride: Any, dilation: Any, padding: Any, groups: int) -> Array:
    """A convolution of (batch, channels, places) in float64, by windows of a padded image."""
    axes = x.ndim - 2
    x = np.pad(x.astype(np.float64), [(0, 0), (0, 0), *padding])
    reach = [(size - 1) * apart + 1 for size, apart in zip(filter.shape[2:], dilation, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + axes)))
    places, taps = (tuple(slice(None, None, n) for n in steps) for steps in (stride, dilation))
    windows = windows[(slice(None), slice(None), *places, *taps)]
    parts = zip(np.split(windows, groups, 1), np.split(filter.astype(np.float64), groups), strict=True)
    summed = [1, *range(2 + axes, 2 + 2 * axes)], [1, *range(2, 2 + axes)]
    return np.concatenate([np.moveaxis(np.tensordot(w, f, summed), -1, 1) for w, f in parts], 1)


def load(case: Any, dtype: DType, filter: Array, *, symbolic: bool) -> Any:
    """A model of `relu(conv(x + 1, filter))` of a case: x, filter, stride, dilation, padding, groups."""
    shape, _, stride, dilation, padding, groups = case
    axes = len(shape) - 2
    conv = (ops.conv1d, ops.conv2d, ops.conv3d)[axes - 1]
    layout = FilterLayout.FCQRS if axes == 3 else FilterLayout.FCRS
    type = TensorType(dtype, filter.shape, DeviceRef.CPU())

    def forward(x: Any) -> Any:
        sides = [size for pair in padding for size in pair]
        w = ops.constant_external("w", type)
        y = conv(
            x + 1, w, stride, dilation, sides, groups=groups, input_layout=ConvInputLayout.NCHW, filter_layout=layout
        )
        return ops.relu(y)

    sizes = [f"s{k}" if symbolic and k != 1 else size for k, size in enumerate(shape)]
    graph = Graph("conv", forward=forward, input_types=[TensorType(dtype, sizes, DeviceRef.CPU())])
    return InferenceSession(devices=[CPU()]).load(graph, weights_registry={"w": filter})
