"""Computes attention of rows to keys and values in pages, on a CPU.

The keys of a page lie along the lanes of vectors, number by number, so that scores of several keys are sums of products
without a sum across lanes. Keys are taken in blocks that begin at fixed places of a sequence. Each score is summed in
the order of its numbers, each result in the order of its keys, whatever rows a task has: results have the same bits
in all batches.
"""

from __future__ import annotations

from math import inf
from typing import Any

from ...dsl import SIMD, ceildiv, fma, max, min, tile, unroll
from .few_queries import weigh_page

DEPTH = 256  # numbers of a head at most
GROUP = 16  # queries of a task at most, rows by heads
KEYS = 64  # keys of a block


def attend(
    wide: Any, lanes: Any, pages: Any, room: Any, page_of: Any, there: Any, places: Any, work: Any, window: Any
) -> None:
    """Makes sums of values, and of powers, for neighbouring rows of a sequence and some heads that share one of keys.

    Args:
        wide: the dtype of sums.
        lanes: of a vector.
        pages: the memory (pages, 2, layers, heads, places * numbers).
        room: places of a page.
        page_of: the page of a number of a page of the sequence.
        there: the layer and the head of keys.
        places: of the first row, how many rows, and how many heads.
        work: numbers of queries, scores, sums, largest scores, sums of powers, changes.
        window: how many places a row sees; 0 for all.
    """
    first, rows, heads = places
    scores, sums = work[1], work[2]
    count = rows * heads
    size = pages.dim(4) // room
    high = first + rows
    low = max(first - window + 1, 0) if window > 0 else 0
    for start in range(low // KEYS * KEYS, high, KEYS):
        keys = min(high - start, KEYS)
        last = start + keys

        def range_of(r, start=start, keys=keys):
            """From which key of the block up to which one a query sees."""
            place = first + r // heads
            bottom = max(place - window + 1 - start, 0) if window > 0 else 0
            return min(bottom, keys), max(min(place + 1 - start, keys), 0)

        for number in range(start // room, ceildiv(last, room)):
            at = max(number * room, start)
            some = min(number * room + room, last) - at
            by_number = (page_of(number), 0, *there)

            def score(r, many, at=at, some=some, by_number=by_number, start=start, number=number):
                _score(wide, many, pages, by_number, room, size, at - number * room, some, work, r, at - start, lanes)

            tile(count, (4, 2, 1), score)
        _weigh(wide, lanes, count, keys, size, work, range_of)
        for number in range(start // room, ceildiv(last, room)):
            at = max(number * room, start)
            some = min(number * room + room, last) - at
            by_place = (page_of(number), 1, *there)

            def share(r, many, at=at, some=some, by_place=by_place, start=start, number=number, range_of=range_of):
                to = at - start
                within = at - number * room
                bottom, top = range_of(r + many - 1)[0], range_of(r)[1]
                if (bottom <= to) & (top >= to + some):
                    _share(many, lanes, pages, by_place, size, within - to, (to, to + some), scores, r, sums)
                else:  # a query that does not see a key takes nothing of it, not even 0 times an infinity
                    for one in range(r, r + many):
                        seen = range_of(one)
                        ends = (max(seen[0], to), min(seen[1], to + some))
                        _share(1, lanes, pages, by_place, size, within - to, ends, scores, one, sums)

            tile(count, (4, 2, 1), share)


def begin(wide: Any, count: Any, size: Any, work: Any) -> None:
    """Sums and powers of nothing, for so many queries."""
    _, _, sums, tops, totals, _ = work
    for r in range(count):
        tops[r], totals[r] = wide(-inf), wide(0)
        for k in range(size):
            sums[r * DEPTH + k] = wide(0)


def _weigh(wide: Any, lanes: Any, count: Any, keys: Any, size: Any, work: Any, range_of: Any) -> None:
    """Makes powers of the scores of a block, of which a query sees a range, and scales its sums by what changed."""
    _, scores, sums, tops, totals, changes = work
    for r in range(count):
        bottom, top = range_of(r)
        for j in range(bottom):
            scores[r * KEYS + j] = wide(-inf)
        for j in range(top, ceildiv(keys, lanes) * lanes):
            scores[r * KEYS + j] = wide(-inf)
        weigh_page(wide, lanes, scores, r * KEYS, keys, tops, totals, changes, r)
        for k in range(size):
            sums[r * DEPTH + k] = sums[r * DEPTH + k] * changes[r]


def _score(
    wide: Any,
    many: Any,
    pages: Any,
    there: Any,
    room: Any,
    size: Any,
    within: Any,
    some: Any,
    work: Any,
    r: Any,
    to: Any,
    lanes: Any,
) -> None:
    """Scores of some queries for neighbouring keys of a page."""
    numbers, scores = work[0], work[1]

    def vector(j, width):
        totals: Any = ()
        for _ in unroll(many):
            totals = (*totals, SIMD[wide, width](0))
        for k in range(size):
            key = pages.load(*there, k * room + within + j, width=width).cast(wide)
            new: Any = ()
            for i in unroll(many):
                new = (*new, fma(key, numbers[(r + i) * DEPTH + k], totals[i]))
            totals = new
        for i in unroll(many):
            scores.store(totals[i], (r + i) * KEYS + to + j)

    tile(some, (2 * lanes, lanes, 1), vector)


def _share(
    many: Any,
    lanes: Any,
    pages: Any,
    there: Any,
    size: Any,
    shift: Any,
    ends: Any,
    powers: Any,
    r: Any,
    sums: Any,
) -> None:
    """Adds the values of keys `ends` of a block to the sums of some queries, as much of each as the powers say."""

    def vector(k, width):
        totals: Any = ()
        for i in unroll(many):
            totals = (*totals, sums.load((r + i) * DEPTH + k, width=width))
        for j in range(ends[0], ends[1]):
            value = pages.load(*there, (shift + j) * size + k, width=width).cast(sums.dtype)
            new: Any = ()
            for i in unroll(many):
                new = (*new, fma(value, powers[(r + i) * KEYS + j], totals[i]))
            totals = new
        for i in unroll(many):
            sums.store(totals[i], (r + i) * DEPTH + k)

    tile(size, (2 * lanes, lanes, 1), vector)
