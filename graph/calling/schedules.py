"""Finds the shortest schedule that shows a failure which a seed has shown: the fewest switches from the plain order.

A call that fails on a simulated device with a seed is made again, with its inputs as they were: once to note what the
seed draws, then with fewer and fewer of its switches, for as long as the failure stays the same.

See also `compiler.simulation.orders` (how threads are run by a schedule).
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations, islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...dsl.contract import abi
from ...dsl.contract.schedules import BLOCKS, Schedule, ScheduleRow, Switch, schedule_of
from ...dsl.environment.stacks import start_with_room
from ..driver.buffer import Buffer
from ..findings.stored import expect_stores
from .call_memory import CallMemory
from .call_plan import CallPlan
from .native_call import NativeCall

if TYPE_CHECKING:
    from ..driver.checked_memory import CheckedMemory

MAX_STEPS: Final = 1 << 14  # steps of a call that are noted; of one that makes more, no schedule is looked for
SECONDS: Final = 2.0  # that the search takes at most
PATIENCE: Final = 0.05  # seconds that a call may take beyond `TIMES` the failing one: threads may wait in a loop
TIMES: Final = 5
TRIED: Final = 4000  # sets of one or two switches that are tried
SHOWN: Final = 6  # switches of a schedule that are said in words

Shows = Callable[[Sequence[Switch]], bool]


class Rehearsal:
    """What a call began with, so that it can be made again."""

    def __init__(
        self,
        plan: CallPlan,
        memory: CallMemory,
        native: NativeCall,
        watched: CheckedMemory | None,
        arrays: Sequence[Any],
        results: Iterable[Buffer],
    ) -> None:
        self._driver, self._memory, self._native, self._watched = plan.driver, memory, native, watched
        self._results = list(results)
        self._changed = [arrays[number] for number in plan.changed]
        self._before = self._values()
        self._end = 0.0  # of the search
        self._due = math.inf  # when the call under way is ended
        self._longest = SECONDS

    def _values(self) -> list[np.ndarray[Any, Any]]:
        """What lies in the inputs that kernels may change."""
        kept = []
        for storage in self._changed:
            kept.append(np.empty(storage.size, np.uint8))
            self._driver.copy(kept[-1], storage)
        return kept

    def _restore(self, values: Sequence[np.ndarray[Any, Any]]) -> None:
        for storage, value in zip(self._changed, values, strict=True):
            self._driver.copy(storage, value)

    def notes(self, failed: object, ended: Callable[[], object]) -> list[str]:
        """What to say of the schedule of a call that has failed so. `ended` says how one ended that was made again."""
        native, after = self._native, self._values()
        assert native.table is not None
        self._ended = ended
        self._end = time.monotonic() + SECONDS
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(done,), daemon=True)
        start_with_room(watch)
        try:
            return self._notes(failed)
        finally:
            done.set()
            watch.join()  # else it may end the next call
            native.table.schedule, native.context.status = None, 0
            self._restore(after)

    def _watch(self, done: threading.Event) -> None:
        """Ends calls that take too long. One that it ends too early shows nothing, which is allowed."""
        while not done.wait(0.01):
            if time.monotonic() > self._due:
                self._native.context.status = abi.STOPPED

    def _notes(self, failed: object) -> list[str]:
        rows = (ScheduleRow * MAX_STEPS)()
        drawing = Schedule(-1, drawn=1, notes=ctypes.addressof(rows), room=MAX_STEPS)
        start = time.monotonic()
        if self._again(drawing) != failed or drawing.noted > MAX_STEPS:
            return []
        self._longest = PATIENCE + TIMES * (time.monotonic() - start)
        drawn = switches_of(rows[: drawing.noted])
        least = shortest(drawn, lambda switches: self._again(schedule_of(switches)) == failed, drawing.lanes)
        return [] if least is None else said(least, len(drawn))

    def _again(self, schedule: Schedule) -> object:
        """How the call ends by this schedule."""
        native, memory = self._native, self._memory
        assert native.table is not None
        start = time.monotonic()
        if start > self._end:
            return None
        self._restore(self._before)
        if self._watched is not None:
            expect_stores(self._watched, self._results)
            arena: Any = memory.arenas[native.context.stage]
            if arena is not None:
                self._watched.mark(arena.address, arena.size, written=False)
        schedule.launch = self._driver.first_launch(native.table)
        native.table.schedule = ctypes.addressof(schedule)
        self._due = min(self._end, start + self._longest)
        native.entry(native.context_at, memory.pointers_at, memory.dims_at)
        self._due = math.inf
        return self._ended()


def switches_of(rows: Iterable[ScheduleRow]) -> list[Switch]:
    """How what was drawn differs from the plain order: blocks that change places, then steps."""
    blocks: list[Switch] = []
    steps: list[Switch] = []
    begun: dict[int, int] = {}
    for row in rows:
        if row.step == 0:
            position = begun.get(row.launch, 0)
            begun[row.launch] = position + 1
            there = position  # which block these switches put there
            for switch in blocks:
                if switch.launch == row.launch and there in (switch.block, switch.thread):
                    there = switch.block + switch.thread - there
            if there != row.block:
                blocks.append(Switch(row.launch, there, BLOCKS, row.block))
        step = Switch(row.launch, row.block, row.step, row.thread, row.factor)
        if not row.plain:
            steps.append(step)
    return blocks + steps


def shortest(drawn: Sequence[Switch], shows: Shows, lanes: int) -> list[Switch] | None:
    """The fewest switches that are found to show it: some of those that were drawn, by delta debugging, and then
    others of the same warps and blocks. None of them can be left out.

    None where not even all that were drawn show it. `lanes` are the threads of a warp.
    """
    if shows([]):
        return []
    if not shows(drawn):
        return None
    least, parts = list(drawn), 2
    while len(least) > 1:
        size = -(-len(least) // parts)
        pieces = [least[k : k + size] for k in range(0, len(least), size)]
        rests = [[switch for switch in least if switch not in piece] for piece in pieces] if len(pieces) > 2 else []
        first = next((few for few in [*pieces, *rests] if shows(few)), None)
        if first is not None:
            parts = 2 if first in pieces else max(2, len(pieces) - 1)
            least = first
        elif parts >= len(least):
            break
        else:
            parts = min(len(least), 2 * parts)
    return _fewer(_plainer(least, shows, lanes), drawn, shows, lanes)


def _fewer(least: list[Switch], drawn: Sequence[Switch], shows: Shows, lanes: int) -> list[Switch]:
    """One or two switches instead, where so few show it, too: of these blocks, at any step, to any of these warps."""
    blocks = sorted({(switch.launch, switch.block) for switch in least if switch.step != BLOCKS})
    warps = sorted({switch.thread - switch.thread % lanes for switch in least if switch.step != BLOCKS})
    candidates = [switch for switch in least if switch.step == BLOCKS]
    for launch, block in blocks:
        last = max(switch.step for switch in drawn if (switch.launch, switch.block) == (launch, block))
        candidates += [Switch(launch, block, step, thread) for step in range(last + 1) for thread in warps]
    fewer = chain.from_iterable(combinations(candidates, size) for size in range(1, min(len(least), 3)))
    return next((list(few) for few in islice(fewer, TRIED) if shows(few)), least)


def _plainer(least: list[Switch], shows: Shows, lanes: int) -> list[Switch]:
    """The same switches, each with the threads of its warp in their order where that shows it, too."""
    for k, switch in enumerate(least):
        if switch.step == BLOCKS:
            continue
        start = switch.thread - switch.thread % lanes
        for plain in (switch._replace(thread=start, factor=1), switch._replace(factor=1)):
            candidate = [*least[:k], plain, *least[k + 1 :]]
            if switch == plain or shows(candidate):
                least = candidate
                break
    return least


def said(least: Sequence[Switch], drawn: int) -> list[str]:
    """A schedule for the reader of an error."""
    if not least:
        return ["threads in their plain order show it, too, without a seed"]
    words = "; ".join(switch.words() for switch in least[:SHOWN])
    more = f"; and {len(least) - SHOWN} more" if len(least) > SHOWN else ""
    count = f"{len(least)} switch{'es' if len(least) > 1 else ''} of the plain order"
    text = " ".join(map(str, least))
    return [
        f"the shortest schedule that was found has {count}, of {drawn} that the seed draws: {words}{more}",
        f'Accelerator("sim", schedule="{text}") replays it',
    ]
