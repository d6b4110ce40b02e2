"""Grids under the interpreter: the blocks of a launch one after the other, the threads of a block in turn.

A kernel whose threads wait for each other is a generator that yields where they do: every thread of a block runs up to
there, and goes on when all those have come that it waits for, the others of its warp or of its block.

Input: the kernel as a Python function. Output: nothing; it stores. Non-goals: no races are looked for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from inspect import isgeneratorfunction
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import KernelError
from ..ir.opcodes import WITHIN_BLOCKS, WITHIN_CLUSTERS
from ..ir.program import Op, Scope
from .machine import Evaluate, Machine, Meeting, evaluates


@dataclass(eq=False, slots=True)
class _Thread:
    """A thread of a block that runs: its number, counted along x, then y, then z, and where it waits."""

    number: int
    ids: dict[str, int]
    run: Generator[Meeting, Any, None]
    meeting: Meeting | None = None
    given: Any = None


def run_grid(machine: Machine, kernel: Callable[..., Any], *arguments: Any) -> None:
    """Runs `kernel` once for every thread; the first seven arguments are the operands of the launch."""
    sizes, captured = [int(n) for n in arguments[:7]], arguments[7:]
    machine.dynamic_shared = sizes[6]
    blocks = list(itertools.product(*(range(n) for n in sizes[2::-1])))
    if machine.random is not None:
        machine.random.shuffle(blocks)
    for block in blocks:
        machine.shared.clear()
        machine.copies.clear()
        place = dict(zip(("block_idx.z", "block_idx.y", "block_idx.x"), block, strict=True))
        threads = []
        for number, thread in enumerate(itertools.product(*(range(n) for n in sizes[5:2:-1]))):
            names = ("thread_idx.z", "thread_idx.y", "thread_idx.x")
            threads.append((number, place | dict(zip(names, thread, strict=True))))
        if machine.random is not None:
            machine.random.shuffle(threads)
        if isgeneratorfunction(kernel):
            _run_block(machine, [_Thread(number, ids, kernel(*captured)) for number, ids in threads])
            continue
        for _, ids in threads:
            machine.ids = ids
            kernel(*captured)


def _run_block(machine: Machine, threads: list[_Thread]) -> None:
    """From meeting to meeting, until all threads have ended."""
    count, ready = len(threads), threads
    while threads:
        for thread in ready:
            machine.ids = thread.ids
            try:
                thread.meeting = thread.run.send(thread.given)
            except StopIteration:
                thread.meeting = None
        threads = [thread for thread in threads if thread.meeting is not None]
        ready = [thread for warp in _warps(threads, count) if _meets(machine, *warp) for thread in warp[0]]
        if threads and not ready:
            _meet(machine, threads, count, "block")
            ready = threads


def _warps(threads: list[_Thread], count: int) -> list[tuple[list[_Thread], int]]:
    """The threads that wait, warp by warp, with how many a warp has; none if none waits for others of its warp."""
    lanes = next((t.meeting.op.attrs["lanes"] for t in threads if _waits_in_warp(t)), 0)  # type: ignore[union-attr]
    warps: dict[int, list[_Thread]] = {}
    for thread in threads if lanes else ():
        warps.setdefault(thread.number // lanes, []).append(thread)
    return [(members, min(lanes, count - number * lanes)) for number, members in warps.items()]


def _waits_in_warp(thread: _Thread) -> bool:
    return thread.meeting is not None and thread.meeting.op.waits is Scope.warp


def _meets(machine: Machine, warp: list[_Thread], count: int) -> bool:
    """Whether the threads of a warp wait for each other; then each has its result."""
    if not any(_waits_in_warp(thread) for thread in warp):
        return False
    _meet(machine, warp, count, "warp")
    return True


def _meet(machine: Machine, threads: list[_Thread], count: int, scope: str) -> None:
    """Gives each thread that waits its result.

    Raises:
        KernelError: EK0722, not all `count` threads of the scope wait at one place.
    """
    met = sorted(threads, key=lambda thread: thread.number)
    meetings = [thread.meeting for thread in met if thread.meeting is not None]
    if len(met) != count or any(meeting.op is not meetings[0].op for meeting in meetings):
        raise _parted(machine, [meeting.op for meeting in meetings], count, scope)
    meet = meetings[0].meet
    results: Sequence[Any] = [None] * count if meet is None else meet([meeting.brought for meeting in meetings])
    for thread, result in zip(met, results, strict=True):
        thread.given = result


def _parted(machine: Machine, ops: list[Op], count: int, scope: str) -> KernelError:
    """The error for threads that wait at different places, or some of which have ended."""
    where = sorted({op.location for op in ops}, key=lambda location: location.place.line)
    first = where[0]
    here = sum(op.location == first for op in ops)
    others = []
    if here < len(ops):
        others.append(f"{len(ops) - here} wait elsewhere")
    if len(ops) < count:
        others.append(f"{count - len(ops)} have ended")
    what = "a barrier" if all(op.waits is not Scope.warp for op in ops) else "a call that they make together"
    return KernelError(
        f"the threads of a {scope} part at {what}: {here} wait, {', '.join(others)}",
        code="EK0722",
        place=first.place,
        op=machine.op or None,
        notes=[f"waited for at {location.place}" for location in where],
        hint=f"every thread of a {scope} has to reach the same ones",
    )


@evaluates("barrier")
def _barrier(op: Op, machine: Machine) -> Evaluate:
    return lambda: Meeting(op)


@evaluates("uniform")
def _uniform(op: Op, machine: Machine) -> Evaluate:
    return lambda value: value


@evaluates("gpu_id")
def _gpu_id(op: Op, machine: Machine) -> Evaluate:
    which, of = op.attrs["which"], op.attrs.get("of", ())
    what, _, axis = which.partition(".")
    if what in WITHIN_BLOCKS:

        def within() -> Any:
            x, y, z = (machine.ids[f"thread_idx.{axis}"] for axis in "xyz")
            number = x + of[0] * (y + of[1] * z)
            return np.int64(number % of[3] if what == "lane_idx" else number // of[3])

        return within
    if what in WITHIN_CLUSTERS:
        block = f"block_idx.{axis}"
        if what == "cluster_idx":
            return lambda: np.int64(machine.ids[block] // of[0])
        return lambda: np.int64(machine.ids[block] % of[0])
    return lambda: np.int64(machine.ids[which])
