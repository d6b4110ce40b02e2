"""Computes operations on memory: loads and stores, masks, gathers, pointers, storage.

Each lane is one access, checked as every other (see `interpreter.pointers`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import KernelError
from ..ir.opcodes import MASKED_LOAD, MASKED_STORE
from ..ir.program import Op, PointerType
from .casts import low_bits
from .machine import Evaluate, Machine, evaluates
from .pointers import InterpretedBuffer, InterpretedPointer, load, seen_as, storage, store


@evaluates("load")
def _load(op: Op, machine: Machine) -> Evaluate:
    type, location = op.results[0].simd, op.location
    return lambda pointer, offset: low_bits(load(pointer, offset, type.width, machine.op, location), type.dtype)


@evaluates("store")
def _store(op: Op, machine: Machine) -> Evaluate:
    width, location = op.operands[0].simd.width, op.location
    return lambda value, pointer, offset: store(value, pointer, offset, width, machine.op, location)


@evaluates("store_pair")
def _store_pair(op: Op, machine: Machine) -> Evaluate:
    location = op.location

    def both(first: Any, second: Any, pointer: InterpretedPointer, byte: Any) -> None:
        store(first, pointer, 2 * byte, 1, machine.op, location)
        if pointer.offset + 2 * byte + 1 < len(pointer.memory.data):
            store(second, pointer, 2 * byte + 1, 1, machine.op, location)

    return both


@evaluates("alloca")
def _alloca(op: Op, machine: Machine) -> Evaluate:
    type = op.results[0].type
    assert isinstance(type, PointerType)
    dtype, space, count, zeroed = type.dtype, type.space, op.attrs["count"], op.attrs["zeroed"]

    def allocate() -> InterpretedPointer:
        if space != "shared":
            return storage(dtype, count, "stack", zeroed=zeroed)
        if id(op) not in machine.shared:
            machine.shared[id(op)] = storage(dtype, count, "shared", zeroed=zeroed)
        return machine.shared[id(op)]

    return allocate


@evaluates("allocate")
def _allocate(op: Op, machine: Machine) -> Evaluate:
    dtype, zeroed = op.results[0].dtype, op.attrs["zeroed"]

    def allocate(*sizes: Any) -> tuple[InterpretedPointer, bool]:
        try:
            return storage(dtype, math.prod(map(int, sizes)), "scratch", zeroed=zeroed), True
        except (MemoryError, ValueError):  # NumPy raises ValueError for sizes beyond its integers
            return storage(dtype, 0, "scratch", zeroed=zeroed), False

    return allocate


@evaluates("dynamic_shared")
def _dynamic_shared(op: Op, machine: Machine) -> Evaluate:
    dtype, location = op.results[0].dtype, op.location

    def allocate(first: Any, count: Any) -> InterpretedPointer:
        end = int(first) + dtype.bytes_for(int(count))
        if end > machine.dynamic_shared:
            raise KernelError(
                f"gpu.dynamic_shared takes {end} bytes in all, and the launch has {machine.dynamic_shared}",
                code="EK0720",
                place=location.place,
                op=machine.op or None,
                expected=f"shared={end} or more",
                got=f"shared={machine.dynamic_shared}",
            )
        return machine.shared.setdefault(id(op), storage(dtype, int(count), "shared", zeroed=False))

    return allocate


@evaluates("peer")
def _peer(op: Op, machine: Machine) -> Evaluate:
    blocks, location = op.attrs["blocks"], op.location

    def of_block(own: InterpretedPointer, rank: Any) -> InterpretedPointer:
        if not 0 <= rank < blocks:
            text = f"gpu.cluster.peer accesses block {rank} of a cluster of {blocks}"
            raise KernelError(text, code="EK0720", place=location.place, op=machine.op or None)
        return at_peer(machine, own, int(rank))

    return of_block


def at_peer(machine: Machine, own: InterpretedPointer, rank: int) -> InterpretedPointer:
    """The same place in the shared memory of a block of the cluster."""
    which = next(key for key, pointer in machine.shared.items() if pointer.memory is own.memory)
    data = own.memory.data
    fresh = InterpretedBuffer(np.zeros_like(data), own.memory.name, own.memory.shape, np.zeros(data.shape, np.bool_))
    peer = machine.cluster[rank].setdefault(which, InterpretedPointer(fresh))
    return InterpretedPointer(peer.memory, own.offset)


@evaluates("scratch")
def _scratch(op: Op, machine: Machine) -> Evaluate:
    dtype = op.results[0].dtype
    return lambda count: storage(dtype, int(count), "global", zeroed=False)


@evaluates("offset")
def _offset(op: Op, machine: Machine) -> Evaluate:
    return lambda pointer, offset: InterpretedPointer(pointer.memory, pointer.offset + int(offset))


@evaluates("masked_load", "gather")
def _read(op: Op, machine: Machine) -> Evaluate:
    location = op.location
    neighbours = op.opcode is MASKED_LOAD

    def read(pointer: InterpretedPointer, offset: Any, mask: Any, other: Any) -> Any:
        value = other.copy()
        for lane in np.flatnonzero(mask):
            at = offset + lane if neighbours else offset[lane]
            value[lane] = load(pointer, at, 1, machine.op, location)
        return value

    return read


@evaluates("masked_store", "scatter")
def _write(op: Op, machine: Machine) -> Evaluate:
    location = op.location
    neighbours = op.opcode is MASKED_STORE

    def write(value: Any, pointer: InterpretedPointer, offset: Any, mask: Any) -> None:
        for lane in np.flatnonzero(mask):
            at = offset + lane if neighbours else offset[lane]
            store(value[lane], pointer, at, 1, machine.op, location)

    return write


@evaluates("aligned")
def _aligned(op: Op, machine: Machine) -> Evaluate:
    """The interpreter has no addresses of elements."""
    return lambda *pointers: True


@evaluates("assume_aligned")
def _assume_aligned(op: Op, machine: Machine) -> Evaluate:
    return lambda pointer: None


@evaluates("pointer_cast")
def _pointer_cast(op: Op, machine: Machine) -> Evaluate:
    dtype = op.results[0].dtype
    return lambda pointer: seen_as(pointer, dtype)


@evaluates("constant_table")
def _constant_table(op: Op, machine: Machine) -> Evaluate:
    data = np.frombuffer(op.attrs["data"], op.results[0].dtype.to_numpy())
    return lambda: InterpretedPointer(InterpretedBuffer(data, "constant_table", data.shape))


@evaluates("null_pointer")
def _null_pointer(op: Op, machine: Machine) -> Evaluate:
    return lambda: None


@evaluates("prefetch")
def _prefetch(op: Op, machine: Machine) -> Evaluate:
    return lambda pointer, offset: None
