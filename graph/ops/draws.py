"""Counts the random ops of a graph in the order in which they run: the one with number n draws from stream n.

Outside of control flow the number is known while the graph is built. How often a loop draws depends on its rounds, and
how often a branch draws on its condition. There the count is a value: a loop carries it, and a branch gives it back. So
a graph gives the numbers that the same program gives step by step.

See also `random` (what is drawn), `control_flow` (how control flow hands counts on).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.places import user_place
from ..driver.devices import DeviceRef
from ..staging.value import TensorValue
from .movement import transfer_to
from .stage import builtin, current


@dataclass(frozen=True)
class Draws:
    """The seed, and how many random ops have run since it was set: `base`, if there is one, and `offset` more.

    `outer` are those before the seed was set in a body of control flow; they go on behind the body.
    """

    seed: int | TensorValue = 0
    base: TensorValue | None = None
    offset: int = 0
    outer: Draws | None = None

    def count(self, device: DeviceRef) -> TensorValue:
        """How many there were, as an int64 of rank 0."""
        if self.base is None:
            return number(self.offset, device)
        base = transfer_to(self.base, device)
        return base if not self.offset else builtin("elementwise", "add", [base, number(self.offset, device)])[0]

    def same_count(self, other: Draws) -> bool:
        """Whether it is known that there were as many."""
        return self.base is other.base and self.offset == other.offset


def draws() -> Draws:
    """Those of the graph that is being built."""
    return current("random").draws or Draws()


def go_on(count: Draws) -> None:
    """Counts on from there, with the seed that is set."""
    current("random").draws = replace(draws(), base=count.base, offset=count.offset)


def draw() -> None:
    """Counts a random op."""
    current("random").draws = replace(draws(), offset=draws().offset + 1)


def set_seed(seed: int | TensorValue) -> None:
    """Begins to count anew with another seed."""
    current("random").draws = Draws(seed, outer=draws().outer or draws())


@contextmanager
def counting(start: Draws) -> Iterator[list[Draws]]:
    """Within this block random ops count from there. What they have come to with this seed is in the list behind it."""
    graph, kept, end = current("random"), draws(), list[Draws]()
    graph.draws = replace(start, outer=None)
    try:
        yield end
        end.append(draws().outer or draws())
    finally:
        graph.draws = kept


def number(value: int, device: DeviceRef) -> TensorValue:
    """An int64 of rank 0."""
    return current("random").stage_constant(np.array(value, np.int64), device, user_place())
