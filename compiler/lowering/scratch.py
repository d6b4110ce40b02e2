"""Writes memory of the device that a call takes for itself: where each piece lies, and how much all of them are.

A function gives out its scratch from the beginning on, piece by piece, in one sum that it keeps. What an entry needs is
the most that one of its functions takes: they run one after the other. So each function with scratch is written once
more, with nothing in it but what the sum is made of, for `ek_scratch(dims, stage)`, which is called before the call.

See also `graph.calling.call` (which the caller finds).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...dsl.contract import abi
from ...dsl.contract.unit import Size, Slot, groups_in
from ..ir.copying import Copier
from ..ir.opcodes import ENQUEUE
from ..ir.program import Op, PointerType, Program, ProgramFunction, Region, walk
from ..ir.storage_opcodes import SCRATCH
from .writer import FunctionWriter, ModuleWriter, emits

ALIGNMENT = 256  # bytes: what memory from a device's own allocator begins at


@emits("scratch")
def _scratch(w: FunctionWriter, op: Op) -> None:
    """The next piece; where only sums are wanted, an unused address."""
    type = op.results[0].type
    assert isinstance(type, PointerType)
    count = w.name(op.operands[0])
    zero = w.op("arith.constant 0 : i64")
    count = w.op(f"arith.maxsi {count}, {zero} : i64")
    bits, round_up = w.op(f"arith.constant {type.dtype.bits} : i64"), w.op(f"arith.constant {8 * ALIGNMENT - 1} : i64")
    lines = w.op(f"arith.constant {8 * ALIGNMENT} : i64")
    whole = w.op(f"arith.addi {w.op(f'arith.muli {count}, {bits} : i64')}, {round_up} : i64")
    pieces = w.op(f"arith.divui {whole}, {lines} : i64")
    size = w.op(f"arith.muli {pieces}, {w.op(f'arith.constant {ALIGNMENT} : i64')} : i64")
    before = w.op(f"llvm.load {_sum(w)} : !llvm.ptr -> i64")
    w.line(f"llvm.store {w.op(f'arith.addi {before}, {size} : i64')}, {_sum(w)} : i64, !llvm.ptr")
    if w.sizing:
        w.result(op, w.op("llvm.mlir.zero : !llvm.ptr"))
        return
    device = w.op(f"llvm.load {w.field('%ctx', abi.DEVICE_OFFSET)} : !llvm.ptr -> !llvm.ptr")
    base = w.op(f"llvm.load {w.field(device, abi.SCRATCH_OFFSET)} : !llvm.ptr -> !llvm.ptr")
    w.result(op, w.op(f"llvm.getelementptr {base}[{before}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"))


def _sum(w: FunctionWriter) -> str:
    """Where the function keeps how many bytes it has given out."""
    if not w.scratch:
        one, zero, w.scratch = (w.names.fresh() for _ in range(3))
        w.prologue += [
            f"    {one} = llvm.mlir.constant(1 : i64) : i64\n",
            f"    {zero} = llvm.mlir.constant(0 : i64) : i64\n",
            f"    {w.scratch} = llvm.alloca {one} x i64 {{alignment = 8 : i64}} : (i64) -> !llvm.ptr\n",
            f"    llvm.store {zero}, {w.scratch} : i64, !llvm.ptr\n",
        ]
    return w.scratch


# *** how much ***


class _Sizes(Copier):
    """Copies what sizes are made of: nothing runs elsewhere, and nothing is said."""

    def copy(self, old: Op, region: Region) -> None:
        opcode = old.opcode
        if opcode is ENQUEUE or opcode.spreads or opcode.reports or opcode.hints:
            return
        super().copy(old, region)
        made, known = region.ops[-1], opcode.attrs
        made.attrs = {name: value for name, value in made.attrs.items() if not known[name].decided}


def has_scratch(function: ProgramFunction) -> bool:
    return any(op.opcode is SCRATCH for op in walk(function.body))


def size_name(symbol: str) -> str:
    """The symbol of the function that says how much scratch another one takes."""
    return f"{symbol}.scratch"


def size_function(module: ModuleWriter, function: ProgramFunction, linkage: str = "internal") -> str:
    """`llvm.func internal @group.scratch(sizes) -> i64`."""
    copier = _Sizes()
    params = [copier.fresh(value) for value in function.params]
    body = copier.region(function.body)
    w = FunctionWriter(module)
    w.sizing = True
    heads = []
    for number, value in enumerate(params):
        w.bind(value, f"%a{number}")
        if isinstance(value.type, PointerType):
            w.prologue.append(f"    %a{number} = llvm.mlir.zero : !llvm.ptr\n")
        else:
            heads.append(f"%a{number}: i64")
    w.region(body)
    w.at = ""
    w.line(f"llvm.return {w.op(f'llvm.load {_sum(w)} : !llvm.ptr -> i64')} : i64")
    return w.finish(f"llvm.func {linkage} @{size_name(function.name)}({', '.join(heads)}) -> i64")


def entry_size(program: Program, taking: Iterable[str]) -> str:
    """`@ek_scratch(%dims, %stage) -> i64`: the most that one of the functions `taking` scratch takes in a stage."""
    names = set(taking)
    lines = ["    %r0 = arith.constant 0 : i64\n"]
    stages = range(len(program.stages) + 1)
    for k in stages:
        results: dict[tuple[str, tuple[Size, ...]], None] = {}
        for number in groups_in(program.stage(k)):
            function, _, sizes = program.calls[number]
            if program.functions[function].name in names:
                passed = program.passed[number] if program.passed else ()
                results[program.functions[function].name, (*sizes, *passed)] = None
        lines += _stage(k, results)
    lines.append(f"    llvm.return %r{len(stages)} : i64\n")
    return f"  llvm.func @{abi.SCRATCH}(%dims: !llvm.ptr, %stage: i64) -> i64 {{\n{''.join(lines)}  }}\n"


def _stage(k: int, calls: Mapping[tuple[str, tuple[Size, ...]], None]) -> list[str]:
    """The lines for one stage, of which others give 0."""
    lines = [
        f"    %n{k} = arith.constant {k} : i64\n    %is{k} = arith.cmpi eq, %stage, %n{k} : i64\n",
        f"    %m{k} = scf.if %is{k} -> (i64) {{\n      %most{k}_0 = arith.constant 0 : i64\n",
    ]
    for c, (name, numbers) in enumerate(calls):
        dims = []
        for at, number in enumerate(numbers):
            dim = f"%d{k}_{c}_{at}"
            dims.append(dim)
            if not isinstance(number, Slot):
                lines.append(f"      {dim} = arith.constant {number} : i64\n")
                continue
            place = f"llvm.getelementptr inbounds %dims[{number.index}]"
            lines.append(f"      {dim}p = {place} : (!llvm.ptr) -> !llvm.ptr, i64\n")
            lines.append(f"      {dim} = llvm.load {dim}p : !llvm.ptr -> i64\n")
        types = ", ".join("i64" for _ in dims)
        lines.append(f"      %c{k}_{c} = llvm.call @{size_name(name)}({', '.join(dims)}) : ({types}) -> i64\n")
        lines.append(f"      %most{k}_{c + 1} = arith.maxsi %most{k}_{c}, %c{k}_{c} : i64\n")
    lines.append(f"      scf.yield %most{k}_{len(calls)} : i64\n    }} else {{\n      scf.yield %r{k} : i64\n    }}\n")
    lines.append(f"    %r{k + 1} = arith.maxsi %r{k}, %m{k} : i64\n")
    return lines
