"""Matrix products on a GPU: tiles in shared memory and in registers, dot products by warps, single elements by threads.

A block of 256 threads computes 64 x 64 elements, each thread 4 x 4 of them. It goes along the inner axis in steps of
16: the slices of a and b are brought into shared memory, from which each thread takes what its sums need. Flat products
have nothing to share: where columns of b lie in one piece a warp takes an element, else threads do, whose
neighbours read what lies next to.

Each sum is taken in the order of the inner axis, by a warp as `teams` says, in pieces as `columns` says. Grids have one
axis: the others end at 65535 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import SIMD, AnyDType, AnyTensor, Floating, Index, Parts, ceildiv, gpu, parallel_for, unroll
from .columns import in_pieces
from .monoids import Sum
from .products import times_plus
from .teams import THREADS, in_teams, reduced, thread_of

TILE = 64  # rows and columns of a block
STEP = 16  # elements of the inner axis that are in shared memory
EACH = 4  # rows and columns of a thread
PAD = 4  # elements between rows in shared memory, so that neighbours lie in other banks
LONG = 64  # elements of a sum that several threads take
FLAT = 16  # rows or columns below which a product is flat
PARTS = TILE * STEP // THREADS  # elements that a thread brings
SIDE = TILE // EACH


def multiply_on_gpu(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
    transposed: bool,
) -> None:
    """save(batch, i)(j, the sum of a(batch, i)(k) * b(batch)(k, j) over k) for all elements of the result.

    Args:
        sizes: batches, rows, columns and the length of the inner axis.
        wide: the dtype of sums, which a and b give.
        transposed: whether neighbours along the inner axis of b are neighbours in memory.
    """
    _, m, n, _ = sizes
    if m >= FLAT and n >= FLAT:
        _by_tile(sizes, wide, a, b, save, transposed)
    elif transposed:
        _by_warp(sizes, wide, a, b, save)
    else:
        _by_thread(sizes, wide, a, b, save)


def _by_thread(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """A thread takes an element; long ones are cut into pieces, which are added in order (see `columns`)."""
    batches, m, n, depth = sizes

    def part(position: Index, low: Index, high: Index):
        batch, i, j = position // (m * n), position // n % m, position % n
        total = wide(0)
        row, matrix = a(batch, i), b(batch)
        for k in range(low, high):
            total = times_plus(row(k), matrix(k, j), total)
        return total

    def use(position: Index, total: Parts):
        save(position // (m * n), position // n % m)(position % n, total)

    if depth < LONG:
        parallel_for(batches * m * n, lambda position: use(position, part(position, 0, depth)))
    else:
        in_pieces((batches * m * n, depth), wide(0), part, lambda before, behind: before + behind, use)


def _by_warp(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
) -> None:
    """A warp takes an element, or a block where the sum is long."""
    batches, m, n, depth = sizes

    def one(position: Index, team: int):
        batch = position // (m * n)
        i = position // n % m
        j = position % n
        row, matrix = a(batch, i), b(batch)
        total = reduced(team, depth, lambda k: row(k) * matrix(k, j), Sum, wide)
        if thread_of(team) == 0:
            save(batch, i)(j, total)

    in_teams(batches * m * n, depth, one)


def _by_tile(
    sizes: tuple[Index, ...],
    wide: AnyDType,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    save: Callable[..., Parts],
    transposed: bool,
) -> None:
    """A block takes a tile of the result."""
    batches, m, n, depth = sizes
    down, across = ceildiv(m, TILE), ceildiv(n, TILE)

    def block():
        tile = gpu.block_idx.x % (down * across)
        batch = gpu.block_idx.x // (down * across)
        first_row, first_column = tile // across * TILE, tile % across * TILE
        thread = gpu.thread_idx.x
        left, right = gpu.shared[wide](STEP, TILE + PAD), gpu.shared[wide](STEP, TILE + PAD)
        bring = _bringing(thread, (batch, first_row, first_column), sizes, wide, a, b, transposed)
        x, y = thread % SIDE * EACH, thread // SIDE * EACH
        zero = SIMD[wide, EACH](0)
        sums = (zero, zero, zero, zero)
        for first in range(0, depth, STEP):
            bring(left, right, first)
            gpu.barrier()
            for k in unroll(STEP):
                sums = _stepped(left, right, k, x, y, sums, wide)
            gpu.barrier()
        for r in unroll(EACH):
            i = first_row + y + r
            if i < m:
                put = save(batch, i)
                for c in unroll(EACH):
                    if first_column + x + c < n:
                        put(first_column + x + c, sums[r][c])

    gpu.launch(block, grid=batches * down * across, block=THREADS)


def _bringing(
    thread: Index,
    tile: tuple[Index, Index, Index],
    sizes: tuple[Index, ...],
    wide: AnyDType,
    a: Callable[..., Parts],
    b: Callable[..., Parts],
    transposed: bool,
) -> Any:
    """A function that brings slices of a and b into shared memory, and zeros where they end.

    Neighbouring threads bring what lies side by side: elements of the inner axis, and of b columns unless it is
    transposed.
    """
    _, m, n, depth = sizes
    batch, first_row, first_column = tile
    matrix = b(batch)
    along, across = thread % STEP, thread // STEP
    rows: Any = ()
    for part in unroll(PARTS):
        rows = (*rows, a(batch, min(first_row + across + part * (THREADS // STEP), m - 1)))

    def bring(left: AnyTensor, right: AnyTensor, first: Index):
        for part in unroll(PARTS):
            i = across + part * (THREADS // STEP)
            value = wide(0)
            if first_row + i < m and first + along < depth:
                value = rows[part](first + along)
            left[along, i] = value
            k = along if transposed else thread // TILE + part * (THREADS // TILE)
            j = i if transposed else thread % TILE
            value = wide(0)
            if first_column + j < n and first + k < depth:
                value = matrix(first + k, first_column + j)
            right[k, j] = value

    return bring


def _stepped(
    left: AnyTensor, right: AnyTensor, k: int, x: Index, y: Index, sums: tuple[Floating, ...], wide: AnyDType
) -> Any:
    """The sums of a thread with the products of one step of the inner axis."""
    size = EACH * wide.bits // 8
    column = left.load(k, y, width=EACH, align=size)
    row = right.load(k, x, width=EACH, align=size)
    new: Any = ()
    for r in unroll(EACH):
        new = (*new, times_plus(SIMD[wide, EACH](column[r]), row, sums[r]))
    return new
