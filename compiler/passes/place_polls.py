"""Chooses where compiled code checks whether it has to stop: between rounds of loops that may take long.

A call is interrupted by its context's status, which the host sets; `@ek.poll` reads it, and gives the host the chance
to look for signals. That costs a call, so it is done once for `BUDGET` operations, and never within a loop that LLVM
makes vectors of: a loop with a short body runs in strips, with a poll between two; where a loop is in the body, each
round takes what it was from the function's fuel, and polls when none is left. See `lowering.polls` for both.

See also `runtime.thread_pool` (loops whose rounds are known and few; GPUs; what the host does).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import SIMDType
from ..ir.opcodes import FOR, PRINT, WHILE
from ..ir.program import Op, Program, Region, Value, walk
from ..ir.schedule import BUDGET
from ..targets import Target

_ACCESS, _REPORT, _REGION = 4, 1 << 12, 1 << 12  # operations that a load, a print, a parallel region count for
_MAX_VECTOR_BITS = 256  # bits of one operation on vectors


@dataclass(frozen=True)
class _Around:
    """The loops around a region: how many, and whether one of them takes from the fuel."""

    depth: int = 0
    burns: bool = False


def place_polls(program: Program, target: Target) -> None:
    """Says of each loop whether and how often it polls."""
    if target.has_context:
        for function in program.functions:
            _place(function.body, _Around(), _RegionWork())


def _place(region: Region, around: _Around, work: _RegionWork) -> None:
    for op in region.ops:
        if not op.regions:
            continue
        if op.opcode.loops:
            fuel = _fuel(op, around, work)
            if fuel:
                op.attrs["fuel"] = fuel
            if op.opcode is FOR:
                _place_for(op, around, work)
            else:
                _place(op.regions[0], around, work)
            _place(op.regions[-1], _Around(around.depth + 1, around.burns or fuel > 0), work)
        else:
            for inner in op.regions:
                _place(inner, _Around() if op.opcode.spreads else around, work)


def _place_for(loop: Op, around: _Around, work: _RegionWork) -> None:
    """Whether a `for` with a short body runs in strips, and what it takes from the fuel of a loop around it."""
    each, rounds, step = work.of(loop.regions[0]), _most_rounds(loop), loop.operands[2].const
    if each is None:
        return
    may_be_long = rounds is None or rounds * each > BUDGET
    # Within other loops, one over memory ends as soon as that does.
    if may_be_long and not (around.depth and any(op.opcode.accesses for op in walk(loop.regions[0]))):
        strip = 1 << max(0, (BUDGET // max(each, 1)).bit_length() - 1)
        loop.attrs["strip"] = min(strip, (1 << 62) // step or 1) * step
    if around.burns and (rounds is None or rounds * each > _REGION):
        loop.attrs["burn"] = max(1, each // step)


def _fuel(loop: Op, around: _Around, work: _RegionWork) -> int:
    """What a round of a loop takes from the fuel, where it polls by that: loops are in it, or its rounds are not
    counted.

    Not within other loops if it carries vectors, which would go through memory for it.
    """
    long = any(work.of(region) is None for region in loop.regions)
    if loop.opcode is FOR and (not long or (around.depth and _carries_vectors(loop))):
        return 0
    if loop.opcode is WHILE and not long and _counts(loop):
        return 0
    return sum(map(_straight, loop.regions))


class _RegionWork:
    """Counts how many operations regions take at most, nearly; each region once, however many loops are around it."""

    def __init__(self) -> None:
        self.known: dict[int, int | None] = {}  # by identity: the program keeps them

    def of(self, region: Region) -> int | None:
        """None where it is unknown."""
        if id(region) not in self.known:
            self.known[id(region)] = self._count(region)
        return self.known[id(region)]

    def _count(self, region: Region) -> int | None:
        total = 0
        for op in region.ops:
            if op.opcode is WHILE or op.opcode.spreads:
                return None
            inside = 1
            for inner in op.regions:
                result = self.of(inner)
                if result is None:
                    return None
                inside += result
            if op.opcode is FOR:
                rounds = _most_rounds(op)
                if rounds is None:
                    return None
                inside *= rounds
            total += inside * _weight(op)
        return total


def _weight(op: Op) -> int:
    if op.opcode is PRINT:
        return _REPORT
    type = next((value.type for value in (*op.results, *op.operands) if isinstance(value.type, SIMDType)), None)
    wide = 1 if type is None else max(1, type.width * type.dtype.bits // _MAX_VECTOR_BITS)
    return wide * (_ACCESS if op.opcode.accesses else 1)


def _most_rounds(loop: Op) -> int | None:
    """How many rounds a loop has at most, where that is seen at once."""
    low, high, step = loop.operands[:3]
    assert step.const is not None
    lengths = [length for bound in _bounds(high) if (length := _distance(low, bound)) is not None]
    return max(0, -(-min(lengths) // step.const)) if lengths else None


def _bounds(high: Value) -> Iterator[Value]:
    yield high
    if high.maker is not None and high.maker.name == "min":
        yield from high.maker.operands


def _distance(low: Value, high: Value) -> int | None:
    if low.const is not None and high.const is not None:
        return int(high.const - low.const)
    if high.maker is not None and high.maker.name == "add" and high.maker.operands[0] is low:
        result = high.maker.operands[1].const
        return None if result is None else int(result)
    return None


def _straight(region: Region) -> int:
    """The operations of a round that no loop in it counts for itself."""
    total = 0
    for op in region.ops:
        if op.opcode.loops:
            continue
        total += _REGION if op.opcode.spreads else _weight(op) + sum(map(_straight, op.regions))
    return max(total, 1)


def _carries_vectors(loop: Op) -> bool:
    return any(isinstance(value.type, SIMDType) and value.type.width > 1 for value in loop.results)


def _counts(loop: Op) -> bool:
    """Whether a `while` goes over memory as a `for` does: a number grows by a constant up to one from outside."""
    test, body = loop.regions
    if not any(op.opcode.accesses for op in walk(body)):
        return False
    condition = test.ops[-1].operands[0].maker
    if condition is None or condition.name not in ("lt", "le", "gt", "ge") or condition not in test.ops:
        return False
    for counter in condition.operands:
        if counter in test.args:
            number = test.args.index(counter)
            following = body.ops[-1].operands[number].maker
            if following is not None and following.name in ("add", "sub"):
                return following.operands[0] is body.args[number] and bool(following.operands[1].const)
    return False
