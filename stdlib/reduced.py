"""Folds of a whole tensor along one axis: by threads, by rows, by blocks of columns.

Used by the reductions of `reduction`; see `algorithm` for the folds themselves. Input: a tensor and the functions of a
fold. Output: stores into the result. Non-goals: no kernel is registered here.
"""

from __future__ import annotations

from typing import Any

from ..dsl import ceildiv, parallel_for, stack, unroll
from .algorithm import BLOCK, CHUNK, COLUMNS, ROW_BLOCK, ROWS, SLOTS, TASK, chunks_of, folded, product, unravelled


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
            lambda k: x[(*lead[:axis], k, *lead[axis:])], 0, x.dim(axis), ROW_BLOCK, start, step, merge, total
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
        value = folded(lambda k: x[(*lead, k)], low, min(low + size, n), BLOCK, start, step, merge, total)
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
    blocks = max(ceildiv(width, COLUMNS), 1)
    tasks = product(sizes) * ceildiv(width, COLUMNS)

    def block(task, low, high, use):
        """Folds [low, high) of the axis for the task's columns, and calls use(lead, column, its number, value)."""
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        count = min(width - first, COLUMNS)

        def element(k, j):
            return x[(*lead[:axis], k, *lead[axis:], first + j)]

        _fold_columns(
            element, count, low, high, start, step, merge, total, lambda j, value: use(lead, first + j, j, value)
        )

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


def _fold_columns(
    element: Any, count: Any, low: Any, high: Any, start: Any, step: Any, merge: Any, total: Any, use: Any
) -> None:
    """Folds rows [low, high) of `count` columns side by side, so that the innermost loop runs along memory."""
    runs = stack[start.dtype](COLUMNS)
    totals = stack[total](COLUMNS)
    for j in range(count):
        totals[j] = start.cast(total)
    for base in range(low, high, ROW_BLOCK):
        for j in range(count):
            runs[j] = start
        stop = min(base + ROW_BLOCK, high)
        whole = base + (stop - base) // ROWS * ROWS
        for k in range(base, whole, ROWS):
            for j in range(count):
                run = runs[j]
                for r in unroll(ROWS):
                    run = step(run, element(k + r, j))
                runs[j] = run
        for k in range(whole, stop):
            for j in range(count):
                runs[j] = step(runs[j], element(k, j))
        for j in range(count):
            totals[j] = merge(totals[j], runs[j].cast(total))
    for j in range(count):
        use(j, totals[j])
