"""Counts what the kernels of a call did with memory, line by line, as a GPU would have to move it.

    line            accesses     bytes   sectors   coalescing   conflicts   atomics   divergent   barriers
    sums.py:12         4 096    16 384     1 024        50.0%
    sums.py:13                                                                      4 of 16
    sums.py:14                                                                                          8

The lanes of a warp that reach a line for the same time make one request: global memory moves the sectors of 32 bytes
that it touches, shared memory serves 32 words of different banks at a time. Coalescing is the part of the bytes moved
that were requested; conflicts are the turns that shared memory needs beyond the least. A condition, or a loop, is
divergent each time that lanes of a warp answer differently, or make other numbers of rounds.

See also `memory_page` (how a page looks).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from ...dsl.contract.checking import LANE_BITS, LAUNCH, What
from ...dsl.contract.gpus import has_peaks
from ...dsl.contract.launches import LaunchCounters
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.environment.files import replace_file
from ...dsl.frontend.anchors import place_at
from ...dsl.frontend.program import PortableKernel
from ..driver.device import Array
from ..findings.reports import Report
from .launch_counters import WORK, launch_counters
from .line_counters import NUMBERS, SECTOR, LineCounters, merged
from .memory_page import memory_page
from .roofline import Roofline

WORD: Final = 4
BANKS: Final = 32
BARRIER: Final = "barrier"  # the space of a line where threads wait
BRANCH: Final = "branch"  # and of one where they decide


@dataclass(frozen=True)
class MemoryCounters:
    """All lines of a call, the dearest first, and what each kernel did in all.

    Attributes:
        whole: whether the trace had room for all accesses.
        target: that of the GPU that the simulated device is like.
    """

    lines: tuple[LineCounters, ...]
    whole: bool
    launches: tuple[LaunchCounters, ...] = ()
    target: str = ""

    def to_list(self) -> list[dict[str, Any]]:
        """The lines as JSON values."""
        return [line.to_dict() for line in self.lines]

    def roofline(self, device: str = "") -> Roofline:
        """For each kernel what a device could reach at most, what is estimated, and what holds it back.

        Args:
            device: the target of a device with known peak figures, such as "sm_90a"; by default that of the GPU that
                the simulated one is like.

        Raises:
            TargetError: EK0601 no figures of such a device are known.
        """
        return Roofline.of(self.launches, device or self.target, whole=self.whole)

    def html(self, title: str = "Memory") -> str:
        """A page with the kernels' text: bars of sectors next to the least possible, and of conflicts of banks; and
        with the roofline, where figures of the device are known."""
        parts = self.roofline().html() if self.launches and has_peaks(self.target) else ""
        return memory_page(self.lines, whole=self.whole, title=title, above=parts)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, all at once."""
        replace_file(Path(path), [self.html().encode()])

    def table(self) -> str:
        """The lines as text."""
        head = f"{'line':32} {'space':7} {'accesses':>10} {'bytes':>10} {'sectors':>9} {'coalescing':>11}"
        rows = [f"{head} {'conflicts':>10} {'atomics':>8} {'divergent':>16} {'barriers':>9}"]
        for line in self.lines:
            moved = f"{line.coalescing:11.1%}" if line.sectors else " " * 11
            parted = f"{line.divergent} of {line.branches}" if line.branches else ""
            rows.append(
                f"{line.where[-32:]:32} {line.space:7} {line.accesses:10} {line.bytes:10} {line.sectors:9} {moved}"
                f" {line.conflicts:10} {line.atomics:8} {parted:>16} {line.barriers:9}"
            )
        return "\n".join([*rows, *([] if self.whole else ["the trace was too short for all accesses"])])


def count_memory(
    trace: Array, reports: Sequence[Report], kernels: Sequence[PortableKernel], target: str = "", *, whole: bool
) -> MemoryCounters:
    """Counts a trace of rows (site and what, thread, address, bytes), with a row before each launch."""
    totals: dict[int, list[int]] = {}
    launches: list[LaunchCounters] = []
    starts = np.flatnonzero(trace[:, 0] == LAUNCH) if len(trace) else np.zeros(0, np.int64)
    for start, end in zip(starts, [*starts[1:], len(trace)][: len(starts)], strict=True):
        threads, lanes = int(trace[start, 1]), int(trace[start, 2]) & ((1 << LANE_BITS) - 1)
        own: dict[int, list[int]] = {}
        _count_launch(trace[start + 1 : end], threads, lanes, reports, own)
        launches.append(launch_counters(trace[start], trace[start + 1 : end], reports, own))
        for site, numbers in own.items():
            before = totals.setdefault(site, [0] * len(NUMBERS))
            totals[site] = [a + b for a, b in zip(before, numbers, strict=True)]
    lines = [_line(numbers, reports[site], kernels) for site, numbers in totals.items()]
    return MemoryCounters(merged(_within(line, lines) for line in lines), whole, tuple(launches), target)


def added(counted: Sequence[MemoryCounters]) -> MemoryCounters:
    """The counters of several calls as those of one."""
    lines = merged(line for each in counted for line in each.lines)
    launches = tuple(launch for each in counted for launch in each.launches)
    return MemoryCounters(lines, all(each.whole for each in counted), launches, counted[0].target if counted else "")


def _line(numbers: list[int], report: Report, kernels: Sequence[PortableKernel]) -> LineCounters:
    space, function = (BARRIER, "") if numbers[-1] else (str(part) for part in report.parts[:2])
    return LineCounters(report.op, function, place_at(report.anchor, kernels), space, *numbers)


