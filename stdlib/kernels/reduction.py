"""Reduces along one axis: sums, extremes and their places; softmax.

The monoids say what is computed, `rows` and `folds` in which order; softmax has loops of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    AnyDType,
    AnyTensor,
    DeviceContext,
    Element,
    Floating,
    Index,
    InputTensor,
    Int,
    Integral,
    Numeric,
    OutputTensor,
    abs,
    bool8,
    ceildiv,
    exp,
    float64,
    int32,
    int64,
    log,
    parallel_for,
    register,
    select,
    sqrt,
    stack,
    store,
    unroll,
)
from ..algorithms.algorithm import (
    highest,
    of_order_key,
    order_key,
    product,
    summand,
    total_dtype,
    unravelled,
    wide_dtype,
    widened,
)
from ..algorithms.folds import PIECE, for_each
from ..algorithms.held_rows import Share, held_rows, in_held_teams, store_held, total_of
from ..algorithms.monoid import Monoid
from ..algorithms.monoids import All, ArgMax, ArgMin, LogSumExp, Max, Min, Product, Sum, Welford
from ..algorithms.monoids import Any as Any_
from ..algorithms.references import Array, ends, in_float64, in_sums, place, plain
from ..algorithms.rows import COLUMNS, SPLIT_ROWS, TASK, reduce, rowwise
from ..algorithms.short_rows import RowOf, element_of, folded, in_blocks, keep_element, new_tile, store_turned, turned
from ..algorithms.teams import for_each_of, in_thread, reduced
from ..math.exponential import exp_of_difference, reciprocal_of_sum

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)
E = TypeVar("E", bound=Element)
S = TypeVar("S", bound=Numeric)  # the dtype of sums

BLOCK = 4096  # elements of a row that go through memory close by
LANE_STEPS = 4
LANES = 1 << LANE_STEPS  # sums that run side by side


class Total(Sum):
    """A sum as it was added up: in float64 for floats."""

    @staticmethod
    def finish(state: Floating, dtype: AnyDType):
        return state


class Root(Sum):
    """The square root of a sum."""

    @staticmethod
    def finish(state: Floating, dtype: AnyDType):
        return sqrt(state).cast(dtype)


class Deviation(Welford):
    """The square root of the variance."""

    @staticmethod
    def finish(state: tuple[Floating, ...], dtype: AnyDType):
        return sqrt(state[2] / state[0]).cast(dtype)


class LaneTotal(Monoid):
    """A sum in the lanes of `_sum_of_powers`, in the dtype of the elements."""

    lanes = LANES

    @staticmethod
    def identity(dtype: AnyDType):
        return dtype(0)


class Count(Sum):
    """How many elements are not zero, as Int."""

    @staticmethod
    def identity(dtype: AnyDType):
        return int32(0)

    @staticmethod
    def lift(value: Element, place: Integral):
        return value.cast(int32) if value.dtype == bool8 else (value != 0).cast(int32)

    @staticmethod
    def settle(state: Integral, first: Index):
        return state.cast(int64)

    @staticmethod
    def finish(state: Index, dtype: AnyDType):
        return state


class Powers(LogSumExp):
    """The maximum, and the sum of exp(x - maximum)."""

    @staticmethod
    def finish(state: tuple[Floating, Floating], dtype: AnyDType):
        return state


@register("reduce_sum", writes_once=True, reads={"x": 1})
def reduce_sum(
    out: OutputTensor[S, "*a{axis} 1 *b"], x: InputTensor[E, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The sum along `axis`, 0 over no elements; integers and bools in 64 bits."""
    _along(out, x, Sum, axis)


reduce_sum.reference(in_sums(lambda x, axis: np.sum(x, axis, keepdims=True)))


