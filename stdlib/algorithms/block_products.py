"""`multiply_blocks`: products with matrices of quantised blocks.

An element has eight sums in float32: part k, of 32 elements, adds to number k % 8 its integer sum, or that of each
half, times its two scales. So a result does not depend on the rows around it. Of several rows, digits of some columns
are decoded once, four steps of a column side by side, and lanes of vectors are columns. Fewer rows are multiplied by
the digits as they are read; lanes are then the eight sums of an element.
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
    Integral,
    ceildiv,
    compiled_for,
    dot4,
    float32,
    fma,
    int32,
    min,
    parallel_for,
    stack,
    store,
    uint8,
    unroll,
)
from .algorithm import product, unravelled
from .encodings import PART, Part, Read
from .products import WORK
from .transpositions import HALVES, PAIRS, WORDS

FOURS = 8  # sums of four products of a part
GROUP = 8  # columns whose digits are turned together
SUMS = 8  # of an element
VECTORS = 2  # vectors of columns of a tile, where there are registers for them
TOGETHER = 4  # rows of a tile
MOST_ROWS = 32  # rows for which parts are decoded once
COLUMNS = 8  # columns that a task takes where there are fewer
AHEAD = 8192  # bytes from what is read to what is requested: loads of a few bytes keep few lines under way


def multiply_blocks(
    ctx: DeviceContext,
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    w: AnyTensor,
    part: Callable[[Read, int], Part],
    block: tuple[int, int],
    bias: int,
    halves: int = 1,
) -> None:
    """out[*s, j] = the sum of x[*s, k] * w[j, k] over k.

    Args:
        x: the left operand as `round_to_8_bits` makes it: integers, scales, sums and offsets.
        w: rows of blocks.
        part: how a part is read (see `encodings`).
        block: the elements and the bytes of a block.
        bias: what digits are larger by than what they mean; of 0, something is subtracted from scaled digits.
        halves: how many scales a part has, 1 or 2.
    """
    elements, bytes = block
    blocks = w.dim(1) // bytes  # not of the left operand: accesses to the matrix are then known to lie in it

    def part_of(j: Index, b: Index, s: int):
        if s == 0 and not ctx.target.is_gpu:
            w.prefetch(j, b * bytes + AHEAD)
        return part(lambda at, width: w.load(j, b * bytes + at, width=width), s)

    shape = (elements // PART, halves, bias)
    if ctx.target.is_gpu:
        _by_element(out, x, part_of, shape, blocks)
    elif product(out.shape[:-1]) < TOGETHER:
        _few(out, x, part_of, shape, blocks)
    else:
        _several(out, x, part_of, shape, blocks)


def _below_128(digits: Integral, bias: int) -> Integral:
    """The digits, so that they are seen to be below 128 if they are, where there is no instruction for larger ones."""
    return digits & 127 if bias < 128 and not compiled_for().supports("int8_dot") else digits


def _fours(digits: Integral, rounded: Integral, bias: int) -> Any:
    """The sums of four products of a part each; of large digits, these are taken in two steps likewise."""
    none = SIMD[int32, FOURS](0)
    if bias < 128 or compiled_for().supports("int8_dot"):
        return dot4(none, _below_128(digits, bias), rounded)
    return dot4(dot4(none, digits & 127, rounded), digits & 128, rounded)


def _few(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    part_of: Callable[[Index, Index, int], Part],
    shape: tuple[int, int, int],
    blocks: Index,
) -> None:
    """Takes eight parts of a column at a time, and reads a column once again for each row."""
    parts, halves, bias = shape
    integers, scales, sums, offsets = x
    m, n, eight = product(out.shape[:-1]), out.dim(-1), SUMS // parts  # in blocks

    def whole(lead: tuple[Index, ...], j: Index, total: Floating, start: Index):
        fours: tuple[Integral, ...] = ()
        factors: tuple[tuple[Floating, ...], ...] = ()
        least: tuple[Any, ...] = ()
        at = start * parts
        for p in unroll(SUMS):
            digits, given, subtracted = part_of(j, start + p // parts, p % parts)
            rounded = integers.load(*lead, (at + p) * PART, width=PART)
            fours = (*fours, _fours(digits, rounded, bias))
            factors, least = (*factors, given), (*least, subtracted)
        dots = _added_fours(fours, halves)
        for h in unroll(halves):
            dot = dots[h] if bias == 0 else dots[h] + _of_halves(offsets, lead, at, halves, h)
            factor = SIMD[float32, SUMS](*tuple(each[h] for each in factors))
            total = fma(dot.cast(float32), factor * scales.load(*lead, at, width=SUMS), total)
        if bias == 0:
            total = fma(-SIMD[float32, SUMS](*least), sums.load(*lead, at, width=SUMS), total)
        return total

    def rest(lead: tuple[Index, ...], j: Index, total: Floating, start: Index):
        """As `whole` where there are fewer than eight parts."""
        for b in range(start, blocks):
            for s in unroll(parts):
                digits, given, subtracted = part_of(j, b, s)
                at = b * parts + s
                rounded = integers.load(*lead, at * PART, width=PART)
                four = _fours(digits, rounded, bias)
                for h in unroll(halves):
                    size = FOURS // halves
                    dot = four.slice(h * size, size).reduce_add().cast(int32)
                    if bias != 0:
                        dot = dot + offsets[(*lead, at * halves + h)]
                    total[at % SUMS] = fma(dot.cast(float32), given[h] * scales[(*lead, at)], total[at % SUMS])
                if subtracted is not None:
                    total[at % SUMS] = fma(-subtracted, sums[(*lead, at)], total[at % SUMS])
        return total

    def columns(task: Index):
        for j in range(task * COLUMNS, min((task + 1) * COLUMNS, n)):
            for i in range(m):
                lead = unravelled(i, out.shape[:-1])
                total = SIMD[float32, SUMS](0)
                behind = blocks // eight * eight
                for start in range(0, behind, eight):
                    total = whole(lead, j, total, start)
                store(out, (*lead, j), (rest(lead, j, total, behind) if eight > 1 else total).reduce_add())

    parallel_for(ceildiv(n, COLUMNS), columns, grain=ceildiv(WORK, COLUMNS * m * blocks * parts * PART + 16))


def _of_halves(offsets: AnyTensor, lead: tuple[Index, ...], at: Index, halves: int, h: int) -> Any:
    """What eight parts, or such halves of them, begin with."""
    if halves == 1:
        return offsets.load(*lead, at, width=SUMS)
    return offsets.load(*lead, 2 * at, width=2 * SUMS).deinterleave()[h]


def _added_fours(fours: tuple[Integral, ...], halves: int) -> Any:
    """The sums of all fours of each of eight parts, or of the first and of the last four of them."""
    level = fours
    for _ in unroll(2):  # neighbours in each half of the vectors
        next: tuple[Integral, ...] = ()
        for k in unroll(len(level) // 2):
            one, other = level[2 * k], level[2 * k + 1]
            even = one.shuffle(0, 2, 8, 10, 4, 6, 12, 14, other=other)
            next = (*next, even + one.shuffle(1, 3, 9, 11, 5, 7, 13, 15, other=other))
        level = next
    low, high = level[0].shuffle(HALVES[0], other=level[1]), level[0].shuffle(HALVES[1], other=level[1])
    return (low + high,) if halves == 1 else (low, high)


def _several(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    part_of: Callable[[Index, Index, int], Part],
    shape: tuple[int, int, int],
    blocks: Index,
) -> None:
    """A task takes a few vectors of columns and some rows: it decodes some parts, which all the rows go along."""
    parts, halves, bias = shape
    is_wide = compiled_for().vector_bits >= 512
    lanes, vectors, most = (16, VECTORS, 16) if is_wide else (GROUP, 1, 32)
    m, n, width, slab = product(out.shape[:-1]), out.dim(-1), lanes * vectors, most // parts  # the slab in blocks
    panels = ceildiv(n, width)

    def columns(task: Index):
        first, row = task % panels * width, task // panels * MOST_ROWS
        rows = min(m - row, MOST_ROWS)
        straight = stack[uint8](most * PART * GROUP, zeroed=False)
        digits = stack[uint8](most * PART * width, zeroed=False)
        factors = stack[float32](most * halves * width, zeroed=False)
        least = stack[float32](most * width, zeroed=False)
        totals = stack[float32](MOST_ROWS * SUMS * width)

        def decode(start: Index, count: Index):
            """Some blocks of all columns."""
            for g in range(0, width, GROUP):
                for c in range(GROUP):
                    for b in range(count):
                        for s in unroll(parts):
                            part = part_of(min(first + g + c, n - 1), start + b, s)
                            p = b * parts + s
                            straight.store(part[0], (p * GROUP + c) * PART)
                            for h in unroll(halves):
                                factors[(p * halves + h) * width + g + c] = part[1][h]
                            if bias == 0:
                                least[p * width + g + c] = part[2]
                for p in range(count * parts):
                    _turn(straight, p * GROUP * PART, digits, p * PART * width + 4 * g, 4 * width)

        for start in range(0, blocks, slab):
            count = min(blocks - start, slab)
            decode(start, count)
            for i in range(0, rows, TOGETHER):
                leads: tuple[tuple[Index, ...], ...] = ()
                for r in unroll(TOGETHER):
                    leads = (*leads, unravelled(row + min(i + r, rows - 1), out.shape[:-1]))
                at = (start * parts, count * parts, i * width)
                for k in range(min(count * parts, SUMS)):
                    _add_tile(totals, k, leads, x, (digits, factors, least), at, shape, (lanes, vectors))
        for i in range(rows):
            lead = unravelled(row + i, out.shape[:-1])
            for v in unroll(vectors):
                at = i * width + v * lanes
                totals.store(_sum_of_sums(totals, at, MOST_ROWS * width, lanes), at)
            for c in range(min(n - first, width)):
                store(out, (*lead, first + c), totals[i * width + c])

    tasks = panels * ceildiv(m, MOST_ROWS)
    parallel_for(tasks, columns, grain=ceildiv(WORK, width * min(m, MOST_ROWS) * blocks * parts * PART + 16))


def _sum_of_sums(totals: AnyTensor, at: Index, stride: int, lanes: int) -> Any:
    """The sums of elements added up, in the order of `reduce_add`."""
    level: tuple[Floating, ...] = ()
    for k in unroll(SUMS):
        level = (*level, totals.load(at + k * stride, width=lanes))
    for _ in unroll(3):
        half = len(level) // 2
        next: tuple[Floating, ...] = ()
        for k in unroll(half):
            next = (*next, level[k] + level[k + half])
        level = next
    return level[0]


def _bytes_of(words: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of the bytes of words of four bytes."""
    return tuple(4 * word + k for word in words for k in range(4))


