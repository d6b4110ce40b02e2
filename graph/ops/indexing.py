"""Stages slices: `x[...]` is NumPy's basic slicing, on tensors whose sizes may be symbolic.

An int takes one element and drops the axis, a slice a range of them, `...` the axes not named, None adds an axis of
size 1. One `slice` node does all ranges, a `reshape` then drops and adds axes. Two differences from NumPy: an index or
a bound outside the axis is an error, never cut off; and what cannot be decided of a symbolic axis (`x[3]`, `x[:5]`)
becomes a condition that is checked when the graph is called.

The kernel takes for each axis a start, where a negative one counts from the end, and a step, which may be negative;
how many elements, the shape of the result says.

Input: a tensor and indices. Output: a tensor. Non-goals: indexing by tensors (gather).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...dsl.diagnostics.errors import GraphError, brief
from ..arguments import LIMIT, axis_of, in_short, int_of, list_of
from ..staging.value import TensorValue, TensorValueLike, Value
from ..types.dims import Dim, StaticDim, ceildiv
from ..types.tensor_type import shown
from .movement import _FAMILY
from .operands import as_shape, tensor
from .stage import builtin, fail, op, require

__all__ = ["chunk", "slice_tensor", "split"]

_NAME = "slice_tensor"
_INDEX = "an int, a slice, '...' or None"


@dataclass(frozen=True)
class Range:
    """The elements taken from one axis: `size` of them, from `start` on by `step`."""

    start: int
    step: int
    size: Dim


@op(dtypes={"x": "storable"}, example="ops.slice_tensor(x, [slice(1, None), ..., None, -1])", operator="__getitem__")
def slice_tensor(x: TensorValueLike, indices: Any) -> TensorValue:
    """The part of `x` that the indices name: ints, slices, `...` and None, one or a sequence of them.

    Raises:
        GraphError: EK0425, an index that is none of these or lies outside its axis, too many, a step of 0.
    """
    value = tensor(_NAME, "x", x)
    ranges, shape = ranges_of(value, indices)
    return as_shape(take(value, ranges), shape)


def ranges_of(value: Value, indices: Any) -> tuple[list[Range], list[Dim]]:
    """What indices take from each axis, and the shape of the part that they name."""
    items = list(indices) if isinstance(indices, tuple | list) else [indices]
    ranges: list[Range] = []
    shape: list[Dim] = []
    for item in _without_ellipsis(items, value.rank):
        if item is None:
            shape.append(StaticDim(1))
            continue
        axis = len(ranges)
        dim = value.shape[axis]
        if isinstance(item, slice):
            ranges.append(_range_of(item, dim, axis))
            shape.append(ranges[-1].size)
        else:
            ranges.append(_element_of(_bound(item, axis), dim, axis))
    return ranges, shape


@op(dtypes={"x": "storable"}, example="ops.split(x, [1, 3], axis=-1)")
def split(x: TensorValueLike, split_sizes: Sequence[int], axis: int = 0) -> list[TensorValue]:
    """Pieces of the given sizes along an axis of known size.

    Raises:
        GraphError: EK0425, the axis is symbolic, or the sizes do not add up to it.
    """
    value = tensor("split", "x", x)
    at = axis_of(axis, value.rank)
    listed = list_of("split_sizes", split_sizes, "sizes", "EK0425")
    sizes = [int_of(f"split_sizes[{k}]", size, "EK0425", "a known size") for k, size in enumerate(listed)]
    if value.shape[at] != sum(sizes) or min(sizes, default=0) < 0:
        fail(
            "split",
            f"the sizes {shown(map(in_short, sizes))} add up to {in_short(sum(sizes))},"
            f" and axis {at} has size {value.shape[at]}",
            code="EK0425",
            argument="split_sizes",
            expected=str(value.shape[at]),
            got=in_short(sum(sizes)),
        )
    pieces = []
    for k, size in enumerate(sizes):
        whole = [Range(0, 1, dim) for dim in value.shape]
        whole[at] = Range(sum(sizes[:k]), 1, StaticDim(size))
        pieces.append(take(value, whole))
    return pieces


@op(dtypes={"x": "storable"}, example="ops.chunk(x, 2, axis=1)")
def chunk(x: TensorValueLike, chunks: int, axis: int = 0) -> list[TensorValue]:
    """`chunks` pieces of equal size along an axis of known size.

    Raises:
        GraphError: EK0425, the axis is symbolic, or does not divide.
    """
    value = tensor("chunk", "x", x)
    at = axis_of(axis, value.rank)
    count, dim = int_of("chunks", chunks, "EK0425"), value.shape[at]
    if count < 1 or not isinstance(dim, StaticDim) or int(dim) % count or count > max(int(dim), 1):
        fail(
            "chunk",
            f"axis {at} of size {dim} does not divide into {in_short(count)} pieces of one size",
            code="EK0425",
            argument="chunks",
            expected="a divisor of a known size",
            got=in_short(count),
        )
    return split(value, [int(dim) // count] * count, at)


def take(value: TensorValue, ranges: Sequence[Range]) -> TensorValue:
    """One `slice` node, or none when every range is the whole axis."""
    if all(r.start == 0 and r.step == 1 and r.size == dim for r, dim in zip(ranges, value.shape, strict=True)):
        return value
    out = value.type.with_shape(r.size for r in ranges)
    return builtin(_FAMILY, "slice", [value], parameters_of(ranges), [out])[0]


def parameters_of(ranges: Sequence[Range]) -> dict[str, str]:
    """The parameters that tell kernels which elements are meant."""
    return {"starts": ",".join(str(r.start) for r in ranges), "steps": ",".join(str(r.step) for r in ranges)}


def _without_ellipsis(items: list[Any], rank: int) -> list[Any]:
    """The items with `...`, or its absence at the end, replaced by whole slices."""
    at = [k for k, item in enumerate(items) if item is Ellipsis]
    named = sum(item is not None and item is not Ellipsis for item in items)
    if len(at) > 1:
        fail(_NAME, "'...' may stand once only", code="EK0425", argument="indices", got=len(at))
    if named > rank:
        fail(
            _NAME,
            f"{named} indices are too many for rank {rank}",
            code="EK0425",
            argument="indices",
            expected=rank,
            got=named,
        )
    split_at = at[0] if at else len(items)
    return [*items[:split_at], *[slice(None)] * (rank - named), *items[split_at + 1 :]]


def _bound(item: Any, axis: int) -> int | Dim:
    if isinstance(item, Dim) and not isinstance(item, StaticDim):
        return item
    if isinstance(item, TensorValue):
        fail(_NAME, f"a tensor cannot index axis {axis}", code="EK0425", argument="indices", expected=_INDEX)
    number = int_of(f"indices[{axis}]", item, "EK0425", _INDEX)
    if not -LIMIT <= number <= LIMIT:
        text = f"index {in_short(number)} on axis {axis} is out of range"
        fail(_NAME, text, code="EK0425", argument="indices", got=in_short(number))
    return number


def _element_of(index: int | Dim, dim: Dim, axis: int) -> Range:
    if not isinstance(index, int):
        fail(_NAME, f"index {index} on axis {axis} is symbolic", code="EK0425", argument="indices", expected="int")
    wanted = index + 1 if index >= 0 else -index
    _need(dim, wanted, f"index {index} on axis {axis} of size {dim} is out of range")
    return Range(_start(index, dim), 1, StaticDim(1))


def _range_of(item: slice, dim: Dim, axis: int) -> Range:
    step = 1 if item.step is None else _bound(item.step, axis)
    if not isinstance(step, int) or step == 0:
        fail(_NAME, f"step {step} on axis {axis} has to be an int, and not 0", code="EK0425", argument="indices")
    # Positions run from 0 to dim for a positive step, from -1 to dim - 1 for a negative one.
    low, high = (0, dim) if step > 0 else (-1, dim - 1)
    first, last = (low, high) if step > 0 else (high, low)
    start = first if item.start is None else _position(_bound(item.start, axis), dim, axis, step)
    stop = last if item.stop is None else _position(_bound(item.stop, axis), dim, axis, step)
    span = Dim(stop - start if step > 0 else start - stop)
    if isinstance(span, StaticDim) and int(span) < 0:
        span = StaticDim(0)
    _need(span, 0, f"slice {_text(item)} on axis {axis} of size {dim} ends before it starts")
    size = ceildiv(span, abs(step))
    if size == 0:
        return Range(0, 1, size)
    if item.start is None:
        return Range(0 if step > 0 else _start(-1, dim), step, size)
    given = _bound(item.start, axis)
    if not isinstance(given, int):
        fail(_NAME, f"start {given} on axis {axis} is symbolic", code="EK0425", argument="indices", expected="int")
    return Range(_start(given, dim), step, size)


def _position(bound: int | Dim, dim: Dim, axis: int, step: int) -> int | Dim:
    """Where a bound lies, counted from the start of the axis; conditions keep it on the axis."""
    hint = "leave the bound out to take all that there is"
    message = f"bound {bound} of a slice on axis {axis} of size {dim} is out of range"
    if isinstance(bound, int) and bound < 0:
        # x[-n:] of an axis of n elements starts at 0; with a negative step, -n-1 stands before all of them
        _need(dim, -bound if step > 0 else -bound - 1, message, hint)
        return dim + bound
    _need(dim, bound if step > 0 else bound + 1, message, hint)
    return bound


def _start(index: int, dim: Dim) -> int:
    return index + int(dim) if index < 0 and isinstance(dim, StaticDim) else index


def _need(left: Dim, right: int | Dim, message: str, hint: str | None = None) -> None:
    """`left >= right`, now when it can be decided, else when the graph is called."""
    try:
        holds = left >= right
    except GraphError:
        require(_NAME, "at_least", left, Dim(right), f"{_NAME}: {message}")
        return
    if not holds:
        fail(_NAME, message, code="EK0425", argument="indices", hint=hint)


def _text(item: slice) -> str:
    parts = [
        "" if part is None else str(part) if isinstance(part, Dim) else brief(part) for part in (item.start, item.stop)
    ]
    return ":".join(parts if item.step is None else [*parts, brief(item.step)])
