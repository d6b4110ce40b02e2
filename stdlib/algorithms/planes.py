"""Images (batch, channels, places) with padding, sorted by the remainder of their places in the stride.

The places of one remainder, a *phase*, lie side by side in a *plane*. So whatever stride and dilation are, a tap of a
window sees for neighbouring places of the result neighbours of one plane, from an offset on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyTensor,
    Element,
    Floating,
    Index,
    Parts,
    ceildiv,
    compiled_for,
    max,
    min,
    parallel_for,
    scratch,
    unroll,
    vectorize,
)
from .algorithm import product
from .rows import TASK

BLOCK = 1 << 13  # places of a channel that are copied at a time, about
LEAST_ROWS = 4  # of a block, at least
TOGETHER = 4  # rows of the result that are computed at a time


def planes_of(
    places: tuple[Index, ...],
    taps: tuple[Index, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Any:
    """How many phases there are along each of three axes, and the sizes of a plane for so many places."""
    phases = tuple(strides[t] if taps[t] > 1 else 1 for t in unroll(3))
    sizes = tuple(places[t] + (taps[t] - 1) * dilations[t] // strides[t] for t in unroll(3))
    return phases, sizes


def fill_plane(
    put: Callable[[Index, Parts], None],
    element: Callable[[Index, Index, Index], Parts],
    phase: tuple[Index, ...],
    sizes: tuple[Index, ...],
    inner: tuple[Index, ...],
    strides: tuple[int, ...],
    before: tuple[Index, ...],
    fill: Floating | None,
) -> None:
    """Calls put(position, value) for a plane: element(i, j, k) inside of an image of sizes `inner`, `fill` outside.

    `before` says how many places lie before the image along each axis. Without `fill` only what is inside is put.
    """
    low = min(ceildiv(max(before[2] - phase[2], 0), strides[2]), sizes[2])
    high = max(min(ceildiv(inner[2] + before[2] - phase[2], strides[2]), sizes[2]), low)
    from_there = phase[2] - before[2]
    is_whole = fill != None  # noqa: E711
    for a in range(sizes[0]):
        for b in range(sizes[1]):
            i, j = a * strides[0] + phase[0] - before[0], b * strides[1] + phase[1] - before[1]
            at = (a * sizes[1] + b) * sizes[2]
            there = (i >= 0) & (i < inner[0]) & (j >= 0) & (j < inner[1])
            first, last = (low, high) if there else (sizes[2], sizes[2])
            if is_whole:
                for k in range(first):
                    put(at + k, fill)
                for k in range(last, sizes[2]):
                    put(at + k, fill)
            for k in range(first, last):
                put(at + k, element(i, j, k * strides[2] + from_there))


def seen_by(
    tap: tuple[Index, ...],
    phases: tuple[int, ...],
    sizes: tuple[Index, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    channel: int = 0,
) -> Any:
    """How far from the place of a result the tap of its window sees an element, in the planes of a channel."""
    plane, place = channel, 0
    for t in unroll(3):
        plane = plane * phases[t] + tap[t] * dilations[t] % strides[t]
        place = place * sizes[t] + tap[t] * dilations[t] // strides[t]
    return plane * product(sizes) + place


def by_planes(
    out: AnyTensor,
    x: AnyTensor,
    shape: tuple[Parts, ...],
    outside: Floating,
    identity: Callable[[int], Parts],
    step: Callable[[Parts, Parts, Index, tuple[Index, ...], tuple[Index, ...], Parts], Parts],
    finish: Callable[[Parts, tuple[Index, ...]], Parts],
) -> None:
    """`windows` over a copy of some rows of a channel, with `outside` around them; see there."""
    taps, strides, dilations, before = shape
    axes = x.rank - 2
    inner, outer = (*(1, 1)[: 3 - axes], *x.shape[2:]), (*(1, 1)[: 3 - axes], *out.shape[2:])
    channels = out.dim(1)
    row = outer[2] * strides[1] * strides[2] * outer[0] * strides[0]
    rows = max(min(outer[1], max(ceildiv(BLOCK, row + 1), LEAST_ROWS)), 1)
    blocks = max(ceildiv(outer[1], rows), 1)
    phases, sizes = planes_of((outer[0], rows, outer[2]), taps, strides, dilations)
    lanes = max(compiled_for().vector_bits // max(x.dtype.bits, 32), 1)

    def folded(held: AnyTensor, channel: Index, starts: tuple[Index, ...], places: Parts, width: int, mask: Element):
        """The states of a vector of some rows each, which begin at `starts` in the planes."""
        states = tuple(identity(width) for _ in starts)
        for i in range(taps[0]):
            for j in range(taps[1]):
                for k in range(taps[2]):
                    seen = seen_by((i, j, k), phases, sizes, strides, dilations)
                    new: tuple[Parts, ...] = ()
                    for r in unroll(TOGETHER):
                        value = held.pointer(0).load(starts[r] + seen, width=width)
                        new = (*new, step(states[r], value, channel, (i, j, k), places[r], mask))
                    states = new
        return states

    def block(task: Index):
        channel_number, first_row = task // blocks, task % blocks * rows
        n, channel = channel_number // channels, channel_number % channels
        held = scratch[x.dtype](product(phases) * product(sizes) + lanes)
        for k in range(product(phases) * product(sizes) + lanes):
            held.pointer(0)[k] = outside
        there = (before[0], before[1] - first_row * strides[1], before[2])
        _fill_planes(held, x, (n, channel), (phases, sizes), inner, strides, there)
        count = min(outer[1] - first_row, rows)
        for a in range(outer[0]):
            for b in range(0, count, TOGETHER):

                def some(c: Index, width: int, mask: Element, a: Index = a, b: Index = b):
                    """A vector of some rows, whose sums do not wait for each other; the last row again behind it."""
                    places = tuple((a, first_row + b + r, c) for r in range(TOGETHER))
                    starts = tuple((a * sizes[1] + min(b + r, count - 1)) * sizes[2] + c for r in range(TOGETHER))
                    states = folded(held, channel, starts, places, width, mask)
                    for r in unroll(TOGETHER):
                        if b + r < count:
                            place = (a, first_row + b + r, c)
                            out.store(finish(states[r], places[r]), n, channel, *place[3 - axes :], mask=mask)

                vectorize(outer[2], lanes, some, masked=True)

    work = rows * outer[2] * outer[0] * product(taps)
    parallel_for(out.dim(0) * channels * blocks, block, grain=ceildiv(TASK, work + 16))


def _fill_planes(
    held: AnyTensor,
    x: AnyTensor,
    lead: tuple[Index, ...],
    planes: tuple[Parts, ...],
    inner: tuple[Index, ...],
    strides: tuple[int, ...],
    before: tuple[Index, ...],
) -> None:
    """Copies what is inside of the image of a channel to its planes, which `planes_of` describes."""
    phases, sizes = planes

    def element(i: Index, j: Index, k: Index):
        return x[(*lead, *(i, j, k)[5 - x.rank :])]

    for u in range(phases[0]):
        for v in range(phases[1]):
            for w in range(phases[2]):
                start = ((u * phases[1] + v) * phases[2] + w) * product(sizes)

                def put(at: Index, value: Floating, start: Index = start):
                    held.pointer(0)[start + at] = value

                fill_plane(put, element, (u, v, w), sizes, inner, strides, before, None)
