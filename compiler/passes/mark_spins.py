"""Marks loops that wait until another thread changes memory, where the processor at hand runs the threads of a grid.

    while atomic.load(flag, 0) == 0:      =>      while … {spins=wait}
        pass

Between two rounds of such a loop the scheduler of threads continues other threads and blocks; without it the loop would
never end. A loop is marked if the values that end it depend on an atomic read. An atomic update that makes progress by
itself, such as taking the next item of a queue, is not such a read. A plain load is one if each round reads the same
element and nothing else can end the loop.

`spins` is `count` for loops that change values of their own each round, such as a number of attempts, and `wait` for
the others: if no thread writes memory, each further round of these does the same.

See also `lowering.spins` and `simulation.spins` (how threads are run).
"""

from __future__ import annotations

from collections.abc import Iterable

from ...dsl.types.dtype import BOOL
from ..ir.opcodes import ATOMIC, ATOMIC_COMPARE_EXCHANGE, ATOMIC_LOAD, FENCE, IF, LAUNCH, WHILE
from ..ir.program import Op, PointerType, Program, Region, Value, walk
from ..targets import Target

_ADDING = ("add", "sub", "xor")  # kinds of updates by which a thread makes progress, unless it adds nothing


def mark_spins(program: Program, target: Target) -> None:
    """Marks the loops of launches that the processor at hand runs."""
    if target.has_grid and not target.simulates:
        return
    for function in program.functions:
        bodies = [op.regions[0] for op in walk(function.body) if op.opcode is LAUNCH]
        for body in bodies:
            for op in walk(body):
                if op.opcode is WHILE and _spins(op):
                    op.attrs["spins"] = "count" if _counts(op) else "wait"


def _spins(loop: Op) -> bool:
    """Whether the end of a loop depends on what other threads write."""
    needed = _needed(loop)
    inner = [op for region in loop.regions for op in walk(region)]
    atomics = {id(op) for op in inner if _waits(op)}
    reads = [op for op in inner if id(op) in needed and op.opcode.reads and not op.opcode.ends]
    if atomics:
        return bool(reads) or any(number in needed for number in atomics)
    own = _arguments(loop)
    if any(value.type != BOOL for value in own if id(value) in needed):
        return False
    writes = any(op.opcode.writes and op.opcode is not FENCE for op in inner)
    return bool(reads) and not writes and all(_is_shared(op.operands[0]) and not _reached(op, own) for op in reads)


def _waits(op: Op) -> bool:
    """Whether an operation reads atomically what other threads have to change."""
    if op.opcode is ATOMIC and op.attrs["kind"] in _ADDING:
        return bool(op.operands[0].const == 0)
    return op.opcode in (ATOMIC, ATOMIC_COMPARE_EXCHANGE, ATOMIC_LOAD)


def _is_shared(pointer: Value) -> bool:
    return isinstance(pointer.type, PointerType) and pointer.type.space != "stack"


def _arguments(loop: Op) -> list[Value]:
    return [value for region in loop.regions for value in region.args]


def _needed(loop: Op) -> set[int]:
    """The identities of values and operations within a loop that decide whether it goes on."""
    test, body = loop.regions
    sources: dict[int, list[Value]] = {}
    for argument, first, again in zip(test.args, loop.operands, body.ops[-1].operands, strict=True):
        sources[id(argument)] = [first, again]
    for argument, passed in zip(body.args, test.ops[-1].operands[1:], strict=True):
        sources[id(argument)] = [passed]
    inside = {id(op) for region in loop.regions for op in walk(region)}
    for op in (op for region in loop.regions for op in walk(region) if op.opcode.loops):
        ends = [value for region in op.regions for value in region.ops[-1].operands]
        sources |= {id(argument): [*op.operands, *ends] for region in op.regions for argument in region.args}
    return _slice([test.ops[-1].operands[0]], sources, inside)


def _slice(values: Iterable[Value], sources: dict[int, list[Value]], inside: set[int]) -> set[int]:
    """All values and operations, among those `inside`, on which some values depend."""
    seen: set[int] = set()
    left = list(values)
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        left += sources.get(id(value), ())
        op = value.maker
        if op is None or id(op) not in inside:
            continue
        seen.add(id(op))
        left += op.operands
        if op.opcode is IF:
            number = next(n for n, result in enumerate(op.results) if result is value)
            left += [region.ops[-1].operands[number] for region in op.regions]
        elif op.regions:
            left += [each for region in op.regions for each in region.ops[-1].operands]
    return seen


def _reached(op: Op, arguments: list[Value]) -> bool:
    """Whether the operands of an operation depend on these arguments of a loop, other than through memory."""
    wanted = {id(value) for value in arguments}
    left = [*op.operands, *(each for region in op.regions for each in region.ops[-1].operands)]
    seen = set()
    while left:
        value = left.pop()
        if id(value) in wanted:
            return True
        if id(value) in seen or value.maker is None or value.maker.opcode.reads or value.maker.opcode.writes:
            continue
        seen.add(id(value))
        left += value.maker.operands
        left += [each for region in value.maker.regions for each in region.ops[-1].operands]
    return False


def _counts(loop: Op) -> bool:
    """Whether rounds change values of the thread's own that are not read from memory."""
    body: Region = loop.regions[1]
    arguments = _arguments(loop)
    for value in body.ops[-1].operands:
        maker = value.maker
        if value.type == BOOL or maker is None:
            continue
        if not maker.opcode.reads and not maker.opcode.writes and _reached(maker, arguments):
            return True
    return False
