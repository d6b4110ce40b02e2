"""`multiply_blocks`: products with matrices of quantised blocks.

A single row of the left operand is multiplied by blocks as they are read. Where there are several, some rows of blocks
are decoded once to integers and scales, which all rows of the left operand go along. Each element is summed in one
order, however many rows there are: a result does not depend on the rows around it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    SIMD,
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    ceildiv,
    dot4,
    float32,
    fma,
    parallel_for,
    scratch,
    store,
    uint8,
    unroll,
)
from .algorithm import product, unravelled
from .encodings import PART, Part, Read, lanes_of
from .products import WORK

LANES = 8  # of the sums of a part
TOGETHER = 4  # rows for which a part is decoded once
COLUMNS = 8  # rows of blocks that a task takes at a time
AHEAD = 8192  # bytes from what is read to what is requested: loads of a few bytes keep few lines under way


def multiply_blocks(
    ctx: DeviceContext,
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    w: AnyTensor,
    part: Callable[[Read, int], Part],
    elements: int,
    bytes: int,
    has_least: bool,
) -> None:
    """out[*s, j] = the sum of x[*s, k] * w[j, k] over k.

    Args:
        x: the left operand as `round_to_8_bits` makes it: integers, scales, sums and offsets.
        w: rows of blocks.
        part, elements, bytes: how a part is read (see `encodings`), and the size of a block.
        has_least: whether something is subtracted from scaled digits.
    """
    rows = out.shape[:-1]
    blocks = w.dim(1) // bytes  # not of the left operand: accesses to the matrix are then known to lie in it

    def part_of(j: Index, b: Index, s: int):
        if s == 0 and not ctx.target.is_gpu:
            w.prefetch(j, b * bytes + AHEAD)
        return part(lambda at, width: w.load(j, b * bytes + at, width=width), s)

    if ctx.target.is_gpu:
        _by_element(out, x, part_of, elements, blocks)
    elif product(rows) == 1:
        _single(out, x, part_of, elements, blocks)
    else:
        _several(out, x, part_of, elements, has_least)


def _single(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    part_of: Callable[[Index, Index, int], Part],
    elements: int,
    blocks: Index,
) -> None:
    n, depth = out.dim(-1), x[0].dim(-1)

    def columns(task: Index):
        for j in range(task * COLUMNS, min((task + 1) * COLUMNS, n)):
            _row_sums(out, x, 0, j, 1, lambda b, s, j=j: part_of(j, b, s), elements // PART, blocks)

    parallel_for(ceildiv(n, COLUMNS), columns, grain=ceildiv(WORK, COLUMNS * depth + 16))


def _row_sums(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    first: Index,
    j: Index,
    count: int,
    part: Callable[[Index, int], Part],
    parts: int,
    blocks: Index,
) -> None:
    """The elements of column j of `count` rows from `first` on; part(b, s) is part s of block b."""
    leads: tuple[Any, ...] = ()
    totals: tuple[Any, ...] = ()
    for r in unroll(count):
        leads = (*leads, unravelled(first + r, out.shape[:-1]))
        totals = (*totals, (SIMD[float32, 2 * LANES](0), float32(0)))
    if parts == 1:
        for pair in range(blocks // 2):
            totals = _added(totals, leads, x, 2 * pair, part(2 * pair, 0), part(2 * pair + 1, 0))
        if blocks % 2 == 1:
            totals = _last_added(totals, leads, x, blocks - 1, part(blocks - 1, 0))
    else:
        for b in range(blocks):
            for s in unroll(parts // 2):
                totals = _added(totals, leads, x, b * parts + 2 * s, part(b, 2 * s), part(b, 2 * s + 1))
    for r in unroll(count):
        store(out, (*leads[r], j), totals[r][0].reduce_add() - totals[r][1])


def _added(
    totals: tuple[tuple[Floating, Floating], ...],
    leads: tuple[tuple[Index, ...], ...],
    x: tuple[AnyTensor, ...],
    at: Index,
    part: Part,
    next: Part,
) -> Any:
    """The sums of some rows with the products of part `at` and of the next one."""
    integers, scales, sums, offsets = x
    digits, factors = part[0].join(next[0]), lanes_of(part[1], LANES).join(lanes_of(next[1], LANES))
    new: tuple[Any, ...] = ()
    for r in unroll(len(leads)):
        total, less = totals[r]
        begun = offsets.load(*leads[r], at * LANES, width=2 * LANES)
        dot = dot4(begun, digits, integers.load(*leads[r], at * PART, width=2 * PART)).cast(float32)
        pair = scales.load(*leads[r], at, width=2)
        total = fma(dot, factors * pair.shuffle(tuple(k // LANES for k in range(2 * LANES))), total)
        if part[2] is not None:
            less = fma(part[2], sums[(*leads[r], at)], less)
            less = fma(next[2], sums[(*leads[r], at + 1)], less)
        new = (*new, (total, less))
    return new


def _last_added(
    totals: tuple[tuple[Floating, ...], ...],
    leads: tuple[tuple[Index, ...], ...],
    x: tuple[AnyTensor, ...],
    at: Index,
    part: Part,
) -> Any:
    """As `_added` of a part behind which there is none."""
    integers, scales, sums, offsets = x
    none = SIMD[float32, LANES](0)
    new: tuple[Any, ...] = ()
    for r in unroll(len(leads)):
        total, less = totals[r]
        begun = offsets.load(*leads[r], at * LANES, width=LANES)
        dot = dot4(begun, part[0], integers.load(*leads[r], at * PART, width=PART)).cast(float32)
        total = fma(dot.join(none), (lanes_of(part[1], LANES) * scales[(*leads[r], at)]).join(none), total)
        if part[2] is not None:
            less = fma(part[2], sums[(*leads[r], at)], less)
        new = (*new, (total, less))
    return new


def _several(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    part_of: Callable[[Index, Index, int], Part],
    elements: int,
    has_least: bool,
) -> None:
    """A task decodes a few rows of blocks, which then all rows of the left operand go along."""
    m, n, depth = product(out.shape[:-1]), out.dim(-1), x[0].dim(-1)
    parts = elements // PART

    def columns(task: Index):
        first = task * COLUMNS
        count = min(n - first, COLUMNS)
        digits = scratch[uint8](COLUMNS, depth)
        factors = scratch[float32](COLUMNS, depth // PART * LANES)
        least = scratch[float32](COLUMNS, depth // PART)
        for c in range(count):
            for b in range(depth // elements):
                for s in unroll(parts):
                    part = part_of(first + c, b, s)
                    at = b * parts + s
                    digits.store(part[0], c, at * PART)
                    factors.store(lanes_of(part[1], LANES), c, at * LANES)
                    if has_least:
                        least[c, at] = part[2]

        def decoded(c: Index):
            return lambda at, s: (
                digits.load(c, at * PART, width=PART),
                (factors.load(c, at * LANES, width=LANES),),
                least[c, at] if has_least else None,
            )

        whole = m // TOGETHER * TOGETHER
        for i in range(0, whole, TOGETHER):
            for c in range(count):
                _row_sums(out, x, i, first + c, TOGETHER, decoded(c), 1, depth // PART)
        for i in range(whole, m):
            for c in range(count):
                _row_sums(out, x, i, first + c, 1, decoded(c), 1, depth // PART)

    parallel_for(ceildiv(n, COLUMNS), columns, grain=ceildiv(WORK, COLUMNS * m * depth + 16))


def _by_element(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    part_of: Callable[[Index, Index, int], Part],
    elements: int,
    blocks: Index,
) -> None:
    """A thread computes an element: for GPUs."""
    n = out.dim(-1)

    def element(task: Index):
        j = task % n
        _row_sums(out, x, task // n, j, 1, lambda b, s: part_of(j, b, s), elements // PART, blocks)

    parallel_for(product(out.shape[:-1]) * n, element)
