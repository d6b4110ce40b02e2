"""`scan`: for every element, what a monoid makes of it and of those before it along an axis.

    scan(out, x, Sum)                            # running sums of the rows
    scan(out, x, Max, axis=0)
    scan(out, x, Sum, exclusive=True)            # of those before it alone
    scan(out, x, Sum, reverse=True)              # of it and of those after it

Along the last axis 16 elements at a time are joined in four steps, each lane with the one 1, 2, 4 and 8 lanes before
it; then the settled state of all elements before these 16 comes in front. A row is cut into pieces as for `rowwise`:
each piece begins with the joined states of those before it. That is the order whether the pieces of a long row run in
parallel or not, and monoids need not be commutative. Along another axis elements are joined in order, each of them
settled. On a GPU each thread of a warp or of a block takes four neighbours at a time, by one access where addresses
allow it (see `teams`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    SIMD,
    AnyTensor,
    Floating,
    Index,
    Parts,
    ceildiv,
    compiled_for,
    int32,
    iota,
    map_parts,
    parallel_for,
    select,
    stack,
    static_assert,
    store,
    struct,
    unroll,
    within_parallel,
)
from .algorithm import product, same_sizes, unravelled
from .folds import PIECES, as_terms, dtype_of, element, for_each, pieces_of
from .held_rows import ACCESS
from .monoid import DTypes, Monoid, Terms
from .rows import COLUMNS, SPLIT_ROWS, TASK
from .teams import in_teams, scanned_by_team, thread_of, threads_of

LANES = 16
STEPS = 4  # of 1, 2, 4, 8 lanes
GROUP = 4  # elements that a thread of a GPU takes in a round


def scan(
    out: AnyTensor,
    x: AnyTensor,
    monoid: type[Monoid],
    *,
    axis: int = -1,
    exclusive: bool = False,
    reverse: bool = False,
    of: Callable[..., Parts] | None = None,
) -> None:
    """Stores the value of the elements up to each one along `axis` into `out`, which has the shape of x.

    Args:
        out: a tensor; a tuple of these for a monoid whose value is a tuple.
        x: a tensor; or a tuple of tensors of one shape, whose elements `of` joins.
        monoid: a monoid.
        axis: the axis to go along.
        exclusive: whether the element itself is left out; the first value is then that of no elements.
        reverse: whether to go from the last element to the first: "before" then means "after".
        of: a function of an element, or of one of each tensor: what is given to the monoid, a number or a tuple or
            struct of numbers. It is called with scalars and with SIMD values. None for the element itself, or the
            tuple of those of several tensors.
    """
    xs = x if isinstance(x, tuple) else (x,)
    outs = out if isinstance(out, tuple) else (out,)
    terms = as_terms(of, (monoid,))
    for_each((*xs[1:], *outs), lambda _, other: same_sizes(other, xs[0]))
    if axis == -1 or axis == xs[0].rank - 1:
        _scan_rows(outs, xs, monoid, exclusive, reverse, terms)
    else:
        _scan_columns(outs, xs, monoid, axis % xs[0].rank, exclusive, reverse, terms)


def _value_of(xs: tuple[AnyTensor, ...], of: Terms, index: tuple[Index, ...], width: int) -> Any:
    return element(of, for_each(xs, lambda _, x: x.load(*index, width=width)))


def _row_value(xs: tuple[AnyTensor, ...], of: Terms, lead: tuple[Index, ...], k: Index, reverse: bool) -> Any:
    """16 elements of a row from k on, counted from the end when it is gone over backwards."""
    if not reverse:
        return _value_of(xs, of, (*lead, k), LANES)
    first = xs[0].dim(-1) - LANES - k
    return element(of, for_each(xs, lambda _, x: x.load((*lead, first), width=LANES).reverse()))


def _put_row(outs: tuple[AnyTensor, ...], values: Parts, lead: tuple[Index, ...], k: Index, reverse: bool) -> None:
    """Stores what `_row_value` took the elements for."""
    if not reverse:
        _put(outs, values, (*lead, k))
    else:
        turned = tuple(v.reverse() for v in values) if isinstance(values, tuple) else values.reverse()
        _put(outs, turned, (*lead, outs[0].dim(-1) - LANES - k))


def _put(outs: tuple[AnyTensor, ...], value: Parts, index: tuple[Index, ...], group: bool = False) -> None:
    """Stores a value, or the parts of one, at an index; a group of a row by one access of memory."""
    values = value if isinstance(value, tuple) else (value,)
    static_assert(
        len(values) == len(outs),
        f"the monoid of scan gives {len(values)} values for {len(outs)} tensors: `finish` says what is stored",
    )

    def put(i: int, out: AnyTensor):
        given = values[i].dtype
        static_assert(
            out.dtype == given,
            f"this scan gives {given} for a tensor of {out.dtype}: give the tensor that dtype, or derive a monoid "
            "whose `finish(state, dtype)` returns state.cast(dtype)",
        )
        if group:
            out.store(values[i], *index, align=_access(out))
        else:
            out.store(values[i], *index)

    for_each(outs, put)


def _nothing(monoid: type[Monoid], dtype: DTypes) -> Any:
    """The settled state of no elements."""
    return monoid.settle(monoid.identity(dtype), 0)


# *** rows ***


def _scan_rows(
    outs: tuple[AnyTensor, ...],
    xs: tuple[AnyTensor, ...],
    monoid: type[Monoid],
    exclusive: bool,
    reverse: bool,
    of: Terms,
) -> None:
    """A task takes rows; where there are few long ones, a piece of one, after the states of all pieces are known."""
    dtype = dtype_of(xs, of, (monoid,))
    sizes = xs[0].shape[:-1]
    n = xs[0].dim(-1)
    rows = product(sizes)
    pieces, size = pieces_of(n)

    def piece_of(row: Index, piece: Index, before: Parts, writes: bool):
        """Goes over a piece after the state `before`, and returns the state of the piece alone."""
        lead = unravelled(row, sizes)
        low = piece * size
        high = min(low + size, n)
        return _scan_piece(outs, xs, Scan(monoid, exclusive, reverse, of, dtype), lead, (low, high), before, writes)

    def whole(row: Index):
        before = _nothing(monoid, dtype)
        for piece in range(pieces):
            before = monoid.combine(before, piece_of(row, piece, before, True))

    if compiled_for().is_gpu and not within_parallel():
        _scan_by_team(outs, xs, monoid, exclusive, reverse, of)
    elif compiled_for().is_gpu:
        parallel_for(rows, whole)
    elif rows >= SPLIT_ROWS or pieces == 1:
        parallel_for(rows, whole, grain=ceildiv(TASK, n + 16))
    else:
        nothing = _nothing(monoid, dtype)
        slots = map_parts(lambda s: stack[s.dtype](PIECES, zeroed=False), nothing)

        def keep(piece: Index, state: Parts):
            map_parts(lambda memory, s: store(memory, piece, s), slots, state)

        for row in range(rows):
            parallel_for(pieces, lambda piece: keep(piece, piece_of(row, piece, nothing, False)))  # noqa: B023
            before = nothing
            for piece in range(pieces):
                alone = map_parts(lambda memory: memory[piece], slots)  # noqa: B023
                keep(piece, before)
                before = monoid.combine(before, alone)

            def write(piece: Index):
                piece_of(row, piece, map_parts(lambda memory: memory[piece], slots), True)  # noqa: B023

            parallel_for(pieces, write)


def _scan_by_team(
    outs: tuple[AnyTensor, ...],
    xs: tuple[AnyTensor, ...],
    monoid: type[Monoid],
    exclusive: bool,
    reverse: bool,
    of: Terms,
) -> None:
    """On a GPU, the threads of a warp or of a block take a row: in each round `GROUP` neighbours a thread."""
    dtype = dtype_of(xs, of, (monoid,))
    sizes, n = xs[0].shape[:-1], xs[0].dim(-1)

    def rounds(lead: tuple[Index, ...], team: int, whole: bool):
        nothing = monoid.identity(dtype)
        carry = _nothing(monoid, dtype)
        for first in range(0, n, GROUP * threads_of(team)):
            place = GROUP * thread_of(team)
            k = first + place
            values = for_each(xs, lambda _, x: _group(x, lead, k, reverse, whole))  # noqa: B023
            states: tuple[Parts, ...] = ()
            for j in unroll(GROUP):
                state = nothing
                if k + j < n:
                    state = monoid.lift(element(of, for_each(values, lambda _, v: v[j])), int32(place + j))  # noqa: B023
                states = (*states, state if j == 0 else monoid.combine(states[j - 1], state))
            before, _, every = scanned_by_team(team, monoid, states[GROUP - 1], nothing)
            results: tuple[Parts, ...] = ()
            for j in unroll(GROUP):
                last = j - 1 if exclusive else j
                shown = before if last < 0 else monoid.combine(before, states[last])
                results = (*results, monoid.finish(monoid.combine(carry, monoid.settle(shown, first)), dtype))
            _put_group(outs, results, lead, k, reverse, whole)
            carry = monoid.combine(carry, monoid.settle(every, first))

    def row(number: Index, team: int):
        lead = unravelled(number, sizes)
        if _in_groups(xs, lead) & _in_groups(outs, lead):
            rounds(lead, team, True)
        else:
            rounds(lead, team, False)

    in_teams(product(sizes), n, row)


def _in_groups(tensors: tuple[AnyTensor, ...], lead: tuple[Index, ...]) -> bool:
    """Whether all groups of a row are whole, and one access each reads or writes them."""
    whole: bool = tensors[0].dim(-1) % GROUP == 0
    for k in unroll(len(tensors)):
        aligned = tensors[k].is_aligned(_access(tensors[k]), *lead, 0)
        whole = whole & aligned if aligned or not isinstance(aligned, bool) else False
    return whole


def _access(x: AnyTensor) -> int:
    """The bytes that divide the address of a group of a tensor, if one access is to take it."""
    size: int = min(GROUP * x.dtype.bits, ACCESS) // 8
    return size


def _group(x: AnyTensor, lead: tuple[Index, ...], k: Index, reverse: bool, whole: bool) -> Parts:
    """The `GROUP` elements of a row from the k-th on, 0 where there are none; backwards from the end for `reverse`."""
    n = x.dim(-1)
    values = SIMD[x.dtype, GROUP](0)
    if whole:
        if k < n:
            first = n - GROUP - k if reverse else k
            values = x.load(*lead, first, width=GROUP, align=_access(x))
            values = values.reverse() if reverse else values
    else:
        for j in unroll(GROUP):
            if k + j < n:
                values = values.with_lane(j, x.load(*lead, n - 1 - k - j if reverse else k + j))
    return values


def _put_group(
    outs: tuple[AnyTensor, ...],
    results: tuple[Parts, ...],
    lead: tuple[Index, ...],
    k: Index,
    reverse: bool,
    whole: bool,
) -> None:
    """Stores the `GROUP` results for the elements that `_group` gives."""
    n = outs[0].dim(-1)
    if whole:
        if k < n:
            a, b, c, d = results[::-1] if reverse else results
            vectors = map_parts(lambda a, b, c, d: SIMD[a.dtype, GROUP](a, b, c, d), a, b, c, d)
            _put(outs, vectors, (*lead, n - GROUP - k if reverse else k), True)
    else:
        for j in unroll(GROUP):
            if k + j < n:
                _put(outs, results[j], (*lead, n - 1 - k - j if reverse else k + j))


@struct
class Scan:
    """What is computed along a row: the states of which monoid, of which elements, and how they are stored."""

    monoid: Any
    exclusive: bool
    reverse: bool
    of: Any
    dtype: Any


def _scan_piece(
    outs: tuple[AnyTensor, ...],
    xs: tuple[AnyTensor, ...],
    scan: Scan,
    lead: tuple[Index, ...],
    bounds: tuple[Index, Index],
    before: Parts,
    writes: bool,
) -> Any:
    monoid, of, dtype, exclusive, reverse = scan.monoid, scan.of, scan.dtype, scan.exclusive, scan.reverse
    low, high = bounds

    def step(value: Parts, k: Index, carry: Floating, alone: Floating, put: Callable[[Parts], None]):
        """16 elements from k on: calls put(values), and gives the states after them."""
        lanes = _joined_in_lanes(monoid, value, dtype)
        last = map_parts(lambda s: s[LANES - 1], monoid.settle(lanes, k))
        if writes:
            results = map_parts(lambda s, i: s.shift_right(1, i), lanes, monoid.identity(dtype)) if exclusive else lanes
            come_before = map_parts(lambda s: SIMD[s.dtype, LANES](s), carry)
            put(monoid.finish(monoid.combine(come_before, monoid.settle(results, k)), dtype))
        return monoid.combine(carry, last), monoid.combine(alone, last)

    carry = before
    alone = _nothing(monoid, dtype)
    full = low + (high - low) // LANES * LANES
    for k in range(low, full, LANES):
        value = _row_value(xs, of, lead, k, reverse)
        carry, alone = step(value, k, carry, alone, lambda row: _put_row(outs, row, lead, k, reverse))  # noqa: B023
    if full < high:
        copies = for_each(xs, lambda _, x: stack[x.dtype](LANES))
        base = outs[0].dim(-1) - 1 - full if reverse else full
        for j in range(high - full):
            at = base - j if reverse else base + j
            for_each(xs, lambda i, x: store(copies[i], j, x[lead, at]))  # noqa: B023
        value = _value_of(copies, of, (0,), LANES)
        results = for_each(outs, lambda _, out: stack[out.dtype](LANES, zeroed=False))
        # What comes after the last element is never read, nor are the states that it goes into.
        step(value, full, carry, alone, lambda result: _put(results, result, (0,)))
        if writes:
            for j in range(high - full):
                at = base - j if reverse else base + j
                for_each(outs, lambda i, out: store(out, (lead, at), results[i][j]))  # noqa: B023
    return alone


def _joined_in_lanes(monoid: type[Monoid], value: Parts, dtype: DTypes) -> Any:
    """The state of lanes 0..j in each lane j."""
    state = monoid.lift(value, SIMD[int32, LANES](*tuple(range(LANES))))
    state = map_parts(lambda s, i: s if s.width == LANES else SIMD[i.dtype, LANES](s), state, monoid.identity(dtype))
    number = iota(int32, LANES)
    for step in unroll(STEPS):
        # What comes from the other end is not taken: nothing is cheaper to move than zeros.
        before = map_parts(lambda s: s.rotate_right(1 << step), state)  # noqa: B023
        joined = monoid.combine(before, state)
        state = map_parts(lambda new, old: select(number >= (1 << step), new, old), joined, state)  # noqa: B023
    return state


# *** columns ***


def _scan_columns(
    outs: tuple[AnyTensor, ...],
    xs: tuple[AnyTensor, ...],
    monoid: type[Monoid],
    axis: int,
    exclusive: bool,
    reverse: bool,
    of: Terms,
) -> None:
    """Columns are taken in blocks, so that the innermost loop runs along memory; on a GPU each thread takes one."""
    dtype = dtype_of(xs, of, (monoid,))
    sizes = (*xs[0].shape[:axis], *xs[0].shape[axis + 1 : -1])
    n = xs[0].dim(axis)
    width = xs[0].dim(-1)
    columns = 1 if compiled_for().is_gpu else COLUMNS
    blocks = max(ceildiv(width, columns), 1)

    def step(lead: tuple[Index, ...], k: Index, column: Index, state: Parts):
        """Stores the value at one element and gives the state after it."""
        at = (*lead[:axis], n - 1 - k if reverse else k, *lead[axis:], column)
        after = monoid.combine(state, monoid.settle(monoid.lift(_value_of(xs, of, at, 1), int32(0)), k))
        _put(outs, monoid.finish(state if exclusive else after, dtype), at)
        return after

    def thread(task: Index):
        lead = unravelled(task // blocks, sizes)
        state = _nothing(monoid, dtype)
        for k in range(n):
            state = step(lead, k, task % blocks, state)

    def block(task: Index):
        lead = unravelled(task // blocks, sizes)
        first = task % blocks * COLUMNS
        states = map_parts(lambda s: stack[s.dtype](COLUMNS, zeroed=False), _nothing(monoid, dtype))
        for j in range(min(width - first, COLUMNS)):
            map_parts(lambda memory, s: store(memory, j, s), states, _nothing(monoid, dtype))  # noqa: B023
        for k in range(n):
            for j in range(min(width - first, COLUMNS)):
                after = step(lead, k, first + j, map_parts(lambda memory: memory[j], states))  # noqa: B023
                map_parts(lambda memory, s: store(memory, j, s), states, after)  # noqa: B023

    tasks = product(sizes) * ceildiv(width, columns)
    if compiled_for().is_gpu:
        parallel_for(tasks, thread)
    else:
        parallel_for(tasks, block, grain=ceildiv(TASK, n * min(width, COLUMNS) + 16))
