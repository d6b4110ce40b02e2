"""Proves things of index values: polynomials over sizes and loop variables, and that one is not negative.

Every Int value is a polynomial over atoms (values that are neither sum nor product). Facts are polynomials that are at
least 0: those that an atom has by its making (a loop variable lies between its bounds, `min(a, b)` is at most `a`), and
those that hold from some point of the program on (behind a check, in a branch), which the builder's scopes keep.

A proof replaces one atom after the other, the latest made first, by a bound that a fact gives:

    is  w*h - 1 - (w*y + x)  >= 0 ?     x <= w - 1   gives  w*h - w - w*y
                                        y <= h - 1   gives  w*h - w - w*(h - 1) = 0   yes

Arithmetic on Int wraps, and the polynomial is that of whole numbers: they agree modulo 2**64, so an index whose
polynomial is proven to lie in [0, size) lies there. Facts are about the numbers themselves; so sums and products are
looked into within facts only where they cannot wrap (see `bits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...dsl.types.dtype import BOOL, INT
from .builder import LIVE, Builder
from .opcodes import CAST, GPU_ID, IF, OPCODES, SELECT, UDIV
from .operations import ROWS
from .polynomials import Poly, combined, minus, plus, scaled, split, times
from .program import Bounds, Value

Bound = tuple[int, Poly]  # c and others, of a fact c * atom + others >= 0

MAX_TERMS = 12
FUEL = 400  # steps of one proof
DEPTH = 8
FACTS = "facts"  # the key of a scope's facts in the builder's memo
SIZE_BITS = 47  # of what a tensor's memory can have elements,
COUNTER_BITS = 60  # and of what a loop that begins below that counts to in a human's life
INT_BITS = 63  # of an Int, next to its sign

_NEGATED = {row.name: row.negated for row in ROWS.values() if row.negated}


class Ranges:
    """Facts about the values of one function."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.always: dict[int, list[Bound]] = {}
        self.counters: dict[int, tuple[int, list[Bound]]] = {}  # with how many bounds of the counter there were
        self.atoms: dict[int, Value] = {}
        self.counted: set[int] = set()
        self.widths: dict[int, int] = {}
        self.fuel = 0
        self.tried: dict[frozenset[Any], tuple[int, bool]] = {}
        self.here: dict[int, list[tuple[int, Poly]]] | None = None
        self.bounding: dict[int, list[Bound]] = {}

    # what is known

    def inside(self, index: Value, extent: Value) -> None:
        """From here on: 0 <= index < extent."""
        here = self.poly(index)
        self._hold([here, minus(minus(self.poly(extent), here), {(): 1})])

    def assume(self, test: object, outcome: bool = True) -> None:
        """From here on, in this region, the Bool `test` has this outcome."""
        if isinstance(test, Value) and test.type == BOOL:
            self._hold(list(self._meaning(test, outcome)))

    def _hold(self, facts: list[Poly]) -> None:
        scope = self.builder.memo[-1].setdefault(FACTS, [])
        scope.extend(fact for fact in facts if any(fact))

    def _meaning(self, test: Value, outcome: bool, depth: int = 0) -> Iterator[Poly]:
        op = test.maker
        if op is None or depth > DEPTH:
            return
        if op.name == ("and_" if outcome else "or_"):
            for operand in op.operands:
                yield from self._meaning(operand, outcome, depth + 1)
        elif op.name in ("not_", "invert"):
            yield from self._meaning(op.operands[0], not outcome, depth + 1)
        elif op.opcode is IF:  # `a and b`, `a or b`, and flags that say which way was taken
            number = next(n for n, result in enumerate(op.results) if result is test)
            arms = [region.ops[-1].operands[number] for region in op.regions]
            for way in (True, False):
                if arms[way].const is (not outcome):  # arms[1] is the other one: it cannot have been
                    yield from self._meaning(op.operands[0], way, depth + 1)
                    yield from self._meaning(arms[not way], outcome, depth + 1)
        elif op.name in _NEGATED and op.operands[0].type == INT:
            name = op.name if outcome else _NEGATED[op.name]
            a, b = (self.poly(v) for v in op.operands)
            if name in ("le", "lt", "eq"):
                yield minus(minus(b, a), {(): 1} if name == "lt" else {})
            if name in ("ge", "gt", "eq"):
                yield minus(minus(a, b), {(): 1} if name == "gt" else {})

    # polynomials

    def atom(self, value: Value) -> Poly:
        self.atoms[value.serial] = value
        return {(value.serial,): 1}

    def poly(self, value: Value, through: bool = False) -> Poly:
        """A value as a polynomial; `through` looks into sums of data, too."""
        if value.const is not None:
            return {(): int(value.const)} if value.const else {}
        op = value.maker
        if op is not None and op.opcode is CAST and op.operands[0].type == INT:
            return self.poly(op.operands[0], through)  # a compile-time number that adopted its type
        sums = op is not None and op.name in ("add", "sub", "mul", "neg") and value.type == INT
        sums = sums and value.serial not in self.builder.bounds  # of a thread's number its bounds say more
        if op is not None and sums and (through or self.bits(value) <= INT_BITS):
            made = combined(op.name, [self.poly(v, through) for v in op.operands])
            if len(made) <= MAX_TERMS:
                return made
        return self.atom(value)

    def bits(self, value: Value) -> int:
        """Of how many bits a value is at most; more than `INT_BITS` where it may have wrapped, or nothing is known."""
        if value.serial not in self.widths:
            self.widths[value.serial] = INT_BITS + 1  # for what is made of itself
            self.widths[value.serial] = min(self._bits(value), INT_BITS + 1)
        return self.widths[value.serial]

    def _bits(self, value: Value) -> int:
        op = value.maker
        if value.const is not None:
            return int(value.const).bit_length()
        if value.serial in self.builder.bounds:
            return self._counter_bits(self.builder.bounds[value.serial])
        if op is None or value.type != INT:
            return INT_BITS + 1
        operands = op.operands[op.opcode is SELECT :]
        if op.opcode is IF:
            number = next(n for n, result in enumerate(op.results) if result is value)
            operands = [region.ops[-1].operands[number] for region in op.regions]
        if op.opcode is CAST:
            return op.operands[0].dtype.bits if op.operands[0].dtype.is_integral() else INT_BITS + 1
        parts = [self.bits(v) for v in operands] if op.name in _WIDTHS else []
        last = operands[-1].const if parts else None
        bits = _WIDTHS[op.name](parts, last) if parts else 32 if op.opcode is GPU_ID else INT_BITS + 1
        return min(bits, SIZE_BITS + 1) if op.attrs.get("nsw") else bits  # where elements lie, and how many

    def _counter_bits(self, bounds: list[Bounds]) -> int:
        """The same of a size or a loop variable; a loop that begins low enough counts to no more in a human's life."""
        lows = min(0 if low is None else self.bits(low) for low, _, _ in bounds)
        highs = min(SIZE_BITS if high is None else self.bits(high) for _, high, _ in bounds)
        return max(lows, min(highs, COUNTER_BITS)) if lows < COUNTER_BITS else INT_BITS + 1

    def is_counted(self, value: Value, depth: int = 0) -> bool:
        """Whether a value is made of sizes, loop variables and constants alone: no data is in it."""
        if value.const is not None or value.serial in self.builder.bounds or value.serial in self.counted:
            return True
        op = value.maker
        if op is None or depth > 4 * DEPTH or op.name not in _COUNTING:
            return False
        if all(self.is_counted(v, depth + 1) for v in op.operands[op.opcode is SELECT :]):
            self.counted.add(value.serial)
            return True
        return False

    # proofs

    def is_inside(self, index: Value, extent: Value, width: int = 1) -> bool:
        """Whether 0 <= index and index + width <= extent is certain here."""
        size = self.poly(extent)
        forms = [self.poly(index, through=True), self.atom(index)]  # the second is of use where the first is a sum

        def inside(here: Poly) -> bool:
            return self.proves(here) and self.proves(minus(minus(size, here), {(): width}))

        return inside(forms[0]) or (
            forms[1] != forms[0] and bool(forms[0]) and index.const is None and inside(forms[1])
        )

    def is_at_least(self, value: Value, least: int) -> bool:
        """Whether value >= least is certain here."""
        return self.proves(minus(self.poly(value, through=True), {(): least} if least else {}))

    def proves(self, claim: Poly) -> bool:
        """Whether a polynomial is certain not to be negative; False when that cannot be seen."""
        self.fuel, self.here = FUEL, None
        self.tried.clear()
        return self._proves(claim, 0)

    def _proves(self, claim: Poly, depth: int) -> bool:
        if not any(claim):
            return claim.get((), 0) >= 0
        key = frozenset(claim.items())
        before, known = self.tried.get(key, (depth + 1, False))
        if known or before <= depth:  # what failed with as many steps to go, or is being tried, fails again
            return known
        self.fuel -= 1
        if self.fuel < 0 or depth > DEPTH or len(claim) > MAX_TERMS:
            return False
        self.tried[key] = depth, False
        self.tried[key] = depth, self._by_atoms(claim, depth)
        return self.tried[key][1]

    def _by_atoms(self, claim: Poly, depth: int) -> bool:
        for serial in sorted({atom for monomial in claim for atom in monomial}, reverse=True):
            factor, rest = split(claim, serial)
            if not factor:
                continue
            sign = self._sign(factor, depth)
            if sign and self._by_bounds(serial, factor, rest, sign, depth):
                return True
        return False

    def _sign(self, factor: Poly, depth: int) -> int:
        if not any(factor):
            return 1 if factor.get((), 0) > 0 else -1
        if self._proves(factor, depth + 1):
            return 1
        return -1 if self._proves(scaled(factor, -1), depth + 1) else 0

    def _by_bounds(self, serial: int, factor: Poly, rest: Poly, sign: int, depth: int) -> bool:
        """Whether factor * atom + rest >= 0 follows from a bound of the atom."""
        open_claims: list[list[Poly]] = []

        def follows(claims: list[Poly]) -> bool:
            """Whether that is plain; what is to be shown else waits until no bound is left that might be plain."""
            left = [claim for claim in claims if any(claim) or claim.get((), 0) < 0]
            if left and all(map(any, left)):
                open_claims.append(left)
            return not left

        quotient = self._of_quotient(serial, factor, rest, depth)
        if quotient is not None and follows([quotient]):
            return True
        for c, others in self._facts(serial, depth):
            if (c > 0) == (sign > 0):  # c * atom + others >= 0, so |c| * atom is bounded by others
                bound = scaled(others, -1 if c > 0 else 1)
                if follows([plus(times(factor, bound), scaled(rest, abs(c)))]):
                    return True
        for choices in self._choices(serial, sign):
            if follows([plus(times(factor, choice), rest) for choice in choices]):
                return True
        return any(all(self._proves(claim, depth + 1) for claim in claims) for claims in open_claims)

    def _of_quotient(self, serial: int, factor: Poly, rest: Poly, depth: int) -> Poly | None:
        """What whole numbers need for rest + a // d >= 0, or rest - a // d >= 0: nothing is lost by rounding."""
        op = self.atoms[serial].maker
        if op is None or not (op.name == "floordiv" or op.opcode is UDIV) or factor not in ({(): 1}, {(): -1}):
            return None
        part, divisor = (self.poly(v) for v in op.operands)
        if not self._proves(minus(divisor, {(): 1}), depth + 1):
            return None
        if op.opcode is UDIV and not self._proves(part, depth + 1):
            return None
        whole = times(divisor, rest)
        return plus(whole, part) if factor[()] > 0 else minus(plus(whole, minus(divisor, {(): 1})), part)

    def _facts(self, serial: int, depth: int) -> Iterator[Bound]:
        value = self.atoms[serial]
        if serial not in self.always:
            self.always[serial] = _bounds_on(serial, self._by_making(value))
        yield from self._as_counter(serial)
        yield from self.always[serial]
        yield from self._of_scopes(serial)
        yield from _bounds_on(serial, self._by_operands(value, depth))

    def _of_scopes(self, serial: int) -> list[Bound]:
        """What the facts of all scopes say of an atom. They are sorted by their atoms once a proof."""
        if self.here is None:
            self.here, self.bounding = {}, {}
            for scope in self.builder.memo:
                facts = [(-1, fact) for fact in scope.get(FACTS, ())]
                facts += [(value.serial, fact) for value in scope.get(LIVE, ()) for fact in self._counted(value)]
                for source, fact in facts:
                    for atom in {atom for monomial in fact for atom in monomial}:
                        self.here.setdefault(atom, []).append((source, fact))
        if serial not in self.bounding:
            others = (fact for source, fact in self.here.get(serial, ()) if source != serial)
            self.bounding[serial] = _bounds_on(serial, others)
        return self.bounding[serial]

    def _as_counter(self, serial: int) -> list[Bound]:
        known, bounds = self.counters.get(serial, (0, []))
        count = len(self.builder.bounds.get(serial, ()))
        if count != known:
            bounds = _bounds_on(serial, self._counted(self.atoms[serial]))
            self.counters[serial] = count, bounds
        return bounds

    def _counted(self, value: Value) -> Iterator[Poly]:
        """What is known of a loop variable or a size."""
        here = self.atom(value)
        for low, high, closed in self.builder.bounds.get(value.serial, ()):
            yield here if low is None else minus(here, self.poly(low))
            if high is not None:
                yield minus(minus(self.poly(high), here), {} if closed else {(): 1})

    def _by_making(self, value: Value) -> Iterator[Poly]:
        """What an atom is by its making, wherever it is used."""
        op, here = value.maker, self.atom(value)
        if op is None:
            return
        parts = [self.poly(v) for v in op.operands] if op.name in _BOUNDED else []
        divisor = op.operands[1].const if op.opcode.divides else None
        match op.name:
            case "min":
                yield from (minus(part, here) for part in parts)
            case "max":
                yield from (minus(here, part) for part in parts)
            case "urem":
                yield from (here, minus(minus(parts[1], here), {(): 1}))
            case "mod" if divisor is not None and divisor > 0:
                yield from (here, minus({(): divisor - 1}, here))
            case "udiv" | "floordiv" if divisor is not None and divisor > 0:
                yield minus(parts[0], scaled(here, divisor))
                yield plus(minus(scaled(here, divisor), parts[0]), {(): divisor - 1})
            case "and_":
                masks = [v.const for v in op.operands if v.const is not None and v.const >= 0]
                for mask in masks:
                    yield from (here, minus({(): mask}, here))
            case "cast" if op.operands[0].dtype.is_integral():
                low, high = op.operands[0].dtype.range
                if high < 1 << 63:
                    yield from (plus(here, {(): -low}), minus({(): high}, here))
            case "gpu_id":
                yield here
            case _:
                pass

    def _by_operands(self, value: Value, depth: int) -> Iterator[Poly]:
        """What an atom is if its operands are what can be shown of them here."""
        op = value.maker
        if op is None or not op.opcode.divides:
            return
        here, parts = self.atom(value), [self.poly(v) for v in op.operands]
        if op.name == "mod" and op.operands[1].const is None and self._proves(parts[1], depth + 1):
            yield here  # x % 0 is 0
            if self._proves(minus(parts[1], {(): 1}), depth + 1):
                yield minus(minus(parts[1], here), {(): 1})
        signs = {"udiv": parts[:1], "floordiv": parts}.get(op.name, [])
        if signs and all(self._proves(part, depth + 1) for part in signs):
            yield from (here, minus(parts[0], here))  # x // 0 is 0

    def _choices(self, serial: int, sign: int) -> Iterator[list[Poly]]:
        """What an atom is one of, or on this side bounded by one of."""
        op = self.atoms[serial].maker
        if op is None:
            return
        if op.name == ("min" if sign > 0 else "max"):
            yield [self.poly(v) for v in op.operands]
        elif op.opcode is SELECT:
            yield [self.poly(v) for v in op.operands[1:]]
        elif op.opcode is IF:
            number = next(n for n, result in enumerate(op.results) if result.serial == serial)
            yield [self.poly(region.ops[-1].operands[number]) for region in op.regions]


