"""Converts op types of sequences and optional values, which exist at import alone: a sequence is a list of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...staging.value import TensorValue
from ...types.dims import StaticDim
from ..call import NodeCall
from ..known import KnownTensor
from ..table import Ints, Items, Value, onnx_op


@onnx_op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> Any:
    """A sequence without items."""
    return ([],)


@onnx_op("SequenceConstruct")
def sequence_construct(*items: Value) -> Any:
    """A sequence of these items."""
    return (list(items),)


def _place(call: NodeCall, items: list[object], position: Ints | None, end: int) -> int:
    at = end if position is None else position[0]
    if not -len(items) <= at <= end:
        call.fail(f"names place {at} of a sequence of {len(items)}")
    return at + len(items) if at < 0 else at


@onnx_op("SequenceInsert")
def sequence_insert(call: NodeCall, items: Items, item: Value, position: Ints | None = None) -> Any:
    """One item more, at the end when no place is given."""
    at = _place(call, items, position, len(items))
    return ([*items[:at], item, *items[at:]],)


@onnx_op("SequenceErase")
def sequence_erase(call: NodeCall, items: Items, position: Ints | None = None) -> Any:
    """One item less, the last when no place is given."""
    at = _place(call, items, position, len(items) - 1)
    return ([*items[:at], *items[at + 1 :]],)


@onnx_op("SequenceAt")
def sequence_at(call: NodeCall, items: Items, position: Ints) -> Value:
    """The item at a place."""
    item: Value = items[_place(call, items, position, len(items) - 1)]
    return item


@onnx_op("SequenceLength")
def sequence_length(items: Items) -> KnownTensor:
    """How many items there are."""
    return KnownTensor(np.array(len(items), np.int64), DType.int64)


@onnx_op("ConcatFromSequence")
def concat_from_sequence(call: NodeCall, items: Items, *, axis: int, new_axis: int = 0) -> TensorValue:
    """The items joined along an axis, or along a new one."""
    tensors = [call.tensor(item) for item in items]
    return ops.stack(tensors, axis) if new_axis else ops.concat(tensors, axis)


@onnx_op("SplitToSequence")
def split_to_sequence(
    call: NodeCall, x: TensorValue, split: Value = None, *, axis: int = 0, keepdims: int = 1
) -> tuple[list[TensorValue]]:
    """Pieces of an axis: of one size, of several, or single elements."""
    at = axis % x.rank
    dim = x.shape[at]
    if not isinstance(dim, StaticDim):
        call.fail(f"splits axis {axis}, whose size {dim} is symbolic", code="EK0529")
    if split is None:
        sizes = [1] * int(dim)
    else:
        numbers = call.numbers(split, 1, "split")
        each = int(numbers.reshape(-1)[0])
        if numbers.ndim:
            sizes = [int(size) for size in numbers]
        elif each < 1:
            call.fail(f"splits into pieces of {each}", argument="split")
        else:
            sizes = [min(each, int(dim) - k) for k in range(0, int(dim), each)]
    pieces = ops.split(x, sizes, at)
    return ([ops.squeeze(piece, at) for piece in pieces] if split is None and not keepdims else pieces,)


# *** optional values ***


@onnx_op("Optional")
def optional(value: Value = None, *, type: object = None) -> Any:
    """A value, or none."""
    return (value,)


@onnx_op("OptionalHasElement")
def optional_has_element(value: Value = None) -> KnownTensor:
    """Whether there is a value."""
    return KnownTensor(np.array(value is not None), DType.bool)


@onnx_op("OptionalGetElement")
def optional_get_element(call: NodeCall, value: Value) -> Any:
    """The value that there is."""
    if value is None:
        call.fail("requests a value, and there is none")
    return (value,)
