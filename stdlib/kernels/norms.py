"""Normalizes rows, groups of channels and channels: by mean and variance, or by the root of the mean square.

Statistics are taken in two passes, the second of which adds the squares of distances from the mean; half types compute
in float32. A row of at most 4096 elements goes through memory close by, so that it is read once. Few long rows are
taken one after the other, by all threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    DeviceContext,
    Floating,
    Index,
    InputTensor,
    Int,
    OutputTensor,
    ceildiv,
    float64,
    foreach,
    min,
    parallel_for,
    register,
    sqrt,
    stack,
    unroll,
)
from ..algorithms.algorithm import product, unravelled, wide_dtype, widened
from ..algorithms.folds import PIECE, for_each
from ..algorithms.held_rows import Share, held_rows, in_held_teams, only_inside, store_held, total_of
from ..algorithms.monoids import Sum
from ..algorithms.references import Array
from ..algorithms.rows import SPLIT_ROWS, TASK, reduce, same
from ..algorithms.teams import for_each_of, in_teams, reduced

F = TypeVar("F", bound=Floating)
G = TypeVar("G", bound=Floating)
H = TypeVar("H", bound=Floating)
M = TypeVar("M", bound=Floating)
V = TypeVar("V", bound=Floating)

BLOCK = 4096  # elements of a row that go through memory close by
LANES = 32  # sums that run side by side


class FloatTotal(Sum):
    """A sum as it was added up: in float64."""

    @staticmethod
    def finish(state: Floating, dtype: AnyDType):
        return state


@register("layer_norm", writes_once=True, reads={"x": 3})
def layer_norm(
    out: OutputTensor[F, "*a n"],
    x: InputTensor[F, "*a n"],
    gamma: InputTensor[G, "n"],
    beta: InputTensor[H, "n"],
    ctx: DeviceContext,
    *,
    epsilon: float,
) -> None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along the last axis."""
    wide = wide_dtype(x.dtype)

    def finish(value: Floating, factor: Floating, shift: Floating):
        return (value * factor.cast(wide) + shift.cast(wide)).cast(F)

    _normalized(ctx, out, x, (gamma, beta), True, epsilon, finish)


@layer_norm.reference
def layer_norm_reference(x: Array, gamma: Array, beta: Array, *, epsilon: float):
    wide, scale, shift = (array.astype(np.float64) for array in (x, gamma, beta))
    centered = wide - np.mean(wide, -1, keepdims=True) if x.shape[-1] else wide
    variance = np.mean(centered**2, -1, keepdims=True) if x.shape[-1] else 0.0
    return (centered / np.sqrt(variance + epsilon) * scale + shift).astype(x.dtype)


@register("rms_norm", writes_once=True, reads={"x": 3})
def rms_norm(
    out: OutputTensor[F, "*a n"],
    x: InputTensor[F, "*a n"],
    weight: InputTensor[G, "n"],
    ctx: DeviceContext,
    *,
    eps: float,
    weight_offset: float = 0.0,
    multiply_before_cast: bool = False,
) -> None:
    """x / sqrt(mean(x * x) + eps) * (weight + weight_offset) along the last axis; `multiply_before_cast` says whether
    half types are rounded after the product alone, or before it, too.
    """
    wide = wide_dtype(x.dtype)

    def finish(value: Floating, factor: Floating):
        scale = factor.cast(wide) + weight_offset
        if multiply_before_cast:
            return (value * scale).cast(F)
        return value.cast(F) * scale.cast(F)

    _normalized(ctx, out, x, (weight,), False, eps, finish)


@rms_norm.reference
def rms_norm_reference(x: Array, weight: Array, *, eps: float, weight_offset: float, multiply_before_cast: bool):
    wide, scale = x.astype(np.float64), weight.astype(np.float64) + weight_offset
    squares = np.mean(wide**2, -1, keepdims=True) if x.shape[-1] else 0.0
    normal = wide / np.sqrt(squares + eps)
    if not multiply_before_cast:
        normal, scale = normal.astype(x.dtype).astype(np.float64), scale.astype(x.dtype).astype(np.float64)
    return (normal * scale).astype(x.dtype)


