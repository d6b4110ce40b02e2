"""Converts what orders elements, and what chooses by order.

Input: tensors. Output: tensors. Non-goals: reductions.
"""

from __future__ import annotations

from typing import Any

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import Shape
from ..call import Call
from ..table import Ints, onnx_op
from .indexing import along, new_dim, steps


@onnx_op("TopK")
def top_k(x: TensorValue, k: Ints, *, axis: int, largest: int = 1, sorted: int = 1) -> Any:
    """The largest or the smallest elements, in order, and their places."""
    return (ops.top_k if largest else ops.bottom_k)(x, k[0], axis)


def _hardmax(x: TensorValue, axis: int) -> TensorValue:
    at = axis % x.rank
    return ops.cast(ops.equal(along(steps(x.shape[at], x.device), at, x.rank), ops.argmax(x, at, True)), x.dtype)


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
def unique(call: Call, x: TensorValue, *, axis: int | None = None, sorted: int = 1) -> Any:
    """The different elements, where each is first, which of them each element is, and how often it is there."""
    if axis is not None and x.rank > 1:
        call.fail("compares parts along an axis, which has no counterpart", argument="axis")
    flat = ops.flatten(x)
    order = ops.argsort(flat)
    ordered = ops.gather(flat, order, 0)
    place = steps(flat.shape[0], x.device)
    before = ops.gather(ordered, ops.maximum(place - 1, 0), 0)
    begins = ops.logical_or(ops.equal(place, 0), ops.not_equal(ordered, before))
    group = ops.cumsum(ops.cast(begins, DType.int64)) - 1
    found = ops.nonzero(begins, new_dim(call, "unique"))
    starts = ops.reshape(found, [found.shape[0]])
    values, firsts = ops.gather(ordered, starts, 0), ops.gather(order, starts, 0)
    inverse = ops.scatter(ops.zeros_like(order), group, order, 0)
    counts = ops.scatter_add(ops.zeros_like(starts), ops.ones_like(group), group, 0)
    if sorted:
        return values, firsts, inverse, counts
    by_place = ops.argsort(firsts)
    rank = ops.scatter(ops.zeros_like(by_place), steps(by_place.shape[0], x.device), by_place, 0)
    return (
        ops.gather(values, by_place, 0),
        ops.gather(firsts, by_place, 0),
        ops.gather(rank, inverse, 0),
        ops.gather(counts, by_place, 0),
    )
