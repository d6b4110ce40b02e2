"""`multiply_blocks`: products with matrices of quantised blocks.

A single row of the left operand is multiplied by blocks as they are read. Where there are several, some rows of blocks
are decoded once to integers and scales, which all rows of the left operand go along. Each element is summed in one
order, however many rows there are: a result does not depend on the rows around it.
"""

from __future__ import annotations

from typing import Any

from ...dsl import SIMD, ceildiv, dot4, float32, fma, int8, int32, parallel_for, scratch, store, unroll
from .algorithm import product, unravelled
from .encodings import PART, lanes_of
from .products import WORK

LANES = 8  # of the sums of a part
TOGETHER = 4  # rows for which a part is decoded once
COLUMNS = 8  # rows of blocks that a task takes at a time
SCALES = 2  # of a part, at most


def multiply_blocks(ctx: Any, out: Any, x: Any, w: Any, part: Any, elements: Any, bytes: Any) -> None:
    """out[*s, j] = the sum of x[*s, k] * w[j, k] over k.

    Args:
        x: the left operand as `round_to_8_bits` makes it: integers, scales and sums.
        w: rows of blocks.
        part, elements, bytes: how a part is read (see `encodings`), and the size of a block.
    """
    rows = out.shape[:-1]

    def part_of(j, b, s):
        return part(lambda at, width: w.load(j, b * bytes + at, width=width), s)

    if ctx.target.is_gpu:
        _by_element(out, x, part_of, elements)
    elif product(rows) == 1:
        _single(out, x, part_of, elements)
    else:
        _several(out, x, part_of, elements)


def _single(out: Any, x: Any, part_of: Any, elements: Any) -> None:
    n, depth = out.dim(-1), x[0].dim(-1)

    def columns(task):
        for j in range(task * COLUMNS, min((task + 1) * COLUMNS, n)):
            _row_sums(out, x, 0, j, 1, lambda b, s, j=j: part_of(j, b, s), elements)

    parallel_for(ceildiv(n, COLUMNS), columns, grain=ceildiv(WORK, COLUMNS * depth + 16))


def _row_sums(out: Any, x: Any, first: Any, j: Any, count: Any, part: Any, elements: Any) -> None:
    """The elements of column j of `count` rows from `first` on."""
    integers, scales, sums = x
    parts = elements // PART
    leads: tuple[Any, ...] = ()
    totals: tuple[Any, ...] = ()
    for r in unroll(count):
        leads = (*leads, unravelled(first + r, out.shape[:-1]))
        totals = (*totals, (SIMD[float32, LANES](0), float32(0)))
    for b in range(integers.dim(-1) // elements):
        for s in unroll(parts):
            at = b * parts + s
            digits, factors, subtracted = part(b, s)
            new: tuple[Any, ...] = ()
            for r in unroll(count):
                total, less = totals[r]
                dot = dot4(SIMD[int32, LANES](0), digits, integers.load(*leads[r], at * PART, width=PART)).cast(float32)
                total = fma(dot, lanes_of(factors, LANES) * scales[(*leads[r], at)], total)
                if subtracted is not None:
                    less = fma(subtracted, sums[(*leads[r], at)], less)
                new = (*new, (total, less))
            totals = new
    for r in unroll(count):
        store(out, (*leads[r], j), totals[r][0].reduce_add() - totals[r][1])


def _several(out: Any, x: Any, part_of: Any, elements: Any) -> None:
    """A task decodes a few rows of blocks, which then all rows of the left operand go along."""
    m, n, depth = product(out.shape[:-1]), out.dim(-1), x[0].dim(-1)
    parts = elements // PART

    def columns(task):
        first = task * COLUMNS
        count = min(n - first, COLUMNS)
        digits = scratch[int8](COLUMNS, depth)
        factors = scratch[float32](COLUMNS, depth // PART * SCALES)
        least = scratch[float32](COLUMNS, depth // PART)
        for c in range(count):
            for b in range(depth // elements):
                for s in unroll(parts):
                    part = part_of(first + c, b, s)
                    at = b * parts + s
                    digits.store(part[0], c, at * PART)
                    for k in unroll(SCALES):
                        factors[c, at * SCALES + k] = part[1][k % len(part[1])]
                    least[c, at] = float32(0) if part[2] is None else part[2]

        def decoded(c):
            def part(at, s):
                scales = tuple(factors[c, at * SCALES + k] for k in range(SCALES))
                return digits.load(c, at * PART, width=PART), scales, least[c, at]

            return part

        whole = m // TOGETHER * TOGETHER
        for c in range(count):
            for i in range(0, whole, TOGETHER):
                _row_sums(out, x, i, first + c, TOGETHER, decoded(c), PART)
            for i in range(whole, m):
                _row_sums(out, x, i, first + c, 1, decoded(c), PART)

    parallel_for(ceildiv(n, COLUMNS), columns, grain=ceildiv(WORK, COLUMNS * m * depth + 16))


def _by_element(out: Any, x: Any, part_of: Any, elements: Any) -> None:
    """A thread computes an element: for GPUs."""
    n = out.dim(-1)

    def element(task):
        j = task % n
        _row_sums(out, x, task // n, j, 1, lambda b, s: part_of(j, b, s), elements)

    parallel_for(product(out.shape[:-1]) * n, element)
