"""Reductions along one axis, the places of extremes, and softmax.

Floats are added in blocks (see `algorithm.folded`); half types are computed in float32 and rounded once.

Input: a tensor. Output: a tensor. Non-goals: several axes at once, which the graph merges into one.
"""

from __future__ import annotations

from math import inf
from typing import Any, TypeVar

from ..dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    Int,
    Numeric,
    OutputTensor,
    ceildiv,
    exp,
    float64,
    int64,
    log,
    parallel_for,
    register,
    select,
    stack,
    unroll,
)
from .algorithm import (
    BLOCK,
    COLUMNS,
    ROW_BLOCK,
    TASK,
    add,
    first_places,
    folded,
    highest,
    key_dtype,
    lowest,
    of_order_key,
    order_key,
    plus,
    plus_in_order,
    product,
    total_dtype,
    unravelled,
    wide_dtype,
    widened,
)
from .reduced import reduced

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)

LANE_STEPS = 4
LANES = 1 << LANE_STEPS  # sums that run side by side


@register("reduce_sum", fastmath={"reassoc"}, writes_once=True, reads={"x": 1})
def reduce_sum(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The sum along `axis`, 0 over no elements. Integers wrap."""
    start = wide_dtype(N)(0)
    step = plus if axis == x.rank - 1 else plus_in_order
    reduced(ctx, out, x, axis, start, step, add, lambda value: value.cast(N), total_dtype(N))


@register("reduce_mean", fastmath={"reassoc"}, writes_once=True, reads={"x": 1})
def reduce_mean(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The arithmetic mean along `axis`, NaN over no elements."""
    start = wide_dtype(F)(0)
    step = plus if axis == x.rank - 1 else plus_in_order
    count = Int(x.dim(axis)).cast(float64)
    reduced(ctx, out, x, axis, start, step, add, lambda value: (value / count).cast(F), float64)


@register("reduce_max", writes_once=True, reads={"x": 1})
def reduce_max(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The maximum along `axis`; NaN if one of the elements is NaN. 0.0 is above -0.0."""
    keys = key_dtype(N)
    start = order_key(N(-inf), 0) if N.is_float() else N(lowest(N))

    def step(best, value):
        return max(best, order_key(value, highest(keys)))

    reduced(ctx, out, x, axis, start, step, max, lambda key: of_order_key(key, N), keys)


@register("reduce_min", writes_once=True, reads={"x": 1})
def reduce_min(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The minimum along `axis`; NaN if one of the elements is NaN. -0.0 is below 0.0."""
    keys = key_dtype(N)
    start = order_key(N(inf), 0) if N.is_float() else N(highest(N))

    def step(best, value):
        return min(best, order_key(value, lowest(keys)))

    reduced(ctx, out, x, axis, start, step, min, lambda key: of_order_key(key, N), keys)


@register("argmax", writes_once=True, reads={"x": 2})
def argmax(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The index of the first maximum along `axis`, or of the first NaN if there is one."""
    keys = key_dtype(N)
    first_places(ctx, out, x, axis, keys(lowest(keys)), max, highest(keys))


@register("argmin", writes_once=True, reads={"x": 2})
def argmin(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The index of the first minimum along `axis`, or of the first NaN if there is one."""
    keys = key_dtype(N)
    first_places(ctx, out, x, axis, keys(highest(keys)), min, lowest(keys))


@register("softmax", writes_once=True, reads={"x": 3})
def softmax(
    out: OutputTensor[F, "*a{axis} n *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """exp(x - max(x)) scaled to the sum 1 along `axis`; NaN where all is -inf. Half types compute in float32."""
    _normalized(ctx, out, x, axis, False)


@register("logsoftmax", writes_once=True, reads={"x": 3})
def logsoftmax(
    out: OutputTensor[F, "*a{axis} n *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`: the logarithm of softmax. Half types compute in float32."""
    _normalized(ctx, out, x, axis, True)


# *** softmax ***


def _normalized(ctx: Any, out: Any, x: Any, axis: Any, logarithm: Any) -> None:
    """Softmax along `axis`, or its logarithm."""
    if ctx.target.is_gpu:
        _normalized_by_thread(out, x, axis, logarithm)
    elif axis == x.rank - 1:
        _normalized_by_row(out, x, logarithm)
    else:
        _normalized_by_column(out, x, axis, logarithm)


def _shift(top: Any) -> Any:
    """What is subtracted before exp: the maximum, but 0 where all are -inf."""
    return select(top == -inf, 0, top)


def _top_key(key: Any, value: Any) -> Any:
    """The larger key of an element and those before it."""
    return max(key, order_key(value, highest(key.dtype)))


def _scale(total: Any, logarithm: Any) -> Any:
    """What the sum of all exp does to each element."""
    return log(total) if logarithm else 1 / total


def _scaled(value: Any, scale: Any, logarithm: Any, dtype: Any) -> Any:
    """The result for an element: from x - max(x) for the logarithm, else from its exp."""
    return (value - scale if logarithm else value * scale).cast(dtype)


def _normalized_by_thread(out: Any, x: Any, axis: Any, logarithm: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])
    n = x.dim(axis)
    wide = wide_dtype(x.dtype)
    bottom = order_key(wide(-inf), 0)

    def one(position):
        lead = unravelled(position, sizes)

        def element(k):
            return widened(x[(*lead[:axis], k, *lead[axis:])])

        shift = _shift(of_order_key(folded(element, 0, n, ROW_BLOCK, bottom, _top_key, max, bottom.dtype), wide))
        total = folded(lambda k: exp(element(k) - shift), 0, n, ROW_BLOCK, wide(0), plus, add, total_dtype(wide))
        scale = _scale(total.cast(wide), logarithm)
        for k in range(n):
            value = element(k) - shift
            out[(*lead[:axis], k, *lead[axis:])] = _scaled(
                value if logarithm else exp(value), scale, logarithm, out.dtype
            )

    parallel_for(product(sizes), one)


def _normalized_by_row(out: Any, x: Any, logarithm: Any) -> None:
    """Blocks of a row go through a buffer; a row of one block is read once and its exp computed once."""
    sizes = x.shape[:-1]
    n = x.dim(-1)
    rows = product(sizes)
    wide = wide_dtype(x.dtype)
    share = max(TASK // max(n, 1), 1)

    def part(task):
        buffer = stack[wide](BLOCK)
        lanes = stack[wide](LANES)
        for row in range(task * share, min((task + 1) * share, rows)):
            lead = unravelled(row, sizes)
            top = order_key(wide(-inf), 0)
            total = wide(0)
            for first in range(0, n, BLOCK):
                count = min(n - first, BLOCK)
                before = of_order_key(top, wide)
                for j in range(count):
                    buffer[j] = widened(x[(*lead, first + j)])
                    top = _top_key(top, buffer[j])
                shift = _shift(of_order_key(top, wide))
                if first > 0:
                    total = total * exp(before - shift)
                total = total + _sum_of_powers(buffer, lanes, count, shift, logarithm)
            shift = _shift(of_order_key(top, wide))
            scale = _scale(total, logarithm)
            if n <= BLOCK:
                for j in range(n):
                    out[(*lead, j)] = _scaled(buffer[j], scale, logarithm, out.dtype)
            else:
                for k in range(n):
                    value = widened(x[(*lead, k)]) - shift
                    out[(*lead, k)] = _scaled(value if logarithm else exp(value), scale, logarithm, out.dtype)

    parallel_for(ceildiv(rows, share), part)


def _sum_of_powers(buffer: Any, lanes: Any, count: Any, shift: Any, logarithm: Any) -> Any:
    """The sum of exp(v - shift) for `count` elements v of the buffer, which then holds v - shift or its exp.

    It runs in LANES lanes of their own, so that its order is fixed whatever the machine's vectors are.
    """
    for j in range(count, ceildiv(count, LANES) * LANES):
        buffer[j] = -inf
    for j in range(LANES):
        lanes[j] = 0.0
    for base in range(0, count, LANES):
        for j in range(LANES):
            value = buffer[base + j] - shift
            power = exp(value)
            lanes[j] += power
            buffer[base + j] = value if logarithm else power
    for k in unroll(LANE_STEPS):
        for j in range(LANES >> (k + 1)):
            lanes[j] += lanes[j + (LANES >> (k + 1))]
    return lanes[0]


def _normalized_by_column(out: Any, x: Any, axis: Any, logarithm: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 : -1])
    n = x.dim(axis)
    width = x.dim(-1)
    blocks = max(ceildiv(width, COLUMNS), 1)
    wide = wide_dtype(x.dtype)

    def part(task):
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        count = min(width - first, COLUMNS)
        bottom = order_key(wide(-inf), 0)
        tops = stack[bottom.dtype](COLUMNS)
        shifts = stack[wide](COLUMNS)
        totals = stack[total_dtype(wide)](COLUMNS)
        scales = stack[wide](COLUMNS)

        def element(k, j):
            return widened(x[(*lead[:axis], k, *lead[axis:], first + j)])

        for j in range(count):
            tops[j] = bottom
        for k in range(n):
            for j in range(count):
                tops[j] = _top_key(tops[j], element(k, j))
        for j in range(count):
            shifts[j] = _shift(of_order_key(tops[j], wide))
        for k in range(n):
            for j in range(count):
                totals[j] += exp(element(k, j) - shifts[j]).cast(totals.dtype)
        for j in range(count):
            scales[j] = _scale(totals[j].cast(wide), logarithm)
        for k in range(n):
            for j in range(count):
                value = element(k, j) - shifts[j]
                out[(*lead[:axis], k, *lead[axis:], first + j)] = _scaled(
                    value if logarithm else exp(value), scales[j], logarithm, out.dtype
                )

    parallel_for(product(sizes) * ceildiv(width, COLUMNS), part, grain=ceildiv(TASK, n * min(width, COLUMNS) + 16))
