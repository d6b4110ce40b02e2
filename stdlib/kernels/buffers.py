"""Reads and changes buffers."""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    Index,
    InputTensor,
    MutableInputTensor,
    OutputTensor,
    Storable,
    foreach,
    int64,
    parallel_for,
    register,
    store,
    unroll,
)
from ..algorithms.algorithm import start_of, unravelled

S = TypeVar("S", bound=Storable)

TASK = 16384  # elements that are worth a task of their own


@register("buffer_create", fuse=False)
def buffer_create(out: OutputTensor[S, "*s"]) -> None:
    """Uninitialised memory."""


@register("buffer_load", fuse=False, move="copy")
def buffer_load(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"]) -> None:
    """What the buffer holds now."""
    foreach(out, lambda i: x[i])


@register("buffer_store", reads={"x": 1}, move="copy")
def buffer_store(y: MutableInputTensor[S, "*s"], x: InputTensor[S, "*s"]) -> None:
    """Overwrites the buffer."""
    foreach(y, lambda i: x[i])


@register("buffer_store_slice", reads={"x": 1}, move="slice")
def buffer_store_slice(
    y: MutableInputTensor[S, "*s"], x: InputTensor[S, "*t"], *, starts: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    """Writes `x` to every `steps[k]`-th element from `starts[k]` on along each axis k; both are as `slice` has them."""

    def element(position: Index):
        index = unravelled(position, x.shape)
        there: tuple[Any, ...] = ()
        for axis in unroll(y.rank):
            start = starts[axis]
            first = start if start >= 0 else y.dim(axis) + start
            there = (*there, first + steps[axis] * index[axis])
        store(y, there, x[index])

    parallel_for(x.size, element, grain=TASK)


@register("buffer_store_from", reads={"x": 1}, move="slice")
def buffer_store_from(
    y: MutableInputTensor[S, "*s"],
    x: InputTensor[S, "*t"],
    given: InputTensor[int64, "u"],
    strides: InputTensor[int64, "r"],
    *,
    starts: tuple[int, ...],
    given_at: tuple[int, ...],
    steps: tuple[int, ...],
) -> None:
    """As `buffer_store_slice`, with starts and strides as `slice_from` has them."""

    def element(position: Index):
        index = unravelled(position, x.shape)
        there: tuple[Any, ...] = ()
        for axis in unroll(y.rank):
            first = start_of(starts, given_at, axis, given, y.dim(axis))
            step = steps[axis]
            there = (*there, first + (strides[axis] if step == 0 else step) * index[axis])
        store(y, there, x[index])

    parallel_for(x.size, element, grain=TASK)
