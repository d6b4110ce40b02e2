"""Reads images between their elements: at the places of a grid, and in boxes.

Half types are computed in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Element,
    Float64,
    Floating,
    Index,
    InputTensor,
    Int,
    Int64,
    OutputTensor,
    abs,
    ceil,
    ceildiv,
    compiled_for,
    floor,
    fma,
    int64,
    max,
    min,
    parallel_for,
    register,
    round,
    select,
    stack,
    struct,
    unroll,
    vectorize,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.rows import TASK

F = TypeVar("F", bound=Floating)

CUBIC = -0.75
COMPARED_BOXES = 256  # kept boxes that others are compared with as vectors


@register("affine_grid", writes_once=True)
def affine_grid(out: OutputTensor[F, "*t"], theta: InputTensor[F, "n d (d + 1)"], *, corners: bool) -> None:
    """The places (x, y) or (x, y, z), from -1 to 1, that an affine map gives for the places of the result."""
    wide = wide_dtype(F)
    axes = out.rank - 2

    def place(at: Index, size: Index):
        k, n = Int(at).cast(wide), Int(size).cast(wide)
        return select(size > 1, 2 * k / max(n - 1, 1) - 1, 0) if corners else (2 * k + 1) / n - 1

    def row(task: Index):
        index = unravelled(task, out.shape[:-2])
        starts: Any = ()
        for r in unroll(axes):
            start = theta[index[0], r, axes].cast(wide)
            for k in unroll(1, axes):
                start = fma(theta[index[0], r, k].cast(wide), place(index[axes - k], out.dim(axes - k)), start)
            starts = (*starts, start)
        for x in range(out.dim(axes)):
            for r in unroll(axes):
                slope = theta[index[0], r, 0].cast(wide)
                out[(*index, x, r)] = fma(slope, place(x, out.dim(axes)), starts[r]).cast(F)

    parallel_for(product(out.shape[:-2]), row, grain=ceildiv(TASK, 8 * out.dim(axes) + 16))


@register("grid_sample", writes_once=True)
def grid_sample(
    out: OutputTensor[F, "*t"],
    x: InputTensor[F, "*s"],
    grid: InputTensor[F, "*g"],
    *,
    mode: str,
    padding: str,
    corners: bool,
) -> None:
    """Images (batch, channels, places) at the places of a grid (batch, places, axes), which go from -1 to 1.

    `mode` is nearest, linear or cubic; `padding`, what lies outside, is zeros, border or reflection.
    """
    wide = wide_dtype(F)
    axes = x.rank - 2
    each = 4 if mode == "cubic" else 1 if mode == "nearest" else 2
    count = each**axes
    sizes = out.shape[2:]

    def prepare(batch: Index, index: tuple[Index, ...], places: AnyTensor, weights: AnyTensor):
        def place(k: int):
            return _unscaled(grid[(batch, *index, axes - 1 - k)].cast(wide), x.dim(2 + k), corners)

        find_neighbours(x, place, places, weights, each, mode, padding, corners)

    if compiled_for().is_gpu:

        def one(position: Index):
            index = unravelled(position, out.shape)
            places, weights = stack[int64](count, zeroed=False), stack[wide](count, zeroed=False)
            prepare(index[0], index[2:], places, weights)
            out[index] = sum_of_neighbours(x, index[0], index[1], places, weights, count)

        parallel_for(out.size, one)
    else:

        def place(task: Index):
            index = unravelled(task, (out.dim(0), *sizes))
            places, weights = stack[int64](count, zeroed=False), stack[wide](count, zeroed=False)
            prepare(index[0], index[1:], places, weights)
            for c in range(out.dim(1)):
                out[(index[0], c, *index[1:])] = sum_of_neighbours(x, index[0], c, places, weights, count)

        work = 16 * count + out.dim(1) * count
        parallel_for(out.dim(0) * product(sizes), place, grain=ceildiv(TASK, work + 16))


def sum_of_neighbours(
    x: AnyTensor, batch: Index, channel: Index, places: AnyTensor, weights: AnyTensor, count: int
) -> Floating:
    """The sum of as many neighbours of a channel, times their weights; see `find_neighbours`."""
    base = (batch * x.dim(1) + channel) * product(x.shape[2:])
    total: Floating = weights.dtype(0)
    for t in unroll(count):
        if places[t] >= 0:
            total = fma(x.at(base + places[t]).cast(weights.dtype), weights[t], total)
    result: Floating = total.cast(x.dtype)
    return result


def find_neighbours(
    x: AnyTensor,
    place_along: Callable[[int], Floating],
    places: AnyTensor,
    weights: AnyTensor,
    each: int,
    mode: str,
    padding: str,
    corners: bool,
) -> None:
    """Stores where each neighbour of a place lies in a channel, -1 for outside, and its weight.

    Args:
        x: images (batch, channels, places).
        place_along: the place along each axis, in elements.
        each: how many neighbours there are along an axis.
        mode, padding, corners: see `grid_sample`.
    """
    wide = weights.dtype
    axes = x.rank - 2
    count = each**axes
    for t in unroll(count):
        places[t] = 0
        weights[t] = wide(1)
    for k in unroll(axes):
        n = x.dim(2 + k)
        place = place_along(k)
        if mode != "cubic":
            place = _brought_in(place, n, padding, corners)
        low = round(place) if mode == "nearest" else floor(place)
        near = low.cast(int64)
        for t in unroll(count):
            tap = t // each ** (axes - 1 - k) % each - (1 if mode == "cubic" else 0)
            at = near + tap
            if mode == "cubic":
                at = _brought_in(Int(at).cast(wide), n, padding, corners).cast(int64)
                weights[t] = weights[t] * _cubic(place - low - wide(tap))
            elif mode == "linear":
                weights[t] = weights[t] * (place - low if tap == 1 else 1 - (place - low))
            there = (at >= 0) & (at < n) & (places[t] >= 0)
            places[t] = select(there, places[t] * n + at, -1)


def _unscaled(g: Floating, n: Index, corners: bool) -> Any:
    """The place among n elements of a number from -1 to 1."""
    size = Int(n).cast(g.dtype)
    return (g + 1) / 2 * (size - 1) if corners else ((g + 1) * size - 1) / 2


def _brought_in(place: Floating, n: Index, padding: str, corners: bool) -> Any:
    """The place that stands for one outside; the first one for NaN, and where an infinite one is reflected."""
    last = Int(n - 1).cast(place.dtype)
    if padding == "zeros":
        return place
    if padding == "border":
        return min(max(select(place == place, place, 0), 0), last)
    low, length = (place.dtype(0), last) if corners else (place.dtype(-0.5), last + 1)
    span = max(length, 1)
    far = abs(place - low)
    turns = floor(far / span)
    rest = far - turns * span
    even = floor(turns / 2) * 2 == turns
    back = select(even, rest + low, span - rest + low)
    return min(max(select((length > 0) & (back == back), back, 0), 0), last)


def _cubic(distance: Floating) -> Any:
    """The weight of a neighbour at this distance."""
    d = abs(distance)
    near = ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
    far = ((CUBIC * d - 5 * CUBIC) * d + 8 * CUBIC) * d - 4 * CUBIC
    return select(d <= 1, near, select(d < 2, far, 0))


@register("roi_align", writes_once=True)
def roi_align(
    out: OutputTensor[F, "r height width c"],
    x: InputTensor[F, "n h w c"],
    rois: InputTensor[F, "r 5"],
    *,
    height: int,
    width: int,
    scale: float,
    ratio: int,
    aligned: bool,
    largest: bool,
) -> None:
    """Boxes of images, each cut into as many cells: the mean, or the largest, of samples of a cell.

    A box is (batch, x1, y1, x2, y2), in pixels after `scale`. `ratio` samples along each axis of a cell; 0 for as many
    as it has pixels. Of the largest, each of the four neighbours of a sample counts by itself, times its weight.
    """
    wide = wide_dtype(F)
    lanes = max(compiled_for().vector_bits // wide.bits, 1)

    def pooled(r: Index, ph: Index, pw: Index, channel: Index, lane: int, mask: Element):
        batch = _image_of(rois, r, x.dim(0))
        first_y, step_y, rows = _samples(rois[r, 2], rois[r, 4], ph, height, wide, scale, ratio, aligned)
        first_x, step_x, columns = _samples(rois[r, 1], rois[r, 3], pw, width, wide, scale, ratio, aligned)
        total = SIMD[wide, lane](-inf if largest else 0)
        for a in range(rows):
            ys = _neighbours(first_y + (Int(a).cast(wide) + 0.5) * step_y, x.dim(1))
            for b in range(columns):
                zs = _neighbours(first_x + (Int(b).cast(wide) + 0.5) * step_x, x.dim(2))
                for t in unroll(4):
                    y, v = ys[t // 2]
                    z, w = zs[t % 2]
                    value = x.load(batch, y, z, channel, width=lane, mask=mask).cast(wide) * (v * w)
                    total = max(total, value) if largest else total + value
        if largest:
            return select(rows * columns > 0, total, 0)
        return total / max(rows * columns, 1).cast(wide)

    if compiled_for().is_gpu:

        def one(position: Index):
            index = unravelled(position, out.shape)
            out[index] = pooled(index[0], index[1], index[2], index[3], 1, True).cast(F)

        parallel_for(out.size, one)
    else:

        def cell(task: Index):
            r, ph, pw = unravelled(task, (out.dim(0), height, width))

            def some(channel: Index, lane: int, mask: Element):
                out.store(pooled(r, ph, pw, channel, lane, mask).cast(F), r, ph, pw, channel, mask=mask)

            vectorize(out.dim(3), lanes, some, masked=True)

        parallel_for(out.dim(0) * height * width, cell, grain=ceildiv(TASK, out.dim(3) * 16 + 64))


def _samples(
    low: Floating, high: Floating, cell: Index, cells: int, wide: AnyDType, scale: float, ratio: int, aligned: bool
) -> tuple[Any, Any, Any]:
    """Where the samples of a cell begin along an axis of a box, how far they lie apart, and how many there are."""
    offset = 0.5 if aligned else 0.0
    start = low.cast(wide) * scale - offset
    length = high.cast(wide) * scale - offset - start
    size = (length if aligned else max(length, 1)) / cells
    count: Any = Int(ratio) if ratio > 0 else max(ceil(size).cast(int64), 0)
    return start + size * Int(cell).cast(wide), size / Int(count).cast(wide), count


def _image_of(rois: AnyTensor, r: Index, images: Index) -> Index:
    """The image that a box is of."""
    batch: Index = rois[r, 0].cast(int64)
    assert (batch >= 0) & (batch < images), f"box {r} is of image {batch}, and there are {images}"
    return batch


def _neighbours(place: Floating, n: Index) -> Any:
    """((place, weight), (place, weight)) of the two neighbours among n; weights are 0 for what lies outside."""
    there = (place >= -1) & (place <= Int(n).cast(place.dtype))
    inside = max(place, 0)
    low = min(inside.cast(int64), n - 1)
    high = min(low + 1, n - 1)
    part = select(inside >= Int(n - 1).cast(place.dtype), 0, inside - floor(inside))
    return (low, select(there, 1 - part, 0)), (high, select(there, part, 0))


@register("roi_max_pool", writes_once=True)
def roi_max_pool(
    out: OutputTensor[F, "r c height width"],
    x: InputTensor[F, "n c h w"],
    rois: InputTensor[F, "r 5"],
    *,
    height: int,
    width: int,
    scale: float,
) -> None:
    """The largest element of each cell of boxes, which are rounded to whole pixels; 0 of a cell outside of the image.

    A box is (batch, x1, y1, x2, y2), in pixels after `scale`.
    """
    wide = wide_dtype(F)

    def pooled(r: Index, c: Index, ph: Index, pw: Index):
        batch = _image_of(rois, r, x.dim(0))
        top, bottom = _cell(rois[r, 2].cast(wide) * scale, rois[r, 4].cast(wide) * scale, ph, height, x.dim(2))
        left, right = _cell(rois[r, 1].cast(wide) * scale, rois[r, 3].cast(wide) * scale, pw, width, x.dim(3))
        best = wide(-inf)
        for y in range(top, bottom):
            for z in range(left, right):
                value = x[batch, c, y, z].cast(wide)
                best = select(value > best, value, best)
        return select((bottom > top) & (right > left), best, 0).cast(F)

    def one(position: Index):
        index = unravelled(position, out.shape)
        out[index] = pooled(*index)

    parallel_for(out.size, one, grain=ceildiv(TASK, 64))


def _cell(low: Floating, high: Floating, cell: Index, cells: int, n: Index) -> tuple[Index, Index]:
    """The first element of a cell of a box along an axis of n, and the one behind the last."""
    wide = low.dtype
    first, last = _rounded(low), _rounded(high)
    size = max(last - first + 1, 1) / cells
    begin = first + floor(size * Int(cell).cast(wide))
    end = first + ceil(size * Int(cell + 1).cast(wide))
    most = Int(n).cast(wide)
    return min(max(begin, 0), most).cast(int64), min(max(end, 0), most).cast(int64)


def _rounded(place: Floating) -> Floating:
    """The nearest whole number, halves away from 0."""
    whole: Floating = select(place < 0, -floor(0.5 - place), floor(place + 0.5))
    return whole


@register("nms_kept", fuse=False)
def nms_kept(
    out: OutputTensor[int64, "b k s"],
    boxes: InputTensor[F, "b s 4"],
    scores: InputTensor[F, "b k s"],
    *,
    most: int,
    overlap: float,
    least: float,
    bounded: bool,
    center: bool,
) -> None:
    """The boxes of each image and class that are kept, best first, and -1 behind them.

    The box with the largest score is kept, unless it overlaps one that is kept already by more than `overlap`; and so
    on, until there are `most`. With `bounded` only scores above `least` count.
    """
    _keep(out, boxes, scores, BoxLimits(most, overlap, least, bounded), center, wide_dtype(F))


@register("nms_kept_within", fuse=False)
def nms_kept_within(
    out: OutputTensor[int64, "b k s"],
    boxes: InputTensor[F, "b s 4"],
    scores: InputTensor[F, "b k s"],
    most: Int64,
    overlap: Float64,
    least: Float64,
    *,
    bounded: bool,
    center: bool,
) -> None:
    """The same with limits that come with the call."""
    wide = wide_dtype(F)
    _keep(out, boxes, scores, BoxLimits(most, overlap.cast(wide), least.cast(wide), bounded), center, wide)


@struct
class BoxLimits:
    """Which boxes are kept: `most`, whose overlap is `overlap` at most; with `bounded` only scores above `least`."""

    most: Index
    overlap: Floating
    least: Floating
    bounded: bool


def _keep(
    out: AnyTensor,
    boxes: AnyTensor,
    scores: AnyTensor,
    limits: BoxLimits,
    center: bool,
    wide: AnyDType,
) -> None:
    lanes = max(compiled_for().vector_bits // wide.bits, 1)

    def one_class(task: Index):
        batch, k = unravelled(task, (out.dim(0), out.dim(1)))
        n = out.dim(2)
        left: Any = Int(0)  # candidates are a heap in out[:left], and the kept ones lie from the end on
        for s in range(n if limits.most > 0 else 0):
            score = scores[batch, k, s].cast(wide)
            if (score > limits.least) if limits.bounded else score == score:
                out[batch, k, left] = s
                left = left + 1
        for half in range(left // 2):
            _sift(out, scores, batch, k, left // 2 - 1 - half, left)
        kept: Any = Int(0)
        near = stack[wide](4 * COMPARED_BOXES)  # the first that are kept, side by side; boxes of 0 share nothing
        while left > 0 and kept < limits.most:
            best = out[batch, k, 0]
            left = left - 1
            out[batch, k, 0] = out[batch, k, left]
            _sift(out, scores, batch, k, 0, left)
            result = _corners(boxes, batch, best, wide, center)
            free = True
            for first in range(0, min(kept, COMPARED_BOXES), lanes):
                others = tuple(near.load(side * COMPARED_BOXES + first, width=lanes) for side in unroll(4))
                if _share_more(others, result, limits.overlap).reduce_or():
                    free = False
                    break
            if free:
                for other in range(COMPARED_BOXES, kept):
                    if _share_more(
                        _corners(boxes, batch, out[batch, k, n - 1 - other], wide, center), result, limits.overlap
                    ):
                        free = False
                        break
            if free:
                if kept < COMPARED_BOXES:
                    for side in unroll(4):
                        near[side * COMPARED_BOXES + kept] = result[side]
                out[batch, k, n - 1 - kept] = best
                kept = kept + 1
        _turn_round(out, batch, k, kept)

    parallel_for(out.dim(0) * out.dim(1), one_class)


def _turn_round(out: AnyTensor, batch: Index, k: Index, kept: Index) -> None:
    """Brings the kept ones, which lie from the end on, to the front, and writes -1 behind them."""
    n = out.dim(2)
    for s in range(min(kept, n // 2)):
        first = out[batch, k, n - 1 - s]
        if s >= n - kept:  # a kept one lies there, too
            out[batch, k, n - 1 - s] = out[batch, k, s]
        out[batch, k, s] = first
    for rest in range(kept, n):
        out[batch, k, rest] = int64(-1)


def _sift(out: AnyTensor, scores: AnyTensor, batch: Index, k: Index, top: Index, count: Index) -> None:
    """Moves a place of a heap down until it is before both that follow: larger scores first, and of equal ones the
    smaller place."""
    at: Any = Int(top)
    down = 2 * at + 1 < count
    while down:
        child: Any = 2 * at + 1
        if child + 1 < count:
            child = child + 1 if _is_before(scores, batch, k, out[batch, k, child + 1], out[batch, k, child]) else child
        mine, best = out[batch, k, at], out[batch, k, child]
        down = _is_before(scores, batch, k, best, mine)
        if down:
            out[batch, k, at], out[batch, k, child] = best, mine
            at = child
            down = 2 * at + 1 < count


def _is_before(scores: AnyTensor, batch: Index, k: Index, one: Index, other: Index) -> Any:
    a, b = scores[batch, k, one], scores[batch, k, other]
    return (a > b) | ((a == b) & (one < other))


def _corners(boxes: AnyTensor, batch: Index, box: Index, wide: AnyDType, center: bool) -> Any:
    """The least coordinates of a box, and the largest ones."""
    a, b = boxes[batch, box, 0].cast(wide), boxes[batch, box, 1].cast(wide)
    c, d = boxes[batch, box, 2].cast(wide), boxes[batch, box, 3].cast(wide)
    if center:
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return min(a, c), min(b, d), max(a, c), max(b, d)


def _share_more(one: tuple[Floating, ...], other: tuple[Floating, ...], part: Floating) -> Any:
    """Whether two boxes share more than this part of what they cover."""
    shared = max(min(one[2], other[2]) - max(one[0], other[0]), 0) * max(
        min(one[3], other[3]) - max(one[1], other[1]), 0
    )
    areas = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
    return (shared > 0) & (shared > (areas - shared) * part)


@register("nms_listed", fuse=False)
def nms_listed(out: OutputTensor[int64, "count 3"], kept: InputTensor[int64, "b k s"]) -> None:
    """(image, class, box) of all boxes that are kept."""
    at = Int(0)
    for batch in range(kept.dim(0)):
        for k in range(kept.dim(1)):
            for s in range(kept.dim(2)):
                if kept[batch, k, s] < 0:
                    break
                out[at, 0], out[at, 1], out[at, 2] = Int(batch), Int(k), kept[batch, k, s]
                at += 1


@nms_listed.shape
def nms_listed_shape(kept: InputTensor[int64, "b k s"]):
    count = Int(0)
    for batch in range(kept.dim(0)):
        for k in range(kept.dim(1)):
            for s in range(kept.dim(2)):
                if kept[batch, k, s] < 0:
                    break
                count += 1
    return count
