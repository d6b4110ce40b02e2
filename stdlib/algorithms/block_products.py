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
OF_BLOCK = 8  # parts of a block of 256 elements
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
            _row_sums(out, x, (0, 1), j, lambda b, s, j=j: part_of(j, b, s), elements // PART, blocks)

    parallel_for(ceildiv(n, COLUMNS), columns, grain=ceildiv(WORK, COLUMNS * depth + 16))


def _row_sums(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    rows: tuple[Index, int],
    j: Index,
    part: Callable[[Index, int], Part],
    parts: int,
    blocks: Index,
    least: Callable[[Index], Floating] | None = None,
) -> None:
    """The elements of column j of `rows`, the first one and how many; part(b, s) is part s of block b.

    What is subtracted of `OF_BLOCK` parts is one vector, of blocks that have so many or of least(b).
    """
    first, count = rows
    leads: tuple[Any, ...] = ()
    totals: tuple[Any, ...] = ()
    as_vectors = parts == OF_BLOCK or least is not None
    for r in unroll(count):
        leads = (*leads, unravelled(first + r, out.shape[:-1]))
        totals = (*totals, (SIMD[float32, 2 * LANES](0), SIMD[float32, OF_BLOCK](0) if as_vectors else float32(0)))
    if parts == 1:
        for pair in range(blocks // 2):
            totals = _added(totals, leads, x, 2 * pair, part(2 * pair, 0), part(2 * pair + 1, 0))
        if blocks % 2 == 1:
            totals = _last_added(totals, leads, x, blocks - 1, part(blocks - 1, 0))
        if least is not None:
            for b in range(blocks // OF_BLOCK):
                totals = _least_added(totals, leads, x, b * OF_BLOCK, least(b))
    else:
        for b in range(blocks):
            subtracted: tuple[Floating | None, ...] = ()
            for s in unroll(parts // 2):
                one, next = part(b, 2 * s), part(b, 2 * s + 1)
                at = b * parts + 2 * s
                totals = _added(totals, leads, x, at, (one[0], one[1], None), (next[0], next[1], None))
                subtracted = (*subtracted, one[2], next[2])
            if subtracted[0] is not None:
                totals = _least_added(totals, leads, x, b * parts, SIMD[float32, parts](*subtracted))
    for r in unroll(count):
        total, less = totals[r]
        store(out, (*leads[r], j), total.reduce_add() - (less.reduce_add() if as_vectors else less))


def _least_added(
    totals: tuple[tuple[Floating, Floating], ...],
    leads: tuple[tuple[Index, ...], ...],
    x: tuple[AnyTensor, ...],
    at: Index,
    least: Floating,
) -> tuple[tuple[Floating, Floating], ...]:
    """The sums of some rows with what is subtracted of the parts from `at` on."""
    new: tuple[tuple[Floating, Floating], ...] = ()
    for r in unroll(len(leads)):
        total, less = totals[r]
        new = (*new, (total, fma(least, x[2].load(*leads[r], at, width=OF_BLOCK), less)))
    return new


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
            # Added together first: two steps of a chain for each pair would take longer than all the rest.
            less = less + fma(next[2], sums[(*leads[r], at + 1)], part[2] * sums[(*leads[r], at)])
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
                least[c, at] if has_least and parts != OF_BLOCK else None,
            )

        def subtracted(c: Index):
            return (lambda b: least.load(c, b * OF_BLOCK, width=OF_BLOCK)) if has_least and parts == OF_BLOCK else None

        whole = m // TOGETHER * TOGETHER
        for i in range(0, whole, TOGETHER):
            for c in range(count):
                _row_sums(out, x, (i, TOGETHER), first + c, decoded(c), 1, depth // PART, subtracted(c))
        for i in range(whole, m):
            for c in range(count):
                _row_sums(out, x, (i, 1), first + c, decoded(c), 1, depth // PART, subtracted(c))

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
        _row_sums(out, x, (task // n, 1), j, lambda b, s: part_of(j, b, s), elements // PART, blocks)

    parallel_for(product(out.shape[:-1]) * n, element)
