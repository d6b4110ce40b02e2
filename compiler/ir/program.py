"""The typed program: static single assignment, structured, every value typed, a location on every operation.

A `Program` has functions whose regions hold everything; calls of the author's functions are gone (inlined), parameters
and element types are fixed. What an operation is and does stands in its `Opcode`, one record each (see `opcodes`).

See also `verifier`.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import IntEnum
from typing import Any

from ...dsl.contract.unit import Size, Step, groups_in
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ...dsl.diagnostics.places import Place, is_shipped
from ...dsl.frontend.program import PortableKernel
from ...dsl.types.dtype import DType, SIMDType
from .operations import OperationRow


@dataclass(unsafe_hash=True)  # frozen ones take three times as long to make, and there is one for every operation
class Location:
    """Where an operation comes from: the author's text, the call that brought it here, and the function it is in.

    Never changed.
    """

    place: Place
    caller: Location | None = None
    function: str = ""
    given: tuple[tuple[str, Any], ...] = field(default=(), compare=False, repr=False)  # its arguments, for messages

    def chain(self) -> list[Place]:
        """This place and those of the calls around it, innermost first."""
        return [self.place, *(self.caller.chain() if self.caller else [])]

    def author(self) -> list[Place]:
        """The same without the library's own places, unless there is nothing else."""
        chain = self.chain()
        return [place for place in chain if not is_shipped(place.file)] or chain


@dataclass(frozen=True)
class PointerType:
    """The address of elements of `dtype` in a memory space: `global`, `stack`, `shared`, or `cluster`, which is
    the shared memory of a block of the cluster. One in the space `map` is that of a description of a tensor of such
    elements, by which hardware copies parts of it.

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

    __slots__ = ("const", "maker", "name", "origin", "serial", "sums", "type", "weak")

    def __init__(self, type: Type, *, const: Any = None, weak: str | None = None, name: str = "") -> None:
        self.serial = next(_serials)  # a name for keys; an id() may come back after its object is gone
        self.type = type
        self.const = const  # the number, when this is a scalar constant
        self.weak = weak  # "int", "float" or "bool" while the type is still open
        self.origin: frozenset[object] = frozenset()  # the loop variables whose type it stands for, if it is open
        self.sums: DType | None = None  # the dtype of the numbers that it adds up; see `inference.accumulators`
        self.name = name
        self.maker: Op | None = None  # the operation whose result it is; None for an argument

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def simd(self) -> SIMDType:
        """The type of what is not a pointer."""
        assert isinstance(self.type, SIMDType)
        return self.type

    def __repr__(self) -> str:
        return f"<{self.type} {self.const if self.const is not None else self.name}>"


@dataclass
class Region:
    """A block of operations with arguments."""

    args: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)


class Scope(IntEnum):
    """A set of a grid's threads, each within the next one; `none` holds no two threads."""

    none = 0
    warp = 1
    block = 2
    cluster = 3
    grid = 4


@dataclass(frozen=True)
class TypeKind:
    """A kind of types that an operand or a result may have."""

    words: str  # `an Int`, for messages
    takes: Callable[[Type], bool]


@dataclass(frozen=True)
class OpAttribute:
    """An attribute of an operation.

    Attributes:
        takes: which Python objects it may be.
        required: whether it has to be there.
        shown: whether it is printed.
        decided: whether a pass has decided it: it changes nothing of what the program means (see `schedule`).
    """

    takes: Callable[[object], bool]
    required: bool = True
    shown: bool = True
    decided: bool = False


@dataclass(frozen=True)
class RegionForm:
    """The form of a region: the kinds of its first arguments, whether more may follow, and the operation it ends in."""

    args: tuple[TypeKind, ...] = ()
    carries: bool = False
    ends: str = "yield"


