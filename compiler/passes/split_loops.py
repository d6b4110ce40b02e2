"""Loops along an axis of known size, cut where conditions on their counter change: `d % half`, `if d < half`.

    for d in [0, 64):                            for d in [0, 32):   out[d] = x[d] * c[d]
      j = d % 32                           =>
      if d < 32: out[d] = x[d] * c[j]            for d in [32, 64):  out[d] = x[d] - c[d - 32]
      else:      out[d] = x[d] - c[j]

In each part the conditions are constant, so that it has no remainder, no choice and no clamp, and neighbours are read
as such. LLVM does not cut loops. Where it cannot prove that `d % 32` goes on by one it checks so before the loop, finds
that it does not, and takes elements one by one, with both sides of each choice computed.

Short parts (the ends of a stencil) stay together, as they were written.

What changes with every element (`d % 2`) is written out for a period of it: so x[2 * q] and x[2 * q + 1] are seen,
which are read as one vector and sorted.

    for d in [0, 64):                            for q in [0, 32):
      if d % 2 == 0: out[d] = x[d] * c[d // 2]  =>   out[2 * q] = x[2 * q] * c[q]
      else:          out[d] = x[d - 1]               out[2 * q + 1] = x[2 * q]
"""

from __future__ import annotations

import itertools
from dataclasses import field

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import BOOL, INT
from ..ir.builder import Builder
from ..ir.opcodes import CONST, IF, SELECT
from ..ir.operations import ROWS
from ..ir.program import Op, Program, Region, Value, walk
from ..targets import Target

MAX_SHORT_PART = 4  # elements; shorter parts are not worth a loop
MAX_PARTS = 4  # parts of a loop
PERIOD = 4  # elements at most that are written out one after the other
VECTOR = 8  # rounds of them that become a vector
LARGEST = 800  # operations in all parts
_SWAPPED = {row.name: row.swapped for row in ROWS.values() if row.swapped}
_COMPARED = set(_SWAPPED)
_QUOTIENTS = {"floordiv", "udiv"}
_REMAINDERS = {"mod", "urem"}


def split_loops(program: Program, target: Target) -> None:
    """Replaces loops along an axis by one for each part, where that pays."""
    for function in program.functions:
        if any("axis" in op.attrs for op in walk(function.body)):
            _visit(function.body, Builder(function.bounds), target)


def _visit(region: Region, builder: Builder, target: Target) -> None:
    """Splits the loops of a region, innermost loops first."""
    ops, region.ops = region.ops, []
    with builder.inside(region):
        for op in ops:
            for inner in op.regions:
                _visit(inner, builder, target)
            region.ops.append(op)
            if op.opcode is CONST:
                builder.know(op)
            size = op.attrs.pop("axis", None)
            if size is not None and target.vectorizes:
                _split(builder, op, size)


def _split(builder: Builder, loop: Op, size: int) -> None:
    """Replaces the last loop of a region, whose counter lies in [0, size), by one for each part."""
    if loop.regions[0].args[1:] or loop.operands[2].const != 1:
        return
    period = _period(loop, size)
    if period:
        _write_out(builder, loop, size, period)
        return
    ends = _ends(loop.regions[0], size)
    if len(ends) < 3 or len(ends) > MAX_PARTS + 1:
        return
    if sum(1 for _ in walk(loop.regions[0])) * (len(ends) - 1) > LARGEST:
        return
    assert builder.region.ops[-1] is loop
    builder.region.ops.pop()
    builder.location = loop.location
    for first, end in itertools.pairwise(ends):
        low = _bound(builder, "max", loop.operands[0], first)
        high = _bound(builder, "min", loop.operands[1], end)
        _copied(builder, loop, (low, high), (first, end))


def _copied(builder: Builder, loop: Op, bounds: tuple[Value, Value], ends: tuple[int, int]) -> None:
    """The loop over these bounds, which lie between the ends."""
    first, end = ends
    index = builder.counter(builder.counter(Value(INT), *bounds), builder.int_(first), builder.int_(end))
    part = _CounterRange(builder, first, end - 1, linear={index.serial: 0}, index=index)
    part.values[loop.regions[0].args[0].serial] = index
    region = Region([index])
    with builder.inside(region):
        part.copy(loop.regions[0].ops)
    builder.add("for", [*bounds, loop.operands[2]], regions=[region], **loop.attrs)


def _period(loop: Op, size: int) -> int:
    """After how many elements the remainders of counter + a come again; 0 where that says nothing of whole loops."""
    region = loop.regions[0]
    linear = {region.args[0].serial: 0}
    divisors = set()
    for op in walk(region):
        if op.opcode.loops:
            return 0
        _points(op, linear, size)
        if op.name in _REMAINDERS and op.operands[0].serial in linear and op.operands[1].const is not None:
            divisors.add(int(op.operands[1].const))
    period = max(divisors, default=0)
    if not 1 < period <= PERIOD or size % period or any(number <= 0 or period % number for number in divisors):
        return 0
    return period if size >= MAX_SHORT_PART * period and sum(1 for _ in walk(region)) * (period + 2) <= LARGEST else 0