_BOUNDED = {"min", "max"} | {opcode.name for opcode in OPCODES.values() if opcode.divides}
_WIDTHS: dict[str, Callable[[list[int], Any], int]] = {
    "add": lambda parts, _: max(parts) + 1,
    "sub": lambda parts, _: max(parts) + 1,
    "mul": lambda parts, _: sum(parts),
    "neg": lambda parts, _: max(parts),
    "min": lambda parts, _: max(parts),
    "max": lambda parts, _: max(parts),
    "select": lambda parts, _: max(parts),
    "if": lambda parts, _: max(parts),
    "udiv": lambda parts, divisor: parts[0] + 1 - max(1, (divisor or 0).bit_length()),
    "floordiv": lambda parts, divisor: parts[0] + 2 - max(1, (divisor or 0).bit_length()),
    "urem": lambda parts, _: parts[1],
    "mod": lambda parts, _: parts[1],
    "and_": lambda parts, mask: mask.bit_length() if mask is not None and mask >= 0 else INT_BITS + 1,
}
_COUNTING = _BOUNDED | {"add", "sub", "mul", "neg", "select", "gpu_id"}  # and casts from Int to Int


def _bounds_on(serial: int, facts: Iterable[Poly]) -> list[Bound]:
    """The facts in which an atom has a number as its factor."""
    parts = (split(fact, serial) for fact in facts)
    return [(by[()], others) for by, others in parts if by and not any(by)]
