"""Writes elements into a copy of a tensor where tensors of indices say.

A negative index counts from the end; one that lies outside ends the call. Where several updates have one place, they
take effect in their row-major order, whatever runs in parallel: threads share out places, never the updates of one.
Half types add and multiply in float32, and are rounded after each update.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    Index,
    InputTensor,
    Integral,
    OutputTensor,
    Storable,
    bool8,
    ceildiv,
    foreach,
    max,
    min,
    parallel_chunks,
    parallel_for,
    register,
    static_assert,
    store,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, widened
from .gathering import for_set, within

T = TypeVar("T", bound=Storable)
I = TypeVar("I", bound=Integral)  # noqa: E741

TASK = 8192  # elements that are worth a task of their own


def _combined(old: Storable, new: Storable, how: str) -> Any:
    """What is stored where an update goes to an element."""
    if how == "set":
        return new
    if how == "add":
        return (widened(old) + widened(new)).cast(old.dtype)
    if how == "mul":
        return (widened(old) * widened(new)).cast(old.dtype)
    if how == "max":
        return max(old, new)
    static_assert(how == "min", "a way to combine updates and elements")
    return min(old, new)


@register("scatter")
def scatter(
    out: OutputTensor[T, "*s"],
    input: InputTensor[T, "*s"],
    updates: InputTensor[T, "*u"],
    indices: InputTensor[I, "*u"],
    *,
    axis: int,
    how: str,
) -> None:
    """`input` with every update at its own place, but along `axis` where its index says."""
    foreach(out, lambda i: input[i])
    sizes = (*updates.shape[:axis], *updates.shape[axis + 1 :])
    n = updates.dim(axis)

    def line(number: Index):
        lead = unravelled(number, sizes)
        for k in range(n):
            source = (*lead[:axis], k, *lead[axis:])
            place = (*lead[:axis], within(indices[source], out.dim(axis)), *lead[axis:])
            out[place] = _combined(out[place], updates[source], how)

    parallel_for(product(sizes), line, grain=ceildiv(TASK, n + 1))


@register("scatter_nd")
def scatter_nd(
    out: OutputTensor[T, "*s"],
    input: InputTensor[T, "*s"],
    updates: InputTensor[T, "*u"],
    indices: InputTensor[I, "*k"],
    *,
    depth: int,
    how: str,
) -> None:
    """`input` with each part of `updates` where a vector along the last axis of `indices` points."""
    foreach(out, lambda i: input[i])
    outer = indices.shape[:-1]
    inner = out.shape[depth:]
    count = product(outer)
    size = product(inner)

    def some(low: Index, high: Index):
        for number in range(count):
            lead = unravelled(number, outer)
            place: tuple[Any, ...] = ()
            for k in unroll(depth):
                place = (*place, within(indices[(*lead, k)], out.dim(k)))
            for position in range(low, high):
                rest = unravelled(position, inner)
                out[(*place, *rest)] = _combined(out[(*place, *rest)], updates[(*lead, *rest)], how)

    parallel_chunks(size, some, grain=ceildiv(TASK, count + 1))


@register("masked_scatter", fuse=False)
def masked_scatter(
    out: OutputTensor[T, "*s"],
    input: InputTensor[T, "*s"],
    mask: InputTensor[bool8, "*s"],
    updates: InputTensor[T, "n"],
) -> None:
    """`input` with the updates, in their order, in those places where the mask is set."""

    def found(number: Index, index: tuple[Index, ...]):
        assert number < updates.dim(0), f"the mask is set in more places than there are updates: {updates.dim(0)}"
        out[index] = updates[number]

    for_set(mask, found, lambda index: store(out, index, input[index]))
