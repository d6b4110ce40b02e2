"""Says in which order a simulated device runs blocks and threads, where that differs from the plain order.

    0:5.14=103      in launch 0, block 5, at its step 14: the warp of thread 103 goes on, from that thread
    0:5.14=103*5    the same, each next thread of the warp 5 lanes further
    0:2~5           in launch 0, blocks 2 and 5 change places

In the plain order blocks run one after the other, and a warp goes on until all its threads wait for other warps, or
have ended; then comes the next warp. A step is one turn of a warp.

See also `graph.calling.schedules` (how a schedule is found).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

BLOCKS: Final = -1  # the step of a switch of two blocks
STAGE_BITS: Final = 16  # launches are numbered anew in each stage of an entry, from the stage in the bits above on


class Switch(NamedTuple):
    """One difference from the plain order; of two blocks, `step` is `BLOCKS`, and `thread` is the other block."""

    launch: int
    block: int
    step: int
    thread: int
    factor: int = 1

    def __str__(self) -> str:
        if self.step == BLOCKS:
            return f"{self.launch}:{self.block}~{self.thread}"
        far = f"*{self.factor}" if self.factor != 1 else ""
        return f"{self.launch}:{self.block}.{self.step}={self.thread}{far}"

    def words(self) -> str:
        """What it does, for people."""
        where = f" of launch {self.launch}" if self.launch else ""
        if self.step == BLOCKS:
            return f"blocks {self.block} and {self.thread}{where} change places"
        order = f", {self.factor} lanes further each" if self.factor != 1 else ""
        return f"at step {self.step} of block {self.block}{where} thread {self.thread} goes on first{order}"


class ScheduleRow(ctypes.Structure):
    """A switch; or a step that was drawn, and whether that is as in the plain order."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("launch", "block", "step", "thread", "factor", "plain"))


class Schedule(ctypes.Structure):
    """What the scheduler of threads looks at before each step.

    Fields:
        launch: the number of the launch that runs; one less before the first.
        switches, count: rows; what they say nothing about goes on in the plain order.
        drawn: whether all steps are drawn from the seed instead, and noted.
        notes, room, noted: where rows are noted, for how many there is room, and how many there would be.
        lanes: set by the scheduler: the threads of a warp.
    """

    _fields_ = (
        ("launch", ctypes.c_int64),
        ("switches", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("drawn", ctypes.c_int64),
        ("notes", ctypes.c_void_p),
        ("room", ctypes.c_int64),
        ("noted", ctypes.c_int64),
        ("lanes", ctypes.c_int64),
    )


def schedule_of(switches: Sequence[Switch]) -> Schedule:
    """What runs threads with these switches, and else in the plain order."""
    rows = (ScheduleRow * max(1, len(switches)))(*(ScheduleRow(*switch) for switch in switches))
    made = Schedule(-1, ctypes.addressof(rows), len(switches))
    made.rows = rows  # as long as the schedule
    return made


_WORD: Final = re.compile(r"(\d{1,9}):(\d{1,12})(?:~(\d{1,12})|\.(\d{1,12})=(\d{1,4})(?:\*(\d{1,2}))?)")


def parse_schedule(text: str) -> tuple[Switch, ...] | None:
    """The switches of a text; None if it is invalid."""
    made = []
    for word in text.split():
        match = _WORD.fullmatch(word)
        if match is None:
            return None
        launch, block, other, step, thread, factor = (None if part is None else int(part) for part in match.groups())
        assert launch is not None and block is not None
        if other is not None:
            made.append(Switch(launch, block, BLOCKS, other))
        else:
            assert step is not None and thread is not None
            made.append(Switch(launch, block, step, thread, 1 if factor is None else factor))
    return tuple(made) if all(switch.factor % 2 for switch in made) else None
