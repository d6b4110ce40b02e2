"""Multiplies by matrices of 4-bit integers in the layouts of GPTQ and AWQ, and decodes them.

A group of neighbouring input channels shares a scale and a zero for each output channel. GPTQ packs eight input
channels in an int32, AWQ eight output channels, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest bits on. An element
is `(digit - zero) * scale`. The zeros of GPTQ are stored less one.

    GPTQ: weight (k / 8, n), zeros (k / group, n / 8), scales (k / group, n), groups (k): the group of each channel
    AWQ:  weight (k, n / 8), zeros (k / group, n / 8), scales (k / group, n)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Integral,
    OutputTensor,
    float32,
    foreach,
    int32,
    register,
    store,
)
from ..algorithms.algorithm import product, unravelled
from .matmul import multiply

T = TypeVar("T", bound=Floating)
S = TypeVar("S", bound=Floating)


def _gptq(weight: AnyTensor, zeros: AnyTensor, scales: AnyTensor, groups: AnyTensor, k: Integral, j: Integral) -> Any:
    group = groups[k].cast(int32)
    digit = (weight[k // 8, j] >> (4 * (k % 8)).cast(int32)) & 15
    zero = ((zeros[group, j // 8] >> (4 * (j % 8)).cast(int32)) & 15) + 1
    return (digit - zero).cast(float32) * scales[group, j].cast(float32)


def _awq(weight: AnyTensor, zeros: AnyTensor, scales: AnyTensor, size: int, k: Integral, j: Integral) -> Any:
    group = k // size
    lane = j % 8
    shift = (4 * (lane // 2 + lane % 2 * 4)).cast(int32)
    digit = (weight[k, j // 8] >> shift) & 15
    zero = (zeros[group, j // 8] >> shift) & 15
    return (digit - zero).cast(float32) * scales[group, j].cast(float32)


def _multiply(ctx: DeviceContext, out: AnyTensor, a: AnyTensor, element: Callable[[Index, Index], Floating]) -> None:
    lead = out.shape[:-1]

    def left(batch: Index, i: Index):
        at = unravelled(i, lead)
        return lambda k: a[(*at, k)].cast(float32)

    def put(batch: Index, i: Index):
        at = unravelled(i, lead)
        return lambda j, value: store(out, (*at, j), value.cast(out.dtype))

    multiply(ctx, (1, product(lead), out.dim(-1), a.dim(-1)), float32, left, lambda batch: element, put, False)


@register("dequantize_gptq")
def dequantize_gptq(
    out: OutputTensor[float32, "(8 * p) n"],
    weight: InputTensor[int32, "p n"],
    zeros: InputTensor[int32, "g z"],
    scales: InputTensor[S, "g n"],
    groups: InputTensor[int32, "(8 * p)"],
) -> None:
    """The elements of GPTQ's layout, input channels first."""
    foreach(out, lambda i: _gptq(weight, zeros, scales, groups, *i))


@register("qmatmul_gptq", writes_once=True, reads={"a": 4})
def qmatmul_gptq(
    out: OutputTensor[T, "*s n"],
    a: InputTensor[T, "*s (8 * p)"],
    weight: InputTensor[int32, "p n"],
    zeros: InputTensor[int32, "g z"],
    scales: InputTensor[S, "g n"],
    groups: InputTensor[int32, "(8 * p)"],
    ctx: DeviceContext,
) -> None:
    """The products of the rows of a with the columns of a matrix in GPTQ's layout."""
    _multiply(ctx, out, a, lambda k, j: _gptq(weight, zeros, scales, groups, k, j))


@register("dequantize_awq")
def dequantize_awq(
    out: OutputTensor[float32, "k (8 * p)"],
    weight: InputTensor[int32, "k p"],
    zeros: InputTensor[int32, "g p"],
    scales: InputTensor[S, "g (8 * p)"],
    *,
    size: int,
) -> None:
    """The elements of AWQ's layout, input channels first."""
    foreach(out, lambda i: _awq(weight, zeros, scales, size, *i))


@register("qmatmul_awq", writes_once=True, reads={"a": 4})
def qmatmul_awq(
    out: OutputTensor[T, "*s (8 * p)"],
    a: InputTensor[T, "*s k"],
    weight: InputTensor[int32, "k p"],
    zeros: InputTensor[int32, "g p"],
    scales: InputTensor[S, "g (8 * p)"],
    ctx: DeviceContext,
    *,
    size: int,
) -> None:
    """The products of the rows of a with the columns of a matrix in AWQ's layout."""
    _multiply(ctx, out, a, lambda k, j: _awq(weight, zeros, scales, size, k, j))
