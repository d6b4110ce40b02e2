"""`rowwise` and `reduce`: the elements along an axis, or all of them, become one value each time, by a monoid.

    rowwise(x, Max, lambda row, value: store(out, row, value))
    rowwise((x, w), Sum, lambda row, total: store(out, row, total), of=lambda a, b: a * b)
    rowwise(x, (Max, Welford), body)            # body(row, largest, (mean, variance)), one pass over x
    total = reduce(x, Sum)

In which order elements are joined is said in `folds`. Rows run in parallel, and few long ones are cut into pieces
that run in parallel. On a GPU a row is taken by the threads of a warp or of a block (see `teams`), a column by four
threads of one or several blocks (see `columns`); in the code of a thread, by that thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyTensor,
    Index,
    Parts,
    ceildiv,
    compiled_for,
    gpu,
    int32,
    map_parts,
    parallel_for,
    stack,
    static_assert,
    store,
    unroll,
    within_parallel,
)
from .algorithm import product, same_sizes, unravelled
from .columns import by_blocks_of_columns, by_thread, of_column
from .folds import (
    COLUMN_BLOCK,
    COLUMN_PIECES,
    PIECES,
    as_group,
    as_terms,
    column_pieces_of,
    dtype_of,
    element,
    empty,
    finished,
    folded_row,
    for_each,
    is_one_number,
    joined,
    pieces_of,
    settled,
    stepped_once,
)
from .monoid import DTypes, Monoid, Monoids, Terms
from .short_rows import SHORT, SHORT_IF_KNOWN, RowOf, fold_block, in_blocks
from .teams import BLOCK, ROUND, THREADS, by_warps, folded_by_team, folded_round, in_teams, thread_of

SPLIT_ROWS = 8  # rows of which each is cut into pieces that are tasks of their own
FEW_BLOCKS = 4  # the same for blocks of columns
LINE = 512  # bits of a line of the cache
AHEAD = 32768  # bits between what is requested and what is taken: as long as it takes to come
KEPT = 16384  # elements of what is the same in every row of which a copy is kept,
MANY = 64  # where there are as many rows
TASK = 32768  # elements that a task takes at least, when there are many
FEW_LONG = 128  # rows of more than a round that several blocks of a GPU take
COLUMNS = 256  # columns that one task takes
WIDE = 1024  # the same where states are one number: it goes to other pages less often
TOGETHER = 4  # elements of each column that are taken together, so that states go to memory less often: twice as many
# where states are floats, which take one operation (integers are mostly made of floats first, to be compared)


def same(value: Parts) -> Any:
    """The element itself."""
    return value


def rowwise(
    x: AnyTensor,
    monoid: type[Monoid] | Monoids,
    body: Callable[..., None],
    *,
    axis: int | None = -1,
    of: Callable[..., Parts] | None = None,
    abreast: bool = False,
) -> Any:
    """Calls `body(row, value)` with what the monoid makes of the elements along `axis`, for every row in parallel.

    Args:
        x: a tensor; or a tuple of tensors, whose elements `of` joins. Those after the first have its shape,
            or one axis, which lies along `axis`.
        monoid: a monoid, or a tuple of these; then `body` gets a value of each.
        body: a function. `row` is the tuple of the other axes' indices: `out[row]`, and when `axis` is the last one
            `x[row, k]`.
        axis: the axis that goes; None for all of them, and `row` is an empty tuple.
        of: a function of an element, or of one of each tensor: what is given to the monoid, a number or a tuple or
            struct of numbers. It is called with scalars and with SIMD values. None for the element itself, or the
            tuple of those of several tensors.
        abreast: whether a CPU takes rows of few elements side by side, where `axis` is the last one. That is faster for
            these rows, and the code has `body` twice.
    """
    xs = x if isinstance(x, tuple) else (x,)
    monoids = as_group(monoid)
    terms = as_terms(of, monoids)
    for_each(xs, lambda k, other: _fits(xs[0], other, axis) if k > 0 else None)
    if axis == None:  # noqa: E711
        _by_row(xs, monoids, body, terms, ((), xs[0].size), _at_position)
    elif axis == -1 or axis == xs[0].rank - 1:
        _by_row(xs, monoids, body, terms, (xs[0].shape[:-1], xs[0].dim(-1)), _in_row, abreast)
    elif compiled_for().is_gpu and within_parallel():
        by_thread(xs, monoids, body, terms, axis % xs[0].rank)
    elif compiled_for().is_gpu:
        by_blocks_of_columns(xs, monoids, body, terms, axis % xs[0].rank)
    else:
        _by_column(xs, monoids, body, terms, axis % xs[0].rank)


def reduce(x: AnyTensor, monoid: type[Monoid] | Monoids, *, of: Callable[..., Parts] | None = None) -> Any:
    """What the monoid makes of all elements of x in row-major order; a tuple of values for a tuple of monoids.

    On a CPU long tensors are cut into pieces, which run in parallel where no parallel work is going on already. On a
    GPU it is for the code of a thread: code of the host sees no values there.
    """
    static_assert(
        within_parallel() or not compiled_for().is_gpu,
        "reduce returns a value to host code; on a GPU use rowwise(x, monoid, body, axis=None)",
    )
    xs = x if isinstance(x, tuple) else (x,)
    monoids = as_group(monoid)
    terms = as_terms(of, monoids)
    for_each(xs, lambda k, other: same_sizes(other, xs[0]) if k > 0 else None)
    dtype = dtype_of(xs, terms, monoids)
    n = xs[0].size
    pieces, size = pieces_of(n)
    states = empty(monoids, dtype)
    no_copies = for_each(xs, lambda _, x: (False, x))

    def part(piece: Index):
        return _piece(xs, no_copies, monoids, terms, dtype, ((), n), (piece, size), _at_position)

    if within_parallel() or compiled_for().is_gpu:
        for piece in range(pieces):
            states = joined(monoids, states, part(piece))
    else:
        slots = _slots(monoids, dtype, PIECES)
        parallel_for(pieces, lambda piece: _keep(slots, piece, part(piece)))
        for piece in range(pieces):
            states = joined(monoids, states, _kept(slots, piece))
    values = finished(monoids, states, dtype)
    return values if isinstance(monoid, tuple) else values[0]


# *** what is folded ***


def _fits(x: AnyTensor, other: AnyTensor, axis: int | None) -> None:
    """Stops the op unless the other tensor has the sizes of x, or one axis with that of x along `axis`."""
    if other.rank == x.rank:
        same_sizes(other, x)
    else:
        static_assert(other.rank == 1, "the other tensors have the shape of the first, or one axis")
        n = x.size if axis == None else x.dim(axis)  # noqa: E711
        assert other.dim(0) == n, f"sizes differ: {other.dim(0)} elements for {n}"


def _in_row(x: AnyTensor, lead: tuple[Index, ...], k: Index, width: int) -> Any:
    """Elements from k on of a row; a tensor of one axis is the same in every row."""
    return x.load((*lead, k) if x.rank > 1 else k, width=width)


def _at_position(x: AnyTensor, lead: tuple[Index, ...], position: Index, width: int) -> Any:
    """Elements from a row-major position on."""
    return x.at(position, width=width)


def _piece(
    xs: tuple[AnyTensor, ...],
    nearby: tuple[tuple[bool, AnyTensor], ...],
    monoids: Monoids,
    of: Terms,
    dtype: DTypes,
    row: tuple[tuple[Index, ...], Index],
    part: tuple[Index, Index],
    load: Callable[[AnyTensor, tuple[Index, ...], Index, int], Parts],
) -> Any:
    """The settled states of one piece of a row.

    `nearby` are what `_copied` gives, `row` the indices of the row and its length, `part` the number and size of the
    piece.
    """
    lead, n = row
    piece, size = part

    def elements(k: Index, width: int):
        for_each(xs, lambda _, x: _prefetch_rows(x, xs[0].rank, lead, k, width))
        return element(of, for_each(xs, lambda i, x: _nearest(x, nearby[i], lead, k, width, load)))

    def few(first: Index, count: Index, wide: int):
        """What is left of a row, copied to where there is room for whole vectors."""
        copies = for_each(xs, lambda _, x: stack[x.dtype](wide))
        for j in range(count):
            for_each(xs, lambda i, x: store(copies[i], j, load(x, lead, first + j, 1)))  # noqa: B023
        return lambda k, width: element(of, for_each(copies, lambda _, copy: copy.load(k, width=width)))

    low = piece * size
    return folded_row(elements, few, low, min(low + size, n), monoids, dtype)


def _nearest(
    x: AnyTensor,
    nearby: tuple[bool, AnyTensor],
    lead: tuple[Index, ...],
    k: Index,
    width: int,
    load: Callable[[AnyTensor, tuple[Index, ...], Index, int], Parts],
) -> Any:
    """Elements of a row from its copy, if there is one."""
    there, copy = nearby
    return copy.load(k, width=width) if there else load(x, lead, k, width)


def _prefetch_rows(x: AnyTensor, rank: int, lead: tuple[Index, ...], k: Index, width: int) -> Any:
    """Requests what comes some time after the elements from k on: the next row too, where it lies next to this one."""
    bits = x.dtype.bits
    in_row = x.rank == rank and rank == len(lead) + 1
    if in_row and width * bits >= LINE // 2 and not compiled_for().is_gpu:
        adjacent = True if rank == 1 else x.strides[-2] == x.dim(-1)
        for part in unroll(0, width, LINE // bits):
            x.prefetch(lead, k + part + (AHEAD // bits if adjacent else 0))


# *** states in memory ***


def _slots(monoids: Monoids, dtype: DTypes, count: int) -> Any:
    """Storage for `count` settled states of each monoid."""
    states = empty(monoids, dtype)
    return for_each(states, lambda _, state: map_parts(lambda x: stack[x.dtype](count, zeroed=False), state))


def _keep(slots: tuple[AnyTensor | tuple[AnyTensor, ...], ...], number: Index, states: tuple[Parts, ...]) -> None:
    for_each(slots, lambda i, slot: map_parts(lambda memory, x: store(memory, number, x), slot, states[i]))


def _kept(slots: tuple[AnyTensor | tuple[AnyTensor, ...], ...], number: Index) -> Any:
    return for_each(slots, lambda _, slot: map_parts(lambda memory: memory[number], slot))


# *** rows ***


def _copied(xs: tuple[AnyTensor, ...], rows: Index, n: Index) -> Any:
    """For each tensor whether there is a copy of it, and the copy, which begins where a line of the cache does.

    What is given to a kernel begins anywhere, and then half of the loads, or all, touch two lines. For what is the same
    in every row, that is mended.
    """

    def copied(x: AnyTensor):
        if x.rank == xs[0].rank or compiled_for().is_gpu:
            return False, x
        memory = stack[x.dtype](KEPT, zeroed=False)
        there = rows >= MANY and n <= KEPT
        for k in range(n if there else 0):
            memory[k] = x[k]
        return there, memory

    return for_each(xs, lambda _, x: copied(x))


def _by_row(
    xs: tuple[AnyTensor, ...],
    monoids: Monoids,
    body: Callable[[tuple[Index, ...], Parts], None],
    of: Terms,
    shape: tuple[tuple[Index, ...], Index],
    load: Callable[[AnyTensor, tuple[Index, ...], Index, int], Parts],
    abreast: bool = False,
) -> None:
    """A task takes some rows; where there are few, a piece of one, and the pieces are joined by the caller's thread.

    `shape` are the sizes of the axes that count rows, and the length of a row.
    """
    sizes, n = shape
    dtype = dtype_of(xs, of, monoids)
    rows = product(sizes)
    pieces, size = pieces_of(n)
    nearby = _copied(xs, rows, n)

    def row_of(number: Index, first: Index, count: Index):
        """The states of `count` pieces of a row."""
        lead = unravelled(number, sizes)
        states = empty(monoids, dtype)
        for piece in range(first, first + count):
            result = _piece(xs, nearby, monoids, of, dtype, (lead, n), (piece, size), load)
            states = joined(monoids, states, result)
        return states

    def use(number: Index, states: tuple[Parts, ...]):
        body(unravelled(number, sizes), *finished(monoids, states, dtype))

    if compiled_for().is_gpu and within_parallel():
        parallel_for(rows, lambda row: use(row, row_of(row, 0, pieces)))
    elif compiled_for().is_gpu:
        _by_team(xs, monoids, body, of, sizes, n, load)
    else:
        cut = pieces if rows < SPLIT_ROWS else 1
        slots = _slots(monoids, dtype, SPLIT_ROWS * PIECES)

        def block(row_of: RowOf):
            def use_one(r: Index, states: tuple[Parts, ...]):
                body(row_of(r), *finished(monoids, states, dtype))

            fold_block(xs, monoids, of, dtype, (row_of, len(sizes)), n, use_one)

        taken: Index = 0
        if abreast:
            taken = in_blocks(sizes, n, block, SHORT_IF_KNOWN if xs[0].is_known(-1) else SHORT)

        def part(task: Index):
            row, first, count = taken + task, 0, pieces
            if cut > 1:
                row = task // cut
                first, count = task - row * cut, 1
            states = row_of(row, first, count)
            if cut == 1:
                use(row, states)
            else:
                _keep(slots, task, states)

        parallel_for((rows - taken) * cut, part, grain=ceildiv(TASK, n // cut + 16))
        if cut > 1:
            for row in range(rows):
                states = empty(monoids, dtype)
                for piece in range(cut):
                    states = joined(monoids, states, _kept(slots, row * cut + piece))
                use(row, states)


def _by_team(
    xs: tuple[AnyTensor, ...],
    monoids: Monoids,
    body: Callable[[tuple[Index, ...], Parts], None],
    of: Terms,
    sizes: tuple[Index, ...],
    n: Index,
    load: Callable[[AnyTensor, tuple[Index, ...], Index, int], Parts],
) -> None:
    """On a GPU, the threads of a warp or of a block take a row, and the first of them has the value."""
    dtype = dtype_of(xs, of, monoids)

    def row(number: Index, team: int):
        lead = unravelled(number, sizes)

        def value(k: Index):
            return element(of, for_each(xs, lambda _, x: load(x, lead, k, 1)))

        states = folded_by_team(team, value, n, monoids, dtype)
        if thread_of(team) == 0:
            body(lead, *finished(monoids, states, dtype))

    if n > ROUND and product(sizes) < FEW_LONG:
        _by_blocks(xs, monoids, body, of, sizes, n, load)
    else:
        in_teams(product(sizes), n, row)


def _by_blocks(
    xs: tuple[AnyTensor, ...],
    monoids: Monoids,
    body: Callable[[tuple[Index, ...], Parts], None],
    of: Terms,
    sizes: tuple[Index, ...],
    n: Index,
    load: Callable[[AnyTensor, tuple[Index, ...], Index, int], Parts],
) -> None:
    """On a GPU, for few long rows: a block takes a round of a row, and a second launch joins them in the same order."""
    dtype = dtype_of(xs, of, monoids)
    rows, rounds = product(sizes), ceildiv(n, ROUND)
    slots = map_parts(lambda part: gpu.scratch[part.dtype](rows * rounds), empty(monoids, dtype))

    def block():
        task = gpu.block_idx.x
        lead = unravelled(task // rounds, sizes)
        low = task % rounds * ROUND

        def value(k: Index):
            return element(of, for_each(xs, lambda _, x: load(x, lead, k, 1)))

        states = folded_round(BLOCK, value, low, min(low + ROUND, n), monoids, dtype)
        if gpu.thread_idx.x == 0:
            map_parts(lambda slot, part: store(slot, task, part), slots, states)

    def join(number: Index):
        states = empty(monoids, dtype)
        for first in range(0, rounds, gpu.warp_size):
            place = number * rounds + min(first + gpu.lane_idx, rounds - 1)
            own = map_parts(lambda slot: slot[place], slots)  # noqa: B023
            for lane in range(min(rounds - first, gpu.warp_size)):
                states = joined(monoids, states, gpu.warp.shuffle_idx(own, lane))
        if gpu.lane_idx == 0:
            body(unravelled(number, sizes), *finished(monoids, states, dtype))

    gpu.launch(block, grid=rows * rounds, block=THREADS)
    by_warps(rows, join)


# *** columns ***


def _by_column(
    xs: tuple[AnyTensor, ...], monoids: Monoids, body: Callable[[tuple[Index, ...], Parts], None], of: Terms, axis: int
) -> None:
    """Columns are taken in blocks, so that the innermost loop runs along memory."""
    dtype = dtype_of(xs, of, monoids)
    sizes = (*xs[0].shape[:axis], *xs[0].shape[axis + 1 : -1])
    n = xs[0].dim(axis)
    width = xs[0].dim(-1)
    pieces, size = column_pieces_of(n)
    columns = _most_columns(monoids, dtype)
    blocks = max(ceildiv(width, columns), 1)
    tasks = product(sizes) * ceildiv(width, columns)
    cut = pieces if tasks < FEW_BLOCKS else 1
    slots = _slots(monoids, dtype, (FEW_BLOCKS - 1) * COLUMN_PIECES * columns)

    def columns_of(number: Index, first: Index, count: Index, totals: tuple[AnyTensor | tuple[AnyTensor, ...], ...]):
        """Keeps the states of `count` pieces of the columns of a block; returns how many columns there are."""
        lead = unravelled(number // blocks, sizes)
        left = number % blocks * columns
        here = min(width - left, columns)

        def element(k: Index, j: Index):
            return of_column(xs, of, lead[:axis], k, (*lead[axis:], left + j))

        def prefetch_rows(k: Index):
            for_each(xs, lambda _, x: x.prefetch(lead[:axis], k, lead[axis:], left) if x.rank > 1 else None)

        for piece in range(first, first + count):
            low = piece * size
            result = _fold_columns(element, prefetch_rows, here, low, min(low + size, n), monoids, dtype)
            for j in range(here):
                before = _kept(totals, j) if piece > first else empty(monoids, dtype)
                _keep(totals, j, joined(monoids, before, _kept(result, j)))
        return here

    def use(number: Index, j: Index, states: tuple[Parts, ...]):
        lead = unravelled(number // blocks, sizes)
        body((*lead, number % blocks * columns + j), *finished(monoids, states, dtype))

    def part(task: Index):
        number, first, count = task, 0, pieces
        if cut > 1:
            number = task // cut
            first, count = task - number * cut, 1
        totals = _slots(monoids, dtype, columns)
        here = columns_of(number, first, count, totals)  # once for both: it is long
        if cut == 1:
            for j in range(here):
                use(number, j, _kept(totals, j))
        else:
            for j in range(here):
                _keep(slots, task * columns + j, _kept(totals, j))

    parallel_for(tasks * cut, part, grain=ceildiv(TASK, n // cut * min(width, columns) + 16))
    if cut > 1:
        for number in range(tasks):
            for j in range(min(width - number % blocks * columns, columns)):
                states = empty(monoids, dtype)
                for piece in range(cut):
                    states = joined(monoids, states, _kept(slots, (number * cut + piece) * columns + j))
                use(number, j, states)


def _most_columns(monoids: Monoids, dtype: DTypes) -> Any:
    """How many columns one task takes at most."""
    return WIDE if len(monoids) == 1 and is_one_number(monoids[0].identity(dtype)) else COLUMNS


def _fold_columns(
    element: Callable[[Index, Index], Parts],
    prefetch_rows: Callable[[Index], None],
    columns: Index,
    low: Index,
    high: Index,
    monoids: Monoids,
    dtype: DTypes,
) -> Any:
    """Memory with the settled states of element(low, j), ..., element(high - 1, j) for each j below `columns`."""
    most = _most_columns(monoids, dtype)
    rows_at_once = 2 * TOGETHER if most == WIDE and monoids[0].identity(dtype).dtype.is_float() else TOGETHER
    runs = for_each(monoids, lambda _, m: map_parts(lambda x: stack[x.dtype](most, zeroed=False), m.identity(dtype)))
    totals = _slots(monoids, dtype, most)
    for base in range(low, max(high, low + 1), COLUMN_BLOCK):  # of no elements: what there is of nothing
        for j in range(columns):
            _keep(runs, j, for_each(monoids, lambda _, m: m.identity(dtype)))
        stop = min(base + COLUMN_BLOCK, high)
        whole = base + (stop - base) // rows_at_once * rows_at_once
        for k in range(base, whole, rows_at_once):
            prefetch_rows(k + rows_at_once)
            for j in range(columns):
                states = _kept(runs, j)
                for r in unroll(rows_at_once):
                    states = stepped_once(monoids, states, element(k + r, j), int32(k + r - base))
                _keep(runs, j, states)
        for k in range(whole, stop):
            for j in range(columns):
                _keep(runs, j, stepped_once(monoids, _kept(runs, j), element(k, j), int32(k - base)))
        for j in range(columns):
            before = _kept(totals, j) if base > low else empty(monoids, dtype)
            _keep(totals, j, joined(monoids, before, settled(monoids, _kept(runs, j), base)))
    return totals