BYTES_OF_WORDS = tuple(_bytes_of(words) for words in WORDS)
BYTES_OF_PAIRS = tuple(_bytes_of(words) for words in PAIRS)
BYTES_OF_HALVES = tuple(_bytes_of(words) for words in HALVES)
REPEATED = _bytes_of((0,) * 8), _bytes_of((0,) * 16)  # four bytes in each of 8 or 16 lanes


def _turn(straight: AnyTensor, at: Index, turned: AnyTensor, to: Index, stride: int) -> None:
    """Stores the four digits of each step of eight columns side by side: a transposition of words of four bytes."""
    single: tuple[Integral, ...] = ()
    for k in unroll(GROUP // 2):
        one = straight.load(at + 2 * k * PART, width=PART)
        other = straight.load(at + (2 * k + 1) * PART, width=PART)
        single = (*single, one.shuffle(BYTES_OF_WORDS[0], other=other), one.shuffle(BYTES_OF_WORDS[1], other=other))
    paired: tuple[Integral, ...] = ()
    for k in unroll(GROUP // 2):
        one, other = single[k // 2 * 4 + k % 2], single[k // 2 * 4 + k % 2 + 2]
        paired = (*paired, one.shuffle(BYTES_OF_PAIRS[0], other=other), one.shuffle(BYTES_OF_PAIRS[1], other=other))
    for k in unroll(GROUP):
        row = paired[k % 4].shuffle(BYTES_OF_HALVES[k // 4], other=paired[k % 4 + 4])
        turned.store(row, to + k * stride)


def _add_tile(
    totals: AnyTensor,
    number: Index,
    leads: tuple[tuple[Index, ...], ...],
    x: tuple[AnyTensor, ...],
    decoded: tuple[AnyTensor, ...],
    at: tuple[Index, Index, Index],
    shape: tuple[int, int, int],
    size: tuple[int, int],
) -> None:
    """Adds the products of some rows with every eighth decoded part to their sums of a number."""
    integers, scales, sums, offsets = x
    digits, factors, least = decoded
    first, count, row = at
    _, halves, bias = shape
    lanes, vectors = size
    width = lanes * vectors
    to = number * (MOST_ROWS * width) + row
    held: tuple[Floating, ...] = ()
    for r in unroll(TOGETHER):
        for v in unroll(vectors):
            held = (*held, totals.load(to + r * width + v * lanes, width=lanes))
    for p in range(number, count, SUMS):
        for h in unroll(halves):
            dots: tuple[Integral, ...] = ()
            for r in unroll(TOGETHER):
                for _ in unroll(vectors):
                    begun = int32(0) if bias == 0 else offsets[(*leads[r], (first + p) * halves + h)]
                    dots = (*dots, SIMD[int32, lanes](begun))
            for q in unroll(FOURS // halves):
                step = p * FOURS + h * (FOURS // halves) + q
                there: tuple[Integral, ...] = ()
                for v in unroll(vectors):
                    there = (*there, _below_128(digits.load((step * width + v * lanes) * 4, width=4 * lanes), bias))
                new: tuple[Integral, ...] = ()
                for r in unroll(TOGETHER):
                    four = integers.load(*leads[r], first * PART + step * 4, width=4)
                    here = four.shuffle(REPEATED[lanes // 16])
                    for v in unroll(vectors):
                        new = (*new, dot4(dots[r * vectors + v], there[v], here))
                dots = new
            added: tuple[Floating, ...] = ()
            for r in unroll(TOGETHER):
                scale = scales[(*leads[r], first + p)]
                for v in unroll(vectors):
                    factor = factors.load((p * halves + h) * width + v * lanes, width=lanes) * scale
                    added = (*added, fma(dots[r * vectors + v].cast(float32), factor, held[r * vectors + v]))
            held = added
        if bias == 0:
            rest: tuple[Floating, ...] = ()
            for r in unroll(TOGETHER):
                sum = sums[(*leads[r], first + p)]
                for v in unroll(vectors):
                    rest = (*rest, fma(-least.load(p * width + v * lanes, width=lanes), sum, held[r * vectors + v]))
            held = rest
    for r in unroll(TOGETHER):
        for v in unroll(vectors):
            totals.store(held[r * vectors + v], to + r * width + v * lanes)


def _by_element(
    out: AnyTensor,
    x: tuple[AnyTensor, ...],
    part_of: Callable[[Index, Index, int], Part],
    shape: tuple[int, int, int],
    blocks: Index,
) -> None:
    """A thread computes an element: for GPUs."""
    parts, halves, bias = shape
    integers, scales, sums, offsets = x
    n = out.dim(-1)
    size = PART // halves

    def element(task: Index):
        j = task % n
        lead = unravelled(task // n, out.shape[:-1])
        total = float32(0)
        for b in range(blocks):
            for s in unroll(parts):
                digits, given, subtracted = part_of(j, b, s)
                at = b * parts + s
                for h in unroll(halves):
                    rounded = integers.load(*lead, at * PART + h * size, width=size)
                    dot = int32(0) if bias == 0 else offsets[(*lead, at * halves + h)]
                    for q in unroll(size // 4):
                        dot = dot4(dot, digits.slice(h * size + 4 * q, 4), rounded.slice(4 * q, 4))
                    total = fma(dot.cast(float32), given[h] * scales[(*lead, at)], total)
                if subtracted is not None:
                    total = fma(-subtracted, sums[(*lead, at)], total)
        store(out, (*lead, j), total)

    parallel_for(product(out.shape[:-1]) * n, element)
