"""Computes asynchronous copies: one is done when its thread waits for it, or at once, as the machine draws.

So code that reads too early reads uninitialised memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ..ir.program import Op
from .machine import Evaluate, Machine, Meeting, evaluates
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


def _arriving(machine: Machine, words: InterpretedPointer, at: int) -> list[Copy]:
    """The copies under way that arrive at a barrier."""
    result = machine.copies.setdefault((id(words.memory), words.offset + int(at)), [])
    assert isinstance(result, list)
    return result
