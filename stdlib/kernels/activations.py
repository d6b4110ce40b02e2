"""Computes what stands between the layers of networks: rectifiers and gates of one number.

Half types compute in float32 and are rounded once. Numbers such as alpha are parameters, known when code is compiled.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from ... import dsl
from ...dsl import Floating, InputTensor, OutputTensor, foreach, register, select
from ..algorithms.algorithm import widened
from ..algorithms.references import Array, in_float64

F = TypeVar("F", bound=Floating)


def _soft(x: Floating) -> Any:
    """log(1 + exp(x)) without overflow."""
    return dsl.max(x, 0) + dsl.log1p(dsl.exp(-dsl.abs(x)))


def _soft_reference(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@register("softplus")
def softplus(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, beta: float = 1.0) -> None:
    """log(1 + exp(beta * x)) / beta."""
    foreach(out, lambda i: (_soft(beta * widened(x[i])) / beta).cast(F))


softplus.reference(in_float64(lambda x, beta: _soft_reference(beta * x) / beta))


@register("log_sigmoid")
def log_sigmoid(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The logarithm of sigmoid, without its underflow."""
    foreach(out, lambda i: (-_soft(-widened(x[i]))).cast(F))


log_sigmoid.reference(in_float64(lambda x: -_soft_reference(-x)))


@register("elu")
def elu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, alpha: float = 1.0) -> None:
    """x above 0, else alpha * (exp(x) - 1)."""
    foreach(out, lambda i: _elu(widened(x[i]), alpha).cast(F))


elu.reference(in_float64(lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x))))


@register("selu")
def selu(
    out: OutputTensor[F, "*s"],
    x: InputTensor[F, "*s"],
    *,
    alpha: float = 1.6732632423543772,
    gamma: float = 1.0507009873554805,
) -> None:
    """gamma * elu(x, alpha): with the defaults, what keeps mean 0 and variance 1."""
    foreach(out, lambda i: (gamma * _elu(widened(x[i]), alpha)).cast(F))


selu.reference(in_float64(lambda x, alpha, gamma: gamma * np.where(x > 0, x, alpha * np.expm1(x))))


@register("celu")
def celu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, alpha: float = 1.0) -> None:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)."""
    foreach(out, lambda i: _celu(widened(x[i]), alpha).cast(F))


celu.reference(in_float64(lambda x, alpha: np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0)))


@register("leaky_relu")
def leaky_relu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, negative_slope: float = 0.01) -> None:
    """x from 0 on, else negative_slope * x."""
    foreach(out, lambda i: _leaky(widened(x[i]), negative_slope).cast(F))


leaky_relu.reference(in_float64(lambda x, negative_slope: np.where(x < 0, np.float64(negative_slope) * x, x)))


@register("thresholded_relu")
def thresholded_relu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, alpha: float = 1.0) -> None:
    """x above alpha, else 0; NaN stays NaN."""
    foreach(out, lambda i: select(x[i] <= alpha, 0, x[i]))


thresholded_relu.reference(in_float64(lambda x, alpha: np.where(x <= alpha, 0, x)))


@register("relu6", laws=("idempotent",))
def relu6(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """min(max(x, 0), 6)."""
    foreach(out, lambda i: dsl.min(dsl.max(x[i], 0), 6))


relu6.reference(in_float64(lambda x: np.minimum(np.maximum(x, 0), 6)))


@register("hard_tanh")
def hard_tanh(
    out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, min_val: float = -1.0, max_val: float = 1.0
) -> None:
    """x held between min_val and max_val."""
    foreach(out, lambda i: dsl.min(dsl.max(x[i], min_val), max_val))


hard_tanh.reference(in_float64(lambda x, min_val, max_val: np.minimum(np.maximum(x, min_val), max_val)))


@register("hard_sigmoid")
def hard_sigmoid(
    out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, alpha: float = 0.16666666666666666, beta: float = 0.5
) -> None:
    """alpha * x + beta held between 0 and 1; the default alpha is 1/6, where ONNX has 0.2."""
    foreach(out, lambda i: dsl.min(dsl.max(alpha * widened(x[i]) + beta, 0), 1).cast(F))


hard_sigmoid.reference(in_float64(lambda x, alpha, beta: np.minimum(np.maximum(alpha * x + beta, 0), 1)))


@register("hard_swish")
def hard_swish(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x * hard_sigmoid(x)."""
    foreach(out, lambda i: (widened(x[i]) * dsl.min(dsl.max(widened(x[i]) / 6 + 0.5, 0), 1)).cast(F))


hard_swish.reference(in_float64(lambda x: x * np.minimum(np.maximum(x / 6 + 0.5, 0), 1)))


@register("mish")
def mish(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x * tanh(softplus(x))."""
    foreach(out, lambda i: (widened(x[i]) * dsl.tanh(_soft(widened(x[i])))).cast(F))


mish.reference(in_float64(lambda x: x * np.tanh(_soft_reference(x))))


@register("softsign")
def softsign(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x / (1 + abs(x))."""
    foreach(out, lambda i: (widened(x[i]) / (1 + dsl.abs(widened(x[i])))).cast(F))


softsign.reference(in_float64(lambda x: x / (1 + np.abs(x))))


@register("shrink")
def shrink(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, lambd: float = 0.5, bias: float = 0.0) -> None:
    """x brought nearer to 0 by bias, and 0 within lambd of it: hard shrink, soft shrink with bias = lambd."""
    foreach(out, lambda i: _shrunk(widened(x[i]), lambd, bias).cast(F))


shrink.reference(in_float64(lambda x, lambd, bias: np.where(np.abs(x) <= lambd, 0, x - np.sign(x) * bias)))


@register("prelu")
def prelu(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], slope: InputTensor[F, "*s"]) -> None:
    """x from 0 on, else slope * x."""
    foreach(out, lambda i: select(x[i] < 0, slope[i] * x[i], x[i]))


prelu.reference(in_float64(lambda x, slope: np.where(x < 0, slope * x, x)))

# *** parts ***


def _elu(x: Floating, alpha: float) -> Any:
    return select(x > 0, x, alpha * dsl.expm1(x))


def _celu(x: Floating, alpha: float) -> Any:
    return dsl.max(x, 0) + dsl.min(alpha * dsl.expm1(x / alpha), 0)


def _leaky(x: Floating, slope: float) -> Any:
    return select(x < 0, slope * x, x)


def _shrunk(x: Floating, lambd: float, bias: float) -> Any:
    return select(dsl.abs(x) <= lambd, 0, x - dsl.sign(x) * bias)