@register("reduce_mean", writes_once=True, reads={"x": 1})
def reduce_mean(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The arithmetic mean along `axis`, NaN over no elements."""
    count = Int(x.dim(axis)).cast(float64)
    rowwise(
        x,
        Total,
        lambda row, total: store(out, (row[:axis], 0, row[axis:]), (total.cast(float64) / count).cast(F)),
        axis=axis,
        abreast=True,
    )


reduce_mean.reference(in_float64(lambda x, axis: np.sum(x, axis, keepdims=True) / x.shape[axis]))


@register("reduce_max", writes_once=True, reads={"x": 1})
def reduce_max(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The maximum along `axis`; NaN if one of the elements is NaN. 0.0 is above -0.0."""
    _along(out, x, Max, axis)


reduce_max.reference(plain(lambda x, axis: np.max(x, axis, keepdims=True, initial=ends(x.dtype)[0])))


@register("reduce_min", writes_once=True, reads={"x": 1})
def reduce_min(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The minimum along `axis`; NaN if one of the elements is NaN. -0.0 is below 0.0."""
    _along(out, x, Min, axis)


reduce_min.reference(plain(lambda x, axis: np.min(x, axis, keepdims=True, initial=ends(x.dtype)[1])))


@register("argmax", writes_once=True, reads={"x": 1})
def argmax(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The index of the first maximum along `axis`, or of the first NaN if there is one."""
    _along(out, x, ArgMax, axis)


argmax.reference(place(np.argmax))


@register("argmin", writes_once=True, reads={"x": 1})
def argmin(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The index of the first minimum along `axis`, or of the first NaN if there is one."""
    _along(out, x, ArgMin, axis)


argmin.reference(place(np.argmin))


@register("reduce_prod", writes_once=True, reads={"x": 1})
def reduce_prod(
    out: OutputTensor[S, "*a{axis} 1 *b"], x: InputTensor[E, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The product along `axis`, 1 over no elements; integers and bools in 64 bits."""
    _along(out, x, Product, axis)


reduce_prod.reference(in_sums(lambda x, axis: np.prod(x, axis, keepdims=True)))


@register("reduce_var", writes_once=True, reads={"x": 1})
def reduce_var(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The mean of the squared distances from the mean along `axis`, NaN over no elements."""
    rowwise(x, Welford, lambda row, result: store(out, (row[:axis], 0, row[axis:]), result[1]), axis=axis, abreast=True)


reduce_var.reference(in_float64(lambda x, axis: _variance(x, axis)))


@register("reduce_stdev", writes_once=True, reads={"x": 1})
def reduce_stdev(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The square root of the variance along `axis`, NaN over no elements."""
    rowwise(x, Deviation, lambda row, result: store(out, (row[:axis], 0, row[axis:]), result), axis=axis, abreast=True)


reduce_stdev.reference(in_float64(lambda x, axis: np.sqrt(_variance(x, axis))))


def _variance(x: Array, axis: int):
    if x.shape[axis]:
        return np.var(x, axis, keepdims=True)
    return np.full([1 if k == axis else size for k, size in enumerate(x.shape)], np.nan)


@register("logsumexp", writes_once=True, reads={"x": 1})
def logsumexp(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """log(sum(exp(x))) along `axis`, without overflow; -inf over no elements."""
    _along(out, x, LogSumExp, axis)


@logsumexp.reference
def logsumexp_reference(x: Array, *, axis: int):
    return np.logaddexp.reduce(x.astype(np.float64), axis, keepdims=True, initial=-inf).astype(x.dtype)


@register("reduce_any", writes_once=True, reads={"x": 1})
def reduce_any(
    out: OutputTensor[bool8, "*a{axis} 1 *b"], x: InputTensor[E, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """Whether an element along `axis` is not zero; NaN is not."""
    _along(out, x, Any_, axis)


reduce_any.reference(plain(lambda x, axis: np.any(x, axis, keepdims=True)))


@register("reduce_all", writes_once=True, reads={"x": 1})
def reduce_all(
    out: OutputTensor[bool8, "*a{axis} 1 *b"], x: InputTensor[E, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """Whether no element along `axis` is zero."""
    _along(out, x, All, axis)


reduce_all.reference(plain(lambda x, axis: np.all(x, axis, keepdims=True)))


@register("count_nonzero", writes_once=True, reads={"x": 1})
def count_nonzero(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[E, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """How many elements along `axis` are not zero; NaN is not."""
    _along(out, x, Count, axis)


count_nonzero.reference(plain(lambda x, axis: np.sum(x != 0, axis, keepdims=True, dtype=np.int64)))


@register("l1_norm", writes_once=True, reads={"x": 1})
def l1_norm(
    out: OutputTensor[S, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The sum of the absolute values along `axis`. Integers in 64 bits."""
    _along_of(out, x, Sum, axis, lambda value: abs(summand(value)))


l1_norm.reference(in_sums(lambda x, axis: np.sum(np.abs(x), axis, keepdims=True)))


@register("sum_of_squares", writes_once=True, reads={"x": 1})
def sum_of_squares(
    out: OutputTensor[S, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The sum of the squares along `axis`. Integers in 64 bits."""
    _along_of(out, x, Sum, axis, lambda value: summand(value) * summand(value))


sum_of_squares.reference(in_sums(lambda x, axis: np.sum(x * x, axis, keepdims=True)))


@register("l2_norm", writes_once=True, reads={"x": 1})
def l2_norm(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The square root of the sum of the squares along `axis`."""
    _along_of(out, x, Root, axis, lambda value: widened(value) * widened(value))


l2_norm.reference(in_float64(lambda x, axis: np.sqrt(np.sum(x * x, axis, keepdims=True))))


def _along_of(out: AnyTensor, x: AnyTensor, monoid: type[Monoid], axis: int, of: Callable[[Numeric], Numeric]) -> None:
    """As `_along`, of what a function makes of each element."""

    def keep(row: tuple[Index, ...], value: Numeric):
        out[row[:axis], 0, row[axis:]] = value.cast(out.dtype)

    rowwise(x, monoid, keep, axis=axis, of=of, abreast=True)


def _along(out: AnyTensor, x: AnyTensor, monoid: type[Monoid], axis: int) -> None:
    """`out`, in which `axis` has one element, is what the monoid makes of x."""
    rowwise(x, monoid, lambda row, value: store(out, (row[:axis], 0, row[axis:]), value), axis=axis, abreast=True)


@register("softmax", writes_once=True, reads={"x": 3})
def softmax(
    out: OutputTensor[F, "*a{axis} n *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """exp(x - max(x)) scaled to the sum 1 along `axis`; NaN where all is -inf. Half types compute in float32."""
    _normalized(ctx, out, x, axis, False)


@softmax.reference
def softmax_reference(x: Array, *, axis: int):
    wide = x.astype(np.float64)
    powers = np.exp(wide - np.max(wide, axis, keepdims=True, initial=-inf))
    return (powers / np.sum(powers, axis, keepdims=True)).astype(x.dtype)


@register("logsoftmax", writes_once=True, reads={"x": 3})
def logsoftmax(
    out: OutputTensor[F, "*a{axis} n *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`: the logarithm of softmax. Half types compute in float32."""
    _normalized(ctx, out, x, axis, True)


@logsoftmax.reference
def logsoftmax_reference(x: Array, *, axis: int):
    wide = x.astype(np.float64)
    below = wide - np.max(wide, axis, keepdims=True, initial=-inf)
    return (below - np.log(np.sum(np.exp(below), axis, keepdims=True))).astype(x.dtype)


# *** softmax ***


def _normalized(ctx: DeviceContext, out: AnyTensor, x: AnyTensor, axis: int, logarithm: bool) -> None:
    """Softmax along `axis`, or its logarithm."""
    if ctx.target.is_gpu:
        if axis == x.rank - 1:
            _normalized_by_team(out, x, logarithm)
        else:
            _normalized_by_thread(out, x, axis, logarithm)
    elif axis == x.rank - 1:
        if product(x.shape[:-1]) < SPLIT_ROWS and x.dim(-1) > PIECE:
            _normalized_in_pieces(out, x, logarithm)
        else:
            _normalized_by_row(out, x, logarithm)
    else:
        _normalized_by_column(out, x, axis, logarithm)


def _shift(top: Floating) -> Any:
    """What is subtracted before exp: the maximum, but 0 where all are -inf."""
    return select(top == -inf, 0, top)


def _top_key(key: Integral, value: Floating) -> Any:
    """The larger key of an element and those before it."""
    return max(key, order_key(value, highest(key.dtype)))


def _power(x: Floating, shift: Floating, logarithm: bool) -> Any:
    """What is scaled of an element."""
    value = widened(x) - shift
    return value if logarithm else exp(value)


def _scale(total: Floating, logarithm: bool) -> Any:
    """What the sum of all exp does to each element."""
    return log(total) if logarithm else 1 / total


def _scaled(value: Floating, scale: Floating, logarithm: bool, dtype: AnyDType) -> Any:
    """The result for an element: from x - max(x) for the logarithm, else from its exp."""
    return (value - scale if logarithm else value * scale).cast(dtype)


def _normalized_by_team(out: AnyTensor, x: AnyTensor, logarithm: bool) -> None:
    """On a GPU, the threads of a warp or of a block hold a row; over one that is too long for them they go twice."""
    sizes, n = x.shape[:-1], x.dim(-1)

    def held(number: Index, share: Share):
        lead = unravelled(number, sizes)
        (values,) = held_rows(share, (x,), lead, widened, -inf)
        shift = _shift(total_of(share, values, lambda a, b: max(a, b)))
        values = for_each(values, lambda _, v: v - shift)
        powers = for_each(values, lambda _, v: exp_of_difference(v))
        total = total_of(share, powers, lambda a, b: a + b)
        scale = log(total) if logarithm else reciprocal_of_sum(total)
        results = values if logarithm else powers
        store_held(share, out, lead, for_each(results, lambda _, v: _scaled(v, scale, logarithm, out.dtype)))

    def row(number: Index, team: int):
        lead = unravelled(number, sizes)
        top, total = reduced(team, n, lambda k: x[lead, k], Powers, x.dtype)
        shift = _shift(top)
        scale = _scale(total.cast(top.dtype), logarithm)

        def one(k: Index):
            out[lead, k] = _scaled(_power(x[lead, k], shift, logarithm), scale, logarithm, out.dtype)

        for_each_of(team, n, one)

    in_held_teams(product(sizes), n, (x, out), held, row)


def _normalized_by_thread(out: AnyTensor, x: AnyTensor, axis: int, logarithm: bool) -> None:
    """On a GPU, each thread takes a column."""
    sizes, n = (*x.shape[:axis], *x.shape[axis + 1 :]), x.dim(axis)

    def column(number: Index):
        row = unravelled(number, sizes)
        top, total = in_thread(n, lambda k: x[row[:axis], k, row[axis:]], Powers, x.dtype)
        shift = _shift(top)
        scale = _scale(total.cast(top.dtype), logarithm)
        for k in range(n):
            at = (row[:axis], k, row[axis:])
            out[at] = _scaled(_power(x[at], shift, logarithm), scale, logarithm, out.dtype)

    parallel_for(product(sizes), column)


def _normalized_in_pieces(out: AnyTensor, x: AnyTensor, logarithm: bool) -> None:
    """A few long rows, one after the other; all threads work on each."""
    n = x.dim(-1)
    sizes = x.shape[:-1]
    for row in range(product(sizes)):
        lead = unravelled(row, sizes)
        top, total = reduce(x[lead, :], Powers)
        shift = _shift(top)
        scale = _scale(total.cast(top.dtype), logarithm)

        def part(number: Index):
            for k in range(number * BLOCK, min((number + 1) * BLOCK, n)):
                out[lead, k] = _scaled(_power(x[lead, k], shift, logarithm), scale, logarithm, out.dtype)  # noqa: B023

        parallel_for(ceildiv(n, BLOCK), part)


def _normalized_by_row(out: AnyTensor, x: AnyTensor, logarithm: bool) -> None:
    """Blocks of a row go through a buffer; a row of one block is read once and its exp computed once."""
    sizes = x.shape[:-1]
    n = x.dim(-1)
    rows = product(sizes)
    wide = wide_dtype(x.dtype)
    share = max(TASK // max(n, 1), 1)
    taken = in_blocks(sizes, n, lambda row_of: _normalized_block(out, x, row_of, logarithm))

    def part(task: Index):
        buffer = stack[wide](BLOCK)
        lanes = stack[wide](LANES)
        for row in range(taken + task * share, min(taken + (task + 1) * share, rows)):
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
                    out[lead, k] = _scaled(_power(x[lead, k], shift, logarithm), scale, logarithm, out.dtype)

    parallel_for(ceildiv(rows - taken, share), part)


def _normalized_block(out: AnyTensor, x: AnyTensor, row_of: RowOf, logarithm: bool) -> None:
    """Short rows side by side."""
    n = x.dim(-1)
    wide = wide_dtype(x.dtype)
    tile = turned(x, row_of, n)
    results = new_tile(wide)
    shift = _shift(of_order_key(folded(Max, lambda k: widened(element_of(tile, k)), n, wide), wide))

    def power_of(k: Index):
        value = widened(element_of(tile, k)) - shift
        power = exp(value)
        keep_element(results, k, value if logarithm else power)
        return power

    scale = _scale(folded(LaneTotal, power_of, n, wide), logarithm)
    rounded = new_tile(out.dtype)
    for k in range(n):
        keep_element(rounded, k, _scaled(element_of(results, k), scale, logarithm, out.dtype))
    store_turned(out, rounded, row_of, n)


def _sum_of_powers(buffer: AnyTensor, lanes: AnyTensor, count: Index, shift: Floating, logarithm: bool) -> Any:
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


def _normalized_by_column(out: AnyTensor, x: AnyTensor, axis: int, logarithm: bool) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 : -1])
    n = x.dim(axis)
    width = x.dim(-1)
    blocks = max(ceildiv(width, COLUMNS), 1)
    wide = wide_dtype(x.dtype)

    def part(task: Index):
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        count = min(width - first, COLUMNS)
        bottom = order_key(wide(-inf), 0)
        tops = stack[bottom.dtype](COLUMNS)
        shifts = stack[wide](COLUMNS)
        totals = stack[total_dtype(wide)](COLUMNS)
        scales = stack[wide](COLUMNS)

        def element(k: Index, j: Index):
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
