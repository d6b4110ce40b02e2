"""Computes attention of rows to keys and values in pages, on a CPU.

The keys of a page lie along the lanes of vectors, number by number, so that scores of several keys are sums of products
without a sum across lanes. Keys are taken in blocks that begin at fixed places of a sequence. Each score is summed in
the order of its numbers, each result in the order of its keys, whatever rows a task has: results have the same bits
in all batches.

A *span* is a number of neighbouring keys, which begins at a fixed place of a sequence. Each span is attended to by
itself, and what it gives is merged in the order of the spans, so that several tasks can share a long sequence.

Pages of 8-bit numbers have a float32 scale for each place, behind the numbers of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from ...dsl import SIMD, AnyDType, AnyTensor, Index, ceildiv, exp, float32, fma, max, min, select, struct, tile, unroll
from .few_queries import Part, weigh_page

DEPTH = 256  # numbers of a head at most
GROUP = 16  # queries of a task at most, rows by heads
KEYS = 64  # keys of a block
SPAN = 8 * KEYS  # keys of a span
SCALE = 4  # bytes of the scale of a place


@struct
class PagedHead:
    """Where the keys and values of a head of a sequence lie.

    Attributes:
        pages: the memory (pages, 2, layers, heads, places * numbers).
        room: places of a page.
        page_of: a function: the page of a number of a page of the sequence.
        there: the layer and the head of keys.
    """

    pages: AnyTensor
    room: Index
    page_of: Any
    there: tuple[int, Index]


@struct
class Head:
    """The keys, or the values, of a head of a page: `room` places of `size` numbers."""

    pages: AnyTensor
    there: tuple[Index, int, int, Index]
    room: Index
    size: Index


def places_of(pages: AnyTensor, size: Index) -> Any:
    """How many places a page has, whose heads have so many numbers."""
    return pages.dim(4) // (size + SCALE if pages.dtype.bits == 8 else size)


def _numbers_of(pages: AnyTensor, room: Index) -> Any:
    """How many numbers a head has, if a page has so many places."""
    return pages.dim(4) // room - (SCALE if pages.dtype.bits == 8 else 0)


def scales_of(pages: AnyTensor, there: tuple[Index, int, int, Index], room: Index, size: Index) -> Any:
    """Where the scales of a head of a page lie."""
    return pages.pointer(*there, room * size).bitcast(float32)


def _scales(head: Head) -> Any:
    return scales_of(head.pages, head.there, head.room, head.size)


def attend(
    wide: AnyDType,
    lanes: int,
    cache: PagedHead,
    places: tuple[Index, ...],
    work: tuple[AnyTensor, ...],
    window: int,
    span: Index,
) -> None:
    """Makes sums of values, and of powers, for neighbouring rows of a sequence and some heads that share one of keys.

    Args:
        wide: the dtype of sums.
        lanes: of a vector.
        cache: the keys and values.
        places: of the first row, how many rows, and how many heads.
        work: numbers of queries, scores, sums, largest scores, sums of powers, changes.
        window: how many places a row sees; 0 for all.
        span: the number of the span whose keys are taken.
    """
    first, rows, heads = places
    count = rows * heads
    size = _numbers_of(cache.pages, cache.room)
    high = min(first + rows, (span + 1) * SPAN)
    low = max(first - window + 1, span * SPAN) if window > 0 else span * SPAN
    for start in range(low // KEYS * KEYS, high, KEYS):
        keys = min(high - start, KEYS)

        def range_of(r: Index, start: Index = start, keys: Index = keys):
            """From which key of the block up to which one a query sees."""
            place = first + r // heads
            bottom = max(place - window + 1 - start, 0) if window > 0 else 0
            return min(bottom, keys), max(min(place + 1 - start, keys), 0)

        block = (start, keys, count)
        _score_keys(wide, lanes, cache, block, work)
        _weigh(wide, lanes, count, keys, size, work, range_of)
        _share_values(lanes, cache, block, work, range_of)


def _score_keys(
    wide: AnyDType,
    lanes: int,
    cache: PagedHead,
    block: tuple[Index, ...],
    work: tuple[AnyTensor, ...],
) -> None:
    """Scores of all queries of a task for the keys of a block: the first key, how many, and how many queries."""
    start, keys, count = block
    last = start + keys
    room, size = cache.room, _numbers_of(cache.pages, cache.room)
    for number in range(start // room, ceildiv(last, room)):
        at = max(number * room, start)
        some = min(number * room + room, last) - at
        keys_of_page = Head(cache.pages, (cache.page_of(number), 0, *cache.there), room, size)

        def score(
            r: Index,
            many: int,
            at: Index = at,
            some: Index = some,
            keys_of_page: Head = keys_of_page,
            number: Index = number,
        ):
            _score(wide, many, keys_of_page, (at - number * room, some), work, r, at - start, lanes)

        tile(count, (4, 2, 1), score)


def _share_values(
    lanes: int,
    cache: PagedHead,
    block: tuple[Index, ...],
    work: tuple[AnyTensor, ...],
    range_of: Callable[[Index], tuple[Index, Index]],
) -> None:
    """Adds the values of a block to the sums of all queries of a task, as much of each as the powers say."""
    start, keys, count = block
    last = start + keys
    scores, sums = work[1], work[2]
    room, size = cache.room, _numbers_of(cache.pages, cache.room)
    for number in range(start // room, ceildiv(last, room)):
        at = max(number * room, start)
        some = min(number * room + room, last) - at
        values = Head(cache.pages, (cache.page_of(number), 1, *cache.there), room, size)

        def share(
            r: Index,
            many: int,
            at: Index = at,
            some: Index = some,
            values: Head = values,
            number: Index = number,
        ):
            to = at - start
            within = at - number * room
            bottom, top = range_of(r + many - 1)[0], range_of(r)[1]
            if (bottom <= to) & (top >= to + some):
                _share(many, lanes, values, within - to, (to, to + some), scores, r, sums)
            else:  # a query that does not see a key takes nothing of it, not even 0 times an infinity
                for one in range(r, r + many):
                    seen = range_of(one)
                    ends = (max(seen[0], to), min(seen[1], to + some))
                    _share(1, lanes, values, within - to, ends, scores, one, sums)

        tile(count, (4, 2, 1), share)


def begin(wide: AnyDType, count: Index, size: Index, work: tuple[AnyTensor, ...]) -> None:
    """Sums and powers of nothing, for so many queries."""
    _, _, sums, tops, totals, _ = work
    for r in range(count):
        tops[r], totals[r] = wide(-inf), wide(0)
        for k in range(size):
            sums[r * DEPTH + k] = wide(0)


def merge(wide: AnyDType, count: Index, size: Index, work: tuple[AnyTensor, ...], total: tuple[AnyTensor, ...]) -> None:
    """Adds what a span gave for so many queries to what those before it gave."""
    _, _, sums, tops, totals, _ = work
    _, _, all_sums, all_tops, all_totals, _ = total
    for r in range(count):
        top = max(all_tops[r], tops[r])
        shift = select(top == -inf, wide(0), top)
        before, now = exp(all_tops[r] - shift), exp(tops[r] - shift)
        all_tops[r] = top
        all_totals[r] = all_totals[r] * before + totals[r] * now
        for k in range(size):
            at = r * DEPTH + k
            all_sums[at] = all_sums[at] * before + sums[at] * now


def _weigh(
    wide: AnyDType,
    lanes: int,
    count: Index,
    keys: Index,
    size: Index,
    work: tuple[AnyTensor, ...],
    range_of: Callable[[Index], tuple[Index, Index]],
) -> None:
    """Makes powers of the scores of a block, of which a query sees a range, and scales its sums by what changed."""
    scores, sums, running = work[1], work[2], work[3:]
    for r in range(count):
        bottom, top = range_of(r)
        for j in range(bottom):
            scores[r * KEYS + j] = wide(-inf)
        for j in range(top, ceildiv(keys, lanes) * lanes):
            scores[r * KEYS + j] = wide(-inf)
        weigh_page(wide, lanes, Part(scores, r * KEYS), keys, running, r)
        for k in range(size):
            sums[r * DEPTH + k] = sums[r * DEPTH + k] * running[2][r]


def _score(
    wide: AnyDType,
    many: int,
    head: Head,
    part: tuple[Index, Index],
    work: tuple[AnyTensor, ...],
    r: Index,
    to: Index,
    lanes: int,
) -> None:
    """Scores of some queries for neighbouring keys of a page; `part`: the first of these keys, and how many."""
    within, some = part
    numbers, scores = work[0], work[1]
    is_scaled = head.pages.dtype.bits == 8

    def vector(j: Index, width: int):
        totals: Any = ()
        for _ in unroll(many):
            totals = (*totals, SIMD[wide, width](0))
        for k in range(head.size):
            key = head.pages.load(*head.there, k * head.room + within + j, width=width).cast(wide)
            new: Any = ()
            for i in unroll(many):
                new = (*new, fma(key, numbers[(r + i) * DEPTH + k], totals[i]))
            totals = new
        scales = _scales(head).load(within + j, width=width).cast(wide) if is_scaled else 1
        for i in unroll(many):
            scores.store(totals[i] * scales if is_scaled else totals[i], (r + i) * KEYS + to + j)

    tile(some, (2 * lanes, lanes, 1), vector)


def _share(
    many: int,
    lanes: int,
    head: Head,
    shift: Index,
    ends: tuple[Index, Index],
    powers: AnyTensor,
    r: Index,
    sums: AnyTensor,
) -> None:
    """Adds the values of keys `ends` of a block to the sums of some queries, as much of each as the powers say."""
    is_scaled = head.pages.dtype.bits == 8

    def vector(k: Index, width: int):
        totals: Any = ()
        for i in unroll(many):
            totals = (*totals, sums.load((r + i) * DEPTH + k, width=width))
        for j in range(ends[0], ends[1]):
            value = head.pages.load(*head.there, (shift + j) * head.size + k, width=width).cast(sums.dtype)
            if is_scaled:
                value = value * _scales(head).load(shift + j).cast(sums.dtype)
            new: Any = ()
            for i in unroll(many):
                new = (*new, fma(value, powers[(r + i) * KEYS + j], totals[i]))
            totals = new
        for i in unroll(many):
            sums.store(totals[i], (r + i) * DEPTH + k)

    tile(head.size, (2 * lanes, lanes, 1), vector)
