"""Says after how many calls a door is made, and how many doors there may be: for kernels, models and eager programs.

Python serves the first calls of a kind. A door is compiled in the background after the last of them, and no call waits
for it. PyTorch's ops have their doors after the first call of a kind, since its dispatcher costs more than a look.

See also `python_door` (what a door is), `background`.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass
from ..loading.background import BACKGROUND

MAX_KINDS: Final = 64  # kinds of calls that are counted


@dataclass(frozen=True)
class DoorPolicy:
    """When doors are made.

    Attributes:
        calls: how many of a kind Python serves before there is a door.
        doors: how many there may be; what comes later stays with Python.
        looks: how many calls are checked for their kind.
    """

    calls: int
    doors: int
    looks: int = sys.maxsize


KERNELS: Final = DoorPolicy(calls=2, doors=4)
TUNED_KERNELS: Final = DoorPolicy(calls=2, doors=16)  # which have other parameters for other sizes
MODELS: Final = DoorPolicy(calls=3, doors=4, looks=64)  # kernels have doors of their own by then
PROGRAMS: Final = DoorPolicy(calls=3, doors=1)


class CallCounter:
    """Counts the calls of one kernel, model or program that Python serves.

    Attributes:
        doors: how many there are, or will be soon.
        looks: how many calls are still checked for their kind.
    """

    __slots__ = ("_calls", "_policy", "doors", "looks")

    def __init__(self, policy: DoorPolicy) -> None:
        self._policy, self.doors, self.looks = policy, 0, policy.looks
        self._calls: dict[Hashable, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether there are as many doors as there may be."""
        return self.doors >= self._policy.doors

    def is_due(self, kind: Hashable) -> bool:
        """Counts a call; whether a door for its kind is to be made now."""
        calls = self._calls.get(kind, 0) + 1
        if calls > self._policy.calls or (calls == 1 and len(self._calls) >= MAX_KINDS):
            BACKGROUND.resume()
            return False
        self._calls[kind] = calls
        return calls == self._policy.calls
