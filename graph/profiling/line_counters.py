"""What a place of a kernel did with memory, as numbers; and those of several calls, added up.

See also `memory_counters` (how they are counted).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import Place, shown_path

SECTOR: Final = 32


@dataclass(frozen=True)
class LineCounters:
    """What was done at a place of a kernel.

    Fields:
        requests: those of whole warps.
        sectors, least: those of global memory that were moved, and those that the same bytes would fill side by side.
        turns, conflicts: turns of shared memory, and those of them that were too many.
        branches, divergent: how often warps came to a condition or a loop, and how often their lanes parted there.
        barriers: how often threads that waited here for each other went on, which is once for a block or a warp.
    """

    op: str
    kernel: str
    place: Place | None
    space: str
    accesses: int
    requests: int
    bytes: int
    sectors: int
    least: int
    turns: int
    conflicts: int
    atomics: int
    branches: int
    divergent: int
    barriers: int

    @property
    def coalescing(self) -> float:
        """The part of the moved bytes that was requested; 1 where nothing is moved."""
        return min(1.0, self.bytes / (self.sectors * SECTOR)) if self.sectors else 1.0

    @property
    def where(self) -> str:
        """The file and the line; the kernel's name where its text is not known."""
        return self.kernel if self.place is None else f"{shown_path(self.place.file)}:{self.place.line}"

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON values."""
        place = None if self.place is None else self.place.to_dict()
        return asdict(self) | {"place": place, "coalescing": self.coalescing}


NUMBERS: Final = (
    *("accesses", "requests", "bytes", "sectors", "least", "turns", "conflicts", "atomics"),
    *("branches", "divergent", "barriers"),
)


def merged(lines: Iterable[LineCounters]) -> tuple[LineCounters, ...]:
    """One for each place, the dearest first."""
    results: dict[tuple[object, ...], LineCounters] = {}
    for line in lines:
        key = (line.op, line.kernel, line.place, line.space)
        if key in results:
            before = results[key]
            line = replace(before, **{name: getattr(before, name) + getattr(line, name) for name in NUMBERS})
        results[key] = line

    def dear(line: LineCounters) -> tuple[int, ...]:
        return -line.sectors - line.conflicts, -line.bytes, -line.divergent, -line.branches

    return tuple(sorted(results.values(), key=dear))
