"""Moves elements and computes nothing: shapes, axes, joining, slices.

Each is a map of indices, so it costs nothing where it is fused into the kernel that reads it.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import Index, InputTensor, Int, OutputTensor, Storable, ceildiv, foreach, int64, max, min, register, unroll
from ..algorithms.algorithm import start_of

T = TypeVar("T", bound=Storable)


@register("reshape", move="reshape")
def reshape(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"]) -> None:
    """The elements of x in row-major order under the shape of `out`."""
    foreach(out, lambda i: x.at(out.position(i)))


@register("transfer_to", move="copy")
def transfer_to(out: OutputTensor[T, "*s"], x: InputTensor[T, "*s"]) -> None:
    """The elements of x. Between two devices no kernel runs: the runtime copies the memory."""
    foreach(out, lambda i: x[i])


@register("permute", move="permute")
def permute(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], *, order: tuple[int, ...]) -> None:
    """Axis k of the result is axis `order[k]` of x."""

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        for axis in unroll(x.rank):
            for k in unroll(x.rank):
                if order[k] == axis:
                    index = (*index, i[k])
        return x[index]

    foreach(out, element)


@register("broadcast_to", move="broadcast")
def broadcast_to(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"]) -> None:
    """x repeated along its axes of size 1 and along new leading axes."""

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        for axis in unroll(x.rank):
            at = i[out.rank - x.rank + axis]
            index = (*index, 0 if x.is_one(axis) else at)
        return x[index]

    foreach(out, element)


@register("broadcast_by_size")
def broadcast_by_size(out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], *, axes: tuple[int, ...]) -> None:
    """As `broadcast_to`; axis k is repeated if its size is 1 when the kernel runs, where `axes[k]` is 1."""

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        for axis in unroll(x.rank):
            at = i[out.rank - x.rank + axis]
            if axes[axis] == 1:
                at = min(at, x.dim(axis) - 1)
            index = (*index, 0 if x.is_one(axis) else at)
        return x[index]

    foreach(out, element)


@register("concat2", reads={"x": 1, "y": 1}, move="concat")
def concat2(
    out: OutputTensor[T, "*a{axis} (m + n) *b"],
    x: InputTensor[T, "*a{axis} m *b"],
    y: InputTensor[T, "*a{axis} n *b"],
    *,
    axis: int,
) -> None:
    """x and y joined along `axis`."""

    def element(i: tuple[Index, ...]):
        at = i[axis]
        if at < x.dim(axis):
            return x[(*i[:axis], at, *i[axis + 1 :])]
        return y[(*i[:axis], at - x.dim(axis), *i[axis + 1 :])]

    foreach(out, element)


@register("slice", reads={"x": 1}, move="slice")
def slice(
    out: OutputTensor[T, "*t"], x: InputTensor[T, "*s"], *, starts: tuple[int, ...], steps: tuple[int, ...]
) -> None:
    """Every `steps[k]`-th element from `starts[k]` on along each axis k; as many as `out` holds.

    A negative start counts from the end of its axis; a negative step runs backwards.
    """

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        for axis in unroll(x.rank):
            start = starts[axis]
            first = start if start >= 0 else x.dim(axis) + start
            index = (*index, first + steps[axis] * i[axis])
        return x[index]

    foreach(out, element)


@register("slice_from", reads={"x": 1}, move="slice")
def slice_from(
    out: OutputTensor[T, "*t"],
    x: InputTensor[T, "*s"],
    given: InputTensor[int64, "u"],
    strides: InputTensor[int64, "r"],
    *,
    starts: tuple[int, ...],
    given_at: tuple[int, ...],
    steps: tuple[int, ...],
) -> None:
    """As `slice`, but axis k starts at `given[given_at[k]]` unless `given_at[k]` is negative; a step of 0 stands for
    one of `strides`."""

    def element(i: tuple[Index, ...]):
        index: tuple[Any, ...] = ()
        for axis in unroll(x.rank):
            first = start_of(starts, given_at, axis, given, x.dim(axis))
            step = steps[axis]
            index = (*index, first + (strides[axis] if step == 0 else step) * i[axis])
        return x[index]

    foreach(out, element)


@register("slice_range", fuse=False)
def slice_range(
    start: OutputTensor[int64, "1"],
    count: OutputTensor[int64, "1"],
    size: Int,
    low: Int,
    high: Int,
    *,
    step: int,
    bounds: str,
) -> None:
    """Where a slice of an axis of this size begins, and how many elements it has.

    `bounds` says which are given: "both", "start" or "stop". They have to lie on the axis.
    """

    foreach((start, count), lambda _: _range(size, low, high, step, bounds))


@register("slice_start", fuse=False)
def slice_start(
    start: OutputTensor[int64, "1"], size: Int, low: Int, high: Int, stated: Int, *, step: int, bounds: str
) -> None:
    """As `slice_range`, of a slice that has to have so many elements as are stated."""

    def found(_: Index):
        begin, count = _range(size, low, high, step, bounds)
        assert count == stated, f"a slice has another size than stated: {count} instead of {stated}"
        return begin

    foreach(start, found)


def _range(size: Index, low: Index, high: Index, step: int, bounds: str) -> Any:
    begin = Int(0) if step > 0 else size - 1
    end = size if step > 0 else Int(-1)
    if bounds != "stop":
        assert -size <= low <= size, f"start {low} of a slice is out of range for an axis of size {size}"
        begin = low + size if low < 0 else low
    if bounds != "start":
        assert -size - 1 <= high <= size, f"stop {high} of a slice is out of range for an axis of size {size}"
        end = high + size if high < 0 else high
    span = end - begin if step > 0 else begin - end
    return begin, ceildiv(max(span, 0), step if step > 0 else -step)
