"""Reductions along one axis, the places of extremes, and softmax.

Three ways lead to a result. Along the last axis, rows are streamed, in parallel; a few long rows are cut into chunks.
Along another axis, columns are taken in blocks, so that the innermost loop still runs along memory. On a GPU each
thread reduces one row or column. Elements are read one at a time, so that what computes them can melt into the loops.

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
    fma,
    int64,
    isnan,
    log,
    parallel_for,
    register,
    select,
    stack,
    unroll,
)
from .algorithm import BLOCK, chunks_of, folded, highest, key_dtype, lowest, of_order_key, order_key, product, total_dtype, unravelled, wide_dtype, widened

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)

COLUMNS = 256  # columns that one task takes
ROWS = 4  # rows that are taken together, so that partial results go to memory less often
SLOTS = 64  # partial results, in the frame of the host's code
CHUNK = 16384  # elements that are worth a task of their own
TASK = 32768  # elements that a task takes at least, when there are many

# *** folds ***


def reduced(ctx: Any, out: Any, x: Any, axis: Any, start: Any, step: Any, merge: Any, finish: Any, total: Any) -> None:
    """out = finish(the fold of x along `axis`); see `folded` for the functions and the dtype `total`."""
    if ctx.target.is_gpu:
        _by_thread(out, x, axis, start, step, merge, finish, total)
    elif axis == x.rank - 1:
        _by_row(out, x, start, step, merge, finish, total)
    else:
        _by_column(out, x, axis, start, step, merge, finish, total)


def _by_thread(out: Any, x: Any, axis: Any, start: Any, step: Any, merge: Any, finish: Any, total: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])

    def one(position):
        lead = unravelled(position, sizes)
        value = folded(
            lambda k: x[(*lead[:axis], k, *lead[axis:])], 0, x.dim(axis), start, step, merge, total
        )
        out[(*lead[:axis], 0, *lead[axis:])] = finish(value)

    parallel_for(product(sizes), one)


def _by_row(out: Any, x: Any, start: Any, step: Any, merge: Any, finish: Any, total: Any) -> None:
    sizes = x.shape[:-1]
    n = x.dim(-1)
    rows = product(sizes)
    chunks = chunks_of(n, rows, CHUNK, SLOTS)
    size = ceildiv(n, chunks)
    parts = stack[total](SLOTS)

    def part(task):
        row = task // chunks
        low = (task - row * chunks) * size
        lead = unravelled(row, sizes)
        value = folded(lambda k: x[(*lead, k)], low, min(low + size, n), start, step, merge, total)
        if chunks == 1:
            out[(*lead, 0)] = finish(value)
        else:
            parts[task] = value

    parallel_for(rows * chunks, part, grain=ceildiv(TASK, size + 16))
    if chunks > 1:
        for row in range(rows):
            value = start.cast(total)
            for k in range(chunks):
                value = merge(value, parts[row * chunks + k])
            out[(*unravelled(row, sizes), 0)] = finish(value)


def _by_column(out: Any, x: Any, axis: Any, start: Any, step: Any, merge: Any, finish: Any, total: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 : -1])
    n = x.dim(axis)
    width = x.dim(-1)
    blocks = ceildiv(width, COLUMNS)
    tasks = product(sizes) * blocks

    def block(task, low, high, use):
        """Folds [low, high) of the axis for the task's columns, and calls use(lead, column, its number, value)."""
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        count = min(width - first, COLUMNS)
        runs = stack[start.dtype](COLUMNS)
        totals = stack[total](COLUMNS)
        for j in range(count):
            totals[j] = start.cast(total)
        for base in range(low, high, BLOCK):
            for j in range(count):
                runs[j] = start
            stop = min(base + BLOCK, high)
            whole = base + (stop - base) // ROWS * ROWS
            for k in range(base, whole, ROWS):
                for j in range(count):
                    run = runs[j]
                    for r in unroll(ROWS):
                        run = step(run, x[(*lead[:axis], k + r, *lead[axis:], first + j)])
                    runs[j] = run
            for k in range(whole, stop):
                for j in range(count):
                    runs[j] = step(runs[j], x[(*lead[:axis], k, *lead[axis:], first + j)])
            for j in range(count):
                totals[j] = merge(totals[j], runs[j].cast(total))
        for j in range(count):
            use(lead, first + j, j, totals[j])

    def put(lead, column, j, value):
        out[(*lead[:axis], 0, *lead[axis:], column)] = finish(value)

    chunks = chunks_of(n, tasks, CHUNK // COLUMNS, SLOTS)
    if chunks == 1:
        parallel_for(tasks, lambda task: block(task, 0, n, put), grain=ceildiv(TASK, n * min(width, COLUMNS) + 16))
    else:
        size = ceildiv(n, chunks)
        parts = stack[total](SLOTS * COLUMNS)

        def part(slot):
            task = slot // chunks
            low = (slot - task * chunks) * size

            def keep(lead, column, j, value):
                parts[slot * COLUMNS + j] = value

            block(task, low, min(low + size, n), keep)

        parallel_for(tasks * chunks, part)
        for task in range(tasks):
            lead = unravelled(task // blocks, sizes)
            first = task % blocks * COLUMNS
            for j in range(min(width - first, COLUMNS)):
                value = start.cast(total)
                for k in range(chunks):
                    value = merge(value, parts[(task * chunks + k) * COLUMNS + j])
                put(lead, first + j, j, value)


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
    step = lambda best, value: max(best, order_key(value, highest(keys)))
    reduced(ctx, out, x, axis, start, step, max, lambda key: of_order_key(key, N), keys)


@register("reduce_min", writes_once=True, reads={"x": 1})
def reduce_min(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The minimum along `axis`; NaN if one of the elements is NaN. -0.0 is below 0.0."""
    keys = key_dtype(N)
    start = order_key(N(inf), 0) if N.is_float() else N(highest(N))
    step = lambda best, value: min(best, order_key(value, lowest(keys)))
    reduced(ctx, out, x, axis, start, step, min, lambda key: of_order_key(key, N), keys)


def plus(total: Any, value: Any) -> Any:
    """A sum with one more element, in the dtype of the sum."""
    return total + value.cast(total.dtype)


def plus_in_order(total: Any, value: Any) -> Any:
    """As `plus`, but outside the liberty to reorder sums, which would have LLVM gather along the wrong axis."""
    if total.dtype.is_float():
        return fma(value.cast(total.dtype), 1, total)
    return plus(total, value)


def add(a: Any, b: Any) -> Any:
    """The sum of two partial sums."""
    return a + b
