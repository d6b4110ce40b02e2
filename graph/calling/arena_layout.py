"""Lays out the temporaries of a call, for its sizes: by native code once there is some, else by `Plan.placed`.

Both give the same offsets. See also `passes.memory_plan` (the rule), `stdlib.kernels.arena` (the native code).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ..driver.device import ALIGNMENT
from ..loading.arena import native_arena
from ..passes.memory_plan import Plan
from ..types.dims import Dim

MIN_NATIVE_TEMPORARIES: Final = 8  # temporaries that Python lays out as quickly
_MAX_NATIVE_ELEMENTS: Final = 1 << 50  # of a temporary that native code takes; more do not fit memory
_ROUNDING: Final = 8 * ALIGNMENT


class ArenaLayout:
    """The offsets of temporaries in an arena.

    Any thread may use it.

    Args:
        plan: the plan that they stand in.
        numbers: their numbers there.
    """

    def __init__(self, plan: Plan, numbers: Sequence[int]) -> None:
        self.plan = plan
        self.numbers = tuple(numbers)
        buffers = [plan.buffers[number] for number in self.numbers]
        self._bits = np.array([8 * buffer.dtype.bytes_for(2) // 2 for buffer in buffers], np.int64)
        self._lives = np.array([[each.first for each in buffers], [each.last for each in buffers]], np.int64)
        self._first = self._lives.ctypes.data

    def place(self, counts: Sequence[int]) -> tuple[Sequence[int], int]:
        """The offset of each temporary with so many elements, and the arena's size in bytes."""
        many = len(self.numbers)
        native = native_arena() if many >= MIN_NATIVE_TEMPORARIES and max(counts) < _MAX_NATIVE_ELEMENTS else None
        if native is None:
            offsets, total = self.plan.placed(dict(zip(self.numbers, counts, strict=True)))
            return [offsets[number] for number in self.numbers], total
        memory = np.empty((4, many), np.int64)  # sizes, offsets, and storage for the code
        memory[0] = counts
        memory[0] *= self._bits
        memory[0] = -(-memory[0] // _ROUNDING) * ALIGNMENT
        at, row = memory.ctypes.data, 8 * many
        total = native(at, self._first, self._first + row, at + row, at + 2 * row, many)
        offsets_list: list[int] = memory[1].tolist()
        return offsets_list, total


class StageLayout:
    """The offsets of the temporaries that one stage of a plan is the first to write; see `Plan.place`."""

    def __init__(self, plan: Plan, stage: int) -> None:
        numbers = plan.temps_of(stage)
        self.arena = ArenaLayout(plan, numbers)
        self._dims: dict[Dim, int] = {}
        shapes: dict[tuple[int, ...], int] = {}
        self._shape_of: list[int] = []
        for number in numbers:
            shape = tuple(self._dims.setdefault(dim, len(self._dims)) for dim in plan.buffers[number].shape)
            self._shape_of.append(shapes.setdefault(shape, len(shapes)))
        self._shapes = list(shapes)

    def place(self, sizes: Mapping[str, int]) -> tuple[dict[int, int], int]:
        """Offsets by the numbers of the temporaries, and the arena's size in bytes, for these sizes of the symbols."""
        if not self._shape_of:
            return {}, 0
        dims = [dim.evaluate(sizes) for dim in self._dims]
        counts = [math.prod([dims[at] for at in shape]) for shape in self._shapes]
        offsets, total = self.arena.place([counts[shape] for shape in self._shape_of])
        return dict(zip(self.arena.numbers, offsets, strict=True)), total
