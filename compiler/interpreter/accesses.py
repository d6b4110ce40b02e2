"""What accesses to memory compute that are more than a load or a store: masks, gathers, atomics.

Each lane is one access, checked as every other (see `interpreter.memory`).

Input: operations, as in `interpret_ops`. Output: functions on NumPy values and pointers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.opcodes import MASKED_LOAD, MASKED_STORE
from ..ir.program import Op
from .memory import Pointer, load, store
from .rows import evaluate_row

Evaluate = Callable[..., Any]


def _offset(op: Op, machine: Any) -> Evaluate:
    return lambda pointer, offset: Pointer(pointer.memory, pointer.offset + int(offset))


def _read(op: Op, machine: Any) -> Evaluate:
    location = op.location
    neighbours = op.opcode is MASKED_LOAD

    def read(pointer: Pointer, offset: Any, mask: Any, other: Any) -> Any:
        value = other.copy()
        for lane in np.flatnonzero(mask):
            at = offset + lane if neighbours else offset[lane]
            value[lane] = load(pointer, at, 1, machine.op, location)
        return value

    return read


def _write(op: Op, machine: Any) -> Evaluate:
    location = op.location
    neighbours = op.opcode is MASKED_STORE

    def write(value: Any, pointer: Pointer, offset: Any, mask: Any) -> None:
        for lane in np.flatnonzero(mask):
            at = offset + lane if neighbours else offset[lane]
            store(value[lane], pointer, at, 1, machine.op, location)

    return write


def _second(old: Any, value: Any) -> Any:
    return value


_ROWS = {"and": "and_", "or": "or_"}


def _atomic(op: Op, machine: Any) -> Evaluate:
    kind, location = op.attrs["kind"], op.location
    combine = _second if kind == "exchange" else evaluate_row(_ROWS.get(kind, kind), op.operands[0].dtype)

    def atomic(value: Any, pointer: Pointer, offset: Any) -> Any:
        old = load(pointer, offset, 1, machine.op, location)
        store(combine(old, value), pointer, offset, 1, machine.op, location)
        return old

    return atomic


def _compare_exchange(op: Op, machine: Any) -> Evaluate:
    location = op.location

    def exchange(expected: Any, desired: Any, pointer: Pointer, offset: Any) -> Any:
        old = load(pointer, offset, 1, machine.op, location)
        if old.tobytes() == expected.tobytes():
            store(desired, pointer, offset, 1, machine.op, location)
        return old

    return exchange


def _atomic_load(op: Op, machine: Any) -> Evaluate:
    location = op.location
    return lambda pointer, offset: load(pointer, offset, 1, machine.op, location)


def _atomic_store(op: Op, machine: Any) -> Evaluate:
    location = op.location
    return lambda value, pointer, offset: store(value, pointer, offset, 1, machine.op, location)


EVALUATORS: dict[str, Callable[[Op, Any], Evaluate]] = {
    "offset": _offset,
    "nowhere": lambda op, machine: lambda: None,
    "masked_load": _read,
    "masked_store": _write,
    "gather": _read,
    "scatter": _write,
    "prefetch": lambda op, machine: lambda pointer, offset: None,
    "atomic": _atomic,
    "atomic_compare_exchange": _compare_exchange,
    "atomic_load": _atomic_load,
    "atomic_store": _atomic_store,
}
