"""`windows`: every element of a result from the window of elements that it sees, as in pooling.

    windows(out, x, shape, first, identity, step, finish)

Windows slide over up to three axes; what lies outside of x is left out. With the channels last, a vector holds
channels of one place; with the channels first, it holds neighbouring places of one channel: of a copy with
what stands for the places outside, or else the places whose window is cut off are done one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyTensor,
    Element,
    Floating,
    Index,
    Numeric,
    Parts,
    ceildiv,
    compiled_for,
    max,
    min,
    parallel_for,
    unroll,
    vectorize,
)
from .algorithm import every, unravelled
from .planes import by_planes
from .rows import TASK

VECTORS = 4  # vectors of channels that are held at a time


def window_shape(
    sizes: tuple[Index, ...], stride: tuple[int, ...], dilation: tuple[int, ...], before: tuple[int, ...]
) -> Any:
    """(sizes, strides, dilations, paddings before) of windows, three numbers each: axes that are missing are of size 1.

    Args:
        sizes: a tuple of one to three sizes.
        stride, dilation, before: tuples of as many numbers.
    """
    return (
        three_axes(sizes),
        three_axes(stride, 1),
        three_axes(dilation, 1),
        three_axes(before, 0),
    )


def three_axes(sizes: tuple[Index, ...], missing: int = 1) -> Any:
    """A tuple of one to three numbers as one of three; those in front are missing."""
    return (*(missing, missing)[: 3 - len(sizes)], *sizes)


def taps(shape: tuple[Parts, ...], size: Index, axis: int, place: Index) -> tuple[Index, Index]:
    """(low, high): which elements of the window at `place` lie inside of an axis of this size."""
    sizes, strides, dilations, before = shape
    start = place * strides[axis] - before[axis]
    low = ceildiv(max(-start, 0), dilations[axis])
    high = min(ceildiv(size - start, dilations[axis]), sizes[axis])
    return (0 if sizes[axis] == 1 and before[axis] == 0 else low), max(high, low)


def windows(
    out: AnyTensor,
    x: AnyTensor,
    shape: tuple[Parts, ...],
    first: bool,
    identity: Callable[[int], Parts],
    step: Callable[..., Parts],
    finish: Callable[[Parts, tuple[Index, ...]], Parts],
    each: int = 1,
) -> None:
    """Stores what `finish` makes of each window.

    Args:
        out, x: tensors (batch, places, channels), or (batch, channels, places) where `first` is true.
        shape: what `window_shape` gives.
        first: whether the channels come first; a compile-time value.
        identity: a function of a width: the state before the first element, a number or a tuple of numbers.
        step: a function (state, value, channel, tap, place, mask) of vectors of one width: the next state. `tap` are
            three numbers that count the elements of the window, `place` where they lie in x; lanes without mask hold
            nothing.
        finish: a function (state, place): what is stored; `place` are the three numbers of the result.
        each: how many neighbouring channels share their windows: each sees all of them, one after the other, and `step`
            takes the number of the one that it sees behind its other arguments. A power of two.
    """
    axes = x.rank - 2
    inner = three_axes(x.shape[2:] if first else x.shape[1:-1])
    outer = three_axes(out.shape[2:] if first else out.shape[1:-1])
    channels = out.dim(1 if first else -1)
    strides, dilations, before = shape[1], shape[2], shape[3]

    def at(batch: Index, channel: Index, place: tuple[Index, ...]):
        """The index of an element."""
        return (batch, channel, *place[3 - axes :]) if first else (batch, *place[3 - axes :], channel)

    def source(place: tuple[Index, ...], tap: tuple[Index, ...]):
        """Where the element `tap` of the window at `place` lies in x."""
        return tuple(place[k] * strides[k] + tap[k] * dilations[k] - before[k] for k in unroll(3))

    def folded(
        batch: Index,
        channel: Index,
        place: tuple[Index, ...],
        within: tuple[tuple[Index, ...], ...],
        width: int,
        mask: Element,
    ):
        """The state of `width` windows of which all have the taps `within`."""
        state = identity(width)
        for i in range(within[0][0], within[0][1]):
            for j in range(within[1][0], within[1][1]):
                for k in range(within[2][0], within[2][1]):
                    there = source(place, (i, j, k))
                    values = _of_group(x, lambda c: at(batch, c, there), channel, each, first, width, strides[2], mask)  # noqa: B023
                    for number in unroll(each):
                        more = (number,) if each > 1 else ()
                        state = step(state, values[number], channel, (i, j, k), there, mask, *more)
        return state

    def one(batch: Index, channel: Index, place: tuple[Index, ...]):
        """A single window."""
        within = tuple(taps(shape, inner[k], k, place[k]) for k in unroll(3))
        out[at(batch, channel, place)] = finish(folded(batch, channel, place, within, 1, True), place)

    if compiled_for().is_gpu:

        def element(position: Index):
            index = unravelled(position, out.shape)
            places = index[2:] if first else index[1:-1]
            one(index[0], index[1] if first else index[out.rank - 1], three_axes(places, 0))

        parallel_for(out.size, element)
    elif first:
        _along_places(out, (inner, outer), channels, shape, folded, finish, one, at)
    else:
        _along_channels(out, x, (inner, outer), channels, shape, folded, finish, at)


def padded_windows(
    out: AnyTensor,
    x: AnyTensor,
    shape: tuple[Parts, ...],
    first: bool,
    identity: Callable[[int], Parts],
    step: Callable[[Parts, Parts, Index, tuple[Index, ...], tuple[Index, ...], Parts], Parts],
    finish: Callable[[Parts, tuple[Index, ...]], Parts],
    outside: Numeric,
) -> None:
    """As `windows`, where `outside` is a number of the dtype of x that changes no state, so that it may stand for what
    lies outside. Neither `step` nor `finish` depends on `tap` and `place`.
    """
    # Vectors of every second place are masked loads, which are slow but where vectors have registers for masks.
    most = 1 if compiled_for().vector_bits >= 512 else 2
    if first and shape[1][2] <= most and not compiled_for().is_gpu:
        by_planes(out, x, shape, outside, identity, step, finish)
    else:
        windows(out, x, shape, first, identity, step, finish)


def _of_group(
    x: AnyTensor,
    at: Callable[[Index], tuple[Index, ...]],
    channel: Index,
    each: int,
    first: bool,
    width: int,
    stride: int,
    mask: Element,
) -> Any:
    """What `width` windows see of each channel of the group of a channel, a tuple; `at` gives the index of one."""
    start = channel if each == 1 else channel // each * each
    values: Any = ()
    for number in unroll(each):
        if first or each == 1:
            values = (*values, every(x, at(start + number), width, stride if first else 1, mask))
        elif width >= each:
            values = (*values, _shared(every(x, at(channel), width, 1, mask), each, number))
        else:
            values = (*values, x[at(start + number)].broadcast(width))
    return values


def _shared(value: Floating, each: int, number: int) -> Any:
    """In each lane what the one with this number has, of the `each` lanes that it is among."""
    lanes: Any = ()
    for lane in unroll(value.width):
        lanes = (*lanes, lane // each * each + number)
    return value.shuffle(*lanes)


def _along_channels(
    out: AnyTensor,
    x: AnyTensor,
    places: tuple[tuple[Index, ...], ...],
    channels: Index,
    shape: tuple[Parts, ...],
    folded: Callable[[Index, Index, tuple[Index, ...], tuple[tuple[Index, ...], ...], int, Parts], Parts],
    finish: Callable[[Parts, tuple[Index, ...]], Parts],
    at: Callable[[Index, Index, tuple[Index, ...]], tuple[Index, ...]],
) -> None:
    """A task takes a row of places; a vector holds channels. `places`: the sizes of x and of the result."""
    inner, outer = places
    lanes = _lanes(x)

    def row(task: Index):
        batch, a, b = unravelled(task, (out.dim(0), outer[0], outer[1]))
        within = (taps(shape, inner[0], 0, a), taps(shape, inner[1], 1, b))
        for c in range(outer[2]):
            place = (a, b, c)
            all_within = (*within, taps(shape, inner[2], 2, c))

            def some(
                channel: Index,
                width: int,
                mask: Element = True,
                place: tuple[Index, ...] = place,
                all_within: tuple[Parts, ...] = all_within,
            ):
                state = folded(batch, channel, place, all_within, width, mask)
                out.store(finish(state, place), *at(batch, channel, place), mask=mask)

            whole = channels // (VECTORS * lanes) * (VECTORS * lanes)
            for channel in range(0, whole, VECTORS * lanes):
                some(channel, VECTORS * lanes)
            vectorize(
                channels - whole, lanes, lambda k, width, mask, whole=whole: some(whole + k, width, mask), masked=True
            )

    work = outer[2] * channels * shape[0][0] * shape[0][1] * shape[0][2]
    parallel_for(out.dim(0) * outer[0] * outer[1], row, grain=ceildiv(TASK, work + 16))


def _along_places(
    out: AnyTensor,
    places: tuple[tuple[Index, ...], ...],
    channels: Index,
    shape: tuple[Parts, ...],
    folded: Callable[[Index, Index, tuple[Index, ...], tuple[tuple[Index, ...], ...], int, Parts], Parts],
    finish: Callable[[Parts, tuple[Index, ...]], Parts],
    one: Callable[[Index, Index, tuple[Index, ...]], None],
    at: Callable[[Index, Index, tuple[Index, ...]], tuple[Index, ...]],
) -> None:
    """A task takes a row of places of one channel; a vector holds places whose windows lie inside along the row.

    `places`: the sizes of x and of the result.
    """
    inner, outer = places
    sizes, strides, dilations, before = shape
    reach = (sizes[2] - 1) * dilations[2]
    low = min(ceildiv(before[2], strides[2]), outer[2])
    high = max(min((inner[2] - 1 + before[2] - reach) // strides[2] + 1, outer[2]), low)
    lanes = _lanes(out)

    def row(task: Index):
        batch, channel, a, b = unravelled(task, (out.dim(0), channels, outer[0], outer[1]))
        within = (taps(shape, inner[0], 0, a), taps(shape, inner[1], 1, b), (0, sizes[2]))

        def some(k: Index, width: int, mask: Element):
            place = (a, b, low + k)
            out.store(
                finish(folded(batch, channel, place, within, width, mask), place), *at(batch, channel, place), mask=mask
            )

        for c in range(low):
            one(batch, channel, (a, b, c))
        vectorize(high - low, lanes, some, masked=True)
        for c in range(high, outer[2]):
            one(batch, channel, (a, b, c))

    work = outer[2] * sizes[0] * sizes[1] * sizes[2]
    parallel_for(out.dim(0) * channels * outer[0] * outer[1], row, grain=ceildiv(TASK, work + 16))


def _lanes(x: AnyTensor) -> Any:
    return max(compiled_for().vector_bits // max(x.dtype.bits, 32), 1)
