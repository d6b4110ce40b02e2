"""Counts what a launch did in all: bytes, sectors, turns of shared memory, and operations of floats.

Operations are counted where threads decide: the sites of branches and loops have the operations behind each answer, or
of a round, and that of a launch those that every thread does (see `compiler.lowering.arithmetic_counts`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from ...dsl.contract.checking import LANE_BITS, What
from ...dsl.contract.launches import LaunchCounters
from ..driver.device import Array
from ..findings.reports import Report
from .line_counters import NUMBERS, SECTOR

WORK: Final = "work"  # what the site of a launch is about
_COUNT: Final = re.compile(r"([\w.]+) (\d+)")


def launch_counters(
    launch: Array, rows: Array, reports: Sequence[Report], lines: Mapping[int, Sequence[int]]
) -> LaunchCounters:
    """Of the row that begins a launch and those that follow it; `lines` are the numbers of its sites."""
    threads, total = int(launch[1]), int(launch[3])
    lanes, shared = int(launch[2]) & ((1 << LANE_BITS) - 1), int(launch[2]) >> LANE_BITS
    work, operations = _work(rows[rows[:, 0] & 0xFFFF == int(What.BRANCH)], threads, reports)
    touched = rows[(rows[:, 3] > 0) & _is_global(rows, reports)]
    sums: Counter[str] = Counter()
    for site, numbers in lines.items():
        named = dict(zip(NUMBERS, numbers, strict=True))
        of_global = reports[site].parts[:1] == ("global",)
        for name in ("requests", "bytes", "sectors") if of_global else ("turns", "conflicts"):
            sums[name] += named[name]
    op, kernel = (work.op, str(work.parts[1])) if work is not None else ("", "")
    written = sum(
        dict(zip(NUMBERS, lines[site], strict=True))["sectors"]
        for site in np.unique(touched[touched[:, 0] & int(What.WRITE) != 0, 0] >> 16).tolist()
    )
    reads = touched[touched[:, 0] & int(What.WRITE) == 0]
    distinct = len(np.unique(_sectors_of(touched)[0]))
    sectors, row = _sectors_of(reads)
    block = (reads[:, 1] - 1) // max(threads, 1)
    cached = written + len(np.unique(np.stack([block[row], sectors]), axis=1).T)
    figures = (sums["requests"], sums["bytes"], sums["sectors"], distinct, cached, sums["turns"], sums["conflicts"])
    return LaunchCounters(op, kernel, total // max(threads, 1), threads, shared, lanes, *figures, operations)


def _is_global(rows: Array, reports: Sequence[Report]) -> Array:
    """Which rows are accesses of global memory."""
    sites, number = np.unique(rows[:, 0] >> 16, return_inverse=True)
    known = [0 <= site < len(reports) and reports[site].parts[:1] == ("global",) for site in sites.tolist()]
    result: Array = np.array(known, bool)[number] if len(sites) else np.zeros(0, bool)
    return result


def _sectors_of(rows: Array) -> tuple[Array, Array]:
    """The numbers of the sectors that accesses touch, and of the row of each."""
    first, last = rows[:, 2] // SECTOR, (rows[:, 2] + rows[:, 3] - 1) // SECTOR
    counts = last - first + 1
    row = np.repeat(np.arange(len(rows)), counts)
    return first[row] + np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts), row


def _work(rows: Array, threads: int, reports: Sequence[Report]) -> tuple[Report | None, dict[str, int]]:
    """The report of the launch, and the operations of all threads."""
    launch: Report | None = None
    total: Counter[str] = Counter()
    for site in np.unique(rows[:, 0] >> 16).tolist():
        report, answers = reports[site], rows[rows[:, 0] >> 16 == site, 2]
        kind, _, yes, no = (*map(str, report.parts), "", "")[:4]
        if kind == WORK:
            launch = report
            _add(total, yes, len(answers) * threads)
        else:
            _add(total, yes, int(answers.sum()))
            _add(total, no, int(np.count_nonzero(answers == 0)))
    return launch, dict(total)


def _add(total: Counter[str], written: str, times: int) -> None:
    for name, count in _COUNT.findall(written):
        total[name] += int(count) * times
