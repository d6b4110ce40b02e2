"""Finds the memory of calls that doors make: large outputs, and arenas for intermediate results.

Both are kept for later calls, and doors request them only where no memory of an earlier call fits. Any thread may call;
what is taken out of a list belongs to one call, and nothing here waits for a lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...dsl.contract.doors import ARENA_BYTES, ARENA_COUNTS, DoorSpec
from ...dsl.diagnostics.shield import raise_if_of_handler
from ..driver.device import Array, Storage
from ..driver.lending import Lender
from .arena_layout import ArenaLayout
from .call import Caller
from .outputs import Output


class LargeOutputs:
    """The memory of large outputs, which later calls of the same sizes take again once nothing uses it."""

    def __init__(self, caller: Caller, spec: DoorSpec) -> None:
        self.caller = caller
        self.dtypes = [output.dtype.to_numpy() for output in spec.outputs]
        self.orders = [_order_of(output.places) for output in spec.outputs]
        self.kept: list[tuple[Sequence[int], list[Lender]]] = [((), []) for _ in spec.outputs]

    def take(self, number: int, *sizes: int) -> Any:
        """An array for an output; None where there is no memory."""
        known, lenders = self.kept[number]
        array = None
        if known == sizes:
            for _ in range(len(lenders)):
                try:
                    lender = lenders.pop(0)  # no other call has it now
                except IndexError:
                    break
                array = lender.lend_unused()
                lenders.append(lender)
                if array is not None:
                    break
        if array is None and (array := self._fresh(number, sizes)) is None:
            return None
        order = self.orders[number]
        return array if order is None else array.transpose(order)

    def _fresh(self, number: int, sizes: Sequence[int]) -> Array | None:
        """New memory, which is kept."""
        known, lenders = self.kept[number]
        if known != sizes:
            lenders = []
            self.kept[number] = sizes, lenders
            for output in self.caller.memory.outputs:  # what calls by Python have kept
                output.kept = []
        try:
            lender = Lender(tuple(sizes), self.dtypes[number])
        except (MemoryError, ValueError) as error:
            raise_if_of_handler(error)
            return None
        array = lender.lend()
        lenders.append(lender)
        del lenders[: -Output.MAX_KEPT]
        return array


def _order_of(places: Sequence[int]) -> list[int] | None:
    """How the axes of an output are put where the caller has them."""
    return [places.index(axis) for axis in range(len(places))] if places else None


class Arenas:
    """The memory of intermediate results: a record for each call that is under way at a time."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.layout = ArenaLayout(caller.code.plan, caller.code.plan.temps)
        self.kept: dict[int, tuple[Any, Storage, int]] = {}  # by the address of the record: it, the memory, its size

    def fit(self, address: int, *counts: int) -> int:
        """The record for so many elements of each intermediate result: that at an address, changed, or a new one.

        0 where there is no memory; the record is gone then.
        """
        record, arena, size = self.kept.pop(address, (None, None, -1))
        caller, driver = self.caller, self.caller.plan.driver
        offsets, total = self.layout.place(counts)
        if not total <= size <= 4 * total:
            try:
                arena = driver.allocate(total)
            except MemoryError:
                return 0
            size = total
            driver.attribute(arena, f"graph '{caller.ir.name}', for intermediate results")
        if record is None:
            record = np.zeros(ARENA_COUNTS // 8 + 2 * len(counts), np.uint64)
        assert arena is not None
        base = driver.address_of(arena)
        record[ARENA_BYTES // 8 :] = [size, *counts, *(base + offset for offset in offsets)]
        address = record.ctypes.data
        self.kept[address] = record, arena, size
        return address