def _write_out(builder: Builder, loop: Op, size: int, period: int) -> None:
    """Replaces a loop by one of which each round takes as many elements as the period.

    What is left of whole vectors is a loop of its own: LLVM makes no vectors of few rounds of which some are left.
    """
    assert builder.region.ops[-1] is loop
    builder.region.ops.pop()
    builder.location = loop.location
    low, high, _ = loop.operands
    if low.const == 0 and high.const == size:
        rounds = size // period
        lanes = VECTOR if rounds >= VECTOR else VECTOR // 2
        for ends in itertools.pairwise(sorted({0, rounds // lanes * lanes, rounds})):
            _periods(builder, loop, (builder.int_(ends[0]), builder.int_(ends[1])), ends, period)
        return
    each = builder.int_(period)
    first = builder.idiv(builder.iadd(low, builder.int_(period - 1)), each)
    last = builder.one("max", [first, builder.idiv(high, each)], INT)
    begun = builder.one("min", [high, builder.imul(first, each)], INT)
    _copied(builder, loop, (low, begun), (0, size))
    _periods(builder, loop, (first, last), (0, size // period), period)
    _copied(builder, loop, (builder.imul(last, each), high), (0, size))


def _periods(builder: Builder, loop: Op, bounds: tuple[Value, Value], ends: tuple[int, int], period: int) -> None:
    """The loop over whole periods within these bounds, which lie between the ends."""
    quotient = builder.counter(builder.counter(Value(INT), *bounds), *map(builder.int_, ends))
    region = Region([quotient])
    with builder.inside(region):
        base = builder.one("mul", [quotient, builder.int_(period)], INT, nsw=True)
        first, last = ends[0] * period, (ends[1] - 1) * period
        part = _CounterRange(
            builder, first, last, linear={base.serial: 0}, index=base, period=period, quotient=quotient
        )
        for number in range(period):
            part.values[loop.regions[0].args[0].serial] = part.sum(number)
            part.copy(loop.regions[0].ops[:-1])
        builder.end()
    builder.add("for", [*bounds, loop.operands[2]], regions=[region], **loop.attrs)


def _bound(builder: Builder, name: str, value: Value, number: int) -> Value:
    if value.const is not None:
        return builder.int_(max(value.const, number) if name == "max" else min(value.const, number))
    return builder.one(name, [value, builder.int_(number)], INT)


def _ends(region: Region, size: int) -> list[int]:
    """Where parts begin and end, from 0 to the size."""
    linear = {region.args[0].serial: 0}
    points: set[int] = set()
    for op in walk(region):
        points |= _points(op, linear, size)
    results = sorted({0, size, *(point for point in points if 0 < point < size)})
    lengths = [end - first for first, end in itertools.pairwise(results)]
    ends = [0]
    for number, end in enumerate(results[1:-1]):
        if lengths[number] >= MAX_SHORT_PART or lengths[number + 1] >= MAX_SHORT_PART:
            ends.append(end)
    return [*ends, size]


def _points(op: Op, linear: dict[int, int], size: int) -> set[int]:
    """Where the answer of an operation on counter + a changes; notes what such sums are."""
    if len(op.operands) != 2 or len(op.results) != 1 or op.operands[0].type != INT:
        return set()
    name, (value, other) = op.name, op.operands
    if value.serial not in linear and other.serial in linear and value.const is not None:
        if name not in _COMPARED | {"add", "min", "max"}:
            return set()
        name, value, other = _SWAPPED.get(name, name), other, value
    if value.serial not in linear or other.const is None:
        return set()
    at, number = linear[value.serial], int(other.const)
    if name in ("add", "sub"):
        linear[op.results[0].serial] = at + number if name == "add" else at - number
    elif name in _QUOTIENTS | _REMAINDERS and number > 0 and size // number <= MAX_PARTS:
        return {k * number - at for k in range(at // number, (size + at) // number + 1)}
    elif name in ("lt", "ge", "min", "max"):
        return {number - at}
    elif name in ("le", "gt"):
        return {number - at + 1}
    elif name in ("eq", "ne"):
        return {number - at, number - at + 1}
    return set()


@dataclass
class _CounterRange:
    """Copies operations for counters from `first` to `last`, both included.

    Where there is a `period`, counters are multiples of it: of the `quotient`.
    """

    builder: Builder
    first: int
    last: int
    values: dict[int, Value] = field(default_factory=dict)  # by the serial of what they stand for
    linear: dict[int, int] = field(default_factory=dict)  # of values that are counter + a
    index: Value = field(default_factory=lambda: Value(INT))
    period: int = 0
    quotient: Value = field(default_factory=lambda: Value(INT))

    def copy(self, ops: list[Op]) -> None:
        for op in ops:
            self.builder.location = op.location
            operands = [self.values.get(value.serial, value) for value in op.operands]
            known = self.known(op, operands)
            if known is not None:
                self.values[op.results[0].serial] = known
            elif op.opcode is IF and operands[0].const is not None:
                arm = op.regions[0 if operands[0].const else 1].ops
                self.copy(arm[:-1])
                for result, value in zip(op.results, arm[-1].operands, strict=True):
                    self.values[result.serial] = self.values.get(value.serial, value)
            else:
                self.made(op, operands)

    def made(self, op: Op, operands: list[Value]) -> None:
        """The operation itself, once more."""
        regions = [self.region(region) for region in op.regions]
        results = self.builder.add(op.name, operands, [v.type for v in op.results], regions, **op.attrs)
        for old, new in zip(op.results, results, strict=True):
            new.const, new.weak, new.origin, new.name = old.const, old.weak, old.origin, old.name
            self.values[old.serial] = new
        if op.name in ("add", "sub") and operands[0].serial in self.linear and operands[1].const is not None:
            by = int(operands[1].const)
            self.linear[results[0].serial] = self.linear[operands[0].serial] + (by if op.name == "add" else -by)
        elif op.name == "add" and operands[1].serial in self.linear and operands[0].const is not None:
            self.linear[results[0].serial] = self.linear[operands[1].serial] + int(operands[0].const)

    def region(self, region: Region) -> Region:
        args = [Value(arg.type, weak=arg.weak, name=arg.name) for arg in region.args]
        for old, new in zip(region.args, args, strict=True):
            self.values[old.serial] = new
            for bounds in self.builder.bounds.get(old.serial, ()):
                low, high = (b if b is None else self.values.get(b.serial, b) for b in bounds[:2])
                self.builder.counter(new, low, high, closed=bounds[2])
        copied = Region(args)
        with self.builder.inside(copied):
            self.copy(region.ops)
        return copied

    def known(self, op: Op, operands: list[Value]) -> Value | None:
        """What the result is in this part, where that can be said without the operation."""
        if op.opcode is SELECT and operands[0].const is not None and operands[0].type == BOOL:
            return operands[1] if operands[0].const else operands[2]
        if op.name in ("and_", "or_", "not_", "invert") and op.results[0].type == BOOL:
            return self.logic(op.name, operands)
        if len(operands) != 2 or operands[0].type != INT:
            return None
        if op.name in _COMPARED and all(value.const is not None for value in operands):
            return self.builder.const(bool(ROWS[op.name].fold(*(value.const for value in operands))), BOOL)
        name, (value, other) = op.name, operands
        if value.serial not in self.linear and other.serial in self.linear:
            if name not in _COMPARED | {"min", "max"}:
                return None
            name, value, other = _SWAPPED.get(name, name), other, value
        if value.serial not in self.linear or other.const is None:
            return None
        return self.answer(name, value, other)

    def answer(self, name: str, value: Value, other: Value) -> Value | None:
        at, number = self.linear[value.serial], int(other.const)
        first, last = self.first + at, self.last + at
        if name in _COMPARED:
            ends = {bool(ROWS[name].fold(end, number)) for end in (first, last)}
            if len(ends) == 1 and (name not in ("eq", "ne") or not first <= number <= last or first == last):
                return self.builder.const(ends.pop(), BOOL)
        elif name in ("min", "max") and not first < number < last:
            return value if (last <= number) == (name == "min") else other
        elif name in _REMAINDERS and self.period and number > 0 and self.period % number == 0:
            return self.builder.int_(at % number)
        elif name in _QUOTIENTS and self.period and number == self.period:
            return self.quotient if at // number == 0 else self.added(self.quotient, at // number)
        elif name in _QUOTIENTS | _REMAINDERS and number > 0 and first // number == last // number:
            quotient = first // number
            return self.builder.int_(quotient) if name in _QUOTIENTS else self.sum(at - quotient * number)
        return None

    def logic(self, name: str, operands: list[Value]) -> Value | None:
        if name in ("not_", "invert"):
            return None if operands[0].const is None else self.builder.const(not operands[0].const, BOOL)
        for value, other in (operands, operands[::-1]):
            if value.const is not None:
                return other if bool(value.const) == (name == "and_") else value
        return None

    def sum(self, at: int) -> Value:
        """The counter and a number."""
        if at == 0:
            return self.index
        value = self.added(self.index, at)
        self.linear[value.serial] = at
        return value

    def added(self, value: Value, number: int) -> Value:
        return self.builder.one("add", [value, self.builder.int_(number)], INT, nsw=True)
