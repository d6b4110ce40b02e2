"""Converts what fits no family: dropout, determinants, random numbers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np

from ....dsl.types.dtype import DType
from ... import ops
from ...ops.random import seeded
from ...staging.value import TensorValue
from ...types.dims import StaticDim
from ..agreement import differ_by_number, equal_size, with_sizes
from ..call import NodeCall
from ..table import Value, onnx_op

MOST_BY_MINORS = 4  # rows of a matrix whose determinant is a sum of products


@onnx_op("Dropout")
def dropout(
    call: NodeCall, data: TensorValue, ratio: Value = None, training_mode: Value = None, *, seed: int | None = None
) -> tuple[TensorValue, TensorValue]:
    """The same tensor, and a mask that is true everywhere; in training some elements are 0, and the mask false."""
    del seed
    shape = data.shape
    training = training_mode is not None and bool(call.numbers(training_mode, 2, "training_mode").reshape(-1)[0])
    share = 0.5 if ratio is None else float(call.numbers(ratio, 1, "ratio").reshape(-1)[0]) if training else 0.0
    if not training or share == 0:
        return data, ops.broadcast_to(ops.constant(True, DType.bool, data.device), shape)
    kept = ops.greater_equal(ops.random.uniform(shape, dtype=DType.float32), share)
    return ops.where(kept, data * (1 / (1 - share)), 0), kept


@onnx_op("Det")
def det(call: NodeCall, x: TensorValue) -> TensorValue:
    """The determinant of square matrices, of small ones by minors."""
    if x.rank < 2 or differ_by_number(x.shape[-1], x.shape[-2]):
        call.fail(f"takes square matrices, and gets {x.shape}", expected="square matrices", got=str(x.shape))
    size = equal_size(call, x.shape[-1], x.shape[-2], "the numbers of rows and of columns")
    x = with_sizes(x, [*x.shape[:-2], size, size])
    if not isinstance(size, StaticDim) or int(size) > MOST_BY_MINORS:
        return ops.det(x)
    return _minor(x, list(range(int(size))), 0)


def _minor(x: TensorValue, columns: list[int], row: int) -> TensorValue:
    if not columns:
        return ops.constant(1, x.dtype, x.device)
    total = None
    for k, column in enumerate(columns):
        term = x[..., row, column]
        if len(columns) > 1:
            term = term * _minor(x, columns[:k] + columns[k + 1 :], row + 1)
        total = term if total is None else total - term if k % 2 else total + term
    assert total is not None
    return total


# *** random numbers: they follow from the seed of the graph or from the node's own, and count on from node to node ***


def _drawn(
    call: NodeCall, shape: list[Any], dtype: DType, draw: Any, first: float, second: float, seed: float | None
) -> TensorValue:
    """Numbers of a distribution, in float32 where the dtype is narrower."""
    wide = DType.float64 if dtype is DType.float64 else DType.float32
    with nullcontext() if seed is None else seeded(int(np.float32(seed).view(np.int32))):
        return ops.cast(draw(shape, first, second, wide), dtype)


def _uniform(shape: list[Any], low: float, high: float, dtype: DType) -> TensorValue:
    return ops.random.uniform(shape, (low, high), dtype=dtype)


def _normal(shape: list[Any], mean: float, scale: float, dtype: DType) -> TensorValue:
    return ops.random.gaussian(shape, mean, scale, dtype=dtype)


@onnx_op("RandomUniform")
def random_uniform(
    call: NodeCall, *, dtype: int, high: float, low: float, shape: list[int], seed: float | None = None
) -> TensorValue:
    """Numbers from low on and below high."""
    return _drawn(call, list(shape), call.dtype(dtype), _uniform, low, high, seed)


@onnx_op("RandomNormal")
def random_normal(
    call: NodeCall, *, dtype: int, mean: float, scale: float, shape: list[int], seed: float | None = None
) -> TensorValue:
    """Numbers of the normal distribution."""
    return _drawn(call, list(shape), call.dtype(dtype), _normal, mean, scale, seed)


@onnx_op("RandomUniformLike")
def random_uniform_like(
    call: NodeCall, x: TensorValue, *, dtype: int | None = None, high: float, low: float, seed: float | None = None
) -> TensorValue:
    """Numbers from low on and below high, in the shape of a tensor."""
    return _drawn(call, list(x.shape), call.dtype(dtype) if dtype is not None else x.dtype, _uniform, low, high, seed)


@onnx_op("RandomNormalLike")
def random_normal_like(
    call: NodeCall, x: TensorValue, *, dtype: int | None = None, mean: float, scale: float, seed: float | None = None
) -> TensorValue:
    """Numbers of the normal distribution, in the shape of a tensor."""
    return _drawn(call, list(x.shape), call.dtype(dtype) if dtype is not None else x.dtype, _normal, mean, scale, seed)


@onnx_op("Bernoulli")
def bernoulli(call: NodeCall, x: TensorValue, *, dtype: int | None = None, seed: float | None = None) -> TensorValue:
    """1 with the probability that each element says."""
    return ops.cast(ops.random.bernoulli(x), call.dtype(dtype) if dtype is not None else x.dtype)


@onnx_op("Multinomial")
def multinomial(
    call: NodeCall, x: TensorValue, *, dtype: int, sample_size: int, seed: float | None = None
) -> TensorValue:
    """Places drawn by the unnormalised logarithms of their probabilities."""
    noise = ops.random.uniform([x.shape[0], sample_size, x.shape[1]], (0, 1), dtype=DType.float32)
    gumbel = ops.negate(ops.log(ops.negate(ops.log(ops.maximum(noise, 1e-30)))))
    drawn = ops.argmax(gumbel + ops.cast(ops.unsqueeze(x, 1), DType.float32), -1, False)
    return ops.cast(drawn, call.dtype(dtype))
