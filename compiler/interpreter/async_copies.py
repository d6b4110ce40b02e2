"""Computes asynchronous copies: one is done when its thread waits for it, or at once, as the machine draws.

So code that reads too early reads uninitialised memory.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ..ir.program import Op
from .machine import Evaluate, Machine, Meeting, evaluates
from .memory import at_peer
from .pointers import InterpretedPointer, load, store

Copy = Callable[[], None]


@dataclass
class _Copies:
    """What a thread has under way: the groups, the oldest first, and what is in none yet."""

    groups: list[list[Copy]] = field(default_factory=list)
    open: list[Copy] = field(default_factory=list)
    count: int = 0  # of the tokens and groups that there have been


def _of_thread(machine: Machine) -> _Copies:
    result = machine.copies.setdefault(id(machine.ids), _Copies())
    assert isinstance(result, _Copies)
    return result


@evaluates("copy_async")
def _copy_async(op: Op, machine: Machine) -> Evaluate:
    count, location = op.attrs["count"], op.location

    def begin(to: InterpretedPointer, at: Any, source: InterpretedPointer, first: Any, allowed: Any) -> Any:
        copies, op = _of_thread(machine), machine.op

        def copy() -> None:
            value = load(source, first, count, op, location) if allowed else np.zeros((), source.memory.data.dtype)
            store(value, to, at, count, op, location)

        if machine.random is not None and machine.random.integers(2):
            copy()
        else:
            copies.open.append(copy)
        copies.count += 1
        return np.int64(copies.count)

    return begin


@evaluates("copy_ring")
def _ring(op: Op, machine: Machine) -> Evaluate:
    return lambda ring: None  # copies are known by their threads


@evaluates("copy_rows")
def _copy_rows(op: Op, machine: Machine) -> Evaluate:
    """Each thread copies the rows that it begins."""
    pitch, block, location = op.attrs["pitch"], op.attrs["block"], op.location

    def begin(
        to: InterpretedPointer,
        at: int,
        source: InterpretedPointer,
        first: int,
        stride: int,
        rows: int,
        count: int,
        ring: object,
    ) -> np.int64:
        copies, name = _of_thread(machine), machine.op
        x, y, z = (machine.ids[f"thread_idx.{axis}"] for axis in "xyz")
        number = x + block[0] * (y + block[1] * z)
        for row in range(number, int(rows) if count > 0 else 0, block[0] * block[1] * block[2]):

            def copy(row: int = row) -> None:
                value = load(source, first + row * stride, int(count), name, location)
                store(value, to, at + row * pitch, int(count), name, location)

            copies.open.append(copy)
        copies.count += 1
        return np.int64(copies.count)

    return begin


@evaluates("copy_commit")
def _commit(op: Op, machine: Machine) -> Evaluate:
    def commit() -> Any:
        copies = _of_thread(machine)
        copies.groups.append(copies.open)
        copies.open = []
        copies.count += 1
        return np.int64(copies.count)

    return commit


@evaluates("copy_wait")
def _wait(op: Op, machine: Machine) -> Evaluate:
    pending, whole = op.attrs["pending"], op.attrs["what"] == "copy"

    def wait(_: object) -> None:
        copies = _of_thread(machine)
        done = len(copies.groups) - pending
        for group in copies.groups[: max(done, 0)]:
            for copy in group:
                copy()
        del copies.groups[: max(done, 0)]
        if whole:
            for copy in copies.open:
                copy()
            copies.open = []

    return wait


# *** barriers of the author ***


@evaluates("mbarrier_begin")
def _begin(op: Op, machine: Machine) -> Evaluate:
    """A barrier is the number of arrivals so far."""
    location = op.location
    return lambda words, at: store(np.int64(0), words, at, 1, machine.op, location)


@evaluates("mbarrier_arrive")
def _arrive(op: Op, machine: Machine) -> Evaluate:
    location = op.location

    def arrive(words: InterpretedPointer, at: int, bytes: int) -> None:
        store(load(words, at, 1, machine.op, location) + np.int64(1), words, at, 1, machine.op, location)

    return arrive


@evaluates("mbarrier_wait")
def _wait_for_phase(op: Op, machine: Machine) -> Evaluate:
    """Copies that arrive are done when a thread sees their phase end, and not before."""
    location, arrivals = op.location, op.attrs["arrivals"]

    def wait(words: InterpretedPointer, at: int, phase: int) -> Meeting:
        def ended() -> bool:
            if load(words, at, 1, machine.op, location) < (phase + 1) * arrivals:
                return False
            for copy in _arriving(machine, words, at):
                copy()
            _arriving(machine, words, at).clear()
            return True

        return Meeting(op, ended=ended)

    return wait


@evaluates("copy_row")
def _copy_row(op: Op, machine: Machine) -> Evaluate:
    location = op.location

    def begin(
        to: InterpretedPointer,
        at: int,
        source: InterpretedPointer,
        first: int,
        count: int,
        words: InterpretedPointer,
        barrier: int,
    ) -> None:
        name = machine.op

        def copy() -> None:
            store(load(source, first, int(count), name, location), to, at, int(count), name, location)

        _arriving(machine, words, barrier).append(copy)

    return begin


# *** copies by tensor maps ***


@dataclass(frozen=True)
class InterpretedMap:
    """A tensor as a map describes it, innermost axis first."""

    source: InterpretedPointer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


@evaluates("tensor_map")
def _tensor_map(op: Op, machine: Machine) -> Evaluate:
    rank = op.attrs["rank"]

    def write(source: InterpretedPointer, there: object, *numbers: int) -> InterpretedMap | None:
        sizes, strides = map(int, numbers[:rank]), map(int, numbers[rank:])
        return InterpretedMap(source, tuple(sizes), (1, *strides)) if there else None

    return write


@evaluates("fetch_map")
def _fetch_map(op: Op, machine: Machine) -> Evaluate:
    return lambda map: None


def _box_copies(
    op: Op, machine: Machine, to: InterpretedPointer, at: int, map: InterpretedMap, coordinates: Sequence[int]
) -> list[Copy]:
    """The copies of a tile: of the elements that hardware keeps together, pieces of 16 bytes or rows of a box."""
    (rows, columns), (height, width), swizzle = op.attrs["tile"], op.attrs["box"], op.attrs["swizzle"]
    name, location, source = machine.op, op.location, map.source
    size = int(source.memory.data.dtype.itemsize)
    piece = 16 // size if swizzle else width
    outer = list(zip(coordinates[2:], map.sizes[2:], map.strides[2:], strict=False))
    there, base = all(0 <= c < n for c, n, _ in outer), sum(int(c) * s for c, _, s in outer)

    def copy(row: int, column: int) -> None:
        box = column // width * (rows // height) + row // height
        place = (row % height * width + column % width) * size
        place ^= (place // 128 & (swizzle // 16 - 1)) * 16 if swizzle else 0
        y, x = int(coordinates[1]) + row, int(coordinates[0]) + column
        count = min(piece, map.sizes[0] - x) if there and 0 <= y < map.sizes[1] else 0
        value = np.zeros(piece, source.memory.data.dtype)
        if count > 0:
            value[:count] = load(source, base + y * map.strides[1] + x, count, name, location)
        store(value, to, at + box * height * width + place // size, piece, name, location)

    every = itertools.product(range(rows // op.attrs.get("share", 1)), range(0, columns, piece))
    return [functools.partial(copy, row, column) for row, column in every]


@evaluates("copy_box")
def _copy_box(op: Op, machine: Machine) -> Evaluate:
    """The first thread of the block copies; the others read behind a barrier."""
    block = op.attrs["block"]

    def begin(
        to: InterpretedPointer,
        at: int,
        map: InterpretedMap,
        x0: int,
        x1: int,
        x2: int,
        x3: int,
        x4: int,
        ring: object,
    ) -> np.int64:
        copies = _of_thread(machine)
        x, y, z = (machine.ids[f"thread_idx.{axis}"] for axis in "xyz")
        if x + block[0] * (y + block[1] * z) == 0:
            copies.open += _box_copies(op, machine, to, int(at), map, (x0, x1, x2, x3, x4))
        copies.count += 1
        return np.int64(copies.count)

    return begin


@evaluates("copy_box_arriving")
def _copy_box_arriving(op: Op, machine: Machine) -> Evaluate:
    def begin(
        to: InterpretedPointer,
        at: int,
        map: InterpretedMap,
        x0: int,
        x1: int,
        x2: int,
        x3: int,
        x4: int,
        words: InterpretedPointer,
        barrier: int,
    ) -> None:
        share = op.attrs.get("share", 1)
        for rank in range(share):
            there, place = (pointer if share == 1 else at_peer(machine, pointer, rank) for pointer in (to, words))
            copies = _box_copies(op, machine, there, int(at), map, (x0, x1, x2, x3, x4))
            _arriving(machine, place, barrier).extend(copies)

    return begin


def _arriving(machine: Machine, words: InterpretedPointer, at: int) -> list[Copy]:
    """The copies under way that arrive at a barrier."""
    result = machine.copies.setdefault((id(words.memory), words.offset + int(at)), [])
    assert isinstance(result, list)
    return result
