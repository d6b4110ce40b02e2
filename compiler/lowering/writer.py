"""Writes the text of MLIR functions: lines, names, types, constants, places, and the table of emitters.

A family of operations is a file: it imports this one and registers a function for each of its opcodes.

    @emits("splat")
    def _splat(w: FunctionWriter, op: Op) -> None: ...

See also `lowering.module` (which functions there are).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...dsl.contract.abi import TENSOR_MAP_SIZE
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ...dsl.diagnostics.places import Place
from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Location, Op, PointerType, Region, Scope, Site, Type, Value
from ..ir.schedule import EXIT, HINT
from ..ir.simulation import BEGIN, PARTED, SUSPEND, WAITING
from ..targets import Target
from .types import literal, mlir_type

Emitter = Callable[["FunctionWriter", Op], None]

EMITTERS: dict[str, Emitter] = {}  # by opcode; the families fill it, and `lowering.module` checks that none is missing


def emits(*opcodes: str) -> Callable[[Emitter], Emitter]:
    """Registers the function that writes these operations."""

    def register(emitter: Emitter) -> Emitter:
        for opcode in opcodes:
            if opcode in EMITTERS:
                raise InternalError(f"two functions emit '{opcode}'")
            EMITTERS[opcode] = emitter
        return emitter

    return register


# Writes a regular operation that has no MLIR operation of its own, on operands of a type; gives the name of the result.
Expansion = Callable[["FunctionWriter", list[str], SIMDType], str]

EXPANSIONS: dict[str, Expansion] = {}  # by the name that rows give it, after `=`


def expands(*names: str) -> Callable[[Expansion], Expansion]:
    """Registers the function that a row names with `=`."""

    def register(expansion: Expansion) -> Expansion:
        for name in names:
            if name in EXPANSIONS:
                raise InternalError(f"two functions expand '{name}'")
            EXPANSIONS[name] = expansion
        return expansion

    return register


@dataclass(frozen=True)
class KernelInfo:
    """A GPU kernel of a module: its symbol, its block, the types of its parameters, and what it does with each.

    `shared` are the bytes of its own shared memory.
    """

    symbol: str
    block: tuple[int, int, int]
    parameters: tuple[str, ...]
    accesses: tuple[str, ...] = ()
    shared: int = 0


DYNAMIC_SHARED = "dynamic_shared"
ALLOCATE, RELEASE = "ek.allocate", "ek.release"  # functions of `lowering.run_time_storage`

LEAVE = f"llvm.call @{EXIT}() : () -> ()"  # the last operation of a block: the function returns

_WAY_OUT = re.compile(rf"llvm\.return|llvm\.call @{re.escape(EXIT)}\(")

# Functions that are called to mark a place.
_MARK = re.compile(rf"@({'|'.join(map(re.escape, (EXIT, BEGIN, SUSPEND)))}|{re.escape(HINT)}\w+)\(")


class ModuleWriter:
    """Collects the functions of a module, its GPU kernels, and the table of places.

    `first_site` is a symbol whose value is the number of the module's first site; empty where that is 0.
    """

    def __init__(self, target: Target, first_site: str = "", sites: list[Site] | None = None) -> None:
        self.target = target
        self.op = ""  # the op whose kernels are written
        self.first_site = first_site
        self.functions: list[str] = []
        self.kernels: list[KernelInfo] = []
        self.locations: dict[tuple[Place, int | None, str], int] = {}  # by place, number of the caller's, and function
        self.numbers: dict[int, int] = {}  # of locations, by identity: the program keeps them
        self.task_count = 0
        self.sites = [] if sites is None else sites  # the program's; emission adds those where threads may part
        self.declared: dict[str, str] = {}
        self.shared_count = 0

    def declare(self, function: str, type: str) -> None:
        """Declares a function that another module has."""
        self.declared[function] = type

    def parting(self, op: Op) -> int:
        """The site of a report that threads part at an operation for which they wait."""
        own, *calls = op.location.author()
        notes = tuple(("called from", place) for place in calls)
        parts: tuple[str | tuple[str, str], ...] = PARTED
        if op.waits is Scope.cluster:
            parts = ("the threads of the cluster of block (", *PARTED[1:])
        self.sites.append(Site("parted", parts, own, self.op, (), notes))
        return len(self.sites) - 1

    def waiting(self, op: Op) -> int:
        """The site of a report that no thread of a launch can continue."""
        own, *calls = op.location.author()
        notes = tuple(("called from", place) for place in calls)
        self.sites.append(Site("waiting", (), own, self.op, WAITING, notes))
        return len(self.sites) - 1

    def access(self, op: Op, what: str, *more: str) -> int:
        """The site of what a thread does with memory, of what it decides by what it read, or of what it promises."""
        own, *calls = op.location.author()
        notes = tuple(("called from", place) for place in calls)
        self.sites.append(Site("memory", (what, op.location.function, *more), own, self.op, (), notes))
        return len(self.sites) - 1

    def location(self, location: Location) -> str:
        """` loc(#locN)` for an operation."""
        return f" loc(#loc{self._number(location)})"

    def _number(self, location: Location) -> int:
        """The number of a location, and of what is equal to it: compared by its caller's number, not by all calls."""
        known = self.numbers.get(id(location))
        if known is None:
            caller = None if location.caller is None else self._number(location.caller)
            known = self.locations.setdefault((location.place, caller, location.function), len(self.locations))
            self.numbers[id(location)] = known
        return known

    def calls(self, function: str) -> bool:
        """Whether any function that is written so far calls this one."""
        return any(f"{function}(" in text for text in self.functions)

    def shared(self, size: int, alignment: int) -> str:
        """The symbol of so many bytes that the threads of a block share."""
        symbol = f"shared_{self.shared_count}"
        self.shared_count += 1
        self._share("internal", symbol, -(-size // 4) * 4, alignment)  # narrow atomics are done on whole words
        return symbol

    def dynamic_shared(self, alignment: int = 16) -> str:
        """A symbol of the shared memory that a launch requests: there is one for each alignment."""
        symbol = DYNAMIC_SHARED if alignment == 16 else f"{DYNAMIC_SHARED}_{alignment}"
        if not any(f"@{symbol}(" in text for text in self.functions):
            self._share("external", symbol, 0, alignment)
        return symbol

    def constants(self, data: bytes) -> str:
        """The symbol of constant bytes."""
        symbol = f"constants_{hashlib.sha256(data).hexdigest()[:16]}"
        if not any(f"@{symbol}(" in text for text in self.functions):
            attributes = f"addr_space = {self.target.spaces.number('global')} : i32, alignment = 16 : i64"
            text = "".join(f"\\{byte:02X}" for byte in data)
            self.functions.append(
                f'  llvm.mlir.global internal constant @{symbol}("{text}") {{{attributes}}}'
                f" : !llvm.array<{len(data)} x i8>\n"
            )
        return symbol

    def _share(self, linkage: str, symbol: str, size: int, alignment: int) -> None:
        space = self.target.spaces.number("shared")
        attributes = f"addr_space = {space} : i32, alignment = {alignment} : i64"
        self.functions.append(f"  llvm.mlir.global {linkage} @{symbol}() {{{attributes}}} : !llvm.array<{size} x i8>\n")

    def type(self, type: Type) -> str:
        """How MLIR writes a type."""
        return self.pointer(type.space) if isinstance(type, PointerType) else mlir_type(type)

    def pointer(self, space: str) -> str:
        """How MLIR writes a pointer into a space of the target."""
        number = self.target.spaces.number(space)
        return f"!llvm.ptr<{number}>" if number else "!llvm.ptr"

    def text(self) -> str:
        """The whole module."""
        marks = sorted({mark for function in self.functions for mark in _MARK.findall(function)})
        declared = dict.fromkeys(marks, "()") | self.declared
        heads = [f"  llvm.func @{function}{type}\n" for function, type in declared.items()]
        parts = ["module {\n", *self.functions, *heads, "} loc(unknown)\n"]
        for (place, caller, _), number in self.locations.items():
            file = place.file.replace("\\", "\\\\").replace('"', '\\"')
            here = f'"{file}":{place.line}:{place.column}'
            if caller is None:
                parts.append(f"#loc{number} = loc({here})\n")
            else:
                parts.append(f"#loc{number} = loc(callsite({here} at #loc{caller}))\n")
        return "".join(parts)


class Names:
    """Numbers the values of one LLVM function."""

    def __init__(self) -> None:
        self.count = 0
        self.names: dict[int, str] = {}
        self.kept: list[Value] = []  # ids stay unique as long as the values live

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def set(self, value: Value, name: str) -> None:
        self.names[id(value)] = name
        self.kept.append(value)


@dataclass(frozen=True, eq=False)
class TensorState:
    """Where a kernel keeps the state of products in tensor memory; see `lowering.tensor_matrices`.

    Attributes:
        base: the address of its columns.
        columns: their number.
        products: the barriers that products arrive at, and how many there were.
        block: the sizes of the block.
    """

    base: str
    columns: int
    products: BulkState
    block: tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class BulkState:
    """Where a kernel that makes bulk copies keeps the state of them; see `lowering.bulk_copies`.

    Attributes:
        ring: the first of its barriers.
        issued, done: how many copies the thread has come to, and how many it has seen to end.
        ends: how many it had come to as the newest groups were committed, one more than a wait leaves under way.
    """

    ring: str
    issued: str
    done: str
    ends: Sequence[str]


class FunctionWriter:
    """Writes one LLVM function."""

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.target = module.target
        self.thread = ""  # the record of the thread that runs the function; see `lowering.coroutines`
        self.shared_bytes = 0  # of the block that it is in
        self.ring = ""  # where a kernel reports, if no context is at hand; see `lowering.report_rings`
        self.missed: set[int] = set()  # assertions whose failure ends a kernel, for the same
        self.exchanges = False  # whether threads of a warp give each other values
        self.scratch = ""  # where it keeps how much of the device's memory it has given out; see `lowering.scratch`
        self.sizing = False  # whether it does nothing but sum that up
        self.slots = ""  # of its storage of run-time size; see `lowering.run_time_storage`
        self.slot_count = 0
        self.fuel = ""  # where it keeps what is left of its fuel; see `lowering.polls`
        self.names = Names()
        self.lines: list[str] = []
        self.prologue: list[str] = []  # lines before all others: storage, what parameters are read from
        self.indent = "    "
        self.at = ""  # the place of the operation that is being written
        self.emit: Emitter | None = None  # instead of `EMITTERS`; see `lowering.spins`
        self.most_pending = 0  # groups of copies that a wait of it leaves under way
        self.bulk: BulkState | None = None  # of a kernel that makes bulk copies
        self.tensor: TensorState | None = None  # of products in tensor memory
        self.written: Sequence[Value] = ()  # the parameters of a kernel whose memory it writes
        self.orders_matrices = False  # whether matrix instructions read what threads have written, behind a barrier
        self.spin_depth = 0  # loops around in which the thread waits for others

    # lines

    def line(self, text: str) -> None:
        self.lines.append(f"{self.indent}{text}{self.at}\n")

    def op(self, text: str, results: int = 1) -> str:
        """An operation with a result; returns its name. Those of several results are `name#0`, `name#1`, …."""
        name = self.names.fresh()
        self.line(f"{name} = {text}" if results == 1 else f"{name}:{results} = {text}")
        return name

    def open(self, text: str) -> None:
        """The head of a block, which has no place: that of the operation stands behind the block."""
        self.lines.append(f"{self.indent}{text}\n")

    def close(self, at: str = "") -> None:
        """The end of a block, with the place of the operation that it belongs to."""
        self.lines.append(f"{self.indent}}}{at}\n")

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.indent += "  "
        yield
        self.indent = self.indent[:-2]

    # names, types, constants

    def name(self, value: Value) -> str:
        """The name of a value; constants from outside are made again on the spot."""
        entry = self.names.names.get(id(value))
        if entry is None:
            if value.const is None:
                raise InternalError("a value is used before it is made")
            entry = self.constant(value.const, value.simd)  # not kept: the next use may be in another region
        return entry

    def bind(self, value: Value, name: str) -> None:
        """Gives a value its name."""
        self.names.set(value, name)

    def result(self, op: Op, name: str) -> None:
        """Gives the one result of an operation its name."""
        self.names.set(op.results[0], name)

    def bind_results(self, op: Op) -> str:
        """`%v7:2 = ` for the results of a structured operation, with their names bound."""
        if not op.results:
            return ""
        base = self.names.fresh()
        if len(op.results) == 1:
            self.bind(op.results[0], base)
            return f"{base} = "
        for number, result in enumerate(op.results):
            self.bind(result, f"{base}#{number}")
        return f"{base}:{len(op.results)} = "

    def constant(self, value: Any, type: SIMDType) -> str:
        """A number in every lane."""
        if type.dtype.kind == "complex":
            part = type.with_dtype(type.dtype.part)
            return self.joined(self.constant(value.real, part), self.constant(value.imag, part), type)
        return self.op(f"arith.constant {literal(value, type)}")

    def joined(self, real: str, imag: str, type: SIMDType) -> str:
        """The complex number, or the vector of them, of two parts."""
        text = mlir_type(type)
        half = self.op(f"llvm.insertvalue {real}, {self.op(f'llvm.mlir.undef : {text}')}[0] : {text}")
        return self.op(f"llvm.insertvalue {imag}, {half}[1] : {text}")

    def select(self, test: str, a: str, b: str, type: SIMDType) -> str:
        """`a` in the lanes where the test holds, `b` in the others."""
        text = mlir_type(type)
        tests = f"{mlir_type(type.with_dtype(DType.bool))}, " if type.width > 1 else ""
        return self.op(f"arith.select {test}, {a}, {b} : {tests}{text}")

    def type(self, type: Type) -> str:
        """How MLIR writes a type."""
        return self.module.type(type)

    def types(self, values: Sequence[Value]) -> str:
        return ", ".join(self.type(v.type) for v in values)

    def pointer(self, space: str) -> str:
        return self.module.pointer(space)

    # storage

    def storage(self, size: int, alignment: int = 64, type: str = "!llvm.ptr") -> tuple[str, str]:
        """Bytes for the life of the function: their name and their number. In a loop they would be made each round."""
        count, name = self.names.fresh(), self.names.fresh()
        self.prologue.append(f"    {count} = llvm.mlir.constant({size} : i64) : i64\n")
        made = f"llvm.alloca {count} x i8 {{alignment = {alignment} : i64}} : (i64) -> {type}"
        self.prologue.append(f"    {name} = {made}\n")
        return name, count

    def slot(self) -> str:
        """The address of a slot for storage of run-time size, which begins empty."""
        self.slots = self.slots or self.names.fresh()
        self.slot_count += 1
        return self.field(self.slots, 16 * (self.slot_count - 1))

    def field(self, block: str, offset: int) -> str:
        """The address of what lies so many bytes behind the start of a block; that of a call is `%ctx`."""
        return self.op(f"llvm.getelementptr inbounds {block}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8")

    # operations

    def scope(self, scope: str) -> str:
        """How LLVM writes whose threads see an atomic operation as one step."""
        word = self.target.scopes.get(scope, "")
        return f'syncscope("{word}") ' if word else ""

    def region(self, region: Region) -> None:
        for op in region.ops:
            self.operation(op)

    def operation(self, op: Op) -> None:
        """One operation of the typed program."""
        self.at = self.module.location(op.location)
        (self.emit or EMITTERS[op.name])(self, op)

    def leave(self, op: Op) -> None:
        """Before a region of a branch or a loop ends with this operation."""

    # functions

    def sibling(self) -> FunctionWriter:
        """A writer for another function of the module."""
        return FunctionWriter(self.module)

    def parameters(self, values: Sequence[Value], read_only: Sequence[Value] = ()) -> list[str]:
        """The values as parameters `%a0`, `%a1`, …; pointers of the author's aside, none overlaps.

        Those of a kernel say how they are aligned, since the driver's assembler has nothing else of them; and what
        nothing writes, so that it is read through the cache for such data.
        """
        params = []
        pointers = [value.type for value in values if isinstance(value.type, PointerType)]
        alone = all(type.is_whole for type in pointers)
        for number, value in enumerate(values):
            self.bind(value, f"%a{number}")
            facts = []
            if isinstance(value.type, PointerType) and value.type.space == "map":
                facts += [f"llvm.byval = !llvm.array<{TENSOR_MAP_SIZE} x i8>", "llvm.align = 64 : i64"]
                facts += ["nvvm.grid_constant"]
            elif isinstance(value.type, PointerType):
                facts += ["llvm.noalias"] if alone else []
                facts += ["llvm.readonly"] if alone and value in read_only else []
                facts += [f"llvm.align = {value.dtype.align} : i64"] if self.target.has_grid else []
            attributes = f" {{{', '.join(facts)}}}" if facts else ""
            params.append(f"%a{number}: {self.type(value.type)}{attributes}")
        return params

    def finish(self, head: str, location: str = "") -> str:
        """The whole function; each way out of it frees its storage of run-time size."""
        lines = "".join(self.lines)
        if self.slots:
            count, size, zero = (self.names.fresh() for _ in range(3))
            self.prologue += [
                f"    {count} = llvm.mlir.constant({self.slot_count} : i64) : i64\n",
                f"    {size} = llvm.mlir.constant({16 * self.slot_count} : i64) : i64\n",
                f"    {zero} = llvm.mlir.constant(0 : i8) : i8\n",
                f"    {self.slots} = llvm.alloca {size} x i8 {{alignment = 16 : i64}} : (i64) -> !llvm.ptr\n",
                f'    "llvm.intr.memset"({self.slots}, {zero}, {size}) <{{isVolatile = false}}>'
                " : (!llvm.ptr, i8, i64) -> ()\n",
            ]
            release = f"llvm.call @{RELEASE}({self.slots}, {count}) : (!llvm.ptr, i64) -> () "
            lines = _WAY_OUT.sub(lambda match: release + match[0], lines)
        return f"  {head} {{\n{''.join(self.prologue)}{lines}  }}{location}\n"
