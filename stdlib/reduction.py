"""Reductions along one axis, the places of extremes, and softmax.

Three ways lead to a result. Along the last axis, rows are streamed, in parallel; a few long rows are cut into chunks.
Along another axis, columns are taken in blocks, so that the innermost loop still runs along memory. On a GPU each
thread reduces one row or column. Elements are read one at a time, so that what computes them can melt into the loops.

Floats are added in blocks (see `algorithm.folded`); half types are computed in float32 and rounded once.

Input: a tensor. Output: a tensor. Non-goals: several axes at once, which the graph merges into one.
"""

from __future__ import annotations

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
    int64,
    isnan,
    log,
    parallel_for,
    register,
    select,
    stack,
)
from .algorithm import BLOCK, chunks_of, folded, highest, lowest, product, total_dtype, unravelled, wide_dtype, widened

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)

COLUMNS = 128  # columns that one task takes
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
            lambda k: widened(x[(*lead[:axis], k, *lead[axis:])]), 0, x.dim(axis), start, step, merge, total
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
        value = folded(lambda k: widened(x[(*lead, k)]), low, min(low + size, n), start, step, merge, total)
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
            for k in range(base, min(base + BLOCK, high)):
                for j in range(count):
                    runs[j] = step(runs[j], widened(x[(*lead[:axis], k, *lead[axis:], first + j)]))
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
    total = total_dtype(N)
    reduced(ctx, out, x, axis, start, lambda a, v: a + v, lambda a, b: a + b, lambda value: value.cast(N), total)


@register("reduce_mean", fastmath={"reassoc"}, writes_once=True, reads={"x": 1})
def reduce_mean(
    out: OutputTensor[F, "*a{axis} 1 *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The arithmetic mean along `axis`, NaN over no elements."""
    start = wide_dtype(F)(0)
    total = total_dtype(F)
    count = Int(x.dim(axis)).cast(total)
    reduced(ctx, out, x, axis, start, lambda a, v: a + v, lambda a, b: a + b, lambda v: (v / count).cast(F), total)


@register("reduce_max", writes_once=True, reads={"x": 1})
def reduce_max(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The maximum along `axis`; NaN if one of the elements is NaN."""
    wide = wide_dtype(N)
    reduced(ctx, out, x, axis, lowest(wide), max_of, max_of, lambda value: value.cast(N), wide)


@register("reduce_min", writes_once=True, reads={"x": 1})
def reduce_min(
    out: OutputTensor[N, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The minimum along `axis`; NaN if one of the elements is NaN."""
    wide = wide_dtype(N)
    reduced(ctx, out, x, axis, highest(wide), min_of, min_of, lambda value: value.cast(N), wide)


def max_of(a: Any, b: Any) -> Any:
    """The larger one; NaN if either is NaN."""
    return max(a, b)


def min_of(a: Any, b: Any) -> Any:
    """The smaller one; NaN if either is NaN."""
    return min(a, b)
