"""Rows by teams of threads of a GPU: a warp takes a row of at most 1024 elements, a block of 256 threads a longer one.

    def row(number, team):                          # run by every thread of the team
        total = reduced(team, x.dim(1), lambda k: x[number, k], Sum)     # the same in each of them
        for_each_of(team, x.dim(1), lambda k: store(out, (number, k), x[number, k] / total))

    in_teams(x.dim(0), x.dim(1), row)

Thread t takes the elements t, t + threads, t + 2 * threads, ... of a round, which are a row of a warp, and 16384
elements of a block: 64 of each thread, in order. The states of the threads are joined as `collectives` says, in their
order; then they settle, and are joined to those of the rounds before. A monoid with one lane is used in the order of
the elements: each thread takes neighbours. So the order depends on the number of elements and on the size of a warp
alone, and the bits are the same in every run.

See also `rows` (memory that is read).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import AnyDType, Floating, Index, Parts, ceildiv, gpu, int32, map_parts, min, unroll
from .collectives import across_lanes, states_of_block, states_of_warp
from .folds import as_group, empty, finished, folded_in_order, for_each, joined, settled, stepped_once
from .monoid import Monoid, Monoids

WARP = 0  # teams
BLOCK = 1
THREADS = 256  # of a block
WARP_ROW = 1024  # elements of a row that a warp takes
ROUND = 16384  # elements that a block takes before states settle
REQUESTED = 4  # elements that a thread requests before it takes the first of them
STEPS = 6  # a warp has 64 lanes at most


def in_teams(rows: Index, n: Index, body: Callable[[Index, int], None]) -> None:
    """Runs body(number, team) for each of so many rows of n elements, by all threads of a team."""
    if n <= WARP_ROW:
        by_warps(rows, lambda number: body(number, WARP))
    else:
        gpu.launch(lambda: body(gpu.block_idx.x, BLOCK), grid=rows, block=THREADS)


def by_warps(count: Index, body: Callable[[Index], None]) -> None:
    """Runs body(number) for each number below `count`, by all lanes of a warp."""
    warps = THREADS // gpu.warp_size

    def block():
        number = gpu.block_idx.x * warps + gpu.warp_idx
        if number < count:
            body(number)

    gpu.launch(block, grid=ceildiv(count, warps), block=THREADS)


def thread_of(team: int) -> Any:
    """The number of a thread in its team."""
    return gpu.lane_idx if team == WARP else gpu.thread_idx.x


def threads_of(team: int) -> Any:
    """How many threads a team has."""
    return gpu.warp_size if team == WARP else THREADS


def for_each_of(team: int, n: Index, f: Callable[[Index], None]) -> None:
    """Calls f(k) for k from 0 to n - 1, each in one thread of the team."""
    for k in range(thread_of(team), n, threads_of(team)):
        f(k)


def reduced(
    team: int,
    n: Index,
    element: Callable[[Index], Parts],
    monoid: type[Monoid],
    dtype: AnyDType | tuple[AnyDType, AnyDType],
) -> Any:
    """What a monoid makes of element(0), ..., element(n - 1), in every thread; a tuple for a tuple of monoids."""
    monoids = as_group(monoid)
    values = finished(monoids, folded_by_team(team, element, n, monoids, dtype), dtype)
    return values if isinstance(monoid, tuple) else values[0]


def in_thread(n: Index, element: Callable[[Index], Parts], monoid: type[Monoid], dtype: AnyDType) -> Any:
    """What a monoid makes of element(0), ..., element(n - 1), which one thread takes in order."""
    monoids = as_group(monoid)
    values = finished(monoids, folded_in_order(element, 0, n, monoids, dtype), dtype)
    return values if isinstance(monoid, tuple) else values[0]


def folded_by_team(
    team: int,
    element: Callable[[Index], Parts],
    n: Index,
    monoids: Monoids,
    dtype: AnyDType | tuple[AnyDType, AnyDType],
) -> Any:
    """The settled states of element(0), ..., element(n - 1), in every thread."""
    if team == WARP:
        return folded_round(team, element, 0, n, monoids, dtype)
    states = empty(monoids, dtype)
    for low in range(0, n, ROUND):
        states = joined(monoids, states, folded_round(team, element, low, min(low + ROUND, n), monoids, dtype))
    return states


def folded_round(
    team: int,
    element: Callable[[Index], Parts],
    low: Index,
    high: Index,
    monoids: Monoids,
    dtype: AnyDType | tuple[AnyDType, AnyDType],
) -> Any:
    """The settled states of element(low), ..., element(high - 1), in every thread."""
    threads, thread = threads_of(team), thread_of(team)
    states = for_each(monoids, lambda _, m: m.identity(dtype))
    if _in_order(monoids):
        count = ceildiv(high - low, threads)
        first = low + thread * count
        for k in range(first, min(first + count, high)):
            states = stepped_once(monoids, states, element(k), int32(k - low))
    else:
        whole = low + (high - low) // (REQUESTED * threads) * (REQUESTED * threads)
        for first in range(low + thread, whole, REQUESTED * threads):
            values: Any = ()
            for r in unroll(REQUESTED):
                values = (*values, element(first + r * threads))
            for r in unroll(REQUESTED):
                states = stepped_once(monoids, states, values[r], int32(first + r * threads - low))
        for k in range(whole + thread, high, threads):
            states = stepped_once(monoids, states, element(k), int32(k - low))
    return settled(monoids, _of_team(team, monoids, states), low)


def _in_order(monoids: Monoids) -> Any:
    """Whether one of the monoids joins elements in their order."""
    result = False
    for monoid in monoids:
        result = result or monoid.lanes == 1
    return result


def _of_team(team: int, monoids: Monoids, states: tuple[Parts, ...]) -> Any:
    """The states of all threads of a team together, in each of them."""
    if team == WARP:
        return gpu.warp.broadcast(states_of_warp(monoids, states))
    return states_of_block(monoids, states)


# *** values of several threads ***


def across_warp(value: Parts, combine: Callable[[Parts, Parts], Parts]) -> Any:
    """The values of all lanes together, in each of them; combine(a, b) is that of b and a."""
    return across_lanes(combine, value, gpu.warp_size)


def scanned_by_team(team: int, monoid: type[Monoid], state: Parts, nothing: Floating) -> Any:
    """The states of the threads before each one, of these and its own, and of all; `nothing` is that of none."""
    up_to = state
    for step in unroll(STEPS):
        if (1 << step) < gpu.warp_size:
            there = gpu.lane_idx >= (1 << step)
            after = monoid.combine(gpu.warp.shuffle_up(up_to, 1 << step), up_to)
            up_to = map_parts(lambda new, old: new if there else old, after, up_to)  # noqa: B023
    first = gpu.lane_idx == 0
    before = map_parts(lambda new, none: none if first else new, gpu.warp.shuffle_up(up_to, 1), nothing)
    if team == WARP:
        return before, up_to, gpu.warp.shuffle_idx(up_to, gpu.warp_size - 1)
    warps = THREADS // gpu.warp_size
    slots = map_parts(lambda part: gpu.shared[part.dtype](warps), state)
    if gpu.lane_idx == gpu.warp_size - 1:
        map_parts(lambda slot, part: slot.store(part, gpu.warp_idx), slots, up_to)
    gpu.barrier()
    others, total = nothing, nothing
    for warp in unroll(warps):
        own = map_parts(lambda slot: slot[warp], slots)  # noqa: B023
        is_before = gpu.warp_idx > warp
        others = map_parts(lambda new, old: new if is_before else old, monoid.combine(others, own), others)  # noqa: B023
        total = monoid.combine(total, own)
    gpu.barrier()  # they may be written again
    return monoid.combine(others, before), monoid.combine(others, up_to), total
