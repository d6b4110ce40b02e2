"""Grids under the interpreter: the blocks of a launch one after the other, the threads of a block in turn.

A kernel whose threads wait for each other is a generator that yields where they do: every thread of a block runs up to
there, and goes on when all those have come that it waits for, the others of its warp or of its block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator
from dataclasses import replace
from inspect import isgeneratorfunction
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import KernelError
from ..ir.indices import WITHIN_BLOCKS, WITHIN_CLUSTERS
from ..ir.opcodes import CLUSTER_SYNC
from ..ir.program import Op
from .machine import Evaluate, Machine, Meeting, evaluates
from .pointers import InterpretedPointer


@dataclass(eq=False, slots=True)
class _Thread:
    """A thread of a block that runs: its number, counted along x, then y, then z, and where it waits."""

    number: int
    ids: dict[str, int]
    run: Generator[Meeting, Any, None]
    meeting: Meeting | None = None
    given: Any = None


@dataclass(frozen=True, eq=False)
class _Halt:
    """A block of which no thread can go on before other blocks of the cluster have.

    Attributes:
        op: where its threads wait.
        phases: where some of them wait for a phase of a barrier; empty where all wait for the cluster.
        threads: how many wait.
        moved: whether one of them has gone on since the block halted before.
    """

    op: Op
    threads: int
    phases: tuple[Op, ...] = ()
    moved: bool = True


def run_grid(machine: Machine, kernel: Callable[..., Any], cluster: tuple[int, int, int], *arguments: Any) -> None:
    """Runs `kernel` once for every thread; the first seven arguments are the operands of the launch."""
    sizes, captured = [int(n) for n in arguments[:7]], arguments[7:]
    machine.dynamic_shared = sizes[6]
    cluster_counts = [-(-n // one) for n, one in zip(sizes[2::-1], cluster[::-1], strict=True)]
    clusters = list(itertools.product(*(range(n) for n in cluster_counts)))
    if machine.random is not None:
        machine.random.shuffle(clusters)
    for first in clusters:
        machine.cluster = []
        runs = []
        for rank in itertools.product(*(range(n) for n in cluster[::-1])):
            block = [n * size + k for n, size, k in zip(first, cluster[::-1], rank, strict=True)]
            place = dict(zip(("block_idx.z", "block_idx.y", "block_idx.x"), block, strict=True))
            machine.cluster.append({})
            runs.append(_block(machine, kernel, machine.cluster[-1], place, sizes[3:6], captured))
        _run_cluster(machine, runs)


def _block(
    machine: Machine,
    kernel: Callable[..., Any],
    shared: dict[int, InterpretedPointer],
    place: dict[str, int],
    sizes: list[int],
    captured: tuple[object, ...],
) -> Generator[_Halt, None, None]:
    """The threads of a block until they have ended; gives where they wait for other blocks."""
    machine.shared = shared
    threads = []
    for number, thread in enumerate(itertools.product(*(range(n) for n in sizes[::-1]))):
        names = ("thread_idx.z", "thread_idx.y", "thread_idx.x")
        threads.append((number, place | dict(zip(names, thread, strict=True))))
    if machine.random is not None:
        machine.random.shuffle(threads)
    if not isgeneratorfunction(kernel):
        for _, ids in threads:
            machine.ids = ids
            kernel(*captured)
        return
    for halt in _run_block(machine, [_Thread(number, ids, kernel(*captured)) for number, ids in threads]):
        yield halt
        machine.shared = shared


def _run_cluster(machine: Machine, runs: list[Generator[_Halt, None, None]]) -> None:
    """From one place where blocks wait for each other to the next, until all have ended."""
    halts: dict[int, _Halt | None] = {}
    order = list(range(len(runs)))
    while True:
        if machine.random is not None and len(order) > 1:
            machine.random.shuffle(order)
        came = {number: next(runs[number], None) for number in order}
        halts |= came
        order = [number for number, halt in halts.items() if halt is not None and halt.phases]
        left = [halt for halt in halts.values() if halt is not None]
        if not left:
            machine.copies.clear()
            return
        if order:
            if all(halt is not None and halt.phases and not halt.moved for halt in came.values()):
                phases = [op for halt in left for op in halt.phases]
                raise _deadlocked(machine, phases, sum(halt.threads for halt in left))
            continue
        waits = [halt.op for halt in left]
        if len(waits) < len(runs) or len({id(op) for op in waits}) > 1:
            raise _apart(machine, waits, len(runs))
        order = list(range(len(runs)))


def _apart(machine: Machine, waits: list[Op], count: int) -> KernelError:
    """The error for blocks of a cluster that wait at different places, or some of which have ended."""
    first = waits[0].location
    here = sum(op.location == first for op in waits)
    others = [f"{len(waits) - here} wait elsewhere"] if here < len(waits) else []
    others += [f"{count - len(waits)} have ended"] if len(waits) < count else []
    return KernelError(
        f"the blocks of a cluster part: {here} wait, {', '.join(others)}",
        code="EK0722",
        place=first.place,
        op=machine.op or None,
        hint="every thread of a cluster has to reach the same gpu.cluster.sync()",
    )


def _run_block(machine: Machine, threads: list[_Thread]) -> Generator[_Halt, None, None]:
    """From meeting to meeting, until all threads have ended; gives where they wait for other blocks."""
    count, ready = len(threads), threads
    while threads:
        for thread in ready:
            machine.ids = thread.ids
            try:
                thread.meeting = thread.run.send(thread.given)
            except StopIteration:
                thread.meeting = None
        threads = [thread for thread in threads if thread.meeting is not None]
        warps = _warps(threads, count)
        ready = [thread for warp in warps for thread in _arrived(*warp)]
        ready += _at_named_barriers(threads)
        ready += _behind_phases(threads)
        if threads and not ready:
            if stuck := [t.meeting.op for t in threads if t.meeting is not None and t.meeting.ended is not None]:
                halt = _Halt(stuck[0], len(threads), tuple(stuck))
                while not ready:
                    yield halt
                    halt, ready = replace(halt, moved=False), _behind_phases(threads)
                continue
            for warp, lanes in warps:
                if any(_lanes_of(thread) for thread in warp):
                    raise _parted(machine, warp, lanes, "warp")
            if len(threads) < count or len({thread.meeting.op for thread in threads if thread.meeting}) > 1:
                raise _parted(machine, threads, count, "block")
            ready = threads
            for thread in ready:
                thread.given = None
            meeting = ready[0].meeting
            if meeting is not None and meeting.op.opcode is CLUSTER_SYNC:
                yield _Halt(meeting.op, len(threads))


def _behind_phases(threads: list[_Thread]) -> list[_Thread]:
    """The threads whose phase of a barrier has ended."""
    return [t for t in threads if t.meeting is not None and t.meeting.ended is not None and t.meeting.ended()]


def _lanes_of(thread: _Thread) -> int:
    """The lanes of a warp, where the thread waits for others of its warp, else 0."""
    assert thread.meeting is not None
    lanes = thread.meeting.op.attrs.get("lanes", 0)
    assert isinstance(lanes, int)
    return lanes


def _warps(threads: list[_Thread], count: int) -> list[tuple[list[_Thread], int]]:
    """The threads that wait, warp by warp, with how many a warp has; none if none waits for others of its warp."""
    warps: dict[tuple[int, int], list[_Thread]] = {}
    for lanes in dict.fromkeys(filter(None, map(_lanes_of, threads))):  # some wait for four warps
        for thread in threads:
            if _lanes_of(thread) in (0, lanes):
                warps.setdefault((lanes, thread.number // lanes), []).append(thread)
    return [(members, min(lanes, count - number * lanes)) for (lanes, number), members in warps.items()]


def _arrived(warp: list[_Thread], count: int) -> list[_Thread]:
    """The threads of a warp whose partners have all arrived; each has its result."""
    collected: list[_Thread] = []
    groups: dict[tuple[Op, int], dict[int, _Thread]] = {}
    everyone = (1 << count) - 1
    for thread in warp:
        lanes, meeting = _lanes_of(thread), thread.meeting
        if lanes and meeting is not None:
            mask = everyone if meeting.mask is None else meeting.mask & everyone
            groups.setdefault((meeting.op, mask), {})[thread.number % lanes] = thread
    for (_, mask), members in groups.items():
        if sum(1 << lane for lane in members) != mask:
            continue
        arrived = {lane: thread.meeting for lane, thread in sorted(members.items()) if thread.meeting is not None}
        combine = next(iter(arrived.values())).combine
        results = {} if combine is None else combine({lane: meeting.brought for lane, meeting in arrived.items()})
        for lane, thread in members.items():
            thread.given = results.get(lane)
        collected += members.values()
    return collected


def _at_named_barriers(threads: list[_Thread]) -> list[_Thread]:
    """The threads that go on: so many as a barrier is for have come to it."""
    waiting: dict[int, list[_Thread]] = {}
    for thread in threads:
        assert thread.meeting is not None
        if thread.meeting.op.attrs.get("threads"):
            waiting.setdefault(thread.meeting.id, []).append(thread)
    arrived = []
    for members in waiting.values():
        assert members[0].meeting is not None
        if len(members) >= members[0].meeting.op.attrs["threads"]:
            arrived += members
    for thread in arrived:
        thread.given = None
    return arrived


def _deadlocked(machine: Machine, ops: list[Op], count: int) -> KernelError:
    """The error for threads of which none can continue, some because they wait for a phase of a barrier."""
    places = sorted({op.location.place for op in ops}, key=lambda place: place.line)
    return KernelError(
        f"deadlock: {count} threads wait, and none can continue",
        code="EK0746",
        place=places[0],
        op=machine.op or None,
        notes=[f"waited for at {place}" for place in places],
        hint="as many threads and copies have to arrive in a phase as gpu.mbarrier counts",
    )


def _parted(machine: Machine, threads: list[_Thread], count: int, scope: str) -> KernelError:
    """The error for threads that wait at different places, or some of which have ended."""
    ops = [thread.meeting.op for thread in threads if thread.meeting is not None]
    where = sorted({op.location for op in ops}, key=lambda location: location.place.line)
    first = where[0]
    here = sum(op.location == first for op in ops)
    others = []
    if here < len(ops):
        others.append(f"{len(ops) - here} wait elsewhere")
    if len(ops) < count:
        others.append(f"{count - len(ops)} have ended")
    what = "a barrier" if all("lanes" not in op.attrs for op in ops) else "a call that they make together"
    return KernelError(
        f"the threads of a {scope} part at {what}: {here} wait, {', '.join(others)}",
        code="EK0722",
        place=first.place,
        op=machine.op or None,
        notes=[f"waited for at {location.place}" for location in where],
        hint=f"every thread of a {scope} has to reach the same ones",
    )


@evaluates("fence")
def _fence(op: Op, machine: Machine) -> Evaluate:
    return lambda: None  # threads run one at a time


@evaluates("barrier", "cluster_sync")
def _barrier(op: Op, machine: Machine) -> Evaluate:
    if op.operands:
        return lambda number: Meeting(op, id=int(number))
    return lambda: Meeting(op, id=op.attrs.get("id", 0))


@evaluates("set_registers")
def _set_registers(op: Op, machine: Machine) -> Evaluate:
    return lambda: None


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
