"""The machine that runs a program, and the table of what operations compute.

A family of operations is a file, of the same name as in `lowering`: it imports this one and registers a function for
each of its opcodes.

    @evaluates("splat")
    def _splat(op: Op, machine: Machine) -> Evaluate: ...

Such a function is given an operation once, when the program is translated, and gives the function that computes its
results from the values of its operands: a NumPy scalar or vector for a number, an `InterpretedPointer` for a pointer.
An operation with several results gives a tuple of them.

See also there (control flow), `interpreter.rows` (regular operations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, Program
from .casts import convert
from .pointers import InterpretedPointer

Evaluate = Callable[..., Any]


class Interrupted(Exception):
    """The call is over: the status of its context says why."""


class Trap(Exception):
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
        exchange: what an exchange between ranks calls: its site, its kind, its two addresses and its numbers.
        op: the name of the op that runs, for messages.
        ids: the indices of the GPU thread that runs.
        shared: the storage that the threads of the running block share, by operation.
        cluster: the same of each block of the running cluster.
        dynamic_shared: the bytes of shared memory that the launch requests.
        copies: the asynchronous copies under way of each thread of the running block, by the identity of its ids.
        random: draws the order of parallel work; None runs it in order.
    """

    program: Program
    report: Callable[[int, list[int]], None]
    exchange: Callable[..., int] | None = None
    op: str = ""
    ids: dict[str, int] = field(default_factory=dict)
    shared: dict[int, InterpretedPointer] = field(default_factory=dict)
    cluster: list[dict[int, InterpretedPointer]] = field(default_factory=list)
    dynamic_shared: int = 0
    copies: dict[object, object] = field(default_factory=dict)
    random: np.random.Generator | None = None


@dataclass(frozen=True, eq=False)
class Meeting:
    """A thread that waits for the others of a scope: what a generator of a thread yields, and gets its result for.

    Attributes:
        op: the operation at which it waits.
        brought: what it brings.
        combine: gives each thread its result, for what each has brought, by their lanes; None for nothing.
        mask: the lanes that combine, as bits; None for all of them.
        id: the number of the barrier that it waits at.
        ended: for a thread that waits for what others do at some time: whether they have.
    """

    op: Op
    brought: object = None
    combine: Callable[[dict[int, object]], dict[int, object]] | None = None
    mask: int | None = None
    id: int = 0
    ended: Callable[[], bool] | None = None


Evaluator = Callable[[Op, Machine], Evaluate]

EVALUATORS: dict[str, Evaluator] = {}  # by opcode; the families fill it


def evaluates(*opcodes: str) -> Callable[[Evaluator], Evaluator]:
    """Registers the function that says what these operations compute."""

    def register(evaluator: Evaluator) -> Evaluator:
        for opcode in opcodes:
            if opcode in EVALUATORS:
                raise InternalError(f"two functions evaluate '{opcode}'")
            EVALUATORS[opcode] = evaluator
        return evaluator

    return register


def number(value: Any, type: SIMDType) -> Any:
    """A compile-time number as a value."""
    dtype = type.dtype.to_numpy()
    if type.dtype.is_storage():
        scalar = convert(np.array(value)[()], DType.float64 if type.dtype.is_float() else DType.int64, type.dtype)
    else:
        inexact = type.dtype.is_float() or type.dtype.is_complex()
        scalar = np.array(value).astype(dtype)[()] if inexact else np.array(int(value), dtype)[()]
    return scalar if type.width == 1 else np.full(type.width, scalar)
