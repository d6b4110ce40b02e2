"""The rows of the table of op types, a file a family. Importing this fills the table."""

from __future__ import annotations

from ..table import find_row
from . import (
    attention,
    blocked,
    caches,
    control,
    elementwise,
    encoders,
    fused,
    images,
    indexing,
    matmul,
    movement,
    normalisation,
    ordering,
    others,
    padding,
    quantisation,
    quantised,
    quantised_products,
    recurrent,
    reduction,
    sampling,
    sequences,
    shapes,
    signal,
)

__all__ = ["FAMILIES", "find_row"]
FAMILIES = (
    attention,
    blocked,
    caches,
    control,
    elementwise,
    encoders,
    fused,
    images,
    indexing,
    matmul,
    movement,
    normalisation,
    ordering,
    others,
    padding,
    quantisation,
    quantised,
    quantised_products,
    recurrent,
    reduction,
    sampling,
    sequences,
    shapes,
    signal,
)
