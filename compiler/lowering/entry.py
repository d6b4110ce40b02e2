"""Writes the parts of a CPU module that are the same for every kernel: the entry, and the spreading of work."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence, Set

from ...dsl.contract import abi
from ...dsl.contract.unit import IfStep, Size, Slot, Step, WhileStep
from ..ir.program import Program
from .writer import LEAVE


def spreading(total: str, grain: str, task: str, block: str) -> str:
    """The operations that spread a region."""
    names = {"TOTAL": total, "GRAIN": grain, "TASK": task, "BLOCK": block}
    return re.sub("|".join(names), lambda match: names[match[0]], _SPREADING)


# Cuts [0, total) into tasks of at least `grain`, four for each thread at most, and has the pool run them; one needs
# no divisions. It runs once a region and is the same in every module: LLVM need not spend a fifth of its time on it.
_SPREADING = f"""\
    %zero = arith.constant 0 : i64
    %one = arith.constant 1 : i64
    %four = arith.constant 4 : i64
    %some = arith.cmpi sgt, TOTAL, %zero : i64
    scf.if %some {{
      %threads_p = llvm.getelementptr inbounds %ctx[{abi.THREADS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
      %threads = llvm.load %threads_p : !llvm.ptr -> i64
      %parallel_p = llvm.getelementptr inbounds %ctx[{abi.PARALLEL_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8
      %parallel = llvm.load %parallel_p : !llvm.ptr -> !llvm.ptr
      %pool = llvm.load %ctx : !llvm.ptr -> !llvm.ptr
      %least = arith.maxsi GRAIN, %one : i64
      %before = arith.subi TOTAL, %one : i64
      %alone = arith.cmpi eq, %threads, %one : i64
      %small = arith.cmpi slt, %before, %least : i64
      %whole = arith.ori %alone, %small : i1
      %step, %chunks = scf.if %whole -> (i64, i64) {{
        scf.yield TOTAL, %one : i64, i64
      }} else {{
        %wanted_less = arith.divui %before, %least : i64
        %wanted = arith.addi %wanted_less, %one : i64
        %most = arith.muli %threads, %four : i64
        %tasks = arith.minsi %wanted, %most : i64
        %step_less = arith.divui %before, %tasks : i64
        %several_step = arith.addi %step_less, %one : i64
        %chunks_less = arith.divui %before, %several_step : i64
        %several_chunks = arith.addi %chunks_less, %one : i64
        scf.yield %several_step, %several_chunks : i64, i64
      }}
      %total_p = llvm.getelementptr inbounds BLOCK[8] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store TOTAL, %total_p : i64, !llvm.ptr
      %step_p = llvm.getelementptr inbounds BLOCK[16] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store %step, %step_p : i64, !llvm.ptr
      %null = llvm.mlir.zero : !llvm.ptr
      %serial = llvm.icmp "eq" %parallel, %null : !llvm.ptr
      %single = arith.cmpi eq, %chunks, %one : i64
      %here = arith.ori %serial, %single : i1
      scf.if %here {{
        scf.for %chunk = %zero to %chunks step %one : i64 {{
          llvm.call TASK(BLOCK, %chunk) : !llvm.ptr, (!llvm.ptr, i64) -> ()
        }}
      }} else {{
        llvm.call %parallel(%pool, %chunks, TASK, BLOCK) : !llvm.ptr, (!llvm.ptr, i64, !llvm.ptr, !llvm.ptr) -> ()
      }}
    }}
"""

# `@ek.spread(%ctx, %total, %grain, %task, %block)`, for entries that are not as one.
SPREAD = f"""  llvm.func internal @ek.spread(
      %ctx: !llvm.ptr, %total: i64, %grain: i64, %task: !llvm.ptr, %block: !llvm.ptr
  ) attributes {{no_inline, optimize_none}} {{
{spreading("%total", "%grain", "%task", "%block")}    llvm.return
  }}
"""


_PARAMETERS = "%ctx: !llvm.ptr, %pointers: !llvm.ptr, %dims: !llvm.ptr"
_PLAIN = "attributes {no_inline, optimize_none}"
ENTRY = f"llvm.func @{abi.ENTRY}({_PARAMETERS}) -> i32 {_PLAIN}"


def entry(program: Program, fallible: Set[str]) -> str:
    """`@ek_entry(%ctx, %pointers, %dims) -> i32`: the groups in order, until one fails; or the stage that is requested.

    The `fallible` functions may leave early. The entry is left as it is: LLVM would inline the groups, which it has
    optimised by then, and optimise them once more.
    """
    if not program.stages:
        return _calls(program, fallible, f"@{abi.ENTRY}", program.stage(0))
    count = len(program.stages) + 1
    functions = [_calls(program, fallible, f"internal @ek.stage_{k}", program.stage(k)) for k in range(count)]
    lines = [
        f"    %at = llvm.getelementptr inbounds %ctx[{abi.STAGE_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8\n",
        "    %stage = llvm.load %at : !llvm.ptr -> i64\n",
        "    %r0 = arith.constant 1 : i32\n",
    ]
    for k in range(count):  # each says what comes out unless a later one is meant
        call = f"llvm.call @ek.stage_{k}(%ctx, %pointers, %dims) : (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32"
        lines += [
            f"    %n{k} = arith.constant {k} : i64\n",
            f"    %is{k} = arith.cmpi eq, %stage, %n{k} : i64\n",
            f"    %r{k + 1} = scf.if %is{k} -> (i32) {{\n      %c{k} = {call}\n      scf.yield %c{k} : i32\n",
            f"    }} else {{\n      scf.yield %r{k} : i32\n    }}\n",
        ]
    lines.append(f"    llvm.return %r{count} : i32\n")
    return f"{''.join(functions)}  llvm.func @{abi.ENTRY}({_PARAMETERS}) -> i32 {{\n{''.join(lines)}  }}\n"


def _calls(program: Program, fallible: Set[str], symbol: str, steps: Sequence[Step]) -> str:
    """A function that makes some of the program's calls, in order, until one fails."""
    writer = _Calls(program, fallible)
    writer.steps(steps)
    head = f"llvm.func {symbol}({_PARAMETERS}) -> i32 {_PLAIN}"
    first = f"    %zero = arith.constant 0 : i32\n{_FOR_CONDITIONS if program.on_device and program.steps else ''}"
    last = _LEAVE if writer.leaves else ""
    return f"  {head} {{\n{first}{''.join(writer.lines)}    llvm.return %zero : i32\n{last}  }}\n"


_LEAVING = "^leaving"  # the block that ends a function whose call is given up
_LEAVE = f"  {_LEAVING}:\n    %failure = arith.constant 1 : i32\n    llvm.return %failure : i32\n"


# Of a device, where a condition is brought to.
_FOR_CONDITIONS = """\
    %one = arith.constant 1 : i64
    %no_kernel = arith.constant -1 : i64
    %byte = llvm.alloca %one x i8 : (i64) -> !llvm.ptr
"""


class _Calls:
    """Writes calls and the control flow over them, as blocks with branches.

    A loop's buffers change places in the caller's array of pointers, so that a later stage finds them, too.
    """

    def __init__(self, program: Program, fallible: Set[str]) -> None:
        self.program = program
        self.fallible = fallible
        self.lines: list[str] = []
        self.known: dict[str, str] = {}  # what was loaded in this block
        self.called = False
        self.leaves = False
        self.names = itertools.count()
        self.blocks = itertools.count(1)

    def line(self, text: str) -> None:
        self.lines.append(f"    {text}\n")

    def name(self) -> str:
        return f"%v{next(self.names)}"

    def begin(self, block: str) -> None:
        """Everything that follows stands in this block."""
        self.lines.append(f"  {block}:\n")
        self.known = {}

    def address(self, kind: str, index: int) -> str:
        """Where a pointer or a dim lies in the caller's array."""
        array, type = ("%pointers", "!llvm.ptr") if kind == "pointer" else ("%dims", "i64")
        name = self.name()
        self.line(f"{name} = llvm.getelementptr inbounds {array}[{index}] : (!llvm.ptr) -> !llvm.ptr, {type}")
        return name

    def fetch(self, kind: str, index: int) -> str:
        """A pointer or a dim; loaded once in a block."""
        key = f"{kind}{index}"
        if key not in self.known:
            at, self.known[key] = self.address(kind, index), self.name()
            self.line(
                f"{self.known[key]} = llvm.load {at} : !llvm.ptr -> {'!llvm.ptr' if kind == 'pointer' else 'i64'}"
            )
        return self.known[key]

    def steps(self, steps: Iterable[Step]) -> None:
        for step in steps:
            if isinstance(step, int):
                self.call(step)
            elif isinstance(step, IfStep):
                self.branch(step)
            else:
                self.loop(step)

    def call(self, number: int) -> None:
        function, buffers, sizes = self.program.calls[number]
        numbers = [*sizes, *(self.program.passed[number] if self.program.passed else ())]
        names = ["%ctx", *(self.fetch("pointer", b) for b in buffers), *(self.number(each) for each in numbers)]
        types = ["!llvm.ptr"] * (1 + len(buffers)) + ["i64"] * len(numbers)
        callee, result = self.program.functions[function], self.name()
        if self.called:
            self.look()
        self.called = True
        if self.program.traced:
            self.report_site(abi.begins(number))
        self.line(f"{result} = llvm.call @{callee.name}({', '.join(names)}) : ({', '.join(types)}) -> i32")
        if callee.name in self.fallible:
            failed = self.name()
            self.line(f"{failed} = arith.cmpi ne, {result}, %zero : i32")
            self.leave_if(failed)
        if self.program.traced:
            self.report_site(abi.ends(number))

    def number(self, value: Size) -> str:
        """A dim, or a constant."""
        if isinstance(value, Slot):
            return self.fetch("dim", value.index)
        name = self.name()
        self.line(f"{name} = arith.constant {value} : i64")
        return name

    def at(self, block: str, offset: int) -> str:
        """The address of what lies so many bytes behind the start of a block."""
        at = self.name()
        self.line(f"{at} = llvm.getelementptr inbounds {block}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8")
        return at

    def field(self, offset: int, type: str) -> str:
        """A field of the context, as it is now."""
        at, value = self.at("%ctx", offset), self.name()
        self.line(f"{value} = llvm.load {at} : !llvm.ptr -> {type}")
        return value

    def look(self) -> None:
        """Leaves when the call has been ended meanwhile."""
        status, none, ended = self.field(abi.STATUS_OFFSET, "i64"), self.name(), self.name()
        self.line(f"{none} = arith.constant 0 : i64")
        self.line(f"{ended} = arith.cmpi ne, {status}, {none} : i64")
        self.leave_if(ended)

    def leave_if(self, condition: str) -> None:
        """Returns 1 where a condition holds.

        This is a branch and not an `scf.if`: an entry may have a thousand calls, and MLIR takes longer to lower so many
        structured exits than LLVM takes for the rest.
        """
        after = f"^bb{next(self.blocks)}"
        self.line(f"llvm.cond_br {condition}, {_LEAVING}, {after}")
        self.lines.append(f"  {after}:\n")  # what this block loaded stays known: it is the only way here
        self.leaves = True

    def report_site(self, site: int) -> None:
        """Reports that a group begins or ends."""
        report, number, nothing = self.field(abi.REPORT_OFFSET, "!llvm.ptr"), self.name(), self.name()
        self.line(f"{number} = arith.constant {site} : i64")
        self.line(f"{nothing} = llvm.mlir.zero : !llvm.ptr")
        types = "!llvm.ptr, (!llvm.ptr, i64, !llvm.ptr) -> ()"
        self.line(f"llvm.call {report}(%ctx, {number}, {nothing}) : {types}")

    def choose(self, condition: int, then: str, otherwise: str) -> None:
        """Ends a block: goes on where the bool in a buffer says."""
        byte, none, flag = (self.name() for _ in range(3))
        place = self.fetch("pointer", condition)
        if self.program.on_device:
            place = self.brought(place)
        self.line(f"{byte} = llvm.load {place} : !llvm.ptr -> i8")
        self.line(f"{none} = arith.constant 0 : i8")
        self.line(f"{flag} = arith.cmpi ne, {byte}, {none} : i8")
        self.line(f"llvm.cond_br {flag}, {then}, {otherwise}")

    def brought(self, place: str) -> str:
        """Copies a byte of the device to the host, which waits for it; leaves when that fails."""
        device, size, kind, copy, code, failed, wide = (self.name() for _ in range(7))
        self.line(f"{device} = llvm.load {self.at('%ctx', abi.DEVICE_OFFSET)} : !llvm.ptr -> !llvm.ptr")
        self.line(f"{size} = arith.constant 1 : i64")
        self.line(f"{kind} = arith.constant {abi.TO_HOST} : i32")
        self.line(f"{copy} = llvm.load {self.at(device, abi.COPY_FUNCTION_OFFSET)} : !llvm.ptr -> !llvm.ptr")
        types = "!llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i32) -> i32"
        self.line(f"{code} = llvm.call {copy}({device}, %byte, {place}, {size}, {kind}) : {types}")
        self.line(f"{failed} = arith.cmpi ne, {code}, %zero : i32")
        number, code_at = self.at(device, abi.FAILED_KERNEL_OFFSET), self.at(device, abi.FAILED_CODE_OFFSET)
        self.line(f"{wide} = arith.extsi {code} : i32 to i64")
        self.line(f"scf.if {failed} {{")
        self.line(f"  llvm.store %no_kernel, {number} : i64, !llvm.ptr")
        self.line(f"  llvm.store {wide}, {code_at} : i64, !llvm.ptr")
        self.line(f"  {LEAVE}")
        self.line("}")
        return "%byte"

    def branch(self, step: IfStep) -> None:
        then, otherwise, after = (f"^bb{next(self.blocks)}" for _ in range(3))
        self.choose(step.condition, then, otherwise)
        for block, steps in ((then, step.then), (otherwise, step.otherwise)):
            self.begin(block)
            self.steps(steps)
            self.line(f"llvm.br {after}")
        self.begin(after)

    def loop(self, step: WhileStep) -> None:
        head, body, after = (f"^bb{next(self.blocks)}" for _ in range(3))
        self.line(f"llvm.br {head}")
        self.begin(head)
        self.steps(step.predicate)
        self.choose(step.condition, body, after)
        self.begin(body)
        self.steps(step.body)
        for pair in step.swaps:
            values = [self.fetch("pointer", buffer) for buffer in pair]
            for buffer, value in zip(pair, reversed(values), strict=True):
                self.line(f"llvm.store {value}, {self.address('pointer', buffer)} : !llvm.ptr, !llvm.ptr")
        stop = self.name()  # short kernels do not poll, and a loop may have no end
        self.line(f"{stop} = llvm.call @ek.poll(%ctx, %zero) : (!llvm.ptr, i32) -> i1")
        self.leave_if(stop)
        self.line(f"llvm.br {head}")
        self.begin(after)
