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
from .algorithm import (
    chunks_of,
    folded,
    highest,
    key_dtype,
    lowest,
    of_order_key,
    order_key,
    product,
    total_dtype,
    unravelled,
    wide_dtype,
    widened,
)

N = TypeVar("N", bound=Numeric)
F = TypeVar("F", bound=Floating)

BLOCK = 4096  # elements of a row that are added in any order
ROW_BLOCK = 256  # elements that are added one after the other
LANES = 64  # sums that run side by side
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
        for base in range(low, high, ROW_BLOCK):
            for j in range(count):
                runs[j] = start
            stop = min(base + ROW_BLOCK, high)
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


@register("argmax", writes_once=True, reads={"x": 2})
def argmax(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The index of the first maximum along `axis`, or of the first NaN if there is one."""
    keys = key_dtype(N)
    _places(ctx, out, x, axis, keys(lowest(keys)), max, highest(keys))


@register("argmin", writes_once=True, reads={"x": 2})
def argmin(
    out: OutputTensor[int64, "*a{axis} 1 *b"], x: InputTensor[N, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """The index of the first minimum along `axis`, or of the first NaN if there is one."""
    keys = key_dtype(N)
    _places(ctx, out, x, axis, keys(highest(keys)), min, lowest(keys))


@register("softmax", writes_once=True, reads={"x": 3})
def softmax(
    out: OutputTensor[F, "*a{axis} n *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """exp(x - max(x)) scaled to the sum 1 along `axis`; NaN where no element is finite. Half types compute in float32."""

    def result(value, power, total):
        return (power() * (1 / total)).cast(F)

    _normalized(ctx, out, x, axis, True, result)


@register("logsoftmax", writes_once=True, reads={"x": 3})
def logsoftmax(
    out: OutputTensor[F, "*a{axis} n *b"], x: InputTensor[F, "*a{axis} n *b"], ctx: DeviceContext, *, axis: int
) -> None:
    """x - max(x) - log(sum(exp(x - max(x)))) along `axis`: the logarithm of softmax. Half types compute in float32."""

    def result(value, power, total):
        return (value - log(total)).cast(F)

    _normalized(ctx, out, x, axis, False, result)


# *** steps ***


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


def minus_zero_apart(value: Any) -> Any:
    """`value`, with 0.0 for -0.0: the two are equal when places are sought."""
    return value + 0 if value.dtype.is_float() else value


# *** places ***


def _places(ctx: Any, out: Any, x: Any, axis: Any, start: Any, pick: Any, nan: Any) -> None:
    """The first place of the best key along `axis`; `pick` is max or min, and `nan` the best key of all."""

    def key(index):
        return order_key(minus_zero_apart(x[index]), nan)

    if ctx.target.is_gpu:
        _place_by_thread(out, x, axis, start, pick, key)
    elif axis == x.rank - 1:
        _place_by_row(out, x, start, pick, key)
    else:
        _place_by_column(out, x, axis, start, pick, key)


def _place_by_thread(out: Any, x: Any, axis: Any, start: Any, pick: Any, key: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 :])

    def one(position):
        lead = unravelled(position, sizes)
        best = start
        place = 0
        for k in range(x.dim(axis)):
            found = key((*lead[:axis], k, *lead[axis:]))
            place = k if pick(found, best) != best else place
            best = pick(found, best)
        out[(*lead[:axis], 0, *lead[axis:])] = place

    parallel_for(product(sizes), one)


def _place_by_row(out: Any, x: Any, start: Any, pick: Any, key: Any) -> None:
    """The best key of each block is found first, then its place in the first block that has it."""
    sizes = x.shape[:-1]
    n = x.dim(-1)
    rows = product(sizes)
    chunks = chunks_of(n, rows, CHUNK, SLOTS)
    size = ceildiv(n, chunks)
    bests = stack[start.dtype](SLOTS)
    places = stack[int64](SLOTS)

    def put(lead, best, first):
        place = first
        while place < n - 1 and key((*lead, place)) != best:
            place += 1
        out[(*lead, 0)] = place

    def part(task):
        row = task // chunks
        low = (task - row * chunks) * size
        high = min(low + size, n)
        lead = unravelled(row, sizes)
        best = start
        place = low
        for first in range(low, high, BLOCK):
            run = start
            for k in range(first, min(first + BLOCK, high)):
                run = pick(run, key((*lead, k)))
            if pick(run, best) != best:
                best = run
                place = first
        if chunks == 1:
            put(lead, best, place)
        else:
            bests[task] = best
            places[task] = place

    parallel_for(rows * chunks, part, grain=ceildiv(TASK, size + 16))
    if chunks > 1:
        for row in range(rows):
            best = start
            place = 0
            for k in range(chunks):
                slot = row * chunks + k
                if pick(bests[slot], best) != best:
                    best = bests[slot]
                    place = places[slot]
            put(unravelled(row, sizes), best, place)


def _place_by_column(out: Any, x: Any, axis: Any, start: Any, pick: Any, key: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 : -1])
    n = x.dim(axis)
    width = x.dim(-1)
    blocks = ceildiv(width, COLUMNS)

    def part(task):
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        count = min(width - first, COLUMNS)
        bests = stack[start.dtype](COLUMNS)
        places = stack[int64](COLUMNS)
        for j in range(count):
            bests[j] = start
        for k in range(n):
            for j in range(count):
                found = key((*lead[:axis], k, *lead[axis:], first + j))
                places[j] = select(pick(found, bests[j]) != bests[j], k, places[j])
                bests[j] = pick(found, bests[j])
        for j in range(count):
            out[(*lead[:axis], 0, *lead[axis:], first + j)] = places[j]

    parallel_for(product(sizes) * blocks, part, grain=ceildiv(TASK, n * min(width, COLUMNS) + 16))


# *** softmax ***


def _normalized(ctx: Any, out: Any, x: Any, axis: Any, powers: Any, result: Any) -> None:
    """out = result(x - max(x), a function that gives its exp, the sum of all exp) along `axis`.

    `powers` says that results are made of exp rather than of x - max(x): that is what is worth keeping.
    """
    if ctx.target.is_gpu:
        _normalized_by_thread(out, x, axis, result)
    elif axis == x.rank - 1:
        _normalized_by_row(out, x, powers, result)
    else:
        _normalized_by_column(out, x, axis, result)


def _shift(top: Any) -> Any:
    """What is subtracted before exp: the maximum, but 0 where all are -inf."""
    return select(top == -inf, 0, top)


def _top_key(key: Any, value: Any) -> Any:
    return max(key, order_key(value, highest(key.dtype)))


def _normalized_by_thread(out: Any, x: Any, axis: Any, result: Any) -> None:
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
        for k in range(n):
            value = element(k) - shift
            out[(*lead[:axis], k, *lead[axis:])] = result(value, lambda: exp(value), total.cast(wide))

    parallel_for(product(sizes), one)


def _normalized_by_row(out: Any, x: Any, powers: Any, result: Any) -> None:
    """Blocks of a row go through a buffer; a row of one block is read once and its exp computed once.

    The sum runs in LANES lanes of their own, so that its order is fixed whatever the machine's vectors are.
    """
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
                for j in range(count, ceildiv(count, LANES) * LANES):
                    buffer[j] = -inf
                shift = _shift(of_order_key(top, wide))
                for j in range(LANES):
                    lanes[j] = 0.0
                for base in range(0, count, LANES):
                    for j in range(LANES):
                        power = exp(buffer[base + j] - shift)
                        lanes[j] += power
                        buffer[base + j] = power if powers else buffer[base + j] - shift
                total = total * exp(before - shift) + _lane_sum(lanes)
            shift = _shift(of_order_key(top, wide))
            if n <= BLOCK:
                for j in range(n):
                    out[(*lead, j)] = result(buffer[j], lambda: buffer[j], total)
            else:
                for k in range(n):
                    value = widened(x[(*lead, k)]) - shift
                    out[(*lead, k)] = result(value, lambda: exp(value), total)

    parallel_for(ceildiv(rows, share), part)


def _lane_sum(lanes: Any) -> Any:
    half = LANES // 2
    while half > 0:
        for j in range(half):
            lanes[j] += lanes[j + half]
        half = half // 2
    return lanes[0]


def _normalized_by_column(out: Any, x: Any, axis: Any, result: Any) -> None:
    sizes = (*x.shape[:axis], *x.shape[axis + 1 : -1])
    n = x.dim(axis)
    width = x.dim(-1)
    blocks = ceildiv(width, COLUMNS)
    wide = wide_dtype(x.dtype)

    def part(task):
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        count = min(width - first, COLUMNS)
        bottom = order_key(wide(-inf), 0)
        tops = stack[bottom.dtype](COLUMNS)
        shifts = stack[wide](COLUMNS)
        totals = stack[total_dtype(wide)](COLUMNS)

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
        for k in range(n):
            for j in range(count):
                value = element(k, j) - shifts[j]
                put = result(value, lambda: exp(value), totals[j].cast(wide))
                out[(*lead[:axis], k, *lead[axis:], first + j)] = put

    parallel_for(product(sizes) * blocks, part, grain=ceildiv(TASK, n * min(width, COLUMNS) + 16))
