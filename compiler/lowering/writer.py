"""Typed program -> MLIR text: nearly one to one, with the author's places as locations.

On a CPU, each parallel region becomes a function of its own with a task around it that the thread pool calls; the entry
calls the groups in order. On a GPU, each launch becomes a kernel. Structured control flow stays structured (`scf`);
memory is LLVM pointers.

Input: a `Program` and a `Target`. Output: the text of an MLIR module, and for a GPU the kernels it holds. Non-goals: no
typing, no optimisation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ...dsl.diagnostics.errors import InternalError
from ...dsl.types.dtype import SIMDType
from ..ir.operations import ROWS
from ..ir.program import Function, Location, Op, PointerType, Program, Region, Type, Value, walk
from ..passes.polls import BUDGET, POLL
from ..targets import Target
from . import arithmetic as emit_arith
from .control_flow import EMITTERS
from .entry import ENTRY, SPREAD, entry, is_small, report_table
from .parallel import captures
from .types import constant, mlir_type

# Functions that are called to mark a place; see `mlir`, `loop_hints`.
_MARK = re.compile(r"@(ek\.(?:exit|hint\.\w+))\(")


@dataclass(frozen=True)
class KernelInfo:
    """A GPU kernel of the module: its symbol, its block, and the types of its parameters."""

    symbol: str
    block: tuple[int, int, int]
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class Emitted:
    """The text of a module, and its GPU kernels."""

    text: str
    kernels: tuple[KernelInfo, ...]


def emit_module(program: Program, target: Target) -> Emitted:
    """The MLIR text of a program for a target."""
    module = ModuleEmitter(program, target)
    if target.has_grid:
        module.emit_kernels()
    else:
        module.emit_host()
    return Emitted(module.text(), tuple(module.kernels))


class ModuleEmitter:
    """Collects functions and the table of locations."""

    def __init__(self, program: Program, target: Target) -> None:
        self.program = program
        self.target = target
        self.functions: list[str] = []
        self.locations: dict[Location, int] = {}
        self.suffixes: dict[int, str] = {}  # by identity: the program keeps them
        self.kernels: list[KernelInfo] = []
        self.task_count = 0

    def location(self, location: Location) -> str:
        """` loc(#locN)` for an operation."""
        known = self.suffixes.get(id(location))  # to compare by content, with all the calls, takes longer
        if known is not None:
            return known
        if location not in self.locations:
            if location.caller is not None:
                self.location(location.caller)
            self.locations[location] = len(self.locations)
        self.suffixes[id(location)] = f" loc(#loc{self.locations[location]})"
        return self.suffixes[id(location)]

    def text(self) -> str:
        """The whole module."""
        marks = sorted({mark for function in self.functions for mark in _MARK.findall(function)})
        parts = ["module {\n", *self.functions, *(f"  llvm.func @{mark}()\n" for mark in marks), "} loc(unknown)\n"]
        for location, number in self.locations.items():
            place = location.place
            file = place.file.replace("\\", "\\\\").replace('"', '\\"')
            here = f'"{file}":{place.line}:{place.column}'
            if location.caller is None:
                parts.append(f"#loc{number} = loc({here})\n")
            else:
                parts.append(f"#loc{number} = loc(callsite({here} at #loc{self.locations[location.caller]}))\n")
        return "".join(parts)

    def emit_host(self) -> None:
        """Every group, and the entry that calls them."""
        if is_small(self.program):
            self.functions.append(FunctionEmitter(self, Names(), alone=True).small_entry(self.program))
        else:
            for function in self.program.functions:
                emitter = FunctionEmitter(self, Names(), alone=True)
                self.functions.append(emitter.host_function(function))
                function.has_exit = "@ek.exit(" in self.functions[-1]
            self.functions.append(entry(self.program))
        if any("@ek.spread(" in function for function in self.functions):
            self.functions.append(SPREAD)
        if any("@ek.poll(" in function for function in self.functions):
            self.functions.append(POLL)
        self.functions.append(report_table(self.program))

    def emit_kernels(self) -> None:
        """Every launch of every group as a kernel."""
        for function in self.program.functions:
            launches = [op for op in walk(function.body) if op.name == "launch"]
            for number, op in enumerate(launches):
                emitter = FunctionEmitter(self, Names())
                self.functions.append(emitter.kernel(f"{function.name}_kernel_{number}", op))


class Names:
    """Numbers values; one for each LLVM function."""

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


class FunctionEmitter:
    """Writes one LLVM function."""

    def __init__(self, module: ModuleEmitter, names: Names, *, alone: bool = False) -> None:
        self.module = module
        self.alone = alone  # no other thread runs this function at the same time
        self.spreads = False  # whether its one parallel region is spread here, not by `@ek.spread`
        self.private: set[Value] = set()  # storage that no other thread sees
        self.target = module.target
        self.vector_bits = module.target.vector_bits  # of the vectors that the function's loops become
        self.burns = False  # whether a loop around what is written polls by fuel; see `polls`
        self.depth = 0  # how many loops are around it
        self.fuel_at = ""
        self.names = names
        self.lines: list[str] = []
        self.prologue: list[str] = []
        self.indent = "    "
        self.at = ""

    def sibling(self) -> FunctionEmitter:
        """A writer for another function of the module."""
        return FunctionEmitter(self.module, Names())

    # lines and names

    def line(self, text: str) -> None:
        self.lines.append(f"{self.indent}{text}{self.at}\n")

    def op(self, text: str, results: int = 1) -> str:
        """An operation with a result; returns its name. Those of several results are `name#0`, `name#1`, …."""
        name = self.names.fresh()
        self.line(f"{name} = {text}" if results == 1 else f"{name}:{results} = {text}")
        return name

    def name(self, value: Value) -> str:
        """The name of a value; constants from outside are made again on the spot."""
        found = self.names.names.get(id(value))
        if found is None:
            if value.const is None:
                raise InternalError("a value is used before it is made")
            assert isinstance(value.type, SIMDType)
            found = constant(self, value.const, value.type)  # not kept: the next use may be in another region
        return found

    def type(self, type: Type) -> str:
        """How MLIR writes a type."""
        return self.pointer(type.space) if isinstance(type, PointerType) else mlir_type(type)

    def pointer(self, space: str) -> str:
        spaces = self.target.spaces
        number = {"global": spaces.global_memory, "stack": spaces.stack, "shared": spaces.shared_memory}[space]
        return f"!llvm.ptr<{number}>" if number else "!llvm.ptr"

    def fuel(self) -> str:
        """Where the function keeps what is left of its fuel; see `polls`."""
        if not self.fuel_at:
            one, full, self.fuel_at = (self.names.fresh() for _ in range(3))
            self.prologue += [
                f"    {one} = llvm.mlir.constant(1 : i64) : i64\n",
                f"    {full} = llvm.mlir.constant({BUDGET} : i64) : i64\n",
                f"    {self.fuel_at} = llvm.alloca {one} x i64 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr\n",
                f"    llvm.store volatile {full}, {self.fuel_at} : i64, !llvm.ptr\n",
            ]
        return self.fuel_at

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.indent += "  "
        yield
        self.indent = self.indent[:-2]

    # functions

    def parameters(self, values: Sequence[Value]) -> list[str]:
        """The values as parameters `%a0`, `%a1`, …; pointers of the author's aside, none overlaps."""
        params = []
        alone = all(value.type.is_whole for value in values if isinstance(value.type, PointerType))
        for number, value in enumerate(values):
            self.names.set(value, f"%a{number}")
            noalias = " {llvm.noalias}" if alone and isinstance(value.type, PointerType) else ""
            params.append(f"%a{number}: {self.type(value.type)}{noalias}")
        return params

    def host_function(self, function: Function) -> str:
        """`llvm.func internal @group(%ctx, pointers, sizes) -> i32`."""
        params = ["%ctx: !llvm.ptr", *self.parameters(function.params)]
        self.body(function)
        return self.finish(f"llvm.func internal @{function.name}({', '.join(params)}) -> i32")

    def small_entry(self, program: Program) -> str:
        """The entry with the one group in it; see `is_small`."""
        function = program.functions[0]
        _, buffers, slots = program.calls[0]
        self.spreads = sum(op.name == "parallel" for op in walk(function.body)) == 1
        places = [("%pointers", "!llvm.ptr", b) for b in buffers] + [("%dims", "i64", s) for s in slots]
        for number, (value, (array, type, index)) in enumerate(zip(function.params, places, strict=True)):
            self.names.set(value, f"%a{number}")
            at = f"llvm.getelementptr inbounds {array}[{index}] : (!llvm.ptr) -> !llvm.ptr, {type}"
            self.prologue.append(f"    %at{number} = {at}\n")
            self.prologue.append(f"    %a{number} = llvm.load %at{number} : !llvm.ptr -> {type}\n")
        self.body(function)
        return self.finish(ENTRY)

    def body(self, function: Function) -> None:
        """What a function does; it returns 0."""
        self.region(function.body)
        self.at = ""
        zero = self.op("arith.constant 0 : i32")
        self.line(f"llvm.return {zero} : i32")

    def finish(self, head: str, location: str = "") -> str:
        return f"  {head} {{\n{''.join(self.prologue)}{''.join(self.lines)}  }}{location}\n"

    def region(self, region: Region) -> None:
        for op in region.ops:
            self.operation(op)

    def operation(self, op: Op) -> None:
        """One operation of the typed program."""
        self.at = self.module.location(op.location)
        if op.name in ROWS:
            type = op.operands[0].type
            assert isinstance(type, SIMDType)
            operands = [self.name(v) for v in op.operands]
            if op.attrs.get("nsw"):
                spelling = ROWS[op.name].mlir["int"]
                result = self.op(f"{spelling} {operands[0]}, {operands[1]} overflow<nsw> : i64")
            else:
                result = emit_arith.row(self, op.name, operands, type, op.attrs.get("fastmath", frozenset()))
            self.names.set(op.results[0], result)
            return
        EMITTERS[op.name](self, op)

    # GPU kernels

    def kernel(self, symbol: str, op: Op) -> str:
        """A launch as a kernel; what its region uses from outside are its parameters."""
        captured = captures(op.regions[0])
        block = tuple(int(v.const) for v in op.operands[3:6])
        assert len(block) == 3
        if any(isinstance(v.type, PointerType) and v.type.space != "global" for v in captured):
            raise InternalError("a kernel cannot take storage of the host")
        params = self.parameters(captured)
        self.region(op.regions[0])
        self.at = ""
        self.line("llvm.return")
        location = self.module.location(op.location)
        types = tuple(str(v.type) for v in captured)
        self.module.kernels.append(KernelInfo(symbol, block, types))
        attributes = self.target.kernel_attributes(block)
        return self.finish(f"llvm.func @{symbol}({', '.join(params)}) attributes {{{attributes}}}", location)
