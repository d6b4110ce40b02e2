"""Takes elements of a tensor by tensors of indices.

A negative index counts from the end; one that lies outside ends the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    AnyTensor,
    Element,
    Index,
    InputTensor,
    Int,
    Integral,
    OutputTensor,
    Storable,
    bool8,
    ceildiv,
    compiled_for,
    foreach,
    int64,
    max,
    min,
    parallel_for,
    register,
    stack,
    store,
    unroll,
)
from ..algorithms.algorithm import unravelled
from ..algorithms.references import Array

T = TypeVar("T", bound=Storable)
E = TypeVar("E", bound=Element)
I = TypeVar("I", bound=Integral)  # noqa: E741


def within(index: Integral, size: Index) -> Any:
    """The place that an index means on an axis of this size."""
    given = index.cast(int64)
    at = given + size if given < 0 else given
    assert 0 <= at < size, f"index {given} is out of range for an axis of size {size}"
    return at


@register("gather")
def gather(
    out: OutputTensor[T, "*a{axis} *k *b"],
    x: InputTensor[T, "*a{axis} n *b"],
    indices: InputTensor[I, "*k"],
    *,
    axis: int,
) -> None:
    """Along `axis` of x the elements at `indices`, whose axes stand in its place."""

    def element(i: tuple[Index, ...]):
        at = within(indices[i[axis : axis + indices.rank]], x.dim(axis))
        return x[(*i[:axis], at, *i[axis + indices.rank :])]

    foreach(out, element)


@gather.reference
def gather_reference(x: Array, indices: Array, *, axis: int) -> Array:
    return np.take(x, indices.astype(np.int64), axis)


@register("take_along_axis")
def take_along_axis(
    out: OutputTensor[T, "*k"], x: InputTensor[T, "*s"], indices: InputTensor[I, "*k"], *, axis: int
) -> None:
    """The element of x at each place, where `indices` give the place along `axis`."""

    def element(i: tuple[Index, ...]):
        return x[(*i[:axis], within(indices[i], x.dim(axis)), *i[axis + 1 :])]

    foreach(out, element)


@register("gather_nd")
def gather_nd(
    out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], indices: InputTensor[I, "*k"], *, batch: int, depth: int
) -> None:
    """What lies in x where the vectors along the last axis of `indices` point, behind `batch` axes of both."""

    def element(i: tuple[Index, ...]):
        outer = i[: indices.rank - 1]
        index: tuple[Any, ...] = i[:batch]
        for k in unroll(depth):
            index = (*index, within(indices[(*outer, k)], x.dim(batch + k)))
        return x[(*index, *i[indices.rank - 1 :])]

    foreach(out, element)


# *** what is not zero ***

PIECES = 64  # into which a tensor is cut at most, each counted by itself
TASK = 8192  # elements that are worth a task of their own


def is_set(value: Element) -> Any:
    """Whether an element is not zero."""
    return value if value.dtype == bool8 else value != 0


def for_set(
    x: AnyTensor, found: Callable[[Index, tuple[Index, ...]], None], other: Callable[[tuple[Index, ...]], None]
) -> None:
    """Calls `found(number, index)` for the elements that are not zero, numbered in row-major order.

    On a CPU the elements before each piece of the tensor are counted first, and then all pieces go in parallel; on a
    GPU one thread does it all.

    Args:
        x: a tensor.
        found: what to do with an element that is not zero.
        other: what to do with the index of another one.
    """

    def piece_from(low: Index, high: Index, number: Index):
        at = number
        for position in range(low, high):
            index = unravelled(position, x.shape)
            if is_set(x[index]):
                found(at, index)
                at += 1
            else:
                other(index)

    if compiled_for().is_gpu:
        parallel_for(1, lambda _: piece_from(0, x.size, Int(0)))
    else:
        size, counts = _counted(x)
        pieces = min(ceildiv(x.size, size), PIECES)
        parallel_for(pieces, lambda k: piece_from(k * size, min((k + 1) * size, x.size), counts[k]))


def count_set(out: AnyTensor, x: AnyTensor) -> None:
    """Stores how many elements are not zero into `out`, which has one element."""
    if compiled_for().is_gpu:
        foreach(out, lambda i: _count(x, 0, x.size))
    else:
        out[0] = _counted(x)[1][PIECES]


def _count(x: AnyTensor, low: Index, high: Index) -> Any:
    result = Int(0)
    for position in range(low, high):
        result += 1 if is_set(x.at(position)) else 0
    return result


def _counted(x: AnyTensor) -> Any:
    """The size of the pieces of a tensor, and how many elements are not zero before each of them; their total last."""
    size = max(ceildiv(x.size, PIECES), TASK)
    counts = stack[int64](PIECES + 1)
    pieces = min(ceildiv(x.size, size), PIECES)
    parallel_for(pieces, lambda k: store(counts, k + 1, _count(x, k * size, min((k + 1) * size, x.size))))
    for piece in range(PIECES):
        counts[piece + 1] = counts[piece + 1] + counts[piece]
    return size, counts


@register("nonzero_count", fuse=False)
def nonzero_count(out: OutputTensor[int64, "1"], x: InputTensor[E, "*s"]) -> None:
    """How many elements are not zero."""
    count_set(out, x)


@nonzero_count.reference
def nonzero_count_reference(x: Array) -> Any:
    return np.array([np.count_nonzero(x)])


@register("nonzero", fuse=False)
def nonzero(out: OutputTensor[int64, "*t"], x: InputTensor[E, "*s"]) -> None:
    """The indices of the elements that are not zero, one row each, in row-major order; `out` has as many rows."""

    def found(number: Index, index: tuple[Index, ...]):
        for axis in unroll(x.rank):
            out[number, axis] = index[axis]

    for_set(x, found, lambda index: None)
