"""Stores keys and values in pages, and attends to them, for rows of sequences of different lengths.

The rows of all sequences of a batch stand behind each other. Sequence s has the rows `offsets[s]` to `offsets[s + 1]`,
which follow the `lengths[s]` places that it has in its pages already; `table[s]` has the numbers of these pages. Rows
from the last offset on belong to no sequence. A page has room for some places of all layers and heads:

    pages (pages, 2, layers, heads, places, numbers); first keys, then values

What a row gets depends on its own sequence alone, and each row is computed in the same order, so that results have the
same bits in any batch and however the rows of a sequence are cut into batches.
"""

from __future__ import annotations

from math import inf
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
    parallel_for,
    register,
    select,
    stack,
    store,
    tile,
    uint32,
)
from ..algorithms.algorithm import wide_dtype
from ..algorithms.few_queries import (
    DEPTH,
    GROUP,
    KEYS,
    VALUES,
    WORK,
    ends,
    hide_keys,
    score_keys,
    share_values,
    weigh_page,
)

T = TypeVar("T", bound=Floating)
S = TypeVar("S", bound=Floating)


@register("kv_cache_store", fuse=False)
def kv_cache_store(
    pages: MutableInputTensor[S, "p two layers g z e"],
    key: InputTensor[T, "t g e"],
    value: InputTensor[T, "t g e"],
    offsets: InputTensor[uint32, "ends"],
    lengths: InputTensor[uint32, "s"],
    table: InputTensor[uint32, "s m"],
    *,
    layer: int,
) -> None:
    """Writes the keys and values of a layer to the places behind those that each sequence has."""
    heads, room, size = pages.dim(3), pages.dim(4), pages.dim(5)
    sequences = lengths.dim(0)

    def one(row):
        if row < offsets[sequences].cast(int64):
            s = _sequence(offsets, sequences, row)
            place = lengths[s].cast(int64) + row - offsets[s].cast(int64)
            page = _page(table, s, place // room, pages)
            for head in range(heads):
                for k in range(size):
                    store(pages, (page, 0, layer, head, place % room, k), key[row, head, k].cast(S))
                    store(pages, (page, 1, layer, head, place % room, k), value[row, head, k].cast(S))

    parallel_for(key.dim(0), one, grain=ceildiv(WORK, heads * size + 1))


@register("flash_attention_ragged", fuse=False)
def flash_attention_ragged(
    out: OutputTensor[T, "t h e"],
    query: InputTensor[T, "t h e"],
    pages: InputTensor[S, "p two layers g z e"],
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
    shared, room, size = pages.dim(3), pages.dim(4), pages.dim(5)
    group = max(query.dim(1) // max(shared, 1), 1)
    parts = ceildiv(group, GROUP)
    sequences = lengths.dim(0)

    def one(task):
        first = task % parts * GROUP
        count = min(group - first, GROUP)
        head = task // parts % shared
        row = task // parts // shared
        own = head * group + first
        numbers = stack[wide](GROUP * DEPTH, zeroed=False)
        scores = stack[wide](GROUP * KEYS, zeroed=False)
        sums = stack[wide](GROUP * VALUES)
        changes, tops, totals = stack[wide](GROUP), stack[wide](GROUP), stack[wide](GROUP)
        if row < offsets[sequences].cast(int64):
            s = _sequence(offsets, sequences, row)
            place = lengths[s].cast(int64) + row - offsets[s].cast(int64)
            for r in range(count):
                tops[r] = wide(-inf)
                for k in range(size):
                    numbers[r * DEPTH + k] = query[row, own + r, k].cast(wide) * wide(scale)
            low, high = ends(place, place, place + 1, True, window)
            for number in range(low // room, ceildiv(high, room)):
                page = _page(table, s, number, pages)
                keys = min(high - number * room, room)
                hidden = max(low - number * room, 0)
                there = (page, layer, head)
                _see_page(
                    wide, lanes, pages, there, (hidden, keys), count, numbers, scores, sums, (tops, totals, changes)
                )
        for r in range(count):
            factor = select(totals[r] == 0, wide(0), 1 / totals[r])
            for k in range(size):
                store(out, (row, own + r, k), (sums[r * VALUES + k] * factor).cast(T))

    parallel_for(query.dim(0) * shared * parts, one, grain=1)


def _see_page(
    wide: Any,
    lanes: Any,
    pages: Any,
    there: Any,
    seen: Any,
    count: Any,
    numbers: Any,
    scores: Any,
    sums: Any,
    running: Any,
) -> None:
    """Adds what some heads of a row find at places of a page, from the first that they see on."""
    page, layer, head = there
    tops, totals, changes = running
    size = pages.dim(5)
    of_keys = (page, 0, layer, head)
    of_values = (page, 1, layer, head)
    for start in range(0, seen[1], KEYS):
        keys = min(seen[1] - start, KEYS)
        for r in range(count):
            score_keys(wide, lanes, pages, of_keys, start, keys, size, numbers, r * DEPTH, scores, r * KEYS)
            hide_keys(scores, r * KEYS, start, keys, seen, lambda j: wide(0))
            weigh_page(wide, lanes, scores, r * KEYS, keys, tops, totals, changes, r)

        def share(k, width, start=start, keys=keys):
            for r in range(count // 2):
                share_values(2, width, scores, 2 * r, keys, pages, of_values, start, k, sums, changes)
            if count % 2 > 0:
                share_values(1, width, scores, count - 1, keys, pages, of_values, start, k, sums, changes)

        tile(size, (2 * lanes, lanes, 1), share)


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
    result = pages.copy()
    for s, row, place in _places(offsets, lengths):
        at = table[s, place // pages.shape[4]], place % pages.shape[4]
        result[at[0], 0, layer, :, at[1]] = key[row].astype(pages.dtype)
        result[at[0], 1, layer, :, at[1]] = value[row].astype(pages.dtype)
    return result


@flash_attention_ragged.reference
def flash_attention_ragged_reference(query, pages, offsets, lengths, table, *, layer, window, scale):
    result = np.zeros(query.shape, np.float64)
    group = query.shape[1] // max(pages.shape[3], 1)
    for s, row, place in _places(offsets, lengths):
        here = pages[table[s], :, layer].astype(np.float64)  # pages, 2, heads, places, numbers
        k, v = (np.concatenate(list(here[:, i]), 1)[:, : place + 1].repeat(group, 0) for i in (0, 1))
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
