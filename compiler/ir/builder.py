"""Builds typed programs: appends operations to a region, remembers what is computed, folds index arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import BOOL, INT, SIMDType
from .opcodes import CONST, NOTE, OPCODES
from .operations import ROWS
from .program import Bounds, Location, Op, PointerType, Region, Type, Value
from .scoped import Scoped

# Operations on complex numbers that are the same operation on each part: no other phase sees them.
PART_BY_PART = frozenset(
    {
        "cast",
        "const",
        "extract",
        "extract_at",
        "insert",
        "insert_at",
        "lanes",
        "reduce",
        "select",
        "shuffle",
        "splat",
        "take",
    }
)
LIVE = "live"  # the key of a scope's counters in the memo


def _is_complex(value: Value) -> bool:
    return isinstance(value.type, SIMDType) and value.type.dtype.kind == "complex"


class NotPure(Exception):
    """An operation is needed where everything is to be computed at compile time."""


class Builder(Scoped):
    """Appends operations to the region that is being built, at the location that is current."""

    def __init__(self, bounds: dict[int, list[Bounds]] | None = None) -> None:
        self.region = Region()
        self._location = Location(Place("<none>", 1))
        self._late: tuple[Callable[[object], Location], object] | None = None  # computes the location on demand
        self.fastmath: frozenset[str] = frozenset()
        self.memo: list[dict[Any, Any]] = [{}]
        self.steps = 0  # see `budget`
        self.pure = False  # whether an operation would be in vain; see `folding`
        self.bounds = {} if bounds is None else bounds  # of counters, by serial; see `counter`
        self.names: dict[int, str] = {}  # of the author's variables in launched kernels, by serial

    @property
    def location(self) -> Location:
        """Where the operations that are appended now come from."""
        if self._late is not None:
            give, node = self._late
            self._location, self._late = give(node), None
        return self._location

    @location.setter
    def location(self, location: Location) -> None:
        self._location, self._late = location, None

    def locate(self, give: Callable[[Any], Location], node: object) -> None:
        """Operations come from a node from now on: most nodes append none, so its location is made when one does."""
        self._late = give, node

    @contextmanager
    def inside(self, region: Region) -> Iterator[Region]:
        """Builds into `region`; values computed in it are forgotten by the memo at the end."""
        saved, self.region = self.region, region
        self.memo.append({LIVE: [a for a in region.args if a.serial in self.bounds]})
        try:
            yield region
        finally:
            self.region = saved
            self.memo.pop()

    @contextmanager
    def reopened(self, region: Region) -> Iterator[Op]:
        """Builds into a region that has ended, before the operation that ends it, which this gives.

        Nothing is remembered in it: what was computed since may come after the region.
        """
        saved, self.memo = self.memo, [{}]
        end = region.ops.pop()
        try:
            with self.inside(region):
                yield end
        finally:
            region.ops.append(end)
            self.memo = saved

    @contextmanager
    def apart(self, region: Region) -> Iterator[None]:
        """Appends to a region that runs before what is being built, of which nothing is known there."""
        with self.scope(memo=[{}], region=region):
            yield

    def remembered(self, key: object) -> Any:
        """What `remember` stored under the key in this region or one around it."""
        for scope in reversed(self.memo):
            if key in scope:
                return scope[key]
        return None

    def remember(self, key: object, value: object) -> None:
        self.memo[-1][key] = value

    def add(
        self,
        name: str,
        operands: Sequence[Value],
        types: Sequence[Type] = (),
        regions: Sequence[Region] = (),
        **attrs: Any,
    ) -> list[Value]:
        """Appends an operation and returns its results."""
        opcode = OPCODES[name]
        if self.pure and opcode is not CONST and opcode is not NOTE:
            raise NotPure
        self.steps += 1
        results: list[Value] = []
        op = Op(opcode, list(operands), results, self.location, attrs, list(regions))
        for type in types:
            result = Value(type)
            result.maker = op
            results.append(result)
        self.region.ops.append(op)
        return results

    def one(self, name: str, operands: Sequence[Value], type: Type, **attrs: Any) -> Value:
        """Appends an operation with one result."""
        if type.dtype.kind == "complex" and name in PART_BY_PART:
            return self._of_parts(name, operands, type, attrs)
        return self.add(name, operands, [type], **attrs)[0]

    # *** complex numbers ***

    def _of_parts(self, name: str, operands: Sequence[Value], type: Type, attrs: dict[str, Any]) -> Value:
        """A complex number made by one operation on the real parts, and the same one on the imaginary parts."""
        assert isinstance(type, SIMDType)
        own = type.with_dtype(type.dtype.part)
        parts = []
        for which in ("real", "imag"):
            own_attrs = attrs
            if name == "const":
                own_attrs = {"value": getattr(complex(attrs["value"]), which)}
            taken = [self.part(v, which) if _is_complex(v) or name == "cast" else v for v in operands]
            if name == "cast" and taken[0].type == own and taken[0].weak is None:
                parts.append(taken[0])
            else:
                parts.append(self.one(name, taken, own, **own_attrs))
        return self.complex(parts[0], parts[1])

    def complex(self, real: Value, imag: Value) -> Value:
        """The complex number of two parts of one type."""
        type = real.simd
        made = self.one("complex", [real, imag], type.with_dtype(type.dtype.complex_dtype))
        if real.const is not None and imag.const is not None:
            made.const = complex(real.const, imag.const)
        return made

    def part(self, value: Value, which: str) -> Value:
        """The real or the imaginary part of a number, complex or not: `which` is `real` or `imag`."""
        type = value.simd
        if not type.dtype.is_complex():
            zero = False if type.dtype.kind == "bool" else 0.0 if type.dtype.is_float() else 0
            return value if which == "real" else self.const(zero, type)
        if value.maker is not None and value.maker.name == "complex":
            return value.maker.operands[which == "imag"]
        key = (which, value.serial)
        result: Value | None = self.remembered(key)
        if result is None:
            result = self.one(which, [value], type.with_dtype(type.dtype.part))
            self.remember(key, result)
        return result

    def counter(
        self, value: Value, low: Value | None = None, high: Value | None = None, *, closed: bool = False
    ) -> Value:
        """Notes that `value` is a size or a loop variable with low (or 0) <= value < high (<= high if `closed`)."""
        self.bounds.setdefault(value.serial, []).append((low, high, closed))
        return value

    def live(self, value: Value) -> Value:
        """Notes that a counter has a value here: its bounds are facts about what they are made of, too."""
        self.memo[-1].setdefault(LIVE, []).append(value)
        return value

    def know(self, const: Op) -> None:
        """Notes that a constant of the region may be used from here on."""
        (result,) = const.results
        self.remember(("const", repr(const.attrs["value"]), result.type), result)

    def const(self, value: object, type: SIMDType) -> Value:
        """A constant; one for each value and type in a region is enough."""
        key = ("const", repr(value), type)
        for scope in reversed(self.memo):  # as `remembered`
            if key in scope:
                result: Value = scope[key]
                return result
        made = self.one("const", [], type, value=value)
        if type.is_scalar:
            made.const = value
        self.remember(key, made)
        return made

    def int_(self, value: int) -> Value:
        return self.const(value, INT)

    def row(self, name: str, operands: Sequence[Value]) -> Value:
        """A regular operation on operands of one type."""
        type = operands[0].type
        assert isinstance(type, SIMDType)
        result = ROWS[name].result_type(type)
        attrs = {"fastmath": self.fastmath} if self.fastmath and type.dtype.is_float() else {}
        return self.one(name, operands, result, **attrs)

    def advance(self, pointer: Value, offset: Value, access: str = "") -> Value:
        """The address some elements further on, as a pointer of the author's."""
        type = pointer.type
        assert isinstance(type, PointerType)
        return self.one("offset", [pointer, offset], PointerType(type.dtype, type.space, access or type.access))

    # Index arithmetic: on Int, never wraps in a correct program, and folds on constants.

    def iadd(self, a: Value, b: Value) -> Value:
        if a.const is not None and b.const is not None:
            return self.int_(a.const + b.const)
        if a.const == 0:
            return b
        return a if b.const == 0 else self.one("add", [a, b], INT, nsw=True)

    def isub(self, a: Value, b: Value) -> Value:
        if a.const is not None and b.const is not None:
            return self.int_(a.const - b.const)
        return a if b.const == 0 else self.one("sub", [a, b], INT, nsw=True)

    def imul(self, a: Value, b: Value) -> Value:
        if a.const is not None and b.const is not None:
            return self.int_(a.const * b.const)
        if a.const == 1:
            return b
        if b.const == 1:
            return a
        if a.const == 0 or b.const == 0:
            return self.int_(0)
        return self.one("mul", [a, b], INT, nsw=True)

    def idiv(self, a: Value, b: Value) -> Value:
        """a // b for a >= 0 and b > 0."""
        if b.const == 1:
            return a
        if a.const is not None and b.const:
            return self.int_(a.const // b.const)
        return self.one("udiv", [a, b], INT)

    def irem(self, a: Value, b: Value) -> Value:
        """a % b for a >= 0 and b > 0."""
        if b.const == 1:
            return self.int_(0)
        if a.const is not None and b.const:
            return self.int_(a.const % b.const)
        return self.one("urem", [a, b], INT)

    def compare(self, name: str, a: Value, b: Value) -> Value:
        return self.one(name, [a, b], BOOL)

    def product(self, values: Sequence[Value]) -> Value:
        """The product of dims; 1 for none."""
        out = self.int_(1)
        for value in values:
            out = self.imul(out, value)
        return out

    def for_loop(self, low: Value, high: Value, step: Value | None = None) -> Region:
        """A loop without carried values; build into the region that comes back, then close it with `end`."""
        index = Value(INT)
        self.counter(index, low, high)
        region = Region([index])
        self.add("for", [low, high, step or self.int_(1)], regions=[region])
        return region

    def end(self, values: Sequence[Value] = ()) -> None:
        """Ends the region that is being built."""
        self.add("yield", values)