@dataclass(frozen=True, eq=False)
class Opcode:
    """What one kind of operations is: what it takes and gives, what it does beyond its results, and what is checked.

    A new effect is a field here with a default, and its name in the rows of `opcodes` that have it.

    Attributes:
        name: the key of typing, lowering, interpretation and printing.
        meaning: operands -> results, in a sentence.
        operands: their kinds; `more` is the kind of any number of further ones.
        results: their kinds; with `gives_more` any number of further ones.
        attrs: by name, those that it may have.
        regions: the forms of its regions.
        rule: the verifier's rule for what kinds do not say; the problem, or None.
        row: what a regular operation means and how it is typed and spelled.
        reads, writes: whether it reads or writes memory.
        reports: whether the host gets to know of it, and may end the kernel: what is before it has to have happened.
        hints: whether it is there for its speed, or for a debugger: no result, no memory, but not to be dropped.
        waits: the scope whose threads wait in it for each other, so that they all have to come to it together; a
            function of the operation, where an attribute says so (see `Op.waits`).
        convergent: the scope whose threads all have to come to it, although none of them waits there.
        spreads: whether its region runs on threads of their own, with a stack of their own.
        loops: whether its regions run any number of times, one after the other.
        allocates: whether each one is storage of its own.
        divides: whether it divides: dear, and in index arithmetic wrong for a divisor of 0.
        lanewise: whether lane k of the result is made of lane k of the operands, or of scalars, and of nothing else.
        crosses_lanes: whether it moves numbers from one lane to another.
        masked: whether it accesses memory lane by lane, under a mask.
        uniform: the widest scope whose threads have equal results where their operands are equal (where threads wait,
            whatever their operands are); a function of the operation, where an attribute says so. What is read from
            memory depends on its writers, too: see `ir.scopes`.
        within: the operation that has to be around it.
    """

    name: str
    meaning: str
    operands: tuple[TypeKind, ...] = ()
    results: tuple[TypeKind, ...] = ()
    more: TypeKind | None = None
    gives_more: bool = False
    attrs: Mapping[str, OpAttribute] = field(default_factory=dict)
    regions: tuple[RegionForm, ...] = ()
    rule: Callable[[Op], str | None] | None = None
    row: OperationRow | None = None
    reads: bool = False
    writes: bool = False
    reports: bool = False
    hints: bool = False
    waits: Scope | Callable[[Op], Scope] = Scope.none
    convergent: Scope = Scope.none
    spreads: bool = False
    loops: bool = False
    allocates: bool = False
    divides: bool = False
    lanewise: bool = False
    crosses_lanes: bool = False
    masked: bool = False
    uniform: Scope | Callable[[Op], Scope] = Scope.grid
    within: str = ""
    ends: bool = False  # whether it is the last operation of a region
    accesses: bool = field(init=False)  # whether it reads or writes memory
    has_effects: bool = field(init=False)  # whether it does anything beyond its results
    is_pure: bool = field(init=False)  # whether it is nothing but its results: may be moved, dropped and done twice
    is_safe: bool = field(init=False)  # whether it is pure and may be done where its result is not wanted

    def __post_init__(self) -> None:
        def derive(name: str, value: bool) -> None:
            object.__setattr__(self, name, value)

        derive("accesses", self.reads or self.writes)
        derive(
            "has_effects",
            self.writes or self.reports or self.hints or bool(self.waits) or self.spreads or bool(self.convergent),
        )
        inert = not (self.has_effects or self.reads or self.regions or self.allocates or self.ends)
        derive("is_pure", inert)
        derive("is_safe", inert and not self.divides)

    def __repr__(self) -> str:
        return f"<opcode {self.name}>"


@dataclass(eq=False, slots=True)
class Op:
    """One operation."""

    opcode: Opcode
    operands: list[Value]
    results: list[Value]
    location: Location
    attrs: dict[str, Any] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.opcode.name

    @property
    def waits(self) -> Scope:
        """The scope whose threads have to come to it together."""
        scope = self.opcode.waits
        return scope if isinstance(scope, Scope) else scope(self)

    @property
    def convergent(self) -> Scope:
        """The scope whose threads all have to come to it, whether they wait for each other or not."""
        return self.opcode.convergent or self.waits

    @property
    def uniform(self) -> Scope:
        """The widest scope whose threads have equal results where their operands are equal."""
        scope = self.opcode.uniform
        return scope if isinstance(scope, Scope) else scope(self)


@dataclass(frozen=True)
class Site:
    """A print, an assert, a raise or a check: what to show when it is reached.

    `parts` are literal texts and `(format, type)` of run-time values by turns. `details` describe a failure to
    programs: by name a value, or `{"value": n, "dtype": ...}` for the n-th run-time value. `notes` are texts that end
    in a place.
    """

    kind: str
    parts: tuple[str | tuple[str, str], ...]
    place: Place
    op: str
    details: tuple[tuple[str, Any], ...] = ()
    notes: tuple[tuple[str, Place], ...] = ()

    @property
    def dtypes(self) -> dict[int, str]:
        """The names of the dtypes of its run-time values, by their numbers."""
        texts = [part[1] for part in self.parts if not isinstance(part, str)]
        results = dict(enumerate(texts))
        details = [value for _, value in self.details]
        while details:
            detail = details.pop()
            if isinstance(detail, list):
                details += detail
            elif isinstance(detail, dict):
                results[detail["value"]] = detail["dtype"]
        return results


