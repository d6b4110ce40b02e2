"""Converts op types that index by tensors: gathers, scatters, places of elements.

Negative indices count from the end, as ONNX has it.

See also `movement` (slices).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.stage import current
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim, ceildiv
from ..call import NodeCall
from ..known import Array, KnownTensor, dims_in
from ..table import Ints, Value, onnx_op


def new_dim(call: NodeCall, word: str) -> Dim:
    """A name for a number of elements that is known when the graph runs."""
    return current(word).unused_dim(word)


def steps(size: int | Dim, device: Any, dtype: DType = DType.int64) -> TensorValue:
    """0, 1, 2, ... up to a size."""
    return ops.range(0, size, 1, dtype=dtype, device=device)


def known_size(call: NodeCall, dim: Dim) -> int:
    """A size that has to be known at import."""
    if not isinstance(dim, StaticDim):
        call.fail(f"needs sizes that are known at import, and one is {dim}", code="EK0529")
    return int(dim)


def along(values: TensorValue, axis: int, rank: int) -> TensorValue:
    """A tensor of one axis, shaped to lie along an axis of others."""
    return ops.reshape(values, [values.shape[0] if k == axis else 1 for k in range(rank)])


def _known_gather(data: Array, indices: Array, axis: int = 0) -> Array:
    return np.take(data, indices.astype(np.int64), axis)


@onnx_op("Gather", known=_known_gather)
def gather(data: TensorValue, indices: TensorValue, *, axis: int) -> TensorValue:
    """Elements along an axis, by their places."""
    return ops.gather(data, indices, axis)


@onnx_op("GatherElements")
def gather_elements(data: TensorValue, indices: TensorValue, *, axis: int) -> TensorValue:
    """One element for each index."""
    at = axis % data.rank
    same = [d if k == at else n for k, (d, n) in enumerate(zip(data.shape, indices.shape, strict=True))]
    if [*same] != [*data.shape]:  # the other axes of the indices may be shorter
        data = data[tuple(slice(0, dim) for dim in same)]
    return ops.take_along_axis(data, indices, axis)


@onnx_op("GatherND")
def gather_nd(data: TensorValue, indices: TensorValue, *, batch_dims: int = 0) -> TensorValue:
    """Elements or parts, by vectors of indices."""
    return ops.gather_nd(data, indices, batch_dims)


_SCATTERS: dict[str, tuple[Callable[..., TensorValue], Callable[..., TensorValue]]] = {
    "none": (ops.scatter, ops.scatter_nd),
    "add": (ops.scatter_add, ops.scatter_nd_add),
    "mul": (ops.scatter_mul, ops.scatter_nd_mul),
    "max": (ops.scatter_max, ops.scatter_nd_max),
    "min": (ops.scatter_min, ops.scatter_nd_min),
}


@onnx_op("Scatter", "ScatterElements")
def scatter_elements(
    call: NodeCall, data: TensorValue, indices: TensorValue, updates: TensorValue, *, axis: int, reduction: str = "none"
) -> TensorValue:
    """One element written for each index."""
    return _scatter(call, reduction, 0)(data, updates, indices, axis)


@onnx_op("ScatterND")
def scatter_nd(
    call: NodeCall, data: TensorValue, indices: TensorValue, updates: TensorValue, *, reduction: str = "none"
) -> TensorValue:
    """Elements or parts written, by vectors of indices."""
    return _scatter(call, reduction, 1)(data, updates, indices)


def _scatter(call: NodeCall, reduction: str, which: int) -> Callable[..., TensorValue]:
    if reduction not in _SCATTERS:
        call.fail(f"reduces by one of {', '.join(_SCATTERS)}, not {reduction!r}", argument="reduction")
    return _SCATTERS[reduction][which]


@onnx_op("TensorScatter")
def tensor_scatter(
    call: NodeCall,
    past_cache: TensorValue,
    update: TensorValue,
    write_indices: TensorValue | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> TensorValue:
    """A cache with a part written from a place of its own for each item of the batch."""
    at, rank = axis % past_cache.rank, past_cache.rank
    places = along(steps(update.shape[at], past_cache.device), at, rank)
    if write_indices is not None:
        places = places + along(ops.cast(write_indices, DType.int64), 0, rank)
    if mode == "circular":
        places = ops.mod(places, ops.reshape(ops.shape_to_tensor([past_cache.shape[at]]), []))
    return ops.scatter(past_cache, update, ops.broadcast_to(places, update.shape), at)


@onnx_op("NonZero", known=lambda x: np.array(np.nonzero(x), np.int64))
def nonzero(call: NodeCall, x: TensorValue) -> TensorValue:
    """The places of all elements that are not zero, one column each."""
    if x.rank == 0:
        call.fail("takes tensors with axes")
    return ops.permute(ops.nonzero(x, new_dim(call, "nonzero")), [1, 0])


@onnx_op("Compress")
def compress(call: NodeCall, data: TensorValue, condition: TensorValue, *, axis: int | None = None) -> TensorValue:
    """The parts along an axis, or the elements, where a condition is true."""
    where = ops.nonzero(condition, new_dim(call, "compressed"))
    places = ops.reshape(where, [where.shape[0]])
    if axis is None:
        return ops.gather(ops.flatten(data), places, 0)
    return ops.gather(data, places, axis)


@onnx_op("OneHot")
def one_hot(call: NodeCall, indices: TensorValue, depth: Value, values: TensorValue, *, axis: int) -> TensorValue:
    """values[1] where the index is, values[0] elsewhere."""
    count = call.dims(_as_vector(call, depth), 1)[0]
    if isinstance(count, StaticDim) and int(count) < 0:  # what PyTorch writes where it does not know the depth
        text = f"depth is {count}, and is a number of classes: F.one_hot(x, num_classes) has to be given it"
        call.fail(text, argument="depth", expected="0 or more", got=int(count))
    at = axis + indices.rank + 1 if axis < 0 else axis
    whole = ops.cast(indices, DType.int64)
    size = int(count) if isinstance(count, StaticDim) else ops.reshape(ops.shape_to_tensor([count]), [])
    whole = ops.unsqueeze(ops.where(ops.less(whole, 0), whole + size, whole), at)
    hot = ops.equal(along(steps(count, indices.device), at, indices.rank + 1), whole)
    return ops.where(hot, values[1], values[0])


def _as_vector(call: NodeCall, value: Value) -> Value:
    if isinstance(value, TensorValue):
        return ops.reshape(ops.cast(value, DType.int64), [1])
    return value


@onnx_op("ReverseSequence")
def reverse_sequence(
    x: TensorValue, sequence_lens: TensorValue, *, batch_axis: int = 1, time_axis: int = 0
) -> TensorValue:
    """The first elements of each item in reverse order, as many as its length says."""
    time = along(steps(x.shape[time_axis], x.device), time_axis, x.rank)
    lengths = along(ops.cast(sequence_lens, DType.int64), batch_axis, x.rank)
    places = ops.where(ops.less(time, lengths), lengths - 1 - time, time)
    return ops.take_along_axis(x, ops.broadcast_to(places, x.shape), time_axis)


# *** matrices and sequences ***


@onnx_op("Trilu")
def trilu(input: TensorValue, k: Ints | None = None, *, upper: int = 1) -> TensorValue:
    """The upper or the lower triangle."""
    return ops.trilu(input, k[0] if k else 0, bool(upper))


@onnx_op("EyeLike")
def eye_like(call: NodeCall, x: TensorValue, *, dtype: int | None = None, k: int = 0) -> TensorValue:
    """1 on a diagonal, 0 elsewhere."""
    kind = call.dtype(dtype) if dtype is not None else x.dtype
    rows = ops.unsqueeze(steps(x.shape[0], x.device), 1)
    columns = ops.unsqueeze(steps(x.shape[1], x.device), 0)
    return ops.cast(ops.equal(columns, rows + k), kind)


def _known_range(start: Array, limit: Array, delta: Array) -> Array:
    start, limit, delta = (each.reshape(()) for each in (start, limit, delta))
    count = int(np.ceil((limit - start) / delta))
    if count > 1 << 16:
        raise ValueError
    return (start + np.arange(max(count, 0)) * delta).astype(start.dtype)


@onnx_op("Range", known=_known_range)
def range_(call: NodeCall, start: Value, limit: Value, delta: Value) -> TensorValue:
    """start, start + delta, ... up to limit, which is left out."""
    if (
        isinstance(start, KnownTensor)
        and isinstance(delta, KnownTensor)
        and isinstance(limit, KnownTensor)
        and limit.symbolic
    ):
        first, step, (end,) = start.array.reshape(()), delta.array.reshape(()), dims_in(limit.array)
        if not start.symbolic and not delta.symbolic and first == int(first) and step == int(step) and step >= 1:
            span = end if first == 0 else (end - int(first)).maximum(0)
            numbers = steps(ceildiv(span, int(step)), call.device)
            return ops.cast(numbers * int(step) + int(first), start.dtype)
    low, high, by = (ops.reshape(call.tensor(value), []) for value in (start, limit, delta))
    return ops.range(low, high, by, new_dim(call, "range"), dtype=low.dtype)


# *** more or fewer elements ***


@onnx_op("Tile")
def tile(call: NodeCall, input: TensorValue, repeats: Value) -> TensorValue:
    """A tensor next to itself."""
    counts = call.dims(repeats, 1)
    if any(count == 0 for count in counts):
        sizes = [count * dim for count, dim in zip(counts, input.shape, strict=True)]
        return ops.broadcast_to(ops.constant(0, input.dtype, input.device), sizes)
    return ops.tile(input, counts)
