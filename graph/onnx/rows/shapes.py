"""Converts op types about shapes: what a shape is, tensors made of one, shapes given to tensors.

A shape that is known at import, or symbolic, is used as it is. One that is computed when the graph runs becomes new
dims, whose sizes are its elements.

See also `movement` (moving elements).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.operands import as_shape
from ...staging.value import TensorValue
from ...types.dims import Dim, Shape, StaticDim
from ..agreement import broadcast_to_sizes, differ_by_number, equal_size, with_sizes
from ..call import NodeCall
from ..known import LIMIT, Array, KnownTensor, UnknownAtImport, dims_from, dims_in, known, known_dims
from ..table import Dims, Ints, Value, onnx_op


def shape_of(value: Value) -> list[Dim]:
    """The sizes of a value's axes."""
    if isinstance(value, KnownTensor):
        return [Dim(size) for size in value.array.shape]
    assert isinstance(value, TensorValue)
    return list(value.shape)


@onnx_op("Shape")
def shape(call: NodeCall, data: Value, *, start: int = 0, end: int | None = None) -> KnownTensor:
    """The sizes from one axis to another, as int64."""
    sizes = shape_of(data if isinstance(data, KnownTensor) else call.tensor(data))[slice(start, end)]
    call.axis_sizes.update(sizes)
    return known_dims(sizes)


@onnx_op("Size")
def size(call: NodeCall, data: Value) -> KnownTensor:
    """The number of elements, as int64."""
    sizes = shape_of(data if isinstance(data, KnownTensor) else call.tensor(data))
    return known(np.array(Shape(sizes).num_elements, object), DType.int64)


@onnx_op("Identity", known=lambda x: x, unlimited=True)
def identity(data: Value) -> Value:
    """The same value."""
    return data


@onnx_op("Constant")
def constant(
    call: NodeCall,
    *,
    value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
) -> Value:
    """A literal."""
    if isinstance(value, KnownTensor):
        return value
    for number, dtype in ((value_float, DType.float32), (value_floats, DType.float32)):
        if number is not None:
            return known(np.asarray(number, np.float32), dtype)
    for whole in (value_int, value_ints):
        if whole is not None:
            return known(np.asarray(whole, np.int64), DType.int64)
    call.fail("its value is a text or a sparse tensor, which have no counterpart", code="EK0530")


@onnx_op("ConstantOfShape")
def constant_of_shape(call: NodeCall, shape: Dims, *, value: object = None) -> Value:
    """One number everywhere."""
    item = value if isinstance(value, KnownTensor) else KnownTensor(np.zeros(1, np.float32), DType.float32)
    if item.array.size != 1:
        call.fail("its value has to have one element", argument="value")
    count = Shape(shape).num_elements
    if isinstance(count, StaticDim) and int(count) <= LIMIT // 16 and Shape(shape).is_static:
        return known(np.full([int(dim) for dim in shape], item.array.reshape(())), item.dtype)
    return ops.broadcast_to(ops.reshape(item.tensor(call.device), []), shape)


def resolve(call: NodeCall, total: Dim, sizes: Dims, given: list[Dim], allowzero: int) -> list[Dim]:
    """The sizes of a reshape: 0 stands for that of the input, unless `allowzero`."""
    result = list(sizes)
    for axis, dim in enumerate(sizes):
        if dim == 0 and not allowzero:
            if axis >= len(given):
                call.fail(f"keeps size {axis} of an input with {len(given)} axes")
            result[axis] = given[axis]
    return result


def _known_reshape(data: Array, shape: Array, allowzero: int = 0) -> Array:
    sizes = [int(size) for size in shape]
    kept = [data.shape[k] if size == 0 and not allowzero else size for k, size in enumerate(sizes)]
    return data.reshape(kept)


@onnx_op("Reshape", known=_known_reshape, unlimited=True)
def reshape(call: NodeCall, data: TensorValue, shape: Value, *, allowzero: int = 0) -> TensorValue:
    """The same elements under another shape."""
    if isinstance(shape, KnownTensor):
        sizes = resolve(call, data.shape.num_elements, dims_in(shape.array), list(data.shape), allowzero)
        return _reshape_to(call, data, _with_rest(data, sizes))
    return _reshape_to(call, data, _computed_sizes(call, data, call.tensor(shape), allowzero))


