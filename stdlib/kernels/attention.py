"""Computes attention: what each query finds at keys, weighted by a softmax that is never stored as a whole.

A task takes a block of queries of one head and goes along the keys in blocks. Of a block of keys it computes scores,
adjusts the largest score and the sum of powers so far, scales what it has by how these changed, and adds the block's
share (the online softmax of Milakov and Gimelshein, 2018). Queries lie along the lanes of vectors, so that the largest
of the scores is found for a whole vector of queries at a time.

Everything is summed in float32 for half types, in the elements' own dtype otherwise. Elements are read one at a time,
those of the result are stored once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Bool,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    OutputTensor,
    ceildiv,
    exp,
    fma,
    gpu,
    int64,
    parallel_for,
    register,
    select,
    stack,
    store,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype
from ..algorithms.few_queries import DEPTH, VALUES, WORK, Part, by_query, ends
from ..algorithms.references import Array
from ..algorithms.teams import across_warp, by_warps
from ..algorithms.tile_attention import attend_by_tiles, suits_tiles
from ..algorithms.tile_products import has_tiles

T = TypeVar("T", bound=Floating)
M = TypeVar("M", bound=Floating)

QUERIES = 4  # vectors of queries that a task takes at most
STRIPS = 8  # strips of keys of a block
ROWS = 8  # queries whose share of values is computed in registers
VECTORS = 2  # vectors of numbers of a value, the same
SINGLE_QUERIES = 2  # queries that are taken one by one
GPU_VALUES = 128  # numbers of a value that a warp takes at most


@register("attention", writes_once=True, reads={"query": 1, "key": 1, "value": 1})
def attention(
    out: OutputTensor[T, "*s h m e"],
    query: InputTensor[T, "*s h m d"],
    key: InputTensor[T, "*s g n d"],
    value: InputTensor[T, "*s g n e"],
    ctx: DeviceContext,
    *,
    causal: bool,
    window: int,
    scale: float,
) -> None:
    """softmax(scale * query @ transposed key) @ value; 0 for a query that sees no key.

    Of h heads of queries, h / g neighbours share one of keys and values. `causal`: a query sees no key behind its own
    place. `window`: it sees keys that are less than so many places away; 0 for all of them.
    """
    n = key.dim(-2)
    none = lambda wide, lead, head, i, j: wide(0)  # noqa: E731
    _attend(ctx, (out, query, key, value), none, False, (causal, window, scale), lambda lead: (n, 0))


@attention.reference
def attention_reference(query: Array, key: Array, value: Array, *, causal: bool, window: int, scale: float):
    return _reference(query, key, value, 0.0, (causal, window, scale))


@register("masked_attention", writes_once=True, reads={"query": 1, "key": 1, "value": 1, "mask": 1})
def masked_attention(
    out: OutputTensor[T, "*s h m e"],
    query: InputTensor[T, "*s h m d"],
    key: InputTensor[T, "*s g n d"],
    value: InputTensor[T, "*s g n e"],
    mask: InputTensor[M, "*s h m n"],
    ctx: DeviceContext,
    *,
    causal: bool,
    window: int,
    scale: float,
) -> None:
    """As `attention`; `mask` is added to the scores, so that a query does not see a key where it is -inf."""

    def added(wide: AnyDType, lead: tuple[Index, ...], head: Index, i: Index, j: Index):
        return mask[(*lead, head, i, j)].cast(wide)

    n = key.dim(-2)
    _attend(ctx, (out, query, key, value), added, True, (causal, window, scale), lambda lead: (n, 0))


@masked_attention.reference
def masked_attention_reference(
    query: Array, key: Array, value: Array, mask: Array, *, causal: bool, window: int, scale: float
):
    return _reference(query, key, value, mask.astype(np.float64), (causal, window, scale))


@register("bounded_attention", writes_once=True, reads={"query": 1, "key": 1, "value": 1, "lengths": 1, "offsets": 1})
def bounded_attention(
    out: OutputTensor[T, "*s h m e"],
    query: InputTensor[T, "*s h m d"],
    key: InputTensor[T, "*s g n d"],
    value: InputTensor[T, "*s g n e"],
    lengths: InputTensor[int64, "*s"],
    offsets: InputTensor[int64, "*s"],
    ctx: DeviceContext,
    *,
    causal: bool,
    window: int,
    scale: float,
) -> None:
    """As `attention`; of the keys only the first `lengths` count, and query i stands at place `offsets` + i."""
    n = key.dim(-2)
    none = lambda wide, lead, head, i, j: wide(0)  # noqa: E731
    bounds = lambda lead: _bounds(lengths[lead], offsets[lead], n)  # noqa: E731
    _attend(ctx, (out, query, key, value), none, False, (causal, window, scale), bounds)


@bounded_attention.reference
def bounded_attention_reference(
    query: Array, key: Array, value: Array, lengths: Array, offsets: Array, *, causal: bool, window: int, scale: float
):
    return _reference(query, key, value, 0.0, (causal, window, scale), lengths, offsets)


@register(
    "masked_bounded_attention",
    writes_once=True,
    reads={"query": 1, "key": 1, "value": 1, "mask": 1, "lengths": 1, "offsets": 1},
)
def masked_bounded_attention(
    out: OutputTensor[T, "*s h m e"],
    query: InputTensor[T, "*s h m d"],
    key: InputTensor[T, "*s g n d"],
    value: InputTensor[T, "*s g n e"],
    mask: InputTensor[M, "*s h m n"],
    lengths: InputTensor[int64, "*s"],
    offsets: InputTensor[int64, "*s"],
    ctx: DeviceContext,
    *,
    causal: bool,
    window: int,
    scale: float,
) -> None:
    """As `bounded_attention`, with the mask of `masked_attention`."""

    def added(wide: AnyDType, lead: tuple[Index, ...], head: Index, i: Index, j: Index):
        return mask[(*lead, head, i, j)].cast(wide)

    n = key.dim(-2)
    bounds = lambda lead: _bounds(lengths[lead], offsets[lead], n)  # noqa: E731
    _attend(ctx, (out, query, key, value), added, True, (causal, window, scale), bounds)


@masked_bounded_attention.reference
def masked_bounded_attention_reference(
    query: Array,
    key: Array,
    value: Array,
    mask: Array,
    lengths: Array,
    offsets: Array,
    *,
    causal: bool,
    window: int,
    scale: float,
):
    return _reference(query, key, value, mask.astype(np.float64), (causal, window, scale), lengths, offsets)


def _bounds(length: int, offset: int, n: int) -> Any:
    assert 0 <= length <= n, f"valid_length {length} is out of range for {n} keys"
    return length, offset


def _reference(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | float,
    how: tuple[bool, int, float],
    lengths: Array | None = None,
    offsets: Array | int = 0,
) -> Array:
    causal, window, scale = how
    q, k, v = (x.astype(np.float64) for x in (query, key, value))
    group = q.shape[-3] // max(k.shape[-3], 1)
    k, v = np.repeat(k, group, -3), np.repeat(v, group, -3)
    scores = scale * (q @ k.swapaxes(-1, -2)) + mask
    place = np.arange(q.shape[-2])[:, None] + np.asarray(offsets)[..., None, None, None]
    away = place - np.arange(k.shape[-2])
    seen = (away >= 0 if causal else True) & ((np.abs(away) < window) if window else True) & (scores != -inf)
    if lengths is not None:
        seen = seen & (np.arange(k.shape[-2]) < np.asarray(lengths)[..., None, None, None])
    scores = np.where(seen, scores, -inf)
    top = np.max(scores, -1, keepdims=True, initial=-inf)
    powers = np.where(seen, np.exp(scores - np.where(top == -inf, 0, top)), 0)
    total = powers.sum(-1, keepdims=True)
    return (powers @ v / np.where(total == 0, 1, total)).astype(query.dtype)


def _attend(
    ctx: DeviceContext,
    tensors: tuple[AnyTensor, ...],
    mask: Callable[[AnyDType, tuple[Index, ...], Index, Index, Index], Floating],
    masked: bool,
    how: tuple[bool, int, float],
    bounds: Callable[[tuple[Index, ...]], tuple[Index, int]],
) -> None:
    """`bounds` gives for the axes before the heads how many keys count, and at which place the first query stands."""
    out, query, key, _ = tensors
    wide = wide_dtype(out.dtype)
    group = max(out.dim(-3) // max(key.dim(-3), 1), 1)
    lanes = ctx.target.vector_bits // wide.bits
    if ctx.target.is_gpu:
        if has_tiles(out.dtype) and suits_tiles(query, out):
            attend_by_tiles(group, tensors, mask, masked, how, bounds)
        else:
            _by_warp(wide, group, tensors, mask, how, bounds)
    elif (query.dim(-2) <= SINGLE_QUERIES) & (query.dim(-1) <= DEPTH) & (out.dim(-1) <= VALUES):
        by_query(wide, group, lanes, tensors, mask, how, bounds)
    else:
        rows = 14 if ctx.target.vector_bits >= 512 else 8
        _by_block(wide, group, (rows, lanes), tensors, mask, masked, how, bounds)


def _sees(i: Index, j: Index, causal: bool, window: int) -> Any:
    """Whether query i sees key j, as far as their places say."""
    seen = j <= i if causal else j >= 0
    return seen & (i - j < window) & (j - i < window) if window > 0 else seen


# *** a warp for each query and some numbers of the values, on a GPU ***


def _by_warp(
    wide: AnyDType,
    group: Index,
    tensors: tuple[AnyTensor, ...],
    mask: Callable[[AnyDType, tuple[Index, ...], Index, Index, Index], Floating],
    how: tuple[bool, int, float],
    bounds: Callable[[tuple[Index, ...]], tuple[Index, int]],
) -> None:
    """Each lane computes the score of a key; then all add the values of each of these keys, one after the other."""
    out, query, key, value = tensors
    outer = out.shape[:-2]
    causal, window, scale = how
    m, e, depth = out.dim(-2), out.dim(-1), key.dim(-1)
    parts = ceildiv(e, GPU_VALUES)
    lanes = gpu.warp_size
    each = GPU_VALUES // lanes

    def one(task: Index):
        i = task // parts % m
        at = unravelled(task // parts // m, outer)
        lead = at[:-1]
        head = at[-1]
        first = task % parts * GPU_VALUES + gpu.lane_idx
        n, offset = bounds(lead)
        low, high = ends(i + offset, i + offset, n, causal, window)
        sums: Any = ()
        for _ in unroll(each):
            sums = (*sums, wide(0))
        top, total = wide(-inf), wide(0)
        for base in range(low, high, lanes):
            j = base + gpu.lane_idx
            score = wide(-inf)
            if j < high:
                score = wide(0)
                for k in range(depth):
                    factor = query[(*lead, head, i, k)].cast(wide)
                    score = fma(factor, key[(*lead, head // group, j, k)].cast(wide), score)
                score = score * wide(scale) + mask(wide, lead, head, i, j)
            before = top
            best = across_warp(score, lambda a, b: select(b > a, b, a))
            top = select(best > top, best, top)
            shift = select(top == -inf, wide(0), top)
            change, power = exp(before - shift), exp(score - shift)
            total = total * change + across_warp(power, lambda a, b: a + b)
            scaled: Any = ()
            for r in unroll(each):
                scaled = (*scaled, sums[r] * change)
            sums = scaled
            for c in range(min(high - base, lanes)):
                share = gpu.warp.shuffle_idx(power, c)
                added: Any = ()
                for r in unroll(each):
                    place = min(first + r * lanes, e - 1)
                    added = (*added, fma(share, value[(*lead, head // group, base + c, place)].cast(wide), sums[r]))
                sums = added
        for r in unroll(each):
            if first + r * lanes < e:
                mean = select(total == 0, wide(0), sums[r] / total)
                store(out, (*lead, head, i, first + r * lanes), mean.cast(out.dtype))

    by_warps(product(outer) * m * parts, one)


# *** blocks of queries and keys, on a CPU ***


def _by_block(
    wide: AnyDType,
    group: Index,
    tile: tuple[int, int],
    tensors: tuple[AnyTensor, ...],
    mask: Callable[[AnyDType, tuple[Index, ...], Index, Index, Index], Floating],
    masked: bool,
    how: tuple[bool, int, float],
    bounds: Callable[[tuple[Index, ...]], tuple[Index, int]],
) -> None:
    """A task takes some vectors of queries of one head, all keys, and some numbers of the values.

    `tile`: how many keys and queries a tile of scores has; its queries are the lanes of a vector.
    """
    out, query, key, value = tensors
    outer = out.shape[:-2]
    _, lanes = tile
    m, e, n, depth = out.dim(-2), out.dim(-1), key.dim(-2), key.dim(-1)
    span = max(min(ceildiv(m, lanes), QUERIES), 1) * lanes
    blocks = max(ceildiv(m, span), 1)
    parts = max(ceildiv(e, VALUES), 1)

    def block(task: Index):
        first = task // parts % blocks * span
        left = task % parts * VALUES
        at = unravelled(task // parts // blocks, outer)
        lead = at[:-1]
        head = at[-1]
        shared = head // group
        reads = (
            lambda i, k: query[(*lead, head, first + i, k)].cast(wide) * wide(how[2]),
            lambda j, k: key[(*lead, shared, j, k)].cast(wide),
            lambda j, k: value[(*lead, shared, j, left + k)].cast(wide),
            lambda i, j: mask(wide, lead, head, first + i, j),
        )

        def put(i: Index, k: Index, found: Floating):
            store(out, (*lead, head, first + i, left + k), found.cast(out.dtype))

        length, offset = bounds(lead)
        sizes = (min(m - first, span), length, depth, min(e - left, VALUES))
        _attend_block(wide, tile, sizes, offset + first, reads, masked, how, put)

    grain = ceildiv(WORK, span * n * (depth + min(e, VALUES)) + 16)
    parallel_for(product(outer) * ceildiv(m, span) * ceildiv(e, VALUES), block, grain=grain)


def _attend_block(
    wide: AnyDType,
    tile: tuple[int, int],
    sizes: tuple[Index, ...],
    place: Index,
    reads: tuple[Callable[[Index, Index], Floating], ...],
    masked: bool,
    how: tuple[bool, int, float],
    put: Callable[[Index, Index, Floating], None],
) -> None:
    """put(i, k, number) for all numbers of the result of a task, whose first query stands at `place`."""
    here, n, depth, many = sizes
    rows, lanes = tile
    query, key, value, mask = reads
    causal, window, _ = how
    keys = STRIPS * rows
    width = VECTORS * lanes
    turned = stack[wide](QUERIES * DEPTH * lanes, zeroed=False)
    strip = stack[wide](rows * DEPTH, zeroed=False)
    scores = stack[wide](QUERIES * keys * lanes, zeroed=False)
    slab = stack[wide](keys * (VALUES + width), zeroed=False)
    sums = stack[wide](QUERIES * lanes * (VALUES + width), zeroed=False)
    running = (
        stack[wide](QUERIES * lanes, zeroed=False),
        stack[wide](QUERIES * lanes, zeroed=False),
        stack[wide](QUERIES * lanes, zeroed=False),
    )
    for q in range(ceildiv(here, lanes) * lanes):
        running[0][q] = wide(-inf)
        running[1][q] = wide(0)
        for v in range(ceildiv(many, width)):
            for k in range(width):
                sums[(v * QUERIES * lanes + q) * width + k] = wide(0)
    low, high = ends(place, place + here - 1, n, causal, window)
    for first_key in range(low, high, keys):
        count = min(high - first_key, keys)
        for first in range(0, max(depth, 1), DEPTH):
            steps = min(depth - first, DEPTH)
            if first_key == low or depth > DEPTH:
                _turn(turned, here, steps, lanes, lambda i, k: query(i, first + k))  # noqa: B023
            for s in range(ceildiv(count, rows)):
                _copy_strip(strip, count - s * rows, steps, rows, lambda j, k: key(first_key + s * rows + j, first + k))  # noqa: B023
                for p in range(ceildiv(here, lanes)):
                    at = (p * keys + s * rows) * lanes
                    _score_tile(strip, Part(turned, p * DEPTH * lanes), Part(scores, at), first == 0, steps, tile)
        if masked or causal or window > 0:
            _hide(scores, (here, count), lanes, keys, (place, first_key), mask, masked, how)
        for p in range(ceildiv(here, lanes)):
            _weigh(scores, p * keys * lanes, running, p * lanes, count, lanes)
        _copy_values(slab, count, many, keys, width, lambda j, k: value(first_key + j, k))  # noqa: B023
        _share(scores, slab, sums, running[2], (here, many, count), keys, lanes)
    for q in range(here):
        total = running[1][q]
        factor = select(total == 0, wide(0), 1 / total)
        for v in range(ceildiv(many, width)):
            for k in range(min(many - v * width, width)):
                put(q, v * width + k, sums[(v * QUERIES * lanes + q) * width + k] * factor)


def _turn(turned: AnyTensor, here: Index, steps: Index, lanes: int, query: Callable[[Index, Index], Floating]) -> None:
    """Copies numbers of queries, so that those of a vector of queries lie side by side."""
    for q in range(here):
        to = q // lanes * (DEPTH * lanes) + q % lanes
        for k in range(steps):
            turned[to + k * lanes] = query(q, k)
    for q in range(here, ceildiv(here, lanes) * lanes):
        to = q // lanes * (DEPTH * lanes) + q % lanes
        for k in range(steps):
            turned[to + k * lanes] = turned.dtype(0)


def _copy_strip(
    strip: AnyTensor, left: Index, steps: Index, rows: int, key: Callable[[Index, Index], Floating]
) -> None:
    """Copies numbers of some keys, as many as a tile has; zeros for those that there are not."""
    for j in range(min(left, rows)):
        for k in range(steps):
            strip[j * DEPTH + k] = key(j, k)
    for j in range(left, rows):
        for k in range(steps):
            strip[j * DEPTH + k] = strip.dtype(0)


def _copy_values(
    slab: AnyTensor, count: Index, many: Index, keys: int, width: int, value: Callable[[Index, Index], Floating]
) -> None:
    """Copies numbers of the values of a block of keys into panels of some vectors."""
    for j in range(count):
        for v in range(ceildiv(many, width)):
            to = (v * keys + j) * width
            for k in range(min(many - v * width, width)):
                slab[to + k] = value(j, v * width + k)
            for k in range(many - v * width, width):
                slab[to + k] = slab.dtype(0)


def _hide(
    scores: AnyTensor,
    sizes: tuple[Index, Index],
    lanes: int,
    keys: int,
    places: tuple[Index, Index],
    mask: Callable[[Index, Index], Floating],
    masked: bool,
    how: tuple[bool, int, float],
) -> None:
    """Adds the mask to the scores, and makes -inf of what a query does not see."""
    here, count = sizes
    causal, window, _ = how
    for p in range(ceildiv(here, lanes)):
        for j in range(count):
            at = (p * keys + j) * lanes
            for q in range(min(here - p * lanes, lanes)):
                score = scores[at + q]
                if masked:
                    score = score + mask(p * lanes + q, places[1] + j)
                if causal or window > 0:
                    sees = _sees(places[0] + p * lanes + q, places[1] + j, causal, window)
                    score = select(sees, score, scores.dtype(-inf))
                scores[at + q] = score


def _weigh(scores: AnyTensor, at: Index, running: tuple[AnyTensor, ...], lane: Index, count: Index, lanes: int) -> None:
    """Makes powers of the scores of a vector of queries; goes on with their largest score and the sum of powers."""
    tops, totals, changes = running
    before = tops.load(lane, width=lanes)
    top = before
    for j in range(count):
        score = scores.load(at + j * lanes, width=lanes)
        top = select(score > top, score, top)
    shift = select(top == -inf, SIMD[scores.dtype, lanes](0), top)
    change = exp(before - shift)
    total = totals.load(lane, width=lanes) * change
    for j in range(count):
        power = exp(scores.load(at + j * lanes, width=lanes) - shift)
        scores.store(power, at + j * lanes)
        total = total + power
    tops.store(top, lane)
    totals.store(total, lane)
    changes.store(change, lane)


def _share(
    scores: AnyTensor,
    slab: AnyTensor,
    sums: AnyTensor,
    changes: AnyTensor,
    sizes: tuple[Index, Index, Index],
    keys: int,
    lanes: int,
) -> None:
    """Adds the values of a block of keys, as much of each as the powers say."""
    here, many, count = sizes
    some = min(ROWS, lanes)
    width = VECTORS * lanes
    for r in range(ceildiv(here, some)):
        at = r * some // lanes * (keys * lanes) + r * some % lanes
        for v in range(ceildiv(many, width)):
            to = (v * QUERIES * lanes + r * some) * width
            powers, values = Part(scores, at), Part(slab, v * keys * width)
            _share_tile(powers, values, Part(sums, to), Part(changes, r * some), count, some, lanes)


def _score_tile(
    strip: AnyTensor,
    queries: Part,
    scores: Part,
    is_first: bool | Bool,
    steps: Index,
    tile: tuple[int, int],
) -> None:
    """scores = keys of a strip * a vector of queries, added to what they were unless these are the first numbers."""
    rows, lanes = tile
    totals: tuple[Any, ...] = ()
    for _ in unroll(rows):
        totals = (*totals, SIMD[scores.memory.dtype, lanes](0))
    if not is_first:
        before: tuple[Any, ...] = ()
        for i in unroll(rows):
            before = (*before, scores.memory.load(scores.at + i * lanes, width=lanes))
        totals = before
    for k in range(steps):
        some = queries.memory.load(queries.at + k * lanes, width=lanes)
        new: tuple[Any, ...] = ()
        for i in unroll(rows):
            new = (*new, fma(strip[i * DEPTH + k], some, totals[i]))
        totals = new
    for i in unroll(rows):
        scores.memory.store(totals[i], scores.at + i * lanes)


def _share_tile(
    powers: Part,
    values: Part,
    sums: Part,
    changes: Part,
    count: Index,
    rows: int,
    lanes: int,
) -> None:
    """sums = sums * changes + powers of some queries * values."""
    width = VECTORS * lanes
    totals: tuple[Any, ...] = ()
    for i in unroll(rows):
        for v in unroll(VECTORS):
            before = sums.memory.load(sums.at + i * width + v * lanes, width=lanes)
            totals = (*totals, before * changes.memory[changes.at + i])
    for j in range(count):
        row: tuple[Any, ...] = ()
        for v in unroll(VECTORS):
            row = (*row, values.memory.load(values.at + j * width + v * lanes, width=lanes))
        new: tuple[Any, ...] = ()
        for i in unroll(rows):
            factor = powers.memory[powers.at + j * lanes + i]
            for v in unroll(VECTORS):
                new = (*new, fma(factor, row[v], totals[i * VECTORS + v]))
        totals = new
    for i in unroll(rows):
        for v in unroll(VECTORS):
            sums.memory.store(totals[i * VECTORS + v], sums.at + i * width + v * lanes)
