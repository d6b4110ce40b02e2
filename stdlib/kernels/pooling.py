"""Pools: the maximum, the mean or a norm of every window of a tensor.

Tensors are (batch, places, channels), or (batch, channels, places) where `first` is true; places have one to three
axes. `kernel`, `stride`, `dilation`, `before` and `after` are tuples of whole numbers, one for each of these axes.
Half types are computed in float32.
"""

from __future__ import annotations

from math import inf
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyDType,
    Element,
    Floating,
    Index,
    InputTensor,
    Int,
    Integral,
    Numeric,
    OutputTensor,
    abs,
    ceildiv,
    int64,
    iota,
    isnan,
    max,
    min,
    pow,
    register,
    select,
    sqrt,
    unroll,
)
from ..algorithms.algorithm import lowest, wide_dtype
from ..algorithms.windows import padded_windows, three_axes, window_shape, windows

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)


@register("max_pool", writes_once=True)
def max_pool(
    out: OutputTensor[N, "*t"],
    x: InputTensor[N, "*s"],
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    first: bool,
) -> None:
    """The largest element of each window; NaN if one of them is, the least number there is where it has none."""
    wide = wide_dtype(N)

    def step(
        state: Integral,
        value: Integral,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
    ):
        return max(state, value.cast(wide))

    def step_of_floats(
        state: tuple[Floating, Floating],
        value: Floating,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
    ):
        """The largest number, and a NaN if there was one: two instructions, where `max` takes several."""
        best, other = state
        new = value.cast(wide)
        return select(new > best, new, best), select(isnan(new), new, other)

    shape = window_shape(kernel, stride, dilation, before)
    if wide.is_float():
        padded_windows(
            out,
            x,
            shape,
            first,
            lambda width: (_least(wide, width), SIMD[wide, width](0)),
            step_of_floats,
            lambda state, place: select(isnan(state[1]), state[1], state[0]).cast(N),
            outside=N(-inf),
        )
    else:
        least = N(lowest(wide))
        padded_windows(
            out,
            x,
            shape,
            first,
            lambda width: _least(wide, width),
            step,
            lambda state, place: state.cast(N),
            outside=least,
        )


@register("max_pool_indices", writes_once=True)
def max_pool_indices(
    out: OutputTensor[int64, "*t"],
    x: InputTensor[N, "*s"],
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    first: bool,
) -> None:
    """Where the largest element of each window lies, counted over the places in row-major order.

    The first of several; the first NaN if there is one, -1 where the window has no elements.
    """
    wide = wide_dtype(N)
    sizes = three_axes(x.shape[2:] if first else x.shape[1:-1])
    by = stride[x.rank - 3] if first else 0

    def step(
        state: tuple[Numeric, Integral],
        value: Numeric,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
    ):
        best, at = state
        new = value.cast(wide)
        here = iota(int64, new.width) * by + ((place[0] * sizes[1] + place[1]) * sizes[2] + place[2])
        better = (new > best) | (at < 0)
        if wide.is_float():
            better = (better | isnan(new)) & ~isnan(best)
        return select(better, new, best), select(better, here, at)

    shape = window_shape(kernel, stride, dilation, before)

    def nothing(width: int):
        return _least(wide, width), SIMD[int64, width](-1)

    windows(out, x, shape, first, nothing, step, lambda state, place: state[1])


@register("avg_pool", writes_once=True)
def avg_pool(
    out: OutputTensor[F, "*t"],
    x: InputTensor[F, "*s"],
    *,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    after: tuple[int, ...],
    first: bool,
    boundary: bool,
) -> None:
    """The mean of each window; with `boundary` the zeros count that lie in the padding."""
    wide = wide_dtype(F)
    shape = window_shape(kernel, stride, dilation, before)
    behind = three_axes(after, 0)
    sizes = three_axes(x.shape[2:] if first else x.shape[1:-1])

    def step(
        state: Floating,
        value: Floating,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
    ):
        return state + value.cast(wide)

    def finish(state: Floating, place: tuple[Index, ...]):
        count = Int(1)
        for k in unroll(3):
            low, high = _counted(shape, sizes[k], behind[k], k, place[k], boundary)
            count = count * (high - low)
        return (state / count.cast(wide)).cast(F)

    windows(out, x, shape, first, lambda width: SIMD[wide, width](0), step, finish)


@register("lp_pool", writes_once=True)
def lp_pool(
    out: OutputTensor[F, "*t"],
    x: InputTensor[F, "*s"],
    *,
    p: float,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    before: tuple[int, ...],
    first: bool,
) -> None:
    """The p-norm of each window: the p-th root of the sum of the p-th powers of the magnitudes."""
    wide = wide_dtype(F)

    def power(value: Floating):
        if p == 1.0:
            return abs(value)
        return value * value if p == 2.0 else pow(abs(value), p)

    def root(value: Floating):
        if p == 1.0:
            return value
        return sqrt(value) if p == 2.0 else pow(value, 1.0 / p)

    def step(
        state: Floating,
        value: Floating,
        channel: Index,
        tap: tuple[Index, ...],
        place: tuple[Index, ...],
        mask: Element,
    ):
        return state + power(value.cast(wide))

    shape = window_shape(kernel, stride, dilation, before)

    def finish(state: Floating, place: tuple[Index, ...]):
        return root(state).cast(F)

    if p > 0.0:
        padded_windows(out, x, shape, first, lambda width: SIMD[wide, width](0), step, finish, outside=F(0))
    else:
        windows(out, x, shape, first, lambda width: SIMD[wide, width](0), step, finish)


def _least(dtype: AnyDType, width: int) -> Any:
    return SIMD[dtype, width](-inf if dtype.is_float() else lowest(dtype))


def _counted(
    shape: tuple[tuple[int, ...], ...], size: Index, behind: int, axis: int, place: Index, boundary: bool
) -> Any:
    """(low, high): which elements of a window count along an axis."""
    sizes, strides, dilations, before = shape
    start = place * strides[axis] - before[axis]
    low = 0 if boundary else ceildiv(max(-start, 0), dilations[axis])
    end = size + behind if boundary else size
    return low, max(min(ceildiv(end - start, dilations[axis]), sizes[axis]), low)
