"""Takes checks out of loops, so that these stay as fast as without them.

    for %i in [low, high)                 assert low >= high or  0 <= low - 1 < size       {the first round}
      assert 0 <= %i - 1 < size     =>    assert low >= high or  0 <= high - 2 < size      {the last one}
      load ...                            for %i in [low, high)
                                            load ...

An index that is linear in the loop variable lies inside in every round if it does in the first and the last. Only what
every round does is moved, and only `for` loops know their rounds. For the other checks see `passes.version_loops`.

See also `inference.runtime_checks`.
"""

from __future__ import annotations

from ...dsl.types.dtype import BOOL, DType, SIMDType
from ..ir.builder import Builder
from ..ir.opcodes import FOR
from ..ir.polynomials import Poly, minus, plus, split, times
from ..ir.program import Op, Program, Region, Value, walk
from ..ir.ranges import Ranges
from ..targets.base import Target

Span = tuple[Value, Value]  # the bounds of a loop that has no rounds unless low < high
TERM_BITS = 58  # of each term of an index, so that no sum of terms wraps
FLOAT = SIMDType(DType.float64)


def hoist_checks(program: Program, target: Target) -> None:
    """Moves checks of indices out of the loops whose every round does them."""
    for function in program.functions:
        if any("hoist" in op.attrs for op in walk(function.body)):
            _Hoister(Ranges(Builder(function.bounds))).region(function.body)


class _Hoister:
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.builder: Builder = ranges.builder

    def region(self, region: Region) -> None:
        """Moves the checks of a region's loops, innermost loops first."""
        ops: list[Op] = []
        for op in region.ops:
            for inner in op.regions:
                self.region(inner)
            if op.opcode is FOR:
                ops += self.lifted(op)
            ops.append(op)
        region.ops = ops

    def lifted(self, loop: Op) -> list[Op]:
        """The checks of a loop's body that can stand before the loop, as they do so."""
        body = loop.regions[0]
        checks = [op for op in body.ops if "hoist" in op.attrs]
        before = Region()
        if checks:
            inner = made_in(body)
            with self.builder.inside(before):
                for op in checks:
                    if self.lift(op, loop, inner):
                        drop(body, op)
        return before.ops

    def lift(self, op: Op, loop: Op, inner: set[int]) -> bool:
        """Adds the check for the whole loop to the region that is built; False when that cannot be."""
        low, high, step = loop.operands[:3]
        counter = loop.regions[0].args[0]
        index, extent = (self.ranges.poly(v, through=True) for v in op.operands[1:3])
        spans: tuple[Span, ...] = op.attrs.get("unless", ())
        outside = [extent, *(self.ranges.poly(v) for span in spans for v in span)]
        if any(not inner.isdisjoint(monomial) for poly in outside for monomial in poly):
            return False
        slope, rest = split(index, counter.serial)
        if slope is None or any(not inner.isdisjoint(m) for m in (*slope, *rest)) or step.const is None:
            return False
        self.builder.location = op.location
        spans = (*spans, (low, high))
        first = self.ranges.poly(low)
        last = minus(self.ranges.poly(high), {(): 1})
        if step.const != 1:
            rounds = self.builder.idiv(self.value(minus(last, first)), step)
            last = plus(first, times(self.ranges.poly(rounds), {(): step.const}))
        for end in [first, last] if slope else [first]:
            self.check(op, plus(times(slope, end), rest), extent, spans)
        return True

    def check(self, op: Op, index: Poly, extent: Poly, spans: tuple[Span, ...]) -> None:
        builder = self.builder
        at, size = self.value(index), self.value(extent)
        width = op.attrs["hoist"]
        holds = builder.compare("ge", at, builder.int_(0))
        if width:  # 0 is the start of a slice, which may lie behind the end
            room = builder.isub(size, builder.int_(width - 1))
            holds = builder.row("and_", [holds, builder.compare("lt", at, room)])
        large = [term for term in sorted(index.items()) if self.bits(*term) > TERM_BITS]
        if len(large) > 1 or any(abs(factor) != 1 or len(monomial) > 1 for monomial, factor in large):
            for term in large:  # of one number alone, what wraps is far from any index
                holds = builder.row("and_", [holds, self.is_small(*term)])
        for low, high in spans:
            bounds = [self.value(self.ranges.poly(v)) for v in (low, high)]  # made again: they may be of an inner loop
            if bounds[0].const is None or bounds[1].const is None:
                holds = builder.row("or_", [holds, builder.compare("ge", *bounds)])
            elif bounds[0].const >= bounds[1].const:
                return
        builder.add("assert", [holds, at, size], site=op.attrs["site"], hoist=width, unless=spans)

    def bits(self, monomial: tuple[int, ...], factor: int) -> int:
        """Of how many bits a term is at most."""
        return factor.bit_length() + sum(self.ranges.bits(self.ranges.atoms[serial]) for serial in monomial)

    def is_small(self, monomial: tuple[int, ...], factor: int) -> Value:
        """Whether a term is far from wrapping."""
        builder = self.builder
        term = builder.const(float(abs(factor)), FLOAT)
        for serial in monomial:
            term = builder.row("mul", [term, builder.one("cast", [self.ranges.atoms[serial]], FLOAT)])
        size = builder.row("abs", [term])
        return builder.one("lt", [size, builder.const(float(1 << TERM_BITS), FLOAT)], BOOL)

    def value(self, poly: Poly) -> Value:
        """Operations that compute a polynomial; they may wrap."""
        builder = self.builder
        total = builder.int_(0)
        for monomial, factor in sorted(poly.items()):
            fits = self.bits(monomial, factor) <= TERM_BITS
            term = builder.int_((factor + (1 << 63)) % (1 << 64) - (1 << 63))
            for serial in monomial:
                atom = self.ranges.atoms[serial]
                term = builder.imul(term, atom) if fits or term.const == 1 else builder.row("mul", [term, atom])
            total = builder.iadd(total, term) if fits or total.const == 0 else builder.row("add", [total, term])
        return total


def made_in(body: Region) -> set[int]:
    """The serials of the values that a loop's body makes."""
    inner = {v.serial for v in body.args} | {v.serial for op in walk(body) for v in op.results}
    return inner | {v.serial for op in walk(body) for region in op.regions for v in region.args}


def drop(region: Region, op: Op) -> None:
    """Removes a check, and the comparisons that were made for it alone."""
    _remove(region, op)
    makers = [v.maker for v in op.operands]
    while makers:
        maker = makers.pop()
        unused = maker is not None and maker.opcode.is_pure and not _is_used(region, maker)
        if maker is not None and unused and _remove(region, maker):
            makers += [v.maker for v in maker.operands]


def _remove(region: Region, op: Op) -> bool:
    for number, other in enumerate(region.ops):
        if other is op:
            del region.ops[number]
            return True
    return False


def _is_used(region: Region, maker: Op) -> bool:
    results = {v.serial for v in maker.results}
    return any(v.serial in results for op in walk(region) for v in op.operands)
