"""Two versions of an innermost loop whose checks cannot stand before it: one without them, and the loop as it was.

    for %i in [low, high)                       if  low >= high  or  0 <= low - 1 and high - 2 < size
      if ...                                      for %i in [low, high)
        assert 0 <= %i - 1 < size       =>          if ...: load ...
        load ...                                else
                                                  for %i in [low, high) ...

A check within an `if` may fail in a round that does not come to it, and an index that is not linear may be farthest out
in any round. What lies between the bounds of the loop variable bounds them all: if that is inside, nothing needs to be
checked; if not, every round finds out for itself.

See also `passes.hoist_checks`, which runs before (checks that every round makes of a linear index).
"""

from __future__ import annotations

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import INT
from ..ir.builder import Builder
from ..ir.opcodes import CAST, FOR, IF, SELECT
from ..ir.program import Op, Program, Region, Value, walk
from ..ir.ranges import Ranges
from ..targets.base import Target

MAX_OPERATIONS = 200  # operations of a loop that is worth a second copy
MIN_ROUNDS = 8  # rounds of one that is not
BITS = 62  # of what is computed for a condition: so it does not wrap


def version_loops(program: Program, target: Target) -> None:
    """Gives innermost loops whose checks have to stay a second version without them."""
    for function in program.functions:
        if any("hoist" in op.attrs for op in walk(function.body)):
            _visit(function.body, Ranges(Builder(function.bounds)))
            for op in walk(function.body):
                op.attrs.pop("hoist", None)
                op.attrs.pop("unless", None)


def _visit(region: Region, ranges: Ranges) -> None:
    ops: list[Op] = []
    for op in region.ops:
        for inner in op.regions:
            _visit(inner, ranges)
        ops += _two_versions(op, ranges) if op.opcode is FOR else [op]
    region.ops = ops


def _two_versions(loop: Op, ranges: Ranges) -> list[Op]:
    """The operations that stand for a loop."""
    body = loop.regions[0]
    ops = list(walk(body))
    checks = [op for op in ops if "hoist" in op.attrs]
    low, high, step = loop.operands[:3]
    short = (
        low.const is not None and high.const is not None and high.const - low.const <= MIN_ROUNDS * (step.const or 1)
    )
    innermost = not any(op.opcode.loops or op.opcode.spreads for op in ops)
    if not checks or short or len(ops) > MAX_OPERATIONS or step.const is None or not innermost:
        return [loop]
    if any(op.opcode.reports and op not in checks for op in ops):
        return [loop]
    before = Region()
    builder = ranges.builder
    with builder.inside(before):
        builder.location = loop.location
        inside = _Spans(ranges, loop).all_inside(checks)
        if inside is None:
            return [loop]
        free = _copied(loop, {id(op) for op in checks})
        regions = (_alone(builder, free), _alone(builder, loop))
        if not loop.results:
            builder.add("if", [inside], regions=regions)
            return before.ops
        branch = Op(IF, [inside], loop.results, loop.location, {}, list(regions))
        loop.results = [Value(v.type, name=v.name) for v in branch.results]
        for result in loop.results:
            result.maker = loop
        regions[1].ops[-1].operands[:] = loop.results
    for result in branch.results:
        result.maker = branch
    return [*before.ops, branch]


def _alone(builder: Builder, loop: Op) -> Region:
    """A region of a loop, which gives what that gives."""
    region = Region([], [loop])
    with builder.inside(region):
        builder.end(loop.results)
    return region


@dataclass(frozen=True)
class _ValueSpan:
    """Values between which one lies in every round; how many bits they have at most."""

    low: Value
    high: Value
    bits: int