def _with_rest(data: TensorValue, sizes: list[Dim]) -> list[Dim]:
    """Sizes of a reshape with -1 replaced by what the others leave."""
    others = Shape([dim for dim in sizes if dim != -1]).num_elements
    if len(sizes) - sum(dim != -1 for dim in sizes) != 1 or others == 0:
        return sizes
    return [data.shape.num_elements // others if dim == -1 else dim for dim in sizes]


def _reshape_to(call: NodeCall, data: TensorValue, sizes: list[Dim]) -> TensorValue:
    """A reshape that is checked when the graph runs, where the sizes cannot be compared now."""
    total, wanted = data.shape.num_elements, Shape(sizes).num_elements
    if any(dim == -1 for dim in sizes) or total == wanted or differ_by_number(total, wanted):
        return ops.reshape(data, sizes)
    what = f"a reshape keeps the number of elements: those of {data.shape} and of {Shape(sizes)}"
    equal_size(call, total, wanted, what)
    return as_shape(data, sizes)


def _computed_sizes(call: NodeCall, data: TensorValue, shape: TensorValue, allowzero: int) -> list[Dim]:
    """Sizes that are known when the graph runs; 0 and -1 among them are worked out on the way."""
    rank = int(shape.shape[0])
    if rank == 0:
        return []
    if not allowzero:
        own = list(data.shape)[:rank] + [Dim(0)] * (rank - data.rank)
        shape = ops.where(ops.equal(shape, 0), known_dims(own).tensor(call.device), shape)
    total = ops.reshape(known_dims([data.shape.num_elements]).tensor(call.device), [1])
    others = ops.where(ops.equal(shape, -1), 1, shape)
    product = others[0:1]
    for k in range(1, rank):
        product = product * others[k : k + 1]
    rest = ops.floordiv(total, ops.maximum(product, 1))
    return dims_from(ops.where(ops.equal(shape, -1), rest, shape), call.node.name or call.input_name(1))


def _known_flatten(x: Array, axis: int = 1) -> Array:
    at = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:at]), -1)


@onnx_op("Flatten", known=_known_flatten, unlimited=True)
def flatten(x: TensorValue, *, axis: int) -> TensorValue:
    """Two axes: those before this one, and those from it on."""
    at = axis + x.rank if axis < 0 else axis
    return ops.reshape(x, [Shape(x.shape[:at]).num_elements, Shape(x.shape[at:]).num_elements])


def _known_expand(x: Array, shape: Array) -> Array:
    sizes = np.broadcast_shapes(x.shape, tuple(int(size) for size in shape))
    if math.prod(sizes) > LIMIT:
        raise UnknownAtImport
    return np.broadcast_to(x, sizes)


@onnx_op("Expand", known=_known_expand)
def expand(call: NodeCall, x: TensorValue, shape: Value) -> TensorValue:
    """Broadcast both ways: a size of 1 in the shape keeps that of the input."""
    sizes = call.dims(shape, 1)
    return broadcast_to_sizes(call, x, sizes)


def _known_unsqueeze(data: Array, axes: object) -> Array:
    return np.expand_dims(data, tuple(int(axis) for axis in np.asarray(axes).reshape(-1)))


@onnx_op("Unsqueeze", known=_known_unsqueeze, unlimited=True)
def unsqueeze(data: TensorValue, axes: Ints) -> TensorValue:
    """New axes of size 1, at these places of the result."""
    rank = data.rank + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        data = ops.unsqueeze(data, axis)
    return data


def _known_squeeze(data: Array, axes: object = None) -> Array:
    return np.squeeze(data, None if axes is None else tuple(int(axis) for axis in np.asarray(axes).reshape(-1)))


@onnx_op("Squeeze", known=_known_squeeze, unlimited=True)
def squeeze(call: NodeCall, data: TensorValue, axes: Ints | None = None) -> TensorValue:
    """Without axes of size 1: those named, or all."""
    if axes is None:
        axes = [k for k, dim in enumerate(data.shape) if dim == 1]
    gone = sorted((axis % data.rank for axis in axes), reverse=True)
    sizes = list(data.shape)
    for axis in gone:
        sizes[axis] = equal_size(call, sizes[axis], Dim(1), f"it removes axis {axis}: its size and 1")
    data = with_sizes(data, sizes)
    for axis in gone:
        data = ops.squeeze(data, axis)
    return data
