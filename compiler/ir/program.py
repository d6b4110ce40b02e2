"""The typed program: static single assignment, structured, every value typed, a location on every operation.

A `Program` has one host function (the entry) whose regions hold everything; calls of the author's functions are gone
(inlined), parameters and element types are fixed. It prints as text and is checked by `verify`.

Input: `infer` builds it with a `Builder`. Output: the interpreter-independent form that `emit` turns into MLIR.
Non-goals: no inference and no optimisation beyond folding of index arithmetic on constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ...dsl.diagnostics.errors import InternalError
from ...dsl.diagnostics.places import Place
from ...dsl.frontend.program import PortableKernel
from ...dsl.types.dtype import BOOL, INT, DType, SIMDType
from .operations import ROWS
from .scoped import Scoped


@dataclass(frozen=True)
class Location:
    """Where an operation comes from: the author's text, the call that brought it here, and the function it is in."""

    place: Place
    caller: Location | None = None
    function: str = ""
    given: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)  # its arguments, for messages

    def chain(self) -> list[Place]:
        """This place and those of the calls around it, innermost first."""
        return [self.place, *(self.caller.chain() if self.caller else [])]


@dataclass(frozen=True)
class PointerType:
    """The address of elements of `dtype` in a memory space: `global`, `stack` or `shared`.

    `access` is empty for a whole buffer or storage, of which no other address exists. A pointer of the author's is
    `read-write` or `read-only`, and points anywhere into one.
    """

    dtype: DType
    space: str = "global"
    access: str = ""

    @property
    def is_whole(self) -> bool:
        return not self.access

    def __str__(self) -> str:
        words = [str(self.dtype), *([self.space] if self.is_whole or self.space != "global" else [])]
        return f"Pointer[{', '.join([*words, *(['read-only'] if self.access == 'read-only' else [])])}]"


Type = SIMDType | PointerType


_serials = itertools.count()


class Value:
    """The result of one operation, or an argument of a region or function."""

    __slots__ = ("const", "maker", "name", "origin", "serial", "type", "weak")

    def __init__(self, type: Type, *, const: Any = None, weak: str | None = None, name: str = "") -> None:
        self.serial = next(_serials)  # a name for keys; an id() may come back after its object is gone
        self.type = type
        self.const = const  # the number, when this is a scalar constant
        self.weak = weak  # "int", "float" or "bool" while the type is still open
        self.origin: frozenset[Any] = frozenset()  # the loop variables whose type it stands for, if it is open
        self.name = name
        self.maker: Op | None = None  # the operation whose result it is; None for an argument

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def simd(self) -> SIMDType:
        """The type of what is no pointer."""
        assert isinstance(self.type, SIMDType)
        return self.type

    def __repr__(self) -> str:
        return f"<{self.type} {self.const if self.const is not None else self.name}>"


@dataclass
class Region:
    """A block of operations with arguments."""

    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)


@dataclass
class Op:
    """One operation. `name` is a row's name, or one of `IRREGULAR`."""

    name: str
    operands: list[Value]
    results: list[Value]
    location: Location
    attrs: dict[str, Any] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)


# Operations that are no rows, with what they mean.
IRREGULAR: dict[str, str] = {
    "const": "a number of the result's type: attrs value",
    "cast": "the operand converted to the result's type; floats to integers truncate, saturate, and NaN gives 0",
    "bitcast": "the operand's bits as another type",
    "splat": "a scalar in every lane",
    "lanes": "scalars -> the vector of them, lane 0 first",
    "extract": "lane number attrs lane",
    "insert": "vector, scalar -> the vector with the scalar as lane number attrs lane",
    "extract_at": "vector, Int -> that lane; the number is below the width",
    "insert_at": "vector, scalar, Int -> the vector with the scalar as that lane; the number is below the width",
    "shuffle": "two vectors of one type -> their lanes by number, attrs mask; the second one's come after the first's",
    "take": "vector, unsigned lane numbers below its width -> the lanes of these numbers",
    "reduce": "vector -> its lanes combined by attrs row, lane k with lane k + half until one is left",
    "select": "condition, value if true, value if false",
    "udiv": "unsigned quotient of index arithmetic; the divisor is known not to be zero",
    "urem": "unsigned remainder of index arithmetic",
    "load": "pointer, element offset -> the element(s)",
    "store": "value, pointer, element offset",
    "store_pair": "two values of a packed type, pointer, offset of the byte that they fill",
    "atomic": "value, pointer, offset -> what was there; attrs kind (add, min, exchange, …), ordering",
    "atomic_compare_exchange": "expected, desired, pointer, offset -> what was there; equal bits; attrs ordering",
    "atomic_load": "pointer, offset -> the element; attrs ordering",
    "atomic_store": "value, pointer, offset; attrs ordering",
    "offset": "pointer, Int -> the pointer that many elements further on",
    "nowhere": "a pointer that nobody reads through",
    "masked_load": "pointer, offset, mask, other -> elements where the mask holds, lanes of other elsewhere",
    "masked_store": "value, pointer, offset, mask; the lanes where the mask holds",
    "gather": "pointer, offsets, mask, other -> the elements at these offsets (int32 or int64), as masked_load",
    "scatter": "value, pointer, offsets, mask; lane 0 first",
    "prefetch": "pointer, offset; attrs locality (0 to 3), write",
    "alloca": "storage of attrs count elements for the life of the function; attrs zeroed",
    "if": "condition; two regions that end in yield",
    "for": "low, high, step, carried values; one region (index, carried) that ends in yield",
    "while": "carried values; a region that ends in condition, and one that ends in yield",
    "yield": "ends a region with its results",
    "condition": "ends the first region of while: go on?, carried values",
    "parallel": "total, grain; a region (low, high) run for disjoint ranges that cover [0, total)",
    "launch": "grid x y z, block x y z; a region run by every thread",
    "gpu_id": "attrs which: thread_idx.x, block_dim.y, …",
    "barrier": "waits for the threads of the block",
    "assert": "condition, values to show; attrs site",
    "print": "values to show; attrs site",
    "breakpoint": "opens the debugger when interpreted; compiled code passes it",
    "note": "says what the author's variables hold, attrs names; made for the interpreter only",
}