class _Spans:
    """Between which bounds the indices of a loop lie, as operations before it."""

    def __init__(self, ranges: Ranges, loop: Op) -> None:
        self.ranges = ranges
        self.builder = ranges.builder
        self.loop = loop
        body = loop.regions[0]
        self.inner = {v.serial for v in body.args} | {v.serial for op in walk(body) for v in op.results}
        self.found: dict[int, _ValueSpan | None] = {}

    def all_inside(self, checks: list[Op]) -> Value | None:
        """Whether no check fails in any round; None where that cannot be computed before the loop."""
        builder = self.builder
        low, high = self.loop.operands[:2]
        holds = builder.compare("ge", low, high)
        inside: Value | None = None
        for check in checks:
            index, extent = check.operands[1:3]
            span, size = self.span(index), self.span(extent)
            if span is None or size is None:
                return None
            here = builder.compare("ge", span.low, builder.int_(0))
            if check.attrs["hoist"]:
                room = builder.isub(size.low, builder.int_(check.attrs["hoist"] - 1))
                here = builder.row("and_", [here, builder.compare("lt", span.high, room)])
            inside = here if inside is None else builder.row("and_", [inside, here])
        assert inside is not None
        return builder.row("or_", [holds, inside])

    def span(self, value: Value) -> _ValueSpan | None:
        """The span of a value; None where it is not known, or might wrap."""
        if value.serial not in self.found:
            made = self._span(value)
            self.found[value.serial] = made if made is not None and made.bits <= BITS + 1 else None
        return self.found[value.serial]

    def _span(self, value: Value) -> _ValueSpan | None:
        builder = self.builder
        if value.const is not None:
            number = int(value.const)
            return _ValueSpan(builder.int_(number), builder.int_(number), number.bit_length())
        if value.serial not in self.inner:
            return _ValueSpan(value, value, self.ranges.bits(value))
        if value is self.loop.regions[0].args[0]:
            return self._counter()
        op = value.maker
        if op is None:
            return None
        if op.opcode is CAST and op.operands[0].type != INT:
            return self._by_type(op)
        if value.type != INT:
            return None
        operands = op.operands[1:] if op.opcode is SELECT else op.operands
        if op.opcode is IF:
            which = next(n for n, result in enumerate(op.results) if result is value)
            operands = [region.ops[-1].operands[which] for region in op.regions]
        spans = [self.span(v) for v in operands] if op.name in _KNOWN else []
        known = [span for span in spans if span is not None]
        return self._computed(op, known) if known and len(known) == len(spans) else None

    def _counter(self) -> _ValueSpan:
        builder = self.builder
        low, high, step = self.loop.operands[:3]
        last = self._one("sub", high, builder.int_(1))
        if step.const != 1:
            rounds = builder.idiv(self._one("sub", last, low), step)
            last = self._one("add", low, self._one("mul", rounds, step))
        return _ValueSpan(low, last, self.ranges.bits(self.loop.regions[0].args[0]))

    def _by_type(self, op: Op) -> _ValueSpan | None:
        """What was read from data lies between the bounds of its type."""
        dtype = op.operands[0].dtype
        if not dtype.is_integral() or dtype.bits > 32 or op.results[0].type != INT:
            return None
        low, high = (self.builder.int_(int(end)) for end in dtype.range)
        return _ValueSpan(low, high, dtype.bits)

    def _computed(self, op: Op, spans: list[_ValueSpan]) -> _ValueSpan | None:
        a, b = spans[0], spans[-1]
        most = max(span.bits for span in spans)
        one, two = self._one, op.operands[-1].const
        match op.name:
            case "add":
                return _ValueSpan(one("add", a.low, b.low), one("add", a.high, b.high), most + 1)
            case "sub":
                return _ValueSpan(one("sub", a.low, b.high), one("sub", a.high, b.low), most + 1)
            case "neg":
                return _ValueSpan(one("neg", a.high), one("neg", a.low), most)
            case "mul" if a.bits + b.bits <= BITS:
                ends = [one("mul", x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
                return _ValueSpan(self._joined("min", ends), self._joined("max", ends), a.bits + b.bits)
            case "min" | "max":
                return _ValueSpan(one(op.name, a.low, b.low), one(op.name, a.high, b.high), most)
            case "select" | "if":
                return _ValueSpan(one("min", a.low, b.low), one("max", a.high, b.high), most)
            case "cast":
                return a
            case "floordiv" | "udiv" if two is not None and two > 0:
                divisor = self.builder.int_(two)
                return _ValueSpan(one("floordiv", a.low, divisor), one("floordiv", a.high, divisor), a.bits)
            case "mod" | "urem" if two is not None and two > 0:
                return _ValueSpan(self.builder.int_(0), self.builder.int_(two - 1), two.bit_length())
            case _:
                return None

    def _one(self, name: str, *operands: Value) -> Value:
        """An operation on Ints; it only wraps where the loop has no rounds. Nothing is left to do for constants."""
        if all(v.const is not None for v in operands):
            numbers = [v.const for v in operands]
            folded = {
                "add": lambda: numbers[0] + numbers[1],
                "sub": lambda: numbers[0] - numbers[1],
                "mul": lambda: numbers[0] * numbers[1],
                "neg": lambda: -numbers[0],
                "min": lambda: min(numbers),
                "max": lambda: max(numbers),
                "floordiv": lambda: numbers[0] // numbers[1],
            }
            return self.builder.int_(folded[name]())
        return self.builder.row(name, operands)

    def _joined(self, name: str, values: list[Value]) -> Value:
        out = values[0]
        for value in values[1:]:
            out = self._one(name, out, value)
        return out


_KNOWN = frozenset(
    {"add", "sub", "neg", "mul", "min", "max", "select", "if", "cast", "floordiv", "udiv", "mod", "urem"}
)


# *** copies ***


def _copied(loop: Op, without: set[int]) -> Op:
    """The loop once more, with values of its own, without some operations and what was made for them alone."""
    names: dict[int, Value] = {}

    def value(old: Value) -> Value:
        return names.get(old.serial, old)

    def fresh(old: Value) -> Value:
        made = Value(old.type, const=old.const, weak=old.weak, name=old.name)
        names[old.serial] = made
        return made

    def region(old: Region) -> Region:
        args = [fresh(v) for v in old.args]
        return Region(args, [op(o) for o in old.ops if id(o) not in without])

    def op(old: Op) -> Op:
        operands = [value(v) for v in old.operands]
        regions = [region(r) for r in old.regions]
        made = Op(old.opcode, operands, [fresh(v) for v in old.results], old.location, dict(old.attrs), regions)
        for result in made.results:
            result.maker = made
        return made

    made = op(loop)
    _sweep(made.regions[0])
    return made


def _sweep(region: Region) -> None:
    """Removes what is not read."""
    used: set[int] = set()

    def visit(inner: Region) -> None:
        kept: list[Op] = []
        for op in reversed(inner.ops):
            if op.opcode.is_pure and not any(v.serial in used for v in op.results):
                continue
            for deeper in reversed(op.regions):
                visit(deeper)
            used.update(v.serial for v in op.operands)
            kept.append(op)
        inner.ops = kept[::-1]

    visit(region)
