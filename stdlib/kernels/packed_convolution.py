"""Computes convolutions of images (batch, channels, places) with filters that were packed when the model was loaded.

    split_places(x) --> conv_packed(split, strips)

`split_places` pads an image and sorts its places into planes (`algorithms.planes`), of which a tap of the filter sees
neighbours for the places of the result. The rows of a plane are a little longer than those of the result; what is
computed for the places between is not stored.

The filter lies in strips of some results: for each channel and tap their weights side by side. Tiles are those of
`matmul`, and sums are taken in the order of `conv`: the bits are the same.

Where results are computed in pairs, the planes are those of `split_pairs`; see `paired_convolution`.

See also `pack_filters` of the graph (which convolutions are packed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyTensor,
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    Parts,
    ceildiv,
    compiled_for,
    int64,
    iota,
    max,
    min,
    parallel_for,
    register,
    scratch,
    stack,
    unroll,
)
from ..algorithms.algorithm import product, unravelled
from ..algorithms.pairs import FACTORS, add_factors
from ..algorithms.planes import fill_plane, planes_of, seen_by
from ..algorithms.products import DEPTH, TASKS, VECTORS, WORK, times_plus
from ..algorithms.register_tiles import add_tile
from ..algorithms.rows import TASK
from ..algorithms.windows import three_axes

T = TypeVar("T", bound=Numeric)
N = TypeVar("N", bound=Numeric)

PANELS = 8  # panels of a block of columns
MOST_PLACES, FEW_PLACES = 12, 4  # of a tile of results
STRIPS = 6  # that are computed of a panel, one after the other
PANEL = 32  # places behind the last plane that may be read


@register("pack_filter", writes_once=True)
def pack_filter(out: OutputTensor[T, "p k r"], filter: InputTensor[N, "*f"], *, groups: int) -> None:
    """A filter (results, channels, taps) in strips of `r` results of one group, zeros behind the last one."""
    strips, depth, rows = out.shape
    results = filter.dim(0) // groups
    each = strips // groups

    def strip(s: Index):
        first = s % each * rows
        for i in range(rows):
            start = (s // each * results + first + i) * depth
            for k in range(depth):
                out[s, k, i] = filter.at(start + k).cast(T) if first + i < results else T(0)

    parallel_for(strips, strip, grain=ceildiv(WORK, depth * rows + 16))


@register("split_places", reads={"x": 1})
def split_places(
    out: OutputTensor[T, "n l"],
    x: InputTensor[T, "*s"],
    *,
    taps: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    """The places of each channel of x, with zeros around them, in one plane for each phase; zeros behind the last."""
    axes = x.rank - 2
    counts, strides = three_axes(taps), three_axes(stride)
    dilations = three_axes(dilation)
    low, high = three_axes(before, 0), three_axes(after, 0)
    inner = three_axes(x.shape[2:])
    places = tuple(
        (inner[t] + low[t] + high[t] - (counts[t] - 1) * dilations[t] - 1) // strides[t] + 1 for t in unroll(3)
    )
    phases, sizes = planes_of(places, counts, strides, dilations)
    planes = product(phases) * x.dim(1)

    def plane(task: Index):
        n, number = task // planes, task % planes
        channel, u, v, w = unravelled(number, (x.dim(1), *phases))
        there = out.pointer(n, 0)

        def put(at: Index, value: Numeric):
            there[number * product(sizes) + at] = value

        def element(i: Index, j: Index, k: Index):
            return x[(n, channel, *(i, j, k)[3 - axes :])]

        fill_plane(put, element, (u, v, w), sizes, inner, strides, low, T(0))
        if number == planes - 1:
            for k in range(planes * product(sizes), out.dim(1)):
                there[k] = T(0)

    parallel_for(out.dim(0) * planes, plane, grain=ceildiv(TASK, product(sizes) + 16))


@register("conv_packed", writes_once=True)
def conv_packed(
    out: OutputTensor[N, "*t"],
    x: InputTensor[T, "*s"],
    strips: InputTensor[T, "p k r"],
    *,
    taps: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    rows: int,
    direct: bool,
    small: str,
    pairs: bool,
) -> None:
    """The convolution of split images with a filter in strips of `rows` results.

    Args:
        direct: whether the images are not split.
        pairs: whether they are split by `split_pairs`, and the filter is packed by `pack_pairs`.
        small: "yes" or "no", whether a result has few places; "" where the call decides.

    Integers may be images and weights of floats whose sums of `DEPTH` products are exact, if no result has few places.
    """
    window = ((*taps[:-1], 1) if pairs else taps, stride, dilation)
    kind = "pairs" if pairs else "direct" if direct else "split"
    if small == "yes":
        _by_results(out, x, strips, window, groups, rows)
    elif small == "no":
        _by_places(out, x, strips, window, groups, rows, kind)
    elif product(out.shape[2:]) <= rows + rows // 2:
        _by_results(out, x, strips, window, groups, rows)
    else:
        _by_places(out, x, strips, window, groups, rows, kind)


def _by_places(
    out: AnyTensor,
    x: AnyTensor,
    strips: AnyTensor,
    window: tuple[tuple[int, ...], ...],
    groups: int,
    rows: int,
    kind: str,
) -> None:
    """Vectors hold neighbouring places of a result, or pairs of these; `kind` is "direct", "split" or "pairs"."""
    planes = _planes_seen(out, window, kind)
    places, sizes = planes[0], planes[5]
    factors = FACTORS if kind == "pairs" else 1
    depth, each = strips.dim(1), strips.dim(0) // (groups * factors)  # strips of a group
    width = VECTORS * _lanes(out)
    breadth = _panels(kind) * width
    total = max(((places[0] - 1) * sizes[1] + places[1] - 1) * sizes[2] + places[2], 0)
    batches = out.dim(0) * groups
    column_blocks = max(ceildiv(total, breadth), 1)
    wanted = min(batches * out.dim(1) // groups * total * depth * factors // (1 << 20), TASKS)
    strip_blocks = max(min(ceildiv(wanted, max(batches * column_blocks, 1)), each), 1)
    height = ceildiv(each, strip_blocks)

    def block(task: Index):
        batch, column_block, strip_block = unravelled(task, (batches, column_blocks, strip_blocks))
        first_column, first_strip = column_block * breadth, strip_block * height
        columns = (first_column, min(total - first_column, breadth), total)
        own = (first_strip, min(first_strip + height, each), each)
        _compute_block(out, x, strips, (batch // groups, batch % groups, groups), columns, own, planes, (rows, kind))

    parallel_for(batches * column_blocks * strip_blocks, block, grain=ceildiv(WORK, rows * height * depth * width + 16))


def _planes_seen(out: AnyTensor, window: tuple[tuple[int, ...], ...], kind: str) -> tuple[Parts, ...]:
    """The places of a result, of pairs where it is computed in these, and the taps, strides and dilations of a window,
    three numbers each; then how many phases there are, and the sizes of a plane."""
    taps, stride, dilation = three_axes(window[0]), three_axes(window[1]), three_axes(window[2])
    last = three_axes(out.shape[2:])
    places = (last[0], last[1], ceildiv(last[2], 2 if kind == "pairs" else 1))
    return (places, taps, stride, dilation, *planes_of(places, taps, stride, dilation))


def _lanes(x: AnyTensor) -> int:
    lanes: int = max(compiled_for().vector_bits // x.dtype.bits, 1)
    return lanes


def _panels(kind: str) -> int:
    """How many panels a block of columns has: fewer where four sums are held for each."""
    return PANELS // 2 if kind == "pairs" else PANELS


def _compute_block(
    out: AnyTensor,
    x: AnyTensor,
    strips: AnyTensor,
    batch: tuple[Index, Index, int],
    block: tuple[Index, Index, Index],
    own: tuple[Index, Index, Index],
    planes: tuple[Parts, ...],
    how: tuple[int, str],
) -> None:
    """Computes some strips of results for a block of columns.

    Args:
        out, x, strips: those of `conv_packed`.
        batch: the image, the group, and how many groups there are.
        block: the first column, how many, and how many the image has.
        own: the first strip, the one behind the last, and how many a group has.
        planes: what `_planes_seen` gives.
        how: the rows of a strip, and the kind.
    """
    T = out.dtype
    (n, group, groups), (first_column, columns, total), (rows, kind) = batch, block, how
    places, counts, strides, dilations, phases, sizes = planes
    depth, lanes = strips.dim(1), _lanes(out)
    channels, width, size = depth // product(counts), VECTORS * lanes, (rows, VECTORS, lanes)
    factors, pitch = FACTORS if kind == "pairs" else 1, _panels(kind) * width  # of a row of sums
    factor = groups * channels * product(phases) * product(sizes)  # from the planes of one factor to those of the next
    start = n * (x.size // max(out.dim(0), 1)) + group * channels * product(phases) * product(sizes)
    offsets = scratch[int64](depth)
    sums = stack[T](STRIPS * factors * rows * pitch, zeroed=False)
    finished = stack[T](rows * PANELS * width, zeroed=False) if kind == "pairs" else sums
    _fill_offsets(offsets, channels, counts, strides, dilations, phases, sizes)
    # A panel that is read from many places stays near for some strips; few steps do not pay for so many sums.
    together = STRIPS if kind != "direct" and depth >= DEPTH // 2 else 1

    def seen_at(k: Index):
        return k * product(sizes) if kind == "direct" else offsets[k]

    def vector(place: Index, k: Index):
        """A vector of what a channel and tap see, from a place on."""
        if kind == "direct":
            return x.at(place + seen_at(k), width=lanes)
        return x.pointer(*_origin(x)).load(place + seen_at(k), width=lanes)

    def add_products(s: Index, count: Index, t: Index, seen: Index):
        """The sums of some strips for one factor, whose planes lie `seen` elements behind those of the first."""
        for first in range(0, depth, DEPTH):
            for column in range(first_column, first_column + columns, width):
                left = start + seen + _first_of(column, total, width)
                if s == own[0]:
                    _request_next(x, seen_at, (start, column, seen, first), block, depth, (factor, factors), lanes)
                for i in range(count):
                    strip, at = (t * groups + group) * own[2] + s + i, (i * factors + t) * rows * pitch
                    add_tile(
                        lambda k, v, left=left, first=first: vector(left + v * lanes, first + k),
                        lambda k, r, strip=strip, first=first: strips[strip, first + k, r],
                        (sums, pitch), at + column - first_column, first == 0, min(depth - first, DEPTH), size, x.dtype,
                    )  # fmt: skip

    for s in range(own[0], own[1], together):
        count = min(own[1] - s, together)
        for t in range(factors):
            add_products(s, count, t, t * factor)
        for i in range(count):
            if kind == "pairs":
                add_factors(finished, sums, i * FACTORS * rows, rows, pitch, lanes)
            at = 0 if kind == "pairs" else i * rows * pitch
            results = (group * (out.dim(1) // groups), (s + i) * rows, out.dim(1) // groups, rows)
            _store_strip(out, (finished, at), n, results, block, (*sizes, places[1]), 2 if kind == "pairs" else 1)


def _request_next(
    x: AnyTensor,
    seen_at: Callable[[Index], Parts],
    panel: tuple[Index, ...],
    block: tuple[Index, Index, Index],
    depth: Index,
    factors: tuple[Index, int],
    lanes: int,
) -> None:
    """Requests what the next panel sees: its lines lie in as many places as there are channels and taps.

    Of a panel it is the lines of the last elements of its vectors: those before end the panel before it.

    Args:
        x: the images.
        seen_at: how far from its place a step sees.
        panel: where an image begins in x, a column, where the planes of a factor begin in the image, and a step.
        block: as in `_compute_block`.
        depth: how many steps there are.
        factors: how far the planes of one are from those of the next, and how many there are.
        lanes: those of a vector.
    """
    start, column, seen, first = panel
    width = VECTORS * lanes
    is_last = column + width >= block[0] + block[1]
    next_first = first + DEPTH if is_last and first + DEPTH < depth else 0 if is_last else first
    ahead = start + seen + (block[0] if is_last else column + width) + lanes - 1
    if is_last and next_first == 0:
        ahead = ahead + (factors[0] if seen < (factors[1] - 1) * factors[0] else block[1] - seen)
    for k in range(next_first, min(next_first + DEPTH, depth)):
        place = ahead + seen_at(k)
        if is_last:
            x.pointer(*_origin(x)).prefetch(place - lanes)
        for v in unroll(VECTORS):
            x.pointer(*_origin(x)).prefetch(place + v * lanes)


def _by_results(
    out: AnyTensor,
    x: AnyTensor,
    strips: AnyTensor,
    window: tuple[tuple[int, ...], ...],
    groups: int,
    rows: int,
) -> None:
    """Vectors hold results of one place: for maps of so few places that vectors of places would be nearly empty.

    What places of all images see is copied, some places at a time; then each weight is loaded once for all of them.
    """
    T = out.dtype
    axes = out.rank - 2
    taps, stride, dilation = window
    places, counts = three_axes(out.shape[2:]), three_axes(taps)
    strides, dilations = three_axes(stride), three_axes(dilation)
    phases, sizes = planes_of(places, counts, strides, dilations)
    depth, each = strips.dim(1), strips.dim(0) // groups  # strips of a group
    channels, results = depth // product(counts), out.dim(1) // groups
    lanes = max(compiled_for().vector_bits // T.bits, 1)
    vectors = ceildiv(rows, lanes)  # of a strip
    image = x.size // max(out.dim(0), 1)
    total = out.dim(0) * product(places)
    blocks = ceildiv(total, MOST_PLACES)
    wanted = min(total * out.dim(1) * depth // (1 << 18), TASKS)
    parts = max(min(ceildiv(wanted, max(groups * blocks, 1)), ceildiv(each, 2)), 1)
    height = ceildiv(ceildiv(each, 2), parts) * 2  # strips of a part

    def block(task: Index):
        group, number, part = unravelled(task, (groups, blocks, parts))
        first_place = number * MOST_PLACES
        count = min(total - first_place, MOST_PLACES)
        offsets = scratch[int64](depth)
        seen = scratch[T](depth * MOST_PLACES)
        sums = stack[T](2 * vectors * lanes * MOST_PLACES, zeroed=False)
        _fill_offsets(offsets, channels, counts, strides, dilations, phases, sizes)
        for i in range(MOST_PLACES):
            n, a, b, c = unravelled(first_place + min(i, count - 1), (out.dim(0), *places))
            start = n * image + group * channels * product(phases) * product(sizes)
            there = x.pointer(*_origin(x)) + (start + (a * sizes[1] + b) * sizes[2] + c)
            for k in range(depth):
                seen.pointer(0)[k * MOST_PLACES + i] = there[offsets[k]]

        for s in range(part * height, min((part + 1) * height, each), 2):

            def weight(k: Index, v: int, s: Index = s):
                """Weights of a step: of a strip, then of the next; of the last one again where there is no other."""
                strip = group * each + min(s + v // vectors, each - 1)
                first = v % vectors * lanes
                return strips.load((strip, k, first), width=lanes, mask=iota(int64, lanes) < rows - first)

            for first in range(0, depth, DEPTH):
                steps = min(depth - first, DEPTH)
                if count <= FEW_PLACES:
                    _tile_of_results(seen, weight, sums, first, steps, FEW_PLACES, vectors, lanes)
                else:
                    _tile_of_results(seen, weight, sums, first, steps, MOST_PLACES, vectors, lanes)
            for i in range(count):
                n, a, b, c = unravelled(first_place + i, (out.dim(0), *places))
                for t in range(2):
                    for j in range(min(results - (s + t) * rows, rows)):
                        index = (n, group * results + (s + t) * rows + j, *(a, b, c)[3 - axes :])
                        out[index] = sums[(i * 2 + t) * vectors * lanes + j]

    work = MOST_PLACES * height * rows * depth
    parallel_for(groups * blocks * parts, block, grain=ceildiv(WORK, work + 16))


def _tile_of_results(
    seen: AnyTensor,
    weight: Callable[..., Parts],
    sums: AnyTensor,
    first: Index,
    steps: Index,
    places: int,
    vectors: int,
    lanes: int,
) -> None:
    """Two strips of sums for each place: adds the products of weight(k, v) and what the place sees."""
    count = 2 * vectors
    totals: tuple[Any, ...] = ()
    for _ in unroll(places * count):
        totals = (*totals, SIMD[sums.dtype, lanes](0))
    for k in range(first, first + steps):
        factors: tuple[Any, ...] = ()
        for v in unroll(count):
            factors = (*factors, weight(k, v))
        new: tuple[Any, ...] = ()
        for i in unroll(places):
            value = seen.pointer(0)[k * MOST_PLACES + i]
            for v in unroll(count):
                new = (*new, times_plus(value, factors[v], totals[i * count + v]))
        totals = new
    if first > 0:
        both: tuple[Any, ...] = ()
        for t in unroll(places * count):
            both = (*both, totals[t] + sums.load(t * lanes, width=lanes))
        totals = both
    for t in unroll(places * count):
        sums.store(totals[t], t * lanes)


def _first_of(column: Index, total: Index, width: int) -> Index:
    """Where the panel of a column begins: the last one so early that it ends with the last column, if it can."""
    return min(column, total - width) if total >= width else column


def _store_strip(
    out: AnyTensor,
    rows_of_sums: tuple[AnyTensor, Index],
    n: Index,
    results: tuple[Index, ...],
    block: tuple[Index, Index, Index],
    sizes: tuple[Index, ...],
    of_column: int,
) -> None:
    """Stores the results of a strip: of each row of a plane those that are places of the result.

    Args:
        out: the result.
        rows_of_sums: sums of a block, and where those of the strip begin.
        n: the image.
        results: the first one of the group, from there the first one of the strip, how many the group and a strip have.
        block: the first column, how many, and how many the image has.
        sizes: of a plane, and how many of the rows of a plane are places of the result.
        of_column: how many neighbouring places a column has.
    """
    sums, start = rows_of_sums
    first_column, columns, total = block
    rows = min(results[2] - results[1], results[3])
    width = VECTORS * _lanes(sums)
    last_panel = total // width * width
    end, last = first_column + columns, out.dim(-1)
    done = first_column
    while done < end:
        a, b, c = unravelled(done, sizes[:3])
        count = min(sizes[2] - c, (min(last_panel, end) if done < last_panel else end) - done)
        at = done - first_column + (last_panel - _first_of(last_panel, total, width) if done >= last_panel else 0)
        if b < sizes[3]:
            for i in range(rows):
                lead = (n, results[0] + results[1] + i, *(a, b)[2 - (out.rank - 3) :])
                for j in range(min(last - c * of_column, count * of_column)):
                    out[(*lead, c * of_column + j)] = sums[start + i * PANELS * width + at * of_column + j]
        done = done + count


def _origin(x: AnyTensor) -> Any:
    """The index of the first element."""
    index: tuple[Any, ...] = ()
    for _ in unroll(x.rank):
        index = (*index, 0)
    return index


def _fill_offsets(
    offsets: AnyTensor,
    channels: Index,
    taps: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    phases: tuple[int, ...],
    sizes: tuple[Index, ...],
) -> None:
    """How far from its place each channel and tap sees an element."""
    k = int64(0)
    for channel in range(channels):
        for i in range(taps[0]):
            for j in range(taps[1]):
                for l in range(taps[2]):  # noqa: E741
                    offsets[k] = seen_by((i, j, l), phases, sizes, strides, dilations, channel)
                    k = k + 1
