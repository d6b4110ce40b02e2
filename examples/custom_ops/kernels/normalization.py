"""Rows brought to a common scale: each reads its row twice, once for what `rowwise` makes of it and once to store."""

from typing import TypeVar

import numpy as np

from einkorn.dsl import Floating, InputTensor, OutputTensor, exp, register, rsqrt
from einkorn.stdlib import LogSumExp, Welford, rowwise

T = TypeVar("T", bound=Floating)


@register("layer_norm")
def layer_norm(
    out: OutputTensor[T, "*rows n"],
    x: InputTensor[T, "*rows n"],
    weight: InputTensor[T, "n"],
    bias: InputTensor[T, "n"],
    *,
    epsilon: float = 1e-5,
):
    """Each row with mean 0 and variance 1, then `weight` times it, plus `bias`; one pass finds mean and variance."""

    def row_done(row, moments):
        mean, variance = moments
        scale = rsqrt(variance + epsilon)
        for k in range(x.dim(-1)):
            wide = x[(*row, k)].cast(mean.dtype)
            out[(*row, k)] = ((wide - mean) * scale).cast(T) * weight[k] + bias[k]

    rowwise(x, Welford, row_done)


@layer_norm.reference
def layer_norm_reference(x, weight, bias, *, epsilon):
    wide = x.astype(np.float64)
    mean, variance = wide.mean(-1, keepdims=True), wide.var(-1, keepdims=True)
    return ((wide - mean) / np.sqrt(variance + epsilon) * weight + bias).astype(x.dtype)


class Exponentials(LogSumExp):
    """A monoid of one's own: as `LogSumExp`, but with the maximum and the sum of exp(x - maximum) apart."""

    @staticmethod
    def finish(state, dtype):
        return state


@register("row_softmax")
def row_softmax(out: OutputTensor[T, "*rows n"], x: InputTensor[T, "*rows n"]):
    """exp(x) over the sum of exp(x) of each row; large numbers do not overflow. Maximum and sum take one pass."""

    def row_done(row, found):
        largest, total = found
        total += (largest - largest).cast(total.dtype)  # NaN for a row with an infinity, which has no softmax
        for k in range(x.dim(-1)):
            lifted = exp(x[(*row, k)].cast(largest.dtype) - largest)
            out[(*row, k)] = (lifted.cast(total.dtype) / total).cast(T)

    rowwise(x, Exponentials, row_done)


@row_softmax.reference
def row_softmax_reference(x):
    wide = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True, initial=-np.inf).astype(np.float64))
    return (wide / wide.sum(-1, keepdims=True)).astype(x.dtype)
