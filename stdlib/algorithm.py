"""What kernels of several families share: dtypes and orders of elements, index arithmetic, folds along an axis.

Three ways lead through an axis. Along the last one, rows are streamed, in parallel; a few long rows are cut into
chunks. Along another one, columns are taken in blocks, so that the innermost loop still runs along memory. On a GPU
each thread takes one row or column. Elements are read one at a time, so that what computes them can melt into the
loops.

Input: values and compile-time parameters of a kernel. Output: values. Non-goals: no kernel is registered here.
"""

from __future__ import annotations

from typing import Any

from ..dsl import (
    bitcast,
    ceildiv,
    float32,
    float64,
    fma,
    int16,
    int32,
    int64,
    isnan,
    parallel_for,
    select,
    stack,
    unroll,
)

BLOCK = 4096  # elements of a row that are added in any order
ROW_BLOCK = 256  # elements that are added one after the other
COLUMNS = 256  # columns that one task takes
ROWS = 4  # rows that are taken together, so that partial results go to memory less often
SLOTS = 64  # partial results, in the frame of the host's code
CHUNK = 16384  # elements that are worth a task of their own
TASK = 32768  # elements that a task takes at least, when there are many

# *** dtypes ***


def wide_dtype(dtype: Any) -> Any:
    """The dtype in which elements of `dtype` are accumulated: float32 for half types, else `dtype` itself."""
    return float32 if dtype.is_half() else dtype


def total_dtype(dtype: Any) -> Any:
    """The dtype in which sums of many elements are added up: float64 for floats, else `dtype` itself."""
    return float64 if dtype.is_float() else dtype


def widened(x: Any) -> Any:
    """`x` in the dtype of `wide_dtype`."""
    return x.cast(wide_dtype(x.dtype))


# *** order ***


def key_dtype(dtype: Any) -> Any:
    """The integers that order elements of `dtype`; see `order_key`."""
    if not dtype.is_float():
        return dtype
    return int16 if dtype.bits == 16 else int32 if dtype.bits == 32 else int64


def lowest(dtype: Any) -> Any:
    """The smallest number of an integer dtype."""
    return -(1 << (dtype.bits - 1)) if dtype.is_signed() else 0


def highest(dtype: Any) -> Any:
    """The largest number of an integer dtype."""
    return (1 << (dtype.bits - 1)) - 1 if dtype.is_signed() else (1 << dtype.bits) - 1


def order_key(x: Any, nan: Any) -> Any:
    """An integer that stands where x stands: smaller for smaller x, -0.0 below 0.0, and `nan` for NaN.

    Positive floats order as their bits do; negative ones the other way round, so all bits but the sign are turned over.
    """
    if not x.dtype.is_float():
        return x
    bits = bitcast(x, key_dtype(x.dtype))
    return select(isnan(x), nan, select(bits < 0, bits ^ highest(bits.dtype), bits))


def of_order_key(key: Any, dtype: Any) -> Any:
    """The element of `dtype` that has this key; NaN for the keys that no number has."""
    if not dtype.is_float():
        return key
    return bitcast(select(key < 0, key ^ highest(key.dtype), key), dtype)


# *** indices ***


def product(sizes: Any) -> Any:
    """The product of a tuple of sizes; 1 of an empty one."""
    total = 1
    for k in unroll(len(sizes)):
        total = total * sizes[k]
    return total


def unravelled(position: Any, sizes: Any) -> Any:
    """The index, as a tuple, of a row-major position over axes of these sizes."""
    index: Any = ()
    rest = position
    for k in unroll(len(sizes)):
        size = max(sizes[len(sizes) - 1 - k], 1)
        if k == len(sizes) - 1:
            index = (rest, *index)
        else:
            index = (rest % size, *index)
            rest = rest // size
    return index


def chunks_of(n: Any, tasks: Any, least: Any, most: Any) -> Any:
    """Into how many chunks of at least `least` the n elements of each of `tasks` tasks are cut.

    Enough tasks are left whole. `tasks * chunks` is at most `most`. It depends on sizes alone, not on how many threads
    there are: neither does a result that is folded chunk by chunk.
    """
    return 1 if tasks >= most // 4 else max(min(ceildiv(n, least), most // max(tasks, 1)), 1)


# *** folds ***


def folded(element: Any, low: Any, high: Any, block: Any, start: Any, step: Any, merge: Any, total: Any) -> Any:
    """element(low), ..., element(high - 1) in one value of the dtype `total`.

    `step` takes the elements of a block one by one, from `start` on; `merge` takes the results of blocks in order. The
    rounding error of a sum grows with `block` at most, and with the number of blocks in the precision of `total`.
    """
    result = start.cast(total)
    for first in range(low, high, block):
        run = start
        for k in range(first, min(first + block, high)):
            run = step(run, element(k))
        result = merge(result, run.cast(total))
    return result


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


# *** places ***


def first_places(ctx: Any, out: Any, x: Any, axis: Any, start: Any, pick: Any, nan: Any) -> None:
    """The first place of the best key along `axis`; `pick` is max or min, and `nan` the best key of all."""

    def key(index):
        value = x[index]
        return order_key(value + 0 if value.dtype.is_float() else value, nan)  # makes -0.0 equal to 0.0

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
        for first in range(low, high, ROW_BLOCK):
            run = start
            for k in range(first, min(first + ROW_BLOCK, high)):
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
    blocks = max(ceildiv(width, COLUMNS), 1)

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

    parallel_for(product(sizes) * ceildiv(width, COLUMNS), part, grain=ceildiv(TASK, n * min(width, COLUMNS) + 16))


# *** strings ***


def whole_number(text: Any, position: Any) -> Any:
    """The number at `position` of a comma-separated list of whole numbers: `whole_number("1,-20", 1)` is -20."""
    number = 0
    sign = 1
    field = 0
    for k in unroll(len(text)):
        if text[k] == ",":
            field = field + 1
        elif field == position:
            if text[k] == "-":
                sign = -1
            else:
                number = 10 * number + int(text[k])
    return sign * number