@register("group_norm", writes_once=True, reads={"x": 3})
def group_norm(
    out: OutputTensor[F, "m n"],
    x: InputTensor[F, "m n"],
    gamma: InputTensor[G, "c"],
    beta: InputTensor[H, "c"],
    ctx: DeviceContext,
    *,
    groups: int,
    epsilon: float,
) -> None:
    """Each row is a group of channels of one sample: (x - mean) / sqrt(variance + epsilon) * gamma + beta, where gamma
    and beta are those of the channel.
    """
    wide = wide_dtype(x.dtype)
    each = gamma.dim(0) // groups  # channels of a group
    n = x.dim(1)
    size = n // _one_at_least(each)

    def write(row: Index, first: Index, last: Index, mean: Floating, scale: Floating):
        """Channels first..last-1 of a row."""
        for c in range(first, last):
            channel = row % groups * each + c
            factor = gamma[channel].cast(wide) * scale
            shift = beta[channel].cast(wide)
            for j in range(size):
                k = c * size + j
                out[row, k] = ((widened(x[row, k]) - mean) * factor + shift).cast(F)

    def whole(row: Index):
        mean, scale = _moments(x[row, :], True, epsilon)
        write(row, 0, each, mean, scale)

    rows = x.dim(0)
    if ctx.target.is_gpu:

        def by_team(row: Index, team: int):
            mean, scale = _moments_of(team, lambda k: x[row, k], n, x.dtype, True, epsilon)

            def one(k: Index):
                channel = row % groups * each + k // _one_at_least(size)
                factor = gamma[channel].cast(wide) * scale
                out[row, k] = ((widened(x[row, k]) - mean) * factor + beta[channel].cast(wide)).cast(F)

            for_each_of(team, each * size, one)

        in_teams(rows, n, by_team)
    elif rows < SPLIT_ROWS and n > PIECE:
        for row in range(rows):
            mean, scale = _moments(x[row, :], True, epsilon)
            parallel_for(each, lambda c: write(row, c, c + 1, mean, scale), grain=ceildiv(TASK, size + 16))  # noqa: B023
    else:
        parallel_for(rows, whole, grain=ceildiv(TASK, n + 16))


