"""Takes checks of loop variables and sizes out of the loops, so that these stay as fast as without them.

    for %i in [low, high)                 assert low >= high or  0 <= low - 1 < size       {the first round}
      assert 0 <= %i - 1 < size     =>    assert low >= high or  0 <= high - 2 < size      {the last one}
      load ...                            for %i in [low, high)
                                            load ...

An index that is linear in the loop variable lies inside in every round if it does in the first and the last. Only what
every round does is moved, and only `for` loops know their rounds. A tentative check that stays within a `for` is
dropped (under `checks="all"` no check is tentative); outside of loops, and in `while` loops, it is kept as it is.

Input: the region of a finished function, and what is known of its values. Output: the same region, changed. Non-goals:
no check is found to be needless here (see `guards`).
"""

from __future__ import annotations

from .program import Builder, Op, Region, Value, walk
from .ranges import Poly, Ranges, minus, plus, split, times

Span = tuple[Value, Value]  # the bounds of a loop that has no rounds unless low < high


def settle_checks(region: Region, ranges: Ranges) -> None:
    """Moves, keeps or drops every tentative check of a function."""
    if any("hoist" in op.attrs for op in walk(region)):
        _Settler(ranges).region(region, loop=None)


class _Settler:
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self.builder: Builder = ranges.builder

    def region(self, region: Region, loop: Op | None) -> None:
        """Settles what is in a region; `loop` is the loop around it, if there is one."""
        ops: list[Op] = []
        for op in region.ops:
            for number, inner in enumerate(op.regions):
                around = op if op.name in ("for", "while") else None if op.name == "parallel" else loop
                self.region(inner, around)
                if op.name == "for" and number == 0:
                    ops += self.lifted(op)
            ops.append(op)
        keep = loop is None or loop.name == "while"
        region.ops = ops
        for op in [op for op in ops if "hoist" in op.attrs]:
            if keep:
                settled(op)
            elif loop is not None and region is not loop.regions[0]:
                self.drop(region, op)

    def lifted(self, loop: Op) -> list[Op]:
        """The checks of a loop's body, as they stand before the loop; those that cannot are dropped."""
        body = loop.regions[0]
        inner = {v.serial for v in body.args} | {v.serial for op in walk(body) for v in op.results}
        inner |= {v.serial for op in walk(body) for region in op.regions for v in region.args}
        before = Region()
        for op in [op for op in body.ops if "hoist" in op.attrs]:
            with self.builder.inside(before):
                moved = self.lift(op, loop, inner)
            if not moved and any(low.const is None or high.const is None for low, high in op.attrs.get("unless", ())):
                settled(op)  # in front of an inner loop already, where it costs little
            else:
                self.drop(body, op)
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
        for low, high in spans:
            bounds = [self.value(self.ranges.poly(v)) for v in (low, high)]  # made again: they may be of an inner loop
            if bounds[0].const is None or bounds[1].const is None:
                holds = builder.row("or_", [holds, builder.compare("ge", *bounds)])
            elif bounds[0].const >= bounds[1].const:
                return
        builder.add("assert", [holds, at, size], site=op.attrs["site"], hoist=width, unless=spans)

    def value(self, poly: Poly) -> Value:
        """Operations that compute a polynomial."""
        builder = self.builder
        total = builder.int_(0)
        for monomial, factor in sorted(poly.items()):
            term = builder.int_(factor)
            for serial in monomial:
                term = builder.imul(term, self.ranges.atoms[serial])
            total = builder.iadd(total, term)
        return total

    def drop(self, region: Region, op: Op) -> None:
        """Removes a check, and the comparisons that were made for it alone."""
        _remove(region, op)
        makers = [v.maker for v in op.operands]
        while makers:
            maker = makers.pop()
            unused = maker is not None and maker.name in _COMPUTED and not _is_used(region, maker)
            if maker is not None and unused and _remove(region, maker):
                makers += [v.maker for v in maker.operands]


def settled(op: Op) -> None:
    """A check that is tentative no longer."""
    del op.attrs["hoist"]
    op.attrs.pop("unless", None)


_COMPUTED = {"and_", "or_", "ge", "lt", "add", "sub", "mul", "udiv"}


def _remove(region: Region, op: Op) -> bool:
    for number, other in enumerate(region.ops):
        if other is op:
            del region.ops[number]
            return True
    return False


def _is_used(region: Region, maker: Op) -> bool:
    results = {v.serial for v in maker.results}
    return any(v.serial in results for op in walk(region) for v in op.operands)
