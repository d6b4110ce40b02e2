"""Makes images of blocks, and blocks of images.

Blocks are (batch, channels, taps, blocks), or (batch, blocks, taps, channels); blocks and places have one to three
axes. Sums of half types run in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Element,
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    Storable,
    ceildiv,
    compiled_for,
    foreach,
    max,
    min,
    parallel_for,
    register,
    stack,
    unroll,
    vectorize,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.rows import TASK
from ..algorithms.windows import three_axes, window_shape

N = TypeVar("N", bound=Numeric)
S = TypeVar("S", bound=Storable)

SPAN = 4096  # places of a row that are added up at a time


@register("unfold")
def unfold(
    out: OutputTensor[S, "*t"],
    x: InputTensor[S, "*s"],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
) -> None:
    """The elements (batch, channel, taps, blocks) of images (batch, channels, places), zeros around them."""
    axes = x.rank - 2
    strides, dilations, padding = stride, dilation, before

    def element(i: tuple[Index, ...]):
        there = True
        index: tuple[Any, ...] = i[:2]
        for k in unroll(axes):
            place = i[2 + axes + k] * strides[k] + i[2 + k] * dilations[k] - padding[k]
            there = there & (place >= 0) & (place < x.dim(2 + k))
            index = (*index, place)
        return x[index] if there else _zero(S)

    foreach(out, element)


def _zero(dtype: AnyDType) -> Any:
    return dtype(0)


@register("fold", writes_once=True)
def fold(
    out: OutputTensor[N, "*t"],
    x: InputTensor[N, "*s"],
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    first: bool,
) -> None:
    """The sum, for each place, of the elements of blocks that lie there.

    Blocks are (batch, channels * taps, blocks) where `first` is true, else (batch, blocks, taps * channels).
    """
    wide = wide_dtype(N)
    inner = three_axes(x.shape[2:] if first else x.shape[1:-1])
    outer = three_axes(out.shape[2:] if first else out.shape[1:-1])
    shape = window_shape(kernel, stride, dilation, before)
    if compiled_for().is_gpu:
        _by_thread(out, x, wide, inner, shape, first)
    elif first:
        _by_row(out, x, wide, inner, outer, shape)
    else:
        _by_place(out, x, wide, inner, outer, shape)


def _block_of(shape: tuple[tuple[int, ...], ...], inner: tuple[Index, ...], axis: int, place: Index, tap: Index) -> Any:
    """Which block has its element `tap` at this place along an axis; -1 if none has."""
    _, strides, dilations, before = shape
    start = place + before[axis] - tap * dilations[axis]
    block = start // strides[axis]
    there = (start >= 0) & (start % strides[axis] == 0) & (block < inner[axis])
    return block if there else -1


def _summed(
    wide: AnyDType,
    shape: tuple[tuple[int, ...], ...],
    inner: tuple[Index, ...],
    place: tuple[Index, ...],
    width: int,
    load: Callable[[Index, tuple[Index, ...]], Numeric],
) -> Any:
    """The sum over all taps that blocks have at this place of load(tap, block)."""
    taps = shape[0]
    total = SIMD[wide, width](0)
    for i in range(taps[0]):
        a = _block_of(shape, inner, 0, place[0], i)
        for j in range(taps[1] if a >= 0 else 0):
            b = _block_of(shape, inner, 1, place[1], j)
            for k in range(taps[2] if b >= 0 else 0):
                c = _block_of(shape, inner, 2, place[2], k)
                if c >= 0:
                    total = total + load((i * taps[1] + j) * taps[2] + k, (a, b, c)).cast(wide)
    return total


def _by_thread(
    out: AnyTensor,
    x: AnyTensor,
    wide: AnyDType,
    inner: tuple[Index, ...],
    shape: tuple[tuple[int, ...], ...],
    first: bool,
) -> None:
    """Each thread computes one element."""
    skipped = 3 - (x.rank - 2)
    channels = out.dim(1 if first else -1)
    count = product(shape[0])

    def element(position: Index):
        index = unravelled(position, out.shape)
        batch, channel = index[0], index[1] if first else index[out.rank - 1]
        place = three_axes(index[2:] if first else index[1:-1], 0)

        def load(tap: Index, block: tuple[Index, ...]):
            if first:
                return x[(batch, channel * count + tap, *block[skipped:])]
            return x[(batch, *block[skipped:], tap * channels + channel)]

        out[index] = _summed(wide, shape, inner, place, 1, load).cast(out.dtype)

    parallel_for(out.size, element)


def _by_place(
    out: AnyTensor,
    x: AnyTensor,
    wide: AnyDType,
    inner: tuple[Index, ...],
    outer: tuple[Index, ...],
    shape: tuple[tuple[int, ...], ...],
) -> None:
    """A task adds up all channels of a place; a vector holds channels."""
    skipped = 3 - (x.rank - 2)
    channels = out.dim(-1)
    lanes = max(compiled_for().vector_bits // wide.bits, 1)

    def one(task: Index):
        n, a, b, c = unravelled(task, (out.dim(0), *outer))
        place = (a, b, c)

        def some(channel: Index, width: int, mask: Element):
            def load(tap: Index, block: tuple[Index, ...]):
                return x.load(n, *block[skipped:], tap * channels + channel, width=width, mask=mask)

            total = _summed(wide, shape, inner, place, width, load)
            out.store(total.cast(out.dtype), n, *place[skipped:], channel, mask=mask)

        vectorize(channels, lanes, some, masked=True)

    work = channels * ceildiv(product(shape[0]), product(shape[1])) + 16
    parallel_for(out.dim(0) * product(outer), one, grain=ceildiv(TASK, work))


def _by_row(
    out: AnyTensor,
    x: AnyTensor,
    wide: AnyDType,
    inner: tuple[int, Index, Index],
    outer: tuple[int, Index, Index],
    shape: tuple[tuple[int, ...], ...],
) -> None:
    """A task adds up a row of places, or a part of one, of a channel: tap by tap, and blocks side by side at once."""
    taps, strides, dilations, padding = shape
    skipped = 3 - (x.rank - 2)
    spans = max(ceildiv(outer[2], SPAN), 1)
    channels = out.dim(1)
    count = product(taps)

    def row(task: Index):
        n, channel, a, b, span = unravelled(task, (out.dim(0), channels, outer[0], outer[1], spans))
        left = span * SPAN
        right = min(left + SPAN, outer[2])
        totals = stack[wide](SPAN, zeroed=False)
        for c in range(right - left):
            totals[c] = wide(0)
        for i in range(taps[0]):
            plane = _block_of(shape, inner, 0, a, i)
            for j in range(taps[1] if plane >= 0 else 0):
                line = _block_of(shape, inner, 1, b, j)
                for k in range(taps[2] if line >= 0 else 0):
                    # Block q lies at the place q * stride + start.
                    start = k * dilations[2] - padding[2]
                    low = ceildiv(max(left - start, 0), strides[2])
                    high = max(min(ceildiv(max(right - start, 0), strides[2]), inner[2]), low)
                    tap = channel * count + (i * taps[1] + j) * taps[2] + k
                    lead = (n, tap, *(plane, line)[skipped:])
                    for q in range(low, high):
                        at = q * strides[2] + start - left
                        totals[at] = totals[at] + x[(*lead, q)].cast(wide)
        lead_out = (n, channel, *(a, b)[skipped:])
        for c in range(right - left):
            out[(*lead_out, left + c)] = totals[c].cast(out.dtype)

    parallel_for(out.dim(0) * channels * outer[0] * outer[1] * spans, row, grain=ceildiv(TASK, outer[2] * 4 + 16))
