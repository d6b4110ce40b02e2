"""Reads what the kernels of a device report into its memory: the first failure, and prints.

A model whose kernels may report waits for them at the end of each call, since a failure is one of that call.

Input: a driver. Output: records. Non-goals: what a report says (see `engine.reports`), and who writes them (see
`compiler.lowering.report_rings`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...dsl.contract import abi
from ..driver.device import Driver


@dataclass(frozen=True)
class Record:
    """What a thread reports: the number of the site, the bits of its values, and which thread it is, in words."""

    site: int
    values: list[int]
    thread: str


class DeviceReports:
    """The memory of one caller for the reports of its kernels."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.memory: Any = driver.place(np.zeros(abi.RING_WORDS, np.int64))

    @property
    def address(self) -> int:
        return self.driver.address_of(self.memory)

    def read(self) -> tuple[Record | None, list[Record], int]:
        """Waits for the call: the first failure, the prints, and how many prints found no room. Then all is empty."""
        words = np.empty(abi.RING_WORDS, np.int64)
        self.driver.copy(words, self.memory)
        printed, dropped = int(words[abi.RING_PRINTED]), int(words[abi.RING_DROPPED])
        if words[0] == 0 and printed == 0:
            return None, [], 0
        failure = _record(words) if words[0] else None
        prints, at = [], abi.RING_PRINTS
        while at < min(abi.RING_PRINTS + printed, abi.RING_WORDS) and words[at]:
            prints.append(_record(words[at:]))
            at += abi.RING_HEAD + len(prints[-1].values)
        self.driver.fill(self.memory, 0)
        return failure, prints, dropped


def _record(words: Any) -> Record:
    site, *places, count = (int(word) for word in words[: abi.RING_HEAD])
    block, thread = tuple(places[:3]), tuple(places[3:])
    values = [int(word) for word in words[abi.RING_HEAD : abi.RING_HEAD + count]]
    return Record(site - 1, values, f"thread {thread} of block {block}")
