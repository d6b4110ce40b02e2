"""Stages reads and writes of buffers, memory that a graph changes, in the order in which they are staged.

graph = Graph("count", forward=count, input_types=[BufferType(DType.int64, [], DeviceRef.CPU())])

def count(total):
    ops.buffer_store(total, ops.buffer_load(total) + 1)
"""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.errors import DTypeError, shown_value
from ...dsl.diagnostics.places import user_place
from ..staging.value import BufferValue, TensorValue, TensorValueLike
from ..types.promotion import is_weak, weak_array
from ..types.tensor_type import BufferType, shown
from .indexing import known, parameters_of, ranges_of, slice_tensor, tensors_of
from .operands import HINT_FOR_SYMBOLS, as_shape, buffer_of, expand, same_device, tensor
from .stage import add_method, builtin, current, fail, op

_FAMILY = "buffers"


@op(dtypes={}, example="ops.buffer_create(BufferType(DType.float32, [4], DeviceRef.CPU()))")
def buffer_create(type: BufferType) -> BufferValue:
    """Memory of the graph's own, new for each call; its elements are undefined until they are written.

    Raises:
        DTypeError: EK0460, not a `BufferType`.
    """
    if not isinstance(type, BufferType):
        fail(
            "buffer_create",
            f"a buffer needs a BufferType, not {shown_value(type)}",
            code="EK0460",
            kind=DTypeError,
            argument="type",
            expected="BufferType",
            got=shown_value(type),
            hint="TensorType.as_buffer() makes one",
        )
    graph = current("buffer_create")
    kernel = graph.kernels.builtin(_FAMILY, "buffer_create")
    return graph.stage(kernel, [], {}, [type], user_place())[0].buffer


@op(dtypes={"x": "storable"}, example="ops.buffer_load(x)")
def buffer_load(x: BufferValue) -> TensorValue:
    """What the buffer holds at this point, as a tensor of its own.

    Raises:
        DTypeError: EK0460, not a buffer.
    """
    source = buffer_of("buffer_load", "x", x)
    return builtin(_FAMILY, "buffer_load", [source], {}, [source.type.as_tensor()])[0]


@add_method(BufferValue, "__getitem__")
def _part(x: BufferValue, indices: object) -> TensorValue:
    """What the part of the buffer that the indices name holds at this point."""
    with current("buffer_load").transaction():
        whole = buffer_load(x)
        return whole if indices is Ellipsis else slice_tensor(whole, indices)


@op(dtypes={"destination": "storable", "source": "storable"}, example="ops.buffer_store(destination, source)")
def buffer_store(destination: BufferValue, source: TensorValueLike) -> None:
    """Overwrites the whole buffer; a plain number or array takes its dtype.

    Raises:
        DTypeError: EK0460 `destination` is not a buffer, EK0413 `source` has another dtype.
        GraphError: EK0421 `source` has another shape, and does not have rank 0.
    """
    target = buffer_of("buffer_store", "destination", destination)
    value = _source("buffer_store", target, source, target.shape)
    builtin(_FAMILY, "buffer_store", [target, value])


@op(
    dtypes={"destination": "storable", "source": "storable"},
    example="ops.buffer_store_slice(destination, source, [slice(1, 3)])",
)
def buffer_store_slice(destination: BufferValue, source: TensorValueLike, indices: object) -> None:
    """Overwrites the part of the buffer that the indices name; they are as those of `slice_tensor`.

    A slice by tensors has the size that the source has along its axis; where a single number fills it, it needs a name.

    Raises:
        DTypeError: EK0460 `destination` is not a buffer, EK0413 `source` has another dtype.
        GraphError: EK0425 the indices are wrong; EK0421 `source` has another shape than the part, and not rank 0.
    """
    name = "buffer_store_slice"
    target = buffer_of(name, "destination", destination)
    filled = is_weak(source) or (isinstance(source, TensorValue) and source.rank == 0)
    ranges, shape = ranges_of(target, indices, None if filled else tensor(name, "source", source).shape)
    value = as_shape(_source(name, target, source, shape), [r.size for r in ranges])
    kernel = name if known(ranges) else "buffer_store_from"
    builtin(_FAMILY, kernel, [target, value, *tensors_of(target, ranges)], parameters_of(ranges))


@add_method(BufferValue, "__setitem__")
def _set_part(destination: BufferValue, indices: object, source: TensorValueLike) -> None:
    """Overwrites the part of the buffer that the indices name."""
    if indices is Ellipsis:
        buffer_store(destination, source)
    else:
        buffer_store_slice(destination, source, indices)


def _source(name: str, target: BufferValue, source: TensorValueLike, shape: Any) -> TensorValue:
    """What is written, in the dtype of the buffer and the shape of the part; a single number fills it."""
    if is_weak(source):
        array = weak_array(source, target.dtype, name, "source", user_place())
        value = current(name).stage_constant(array, target.device, user_place())
    else:
        value = tensor(name, "source", source)
    same_device(name, {"source": value}, target.device)
    if value.dtype is not target.dtype:
        fail(
            name,
            f"the source holds {value.dtype}, the buffer {target.dtype}",
            code="EK0413",
            kind=DTypeError,
            argument="source",
            expected=str(target.dtype),
            got=str(value.dtype),
            hint=f"ops.cast(x, DType.{target.dtype})",
        )
    if value.rank == 0:
        return expand(value, shape)
    if tuple(value.shape) != tuple(shape):
        fail(
            name,
            f"the source has shape {shown(value.shape)}, and {shown(shape)} is written",
            code="EK0421",
            argument="source",
            expected=shown(shape),
            got=shown(value.shape),
            hint=None if value.shape.is_static else HINT_FOR_SYMBOLS,
        )
    return value
