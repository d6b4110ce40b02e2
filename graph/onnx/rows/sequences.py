"""Converts op types of sequences and optional values, which exist at import alone: a sequence is a list of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.indexing import Range, take
from ...ops.stage import current, require
from ...staging.value import TensorValue
from ...types.dims import Dim, StaticDim, ceildiv
from ...types.tensor_type import TensorType
from ..call import NodeCall
from ..items import AppendedItem, AppendedItems, AxisPieces, CountedItems, moved
from ..known import KnownTensor, known, known_dims
from ..table import Items, Value, onnx_op
from .indexing import steps
from .movement import split_along


def as_counted(call: NodeCall, items: list[Value] | CountedItems | AxisPieces) -> CountedItems | None:
    """A sequence as parts of a tensor; None where it is empty: nothing says the type of its items."""
    if isinstance(items, AxisPieces):
        text = f"takes the pieces of {items.length} of an axis of {items.whole.shape[items.axis]} elements"
        text = f"{text}, of which the last may be shorter; these are taken by known places, or joined along their axis"
        call.fail(text, code="EK0529", expected="SequenceAt, SequenceLength or ConcatFromSequence")
    if isinstance(items, CountedItems):
        return items
    if not items:
        return None
    values = [call.tensor(item) for item in items]
    _check_alike(call, [value.type for value in values])
    return CountedItems(ops.stack(values, 0))


def joined(call: NodeCall, *sequences: CountedItems | None) -> CountedItems | list[Value]:
    """The items of several sequences, one after the other."""
    given = [each for each in sequences if each is not None]
    if len(given) < 2:
        return given[0] if given else []
    parts = [_parts(call, each) for each in given]
    _check_alike(call, [each.type.with_shape(each.shape[1:]) for each in parts])
    return CountedItems(ops.concat(parts, 0))


def from_rounds(call: NodeCall, rounds: Dim, appended: Sequence[AppendedItem]) -> CountedItems | None:
    """What all rounds of a loop have appended, in order; None where a round appends nothing.

    Args:
        call: the loop.
        rounds: how many there are.
        appended: the items of a round, with the values, conditions and counts of all rounds along their first axis.
    """
    if not appended:
        return None
    values = [item.value for item in appended]
    _check_alike(call, [value.type for value in values])
    shape = [rounds * len(values), *values[0].shape[1:]]
    parts, counts, axis = ops.reshape(ops.stack(values, 1), shape), None, 0
    counted = [item for item in appended if item.count is not None]
    if counted:
        axis = counted[0].axis
        if any(item.axis != axis for item in counted):
            call.fail("appends slices along different axes, whose lengths change from round to round", code="EK0529")
        whole = ops.broadcast_to(known_dims([shape[1 + axis]]).tensor(call.device), [rounds])
        counts = ops.reshape(ops.stack([whole if i.count is None else i.count for i in appended], 1), shape[:1])
    if any(item.condition is not None for item in appended):
        always = ops.broadcast_to(ops.constant(True, DType.bool, call.device), [rounds])
        flags = ops.stack([always if item.condition is None else item.condition for item in appended], 1)
        places = _places(ops.reshape(flags, shape[:1]))
        parts = ops.gather(parts, places, 0)
        counts = None if counts is None else ops.gather(counts, places, 0)
    return CountedItems(parts, counts, axis)


def _places(flags: TensorValue) -> TensorValue:
    """Where flags along an axis are set."""
    found = ops.nonzero(flags, current("items").unused_dim("items"))
    return ops.reshape(found, [found.shape[0]])


def _check_alike(call: NodeCall, types: Sequence[TensorType]) -> None:
    """Refuses items of different types in a sequence whose length a call says."""
    for type in types[1:]:
        if (type.dtype, type.shape) != (types[0].dtype, types[0].shape):
            text = "items of a sequence whose length a call says have one type, and here they have"
            shown = [f"{each.dtype}{each.shape}" for each in (types[0], type)]
            call.fail(f"{text} {' and '.join(shown)}", code="EK0529", expected=shown[0], got=shown[1])


# *** op types ***


@onnx_op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> Any:
    """A sequence without items."""
    return ([],)


@onnx_op("SequenceConstruct")
def sequence_construct(*items: Value) -> Any:
    """A sequence of these items."""
    return (list(items),)


def _place(call: NodeCall, items: list[object], position: Value, end: int) -> int:
    at = (
        end if position is None else int(call.numbers(position, call.inputs.index(position), "position").reshape(-1)[0])
    )
    if not -len(items) <= at <= end:
        call.fail(f"names place {at} of a sequence of {len(items)}")
    return at + len(items) if at < 0 else at


@onnx_op("SequenceInsert")
def sequence_insert(call: NodeCall, items: Items, item: Value, position: Value = None) -> Any:
    """One item more, at the end when no place is given."""
    if isinstance(items, list):
        at = _place(call, items, position, len(items))
        return ([*items[:at], item, *items[at:]],)
    if isinstance(items, AppendedItems):
        if position is not None:
            call.fail("inserts into a sequence that a loop carries, where items are appended only", code="EK0529")
        return AppendedItems(items.loop, items.place, (*items.items, AppendedItem(call.tensor(item))))
    one, others = CountedItems(ops.unsqueeze(call.tensor(item), 0)), as_counted(call, items)
    if position is None:
        return (joined(call, others, one),)
    if _is_number(position, 0):
        return (joined(call, one, others),)
    call.fail("inserts in the middle of a sequence whose length a call says", code="EK0529", argument="position")


@onnx_op("SequenceErase")
def sequence_erase(call: NodeCall, items: Items, position: Value = None) -> Any:
    """One item less, the last when no place is given."""
    if isinstance(items, list):
        at = _place(call, items, position, len(items) - 1)
        return ([*items[:at], *items[at + 1 :]],)
    parts = _parts(call, items)
    if position is None or _is_number(position, -1):
        return CountedItems(ops.slice_tensor(parts, [slice(0, parts.shape[0] - 1)]))
    if _is_number(position, 0):
        return CountedItems(ops.slice_tensor(parts, [slice(1, None)]))
    call.fail("erases in the middle of a sequence whose length a call says", code="EK0529", argument="position")


def _rank(value: Value) -> int:
    return value.array.ndim if isinstance(value, KnownTensor) else value.rank if isinstance(value, TensorValue) else 0


def _is_number(position: Value, number: int) -> bool:
    return isinstance(position, KnownTensor) and not position.symbolic and int(position.array.reshape(-1)[0]) == number


def _parts(call: NodeCall, items: Items) -> TensorValue:
    """The items of a sequence along the first axis of a tensor."""
    if isinstance(items, AppendedItems):
        call.fail("reads a sequence that rounds of its loop append to, whose length a call says", code="EK0529")
    counted = as_counted(call, items)
    if counted is None:
        call.fail("takes an item of a sequence that has none")
    if counted.counts is not None:
        text = "takes items whose sizes the rounds of a loop have computed, which are joined along their axis only"
        call.fail(text, code="EK0529", expected="ConcatFromSequence")
    return counted.parts


@onnx_op("SequenceAt")
def sequence_at(call: NodeCall, items: Items, position: Value) -> Value:
    """The item at a place."""
    if isinstance(items, list) and isinstance(position, KnownTensor) and not position.symbolic:
        item: Value = items[_place(call, items, position, len(items) - 1)]
        return item
    if isinstance(items, AxisPieces) and isinstance(position, KnownTensor) and not position.symbolic:
        return _piece(call, items, int(position.array.reshape(-1)[0]))
    place = ops.reshape(call.tensor(position), [])
    return ops.gather(_parts(call, items), place, 0)


def _piece(call: NodeCall, items: AxisPieces, place: int) -> TensorValue:
    """A piece of an axis, from the front or, below 0, from the end."""
    each, size = Dim(items.length), items.whole.shape[items.axis]
    before = place if place >= 0 else -place - 1  # pieces that there have to be in addition
    text = f"takes place {place} of the pieces of {each} of an axis, which has too few elements"
    require(call.node.op_type, "at_least", size, before * each + 1, f"{call.title}: {text}")
    start = each * place if place >= 0 else (ceildiv(size, each) + place) * each
    count = each.minimum(size - start) if place >= 0 else size - start if place == -1 else each
    whole = [Range(0, 1, dim) for dim in items.whole.shape]
    whole[items.axis] = Range(int(start) if isinstance(start, StaticDim) else start, 1, count)
    return take(items.whole, whole)


@onnx_op("SequenceLength")
def sequence_length(call: NodeCall, items: Items) -> KnownTensor:
    """How many items there are."""
    if isinstance(items, CountedItems):
        length = items.parts.shape[0]
    elif isinstance(items, AxisPieces):
        length = ceildiv(items.whole.shape[items.axis], items.length)
    else:
        length = Dim(len(items)) if isinstance(items, list) else _parts(call, items).shape[0]
    return known(np.array(length, object), DType.int64)


@onnx_op("ConcatFromSequence")
def concat_from_sequence(call: NodeCall, items: Items, *, axis: int, new_axis: int = 0) -> TensorValue:
    """The items joined along an axis, or along a new one."""
    if isinstance(items, list):
        tensors = [call.tensor(item) for item in items]
        return ops.stack(tensors, axis) if new_axis else ops.concat(tensors, axis)
    if isinstance(items, AxisPieces) and not new_axis and axis % items.whole.rank == items.axis:
        return items.whole
    counts = None if new_axis or not isinstance(items, CountedItems) else items.counts
    if isinstance(items, CountedItems) and counts is not None and axis % (items.parts.rank - 1) == items.axis:
        return _joined_parts(items.parts, counts, items.axis)
    parts = _parts(call, items)
    if new_axis:
        return moved(parts, axis)
    at = axis % (parts.rank - 1)
    sizes = list(parts.shape[1:])
    sizes[at] = parts.shape[0] * sizes[at]
    return ops.reshape(moved(parts, at), sizes)


def _joined_parts(parts: TensorValue, counts: TensorValue, axis: int) -> TensorValue:
    """The first elements of each item along an axis, as many as `counts` says, one item after the other."""
    by_axis = moved(parts, 1, axis + 1)
    number, length, *rest = by_axis.shape
    flags = ops.less(ops.unsqueeze(steps(length, parts.device), 0), ops.unsqueeze(counts, 1))
    places = _places(ops.reshape(flags, [number * length]))
    return moved(ops.gather(ops.reshape(by_axis, [number * length, *rest]), places, 0), axis)


@onnx_op("SplitToSequence")
def split_to_sequence(
    call: NodeCall, x: TensorValue, split: Value = None, *, axis: int = 0, keepdims: int = 1
) -> tuple[Value]:
    """Pieces of an axis: of one size, of several, or single elements."""
    at = axis % x.rank
    dim = x.shape[at]
    if split is None or (not _rank(split) and _is_number(split, 1)):
        bare = (
            not keepdims
        )  # ONNX ignores `keepdims` where a split is given; ONNX Runtime and PyTorch's exporter do not
        if not isinstance(dim, StaticDim):
            items = moved(x, 0, at)
            return (CountedItems(items if bare else ops.unsqueeze(items, at + 1)),)
        pieces = ops.split(x, [1] * int(dim), at)
        return ([ops.squeeze(piece, at) for piece in pieces] if bare else pieces,)
    sizes = call.dims(split, 1) if _rank(split) else []
    if not sizes:
        each = int(call.numbers(split, 1, "split").reshape(-1)[0])
        if each < 1:
            call.fail(f"splits into pieces of {each}", argument="split", expected="1 or more", got=each)
        if not isinstance(dim, StaticDim):
            return (AxisPieces(x, at, each),)
        sizes = [Dim(min(each, int(dim) - k)) for k in range(0, int(dim), each)]
    return (split_along(call, x, sizes, at),)


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
