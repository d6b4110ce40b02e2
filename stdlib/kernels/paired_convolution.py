"""Prepares convolutions whose results are computed in pairs.

    split_pairs(x) --> conv_packed(split, strips of pairs)

`split_pairs` computes the factors of elements that `algorithms.pairs` describes, one after the other in planes, and
`pack_pairs` those of weights.

See also `pair_filters` of the graph (which convolutions these are), `packed_convolution`.
"""

from __future__ import annotations

from typing import TypeVar

from ...dsl import (
    Index,
    InputTensor,
    Numeric,
    OutputTensor,
    ceildiv,
    compiled_for,
    max,
    parallel_for,
    register,
    scratch,
    unroll,
)
from ..algorithms.algorithm import product, unravelled
from ..algorithms.pairs import FACTORS, store_factors
from ..algorithms.planes import planes_of
from ..algorithms.products import WORK
from ..algorithms.rows import TASK
from ..algorithms.windows import three_axes

T = TypeVar("T", bound=Numeric)


@register("pack_pairs", writes_once=True)
def pack_pairs(out: OutputTensor[T, "p k r"], filter: InputTensor[T, "*f"], *, groups: int) -> None:
    """As `pack_filter`, of a filter with three taps along its last axis: the strips of all groups for each of `FACTORS`
    factors, one after the other; their steps are channels and the taps along the other axes."""
    strips, depth, rows = out.shape
    results = filter.dim(0) // groups
    of_factor = strips // FACTORS
    each = of_factor // groups

    def strip(s: Index):
        factor, group, first = s // of_factor, s % of_factor // each, s % each * rows
        for i in range(rows):
            start = (group * results + first + i) * depth * 3
            for k in range(depth):
                if first + i < results:
                    g0, g1, g2 = tuple(filter.at(start + k * 3 + t) for t in unroll(3))
                    half = T(0.5)
                    middle = half * (g0 + g2 + g1) if factor == 1 else half * (g0 + g2 - g1)
                    out[s, k, i] = g0 if factor == 0 else g2 if factor == FACTORS - 1 else middle
                else:
                    out[s, k, i] = T(0)

    parallel_for(strips, strip, grain=ceildiv(WORK, depth * rows * 3 + 16))


@register("split_pairs", reads={"x": 1})
def split_pairs(
    out: OutputTensor[T, "n l"],
    x: InputTensor[T, "*s"],
    *,
    taps: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
) -> None:
    """The factors of each pair of results along the last axis, in planes as `split_places` makes them."""
    axes = x.rank - 2
    counts, strides, dilations = three_axes((*taps[:-1], 1)), three_axes(stride), three_axes(dilation)
    low, high = three_axes(before, 0), three_axes(after, 0)
    inner = three_axes(x.shape[2:])
    width = inner[2] + low[2] + high[2] - 2  # of a row of results
    places = tuple(
        (inner[t] + low[t] + high[t] - (counts[t] - 1) * dilations[t] - 1) // strides[t] + 1 for t in unroll(2)
    )
    phases, sizes = planes_of((*places, ceildiv(width, 2)), counts, strides, dilations)
    pairs, planes = sizes[2], product(phases) * x.dim(1)
    factor = planes * product(sizes)  # from one factor to the next
    lanes = max(compiled_for().vector_bits // T.bits, 1)

    def plane(task: Index):
        n, number = task // planes, task % planes
        channel, u, v, _ = unravelled(number, (x.dim(1), *phases))
        there = out.pointer(n, 0) + number * product(sizes)
        length = 2 * (pairs + 2 * lanes)
        held = scratch[T](2 * length)  # two padded rows: one is read while the stores of the other go on
        for k in range(2 * length):
            held.pointer(0)[k] = T(0)
        for r in range(sizes[0] * sizes[1] + 1):
            i, j = r // sizes[1] * strides[0] + u - low[0], r % sizes[1] * strides[1] + v - low[1]
            row = held.pointer(r % 2 * length + low[2])
            inside = (i >= 0) & (i < inner[0]) & (j >= 0) & (j < inner[1]) & (r < sizes[0] * sizes[1])
            for k in range(inner[2] if inside else 0):
                row[k] = x[(n, channel, *(i, j, k)[3 - axes :])]
            for k in range(0 if inside else inner[2]):
                row[k] = T(0)
            if r > 0:
                store_factors(there, held.pointer((r - 1) % 2 * length), ((r - 1) * pairs, pairs), factor, lanes)
        if number == planes - 1:
            for k in range(FACTORS * factor, out.dim(1)):
                out[n, k] = T(0)

    parallel_for(out.dim(0) * planes, plane, grain=ceildiv(TASK, FACTORS * product(sizes) + 16))
