"""Refuses parallel bodies in which every call writes one element: `out[0] += x[i]` in `parallel_for`.

    parallel (low, high):
      for i in low, high:              i: index
        v = load x, i                  v: memory
        a = load out, 0
        store a + v, out, 0            the address depends on neither: EK0252

Of each value it is known whether it depends on the index of the call, and whether on memory. An address that depends
on neither is the same in all calls, or runs over the same range in each. A store there is refused unless it writes the
same value in all calls, or a condition may select one call. `checks="all"` finds the other races at run time (see
`inference.ownership`).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import CompileError, EinkornError, joined
from ...dsl.diagnostics.places import is_shipped
from ..ir.native_opcodes import POINTER_CAST
from ..ir.opcodes import (
    ALLOCA,
    FOR,
    GPU_ID,
    IF,
    LAUNCH,
    LOAD,
    MASKED_STORE,
    OFFSET,
    PARALLEL,
    SCATTER,
    STORE,
    WHILE,
)
from ..ir.program import Op, Program, ProgramFunction, Region, Value
from ..ir.storage_opcodes import ALLOCATE
from ..targets import Target

_STORAGE = (ALLOCA, ALLOCATE)  # of the thread that runs it
INDEX = 1  # depends on the index of the call
MEMORY = 2  # depends on what is read from memory
HINT = (
    "for a sum write `reduce(x, Sum)` with `from einkorn.stdlib import Sum, reduce`; elsewhere use an atomic operation"
    " such as `atomic_add(out, index, value)`, or a plain loop"
)


def data_races(program: Program, target: Target) -> None:
    """Refuses programs with such a body.

    Raises:
        CompileError (EK0252): every call of a parallel body writes the same element.
    """
    mistakes: list[EinkornError] = []
    for function in program.functions:
        for op in function.body.ops:
            _find(function, op, mistakes)
    if mistakes:
        raise joined(mistakes)


def _find(function: ProgramFunction, op: Op, mistakes: list[EinkornError]) -> None:
    """Looks at the author's own loops: those of the library cut its work as no index shows."""
    if op.opcode.spreads and is_shipped(op.location.place.file):
        return
    if op.opcode is PARALLEL:
        total = op.operands[0].const
        if total is None or total > 1:
            _ParallelBody(function, op, mistakes).region(op.regions[0], 0)
        return
    if op.opcode is LAUNCH:
        if "elements" in op.attrs:  # each thread calls the body, under the condition that it has a number
            body = _ParallelBody(function, op, mistakes)
            for inner in op.regions[0].ops:
                if inner.opcode is IF:
                    body.region(inner.regions[0], 0)
                else:
                    body.operation(inner, 0)
        return
    for region in op.regions:
        for inner in region.ops:
            _find(function, inner, mistakes)


class _ParallelBody:
    """The walk through one parallel region. Values that it does not know come from outside: they depend on nothing."""

    def __init__(self, function: ProgramFunction, loop: Op, mistakes: list[EinkornError]) -> None:
        self.function = function
        self.loop = loop
        self.mistakes = mistakes
        self.depends: dict[Value, int] = dict.fromkeys(loop.regions[0].args, INDEX)
        self.private: set[Value] = set()  # addresses of storage that a call makes for itself

    def of(self, *values: Value) -> int:
        """What any of the values depends on."""
        every = 0
        for value in values:
            every |= self.depends.get(value, 0)
        return every

    def region(self, region: Region, condition: int) -> None:
        """Walks through operations that run under conditions which depend on this."""
        for op in region.ops:
            self.operation(op, condition)

    def operation(self, op: Op, condition: int) -> None:
        if op.opcode in (STORE, MASKED_STORE, SCATTER):
            self.store(op, condition)
        elif op.opcode in _STORAGE or (op.opcode in (OFFSET, POINTER_CAST) and op.operands[0] in self.private):
            self.private.add(op.results[0])
        elif op.regions:
            self.structured(op, condition)
        result = INDEX if op.opcode is GPU_ID else self.of(*op.operands)
        if op.opcode.reads:
            result = MEMORY
        if op.opcode.writes:  # an atomic operation gives each call a value of its own
            result |= INDEX | MEMORY
        for value in op.results:
            self.depends[value] = self.depends.get(value, 0) | result

    def structured(self, op: Op, condition: int) -> None:
        if op.opcode is FOR and _has_no_rounds(op):
            return
        inner = condition | self.of(*op.operands[: {IF: 1, FOR: 3}.get(op.opcode, 0)])
        for region in op.regions:
            for number, argument in enumerate(region.args):
                # What a loop carries may depend on anything; its counter runs between the bounds.
                self.depends[argument] = inner if op.opcode is FOR and number == 0 else INDEX | MEMORY
            self.region(region, INDEX | MEMORY if op.opcode is WHILE else inner if op.opcode is IF else condition)
        for result in op.results:
            self.depends[result] = INDEX | MEMORY

    def store(self, op: Op, condition: int) -> None:
        value, pointer, offset, *mask = op.operands
        if pointer in self.private or self.of(pointer, offset) or is_shipped(op.location.place.file):
            return
        condition |= self.of(*mask)
        if condition & INDEX or not self.of(value):
            return
        if condition and not _updates(value, pointer, offset):
            return  # the condition may hold for one call only
        place, *calls = op.location.author()
        notes = [f"called at {at}" for at in calls[:3]] or [f"the parallel loop is at {self.loop.location.author()[0]}"]
        self.mistakes.append(
            CompileError(
                "data race: every call of a parallel body writes the same element, and calls run at the same time",
                code="EK0252",
                place=place,
                op=self.function.op or None,
                notes=notes,
                hint=HINT,
                chain=calls,
            )
        )


def _has_no_rounds(loop: Op) -> bool:
    """Whether a loop is known to run over nothing, as over an axis of size 0: its addresses are those of no element."""
    low, high, step, *_ = (value.const for value in loop.operands)
    return None not in (low, high, step) and not range(low, high, step)


def _updates(value: Value, pointer: Value, offset: Value, depth: int = 16) -> bool:
    """Whether a value is computed from the element at this address."""
    op = value.maker
    if op is None or depth == 0:
        return False
    if op.opcode is LOAD and op.operands[0] is pointer:
        known = op.operands[1]
        return known is offset or (known.const is not None and known.const == offset.const)
    return any(_updates(operand, pointer, offset, depth - 1) for operand in op.operands)
