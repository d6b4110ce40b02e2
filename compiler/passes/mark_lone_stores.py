"""Finds stores of elements that share bytes where no other thread can be: these need no atomic operations.

So are those of the host's own code, and those into storage that a thread has made for itself. `lowering.packed_memory`
writes both kinds.
"""

from __future__ import annotations

from ..ir.opcodes import ALLOCA, STORE
from ..ir.program import PointerType, Program, Region, Value
from ..ir.storage_opcodes import ALLOCATE
from ..targets import Target


def mark_lone_stores(program: Program, target: Target) -> None:
    """Says of each store of a packed element whether it is the only thread's that may touch the byte."""
    for function in program.functions:
        _mark(function.body, True, set())


def _mark(region: Region, alone: bool, private: set[Value]) -> None:
    """Marks stores where `private` is the storage of the thread; `alone` says that there is no other thread."""
    for op in region.ops:
        if op.opcode in (ALLOCA, ALLOCATE):
            type = op.results[0].type
            if isinstance(type, PointerType) and type.space == "stack":
                private.add(op.results[0])
        elif op.opcode is STORE:
            value, pointer, _ = op.operands
            if value.dtype.is_packed() and (alone or pointer in private):
                op.attrs["lone"] = True
        elif op.regions:
            apart = op.opcode.spreads
            for inner in op.regions:
                _mark(inner, alone and not apart, set() if apart else private)
