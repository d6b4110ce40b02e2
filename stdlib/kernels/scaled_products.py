"""Multiplies by matrices of 8-bit numbers with scales: int8 with one a row, float8 with one for all, a row or a block.

The scales have two axes: one for each `rows` rows and `columns` columns of the matrix, 0 for one that counts for all of
them. The left operand is not rounded; products are summed in float32.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    OutputTensor,
    Storable,
    abs,
    float8_e4m3fn,
    float32,
    foreach,
    int8,
    max,
    parallel_for,
    register,
    round,
    store,
)
from ..algorithms.algorithm import product, unravelled
from ..algorithms.references import Array
from .matmul import COLUMNS, multiply

T = TypeVar("T", bound=Floating)
S = TypeVar("S", bound=Storable)


def _scale(scales: AnyTensor, rows: int, columns: int, j: Index, k: int) -> Any:
    return scales[0 if rows == 0 else j // rows, 0 if columns == 0 else k // columns]


@register("matmul_scaled", writes_once=True, reads={"a": 4})
def matmul_scaled(
    out: OutputTensor[T, "*s n"],
    a: InputTensor[T, "*s k"],
    b: InputTensor[S, "n k"],
    scales: InputTensor[float32, "r c"],
    ctx: DeviceContext,
    *,
    rows: int,
    columns: int,
) -> None:
    """The products of the rows of a with the scaled rows of b."""
    lead = out.shape[:-1]

    def left(batch: Index, i: Index):
        at = unravelled(i, lead)
        return lambda k: a[(*at, k)].cast(float32)

    def right(batch: Index):
        if columns == 0:

            def fetched(j: Index, k: Index, width: int):
                """Where there are few rows of a, the next rows of b are fetched: each is too short to be foreseen."""
                if not ctx.target.is_gpu:
                    b.prefetch(j + COLUMNS, k)
                return b.load((j, k), width=width).cast(float32)

            return fetched
        return lambda j, k, width: b.load((j, k), width=width).cast(float32) * _scale(scales, rows, columns, j, k)

    def put(batch: Index, i: Index):
        at = unravelled(i, lead)
        if columns == 0:
            return lambda j, value: store(out, (*at, j), (value * _scale(scales, rows, 0, j, 0)).cast(T))
        return lambda j, value: store(out, (*at, j), value.cast(T))

    multiply(ctx, (1, product(lead), out.dim(-1), a.dim(-1)), float32, left, right, put, True)


@register("dequantize_scaled")
def dequantize_scaled(
    out: OutputTensor[float32, "n k"],
    q: InputTensor[S, "n k"],
    scales: InputTensor[float32, "r c"],
    *,
    rows: int,
    columns: int,
) -> None:
    """The numbers times their scales."""
    foreach(out, lambda i: q[i].cast(float32) * _scale(scales, rows, columns, i[0], i[1]))


@dequantize_scaled.reference
def _(q: Array, scales: Array, *, rows: int, columns: int) -> Any:
    n, k = q.shape
    r, c = np.arange(n) // rows if rows else np.zeros(n, int), np.arange(k) // columns if columns else np.zeros(k, int)
    return q.astype(np.float32) * scales[r[:, None], c[None, :]]


@register("scales_of", writes_once=True)
def scales_of(
    out: OutputTensor[
        float32,
        "((n - 1) // max(rows, 1) * min(rows, 1) + 1) ((k - 1) // max(columns, 1) * min(columns, 1) + 1)",
    ],
    x: InputTensor[T, "n k"],
    *,
    rows: int,
    columns: int,
    highest: int,
) -> None:
    """The scales with which the farthest element of each block becomes the highest number."""
    n, k = x.shape
    blocks = out.dim(1)
    tall, wide = n if rows == 0 else rows, k if columns == 0 else columns

    def block(task: Index):
        row, column = task // blocks, task % blocks
        most = float32(0)
        for i in range(row * tall, min((row + 1) * tall, n)):
            for j in range(column * wide, min((column + 1) * wide, k)):
                most = max(most, abs(x[i, j].cast(float32)))
        out[row, column] = most / float32(highest)

    parallel_for(out.dim(0) * blocks, block)


@register("quantize_scaled_int8")
def quantize_scaled_int8(
    out: OutputTensor[int8, "n k"],
    x: InputTensor[T, "n k"],
    scales: InputTensor[float32, "r c"],
    *,
    rows: int,
    columns: int,
) -> None:
    """The numbers divided by their scales, rounded to integers."""
    foreach(out, lambda i: round(_divided(x[i], _scale(scales, rows, columns, i[0], i[1]))).cast(int8, saturate=True))


@register("quantize_scaled_float8")
def quantize_scaled_float8(
    out: OutputTensor[float8_e4m3fn, "n k"],
    x: InputTensor[T, "n k"],
    scales: InputTensor[float32, "r c"],
    *,
    rows: int,
    columns: int,
) -> None:
    """The numbers divided by their scales, as float8_e4m3fn."""
    foreach(out, lambda i: _divided(x[i], _scale(scales, rows, columns, i[0], i[1])).cast(float8_e4m3fn))


def _divided(x: AnyTensor, scale: Floating) -> Any:
    return float32(0) if scale == 0 else x.cast(float32) / scale
