"""What each operation computes that is no row: one function each, in a table.

A function here is given the operation once, when the program is translated, and gives the function that computes its
results from the values of its operands: a NumPy scalar or vector for a number, a `Pointer` for a pointer. An operation
with several results gives a tuple of them.

Input: operations without regions. Output: `EVALUATORS`. Non-goals: control flow (see `interpreter.translate`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, PointerType, Program, Value
from . import accesses as interpret_access
from . import vectors as interpret_vectors
from .casts import convert, low_bits, reinterpret
from .memory import Pointer, load, storage, store
from .rows import where


class Stop(Exception):
    """A failed assert, or a raise: the kernel ends; `site` says which."""

    def __init__(self, site: int, values: list[int]) -> None:
        super().__init__(site)
        self.site = site
        self.values = values


@dataclass
class Machine:
    """What a run of a program shares among its operations.

    Attributes:
        program: the program.
        report: what becomes of a print: its site and the bit patterns of its values.
        op: the name of the op that runs, for messages.
        ids: the indices of the GPU thread that runs.
        shared: the storage that the threads of the running block share, by operation.
        random: draws the order of parallel work; None runs it in order.
    """

    program: Program
    report: Callable[[int, list[int]], None]
    op: str = ""
    ids: dict[str, int] = field(default_factory=dict)
    shared: dict[int, Pointer] = field(default_factory=dict)
    random: np.random.Generator | None = None


Evaluate = Callable[..., Any]


def number(value: Any, type: SIMDType) -> Any:
    """A compile-time number as a value."""
    dtype = type.dtype.to_numpy()
    if type.dtype.is_storage():
        scalar = convert(np.array(value)[()], DType.float64 if type.dtype.is_float() else DType.int64, type.dtype)
    else:
        scalar = np.array(value).astype(dtype)[()] if type.dtype.is_float() else np.array(int(value), dtype)[()]
    return scalar if type.width == 1 else np.full(type.width, scalar)


def simd(value: Value) -> SIMDType:
    """The type of a value that is no pointer."""
    assert isinstance(value.type, SIMDType)
    return value.type


def _const(op: Op, machine: Machine) -> Evaluate:
    value = number(op.attrs["value"], simd(op.results[0]))
    return lambda: value


def _cast(op: Op, machine: Machine) -> Evaluate:
    source, to = op.operands[0].dtype, op.results[0].dtype
    return lambda value: convert(value, source, to)


def _bitcast(op: Op, machine: Machine) -> Evaluate:
    to = op.results[0].dtype
    return lambda value: reinterpret(value, to)


def _splat(op: Op, machine: Machine) -> Evaluate:
    width = op.results[0].type.width if isinstance(op.results[0].type, SIMDType) else 1
    return lambda value: np.full(width, value)


def _select(op: Op, machine: Machine) -> Evaluate:
    if isinstance(op.results[0].type, PointerType):
        return lambda condition, a, b: a if condition else b
    return where


def _index_division(function: Evaluate) -> Callable[[Op, Machine], Evaluate]:
    def make(op: Op, machine: Machine) -> Evaluate:
        def divide(a: Any, b: Any) -> Any:
            if b == 0:
                raise InternalError("index arithmetic divides by zero", place=op.location.place)
            return function(a.view(np.uint64), b.view(np.uint64)).view(np.int64)

        return divide

    return make


def _load(op: Op, machine: Machine) -> Evaluate:
    type, location = simd(op.results[0]), op.location
    return lambda pointer, offset: low_bits(load(pointer, offset, type.width, machine.op, location), type.dtype)


def _store(op: Op, machine: Machine) -> Evaluate:
    width, location = simd(op.operands[0]).width, op.location
    return lambda value, pointer, offset: store(value, pointer, offset, width, machine.op, location)


def _store_pair(op: Op, machine: Machine) -> Evaluate:
    location = op.location

    def both(first: Any, second: Any, pointer: Pointer, byte: Any) -> None:
        store(first, pointer, 2 * byte, 1, machine.op, location)
        if pointer.offset + 2 * byte + 1 < len(pointer.memory.data):
            store(second, pointer, 2 * byte + 1, 1, machine.op, location)

    return both


def _alloca(op: Op, machine: Machine) -> Evaluate:
    type = op.results[0].type
    assert isinstance(type, PointerType)
    dtype, space, count, zeroed = type.dtype, type.space, op.attrs["count"], op.attrs["zeroed"]

    def allocate() -> Pointer:
        if space != "shared":
            return storage(dtype, count, "stack", zeroed=zeroed)
        if id(op) not in machine.shared:
            machine.shared[id(op)] = storage(dtype, count, "shared", zeroed=zeroed)
        return machine.shared[id(op)]

    return allocate


def _gpu_id(op: Op, machine: Machine) -> Evaluate:
    which = op.attrs["which"]
    return lambda: np.int64(machine.ids[which])


def _patterns(op: Op, values: tuple[Any, ...], first: int) -> list[int]:
    """Values as the 64-bit patterns that compiled code reports."""
    out = []
    for value, operand in zip(values, op.operands[first:], strict=True):
        wide = DType.float64 if operand.dtype.is_float() else DType.int64
        out.append(int(convert(value, operand.dtype, wide).view(np.int64)))
    return out


def _assert(op: Op, machine: Machine) -> Evaluate:
    def check(condition: Any, *values: Any) -> None:
        if not condition:
            raise Stop(op.attrs["site"], _patterns(op, values, 1))

    return check


def _print(op: Op, machine: Machine) -> Evaluate:
    return lambda *values: machine.report(op.attrs["site"], _patterns(op, values, 0))


EVALUATORS: dict[str, Callable[[Op, Machine], Evaluate]] = {
    **interpret_access.EVALUATORS,
    **interpret_vectors.EVALUATORS,
    "const": _const,
    "cast": _cast,
    "bitcast": _bitcast,
    "splat": _splat,
    "select": _select,
    "udiv": _index_division(np.floor_divide),
    "urem": _index_division(np.remainder),
    "load": _load,
    "store": _store,
    "store_pair": _store_pair,
    "alloca": _alloca,
    "gpu_id": _gpu_id,
    "assert": _assert,
    "print": _print,
}
