"""The rows of the table of op types, a file a family. Importing this fills the table."""

from __future__ import annotations

from ..table import find_row
from . import (
    control,
    elementwise,
    images,
    indexing,
    matmul,
    movement,
    normalisation,
    ordering,
    others,
    quantisation,
    recurrent,
    reduction,
    sampling,
    sequences,
    shapes,
    signal,
)

__all__ = ["FAMILIES", "find_row"]
FAMILIES = (
    control,
    elementwise,
    images,
    indexing,
    matmul,
    movement,
    normalisation,
    ordering,
    others,
    quantisation,
    recurrent,
    reduction,
    sampling,
    sequences,
    shapes,
    signal,
)
