"""Typed program -> MLIR text: nearly one to one, with the author's places as locations.

On a CPU, each parallel region becomes a function of its own with a task around it that the thread pool calls; the entry
calls the groups in order. On a GPU, each launch becomes a kernel. Structured control flow stays structured (`scf`);
memory is LLVM pointers.

Input: a `Program` and a `Target`. Output: the text of an MLIR module, and for a GPU the kernels it holds. Non-goals: no
typing, no optimisation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


from ..dsl import abi
from ..dsl.errors import InternalError
from ..dsl.types import BOOL, DType, SIMDType
from . import emit_arith
from .emit_arith import constant, element_type, mlir_type
from .operations import ROWS
from .program import IRREGULAR, Function, Location, Op, PointerType, Program, Region, Site, Type, Value, free_values, walk
from .targets import Target



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
    if target.is_gpu:
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
        self.kernels: list[KernelInfo] = []
        self.task_count = 0

    def location(self, location: Location) -> str:
        """` loc(#locN)` for an operation."""
        if location not in self.locations:
            if location.caller is not None:
                self.location(location.caller)
            self.locations[location] = len(self.locations)
        return f" loc(#loc{self.locations[location]})"

    def text(self) -> str:
        """The whole module."""
        parts = ["module {\n", *self.functions, "} loc(unknown)\n"]
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
        for function in self.program.functions:
            emitter = FunctionEmitter(self, Names())
            self.functions.append(emitter.host_function(function))
        self.functions.append(_entry(self.program))
        self.functions.append(_SPREAD)
        self.functions.append("  llvm.func @ek.exit()\n")
        self.functions.append(_reports(self.program.sites))

    def emit_kernels(self) -> None:
        """Every launch of every group as a kernel."""
        for function in self.program.functions:
            launches = [op for op in walk(function.body) if op.name == "launch"]
            for number, op in enumerate(launches):
                emitter = FunctionEmitter(self, Names())
                self.functions.append(emitter.kernel(f"{function.name}_kernel_{number}", op))
        self.functions.append("  llvm.func @ek.exit()\n")


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

    def __init__(self, module: ModuleEmitter, names: Names) -> None:
        self.module = module
        self.target = module.target
        self.names = names
        self.lines: list[str] = []
        self.prologue: list[str] = []
        self.indent = "    "
        self.at = ""

    # lines and names

    def line(self, text: str) -> None:
        self.lines.append(f"{self.indent}{text}{self.at}\n")

    def op(self, text: str) -> str:
        """An operation with one result; returns its name."""
        name = self.names.fresh()
        self.line(f"{name} = {text}")
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

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.indent += "  "
        yield
        self.indent = self.indent[:-2]

    # functions

    def host_function(self, function: Function) -> str:
        """`llvm.func internal @group(%ctx, pointers, sizes) -> i32`."""
        params = ["%ctx: !llvm.ptr"]
        for number, value in enumerate(function.params):
            self.names.set(value, f"%a{number}")
            noalias = " {llvm.noalias}" if isinstance(value.type, PointerType) else ""
            params.append(f"%a{number}: {self.type(value.type)}{noalias}")
        self.region(function.body)
        self.at = ""
        zero = self.op("arith.constant 0 : i32")
        self.line(f"llvm.return {zero} : i32")
        return self.finish(f"llvm.func internal @{function.name}({', '.join(params)}) -> i32")

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
        _EMITTERS[op.name](self, op)

    # GPU kernels

    def kernel(self, symbol: str, op: Op) -> str:
        """A launch as a kernel; what its region uses from outside are its parameters."""
        captured = captures(op.regions[0])
        block = tuple(int(v.const) for v in op.operands[3:6])
        assert len(block) == 3
        params = []
        for number, value in enumerate(captured):
            if isinstance(value.type, PointerType) and value.type.space != "global":
                raise InternalError("a kernel cannot take storage of the host")
            self.names.set(value, f"%a{number}")
            noalias = " {llvm.noalias}" if isinstance(value.type, PointerType) else ""
            params.append(f"%a{number}: {self.type(value.type)}{noalias}")
        self.region(op.regions[0])
        self.at = ""
        self.line("llvm.return")
        location = self.module.location(op.location)
        types = tuple(str(v.type) for v in captured)
        self.module.kernels.append(KernelInfo(symbol, block, types))
        attributes = self.target.kernel_attributes(block)
        return self.finish(f"llvm.func @{symbol}({', '.join(params)}) attributes {{{attributes}}}", location)


def captures(region: Region) -> list[Value]:
    """What a region takes from outside; constants are made again inside."""
    return [v for v in free_values(region) if v.const is None]


# *** one function for each irregular operation ***


def _const(e: FunctionEmitter, op: Op) -> None:
    type = op.results[0].type
    assert isinstance(type, SIMDType)
    e.names.set(op.results[0], constant(e, op.attrs["value"], type))


def _simd(value: Value) -> SIMDType:
    assert isinstance(value.type, SIMDType)
    return value.type


def _cast(e: FunctionEmitter, op: Op) -> None:
    source, to = op.operands[0], op.results[0]
    e.names.set(to, emit_arith.cast(e, e.name(source), _simd(source), _simd(to)))


def _bitcast(e: FunctionEmitter, op: Op) -> None:
    source, to = op.operands[0], op.results[0]
    e.names.set(to, emit_arith.bitcast(e, e.name(source), _simd(source), _simd(to)))


def _splat(e: FunctionEmitter, op: Op) -> None:
    text = e.type(op.results[0].type)
    scalar = e.type(op.operands[0].type)
    e.names.set(op.results[0], e.op(f"vector.broadcast {e.name(op.operands[0])} : {scalar} to {text}"))


def _extract(e: FunctionEmitter, op: Op) -> None:
    source = op.operands[0]
    text = f"vector.extract {e.name(source)}[{op.attrs['lane']}]"
    e.names.set(op.results[0], e.op(f"{text} : {e.type(op.results[0].type)} from {e.type(source.type)}"))


def _select(e: FunctionEmitter, op: Op) -> None:
    names = [e.name(v) for v in op.operands]
    e.names.set(op.results[0], emit_arith.select(e, names[0], names[1], names[2], _simd(op.results[0])))


def _index_division(mlir: str) -> Callable[[FunctionEmitter, Op], None]:
    def emit(e: FunctionEmitter, op: Op) -> None:
        a, b = (e.name(v) for v in op.operands)
        e.names.set(op.results[0], e.op(f"{mlir} {a}, {b} : i64"))

    return emit


def _address(e: FunctionEmitter, pointer: Value, offset: Value) -> str:
    assert isinstance(pointer.type, PointerType)
    element = "i8" if pointer.dtype is DType.bool else element_type(pointer.dtype)
    text = e.type(pointer.type)
    base, index = e.name(pointer), e.name(offset)
    return e.op(f"llvm.getelementptr inbounds {base}[{index}] : ({text}, i64) -> {text}, {element}")


def _memory_type(type: SIMDType) -> SIMDType:
    """A bool takes a byte in memory."""
    return type.with_dtype(DType.uint8) if type.dtype is DType.bool else type


def _load(e: FunctionEmitter, op: Op) -> None:
    pointer, offset = op.operands
    type = _simd(op.results[0])
    address = _address(e, pointer, offset)
    memory = _memory_type(type)
    align = memory.dtype.size_in_bytes
    value = e.op(f"llvm.load {address} {{alignment = {align} : i64}} : {e.type(pointer.type)} -> {mlir_type(memory)}")
    e.names.set(op.results[0], emit_arith.cast(e, value, memory, type) if memory is not type else value)


def _store(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offset = op.operands
    type = _simd(value)
    memory = _memory_type(type)
    name = emit_arith.cast(e, e.name(value), type, memory) if memory is not type else e.name(value)
    address = _address(e, pointer, offset)
    align = memory.dtype.size_in_bytes
    e.line(f"llvm.store {name}, {address} {{alignment = {align} : i64}} : {mlir_type(memory)}, {e.type(pointer.type)}")


def _atomic_add(e: FunctionEmitter, op: Op) -> None:
    value, pointer, offset = op.operands
    address = _address(e, pointer, offset)
    kind = "fadd" if value.dtype.is_float() else "add"
    text = f"llvm.atomicrmw {kind} {address}, {e.name(value)} monotonic : {e.type(pointer.type)}, {e.type(value.type)}"
    e.op(text)


def _alloca(e: FunctionEmitter, op: Op) -> None:
    # At the top of the function: within a loop the stack would grow with every round.
    type = op.results[0].type
    assert isinstance(type, PointerType)
    count, name = e.names.fresh(), e.names.fresh()
    size = max(1, type.dtype.size_in_bytes) * op.attrs["count"]
    text = e.type(type)
    e.prologue.append(f"    {count} = llvm.mlir.constant({size} : i64) : i64\n")
    e.prologue.append(f"    {name} = llvm.alloca {count} x i8 {{alignment = 64 : i64}} : (i64) -> {text}\n")
    zero = e.op("arith.constant 0 : i8")
    e.line(f'"llvm.intr.memset"({name}, {zero}, {count}) <{{isVolatile = false}}> : ({text}, i8, i64) -> ()')
    e.names.set(op.results[0], name)


def _yielded(region: Region) -> list[Value]:
    last = region.ops[-1]
    assert last.name == "yield", last.name
    return last.operands


def _bind_results(e: FunctionEmitter, op: Op) -> str:
    """`%v7:2 = ` for the results of a structured operation, with their names bound."""
    if not op.results:
        return ""
    base = e.names.fresh()
    if len(op.results) == 1:
        e.names.set(op.results[0], base)
        return f"{base} = "
    for number, result in enumerate(op.results):
        e.names.set(result, f"{base}#{number}")
    return f"{base}:{len(op.results)} = "


def _types(e: FunctionEmitter, values: Sequence[Value]) -> str:
    return ", ".join(e.type(v.type) for v in values)


def _body(e: FunctionEmitter, region: Region) -> None:
    """The operations of a structured region and its yield."""
    with e.nested():
        for op in region.ops[:-1]:
            e.operation(op)
        values = _yielded(region)
        e.at = e.module.location(region.ops[-1].location)
        if values:
            names = ", ".join(e.name(v) for v in values)
            e.line(f"scf.yield {names} : {_types(e, values)}")
        else:
            e.line("scf.yield")


def _if(e: FunctionEmitter, op: Op) -> None:
    at = e.at
    condition = e.name(op.operands[0])
    head = _bind_results(e, op)
    result = f" -> ({_types(e, op.results)})" if op.results else ""
    e.lines.append(f"{e.indent}{head}scf.if {condition}{result} {{\n")
    _body(e, op.regions[0])
    if op.results or len(op.regions[1].ops) > 1:
        e.lines.append(f"{e.indent}}} else {{\n")
        _body(e, op.regions[1])
    e.lines.append(f"{e.indent}}}{at}\n")


def _for(e: FunctionEmitter, op: Op) -> None:
    at = e.at
    low, high, step, *initial = op.operands
    region = op.regions[0]
    bounds = f"{e.name(low)} to {e.name(high)} step {e.name(step)}"
    initial_names = [e.name(v) for v in initial]
    index = e.names.fresh()
    e.names.set(region.args[0], index)
    head = _bind_results(e, op)
    carried = ""
    if initial:
        pairs = []
        for argument, name in zip(region.args[1:], initial_names, strict=True):
            inner = e.names.fresh()
            e.names.set(argument, inner)
            pairs.append(f"{inner} = {name}")
        carried = f" iter_args({', '.join(pairs)}) -> ({_types(e, initial)})"
    e.lines.append(f"{e.indent}{head}scf.for {index} = {bounds}{carried} : i64 {{\n")
    _body(e, region)
    e.lines.append(f"{e.indent}}}{at}\n")


def _while(e: FunctionEmitter, op: Op) -> None:
    at = e.at
    test, body = op.regions
    names = [e.name(v) for v in op.operands]
    head = _bind_results(e, op)
    types = _types(e, op.operands)
    pairs = []
    for argument, name in zip(test.args, names, strict=True):
        inner = e.names.fresh()
        e.names.set(argument, inner)
        pairs.append(f"{inner} = {name}")
    arguments = f" ({', '.join(pairs)})" if pairs else ""
    e.lines.append(f"{e.indent}{head}scf.while{arguments} : ({types}) -> ({types}) {{\n")
    with e.nested():
        for inner_op in test.ops[:-1]:
            e.operation(inner_op)
        condition, *values = test.ops[-1].operands
        e.at = e.module.location(test.ops[-1].location)
        passed = f" {', '.join(e.name(v) for v in values)} : {types}" if values else ""
        e.line(f"scf.condition({e.name(condition)}){passed}")
    e.lines.append(f"{e.indent}}} do {{\n")
    declared = []
    for argument in body.args:
        inner = e.names.fresh()
        e.names.set(argument, inner)
        declared.append(f"{inner}: {e.type(argument.type)}")
    if declared:
        e.lines.append(f"{e.indent}^bb0({', '.join(declared)}):\n")
    _body(e, body)
    e.lines.append(f"{e.indent}}}{at}\n")


def _parallel(e: FunctionEmitter, op: Op) -> None:
    """Outlines the region; the task unpacks what it captured and computes its range."""
    module = e.module
    number = module.task_count
    module.task_count += 1
    region = op.regions[0]
    captured = captures(region)
    has_exit = any(inner.name == "assert" for inner in walk(region))
    _task_body(module, number, region, captured, op)
    offsets, size = _layout(captured)
    module.functions.append(_task(e, number, captured, offsets, has_exit))
    count, block = e.names.fresh(), e.names.fresh()
    e.prologue.append(f"    {count} = llvm.mlir.constant({size} : i64) : i64\n")
    e.prologue.append(f"    {block} = llvm.alloca {count} x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr\n")
    total, grain = e.name(op.operands[0]), e.name(op.operands[1])
    e.line(f"llvm.store %ctx, {block} : !llvm.ptr, !llvm.ptr")
    for value, offset in zip(captured, offsets, strict=True):
        address = e.op(f"llvm.getelementptr inbounds {block}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8")
        e.line(f"llvm.store {e.name(value)}, {address} : {e.type(value.type)}, !llvm.ptr")
    task = e.op(f"llvm.mlir.addressof @task_{number} : !llvm.ptr")
    e.line(
        f"llvm.call @ek.spread(%ctx, {total}, {grain}, {task}, {block}) : "
        "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()"
    )
    if has_exit:
        _exit_if_failed(e)


def _exit_if_failed(e: FunctionEmitter) -> None:
    address = e.op(f"llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8")
    status = e.op(f"llvm.load {address} atomic monotonic {{alignment = 8 : i64}} : !llvm.ptr -> i64")
    zero = e.op("arith.constant 0 : i64")
    failed = e.op(f"arith.cmpi ne, {status}, {zero} : i64")
    e.line(f"scf.if {failed} {{ llvm.call @ek.exit() : () -> () }}")


_HEADER = 24  # bytes of the task's argument before the captured values: context, total, step


def _layout(captured: Sequence[Value]) -> tuple[list[int], int]:
    """Where each captured value lies behind the task's argument."""
    offsets, offset = [], _HEADER
    for value in captured:
        size = 8 if isinstance(value.type, PointerType) else value.dtype.size_in_bytes * value.type.width
        align = max(8, 1 << (size - 1).bit_length())
        offset = -(-offset // align) * align
        offsets.append(offset)
        offset += size
    return offsets, -(-offset // 64) * 64


def _task_body(module: ModuleEmitter, number: int, region: Region, captured: list[Value], op: Op) -> None:
    """`@body_N(%ctx, captured..., %low, %high) -> i32`: pointers are promised not to overlap."""
    inner = FunctionEmitter(module, Names())
    params = ["%ctx: !llvm.ptr"]
    for position, value in enumerate(captured):
        inner.names.set(value, f"%a{position}")
        noalias = " {llvm.noalias}" if isinstance(value.type, PointerType) else ""
        params.append(f"%a{position}: {inner.type(value.type)}{noalias}")
    for argument, name in zip(region.args, ("%low", "%high"), strict=True):
        inner.names.set(argument, name)
        params.append(f"{name}: i64")
    for operation in region.ops[:-1]:
        inner.operation(operation)
    inner.at = ""
    zero = inner.op("arith.constant 0 : i32")
    inner.line(f"llvm.return {zero} : i32")
    head = f"llvm.func internal @body_{number}({', '.join(params)}) -> i32"
    module.functions.append(inner.finish(head, module.location(op.location)))


def _task(e: FunctionEmitter, number: int, captured: list[Value], offsets: list[int], has_exit: bool) -> str:
    """`@task_N(%argument, %chunk)`: what the pool calls."""
    lines = ["    %ctx = llvm.load %argument : !llvm.ptr -> !llvm.ptr\n"]
    names, types = ["%ctx"], ["!llvm.ptr"]

    def field(name: str, offset: int, type: str) -> None:
        lines.append(f"    {name}p = llvm.getelementptr inbounds %argument[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8\n")
        lines.append(f"    {name} = llvm.load {name}p : !llvm.ptr -> {type}\n")

    field("%total", 8, "i64")
    field("%step", 16, "i64")
    for position, (value, offset) in enumerate(zip(captured, offsets, strict=True)):
        field(f"%c{position}", offset, e.type(value.type))
        names.append(f"%c{position}")
        types.append(e.type(value.type))
    lines += [
        "    %low = arith.muli %chunk, %step overflow<nsw> : i64\n",
        "    %end = arith.addi %low, %step overflow<nsw> : i64\n",
        "    %high = arith.minsi %end, %total : i64\n",
    ]
    names += ["%low", "%high"]
    types += ["i64", "i64"]
    lines.append(f"    %status = llvm.call @body_{number}({', '.join(names)}) : ({', '.join(types)}) -> i32\n")
    lines.append("    llvm.return\n")
    return f"  llvm.func internal @task_{number}(%argument: !llvm.ptr, %chunk: i64) {{\n{''.join(lines)}  }}\n"


# Cuts [0, total) into tasks of at least `grain`, four for each thread at most, and has the pool run them.
_SPREAD = f"""  llvm.func internal @ek.spread(%ctx: !llvm.ptr, %total: i64, %grain: i64, %task: !llvm.ptr, %block: !llvm.ptr) attributes {{no_inline}} {{
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %four = arith.constant 4 : i64
    %some = arith.cmpi sgt, %total, %zero : i64
    scf.if %some {{
      %threads_p = llvm.getelementptr inbounds %ctx[{abi.THREADS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
      %threads = llvm.load %threads_p : !llvm.ptr -> i64
      %parallel_p = llvm.getelementptr inbounds %ctx[{abi.PARALLEL_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
      %parallel = llvm.load %parallel_p : !llvm.ptr -> !llvm.ptr
      %pool = llvm.load %ctx : !llvm.ptr -> !llvm.ptr
      %least = arith.maxsi %grain, %one : i64
      %wanted = arith.ceildivsi %total, %least : i64
      %alone = arith.cmpi eq, %threads, %one : i64
      %several = arith.muli %threads, %four : i64
      %most = arith.select %alone, %one, %several : i64
      %tasks = arith.minsi %wanted, %most : i64
      %step = arith.ceildivsi %total, %tasks : i64
      %chunks = arith.ceildivsi %total, %step : i64
      %total_p = llvm.getelementptr inbounds %block[8] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store %total, %total_p : i64, !llvm.ptr
      %step_p = llvm.getelementptr inbounds %block[16] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store %step, %step_p : i64, !llvm.ptr
      %nobody = llvm.mlir.zero : !llvm.ptr
      %serial = llvm.icmp "eq" %parallel, %nobody : !llvm.ptr
      %single = arith.cmpi eq, %chunks, %one : i64
      %here = arith.ori %serial, %single : i1
      scf.if %here {{
        scf.for %chunk = %zero to %chunks step %one : i64 {{
          llvm.call %task(%block, %chunk) : !llvm.ptr, (!llvm.ptr, i64) -> ()
        }}
      }} else {{
        llvm.call %parallel(%pool, %chunks, %task, %block) : !llvm.ptr, (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr) -> ()
      }}
    }}
    llvm.return
  }}
"""


def _launch(e: FunctionEmitter, op: Op) -> None:
    raise InternalError("a launch reached the host's code")


def _gpu_id(e: FunctionEmitter, op: Op) -> None:
    what, axis = op.attrs["which"].split(".")
    grid = e.target.grid
    kind = {"thread_idx": "thread_id", "block_idx": "block_id"}[what]
    spelling = None if grid is None else grid.spell(kind, axis)  # type: ignore[arg-type]
    if spelling is None:
        raise InternalError(f"{e.target.name} has no spelling for {op.attrs['which']}")
    narrow = e.op(spelling)
    e.names.set(op.results[0], e.op(f"arith.extui {narrow} : i32 to i64"))


def _barrier(e: FunctionEmitter, op: Op) -> None:
    assert e.target.grid is not None
    for spelling in e.target.grid.barrier:
        e.line(spelling)


def _assert(e: FunctionEmitter, op: Op) -> None:
    condition, *values = op.operands
    at = e.at
    holds = e.name(condition)
    true = constant(e, True, BOOL)
    failed = e.op(f"arith.xori {holds}, {true} : i1")
    e.lines.append(f"{e.indent}scf.if {failed} {{\n")
    with e.nested():
        if e.target.is_gpu:
            e.line('"llvm.intr.trap"() : () -> ()')
        else:
            _report(e, op.attrs["site"], values)
            status = e.op(f"llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8")
            code = e.op(f"arith.constant {op.attrs['site'] + 1} : i64")
            e.line(f"llvm.store {code}, {status} atomic monotonic {{alignment = 8 : i64}} : i64, !llvm.ptr")
        e.line("llvm.call @ek.exit() : () -> ()")
    e.lines.append(f"{e.indent}}}{at}\n")


def _print(e: FunctionEmitter, op: Op) -> None:
    _report(e, op.attrs["site"], op.operands)


def _report(e: FunctionEmitter, site: int, values: Sequence[Value]) -> None:
    """Calls back into Python with the site's number and the values as 64-bit patterns."""
    count, block = e.names.fresh(), e.names.fresh()
    e.prologue.append(f"    {count} = llvm.mlir.constant({max(1, len(values)) * 8} : i64) : i64\n")
    e.prologue.append(f"    {block} = llvm.alloca {count} x i8 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr\n")
    for number, value in enumerate(values):
        type = _simd(value)
        wide = SIMDType(DType.float64 if type.dtype.is_float() else DType.int64)
        name = emit_arith.cast(e, e.name(value), type, wide)
        address = e.op(f"llvm.getelementptr inbounds {block}[{number * 8}] : (!llvm.ptr) -> !llvm.ptr, i8")
        e.line(f"llvm.store {name}, {address} : {mlir_type(wide)}, !llvm.ptr")
    slot = e.op(f"llvm.getelementptr inbounds %ctx[{abi.REPORT_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8")
    report = e.op(f"llvm.load {slot} : !llvm.ptr -> !llvm.ptr")
    number_name = e.op(f"arith.constant {site} : i64")
    e.line(f"llvm.call {report}({number_name}, {block}) : !llvm.ptr, (i64, !llvm.ptr) -> ()")


def _nothing(e: FunctionEmitter, op: Op) -> None:
    """`yield` and `condition` are written by the operation around them."""


_EMITTERS: dict[str, Callable[[FunctionEmitter, Op], None]] = {
    "const": _const,
    "cast": _cast,
    "bitcast": _bitcast,
    "splat": _splat,
    "extract": _extract,
    "select": _select,
    "udiv": _index_division("arith.divui"),
    "urem": _index_division("arith.remui"),
    "load": _load,
    "store": _store,
    "atomic_add": _atomic_add,
    "alloca": _alloca,
    "if": _if,
    "for": _for,
    "while": _while,
    "yield": _nothing,
    "condition": _nothing,
    "parallel": _parallel,
    "launch": _launch,
    "gpu_id": _gpu_id,
    "barrier": _barrier,
    "assert": _assert,
    "print": _print,
}


def _reports(sites: Sequence[Site]) -> str:
    """The table of sites as JSON text in the code itself, so that it is never apart from the code."""
    records = []
    for site in sites:
        place = site.place
        where = [place.file, place.line, place.column, place.end_line, place.end_column]
        records.append([site.kind, site.parts, where, site.op])
    data = json.dumps(records).encode() + b"\0"
    text = "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data)
    return f'  llvm.mlir.global external constant @{abi.REPORTS}("{text}") : !llvm.array<{len(data)} x i8>\n'


def _entry(program: Program) -> str:
    """`@ek_entry(%ctx, %pointers, %dims) -> i32`: the groups in order, until one fails."""
    lines: list[str] = []
    seen: set[str] = set()

    def fetch(kind: str, index: int) -> str:
        name = f"%{kind[0]}{index}"
        if name not in seen:
            seen.add(name)
            array, type = ("%pointers", "!llvm.ptr") if kind == "pointer" else ("%dims", "i64")
            place = f"llvm.getelementptr inbounds {array}[{index}] : (!llvm.ptr) -> !llvm.ptr, {type}"
            lines.append(f"    {name}_at = {place}\n    {name} = llvm.load {name}_at : !llvm.ptr -> {type}\n")
        return name

    lines.append("    %zero = arith.constant 0 : i32\n")
    for number, (function, buffers, slots) in enumerate(program.calls):
        names = ["%ctx", *(fetch("pointer", b) for b in buffers), *(fetch("dim", s) for s in slots)]
        types = ["!llvm.ptr"] * (1 + len(buffers)) + ["i64"] * len(slots)
        callee = program.functions[function]
        lines.append(f"    %r{number} = llvm.call @{callee.name}({', '.join(names)}) : ({', '.join(types)}) -> i32\n")
        if callee.has_exit:
            lines.append(f"    %f{number} = arith.cmpi ne, %r{number}, %zero : i32\n")
            lines.append(f"    scf.if %f{number} {{ llvm.call @ek.exit() : () -> () }}\n")
    lines.append("    llvm.return %zero : i32\n")
    head = f"llvm.func @{abi.ENTRY}(%ctx: !llvm.ptr, %pointers: !llvm.ptr, %dims: !llvm.ptr) -> i32"
    return f"  {head} {{\n{''.join(lines)}  }}\n"

assert set(_EMITTERS) == set(IRREGULAR), set(_EMITTERS) ^ set(IRREGULAR)
