"""Stages sizes as values: `ops.sum(x, 0) / x.shape[0]` divides by a number that the call brings.

A size is read off a tensor without elements whose axis has it, so that nothing is computed or kept for it: where the
kernel that reads it is fused, it is one of the numbers that the entry is called with.

See also `ops.operands` (which ops take dims as operands).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import DType
from ..driver.devices import DeviceRef
from ..types.dims import Dim, StaticDim, signed_parts
from ..types.tensor_type import TensorType
from .value import TensorValue


def stage_sizes(
    graph: Any, dims: Sequence[Dim], device: DeviceRef, place: Place | None, computed: bool = False
) -> TensorValue:
    """Dims as an int64 tensor of one axis; `computed` even where all are known."""
    if not computed and all(isinstance(dim, StaticDim) for dim in dims):
        known: TensorValue = graph.stage_constant(np.array([int(dim) for dim in dims], np.int64), device, place)
        return known
    nothing = graph.stage_constant(np.zeros((1, 0), np.bool_), device, place)
    spread = graph.kernels.builtin("movement", "broadcast_to")
    types = [TensorType(DType.bool, [dim, 0], device) for dim in dims]
    markers = [graph.stage(spread, [nothing], {}, [type], place)[0] for type in types]
    kernel = graph.kernels.builtin("creation", "shape_of").expanded({"xs": len(dims)})
    result = TensorType(DType.int64, [len(dims)], device)
    value: TensorValue = graph.stage(kernel, markers, {"count": len(dims)}, [result], place)[0]
    return value


def stage_dim(graph: Any, dim: Dim, device: DeviceRef, place: Place | None) -> TensorValue:
    """A dim as an int64 tensor of rank 0. It may be below zero: what is taken away is a size of its own."""
    if isinstance(dim, StaticDim):
        known: TensorValue = graph.stage_constant(np.array(int(dim), np.int64), device, place)
        return known
    nothing = graph.stage_constant(np.zeros((1, 0), np.bool_), device, place)
    spread = graph.kernels.builtin("movement", "broadcast_to")
    types = [TensorType(DType.bool, [part, 0], device) for part in signed_parts(dim)]
    markers = [graph.stage(spread, [nothing], {}, [type], place)[0] for type in types]
    kernel = graph.kernels.builtin("creation", "size_of")
    result: TensorValue = graph.stage(kernel, markers, {}, [TensorType(DType.int64, [], device)], place)[0]
    return result
