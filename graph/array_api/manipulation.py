"""Moves elements as the standard's functions do: shapes, axes, joins, repetitions; and picks them by their places."""

from __future__ import annotations

import copy as python_copy
from collections.abc import Sequence
from typing import Any

from ...dsl.diagnostics.errors import GraphError
from ...dsl.diagnostics.places import user_place
from ...dsl.environment.tracebacks import placed
from ..arguments import axis_of, int_of, list_of, wrong
from ..eager import functional as F
from ..eager.tensor import Tensor
from .operands import Axes, column, flat, shape_of, sizes_of, tensor, together


@placed
def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that these broadcast to.

    Raises:
        GraphError: EK0420, two sizes of an axis differ, and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        sizes = {shape[axis] for shape in shapes if len(shape) >= -axis} - {1}
        if len(sizes) > 1:
            text = f"the shapes {', '.join(str(tuple(each)) for each in shapes)} do not broadcast"
            raise GraphError(text, code="EK0420", place=user_place(), argument="shapes")
        result.append(int(*sizes) if sizes else 1)
    return tuple(result)


@placed
def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The tensors, broadcast to one shape."""
    shape = broadcast_shapes(*(shape_of("arrays", each) for each in arrays))
    return tuple(F.broadcast_to(each, shape) for each in arrays)


@placed
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The elements along new axes and along those of size 1 over and over."""
    return F.broadcast_to(tensor("x", x), sizes_of(shape))


@placed
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Tensors one behind the other along an axis, or flattened where it is None; in the dtype that they promote to."""
    values = together("concat", [tensor("arrays", each) for each in list_of("arrays", arrays, "tensors")])
    if axis is None:
        return F.concat([flat(each) for each in values], 0)
    return F.concat(values, axis)


@placed
def expand_dims(x: Tensor, /, axis: int | tuple[int, ...] = 0) -> Tensor:
    """The tensor with axes of size 1 at these places of the result."""
    given = axis if isinstance(axis, tuple) else (axis,)
    rank = tensor("x", x).rank + len(given)
    places = _distinct("axis", [axis_of(each, rank) for each in given])
    sizes = iter(x.shape)
    return F.reshape(x, [1 if k in places else next(sizes) for k in range(rank)])


@placed
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """The tensor without these axes, whose size is 1.

    Raises:
        GraphError: EK0421, an axis of another size; it is a ValueError, too.
    """
    given = axis if isinstance(axis, tuple) else (axis,)
    places = _distinct("axis", [axis_of(each, tensor("x", x).rank) for each in given])
    for each in places:
        if x.shape[each] != 1:
            text = f"axis {each} has size {x.shape[each]}, and only axes of size 1 can be left out"
            raise _SizeError(text, code="EK0421", place=user_place(), argument="axis", expected="an axis of size 1")
    return F.reshape(x, [size for k, size in enumerate(x.shape) if k not in places])


class _SizeError(GraphError, ValueError):
    """An axis has another size than it has to have."""


def _distinct(argument: str, axes: list[int]) -> list[int]:
    if len(set(axes)) != len(axes):
        wrong(argument, axes, "axes that differ", code="EK0422")
    return axes


@placed
def flip(x: Tensor, /, *, axis: Axes = None) -> Tensor:
    """The elements along these axes, or along all, in the opposite order."""
    return F.flip(tensor("x", x), axis) if x.rank else python_copy.copy(x)


@placed
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """The axes `source` at the places `destination`; the others in their order."""
    starts, ends = (each if isinstance(each, tuple) else (each,) for each in (source, destination))
    if len(starts) != len(ends):
        wrong("destination", destination, f"{len(starts)} axes, as many as source", code="EK0422")
    rank = tensor("x", x).rank
    old = _distinct("source", [axis_of(each, rank, "source") for each in starts])
    new = _distinct("destination", [axis_of(each, rank, "destination") for each in ends])
    rest = iter(k for k in range(rank) if k not in old)
    return F.permute(x, [old[new.index(k)] if k in new else next(rest) for k in range(rank)])


@placed
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    return F.permute(tensor("x", x), axes)


@placed
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Each element, or each part along an axis, so many times; a tensor has a number for each."""
    value, at = (flat(tensor("x", x)), 0) if axis is None else (tensor("x", x), axis_of(axis, x.rank))
    if not isinstance(repeats, Tensor):
        return F.repeat_interleave(value, int_of("repeats", repeats), at)
    counts = repeats.tolist()
    counts = [counts] * value.shape[at] if repeats.rank == 0 else counts * (value.shape[at] if len(counts) == 1 else 1)
    if len(counts) != value.shape[at] or min(counts, default=0) < 0:
        wrong("repeats", counts, f"{value.shape[at]} numbers from 0 on", code="EK0819")
    return F.gather(value, column([k for k, count in enumerate(counts) for _ in range(count)], value), at)


@placed
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The elements in the same order under another shape; one size may be -1. Nothing that is written reaches x."""
    return F.reshape(tensor("x", x), sizes_of(shape))


@placed
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: Axes = None) -> Tensor:
    """The elements moved along these axes, or in row-major order; what leaves an end comes in at the other."""
    return F.roll(tensor("x", x), shift, axis)


@placed
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis, in the dtype that they promote to."""
    values = [tensor("arrays", each) for each in list_of("arrays", arrays, "tensors")]
    return F.stack(together("stack", values), axis)


@placed
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The tensor so many times along each of the last axes."""
    times = sizes_of(repetitions)
    rank = max(tensor("x", x).rank, len(times))
    value = F.reshape(x, [*[1] * (rank - x.rank), *x.shape])
    return F.tile(value, [*[1] * (rank - len(times)), *times]) if rank else value


@placed
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts of size 1 along an axis, without it."""
    at = axis_of(axis, tensor("x", x).rank)
    before: tuple[Any, ...] = (slice(None),) * at
    return tuple(x[(*before, k)] for k in range(x.shape[at]))


@placed
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The parts at these places along an axis, which may be left out of a tensor with one."""
    at = _axis_of_one(x, axis)
    return F.gather(tensor("x", x), tensor("indices", indices), at)


@placed
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each place of `indices` the element of x at that index along the axis; the other axes broadcast."""
    at = axis_of(axis, tensor("x", x).rank)
    given = shape_of("x", x), shape_of("indices", indices)
    common = broadcast_shapes(*(tuple(1 if k == at else size for k, size in enumerate(each)) for each in given))
    value, places = (
        F.broadcast_to(each, [each.shape[at] if k == at else size for k, size in enumerate(common)])
        for each in (x, indices)
    )
    return F.take_along_axis(value, places, at)


def _axis_of_one(x: Tensor, axis: int | None) -> int:
    """The axis, which only a tensor with one can do without."""
    if axis is None and tensor("x", x).rank != 1:
        wrong("axis", axis, f"one of the {x.rank} axes", code="EK0422")
    return 0 if axis is None else axis_of(axis, x.rank)
