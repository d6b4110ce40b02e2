"""Computes atomic operations: one thread runs at a time, so that each is a load and a store."""

from __future__ import annotations

from typing import Any

from ..ir.program import Op
from .machine import Evaluate, Machine, evaluates
from .pointers import InterpretedPointer, load, store
from .rows import evaluate_row

_ROWS = {"and": "and_", "or": "or_"}


def _second(old: object, value: object) -> Any:
    return value


@evaluates("atomic")
def _atomic(op: Op, machine: Machine) -> Evaluate:
    kind, location = op.attrs["kind"], op.location
    combine = _second if kind == "exchange" else evaluate_row(_ROWS.get(kind, kind), op.operands[0].dtype)

    def atomic(value: Any, pointer: InterpretedPointer, offset: Any) -> Any:
        old = load(pointer, offset, 1, machine.op, location)
        store(combine(old, value), pointer, offset, 1, machine.op, location)
        return old

    return atomic


@evaluates("atomic_compare_exchange")
def _compare_exchange(op: Op, machine: Machine) -> Evaluate:
    location = op.location

    def exchange(expected: Any, desired: Any, pointer: InterpretedPointer, offset: Any) -> Any:
        old = load(pointer, offset, 1, machine.op, location)
        if old.tobytes() == expected.tobytes():
            store(desired, pointer, offset, 1, machine.op, location)
        return old

    return exchange


@evaluates("atomic_load")
def _atomic_load(op: Op, machine: Machine) -> Evaluate:
    location = op.location
    return lambda pointer, offset: load(pointer, offset, 1, machine.op, location)


@evaluates("atomic_store")
def _atomic_store(op: Op, machine: Machine) -> Evaluate:
    location = op.location
    return lambda value, pointer, offset: store(value, pointer, offset, 1, machine.op, location)
