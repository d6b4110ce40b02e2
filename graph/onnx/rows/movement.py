"""Converts op types that move elements: joining, slicing, splitting, permuting, blocks.

See also `shapes` (shapes).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.indexing import Range, take
from ...ops.stage import current, require
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim, ceildiv, is_below_zero
from ..agreement import equal_size, same_sizes, with_sizes
from ..call import NodeCall
from ..known import Array, KnownTensor, UnknownAtImport, known_dims
from ..leading_parts import LeadingPart
from ..table import Dims, Ints, Value, onnx_op
from .indexing import new_dim
from .indexing import steps as places_to


def _known_concat(*arrays: Array, axis: int) -> Array:
    return np.concatenate(arrays, axis)


@onnx_op("Concat", known=_known_concat, unlimited=True)
def concat(call: NodeCall, *inputs: TensorValue, axis: int) -> TensorValue:
    """Tensors joined along an axis."""
    rank = inputs[0].rank if inputs else 0
    return ops.concat(same_sizes(call, inputs, axis % rank) if rank else inputs, axis)


def _known_transpose(data: Array, perm: list[int] | None = None) -> Array:
    return np.transpose(data, perm)


@onnx_op("Transpose", known=_known_transpose, unlimited=True)
def transpose(data: TensorValue, *, perm: list[int] | None = None) -> TensorValue:
    """Axes in another order; reversed when nothing is said."""
    return ops.permute(data, perm if perm is not None else list(range(data.rank))[::-1])


# *** slices ***


def _slices(rank: int, starts: object, ends: object, axes: object, steps: object) -> list[tuple[int, int, int, int]]:
    """Axis, start, end and step of each slice."""
    starts, ends = np.asarray(starts).reshape(-1), np.asarray(ends).reshape(-1)
    over = range(len(starts)) if axes is None else [int(axis) % rank for axis in np.asarray(axes).reshape(-1)]
    by = [1] * len(starts) if steps is None else [int(step) for step in np.asarray(steps).reshape(-1)]
    listed = zip(over, starts.tolist(), ends.tolist(), by, strict=True)
    return [(int(a), int(start), int(end), step) for a, start, end, step in listed]


def _known_slice(data: Array, starts: object, ends: object, axes: object = None, steps: object = None) -> Array:
    index: list[slice] = [slice(None)] * data.ndim
    for axis, start, end, step in _slices(data.ndim, starts, ends, axes, steps):
        first, last = start, end
        if step < 0 and last < -data.shape[axis]:
            index[axis] = slice(first, None, step)
        else:
            index[axis] = slice(first, last, step)
    return data[tuple(index)]


@onnx_op("Slice", known=_known_slice, unlimited=True)
def slice_(
    call: NodeCall, data: TensorValue, starts: Value, ends: Value, axes: Ints | None = None, steps: Ints | None = None
) -> Value:
    """A range of some axes; bounds beyond an axis are cut off."""
    known = isinstance(starts, KnownTensor) and isinstance(ends, KnownTensor) and not starts.symbolic
    if not known:
        return _slice_by_dims(call, data, starts, ends, axes, steps)
    assert isinstance(starts, KnownTensor) and isinstance(ends, KnownTensor)
    by = steps or [1] * starts.array.size
    if ends.symbolic and (min(starts.array.reshape(-1)) < 0 or any(step != 1 for step in by)):
        return _slice_by_dims(call, data, starts, ends, axes, steps)
    over = range(starts.array.size) if axes is None else [axis % data.rank for axis in axes]
    index, cut = [slice(None)] * data.rank, {}
    for axis, start, end, step in zip(over, starts.array.reshape(-1), _bounds(ends.array), by, strict=True):
        first = 0 if step > 0 and start <= -_FAR else int(start)
        size, number = data.shape[axis], int(end) if isinstance(end, StaticDim) else None
        if number is not None and not isinstance(size, StaticDim) and step < 0:
            if (first >= _FAR or first == -1) and number <= -_FAR:
                index[axis] = slice(None, None, step)
                continue
            return _slice_by_dims(call, data, starts, ends, axes, steps)
        if number is not None and (isinstance(size, StaticDim) or step < 1):
            index[axis] = _bounded(call, first, number, step, size)
            continue
        if number is not None and number >= _FAR:
            if number < _NEVER:
                require(call.node.op_type, "at_least", end, size, f"a slice ends at {end}, before the end of its axis")
            end = size
        if end != size or first or step != 1:
            begin = Dim(first) if first >= 0 else size - Dim(-first).minimum(size)
            start_at = int(begin) if isinstance(begin, StaticDim) else begin
            cut[axis] = Range(start_at, step, ceildiv(_length(call, size, first, end), step))
    data = data[tuple(index)]
    return take(data, [cut.get(axis, Range(0, 1, dim)) for axis, dim in enumerate(data.shape)])


_FAR = 1 << 24  # ends from here on stand for that of the axis
_NEVER = 1 << 48  # no axis is as long


def _bounds(array: Array) -> list[Dim]:
    """Bounds as dims; those of the ends of the range of integers are cut off."""
    listed = array.reshape(-1).tolist()
    return [each if isinstance(each, Dim) else Dim(max(min(int(each), _NEVER), -_NEVER)) for each in listed]


def _length(call: NodeCall, size: Dim, start: int, end: Dim) -> Dim:
    """How far it is from `start` to `end`, which count from the end where they are negative; the axis cuts both off.

    All lengths are made of min(k, size), so that those of parts that make up an axis add up to its size.
    """
    if not isinstance(end, StaticDim) and not is_below_zero(end) and end != size:
        require(call.node.op_type, "at_least", end, StaticDim(0), "the end of a slice is negative")
    from_end = is_below_zero(end)
    if from_end and start >= 0:
        return size - (start - end).minimum(size)
    stop = size - (-end).minimum(size) if from_end else end.minimum(size)
    first = Dim(start).minimum(size) if start >= 0 else size - Dim(-start).minimum(size)
    ordered = end == size or (isinstance(end, StaticDim) and int(end) >= start and from_end == (start < 0))
    return stop - first if ordered or not start else (stop - first).maximum(0)


def _bounded(call: NodeCall, start: int, end: int, step: int, dim: Dim) -> slice:
    """A slice of an axis of known size whose bounds lie on the axis: `ops` cuts nothing off."""
    if step == 0:
        call.fail("has a step of 0")
    first, last, _ = slice(start, end, step).indices(int(dim))
    if (last - first) * step <= 0:
        return slice(0, 0, 1)
    return slice(first, None if last < 0 else last, step)


def _slice_by_dims(
    call: NodeCall, data: TensorValue, starts: Value, ends: Value, axes: Ints | None, steps: Ints | None
) -> Value:
    """Bounds that are symbolic, or known when the graph runs: elements by their places."""
    firsts, lasts = call.tensor(starts), call.tensor(ends)
    over = axes if axes is not None else list(range(int(firsts.shape[0])))
    for k, axis in enumerate(over):
        at, step = axis % data.rank, steps[k] if steps else 1
        if step == 0:
            call.fail("has a step of 0")
        size = ops.reshape(known_dims([data.shape[at]]).tensor(call.device), [])
        low, high = (0, size) if step > 0 else (-1, size - 1)
        bounds = []
        for bound, least in ((firsts[k], 0), (lasts[k], low)):
            whole = ops.cast(bound, DType.int64)
            placed = ops.where(ops.less(whole, 0), whole + size, whole)
            bounds.append(ops.minimum(ops.maximum(placed, least), high))
        stop = ops.maximum(bounds[1], bounds[0]) if step > 0 else ops.minimum(bounds[1], bounds[0])
        if step == 1 and len(over) == 1 and any(current("slice").changes_in_body(bound) for bound in bounds):
            return _leading_part(data, at, bounds[0], stop - bounds[0])
        places = ops.range(bounds[0], stop, step, new_dim(call, "sliced"), dtype=DType.int64)
        data = ops.gather(data, places, at)
    return data


def _leading_part(data: TensorValue, axis: int, start: TensorValue, count: TensorValue) -> LeadingPart:
    """A slice whose length changes from round to round of a loop: all elements of the axis from `start` on, and further
    ones that do not count."""
    last = ops.reshape(ops.shape_to_tensor([data.shape[axis]]), []) - 1
    places = ops.minimum(start + places_to(data.shape[axis], data.device), last)
    return LeadingPart(ops.gather(data, places, axis), axis, count)


def _known_split(
    data: Array, split: object = None, axis: int = 0, num_outputs: int | None = None, outputs: int = 1
) -> tuple[Array, ...]:
    if split is None:
        if num_outputs not in (None, outputs):
            raise UnknownAtImport
        each = -(-data.shape[axis] // outputs)
        ends = np.arange(1, outputs) * each
    else:
        ends = np.cumsum(np.asarray(split))[:-1]
    return tuple(np.split(data, ends, axis))


@onnx_op("Split", known=_known_split, unlimited=True)
def split_attribute(
    call: NodeCall, data: TensorValue, split: Dims | None = None, *, axis: int, num_outputs: int | None = None
) -> Any:
    """Pieces along an axis: of these sizes, or as equal as can be, the last one smaller."""
    at = axis % data.rank
    dim = data.shape[at]
    if split is None:
        count = call.outputs
        if num_outputs is not None and num_outputs != count:
            call.fail(f"num_outputs is {num_outputs}, and it has {count} outputs", argument="num_outputs")
        each = ceildiv(dim, count)
        ends = [(each * k).minimum(dim) for k in range(1, count)]
        sizes: list[Dim] = [end - begin for begin, end in zip([Dim(0), *ends], [*ends, dim], strict=True)]
        return tuple(ops.split(data, sizes, at))
    return tuple(split_along(call, data, split, at))


def split_along(call: NodeCall, data: TensorValue, sizes: Sequence[Dim], axis: int) -> list[TensorValue]:
    """Pieces of these sizes, whose sum has to be that of the axis."""
    whole = sum(sizes, start=Dim(0))
    equal_size(call, data.shape[axis], whole, f"the size of axis {axis} and the sum of the parts")
    fitted = with_sizes(data, [whole if k == axis else own for k, own in enumerate(data.shape)])
    return ops.split(fitted, sizes, axis)


# *** blocks ***


@onnx_op("DepthToSpace")
def depth_to_space(x: TensorValue, *, blocksize: int, mode: str = "DCR") -> TensorValue:
    """Channels to blocks of pixels."""
    n, c, h, w = x.shape
    b, channels = blocksize, c // (blocksize * blocksize)
    if mode == "DCR":
        blocks = ops.permute(ops.reshape(x, [n, b, b, channels, h, w]), [0, 3, 4, 1, 5, 2])
    else:
        blocks = ops.permute(ops.reshape(x, [n, channels, b, b, h, w]), [0, 1, 4, 2, 5, 3])
    return ops.reshape(blocks, [n, channels, h * b, w * b])


@onnx_op("SpaceToDepth")
def space_to_depth(x: TensorValue, *, blocksize: int, mode: str = "DCR") -> TensorValue:
    """Blocks of pixels to channels."""
    n, c, h, w = x.shape
    b = blocksize
    blocks = ops.reshape(x, [n, c, h // b, b, w // b, b])
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return ops.reshape(ops.permute(blocks, order), [n, c * (b * b), h // b, w // b])
