"""Reads what the kernels of a device report: the first failure, and prints.

They write it into pinned memory of the host, which outlives a device's context. It is read where the host waits for the
device anyway (see `driver.late_reports`).

See also `findings.reports` (what a report says), `compiler.lowering.report_rings` (which writes them).
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from typing import Any, Protocol

from ...dsl.contract import abi
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.forks import fork_lock
from ..driver.arrays import address_of
from ..driver.device import Driver, Entry

FULL = (abi.RING_WORDS - abi.RING_PRINTS) // 2  # words of prints after which the next call shows them first


@dataclass(frozen=True)
class Record:
    """What a thread reports: the number of the site, the bits of its values, and which thread it is, in words."""

    site: int
    values: list[int]
    thread: str


class ReportTarget(Protocol):
    """What takes the reports of kernels."""

    context_at: int

    def on_report(self, context: int, site: int, arguments: object) -> None: ...

    def raise_reported(self, by: str, late: bool) -> None: ...


class DeviceReports:
    """Memory for the reports of a call's kernels. `lock` is held while they are enqueued, and while it is read."""

    def __init__(self, driver: Driver) -> None:
        self._memory: object = driver.allocate_pinned(8 * abi.RING_WORDS)
        self._memory.fill(0)
        self.address = address_of(self._memory)
        self._words = (ctypes.c_int64 * abi.RING_WORDS).from_address(self.address)
        self.lock = fork_lock()

    def are_urgent(self) -> bool:
        """Whether a kernel has failed, or there is little room for prints."""
        words = self._words
        return words[0] != 0 or words[abi.RING_PRINTED] > FULL

    def deliver(self, owner: ReportTarget, late: bool) -> None:
        """Shows what the kernels of a call have printed, and raises the first failure."""
        failure, prints, dropped = self.read()
        for record in prints:
            owner.on_report(owner.context_at, record.site, record.values)
        if dropped:
            sys.stdout.write(f"... and {dropped} more prints, for which there was no room\n")
        if failure is not None:
            owner.on_report(owner.context_at, failure.site, failure.values)
            owner.raise_reported(failure.thread, late)

    def read(self) -> tuple[Record | None, list[Record], int]:
        """The first failure, the prints, and how many prints found no room, of kernels that have ended. Then all is
        empty."""
        words = self._words
        printed, dropped = words[abi.RING_PRINTED], words[abi.RING_DROPPED]
        if words[0] == 0 and printed == 0:
            return None, [], 0
        failure = _record(words, 0) if words[0] else None
        end = min(abi.RING_PRINTS + printed, abi.RING_WORDS)
        prints, at = [], abi.RING_PRINTS
        while at < end and words[at]:
            prints.append(_record(words, at))
            at += abi.RING_HEAD + len(prints[-1].values)
        ctypes.memset(self.address, 0, 8 * end)
        return failure, prints, dropped


def _record(words: Any, at: int) -> Record:
    site, *places, count = words[at : at + abi.RING_HEAD]
    block, thread = tuple(places[:3]), tuple(places[3:])
    values = list(words[at + abi.RING_HEAD : at + abi.RING_HEAD + count])
    return Record(site - 1, values, f"thread {thread} of block {block}")


class CallReports:
    """The reports of one caller. Calls on several streams have memory of their own: a wait for a stream delivers the
    reports of the calls there, and no others."""

    def __init__(self, driver: Driver, table: abi.DeviceTable, entry: Entry) -> None:
        self._driver, self._table, self._entry = driver, table, entry
        self._all: list[DeviceReports] = []
        self.begin()

    def begin(self) -> None:
        """Before kernels are enqueued on the stream of the thread: chooses where they report."""
        first = next((each for each in self._all if not self._driver.reports_elsewhere(each)), None)
        if first is None:
            first = DeviceReports(self._driver)
            self._all.append(first)
        self._now, self._table.reports = first, first.address

    def entry(self, context: int, pointers: int, dims: int) -> int:
        """The entry of the caller."""
        with self._now.lock:
            return self._entry(context, pointers, dims)

    def end(self, owner: ReportTarget) -> None:
        """After the kernels are enqueued: the next wait delivers to the owner what they report."""
        self._driver.expect_reports(self._now, partial(self._now.deliver, owner))
