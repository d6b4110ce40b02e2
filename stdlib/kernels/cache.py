"""Stores keys and values in pages, and attends to them, for rows of sequences of different lengths.

The rows of all sequences of a batch stand behind each other. Sequence s has the rows `offsets[s]` to `offsets[s + 1]`,
which follow the `lengths[s]` places that it has in its pages already; `table[s]` has the numbers of these pages. Rows
from the last offset on belong to no sequence. A page has room for some places of all layers and heads:

    pages (pages, 2, layers, heads, places * numbers); first keys, number by number, then values, place by place

Pages of 8-bit numbers have a float32 scale for each place behind the numbers of a head, places * (numbers + 4) in all.

What a row gets depends on its own sequence alone, and each row is computed in the same order, so that results have the
same bits in any batch and however the rows of a sequence are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    AnyDType,
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    MutableInputTensor,
    OutputTensor,
    Storable,
    abs,
    ceildiv,
    compiled_for,
    float8_e4m3fn,
    float32,
    int8,
    int64,
    max,
    min,
    parallel_for,
    register,
    round,
    scratch,
    select,
    stack,
    store,
    uint32,
)
from ..algorithms.algorithm import wide_dtype
from ..algorithms.few_queries import WORK
from ..algorithms.paged_attention import (
    DEPTH,
    GROUP,
    KEYS,
    SCALE,
    SPAN,
    PagedHead,
    attend,
    begin,
    merge,
    places_of,
    scales_of,
)
from ..algorithms.references import Array

T = TypeVar("T", bound=Floating)
S = TypeVar("S", bound=Storable)
SHARES = 8  # tasks that the rows of a batch make at least, where it has as many
MAX_ROWS_OF_SPANS = 8  # rows, whose spans are tasks of their own


@register("kv_cache_store", fuse=False)
def kv_cache_store(
    pages: MutableInputTensor[S, "p two layers g w"],
    key: InputTensor[T, "t g e"],
    value: InputTensor[T, "t g e"],
    offsets: InputTensor[uint32, "ends"],
    lengths: InputTensor[uint32, "s"],
    table: InputTensor[uint32, "s m"],
    *,
    layer: int,
) -> None:
    """Writes the keys and values of a layer to the places behind those that each sequence has."""
    heads, size = key.dim(1), key.dim(2)
    room = places_of(pages, size)
    sequences = lengths.dim(0)

    def one(row: Index):
        if row < offsets[sequences].cast(int64):
            s, place = _place(offsets, lengths, row)
            page = _page(table, s, place // room, pages)
            at = place % room
            for head in range(heads):
                keys, values = (page, 0, layer, head), (page, 1, layer, head)
                number = lambda x, k: x[row, head, k]  # noqa: B023, E731
                _write(pages, keys, room, size, at, lambda k: k * room + at, lambda k: number(key, k))  # noqa: B023
                _write(pages, values, room, size, at, lambda k: at * size + k, lambda k: number(value, k))  # noqa: B023

    parallel_for(key.dim(0), one, grain=ceildiv(WORK, heads * size + 1))


def _highest(dtype: AnyDType) -> Any:
    """The largest number that pages of 8 bits have."""
    return float32(127 if dtype == int8 else 448 if dtype == float8_e4m3fn else 57344)


def _rounded(x: Floating, dtype: AnyDType) -> Any:
    return round(x).cast(int8, saturate=True) if dtype == int8 else x.cast(dtype)


def _write(
    pages: AnyTensor,
    there: tuple[Index, int, int, Index],
    room: Index,
    size: Index,
    at: Index,
    index: Callable[[Index], Index],
    number: Callable[[Index], Floating],
) -> None:
    """Writes the numbers of a place of a head; those of 8 bits are rounded to parts of the farthest from 0."""
    if pages.dtype.bits == 8:
        most = float32(0)
        for k in range(size):
            most = max(most, abs(number(k).cast(float32)))
        scale = most / _highest(pages.dtype)
        scales_of(pages, there, room, size).store(scale, at)
        inverse = select(scale == 0, float32(0), 1 / scale)
        for k in range(size):
            store(pages, (*there, index(k)), _rounded(number(k).cast(float32) * inverse, pages.dtype))
    else:
        for k in range(size):
            store(pages, (*there, index(k)), number(k).cast(pages.dtype))


@register("flash_attention_ragged", fuse=False)
def flash_attention_ragged(
    out: OutputTensor[T, "t h e"],
    query: InputTensor[T, "t h e"],
    pages: InputTensor[S, "p two layers g w"],
    offsets: InputTensor[uint32, "ends"],
    lengths: InputTensor[uint32, "s"],
    table: InputTensor[uint32, "s m"],
    ctx: DeviceContext,
    *,
    layer: int,
    window: int,
    scale: float,
) -> None:
    """Causal attention of each row to the keys and values in the pages of its sequence, up to its own place."""
    wide = wide_dtype(T)
    lanes = ctx.target.vector_bits // wide.bits
    rows, shared, size = query.dim(0), pages.dim(3), query.dim(2)
    room = places_of(pages, size)
    group = max(query.dim(1) // max(shared, 1), 1)
    parts = ceildiv(group, GROUP)
    most = max(min(GROUP // group, rows // SHARES), 1)  # rows of a task
    sequences = lengths.dim(0)

    spans = ceildiv(table.dim(1) * room, SPAN)
    is_gpu = compiled_for().is_gpu
    apart = not is_gpu and (rows <= MAX_ROWS_OF_SPANS) & (spans > 1)  # tasks share the spans of a row
    pieces = select(apart, spans, 1)
    numbers = GROUP * (size + 2)  # of what a span gives
    results = None if is_gpu else scratch[wide](select(apart, rows * shared * parts * spans * numbers, 0))

    def one(task: Index):
        head, own, heads, first = _part(task // pieces, group, shared)
        work, total = _memory(wide), _memory(wide)
        row = first * most
        end = min(row + most, rows)
        while row < end:
            stop = end
            begin(wide, (end - row) * heads, size, total)
            if row < offsets[sequences].cast(int64):
                s, place = _place(offsets, lengths, row)
                stop = min(end, offsets[s + 1].cast(int64))
                _queries(query, row, stop - row, own, heads, scale, work[0])
                places = (place, stop - row, heads)
                page_of = lambda number: _page(table, s, number, pages)  # noqa: B023, E731
                low, high = _spans(place, stop - row, window)
                low, high = max(low, task % pieces), select(apart, min(high, task % pieces + 1), high)
                for span in range(low, high):
                    begin(wide, (stop - row) * heads, size, work)
                    attend(wide, lanes, PagedHead(pages, room, page_of, (layer, head)), places, work, window, span)
                    if apart:
                        _keep(results, task * numbers, heads, size, work)
                    else:
                        merge(wide, (stop - row) * heads, size, work, total)
            if not apart:
                _put(out, row, own, stop - row, heads, total)
            row = stop

    parallel_for(ceildiv(rows, most) * shared * parts * pieces, one, grain=1)
    if not is_gpu and apart:
        _merge_spans(wide, out, results, spans, (offsets, lengths), (group, shared), window)


def _queries(
    query: AnyTensor, row: Index, count: Index, own: Index, heads: Index, scale: float, numbers: AnyTensor
) -> None:
    """The scaled numbers of the queries of some rows and heads."""
    wide = numbers.dtype
    for r in range(count * heads):
        for k in range(query.dim(2)):
            numbers[r * DEPTH + k] = query[row + r // heads, own + r % heads, k].cast(wide) * wide(scale)


def _merge_spans(
    wide: AnyDType,
    out: AnyTensor,
    results: AnyTensor,
    spans: Index,
    batch: tuple[AnyTensor, AnyTensor],
    heads_of: tuple[Index, Index],
    window: int,
) -> None:
    """The results of rows whose spans were attended to by tasks of their own."""
    offsets, lengths = batch
    group, shared = heads_of
    size = out.dim(2)

    def merged(task: Index):
        _, own, heads, row = _part(task, group, shared)
        work, total = _memory(wide), _memory(wide)
        begin(wide, heads, size, total)
        if row < offsets[lengths.dim(0)].cast(int64):
            _, place = _place(offsets, lengths, row)
            low, high = _spans(place, 1, window)
            for span in range(low, high):
                _take(results, (task * spans + span) * GROUP * (size + 2), heads, size, work)
                merge(wide, heads, size, work, total)
        _put(out, row, own, 1, heads, total)

    parallel_for(out.dim(0) * shared * ceildiv(group, GROUP), merged, grain=1)


def _part(task: Index, group: Index, shared: Index) -> tuple[Index, ...]:
    """The head of keys of a task, the first and the number of its heads of queries, and which rows it has."""
    parts = ceildiv(group, GROUP)
    head, part = task // parts % shared, task % parts * GROUP
    return head, head * group + part, min(group - part, GROUP), task // parts // shared


def _place(offsets: AnyTensor, lengths: AnyTensor, row: Index) -> tuple[Index, Index]:
    """The sequence of a row, and the place of the row in it."""
    s = _sequence(offsets, lengths.dim(0), row)
    return s, lengths[s].cast(int64) + row - offsets[s].cast(int64)


def _memory(wide: AnyDType) -> tuple[AnyTensor, ...]:
    """Numbers of queries, scores, sums, largest scores, sums of powers, and changes, for the queries of a task."""
    numbers = stack[wide](GROUP * DEPTH, zeroed=False)
    scores = stack[wide](GROUP * KEYS, zeroed=False)
    sums = stack[wide](GROUP * DEPTH, zeroed=False)
    return numbers, scores, sums, stack[wide](GROUP), stack[wide](GROUP), stack[wide](GROUP)


def _spans(place: Index, rows: Index, window: int) -> tuple[Index, Index]:
    """From which span on, and up to which one, rows from a place on see something."""
    low = max(place - window + 1, 0) // SPAN if window > 0 else 0
    return low, (place + rows - 1) // SPAN + 1


def _keep(results: AnyTensor, at: Index, heads: Index, size: Index, work: tuple[AnyTensor, ...]) -> None:
    """Stores what a span gave for a row."""
    _, _, sums, tops, totals, _ = work
    for r in range(heads):
        results[at + r], results[at + GROUP + r] = tops[r], totals[r]
        for k in range(size):
            results[at + 2 * GROUP + r * size + k] = sums[r * DEPTH + k]


def _take(results: AnyTensor, at: Index, heads: Index, size: Index, work: tuple[AnyTensor, ...]) -> None:
    """Loads what a span gave for a row."""
    _, _, sums, tops, totals, _ = work
    for r in range(heads):
        tops[r], totals[r] = results[at + r], results[at + GROUP + r]
        for k in range(size):
            sums[r * DEPTH + k] = results[at + 2 * GROUP + r * size + k]


def _put(out: AnyTensor, row: Index, own: Index, count: Index, heads: Index, work: tuple[AnyTensor, ...]) -> None:
    """The results of some rows from what all spans gave."""
    _, _, sums, _, totals, _ = work
    size = out.dim(2)
    for r in range(count * heads):
        factor = select(totals[r] == 0, sums.dtype(0), 1 / totals[r])
        for k in range(size):
            store(out, (row + r // heads, own + r % heads, k), (sums[r * DEPTH + k] * factor).cast(out.dtype))


def _sequence(offsets: AnyTensor, count: Index, row: Index) -> Any:
    """The sequence that a row belongs to."""
    low, high = int64(0), int64(count)
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle].cast(int64) <= row:
            low = middle
        else:
            high = middle
    return low


def _page(table: AnyTensor, s: Index, number: Index, pages: AnyTensor) -> Any:
    """The number of a page of a sequence in the memory of all."""
    assert number < table.dim(1), f"a sequence needs {number + 1} pages, and the table has {table.dim(1)}"
    page = table[s, number].cast(int64)
    assert page < pages.dim(0), f"page {page} is out of range for {pages.dim(0)} pages"
    return page


@kv_cache_store.reference
def kv_cache_store_reference(
    pages: Array, key: Array, value: Array, offsets: Array, lengths: Array, table: Array, *, layer: int
):
    size = key.shape[2]
    room, is_scaled = _room(pages, size)
    for s, row, place in _places(offsets, lengths):
        page, at = pages[table[s, place // room], :, layer], place % room
        for part, numbers in enumerate((key[row], value[row])):
            heads = page[part]
            if is_scaled:
                dtype = pages.dtype
                highest = 127 if dtype == np.int8 else 448 if dtype.name == "float8_e4m3fn" else 57344
                scales = np.abs(numbers.astype(np.float32)).max(1) / np.float32(highest)
                heads[:, room * size :].view(np.float32)[:, at] = scales
                with np.errstate(divide="ignore"):
                    numbers = numbers.astype(np.float32) * np.where(scales == 0, np.float32(0), 1 / scales)[:, None]
                numbers = np.round(numbers) if dtype == np.int8 else numbers
            there = slice(at * size, (at + 1) * size) if part else slice(at, room * size, room)
            heads[:, there] = numbers.astype(pages.dtype)


@flash_attention_ragged.reference
def flash_attention_ragged_reference(
    query: Array, pages: Array, offsets: Array, lengths: Array, table: Array, *, layer: int, window: int, scale: float
):
    result = np.zeros(query.shape, np.float64)
    group = query.shape[1] // max(pages.shape[3], 1)
    size, shared = query.shape[2], pages.shape[3]
    room, is_scaled = _room(pages, size)
    for s, row, place in _places(offsets, lengths):
        here = pages[table[s], :, layer]  # pages, 2, heads, places * numbers
        k, v = (here[:, part, :, : room * size].astype(np.float64) for part in (0, 1))
        k = k.reshape(len(here), shared, size, room).transpose(1, 0, 3, 2)
        v = v.reshape(len(here), shared, room, size).transpose(1, 0, 2, 3)
        if is_scaled:
            scales = np.ascontiguousarray(here[..., room * size :]).view(np.float32).transpose(1, 2, 0, 3)
            k, v = k * scales[0, ..., None], v * scales[1, ..., None]
        k, v = (x.reshape(shared, -1, size)[:, : place + 1].repeat(group, 0) for x in (k, v))
        if window:
            k, v = k[:, -window:], v[:, -window:]
        score = scale * np.einsum("hd,hnd->hn", query[row].astype(np.float64), k)
        power = np.exp(score - score.max(1, keepdims=True))
        result[row] = np.einsum("hn,hnd->hd", power / power.sum(1, keepdims=True), v)
    return result.astype(query.dtype)


def _room(pages: Array, size: int):
    """The places of a page, and whether they have scales."""
    is_scaled = pages.dtype.itemsize == 1
    return pages.shape[4] // (size + SCALE * is_scaled), is_scaled


def _places(offsets: Array, lengths: Array):
    for s, length in enumerate(lengths):
        for row in range(int(offsets[s]), int(offsets[s + 1])):
            yield s, row, int(length) + row - int(offsets[s])
