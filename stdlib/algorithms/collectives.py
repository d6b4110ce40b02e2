"""Reductions, scans and broadcasts over the threads of a warp and of a block, by the monoids of `monoids`.

In a warp states go from lane to lane: each is joined with that of the lane 1, 2, 4, ... behind it, or before it in a
scan. In a block the states of the warps go through shared memory, and each thread joins them one by one. So the order
is that of the threads, whatever the target: monoids need not be commutative, and the bits are the same in every run.

Each call for a block has shared memory of its own. A barrier stands before the states of the warps are read, and one
behind it, so that a call in a loop may write them again at once.

See also `rows` (elements in memory).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyTensor,
    Index,
    Integral,
    Numeric,
    Parts,
    ctz,
    gpu,
    implements,
    int32,
    int64,
    map_parts,
    min,
    static_assert,
    unroll,
)
from .folds import as_group, exact_terms, finished, for_each, joined, settled
from .monoid import Monoid, Monoids

STEPS = 6  # a warp has 64 lanes at most
ROW = 16  # lanes of such a warp that exchange registers without addresses


@implements(gpu.warp.reduce)
def warp_reduce(v: Parts, monoid: type[Monoid] | tuple[type[Monoid], ...], *, mask: Integral | None = None) -> Any:
    monoids = as_group(monoid)
    term = exact_terms(v, monoids)
    states = _lifted(monoids, term, gpu.lane_idx)
    if mask == None:  # noqa: E711
        return _values(monoid, gpu.warp.broadcast(states_of_warp(monoids, states)), term)
    return _values(monoid, _among(monoids, states, term, mask, gpu.warp_size), term)


@implements(gpu.warp.scan)
def warp_scan(
    v: Parts, monoid: type[Monoid] | tuple[type[Monoid], ...], *, exclusive: bool = False, mask: Integral | None = None
) -> Any:
    monoids = as_group(monoid)
    term = exact_terms(v, monoids)
    if mask != None:  # noqa: E711
        behind = gpu.lane_idx if exclusive else gpu.lane_idx + 1
        return _values(monoid, _among(monoids, _lifted(monoids, term, gpu.lane_idx), term, mask, behind), term)
    states = _scanned(monoids, _lifted(monoids, term, gpu.lane_idx))
    return _values(monoid, _before(monoids, states, term) if exclusive else states, term)


@implements(gpu.block.reduce)
def block_reduce(v: Parts, monoid: type[Monoid] | tuple[type[Monoid], ...]) -> Any:
    monoids = as_group(monoid)
    term = exact_terms(v, monoids)
    return _values(monoid, states_of_block(monoids, _lifted(monoids, term, _thread())), term)


@implements(gpu.block.scan)
def block_scan(v: Parts, monoid: type[Monoid] | tuple[type[Monoid], ...], *, exclusive: bool = False) -> Any:
    monoids = as_group(monoid)
    term = exact_terms(v, monoids)
    states = _scanned(monoids, _lifted(monoids, term, _thread()))
    slots = _slots(states)
    if gpu.lane_idx == _present() - 1:
        _keep(slots, gpu.warp_idx, states)
    gpu.barrier()
    before = _nothing(monoids, term)
    for warp in range(gpu.warp_idx):
        before = joined(monoids, before, _kept(slots, warp, states))
    gpu.barrier()
    return _values(monoid, joined(monoids, before, _before(monoids, states, term) if exclusive else states), term)


@implements(gpu.block.broadcast)
def block_broadcast(v: Parts, thread: Index = 0) -> Any:
    static_assert(0 <= thread < gpu.threads_per_block, "thread= is the number of a thread of the block")
    slots = map_parts(lambda part: part if _is_known(part) else gpu.shared[part.dtype](part.width), v)
    if _thread() == thread:
        map_parts(lambda slot, part: None if _is_known(part) else _put(slot, 0, part), slots, v)
    gpu.barrier()
    result = map_parts(lambda slot, part: part if _is_known(part) else _got(slot, 0, part), slots, v)
    gpu.barrier()
    return map_parts(lambda part: gpu.uniform(part, scope="block"), result)


def states_of_warp(monoids: Monoids, states: tuple[Parts, ...]) -> Any:
    """In lane 0 the states of all lanes of the warp together, settled or not; what other lanes get is undefined."""
    present = _present()
    if _is_known(present) and present & (present - 1) == 0:
        return across_lanes(lambda a, b: joined(monoids, a, b), states, present)
    for step in unroll(STEPS):
        if (1 << step) < min(gpu.warp_size, gpu.threads_per_block):
            after = joined(monoids, states, gpu.warp.shuffle_down(states, 1 << step))
            there = gpu.lane_idx + (1 << step) < present
            states = map_parts(lambda new, old: new if there else old, after, states)  # noqa: B023
    return states


def across_lanes(combine: Callable[[Parts, Parts], Parts], states: Parts, present: int) -> Parts:
    """In lane 0 the states of so many lanes together, a power of two: those of neighbours, then those of pairs, ...

    Where `combine` gives the same for (a, b) and (b, a), all lanes have them. Warps of 64 lanes are rows of 16, within
    which registers are read without addresses; a state of each row is read by all lanes.
    """
    rows = ROW if present == 4 * ROW else present
    for step in unroll(STEPS):
        if (1 << step) < rows:
            states = combine(states, gpu.warp.shuffle_xor(states, 1 << step))
    if rows < present:
        first = combine(gpu.warp.shuffle_idx(states, 0), gpu.warp.shuffle_idx(states, ROW))
        states = combine(first, combine(gpu.warp.shuffle_idx(states, 2 * ROW), gpu.warp.shuffle_idx(states, 3 * ROW)))
    return states


def states_of_block(monoids: Monoids, states: tuple[Parts, ...]) -> Any:
    """In every thread the states of all threads of the block together, settled or not."""
    slots = _slots(states)
    own = states_of_warp(monoids, states)
    if gpu.lane_idx == 0:
        _keep(slots, gpu.warp_idx, own)
    gpu.barrier()
    total = _kept(slots, 0, states)
    for warp in range(1, gpu.warps_per_block):
        total = joined(monoids, total, _kept(slots, warp, states))
    gpu.barrier()
    return map_parts(lambda part: gpu.uniform(part, scope="block"), total)


# *** where a thread is ***


def _thread() -> Any:
    """The number of a thread in its block."""
    return gpu.warp_idx * gpu.warp_size + gpu.lane_idx


def _present() -> Any:
    """How many lanes the warp of a thread has; known at compile time where all warps of the block have as many."""
    threads = gpu.threads_per_block
    if threads % gpu.warp_size == 0:
        return gpu.warp_size
    if threads < gpu.warp_size:
        return threads
    return min(gpu.warp_size, threads - gpu.warp_idx * gpu.warp_size)


# *** states ***


def _is_known(part: Parts) -> bool:
    return isinstance(part, (bool, int, float))


def _dtype(v: Parts) -> Any:
    """The dtype of a value; a tuple or struct of dtypes for one of numbers."""

    def dtype(part: Parts):
        static_assert(not _is_known(part), "a value of a thread has a type: write float32(1), not 1")
        return part.dtype

    return map_parts(dtype, v)


def _lifted(monoids: Monoids, v: Parts, place: Integral) -> Any:
    """The states of a value of a thread."""
    _dtype(v)
    return for_each(monoids, lambda _, m: m.lift(v, int32(place)))


def _nothing(monoids: Monoids, v: Parts) -> Any:
    """The states of no values."""
    return for_each(monoids, lambda _, m: m.identity(_dtype(v)))


def _values(monoid: type[Monoid] | tuple[type[Monoid], ...], states: tuple[Parts, ...], v: Parts) -> Any:
    monoids = as_group(monoid)
    values = finished(monoids, settled(monoids, states, 0), _dtype(v))
    return values if isinstance(monoid, tuple) else values[0]


def _scanned(monoids: Monoids, states: tuple[Parts, ...]) -> Any:
    """In each lane the states of the lanes up to it."""
    for step in unroll(STEPS):
        if (1 << step) < min(gpu.warp_size, gpu.threads_per_block):
            after = joined(monoids, gpu.warp.shuffle_up(states, 1 << step), states)
            there = gpu.lane_idx >= (1 << step)
            states = map_parts(lambda new, old: new if there else old, after, states)  # noqa: B023
    return states


def _among(monoids: Monoids, states: tuple[Parts, ...], v: Parts, mask: Integral | None, behind: Index) -> Any:
    """The states of the lanes that a mask names and that come before one, one after the other."""
    total = _nothing(monoids, v)
    rest = gpu.warp.ballot(True, mask=mask)  # without lanes that the warp has not
    while rest != 0:
        lane = int64(ctz(rest))
        after = joined(monoids, total, gpu.warp.shuffle_idx(states, lane, mask=mask))
        there = lane < behind
        total = map_parts(lambda new, old: new if there else old, after, total)  # noqa: B023
        rest = rest & (rest - 1)
    return total


def _before(monoids: Monoids, states: tuple[Parts, ...], v: Parts) -> Any:
    """What the lane before this one has, which is nothing in lane 0."""
    first = gpu.lane_idx == 0
    return map_parts(lambda state, none: none if first else state, gpu.warp.shuffle_up(states, 1), _nothing(monoids, v))


# *** shared memory ***


def _slots(states: tuple[Parts, ...]) -> Any:
    """Shared memory for the states of each warp."""
    return map_parts(lambda part: gpu.shared[part.dtype](gpu.warps_per_block * part.width), states)


def _keep(slots: tuple[AnyTensor | tuple[AnyTensor, ...], ...], warp: Index, states: tuple[Parts, ...]) -> None:
    map_parts(lambda slot, part: _put(slot, warp, part), slots, states)


def _kept(slots: tuple[AnyTensor | tuple[AnyTensor, ...], ...], warp: Index, states: tuple[Parts, ...]) -> Any:
    return map_parts(lambda slot, part: _got(slot, warp, part), slots, states)


def _put(slot: AnyTensor, at: Index, part: Numeric) -> None:
    slot.store(part, at * part.width)


def _got(slot: AnyTensor, at: Index, part: Numeric) -> Any:
    return slot.load(at * part.width, width=part.width)
