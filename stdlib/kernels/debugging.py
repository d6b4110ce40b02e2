"""Shows tensors while a graph runs, and keeps ops apart.

Nothing that the host prints comes from a GPU: there `print_tensor` and `print_text` are refused when code is made.

See also `GraphIR.changes`.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import AnyTensor, Index, InputTensor, OutputTensor, Storable, foreach, int8, register, unroll
from ..algorithms.algorithm import unravelled

S = TypeVar("S", bound=Storable)

EDGE = 3  # elements that are shown at either end of an axis that is too long
WHOLE = 1000  # elements of a tensor that is shown whole


@register("fence", reads={"x": 1}, effects=True)
def fence(out: OutputTensor[S, "*s"], x: InputTensor[S, "*s"]) -> None:
    """The same elements."""
    foreach(out, lambda i: x[i])


@register("print_text", fuse=False, effects=True)
def print_text(done: OutputTensor[int8, "0"], *, text: str) -> None:
    """Prints a line."""
    print(text)


@register("print_tensor", fuse=False, effects=True)
def print_tensor(
    done: OutputTensor[int8, "0"],
    x: InputTensor[S, "*s"],
    *,
    head: str,
    style: str = "compact",
    whole: int = WHOLE,
) -> None:
    """Prints `head`, the shape and the elements, nested as lists are; of more than `whole` the ends of each axis.

    With the style "binary" it prints the sizes and the elements one by one, for code that writes them to a file; with
    "none" nothing.
    """
    if style == "binary":
        _list(x, head)
    elif style != "none":
        _nested(x, head, whole)


def _list(x: AnyTensor, head: str):
    print(head, end="")
    for axis in unroll(x.rank):
        print(x.dim(axis), end=",")
    for position in range(x.size):
        print(x[unravelled(position, x.shape)], end="")
    print("")


def _nested(x: AnyTensor, head: str, whole: int):
    print(head, end=" (")
    for axis in unroll(x.rank):
        print(x.dim(axis), end=", " if axis + 1 < x.rank else "")
    print("):", end=" ")
    large = x.size > whole
    counts: tuple[Any, ...] = ()
    for axis in unroll(x.rank):
        counts = (*counts, 2 * EDGE + 1 if large and x.dim(axis) > 2 * EDGE + 1 else x.dim(axis))
    total = 1
    for axis in unroll(x.rank):
        total = total * counts[axis]
    if total == 0:
        print("[]", end="")
    for position in range(total):
        _show(x, unravelled(position, counts), counts, position)
    print("")


def _show(x: AnyTensor, at: tuple[Index, Index], counts: tuple[Index, Index], position: Index):
    """One element, or the dots that stand for many, with the brackets and the commas before and behind it."""
    left_out = False  # whether an axis before or here is at its dots
    first = True  # of what the dots stand for, one is shown
    index: tuple[Any, ...] = ()
    for axis in unroll(x.rank):
        short = counts[axis] < x.dim(axis)
        first = first and not (left_out and at[axis] > 0)
        left_out = left_out or (short and at[axis] == EDGE)
        index = (*index, x.dim(axis) - counts[axis] + at[axis] if short and at[axis] > EDGE else at[axis])
    if first:
        if position > 0:
            _separate(x, at)
        for axis in unroll(x.rank):
            if _all_are_first(at, axis, x.rank) and not left_out:
                print("[", end="")
        if left_out:
            print("...", end="")
        else:
            print(x[index], end="")
        for axis in unroll(x.rank):
            if _all_are_last(at, counts, axis, x.rank) and not left_out:
                print("]", end="")


def _separate(x: AnyTensor, at: tuple[Index, Index]):
    if x.rank > 0:
        if at[x.rank - 1] > 0:
            print(", ", end="")
        else:
            print(",\n", end="")
            for axis in unroll(x.rank):
                if not _all_are_first(at, axis, x.rank):
                    print(" ", end="")


def _all_are_first(at: tuple[Index, Index], axis: int, rank: int):
    """Whether an axis and those behind it are at their first element: a bracket opens there."""
    result = True
    for k in unroll(rank):
        result = result and (k < axis or at[k] == 0)
    return result


def _all_are_last(at: tuple[Index, Index], counts: tuple[Index, Index], axis: int, rank: int):
    result = True
    for k in unroll(rank):
        result = result and (k < axis or at[k] == counts[k] - 1)
    return result
