"""Rows that the threads of a team of a GPU hold: read once, 16 bytes at a time, and kept in registers.

    def row(number, share):
        values, = held_rows(share, (x,), (number,), widened, 0.0)     # vectors, 0 where there are no elements
        total = total_of(share, values, lambda a, b: a + b)           # in each thread
        store_held(share, out, (number,), for_each(values, lambda _, v: v / total))

    in_held_teams(rows, n, (x, out), row, otherwise)

Thread t of a team has the elements from (v * threads + t) * width on in its vector v. `width` elements are 16 bytes;
one, where a tensor is not in memory as it is read, or rows have a known length that `width` does not divide. Whether
the addresses of a row are multiples of 16 bytes is seen when it runs, and changes how elements are read, not which
thread has them: the bits are the same.

See also `teams` (rows of any length).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    SIMD,
    AnyTensor,
    Index,
    Parts,
    ceildiv,
    compiled_for,
    gpu,
    inline_assembly,
    int32,
    int64,
    max,
    min,
    select,
    unroll,
)
from .folds import for_each
from .teams import BLOCK, THREADS, WARP, WARP_ROW, across_warp, thread_of, threads_of

ACCESS = 128  # bits
HELD = 32  # elements that a thread holds at most
BLOCKS = 1  # that a multiprocessor runs at a time, at least: without a wish ptxas spills to run more of them

Share = tuple[int, Index, int, int]  # the team, the length of a row, the width of a vector, how many a thread has


def in_held_teams(
    rows: Index,
    n: Index,
    tensors: tuple[AnyTensor, ...],
    body: Callable[[Index, Share], None],
    otherwise: Callable[[Index, int], None],
) -> None:
    """Runs body(number, share) for each of so many rows of n elements; otherwise(number, team) where they are too long.

    Vectors are of the widest dtype of the tensors.
    """

    warps = THREADS // gpu.warp_size

    def by_warp():
        number = gpu.block_idx.x * warps + gpu.warp_idx
        width = _width(n, tensors)
        if number < rows:
            body(number, (WARP, n, width, _vectors(gpu.warp_size, WARP_ROW, n, width)))

    def by_block():
        width = _width(n, tensors)
        body(gpu.block_idx.x, (BLOCK, n, width, _vectors(THREADS, HELD * THREADS, n, width)))

    if n <= WARP_ROW:
        gpu.launch(by_warp, grid=ceildiv(rows, warps), block=THREADS, min_blocks=BLOCKS)
    elif n <= HELD * THREADS:
        gpu.launch(by_block, grid=rows, block=THREADS, min_blocks=BLOCKS)
    else:
        gpu.launch(lambda: otherwise(gpu.block_idx.x, BLOCK), grid=rows, block=THREADS)


def _width(n: Index, tensors: tuple[AnyTensor, ...]) -> Any:
    """How many elements a vector has."""
    bits, there = 8, True
    for k in unroll(len(tensors)):
        bits = max(bits, tensors[k].dtype.bits)
        there = there and not isinstance(tensors[k].is_aligned(ACCESS // 8), bool)
    width = ACCESS // bits if there else 1
    return 1 if isinstance(n, int) and n % width != 0 else width


def _vectors(threads: int, most: int, n: Index, width: int) -> Any:
    """How many vectors a thread has."""
    return max((n if isinstance(n, int) else most) + threads * width - 1, 1) // (threads * width)


def place_of(share: Share, vector: int) -> Any:
    """The first element of a vector of this thread."""
    team, _, width, _ = share
    return (vector * threads_of(team) + thread_of(team)) * width


def _is_aligned(share: Share, tensors: tuple[AnyTensor, ...], lead: tuple[Index, ...]) -> Any:
    """Whether all vectors of a row are whole, and at addresses that 16 bytes divide."""
    _, n, width, _ = share
    aligned = width > 1 and n % width == 0
    if width > 1:
        for k in unroll(len(tensors)):
            here = tensors[k].is_aligned(ACCESS // 8, *_row_of(tensors[k], lead), 0)
            aligned = aligned & here
    return aligned


def _row_of(x: AnyTensor, lead: tuple[Index, ...]) -> Any:
    """Indices of a row; a tensor of one axis is the same in every row."""
    return lead if x.rank > 1 else ()


def held_rows(
    share: Share,
    tensors: tuple[AnyTensor, ...],
    lead: tuple[Index, ...],
    of: Callable[[Parts], Parts],
    fill: float,
) -> Any:
    """For each tensor the vectors that a thread has of a row: of(elements), and `fill` where there are none."""
    aligned = _is_aligned(share, tensors, lead)
    return for_each(tensors, lambda _, x: _held(share, x, _row_of(x, lead), of, fill, aligned))


def _held(
    share: Share,
    x: AnyTensor,
    lead: tuple[Index, ...],
    of: Callable[[Parts], Parts],
    fill: float,
    aligned: bool,
) -> Any:
    _, n, width, vectors = share
    nothing = SIMD[of(x.dtype(0)).dtype, width](fill)

    def whole():
        parts: Any = ()
        for v in unroll(vectors):
            at = place_of(share, v)
            part = nothing
            if at < n:
                part = of(x.load(*lead, at, width=width, align=ACCESS // 8))
            parts = (*parts, part)
        return parts

    def one_by_one():
        parts: Any = ()
        count = _opaque(n) if width > 1 else n
        for v in unroll(vectors):
            at = place_of(share, v)
            part = nothing
            for j in unroll(width):
                if at + j < count:
                    element = of(x.load(*lead, at + j))
                    part = element if width == 1 else part.with_lane(j, element)
            parts = (*parts, part)
        return parts

    parts = whole() if aligned else one_by_one()
    return parts


def _opaque(n: Index) -> Any:
    """A length of which LLVM does not know that it is known.

    Otherwise it joins what is read one by one, and then this load and the aligned one to one that is not aligned.
    """
    if compiled_for().supports("ex2"):
        return inline_assembly("", int64, int64(n), constraints="=l,0", has_side_effects=False)
    return n


def _inside(at: Index, n: Index, width: int) -> Any:
    """Which elements of a vector are there."""
    numbers = SIMD[int32, width](*tuple(range(width)))
    return numbers < SIMD[int32, width](int32(min(n - at, width)))


def store_held(share: Share, out: AnyTensor, lead: tuple[Index, ...], parts: tuple[Parts, ...]) -> None:
    """Stores the vectors of a row."""
    _, n, width, vectors = share
    if _is_aligned(share, (out,), lead):
        for v in unroll(vectors):
            at = place_of(share, v)
            if at < n:
                out.store(parts[v], *lead, at, align=ACCESS // 8)
    else:
        for v in unroll(vectors):
            at = place_of(share, v)
            for j in unroll(width):
                if at + j < n:
                    out[(*lead, at + j)] = parts[v] if width == 1 else parts[v][j]


def only_inside(share: Share, parts: tuple[Parts, ...], fill: float) -> Any:
    """The vectors with `fill` where a row has no elements."""
    team, n, width, vectors = share
    if isinstance(n, int) and n == threads_of(team) * width * vectors:
        return parts
    out: Any = ()
    for v in unroll(vectors):
        nothing = SIMD[parts[v].dtype, width](fill)
        out = (*out, select(_inside(place_of(share, v), n, width), parts[v], nothing))
    return out


def total_of(share: Share, parts: tuple[Parts, ...], combine: Callable[[Parts, Parts], Parts]) -> Any:
    """What `combine` makes of all elements of a row, in every thread: vectors by lanes, then the lanes, then threads.

    combine(a, b) is that of b and a.
    """
    team, _, width, vectors = share
    lanes = parts[0]
    for v in unroll(1, vectors):
        lanes = combine(lanes, parts[v])
    if width == 1:
        return across_team(team, lanes, combine)
    total = lanes[0]
    for k in unroll(1, width):
        total = combine(total, lanes[k])
    return across_team(team, total, combine)


def across_team(team: int, value: Parts, combine: Callable[[Parts, Parts], Parts]) -> Any:
    """The values of all threads of a team together, in each of them."""
    own = across_warp(value, combine)
    if team == WARP:
        return own
    slots = gpu.shared[own.dtype](THREADS // gpu.warp_size)
    if gpu.lane_idx == 0:
        slots[gpu.warp_idx] = own
    gpu.barrier()
    total = slots[0]
    for warp in unroll(1, THREADS // gpu.warp_size):
        total = combine(total, slots[warp])
    return total