def _within(line: LineCounters, lines: Sequence[LineCounters]) -> LineCounters:
    """A barrier with the function of the nearest access: its own report names none."""
    if line.space != BARRIER:
        return line

    def distance(other: LineCounters) -> int:
        near = line.place is not None and other.place is not None and other.place.file == line.place.file
        return abs(other.place.line - line.place.line) if near else 1 << 30  # type: ignore[union-attr]

    others = [other for other in lines if other.space != BARRIER and other.op == line.op]
    return replace(line, kernel=min(others, key=distance).kernel if others else line.op)


def _count_launch(
    rows: Array, threads: int, lanes: int, reports: Sequence[Report], totals: dict[int, list[int]]
) -> None:
    barriers = rows[rows[:, 0] & 0xFFFF == int(What.BARRIER), 0] >> 16
    for site, times in zip(*np.unique(barriers, return_counts=True), strict=True):
        totals.setdefault(int(site), [0] * len(NUMBERS))[-1] += int(times)
    _count_branches(rows[rows[:, 0] & 0xFFFF == int(What.BRANCH)], threads, lanes, reports, totals)
    rows = rows[rows[:, 3] > 0]  # neither fences nor barriers nor branches
    sites, what, thread = rows[:, 0] >> 16, rows[:, 0] & 0xFFFF, rows[:, 1] - 1
    warp = _warps(thread, threads, lanes)
    for site in np.unique(sites):
        own = sites == site
        address, size = rows[own, 2], rows[own, 3]
        request = warp[own] << 32 | _times(thread[own])
        atomics = int(np.count_nonzero(what[own] & int(What.ATOMIC)))
        shared = reports[site].parts[0] == "shared"
        sectors, least = (0, 0) if shared else _sectors(request, address, size)
        turns, conflicts = _turns(*_distinct(request, address, size, WORD)) if shared else (0, 0)
        moved = [len(address), np.unique(request).size, int(size.sum()), sectors, least, turns, conflicts, atomics]
        results = [*moved, 0, 0, 0]
        before = totals.setdefault(int(site), [0] * len(NUMBERS))
        totals[int(site)] = [a + int(b) for a, b in zip(before, results, strict=True)]


def _warps(thread: Array, threads: int, lanes: int) -> Array:
    """The number of the warp of each thread, over all blocks."""
    result: Array = thread // threads * -(-threads // lanes) + thread % threads // lanes
    return result


def _count_branches(
    rows: Array, threads: int, lanes: int, reports: Sequence[Report], totals: dict[int, list[int]]
) -> None:
    """Conditions and loops that warps came to, and those where their lanes gave several answers."""
    for site in np.unique(rows[:, 0] >> 16):
        if reports[site].parts[0] == WORK:
            continue
        own = rows[rows[:, 0] >> 16 == site]
        thread, answer = own[:, 1] - 1, own[:, 2]
        _, request = np.unique(_warps(thread, threads, lanes) << 32 | _times(thread), return_inverse=True)
        count = int(request.max()) + 1
        low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
        np.minimum.at(low, request, answer)
        np.maximum.at(high, request, answer)
        numbers = totals.setdefault(int(site), [0] * len(NUMBERS))
        for name, result in (("branches", count), ("divergent", int(np.count_nonzero(low != high)))):
            numbers[NUMBERS.index(name)] += result


def _sectors(request: Array, address: Array, size: Array) -> tuple[int, int]:
    """The sectors that all requests move, and those that their bytes would fill side by side, which are no more."""
    numbers, number = np.unique(request, return_inverse=True)
    moved = np.bincount(np.searchsorted(numbers, _distinct(request, address, size, SECTOR)[0]))
    needed = -(-np.bincount(number, weights=size).astype(np.int64) // SECTOR)
    return int(moved.sum()), int(np.minimum(moved, needed).sum())


def _times(thread: Array) -> Array:
    """For each access, how many the same thread made at this place before."""
    order = np.argsort(thread, kind="stable")
    ordered = thread[order]
    first = np.r_[True, ordered[1:] != ordered[:-1]]
    position = np.arange(len(ordered))
    times = np.empty(len(ordered), np.int64)
    times[order] = position - np.maximum.accumulate(np.where(first, position, 0))
    return times


def _distinct(request: Array, address: Array, size: Array, unit: int) -> tuple[Array, Array]:
    """The units of memory that each request touches, each once: the requests, and the numbers of the units."""
    first, last = address // unit, (address + size - 1) // unit
    counts = last - first + 1
    repeated = np.repeat(np.arange(len(first)), counts)
    units = first[repeated] + np.arange(len(repeated)) - np.repeat(np.cumsum(counts) - counts, counts)
    pairs = np.unique(np.stack([request[repeated], units], axis=1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _turns(request: Array, words: Array) -> tuple[int, int]:
    """The turns of all requests, and those beyond the least: a bank gives one word a turn."""
    if not len(words):
        return 0, 0
    _, number = np.unique(request, return_inverse=True)
    loads = np.bincount(number * BANKS + words % BANKS, minlength=(number.max() + 1) * BANKS).reshape(-1, BANKS)
    least = -(-loads.sum(axis=1) // BANKS)
    turns = loads.max(axis=1)
    return int(turns.sum()), int((turns - least).sum())
