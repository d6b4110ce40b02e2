"""Which tiles of a product a block of threads computes, and the rings of stages in shared memory for its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...dsl import AnyDType, AnyTensor, Index, Parts, compiled_for, gpu, int32, min, select

if TYPE_CHECKING:
    from ...dsl.language.async_copies import MBarrier

Matrices = Callable[[Index], AnyTensor]  # a matrix for each batch
Shape = tuple[int, int, int]  # rows and columns of a tile, and warps

WIDE = (128, 256, 8)  # rows and columns of a tile, and warps: it has a multiprocessor alone,
WIDE_STAGES = 4  # with so many stages
BAND = 8  # rows of tiles that are computed next to each other


def steps_of_tiles(columns: int) -> tuple[int, int]:
    """The inner length of tiles of so many columns, and how many stages there are, such that a multiprocessor has two
    large blocks, or one that is wide."""
    most = compiled_for().shared_memory
    if columns == WIDE[1]:
        return 64, WIDE_STAGES
    if most >= 192 * 1024:
        return 64, 3
    if most >= 128 * 1024:
        return 64, 2
    return (32, 3) if most >= 96 * 1024 else (32, 2)


def right_stages(dtype: AnyDType, shape: tuple[int, int, int], transposed: bool) -> Any:
    """The ring of tiles of b: stages of so many rows and columns."""
    stages, depth, columns = shape
    if transposed:
        return gpu.shared[dtype](stages, columns, depth, layout="dot")
    return gpu.shared[dtype](stages, depth, columns, layout="dot")


def begin_copies(
    stage: tuple[AnyTensor, AnyTensor],
    matrices: tuple[AnyTensor, AnyTensor],
    transposed: bool,
    place: tuple[Index, Index, Index],
    shape: tuple[int, int, int],
    full: MBarrier,
) -> None:
    """Begins to copy the tiles of a step, which arrive at a barrier.

    Args:
        stage: the memory of both tiles.
        place: the row and the column of the result's tile among tiles, and the step.
        shape: the rows and columns of the result's tile, and the length of a step.
    """
    (sa, sb), (left, right), (row, column, k), (M, N, K) = stage, matrices, place, shape
    gpu.copy_async(sa, left.tile(row, k, (M, K)), arrive=full)
    if transposed:
        gpu.copy_async(sb, right.tile(column, k, (N, K)), arrive=full)
    else:
        gpu.copy_async(sb, right.tile(k, column, (K, N)), arrive=full)


def begin_product(stage: tuple[AnyTensor, AnyTensor], transposed: bool, sums: Parts) -> Parts:
    """Begins to add the product of two tiles to sums."""
    sa, sb = stage
    return gpu.dot_async(sa, sb.transpose() if transposed else sb, sums)


def next_stage(stage: Parts, phase: Parts, stages: int) -> tuple[Parts, Parts]:
    """The stage behind another one, and the phase of its barriers."""
    last = stage == stages - 1
    return select(last, int32(0), stage + 1), select(last, phase + 1, phase)


def place_of_tile(number: Index, down: Index, across: Index) -> tuple[Index, Index]:
    """The row and the column of a tile: neighbours in number go down a band of rows, then to the next column."""
    band = number // (BAND * across)
    height = min(down - band * BAND, BAND)
    within = number - band * BAND * across
    return band * BAND + within % height, within // height
