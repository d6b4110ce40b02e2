"""Computes what the lanes of a warp do together: each brings a value, and is given what it requests."""

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


def _mask(masks: tuple[Any, ...]) -> int | None:
    """The lanes that combine, where an operation says which."""
    return int(masks[0]) if masks else None


@evaluates("warp_shuffle")
def _shuffle(op: Op, machine: Machine) -> Evaluate:
    source = _SOURCES[op.attrs["kind"]]

    def combine(brought: dict[int, Any]) -> dict[int, Any]:
        return {lane: brought.get(source(lane, amount), (value,))[0] for lane, (value, amount) in brought.items()}

    return lambda value, amount, *masks: Meeting(op, (value, int(amount)), combine, _mask(masks))


@evaluates("warp_ballot")
def _ballot(op: Op, machine: Machine) -> Evaluate:
    def combine(brought: dict[int, object]) -> dict[int, Any]:
        bits = np.uint64(sum(1 << lane for lane, holds in brought.items() if holds))
        return dict.fromkeys(brought, bits)

    return lambda condition, *masks: Meeting(op, bool(condition), combine, _mask(masks))


@evaluates("warp_match")
def _match(op: Op, machine: Machine) -> Evaluate:
    def combine(brought: dict[int, object]) -> dict[int, Any]:
        return {
            lane: np.uint64(sum(1 << other for other, value in brought.items() if value == own))
            for lane, own in brought.items()
        }

    return lambda value, *masks: Meeting(op, value.tobytes(), combine, _mask(masks))


@evaluates("warp_sync")
def _sync(op: Op, machine: Machine) -> Evaluate:
    return lambda *masks: Meeting(op, mask=_mask(masks))
