"""Computes convolutions.

Tensors are (batch, places, channels), or (batch, channels, places) where `first` is true; places have one to three
axes, and `stride`, `dilation`, `before` are tuples of whole numbers, one for each. A convolution is a product of
matrices, of which one is gathered while it is packed (see `products`): the places of the result are its rows, or its
columns where the channels come first, and taps and channels its inner axis. Where each channel has filters of its own,
windows slide over it instead.

Sums run in float32 for half types, in the elements' own dtype otherwise.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    DeviceContext,
    Element,
    Floating,
    Index,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    ceildiv,
    compiled_for,
    foreach,
    int64,
    max,
    min,
    parallel_for,
    register,
    stack,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.products import DEPTH, PANELS, blocked_product, fill_step, panel_at, times_plus
from ..algorithms.rows import TASK
from ..algorithms.windows import padded_windows, three_axes, window_shape, windows

T = TypeVar("T", bound=Numeric)
E = TypeVar("E", bound=Element)

STRIP = 16  # rows of a strip, at most


@register("pad_places", writes_once=True, reads={"x": 1})
def pad_places(
    out: OutputTensor[E, "*t"],
    x: InputTensor[E, "*s"],
    ctx: DeviceContext,
    *,
    before: tuple[int, ...],
    leading: int,
    trailing: int,
) -> None:
    """x with zeros around its places: all axes but so many in front, and behind."""
    at, count = leading, x.rank - leading - trailing
    by = before

    def lies(i: tuple[Index, ...], axes: int):
        """Whether a place along the first axes of places lies in x, and the index of x up to there."""
        there = True
        index: tuple[Any, ...] = i[:at]
        for k in unroll(axes):
            place = i[at + k] - by[k]
            there = there & (place >= 0) & (place < x.dim(at + k))
            index = (*index, place)
        return there, index

    def element(i: tuple[Index, ...]):
        there, index = lies(i, count)
        return x[(*index, *i[at + count :])] if there else E(0)

    def row(task: Index):
        i = unravelled(task, out.shape[:-1])
        there, index = lies(i, count - 1)
        low, size = by[count - 1], x.dim(-1)
        if there:
            for j in range(low):
                out[(*i, j)] = E(0)
            for j in range(size):
                out[(*i, low + j)] = x[(*index, j)]
            for j in range(low + size, out.dim(-1)):
                out[(*i, j)] = E(0)
        else:
            for j in range(out.dim(-1)):
                out[(*i, j)] = E(0)

    if ctx.target.is_gpu or trailing > 0:
        foreach(out, element)
    else:
        parallel_for(product(out.shape[:-1]), row, grain=ceildiv(TASK, out.dim(-1) + 16))


@register("conv", writes_once=True)
def conv(
    out: OutputTensor[T, "*t"],
    x: InputTensor[T, "*s"],
    filter: InputTensor[T, "*k"],
    ctx: DeviceContext,
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    first: bool,
) -> None:
    """The convolution of padded images with a filter (taps, channels, results) or (results, channels, taps).

    The results are cut into as many groups as the channels of x; each group sees its own channels.
    """
    wide = wide_dtype(T)
    strides, dilations = three_axes(stride), three_axes(dilation)
    if ctx.target.is_gpu:
        _by_thread(out, x, filter, wide, strides, dilations, groups, first)
    elif first:
        _channels_first(out, x, filter, wide, strides, dilations, groups)
    else:
        _channels_last(out, x, filter, wide, strides, dilations, groups)


def _channels_last(
    out: AnyTensor,
    x: AnyTensor,
    filter: AnyTensor,
    wide: AnyDType,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
) -> None:
    """Rows are places. Along a row what lies side by side is copied at once: all channels of all taps of a row of the
    window, or the channels of one tap."""
    d, h, w = three_axes(x.shape[1:-1])
    channels = x.dim(-1)
    taps = three_axes(filter.shape[:-2])
    each, results = filter.dim(-2), filter.dim(-1) // groups
    merged = groups == 1 and dilations[2] == 1
    run = taps[2] * each if merged else each
    places = (out.dim(0), *three_axes(out.shape[1:-1]))
    sizes = (groups, product(places), results, product(taps) * each)

    def row_at(row: Index):
        """The position in x of the first element that a place of the result sees."""
        n, a, b, c = unravelled(row, places)
        return (((n * d + a * strides[0]) * h + b * strides[1]) * w + c * strides[2]) * channels

    def run_at(group: Index, number: Index):
        """How far from there a run of elements begins."""
        i, j, k = unravelled(number * taps[2] if merged else number, taps)
        return ((i * dilations[0] * h + j * dilations[1]) * w + k * dilations[2]) * channels + group * each

    def fill_strip(strip: AnyTensor, group: Index, row: Index, rows: Index, first: Index, steps: Index):
        starts = stack[int64](STRIP, zeroed=False)
        for i in range(rows):
            starts[i] = row_at(row + i)
        for number in range(first // run, ceildiv(first + steps, run)):
            low, high = max(number * run, first), min((number + 1) * run, first + steps)
            base = run_at(group, number) + low - number * run
            for i in range(rows):
                for k in range(high - low):
                    strip[i * DEPTH + low - first + k] = x.at(starts[i] + base + k).cast(wide)

    def fill_slab(slab: AnyTensor, width: int, group: Index, column: Index, columns: Index, first: Index, steps: Index):
        for k in range(steps):
            index = unravelled(first + k, (*filter.shape[:-2], each))
            left = group * results + column
            fill_step(
                slab, k, 0, columns, width, lambda j, index=index, left=left: filter[(*index, left + j)].cast(wide)
            )

    def store_row(group: Index, row: Index, column: Index, columns: Index, sums: AnyTensor, at: Index):
        n, a, b, c = unravelled(row, places)
        lead = (n, *(a, b, c)[3 - (out.rank - 2) :])
        left = group * results + column
        for j in range(columns):
            out[(*lead, left + j)] = sums[at + j].cast(T)

    blocked_product(sizes, wide, fill_strip, fill_slab, store_row)


def _channels_first(
    out: AnyTensor,
    x: AnyTensor,
    filter: AnyTensor,
    wide: AnyDType,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
) -> None:
    """Columns are places. A vector of them is copied at once where they see elements that lie side by side."""
    d, h, w = three_axes(x.shape[2:])
    channels = x.dim(1)
    taps = three_axes(filter.shape[2:])
    each, results = filter.dim(1), filter.dim(0) // groups
    places = three_axes(out.shape[2:])
    depth = product(taps) * each
    sizes = (out.dim(0) * groups, results, product(places), depth)
    lanes = max(compiled_for().vector_bits // wide.bits, 1)

    def fill_strip(strip: AnyTensor, batch: Index, row: Index, rows: Index, first: Index, steps: Index):
        for i in range(rows):
            start = ((batch % groups) * results + row + i) * depth + first
            for k in range(steps):
                strip[i * DEPTH + k] = filter.at(start + k).cast(wide)

    def fill_slab(slab: AnyTensor, width: int, batch: Index, column: Index, columns: Index, first: Index, steps: Index):
        start = (batch // groups * channels + batch % groups * each) * (d * h * w)
        seen = stack[int64](PANELS * 2 * 16, zeroed=False)  # where each column begins to see
        from_there = stack[int64](DEPTH, zeroed=False)  # and how far from there each step is
        padded = ceildiv(columns, width) * width
        for j in range(padded):
            a, b, c = unravelled(column + min(j, columns - 1), places)
            seen[j] = start + (a * strides[0] * h + b * strides[1]) * w + c * strides[2]
        furthest = Int(0)
        for k in range(steps):
            channel, a, b, c = unravelled(first + k, (each, *taps))
            from_there[k] = ((channel * d + a * dilations[0]) * h + b * dilations[1]) * w + c * dilations[2]
            furthest = max(furthest, from_there[k])
        for v in range(padded // lanes):
            at = panel_at(0, v * lanes, width)
            left = seen[v * lanes]
            apart = _apart(seen, v * lanes, lanes)
            if (apart == 1) | (lanes == 1):
                for k in range(steps):
                    slab.store(x.at(left + from_there[k], width=lanes).cast(wide), at + k * width)
            elif (apart == 2) & (left + furthest + 2 * lanes <= x.size):
                for k in range(steps):
                    both = x.at(left + from_there[k], width=2 * lanes)
                    slab.store(both.deinterleave()[0].cast(wide), at + k * width)
            else:
                for k in range(steps):
                    for j in range(lanes):
                        slab[at + k * width + j] = x.at(seen[v * lanes + j] + from_there[k]).cast(wide)

    def store_row(batch: Index, row: Index, column: Index, columns: Index, sums: AnyTensor, at: Index):
        channel = batch % groups * results + row
        end = column + columns
        done = column
        while done < end:
            a, b, c = unravelled(done, places)
            lead = (batch // groups, channel, *(a, b)[2 - (out.rank - 3) :])
            count = min(places[2] - c, end - done)
            for j in range(count):
                out[(*lead, c + j)] = sums[at + done - column + j].cast(T)
            done = done + count

    blocked_product(sizes, wide, fill_strip, fill_slab, store_row)


def _apart(seen: AnyTensor, first: Index, lanes: int) -> Any:
    """How far each of `lanes` numbers is from the one before it; 0 where that differs, or where there is one alone."""
    apart = seen[first + min(1, lanes - 1)] - seen[first]
    for j in range(1, lanes):
        apart = apart if seen[first + j] - seen[first + j - 1] == apart else int64(0)
    return apart


def _by_thread(
    out: AnyTensor,
    x: AnyTensor,
    filter: AnyTensor,
    wide: AnyDType,
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    groups: int,
    first: bool,
) -> None:
    """Each thread computes one element."""
    taps = three_axes(filter.shape[2:] if first else filter.shape[:-2])
    each = filter.dim(1) if first else filter.dim(-2)
    results = max((filter.dim(0) if first else filter.dim(-1)) // groups, 1)
    skipped = 3 - (x.rank - 2)

    def element(position: Index):
        index = unravelled(position, out.shape)
        result = index[1] if first else index[out.rank - 1]
        place = three_axes(index[2:] if first else index[1:-1], 0)
        total = wide(0)
        for i in range(taps[0]):
            for j in range(taps[1]):
                for k in range(taps[2]):
                    tap = (i, j, k)
                    there = tuple(place[t] * strides[t] + tap[t] * dilations[t] for t in unroll(3))
                    for c in range(each):
                        channel = result // results * each + c
                        if first:
                            a = x[(index[0], channel, *there[skipped:])]
                            b = filter[(result, c, *tap[skipped:])]
                        else:
                            a = x[(index[0], *there[skipped:], channel)]
                            b = filter[(*tap[skipped:], c, result)]
                        total = times_plus(a.cast(wide), b.cast(wide), total)
        out[index] = total.cast(out.dtype)

    parallel_for(out.size, element)


@register("depthwise_conv", writes_once=True)
def depthwise_conv(
    out: OutputTensor[T, "*t"],
    x: InputTensor[T, "*s"],
    filter: InputTensor[T, "*k"],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    first: bool,
) -> None:
    """The convolution of each channel of x with a filter of its own: (taps, 1, channels) or (channels, 1, taps)."""
    wide = wide_dtype(T)
    skipped = 3 - (x.rank - 2)

    def step(
        state: Floating,
        value: Floating,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
    ):
        if first:
            weight = filter[(channel, 0, *tap[skipped:])].cast(wide).broadcast(value.width)
        else:
            weight = filter.load(*tap[skipped:], 0, channel, width=value.width, mask=mask)
        return times_plus(value.cast(wide), weight.cast(wide), state)

    shape = window_shape(filter.shape[2:] if first else filter.shape[:-2], stride, dilation, before)
    padded_windows(
        out,
        x,
        shape,
        first,
        lambda width: SIMD[wide, width](0),
        step,
        lambda state, place: state.cast(T),
        outside=T(0),
    )


@register("grouped_conv", writes_once=True)
def grouped_conv(
    out: OutputTensor[T, "*t"],
    x: InputTensor[T, "*s"],
    filter: InputTensor[T, "*k"],
    *,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    first: bool,
    each: int,
) -> None:
    """The convolution of groups of `each` channels with as many filters: (taps, each, channels) or (channels, each,
    taps). There is too little in a group for a product of matrices, so windows slide here, too."""
    wide = wide_dtype(T)
    skipped = 3 - (x.rank - 2)

    def step(
        state: Floating,
        value: Floating,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
        number: int,
    ):
        if first:
            weight = filter[(channel, number, *tap[skipped:])].cast(wide).broadcast(value.width)
        else:
            weight = filter.load(*tap[skipped:], number, channel, width=value.width, mask=mask)
        return times_plus(value.cast(wide), weight.cast(wide), state)

    shape = window_shape(filter.shape[2:] if first else filter.shape[:-2], stride, dilation, before)
    windows(out, x, shape, first, lambda width: SIMD[wide, width](0), step, lambda state, place: state.cast(T), each)