# What operations do beyond their results.
READS = frozenset({"load", "masked_load", "gather", "atomic_load", "probe"})
WRITES = frozenset(
    {"store", "store_pair", "masked_store", "scatter", "atomic", "atomic_compare_exchange", "atomic_store"}
)
EFFECTS = WRITES | {"prefetch", "parallel", "launch", "barrier", "assert", "print", "breakpoint"}


@dataclass(frozen=True)
class Site:
    """A print, an assert, a raise or a check: what to show when it is reached.

    `parts` are literal texts and `(format, type)` of run-time values by turns. `details` tell programs of a failure: by
    name a value, or `{"value": n, "dtype": ...}` for the n-th run-time value. `notes` are texts that end in a place.
    """

    kind: str
    parts: tuple[str | tuple[str, str], ...]
    place: Place
    op: str
    details: tuple[tuple[str, Any], ...] = ()
    notes: tuple[tuple[str, Place], ...] = ()


# How a note puts a variable's value together from its operands: ("value", number of the operand),
# ("constant", object), ("tuple", parts), ("struct", name, names of the fields, parts),
# ("tensor", number of the pointer, numbers of the dims).
Form = tuple[Any, ...]


@dataclass
class Function:
    """A function of the entry's module: parameters and a body that returns nothing.

    Attributes:
        op: the op whose kernel is the root of the group, for errors.
        fused: whether kernels of several nodes are in it.
        bounds: between which values counters and sizes lie, by serial; see `Builder.counter`.
    """

    name: str
    params: list[Value]
    body: Region
    op: str = ""
    fused: bool = False
    bounds: dict[int, list[Bounds]] = field(default_factory=dict)


@dataclass
class Program:
    """Everything one entry needs. `calls` lists, in order, which function runs on which buffers and dim slots."""

    functions: list[Function] = field(default_factory=list)
    calls: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    fastmath: frozenset[str] = frozenset()
    kernels: tuple[PortableKernel, ...] = ()  # whose text the sites lie in
    stages: tuple[int, ...] = ()  # the calls before which a stage of the entry begins, the first stage aside
    one_function: bool = False  # whether entry and function are one; see `passes.small_entries`

    def stage(self, number: int) -> range:
        """The calls of a stage."""
        ends = (0, *self.stages, len(self.calls))
        return range(ends[number], ends[number + 1])


LIVE = "live"  # the key of a scope's counters in the memo
Bounds = tuple[Value | None, Value | None, bool]


class NotFusible(InternalError):
    """A group was asked for that cannot be built; the graph asks again without fusion."""


class NotPure(Exception):
    """An operation is needed where everything is to be computed at compile time."""


class Builder(Scoped):
    """Appends operations to the region that is being built, at the location that is current."""

    def __init__(self, bounds: dict[int, list[Bounds]] | None = None) -> None:
        self.region = Region()
        self.location = Location(Place("<none>", 1))
        self.fastmath: frozenset[str] = frozenset()
        self.memo: list[dict[Any, Any]] = [{}]
        self.steps = 0  # see `budget`
        self.pure = False  # whether an operation would be in vain; see `folding`
        self.bounds = {} if bounds is None else bounds  # of counters, by serial; see `counter`

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
        if self.pure and name not in ("const", "note"):
            raise NotPure
        self.steps += 1
        results = [Value(t) for t in types]
        op = Op(name, list(operands), results, self.location, attrs, list(regions))
        for result in results:
            result.maker = op
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

    def live(self, value: Value) -> None:
        """Notes that a counter has a value here: its bounds are facts about what they are made of, too."""
        self.memo[-1].setdefault(LIVE, []).append(value)

    def const(self, value: Any, type: SIMDType) -> Value:
        """A constant; one for each value and type in a region is enough."""
        key = ("const", repr(value), type)
        found = self.remembered(key)
        if isinstance(found, Value):
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
        row = ROWS[name]
        type = operands[0].type
        assert isinstance(type, SIMDType)
        result = type if row.result == "same" else type.with_dtype(DType.bool)
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


def walk(region: Region) -> Iterator[Op]:
    """Every operation of a region and of the regions within, in order."""
    for op in region.ops:
        yield op
        for inner in op.regions:
            yield from walk(inner)


def free_values(region: Region) -> list[Value]:
    """What a region uses and does not make, in order of first use."""
    made: set[int] = set()
    used: dict[int, Value] = {}

    def visit(inner: Region) -> None:
        made.update(id(v) for v in inner.args)
        for op in inner.ops:
            for value in op.operands:
                if id(value) not in made:
                    used.setdefault(id(value), value)
            for sub in op.regions:
                visit(sub)
            made.update(id(v) for v in op.results)

    visit(region)
    return list(used.values())


def captures(region: Region) -> list[Value]:
    """What a region takes from outside; constants are made again inside."""
    return [value for value in free_values(region) if value.const is None]
