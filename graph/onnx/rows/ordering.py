"""Converts what orders elements, and what chooses by order."""

from __future__ import annotations

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.indexing import Range, take
from ...ops.rows import reduce_axes
from ...ops.stage import require
from ...staging.value import TensorValue
from ...types.dims import Shape, StaticDim
from ..call import NodeCall
from ..table import Value, onnx_op
from .indexing import along, new_dim, steps

_COMPARED = 256  # elements of the parts that `Unique` compares: each is an argsort


@onnx_op("TopK")
def top_k(
    call: NodeCall, x: TensorValue, k: Value, *, axis: int, largest: int = 1, sorted: int = 1
) -> tuple[TensorValue, TensorValue]:
    """The largest or the smallest elements, in order, and their places; `k` may be a size, or known at the call."""
    if not isinstance(k, TensorValue):
        count = call.dims(k, 1)[0]
        if isinstance(count, StaticDim):
            return (ops.top_k if largest else ops.bottom_k)(x, int(count), axis)
    else:
        count = call.dims(ops.reshape(ops.cast(k, DType.int64), [1]), 1)[0]
    at = axis % x.rank
    if count != x.shape[at]:
        require(call.node.op_type, "at_least", x.shape[at], count, f"k is {count}, more than axis {at} has elements")
    ranges = [Range(0, 1, count if n == at else dim) for n, dim in enumerate(x.shape)]
    places = take(ops.argsort(x, axis=at, descending=bool(largest)), ranges)
    return ops.take_along_axis(x, places, at), places


def _hardmax(x: TensorValue, axis: int) -> TensorValue:
    at = axis % x.rank
    # the kernel itself, which takes an empty axis
    first = reduce_axes("argmax", ("reduction", "argmax"), x, (at,), True)
    return ops.cast(ops.equal(along(steps(x.shape[at], x.device), at, x.rank), first), x.dtype)


@onnx_op("Hardmax", since=13)
def hardmax(x: TensorValue, *, axis: int) -> TensorValue:
    """1 at the first maximum along an axis, 0 elsewhere."""
    return _hardmax(x, axis)


@onnx_op("Hardmax")
def hardmax_of_rows(x: TensorValue, *, axis: int) -> TensorValue:
    """Before version 13 all axes from this one on are one."""
    at = axis % x.rank
    rows = ops.reshape(x, [Shape(x.shape[:at]).num_elements, Shape(x.shape[at:]).num_elements])
    return ops.reshape(_hardmax(rows, 1), x.shape)


@onnx_op("Unique")
def unique(
    call: NodeCall, x: TensorValue, *, axis: int | None = None, sorted: int = 1
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue]:
    """The different elements, or parts along an axis, where each is first, which of them each is, and how often."""
    at = 0 if axis is None else axis % x.rank
    parts = ops.flatten(x) if axis is None else ops.permute(x, [at, *(k for k in range(x.rank) if k != at)])
    columns = _columns(call, parts)
    place = steps(parts.shape[0], x.device)
    order = place
    for column in reversed(columns):  # equal ones keep their order: the first column decides
        order = ops.gather(order, ops.argsort(ops.gather(column, order, 0)), 0)
    begins = ops.equal(place, 0)
    for column in columns:
        ordered = ops.gather(column, order, 0)
        begins = ops.logical_or(begins, ops.not_equal(ordered, ops.gather(ordered, ops.maximum(place - 1, 0), 0)))
    group = ops.cumsum(ops.cast(begins, DType.int64)) - 1
    nonzero = ops.nonzero(begins, new_dim(call, "unique"))
    firsts = ops.gather(order, ops.reshape(nonzero, [nonzero.shape[0]]), 0)
    inverse = ops.scatter(ops.zeros_like(order), group, order, 0)
    counts = ops.scatter_add(ops.zeros_like(firsts), ops.ones_like(group), group, 0)
    if not sorted:
        by_place = ops.argsort(firsts)
        rank = ops.scatter(ops.zeros_like(by_place), steps(by_place.shape[0], x.device), by_place, 0)
        firsts, inverse = ops.gather(firsts, by_place, 0), ops.gather(rank, inverse, 0)
        counts = ops.gather(counts, by_place, 0)
    values = ops.gather(parts, firsts, 0)
    back = [*range(1, at + 1), 0, *range(at + 1, values.rank)]
    return ops.permute(values, back), firsts, inverse, counts


def _columns(call: NodeCall, parts: TensorValue) -> list[TensorValue]:
    """What parts along the first axis are compared by: the elements at each place in them."""
    if parts.rank == 1:
        return [parts]
    count = Shape(parts.shape[1:]).num_elements
    if not isinstance(count, StaticDim) or int(count) > _COMPARED:
        text = f"compares parts of {count} elements along an axis, and they have to have a known size up to {_COMPARED}"
        call.fail(text, argument="axis")
    rows = ops.reshape(parts, [parts.shape[0], count])
    return [ops.slice_tensor(rows, [slice(None), k]) for k in range(int(count))]
