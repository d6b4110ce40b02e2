"""Computes attention of a few queries, as where a text is written word by word, on a CPU.

A task takes the queries that share a head of keys, and goes along the keys in pages, which stay in the cache for all of
them. Of a page it computes scores and their powers, in vectors of keys, and adds the page's share to what it has.

See also `kernels.attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Floating,
    Index,
    ceildiv,
    exp,
    fma,
    parallel_for,
    select,
    stack,
    store,
    struct,
    tile,
    unroll,
)
from .algorithm import product, unravelled

DEPTH = 256  # numbers of a query that are multiplied in one go
VALUES = 256  # numbers of a value that a task takes at most
WORK = 1 << 16  # multiplications that are worth a task of their own
GROUP = 16  # queries of a task at most, which share a head of keys
KEYS = 64  # keys of a page: what is read of them stays in the cache for all queries of a task


@struct
class Part:
    """Numbers of a working memory, from `at` on."""

    memory: AnyTensor
    at: Index


@struct
class PageRows:
    """The rows of a matrix of keys, or of values, from `first` on: `count` of them."""

    matrix: AnyTensor
    there: tuple[Index, ...]
    first: Index
    count: Index


def ends(first: Index, last: Index, n: Index, causal: bool, window: int) -> tuple[Index, Index]:
    """Between which keys those lie that queries `first` to `last` see at most."""
    low = max(first - window + 1, 0) if window > 0 else 0
    high = min(n, last + 1) if causal else n
    return low, (min(high, last + window) if window > 0 else high)


def by_query(
    wide: AnyDType,
    group: Index,
    lanes: int,
    tensors: tuple[AnyTensor, ...],
    mask: Callable[[AnyDType, tuple[Index, ...], Index, Index, Index], Floating],
    how: tuple[bool, int, float],
    bounds: Callable[[tuple[Index, ...]], tuple[Index, int]],
) -> None:
    """The result for all queries. Numbers of a key, and of a value, lie along the lanes of vectors.

    Args:
        wide: the dtype of sums.
        group: how many heads of queries share one of keys.
        tensors: the result, queries, keys and values.
        mask: what is added to a score.
        how: whether the queries are causal, their window, and what scores are multiplied by.
        bounds: how many keys count, and where the first query stands, for the axes before the heads.
    """
    out, query, key, value = tensors
    m, e, n, depth = out.dim(-2), out.dim(-1), key.dim(-2), key.dim(-1)
    shared = key.dim(-3)
    most = max(min(group * m, GROUP), 1)  # queries of a task
    parts = max(ceildiv(group * m, most), 1)
    leads = out.shape[:-3]

    def one(task: Index):
        first = task % parts * most
        count = min(group * m - first, most)
        head = task // parts % shared
        lead = unravelled(task // parts // shared, leads)
        there = (*lead, head)
        length, offset = bounds(lead)
        index = lambda r, k: (*lead, head * group + (first + r) // m, (first + r) % m, k)  # noqa: E731
        numbers = stack[wide](GROUP * DEPTH, zeroed=False)
        scores = stack[wide](GROUP * KEYS, zeroed=False)
        sums = stack[wide](GROUP * VALUES)
        changes, tops, totals = stack[wide](GROUP), stack[wide](GROUP), stack[wide](GROUP)
        for r in range(count):
            tops[r] = wide(-inf)
            for k in range(depth):
                numbers[r * DEPTH + k] = query[index(r, k)].cast(wide) * wide(how[2])
        low, high = ends(offset, offset + m - 1, length, how[0], how[1])
        for page in range(low, high, KEYS):
            keys = min(high - page, KEYS)
            for r in range(count):
                i = (first + r) % m
                own = head * group + (first + r) // m
                own_numbers, own_scores = Part(numbers, r * DEPTH), Part(scores, r * KEYS)
                score_keys(wide, lanes, PageRows(key, there, page, keys), own_numbers, own_scores)
                seen = ends(i + offset, i + offset, length, how[0], how[1])
                hide_keys(scores, r * KEYS, page, keys, seen, lambda j: mask(wide, lead, own, i, j))  # noqa: B023
                weigh_page(wide, lanes, own_scores, keys, (tops, totals, changes), r)

            def share(k: Index, width: int, page: Index = page, keys: Index = keys):
                for r in range(count // 2):
                    share_values(2, width, scores, 2 * r, PageRows(value, there, page, keys), k, sums, changes)
                if count % 2 > 0:
                    share_values(1, width, scores, count - 1, PageRows(value, there, page, keys), k, sums, changes)

            tile(e, (2 * lanes, lanes, 1), share)
        for r in range(count):
            factor = select(totals[r] == 0, wide(0), 1 / totals[r])
            for k in range(e):
                store(out, index(r, k), (sums[r * VALUES + k] * factor).cast(out.dtype))

    grain = ceildiv(WORK, n * (depth + e) * most + 16)
    parallel_for(product(leads) * shared * parts, one, grain=grain)


def score_keys(
    wide: AnyDType,
    lanes: int,
    page: PageRows,
    numbers: Part,
    scores: Part,
) -> None:
    """The scores of the keys of a page; those behind the last key are -inf, up to a whole vector."""
    key, depth = page.matrix, page.matrix.dim(-1)
    whole = depth // lanes * lanes

    def block(j: Index, count: int):
        products: Any = ()
        for _ in unroll(count):
            products = (*products, SIMD[wide, lanes](0))
        for k in range(0, whole, lanes):
            factors = numbers.memory.load(numbers.at + k, width=lanes)
            new: Any = ()
            for c in unroll(count):
                some = key.load(*page.there, page.first + j + c, k, width=lanes).cast(wide)
                new = (*new, fma(some, factors, products[c]))
            products = new
        for c in unroll(count):
            total = products[c].reduce_add()
            for k in range(whole, depth):
                total = fma(key[(*page.there, page.first + j + c, k)].cast(wide), numbers.memory[numbers.at + k], total)
            scores.memory[scores.at + j + c] = total

    tile(page.count, (4, 1), block)
    for j in range(page.count, ceildiv(page.count, lanes) * lanes):
        scores.memory[scores.at + j] = wide(-inf)


def hide_keys(
    scores: AnyTensor, at: Index, page: Index, keys: Index, seen: tuple[Index, ...], mask: Callable[[Index], Floating]
) -> None:
    """Adds the mask to the scores of a page; of keys that the query does not see they become -inf."""
    for j in range(keys):
        hidden = (page + j < seen[0]) | (page + j >= seen[1])
        scores[at + j] = select(hidden, scores.dtype(-inf), scores[at + j] + mask(page + j))


def weigh_page(
    wide: AnyDType,
    lanes: int,
    scores: Part,
    keys: Index,
    running: tuple[AnyTensor, ...],
    r: Index,
) -> None:
    """Makes powers of the scores of a query for a page; goes on with its largest score and its sum of powers.

    `running`: of all queries the largest scores, the sums of powers, and how much the last page changed these.
    """
    tops, totals, changes = running
    before = tops[r]
    highest = SIMD[wide, lanes](before)
    for j in range(0, keys, lanes):
        result = scores.memory.load(scores.at + j, width=lanes)
        highest = select(result > highest, result, highest)
    top = highest.reduce_max()
    shift = select(top == -inf, wide(0), top)
    added = SIMD[wide, lanes](0)
    for j in range(0, keys, lanes):
        power = exp(scores.memory.load(scores.at + j, width=lanes) - shift)
        scores.memory.store(power, scores.at + j)
        added = added + power
    changes[r] = exp(before - shift)
    totals[r] = totals[r] * changes[r] + added.reduce_add()
    tops[r] = top


def share_values(
    rows: int,
    width: int,
    powers: AnyTensor,
    r: Index,
    page: PageRows,
    k: Index,
    sums: AnyTensor,
    changes: AnyTensor,
) -> None:
    """Adds numbers of the values of a page to the sums of some queries, as much of each as the powers say."""
    totals: Any = ()
    for c in unroll(rows):
        totals = (*totals, sums.load((r + c) * VALUES + k, width=width) * changes[r + c])
    for j in range(page.count):
        some = page.matrix.load(*page.there, page.first + j, k, width=width).cast(sums.dtype)
        new: Any = ()
        for c in unroll(rows):
            new = (*new, fma(powers[(r + c) * KEYS + j], some, totals[c]))
        totals = new
    for c in unroll(rows):
        sums.store(totals[c], (r + c) * VALUES + k)
