"""Computes elementwise ops that are called with `fast=True`: by the instructions that GPUs have for approximations.

Half types compute in float32. On other targets these are the ordinary functions. `docs/numerics.md` says how far each
is from the exact result.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ... import dsl
from ...dsl import Floating, Index, InputTensor, OutputTensor, foreach, register
from ..algorithms.algorithm import widened
from ..algorithms.references import in_float32, in_float64
from .elementwise import ERF, SQRT_HALF, SQRT_TWO_OVER_PI, gelu_reference

F = TypeVar("F", bound=Floating)


@register("div_fast")
def div_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], y: InputTensor[F, "*s"]) -> None:
    """x * (1 / y): 0 where y is beyond 2**126."""
    foreach(out, lambda i: (widened(x[i]) * dsl.reciprocal(widened(y[i]), fast=True)).cast(F))


div_fast.reference(in_float32(np.divide))


@register("exp_fast")
def exp_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """e to the power x."""
    foreach(out, lambda i: dsl.exp(x[i], fast=True))


exp_fast.reference(in_float64(np.exp))


@register("log_fast")
def log_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The natural logarithm; NaN below 0, -inf at 0."""
    foreach(out, lambda i: dsl.log(x[i], fast=True))


log_fast.reference(in_float64(np.log))


@register("sqrt_fast")
def sqrt_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The square root; NaN below 0."""
    foreach(out, lambda i: dsl.sqrt(x[i], fast=True))


sqrt_fast.reference(in_float64(np.sqrt))


@register("rsqrt_fast")
def rsqrt_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 / sqrt(x)."""
    foreach(out, lambda i: dsl.rsqrt(x[i], fast=True))


rsqrt_fast.reference(in_float64(lambda x: 1 / np.sqrt(x)))


@register("sin_fast")
def sin_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The sine of x in radians."""
    foreach(out, lambda i: dsl.sin(x[i], fast=True))


sin_fast.reference(in_float64(np.sin))


@register("cos_fast")
def cos_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The cosine of x in radians."""
    foreach(out, lambda i: dsl.cos(x[i], fast=True))


cos_fast.reference(in_float64(np.cos))


@register("tanh_fast")
def tanh_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The hyperbolic tangent."""
    foreach(out, lambda i: dsl.tanh(x[i], fast=True))


tanh_fast.reference(in_float64(np.tanh))


@register("erf_fast")
def erf_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """The Gauss error function."""
    foreach(out, lambda i: dsl.erf(x[i], fast=True))


erf_fast.reference(in_float64(ERF))


@register("sigmoid_fast")
def sigmoid_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """1 / (1 + exp(-x))."""
    foreach(out, lambda i: _sigmoid(widened(x[i])).cast(F))


sigmoid_fast.reference(in_float64(lambda x: 1 / (1 + np.exp(-x))))


@register("silu_fast")
def silu_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"]) -> None:
    """x * sigmoid(x)."""
    foreach(out, lambda i: (widened(x[i]) * _sigmoid(widened(x[i]))).cast(F))


silu_fast.reference(in_float64(lambda x: x / (1 + np.exp(-x))))


def _sigmoid(x: Floating):
    return dsl.reciprocal(1 + dsl.exp(-x, fast=True), fast=True)


@register("gelu_fast")
def gelu_fast(out: OutputTensor[F, "*s"], x: InputTensor[F, "*s"], *, approximate: str = "none") -> None:
    """x times the normal distribution function at x, in one of the three ways of `gelu`."""

    def element(i: Index | tuple[Index, ...]):
        v = widened(x[i])
        if approximate == "none":
            return (0.5 * v * (1 + dsl.erf(v * SQRT_HALF, fast=True))).cast(F)
        if approximate == "tanh":
            return (0.5 * v * (1 + dsl.tanh(SQRT_TWO_OVER_PI * (v + 0.044715 * v * v * v), fast=True))).cast(F)
        dsl.static_assert(approximate == "quick", 'approximate is "none", "tanh" or "quick"')
        return (v * _sigmoid(1.702 * v)).cast(F)

    foreach(out, element)


gelu_fast.reference(gelu_reference)
