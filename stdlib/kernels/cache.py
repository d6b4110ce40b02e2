"""Stores keys and values in pages, and attends to them, for rows of sequences of different lengths.

The rows of all sequences of a batch stand behind each other. Sequence s has the rows `offsets[s]` to `offsets[s + 1]`,
which follow the `lengths[s]` places that it has in its pages already; `table[s]` has the numbers of these pages. Rows
from the last offset on belong to no sequence. A page has room for some places of all layers and heads:

    pages (pages, 2, layers, heads, places * numbers); first keys, number by number, then values, place by place

What a row gets depends on its own sequence alone, and each row is computed in the same order, so that results have the
same bits in any batch and however the rows of a sequence are cut into batches.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    MutableInputTensor,
    OutputTensor,
    ceildiv,
    int64,
    max,
    min,
    parallel_for,
    register,
    select,
    stack,
    store,
    uint32,
)
from ..algorithms.algorithm import wide_dtype
from ..algorithms.few_queries import WORK
from ..algorithms.paged_attention import DEPTH, GROUP, KEYS, attend, begin

T = TypeVar("T", bound=Floating)
S = TypeVar("S", bound=Floating)
SHARES = 8  # tasks that the rows of a batch make at least, where it has as many


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
    room = pages.dim(4) // size
    sequences = lengths.dim(0)

    def one(row):
        if row < offsets[sequences].cast(int64):
            s = _sequence(offsets, sequences, row)
            place = lengths[s].cast(int64) + row - offsets[s].cast(int64)
            page = _page(table, s, place // room, pages)
            for head in range(heads):
                for k in range(size):
                    store(pages, (page, 0, layer, head, k * room + place % room), key[row, head, k].cast(S))
                    store(pages, (page, 1, layer, head, place % room * size + k), value[row, head, k].cast(S))

    parallel_for(key.dim(0), one, grain=ceildiv(WORK, heads * size + 1))


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
    room = pages.dim(4) // size
    group = max(query.dim(1) // max(shared, 1), 1)
    parts = ceildiv(group, GROUP)
    most = max(min(GROUP // group, rows // SHARES), 1)  # rows of a task
    sequences = lengths.dim(0)

    def one(task):
        part = task % parts * GROUP
        heads = min(group - part, GROUP)
        head = task // parts % shared
        own = head * group + part
        numbers = stack[wide](GROUP * DEPTH, zeroed=False)
        scores = stack[wide](GROUP * KEYS, zeroed=False)
        sums = stack[wide](GROUP * DEPTH, zeroed=False)
        tops, totals, changes = stack[wide](GROUP), stack[wide](GROUP), stack[wide](GROUP)
        work = (numbers, scores, sums, tops, totals, changes)
        row = task // parts // shared * most
        end = min(row + most, rows)
        while row < end:
            stop = end
            begin(wide, (end - row) * heads, size, work)
            if row < offsets[sequences].cast(int64):
                s = _sequence(offsets, sequences, row)
                stop = min(end, offsets[s + 1].cast(int64))
                place = lengths[s].cast(int64) + row - offsets[s].cast(int64)
                for r in range((stop - row) * heads):
                    for k in range(size):
                        numbers[r * DEPTH + k] = query[row + r // heads, own + r % heads, k].cast(wide) * wide(scale)
                places = (place, stop - row, heads)
                page_of = lambda number: _page(table, s, number, pages)  # noqa: B023, E731
                attend(wide, lanes, pages, room, page_of, (layer, head), places, work, window)
            for r in range((stop - row) * heads):
                factor = select(totals[r] == 0, wide(0), 1 / totals[r])
                for k in range(size):
                    found = sums[r * DEPTH + k] * factor
                    store(out, (row + r // heads, own + r % heads, k), found.cast(T))
            row = stop

    parallel_for(ceildiv(rows, most) * shared * parts, one, grain=1)


def _sequence(offsets: Any, count: Any, row: Any) -> Any:
    """The sequence that a row belongs to."""
    low, high = int64(0), int64(count)
    while high - low > 1:
        middle = (low + high) // 2
        if offsets[middle].cast(int64) <= row:
            low = middle
        else:
            high = middle
    return low


def _page(table: Any, s: Any, number: Any, pages: Any) -> Any:
    """The number of a page of a sequence in the memory of all."""
    assert number < table.dim(1), f"a sequence needs {number + 1} pages, and the table has {table.dim(1)}"
    page = table[s, number].cast(int64)
    assert page < pages.dim(0), f"page {page} is out of range for {pages.dim(0)} pages"
    return page


@kv_cache_store.reference
def kv_cache_store_reference(pages, key, value, offsets, lengths, table, *, layer):
    room = pages.shape[4] // key.shape[2]
    keys, values = pages[:, 0, layer], pages[:, 1, layer]
    for s, row, place in _places(offsets, lengths):
        page, at = table[s, place // room], place % room
        keys[page, :, at::room] = key[row].astype(pages.dtype)
        values[page].reshape(key.shape[1], room, -1)[:, at] = value[row].astype(pages.dtype)


@flash_attention_ragged.reference
def flash_attention_ragged_reference(query, pages, offsets, lengths, table, *, layer, window, scale):
    result = np.zeros(query.shape, np.float64)
    group = query.shape[1] // max(pages.shape[3], 1)
    for s, row, place in _places(offsets, lengths):
        here = pages[table[s], :, layer].astype(np.float64)  # pages, 2, heads, places * numbers
        size, shared = query.shape[2], pages.shape[3]
        k = here[:, 0].reshape(len(here), shared, size, -1).transpose(1, 0, 3, 2).reshape(shared, -1, size)
        v = here[:, 1].reshape(len(here), shared, -1, size).transpose(1, 0, 2, 3).reshape(shared, -1, size)
        k, v = (x[:, : place + 1].repeat(group, 0) for x in (k, v))
        if window:
            k, v = k[:, -window:], v[:, -window:]
        score = scale * np.einsum("hd,hnd->hn", query[row].astype(np.float64), k)
        power = np.exp(score - score.max(1, keepdims=True))
        result[row] = np.einsum("hn,hnd->hd", power / power.sum(1, keepdims=True), v)
    return result.astype(query.dtype)


def _places(offsets, lengths):
    for s, length in enumerate(lengths):
        for row in range(int(offsets[s]), int(offsets[s + 1])):
            yield s, row, int(length) + row - int(offsets[s])
