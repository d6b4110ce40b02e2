"""Builds typed programs: appends operations to a region, remembers what is computed, folds index arithmetic.

Input: opcodes by name, operands and types. Output: operations in the region that is being built. Non-goals: no
inference, and no folding beyond that of index arithmetic on constants.
"""

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

LIVE = "live"  # the key of a scope's counters in the memo


class NotPure(Exception):
    """An operation is needed where everything is to be computed at compile time."""


class Builder(Scoped):
    """Appends operations to the region that is being built, at the location that is current."""

    def __init__(self, bounds: dict[int, list[Bounds]] | None = None) -> None:
        self.region = Region()
        self._location = Location(Place("<none>", 1))
        self._late: tuple[Callable[[Any], Location], Any] | None = None  # what gives the location, where it is asked
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

    def locate(self, give: Callable[[Any], Location], node: Any) -> None:
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

    def remembered(self, key: Any) -> Any:
        """What `remember` stored under the key in this region or one around it."""
        for scope in reversed(self.memo):
            if key in scope:
                return scope[key]
        return None

    def remember(self, key: Any, value: Any) -> None:
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
        return self.add(name, operands, [type], **attrs)[0]

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

    def const(self, value: Any, type: SIMDType) -> Value:
        """A constant; one for each value and type in a region is enough."""
        key = ("const", repr(value), type)
        for scope in reversed(self.memo):  # as `remembered`
            if key in scope:
                found: Value = scope[key]
                return found
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