@group_norm.reference
def group_norm_reference(x: Array, gamma: Array, beta: Array, *, groups: int, epsilon: float):
    wide = x.astype(np.float64)
    centered = wide - np.mean(wide, -1, keepdims=True) if x.shape[-1] else wide
    variance = np.mean(centered**2, -1, keepdims=True) if x.shape[-1] else 0.0
    each = gamma.shape[0] // groups
    shape = (-1, groups, each, x.shape[1] // max(each, 1))
    normal = (centered / np.sqrt(variance + epsilon)).reshape(shape) if x.size else wide.reshape(0, groups, each, 1)
    scale, shift = (array.astype(np.float64).reshape(1, groups, each, 1) for array in (gamma, beta))
    return (normal * scale + shift).reshape(x.shape).astype(x.dtype)


@register("batch_norm")
def batch_norm(
    out: OutputTensor[F, "n c *s"],
    x: InputTensor[F, "n c *s"],
    gamma: InputTensor[G, "c"],
    beta: InputTensor[H, "c"],
    mean: InputTensor[M, "c"],
    variance: InputTensor[V, "c"],
    *,
    epsilon: float,
) -> None:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, where all but x are those of the channel."""
    wide = wide_dtype(x.dtype)

    def element(i: tuple[Index, ...]):
        c = i[1]
        factor = gamma[c].cast(wide) / sqrt(variance[c].cast(wide) + epsilon)
        return ((widened(x[i]) - mean[c].cast(wide)) * factor + beta[c].cast(wide)).cast(F)

    foreach(out, element)


@batch_norm.reference
def batch_norm_reference(x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, *, epsilon: float):
    shape = (-1, *[1] * (x.ndim - 2))
    scale, shift, middle, spread = (a.astype(np.float64).reshape(shape) for a in (gamma, beta, mean, variance))
    return ((x.astype(np.float64) - middle) * (scale / np.sqrt(spread + epsilon)) + shift).astype(x.dtype)


# *** rows ***


def _one_at_least(n: Index) -> Any:
    return n if n > 0 else n * 0 + 1


def _moments(row: AnyTensor, centered: bool, epsilon: float) -> Any:
    """What is taken from the elements of a row, and what they are then multiplied with."""
    wide = wide_dtype(row.dtype)
    count = Int(row.size).cast(float64)
    mean = wide(0)
    if centered:
        mean = (reduce(row, FloatTotal, of=widened).cast(float64) / count).cast(wide)
    squares = reduce(row, FloatTotal, of=lambda v: (widened(v) - mean) * (widened(v) - mean))
    return mean, 1 / sqrt((squares.cast(float64) / count).cast(wide) + epsilon)


def _moments_of(
    team: int, element: Callable[[Index], Floating], n: Index, dtype: AnyDType, centered: bool, epsilon: float
) -> Any:
    """As `_moments`, of a row that a team of threads of a GPU takes."""
    wide = wide_dtype(dtype)
    count = Int(n).cast(wide)
    mean = wide(0)
    if centered:
        mean = reduced(team, n, lambda k: widened(element(k)), Sum, wide) / count

    def square(k: Index):
        distance = widened(element(k)) - mean
        return distance * distance

    return mean, 1 / sqrt(reduced(team, n, square, Sum, wide) / count + epsilon)


def _normalized(
    ctx: DeviceContext,
    out: AnyTensor,
    x: AnyTensor,
    weights: tuple[AnyTensor, ...],
    centered: bool,
    epsilon: float,
    write: Callable[..., Floating],
) -> None:
    """Stores write(normalized element, that of each of the weights at its place in the row) for all elements."""
    n = x.dim(-1)

    def finish(value: Floating, k: Index):
        return write(value, *for_each(weights, lambda _, w: w[k]))

    sizes = x.shape[:-1]
    rows = product(sizes)

    def long(number: Index):
        lead = unravelled(number, sizes)
        mean, scale = _moments(x[lead, :], centered, epsilon)
        for k in range(n):
            out[lead, k] = finish((widened(x[lead, k]) - mean) * scale, k)

    if ctx.target.is_gpu:

        def by_team(number: Index, team: int):
            lead = unravelled(number, sizes)
            mean, scale = _moments_of(team, lambda k: x[lead, k], n, x.dtype, centered, epsilon)

            def one(k: Index):
                out[lead, k] = finish((widened(x[lead, k]) - mean) * scale, k)

            for_each_of(team, n, one)

        def held(number: Index, share: Share):
            _normalized_held(out, x, weights, centered, epsilon, write, unravelled(number, sizes), share)

        in_held_teams(rows, n, (x, out, *weights), held, by_team)
    elif rows < SPLIT_ROWS and n > PIECE:
        for number in range(rows):
            lead = unravelled(number, sizes)
            mean, scale = _moments(x[lead, :], centered, epsilon)

            def part(piece: Index):
                for k in range(piece * BLOCK, min((piece + 1) * BLOCK, n)):
                    out[lead, k] = finish((widened(x[lead, k]) - mean) * scale, k)  # noqa: B023

            parallel_for(ceildiv(n, BLOCK), part)
    elif n > BLOCK:
        parallel_for(rows, long, grain=ceildiv(TASK, n + 16))
    else:
        _by_buffer(out, x, centered, epsilon, finish)


def _normalized_held(
    out: AnyTensor,
    x: AnyTensor,
    weights: tuple[AnyTensor, ...],
    centered: bool,
    epsilon: float,
    write: Callable[..., Floating],
    lead: tuple[Index, ...],
    share: Share,
) -> None:
    """A row that a team of threads of a GPU holds."""
    count = Int(x.dim(-1)).cast(wide_dtype(x.dtype))
    (values,) = held_rows(share, (x,), lead, widened, 0.0)
    if centered:
        mean = total_of(share, values, lambda a, b: a + b) / count
        values = only_inside(share, for_each(values, lambda _, v: v - mean), 0.0)
    squares = for_each(values, lambda _, v: v * v)
    scale = 1 / sqrt(total_of(share, squares, lambda a, b: a + b) / count + epsilon)
    held = held_rows(share, weights, lead, same, 0.0)  # only now: fewer values at a time, more rows at once
    results: tuple[Floating, ...] = ()
    for k in unroll(len(values)):
        factors = for_each(held, lambda _, vectors: vectors[k])  # noqa: B023
        results = (*results, write(values[k] * scale, *factors))
    store_held(share, out, lead, results)


def _by_buffer(
    out: AnyTensor, x: AnyTensor, centered: bool, epsilon: float, finish: Callable[[Floating, Index], Floating]
) -> None:
    """Rows of at most BLOCK elements: each is copied, and normalized from the copy."""
    n = x.dim(-1)
    sizes = x.shape[:-1]
    rows = product(sizes)
    wide = wide_dtype(x.dtype)
    count = Int(n).cast(wide)
    share = TASK // (n + 16) + 1
    padded = ceildiv(n, LANES) * LANES

    def part(task: Index):
        buffer = stack[wide](BLOCK)
        for number in range(task * share, min((task + 1) * share, rows)):
            lead = unravelled(number, sizes)
            for k in range(n):
                buffer[k] = widened(x[(*lead, k)])
            mean = wide(0)
            if centered:
                for k in range(n, padded):
                    buffer[k] = 0.0
                mean = _lanes(buffer, padded, lambda v: v) / count
            for k in range(n, padded):
                buffer[k] = mean
            squares = _lanes(buffer, padded, lambda v: (v - mean) * (v - mean))  # noqa: B023
            scale = 1 / sqrt(squares / count + epsilon)
            for k in range(n):
                out[(*lead, k)] = finish((buffer[k] - mean) * scale, k)

    parallel_for(ceildiv(rows, share), part)


def _lanes(buffer: AnyTensor, count: Index, of: Callable[[Floating], Floating]) -> Any:
    """The sum of `of(element)`, in LANES sums side by side."""
    total = SIMD[buffer.dtype, LANES](0)
    for k in range(0, count, LANES):
        total = total + of(buffer.load(k, width=LANES))
    return total.reduce_add()