Bounds = tuple[Value | None, Value | None, bool]  # low (or 0) <= value < high; the same up to high where it is True


# What a launch requests first, as the operands of an `enqueue`: for messages.
LAUNCH_SIZES = ("blocks along x", "blocks along y", "blocks along z", "bytes of dynamic shared memory")


def of_clusters(words: str, size: int) -> str:
    """What a launch requests whose grid is not a whole number of clusters along an axis; the number of its blocks
    follows."""
    return f"clusters of {size} {words}, and its grid has "


@dataclass(frozen=True)
class LaunchBounds:
    """How a kernel of a device is launched: the sizes of its blocks and clusters, where, and limits of registers
    of a thread and of blocks that a multiprocessor holds."""

    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    location: Location
    max_registers: int | None = None
    min_blocks: int | None = None

    @property
    def wishes(self) -> dict[str, Any]:
        """By name what the kernel's code has to know of it: cluster, max_registers, min_blocks."""
        limits = {"max_registers": self.max_registers, "min_blocks": self.min_blocks}
        cluster = {} if self.cluster == (1, 1, 1) else {"cluster": self.cluster}
        return cluster | {name: value for name, value in limits.items() if value is not None}


@dataclass
class ProgramFunction:
    """A function of the entry's module: parameters and a body that returns nothing.

    Attributes:
        op: the op whose kernel is the root of the group, for errors.
        fused: whether kernels of several nodes are in it.
        bounds: between which values counters and sizes lie, by serial; see `Builder.counter`.
        launched: of a kernel of a device how it is launched. Its body, which every thread runs, uses constants of the
            host's code, and its parameters are what it takes from there (see `passes.host_and_device`).
        names: the author's variables that values of launched kernels were first given to, by serial, for messages.
    """

    name: str
    params: list[Value]
    body: Region
    op: str = ""
    fused: bool = False
    bounds: dict[int, list[Bounds]] = field(default_factory=dict)
    launched: LaunchBounds | None = None
    names: dict[int, str] = field(default_factory=dict)


@dataclass
class Program:
    """Everything one entry needs. `calls` lists which function runs on which buffers, with which sizes."""

    functions: list[ProgramFunction] = field(default_factory=list)
    calls: list[tuple[int, tuple[int, ...], tuple[Size, ...]]] = field(default_factory=list)
    passed: list[tuple[int, ...]] = field(default_factory=list)  # the numbers that each call passes, where some do
    sites: list[Site] = field(default_factory=list)
    fastmath: frozenset[str] = frozenset()
    kernels: tuple[PortableKernel, ...] = ()  # whose text the sites lie in
    stages: tuple[int, ...] = ()  # the calls before which a stage of the entry begins, the first stage aside
    one_function: bool = False  # whether entry and function are one; see `passes.merge_small_entry`
    traced: bool = False  # whether the entry reports when a call begins and ends
    steps: tuple[Step, ...] = ()  # when which call is made; each once, in their order, if there are none
    on_device: bool = False  # whether buffers lie in memory of a device, and kernels are launched there

    def stage(self, number: int) -> list[Step]:
        """What a stage does: calls by their numbers, and control flow over them."""
        results: list[Step] = []
        stage = 0
        for step in self.steps or range(len(self.calls)):
            first = next(groups_in([step]), None)  # what calls nothing stays with what is before it
            stage = stage if first is None else bisect.bisect_right(self.stages, first)
            results += [step] if stage == number else []
        return results


def walk(region: Region) -> Iterator[Op]:
    """Every operation of a region and of the regions within, in order."""
    left: list[Region | Iterator[Op]] = [region]
    while left:
        last = left[-1]
        if isinstance(last, Region):
            last = left[-1] = iter(last.ops)
        for op in last:
            yield op
            if op.regions:
                left += reversed(op.regions)
                break
        else:
            left.pop()


def has_reports(region: Region) -> bool:
    """Whether an operation of a region reports."""
    return any(op.opcode.reports for op in walk(region))


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
    return [v for v in free_values(region) if v.const is None]


def count_operations(region: Region) -> int:
    """How many operations a region holds, inner ones included."""
    return sum(1 for _ in walk(region))


class NotFusible(InternalError):
    """Groups were requested that cannot be built; the graph splits them and retries.

    `groups` are their numbers in the unit.
    """

    def __init__(self, message: str, groups: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.groups = tuple(groups)
