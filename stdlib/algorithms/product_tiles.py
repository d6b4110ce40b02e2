"""Which tiles of a product a block of threads computes, and the rings of stages in shared memory for its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import AnyDType, AnyTensor, Index, compiled_for, gpu, min

Matrices = Callable[[Index], AnyTensor]  # a matrix for each batch
Shape = tuple[int, int, int]  # rows and columns of a tile, and warps

WIDE = (128, 256, 8)  # rows and columns of a tile, and warps: it has a multiprocessor alone,
WIDE_STAGES = 4  # with so many stages
BAND = 8  # rows of tiles that are computed next to each other


def steps_of_tiles() -> tuple[int, int]:
    """The inner length of a tile, and how many stages there are, such that a multiprocessor has two large blocks."""
    most = compiled_for().shared_memory
    if most >= 192 * 1024:
        return 64, 3
    if most >= 128 * 1024:
        return 64, 2
    return (32, 3) if most >= 96 * 1024 else (32, 2)


def stages_of_tiles(columns: int) -> int:
    """How many stages there are for tiles of so many columns."""
    return WIDE_STAGES if columns == WIDE[1] else steps_of_tiles()[1]


def right_stages(dtype: AnyDType, shape: tuple[int, int, int], transposed: bool) -> Any:
    """The ring of tiles of b: stages of so many rows and columns."""
    stages, depth, columns = shape
    if transposed:
        return gpu.shared[dtype](stages, columns, depth, layout="dot")
    return gpu.shared[dtype](stages, depth, columns, layout="dot")


def place_of_tile(number: Index, down: Index, across: Index) -> tuple[Index, Index]:
    """The row and the column of a tile: neighbours in number go down a band of rows, then to the next column."""
    band = number // (BAND * across)
    height = min(down - band * BAND, BAND)
    within = number - band * BAND * across
    return band * BAND + within % height, within // height
