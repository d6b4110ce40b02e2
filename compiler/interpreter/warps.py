"""Computes what the lanes of a warp do together: each brings a value, and is given what it asks for.

Input: operations. Output: functions on NumPy scalars and vectors, which give a `Meeting` (see `interpreter.machine`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.program import Op
from .machine import Evaluate, Machine, Meeting, evaluates

_SOURCES: dict[str, Callable[[int, int], int]] = {
    "idx": lambda lane, n: n,
    "one": lambda lane, n: n,
    "up": lambda lane, n: lane - n,
    "down": lambda lane, n: lane + n,
    "xor": lambda lane, n: lane ^ n,
}


@evaluates("warp_shuffle")
def _shuffle(op: Op, machine: Machine) -> Evaluate:
    source = _SOURCES[op.attrs["kind"]]

    def meet(brought: list[Any]) -> list[Any]:
        given = []
        for lane, (value, amount) in enumerate(brought):
            other = source(lane, amount)
            given.append(brought[other][0] if 0 <= other < len(brought) else value)
        return given

    return lambda value, amount: Meeting(op, (value, int(amount)), meet)


@evaluates("warp_ballot")
def _ballot(op: Op, machine: Machine) -> Evaluate:
    def meet(brought: list[Any]) -> list[Any]:
        bits = np.uint64(sum(1 << lane for lane, holds in enumerate(brought) if holds))
        return [bits] * len(brought)

    return lambda condition: Meeting(op, bool(condition), meet)


@evaluates("warp_match")
def _match(op: Op, machine: Machine) -> Evaluate:
    def meet(brought: list[Any]) -> list[Any]:
        return [np.uint64(sum(1 << lane for lane, other in enumerate(brought) if other == own)) for own in brought]

    return lambda value: Meeting(op, value.tobytes(), meet)
