"""Matrix products on a GPU by tiles: copies of blocks into shared memory, several steps ahead, and `gpu.dot` of them.

A block of threads computes a tile of the result. It goes along the inner axis in steps, for which a ring of stages in
shared memory holds what is needed next; sums are float32. Where sizes end within a tile, zeros are multiplied and what
lies beyond is not stored. The blocks that run at the same time are those of neighbouring tiles, so that what they read
is in the cache: they go down a few rows of tiles first.

Whether rows come in pieces of 16 bytes is tested once, in front of the steps.

Grids have one axis: the others end at 65535 blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import AnyDType, AnyTensor, Index, ceildiv, compiled_for, float32, gpu, min, select

LARGE = (128, 128, 32, 128)  # rows, columns and inner length of a tile, and threads
SMALL = (64, 64, 32, 128)
FLAT_ROWS = (16, 128, 32, 128)
STAGES = 3
PIECE = 16  # bytes that are copied at once
ENOUGH = 200  # blocks of large tiles that fill a GPU
BAND = 8  # rows of tiles that are computed next to each other


def has_tiles(dtype: AnyDType) -> bool:
    """Whether products of a dtype go by tiles: whether the target multiplies matrices of it."""
    return dtype.is_float() and dtype.bits == 16 and compiled_for().supports("bf16_mma")


def multiply_by_tiles(
    sizes: tuple[Index, ...],
    a: Callable[[Index], AnyTensor],
    b: Callable[[Index], AnyTensor],
    out: Callable[[Index], AnyTensor],
    transposed: bool,
) -> None:
    """out(batch) = a(batch) @ b(batch) for all batches, each a matrix; of a transposed b its columns are rows.

    Args:
        sizes: batches, rows, columns and the length of the inner axis.
    """
    batches, m, n, _ = sizes
    if m <= FLAT_ROWS[0]:
        _launch(sizes, a, b, out, transposed, FLAT_ROWS)
    elif batches * ceildiv(m, LARGE[0]) * ceildiv(n, LARGE[1]) >= ENOUGH:
        _launch(sizes, a, b, out, transposed, LARGE)
    else:
        _launch(sizes, a, b, out, transposed, SMALL)


def _launch(
    sizes: tuple[Index, ...],
    a: Callable[[Index], AnyTensor],
    b: Callable[[Index], AnyTensor],
    out: Callable[[Index], AnyTensor],
    transposed: bool,
    shape: tuple[int, int, int, int],
) -> None:
    batches, m, n, depth = sizes
    M, N, K, threads = shape
    down, across = ceildiv(m, M), ceildiv(n, N)

    def block():
        number = gpu.block_idx.x
        batch = number // (down * across)
        row, column = _place(number % (down * across), down, across)
        left, right, result = a(batch), b(batch), out(batch)
        sa = gpu.shared[left.dtype](STAGES, M, K, layout="dot")
        sb = _right_stages(right.dtype, K, N, transposed)
        steps = ceildiv(depth, K)

        def along(align: int):
            """The product, of operands whose rows come in pieces of so many bytes."""

            def fetch(k: Index, stage: Index):
                gpu.copy_async(sa[stage], left.tile(row, k, (M, K), align=align))
                if transposed:
                    gpu.copy_async(sb[stage], right.tile(column, k, (N, K), align=align))
                else:
                    gpu.copy_async(sb[stage], right.tile(k, column, (K, N), align=align))
                return gpu.commit()

            acc = gpu.tile[float32](M, N)
            group = gpu.commit()
            for k in range(STAGES - 1):
                group = fetch(k, k)
            stage = 0
            for k in range(steps):
                group.wait(pending=STAGES - 2)
                gpu.barrier()
                group = fetch(k + STAGES - 1, select(stage == 0, STAGES - 1, stage - 1))
                other = sb[stage].transpose() if transposed else sb[stage]
                acc = gpu.dot(sa[stage], other, acc)
                stage = select(stage == STAGES - 1, 0, stage + 1)
            group.wait()
            return acc

        acc = gpu.tile[float32](M, N)
        if comes_in_pieces(left) & comes_in_pieces(right):  # noqa: SIM108
            acc = along(PIECE)
        else:
            acc = along(1)
        acc.cast(result.dtype).store(result.tile(row, column, (M, N)))

    gpu.launch(block, grid=batches * down * across, block=threads)


def comes_in_pieces(x: AnyTensor) -> Any:
    """Whether each row of a matrix begins and ends at a multiple of 16 bytes."""
    count = PIECE * 8 // x.dtype.bits
    return x.is_aligned(PIECE) & (x.strides[0] % count == 0) & (x.dim(1) % count == 0)


def _right_stages(dtype: AnyDType, depth: int, columns: int, transposed: bool) -> Any:
    """The ring of tiles of b."""
    if transposed:
        return gpu.shared[dtype](STAGES, columns, depth, layout="dot")
    return gpu.shared[dtype](STAGES, depth, columns, layout="dot")


def _place(number: Index, down: Index, across: Index) -> tuple[Index, Index]:
    """The row and the column of a tile: neighbours in number go down a band of rows, then to the next column."""
    band = number // (BAND * across)
    height = min(down - band * BAND, BAND)
    within = number - band * BAND * across
    return band * BAND + within % height, within // height
