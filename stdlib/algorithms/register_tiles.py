"""`add_tile`: a tile of sums of products that is held in registers.

See also `algorithms.products` (tiles of matrices that are packed into strips and panels).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import SIMD, AnyDType, AnyTensor, Bool, Index, Parts, unroll
from .products import times_plus


def add_tile(
    vector: Callable[..., Parts],
    weight: Callable[..., Parts],
    rows_of_sums: tuple[AnyTensor, int],
    at: Index,
    is_first: bool | Bool,
    steps: Index,
    size: tuple[int, int, int],
    dtype: AnyDType,
) -> None:
    """Rows of sums from `at` on: the products of weight(k, i) and vector(k, v), added to what they were.

    Args:
        vector, weight: functions of a step, and of a vector or a row.
        rows_of_sums: the sums, and how far one row is from the next.
        at: where the first row begins.
        is_first: whether the sums are new.
        steps: how many products are added to a sum.
        size: how many rows there are, how many vectors in each, and their lanes.
        dtype: of the products, which is cast to that of the sums.
    """
    (sums, pitch), (rows, vectors, lanes) = rows_of_sums, size
    totals: tuple[Any, ...] = ()
    for _ in unroll(rows * vectors):
        totals = (*totals, SIMD[dtype, lanes](0))
    for k in range(steps):
        seen: tuple[Any, ...] = ()
        for v in unroll(vectors):
            seen = (*seen, vector(k, v))
        new: tuple[Any, ...] = ()
        for i in unroll(rows):
            factor = weight(k, i)
            for v in unroll(vectors):
                new = (*new, times_plus(factor, seen[v], totals[i * vectors + v]))
        totals = new
    results = tuple(total.cast(sums.dtype) for total in totals)
    if not is_first:
        both: tuple[Any, ...] = ()
        for i in unroll(rows):
            for v in unroll(vectors):
                both = (*both, results[i * vectors + v] + sums.load(at + i * pitch + v * lanes, width=lanes))
        results = both
    for i in unroll(rows):
        for v in unroll(vectors):
            sums.store(results[i * vectors + v], at + i * pitch + v * lanes)
