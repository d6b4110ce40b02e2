"""Stages slices: `x[...]` is NumPy's basic slicing, on tensors whose sizes may be symbolic.

An int takes one element and drops the axis, a slice a range of them, `...` the axes not named, None adds an axis of
size 1. One `slice` node does all ranges, a `reshape` then drops and adds axes. Two differences from NumPy: an index or
a bound outside the axis is an error, never cut off; and what cannot be decided of a symbolic axis (`x[3]`, `x[:5]`)
becomes a condition that is checked when the graph is called.

Indices and bounds may be dims (`x[n // 2 :]`), and tensors of rank 0: then the size of a slice is known when the graph
runs, and stands as a name next to it: `x[(slice(low, high), "count"), 0]`.

The kernel takes for each axis a start, where a negative one counts from the end, and a step, which may be negative;
how many elements, the shape of the result says.

See also `gathering` (indexing by tensors with axes).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import ElementError, GraphError, brief
from ...dsl.diagnostics.places import user_place
from ...dsl.types.dtype import DType
from ..arguments import LIMIT, axis_of, in_short, int_of, list_of
from ..staging.value import TensorValue, TensorValueLike, Value
from ..types.dims import Dim, StaticDim, ceildiv, is_below_zero
from ..types.tensor_type import shown
from .creation import named_size
from .movement import _FAMILY, concat
from .operands import DimLike, as_indices, as_shape, cast_to, dim_of, same_device, sizes_tensor, tensor
from .stage import builtin, current, define_sizes, fail, op, require

__all__ = ["chunk", "slice_tensor", "split"]

_NAME = "slice_tensor"
_INDEX = "an int, a dim, a slice, '...', None or a tensor of rank 0"
Bound = int | Dim | TensorValue


@dataclass(frozen=True, eq=False)
class Range:
    """The elements taken from one axis: `size` of them, from `start` on by `step`."""

    start: Bound
    step: int | Dim
    size: Dim


@op(dtypes={"x": "storable"}, example="ops.slice_tensor(x, [slice(1, None), ..., None, -1])", operator="__getitem__")
def slice_tensor(x: TensorValueLike, indices: object) -> TensorValue:
    """The part of `x` that the indices name: ints, slices, `...`, None, one or a sequence of them.

    Args:
        x: a tensor.
        indices: also dims and tensors of rank 0, which may bound slices, too. A slice with a tensor stands next to the
            size that it has, or a new name for it: `(slice(low, None), "count")`.

    Raises:
        GraphError: EK0425, an index that is none of these or lies outside its axis, too many, a step of 0; EK0482, a
            slice by a tensor without a size.
        KernelError: when it runs, a tensor lies outside.
    """
    value = tensor(_NAME, "x", x)
    ranges, shape = ranges_of(value, indices)
    return as_shape(take(value, ranges), shape)


def ranges_of(value: Value, indices: Any, sizes: Sequence[Dim] | None = None) -> tuple[list[Range], list[Dim]]:
    """What indices take from each axis, and the shape of the part that they name.

    `sizes` are what the axes of the part have to be, if that is known: slices by tensors then need no other names.
    """
    alone = _is_named_slice(indices) and (isinstance(indices[1], str) or (value.rank == 1 and _is_sized(*indices)))
    items = list(indices) if isinstance(indices, tuple | list) and not alone else [indices]
    ranges: list[Range] = []
    shape: list[Dim] = []
    for item in _without_ellipsis(items, value.rank):
        if item is None:
            shape.append(StaticDim(1))
            continue
        axis = len(ranges)
        out_dim = sizes[len(shape)] if sizes is not None and len(shape) < len(sizes) else None
        if _is_named_slice(item):
            item, out_dim = item[0], dim_of(_NAME, "indices", item[1])
        if isinstance(item, slice):
            ranges.append(_range_of(item, value, axis, out_dim, sizes is None))
            shape.append(ranges[-1].size)
        else:
            ranges.append(_element_of(_bound(item, axis, value), value.shape[axis], axis))
    return ranges, shape


@op(dtypes={"x": "storable"}, example="ops.split(x, [1, 3], axis=-1)")
def split(x: TensorValueLike, split_sizes: Sequence[DimLike] | int, axis: int = 0) -> list[TensorValue]:
    """Pieces of the given sizes along an axis; one number cuts a known size into pieces of that size, and a rest.

    Raises:
        GraphError: EK0425, the sizes do not add up to that of the axis, or one is negative.
    """
    value = tensor("split", "x", x)
    at = axis_of(axis, value.rank)
    dim = value.shape[at]
    if isinstance(split_sizes, int) and not isinstance(split_sizes, bool):
        sizes = _equal_sizes(split_sizes, dim, at)
    else:
        listed = list_of("split_sizes", split_sizes, "sizes", "EK0425")
        sizes = [dim_of("split", f"split_sizes[{k}]", size) for k, size in enumerate(listed)]
    total = sum(sizes, start=Dim(0))
    if total != dim or any(map(is_below_zero, sizes)):
        text = f"the sizes {shown(sizes)} add up to {total}, and axis {at} has size {dim}"
        fail("split", text, code="EK0425", argument="split_sizes", expected=str(dim), got=str(total))
    pieces = []
    for k, size in enumerate(sizes):
        start = sum(sizes[:k], start=Dim(0))
        whole = [Range(0, 1, each) for each in value.shape]
        whole[at] = Range(int(start) if isinstance(start, StaticDim) else start, 1, size)
        pieces.append(take(value, whole))
    return pieces


def _equal_sizes(size: int, dim: Dim, axis: int) -> list[Dim]:
    if not 1 <= size <= LIMIT or not isinstance(dim, StaticDim):
        text = f"axis {axis} of size {dim} cannot be cut into pieces of {in_short(size)}"
        fail(
            "split",
            text,
            code="EK0425",
            argument="split_sizes",
            expected="a size >= 1, an axis of known size",
            got=in_short(size),
        )
    whole, rest = divmod(int(dim), size)
    return [Dim(size)] * whole + ([Dim(rest)] if rest or not whole else [])


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
    pairs = zip(ranges, value.shape, strict=True)
    if all(_is_number(r.start, 0) and _is_number(r.step, 1) and r.size == dim for r, dim in pairs):
        return value
    out = value.type.with_shape(r.size for r in ranges)
    kernel = "slice" if known(ranges) else "slice_from"
    return builtin(_FAMILY, kernel, [value, *tensors_of(value, ranges)], parameters_of(ranges), [out])[0]


def known(ranges: Sequence[Range]) -> bool:
    """Whether starts and steps are numbers."""
    return all(isinstance(r.start, int) and isinstance(r.step, int) for r in ranges)


def parameters_of(ranges: Sequence[Range]) -> dict[str, tuple[int, ...]]:
    """The parameters that select elements for kernels."""
    starts = tuple(r.start if isinstance(r.start, int) else 0 for r in ranges)
    steps = tuple(r.step if isinstance(r.step, int) else 0 for r in ranges)
    if known(ranges):
        return {"starts": starts, "steps": steps}
    numbers = itertools.count()
    given_at = tuple(-1 if isinstance(r.start, int) else next(numbers) for r in ranges)
    return {"starts": starts, "given_at": given_at, "steps": steps}


def tensors_of(value: Value, ranges: Sequence[Range]) -> list[TensorValue]:
    """The tensors with the starts that are not known before, and with run-time strides, for kernels."""
    if known(ranges):
        return []
    starts = _joined(value, [r.start for r in ranges if not isinstance(r.start, int)] or [0])
    return [starts, _joined(value, [0 if isinstance(r.step, int) else r.step for r in ranges])]


def _joined(value: Value, bounds: Sequence[Bound]) -> TensorValue:
    """Numbers, dims and tensors as one int64 tensor."""
    if all(isinstance(bound, int) for bound in bounds):
        numbers = np.array(bounds, np.int64)
        return current(_NAME).stage_constant(numbers, value.device, user_place())
    parts = [
        as_shape(cast_to(bound, DType.int64), [1])
        if isinstance(bound, TensorValue)
        else _joined(value, [bound])
        if isinstance(bound, int)
        else sizes_tensor(_NAME, [bound], value.device)
        for bound in bounds
    ]
    return concat(parts, 0)


def _is_number(bound: Bound, number: int) -> bool:
    return isinstance(bound, int) and bound == number


def _is_named_slice(item: object) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], slice)


def _is_sized(item: slice, size: object) -> bool:
    """Whether the slice of x[(slice(i, j), 2)] is one by tensors, next to its size."""
    return isinstance(size, int | Dim) and any(isinstance(bound, Value) for bound in (item.start, item.stop))


def _without_ellipsis(items: list[object], rank: int) -> list[Any]:
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
            kind=ElementError,
            argument="indices",
            expected=rank,
            got=named,
        )
    split_at = at[0] if at else len(items)
    return [*items[:split_at], *[slice(None)] * (rank - named), *items[split_at + 1 :]]


def _bound(item: object, axis: int, value: Value) -> Bound:
    if isinstance(item, Dim) and not isinstance(item, StaticDim):
        return item
    if isinstance(item, TensorValue):
        if item.rank:
            text = f"a tensor of shape {shown(item.shape)} cannot index axis {axis}"
            hint = "ops.gather(x, indices, axis) takes as many elements as there are indices"
            if item.dtype is DType.bool:
                hint = "ops.where keeps the shape; ops.nonzero(mask, 'count') returns the indices that a mask selects"
            fail(_NAME, text, code="EK0425", argument="indices", expected=_INDEX, hint=hint)
        same_device(_NAME, {"indices": tensor(_NAME, "indices", item)}, value.device)
        return as_indices(_NAME, "indices", item)
    number = int_of(f"indices[{axis}]", item, "EK0425", _INDEX)
    if not -LIMIT <= number <= LIMIT:
        text = f"index {in_short(number)} on axis {axis} is out of range"
        fail(_NAME, text, code="EK0425", kind=ElementError, argument="indices", got=in_short(number))
    return number


def _element_of(index: Bound, dim: Dim, axis: int) -> Range:
    if isinstance(index, TensorValue):
        return Range(index, 1, StaticDim(1))  # the kernel looks whether it lies on the axis
    message = f"index {index} on axis {axis} of size {dim} is out of range"
    if isinstance(index, Dim):
        place = dim + index if is_below_zero(index) else index
        _need(place, 0, message)
        _need(dim, place + 1, message)
        return Range(place, 1, StaticDim(1))
    _need(dim, index + 1 if index >= 0 else -index, message)
    return Range(_start(index, dim), 1, StaticDim(1))


def _range_of(item: slice, value: Value, axis: int, out_dim: Dim | None, named_here: bool) -> Range:
    dim = value.shape[axis]
    step = 1 if item.step is None else _bound(item.step, axis, value)
    if isinstance(step, TensorValue) or _is_number(step, 0):
        fail(_NAME, f"step {step} on axis {axis} has to be an int, and not 0", code="EK0425", argument="indices")
    given = [None if each is None else _bound(each, axis, value) for each in (item.start, item.stop)]
    if any(isinstance(each, TensorValue) for each in given):
        if isinstance(step, Dim):
            text = f"a slice by tensors on axis {axis} has the step {step}, and takes an int"
            fail(_NAME, text, code="EK0425", argument="indices", expected="an int", got=str(step))
        return _run_time_range(given, value, axis, step, out_dim)
    if isinstance(step, Dim):
        _need(step, 1, f"step {step} on axis {axis} has to be at least 1")
    rising = isinstance(step, Dim) or step > 0
    # Positions run from 0 to dim for a positive step, from -1 to dim - 1 for a negative one.
    low, high = (0, dim) if rising else (-1, dim - 1)
    first, last = (low, high) if rising else (high, low)
    start = first if given[0] is None else _position(given[0], dim, axis, rising)  # type: ignore[arg-type]
    stop = last if given[1] is None else _position(given[1], dim, axis, rising)  # type: ignore[arg-type]
    span = Dim(stop - start if rising else start - stop)
    if isinstance(span, StaticDim) and int(span) < 0:
        span = StaticDim(0)
    _need(span, 0, f"slice {_text(item)} on axis {axis} of size {dim} ends before it starts")
    size = ceildiv(span, step if isinstance(step, Dim) else abs(step))
    if out_dim is not None and named_here:
        size = named_size(_NAME, size, out_dim, value.device)
    if size == 0:
        return Range(0, 1, size)
    if given[0] is None:
        return Range(0 if rising else _start(-1, dim), step, size)
    return Range(_start(given[0], dim) if isinstance(given[0], int) else start, step, size)


def _run_time_range(given: Sequence[Bound | None], value: Value, axis: int, step: int, out_dim: Dim | None) -> Range:
    """A slice with tensors among its bounds: a kernel computes where it starts, and how many elements it has."""
    if out_dim is None:
        hint = 'write (slice(start, stop), "count") in its place, with a new name or the size that it has'
        text = f"a slice by tensors on axis {axis} needs a size"
        fail(_NAME, text, code="EK0482", argument="indices", expected="(slice, out_dim)", hint=hint)
    bounds = {(True, True): "both", (True, False): "start", (False, True): "stop"}[
        given[0] is not None, given[1] is not None
    ]
    numbers = [as_shape(_joined(value, [0 if each is None else each]), []) for each in given]
    size = as_shape(sizes_tensor(_NAME, [value.shape[axis]], value.device), [])
    if current(_NAME).has_size(out_dim):
        stated = as_shape(sizes_tensor(_NAME, [out_dim], value.device), [])
        start = builtin(_FAMILY, "slice_start", [size, *numbers, stated], {"step": step, "bounds": bounds})[0]
        return Range(as_shape(start, []), step, out_dim)
    start, count = builtin(_FAMILY, "slice_range", [size, *numbers], {"step": step, "bounds": bounds})
    define_sizes(_NAME, count, [out_dim], [f"{_NAME}: the slice on axis {axis} has another size than {out_dim}"])
    return Range(as_shape(start, []), step, out_dim)


def _position(bound: int | Dim, dim: Dim, axis: int, rising: bool) -> int | Dim:
    """Where a bound lies, counted from the start of the axis; conditions keep it on the axis."""
    hint = "leave the bound out to take all that there is"
    message = f"bound {bound} of a slice on axis {axis} of size {dim} is out of range"
    if is_below_zero(bound) if isinstance(bound, Dim) else bound < 0:
        # x[-n:] of an axis of n elements starts at 0; with a negative step, -n-1 stands before all of them
        _need(dim, -bound if rising else -bound - 1, message, hint)
        return dim + bound
    if isinstance(bound, Dim):
        _need(bound, 0, message, hint)
    _need(dim, bound if rising else bound + 1, message, hint)
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
        fail(_NAME, message, code="EK0425", kind=ElementError, argument="indices", hint=hint)


def _text(item: slice) -> str:
    parts = [
        "" if part is None else str(part) if isinstance(part, Dim) else brief(part) for part in (item.start, item.stop)
    ]
    return ":".join(parts if item.step is None else [*parts, brief(item.step)])
