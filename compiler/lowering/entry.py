"""Writes the parts of a CPU module that are the same for every kernel: the entry, and the spreading of work.

Input: the typed program. Output: MLIR text of whole functions. Non-goals: no operation of a kernel is written here.
"""

from __future__ import annotations

import re
from collections.abc import Set

from ...dsl.contract import abi
from ..ir.program import Program
from .writer import LEAVE


def spreading(total: str, grain: str, task: str, block: str) -> str:
    """The operations that spread a region."""
    names = {"TOTAL": total, "GRAIN": grain, "TASK": task, "BLOCK": block}
    return re.sub("|".join(names), lambda match: names[match[0]], _SPREADING)


# Cuts [0, total) into tasks of at least `grain`, four for each thread at most, and has the pool run them. It runs once
# a region and is the same in every module: LLVM need not spend a fifth of its time on it.
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
      %wanted_less = arith.divui %before, %least : i64
      %wanted = arith.addi %wanted_less, %one : i64
      %alone = arith.cmpi eq, %threads, %one : i64
      %several = arith.muli %threads, %four : i64
      %most = arith.select %alone, %one, %several : i64
      %tasks = arith.minsi %wanted, %most : i64
      %step_less = arith.divui %before, %tasks : i64
      %step = arith.addi %step_less, %one : i64
      %chunks_less = arith.divui %before, %step : i64
      %chunks = arith.addi %chunks_less, %one : i64
      %total_p = llvm.getelementptr inbounds BLOCK[8] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store TOTAL, %total_p : i64, !llvm.ptr
      %step_p = llvm.getelementptr inbounds BLOCK[16] : (!llvm.ptr) -> !llvm.ptr, i8
      llvm.store %step, %step_p : i64, !llvm.ptr
      %nobody = llvm.mlir.zero : !llvm.ptr
      %serial = llvm.icmp "eq" %parallel, %nobody : !llvm.ptr
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
    """`@ek_entry(%ctx, %pointers, %dims) -> i32`: the groups in order, until one fails; or the stage that is asked for.

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


def _calls(program: Program, fallible: Set[str], symbol: str, calls: range) -> str:
    """A function that makes some of the program's calls, in order, until one fails."""
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
    for number in calls:
        function, buffers, slots = program.calls[number]
        names = ["%ctx", *(fetch("pointer", b) for b in buffers), *(fetch("dim", s) for s in slots)]
        types = ["!llvm.ptr"] * (1 + len(buffers)) + ["i64"] * len(slots)
        callee = program.functions[function]
        lines.append(f"    %r{number} = llvm.call @{callee.name}({', '.join(names)}) : ({', '.join(types)}) -> i32\n")
        if callee.name in fallible:
            lines.append(f"    %f{number} = arith.cmpi ne, %r{number}, %zero : i32\n")
            lines.append(f"    scf.if %f{number} {{ {LEAVE} }}\n")
    lines.append("    llvm.return %zero : i32\n")
    head = f"llvm.func {symbol}({_PARAMETERS}) -> i32 {_PLAIN}"
    return f"  {head} {{\n{''.join(lines)}  }}\n"
