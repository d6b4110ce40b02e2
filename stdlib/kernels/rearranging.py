"""Puts elements of a tensor in other places, with more around them: padding, rolling."""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    Index,
    InputTensor,
    Int,
    Integral,
    OutputTensor,
    Storable,
    foreach,
    int64,
    max,
    min,
    parallel_for,
    register,
    static_assert,
    unroll,
)

I = TypeVar("I", bound=Integral)  # noqa: E741
T = TypeVar("T", bound=Storable)

AT_ONCE = 8  # places that are stored at once


@register("pad", reads={"x": 1})
def pad(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], value: T, *, before: tuple[int, ...]) -> None:
    """x behind `before[k]` elements along each axis k, and `value` everywhere around it."""

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        inside = True
        for k in unroll(x.rank):
            at = i[k] - before[k]
            inside = inside and 0 <= at < x.dim(k)
            index = (*index, at)
        return x[index] if inside else value

    foreach(out, element)


@register("pad_by_elements")
def pad_by_elements(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], *, before: tuple[int, ...], mode: str) -> None:
    """x behind `before[k]` elements along each axis k, and around it elements of its own; see `_mirrored`."""

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        for k in unroll(x.rank):
            at = i[k] - before[k]
            index = (*index, at if 0 <= at < x.dim(k) else _mirrored(at, x.dim(k), mode))
        return x[index]

    foreach(out, element)


def _mirrored(at: Index, n: Index, mode: str) -> Any:
    """The place on an axis of n elements that stands for one outside of it."""
    if mode == "edge":
        return min(max(at, 0), n - 1)
    if mode == "wrap":
        return at % max(n, 1)
    if mode == "reflect":  # the ends once
        period = max(2 * n - 2, 1)
        place = at % period
        return place if place < n else period - place
    static_assert(mode == "symmetric", "a mode of padding")
    place = at % max(2 * n, 1)
    return place if place < n else 2 * n - 1 - place


@register("roll", reads={"x": 1})
def roll(out: OutputTensor[T, "*a{axis} n *b"], x: InputTensor[T, "*a{axis} n *b"], shift: Int, *, axis: int) -> None:
    """Every element `shift` places further along `axis`; what leaves at the end enters at the start."""
    n = x.dim(axis)
    first = -shift % max(n, 1)  # the element that comes first

    def element(i: tuple[Index, ...]):
        at = i[axis] + first
        return x[(*i[:axis], at if at < n else at - n, *i[axis + 1 :])]

    foreach(out, element)


@register("repeat_total", fuse=False)
def repeat_total(out: OutputTensor[int64, "1"], repeats: InputTensor[I, "n"]) -> None:
    """How many elements there are when each is repeated so often."""

    def total(_: Index):
        result = Int(0)
        for place in range(repeats.dim(0)):
            count = repeats[place].cast(int64)
            assert count >= 0, f"element {place} is repeated {count} times"
            result += count
        return result

    foreach(out, total)


@register("repeat_places", fuse=False)
def repeat_places(out: OutputTensor[int64, "*t"], repeats: InputTensor[I, "n"]) -> None:
    """Every place along an axis, as often as its element is repeated; `out` has as many elements.

    Whole vectors are stored, and what one has too many the next one stores anew: a short loop for each element would
    end where no processor foresees it.
    """
    last = out.dim(0) - AT_ONCE

    def all_places(task: Index):
        at = Int(0)
        for place in range(repeats.dim(0)):
            count = repeats[place].cast(int64)
            if at <= last and count <= AT_ONCE:
                out.store(SIMD[int64, AT_ONCE](place), at)
            else:
                for k in range(count):
                    out[at + k] = place
            at += count

    parallel_for(1, all_places)
