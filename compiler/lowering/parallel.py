"""Writes parallel regions on a CPU: a function for the work, a task around it for the pool, a call that spreads it."""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.contract import abi
from ...dsl.diagnostics.dataclass import dataclass
from ..ir.program import Op, PointerType, Value, captures
from .entry import spreading
from .types import register_bytes
from .writer import LEAVE, FunctionWriter, emits


@dataclass(frozen=True)
class _Task:
    """A region that becomes functions: its number in the module, and the values that it takes from outside.

    These lie at `offsets` in a block of `size` bytes, behind the context, the total and the step.
    """

    number: int
    op: Op
    captured: list[Value]
    offsets: list[int]
    size: int


@emits("parallel")
def _parallel(w: FunctionWriter, op: Op) -> None:
    """Outlines the region; the task unpacks what it captured and computes its range."""
    module = w.module
    captured = captures(op.regions[0])
    task = _Task(module.task_count, op, captured, *layout(captured, _HEADER))
    module.task_count += 1
    module.functions.append(_body(w.sibling(), task))
    fallible = LEAVE in module.functions[-1]
    module.functions.append(_task(w, task, fallible))
    block, _ = w.storage(task.size)
    total, grain = w.name(op.operands[0]), w.name(op.operands[1])
    w.line(f"llvm.store %ctx, {block} : !llvm.ptr, !llvm.ptr")
    for value, offset in zip(captured, task.offsets, strict=True):
        address = w.field(block, offset)
        w.line(f"llvm.store {w.name(value)}, {address} : {w.type(value.type)}, !llvm.ptr")
    function = w.op(f"llvm.mlir.addressof @task_{task.number} : !llvm.ptr")
    if "spread_here" in op.attrs:
        w.lines.append(spreading(total, grain, function, block))
    else:
        types = "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()"
        w.line(f"llvm.call @ek.spread(%ctx, {total}, {grain}, {function}, {block}) : {types}")
    if fallible:
        exit_if_failed(w)


def exit_if_failed(w: FunctionWriter) -> None:
    """Leaves the function when a task has failed."""
    address = w.field("%ctx", abi.STATUS_OFFSET)
    status = w.op(f"llvm.load {address} atomic monotonic {{alignment = 8 : i64}} : !llvm.ptr -> i64")
    zero = w.op("arith.constant 0 : i64")
    failed = w.op(f"arith.cmpi ne, {status}, {zero} : i64")
    w.line(f"scf.if {failed} {{ {LEAVE} }}")


_HEADER = 24  # bytes of the task's argument before the captured values: context, total, step


def layout(captured: Sequence[Value], header: int) -> tuple[list[int], int]:
    """Where each captured value lies behind the `header` of the task's argument, and how long that is."""
    offsets, offset = [], header
    for value in captured:
        size = 8 if isinstance(value.type, PointerType) else register_bytes(value.type)
        align = max(8, 1 << (size - 1).bit_length())
        offset = -(-offset // align) * align
        offsets.append(offset)
        offset += size
    return offsets, -(-offset // 64) * 64


def _body(w: FunctionWriter, task: _Task) -> str:
    """`@body_N(%ctx, captured..., %low, %high) -> i32`."""
    region = task.op.regions[0]
    params = ["%ctx: !llvm.ptr", *w.parameters(task.captured)]
    for argument, name in zip(region.args, ("%low", "%high"), strict=True):
        w.bind(argument, name)
        params.append(f"{name}: i64")
    for op in region.ops[:-1]:
        w.operation(op)
    w.at = ""
    zero = w.op("arith.constant 0 : i32")
    w.line(f"llvm.return {zero} : i32")
    head = f"llvm.func internal @body_{task.number}({', '.join(params)}) -> i32 attributes {{{_attributes(task.op)}}}"
    return w.finish(head, w.module.location(task.op.location))


def _attributes(op: Op) -> str:
    """The widths of vectors that `passes.stream_loops` has chosen."""
    if "vector_bits" not in op.attrs:
        return ""
    names = ["prefer-vector-width", *(["min-legal-vector-width"] if "split_vectors" in op.attrs else [])]
    bits = op.attrs["vector_bits"]
    return "passthrough = [" + ", ".join(f'["{name}", "{bits}"]' for name in names) + "]"


def _task(w: FunctionWriter, task: _Task, fallible: bool) -> str:
    """`@task_N(%argument, %chunk)`: what the pool calls. After a failure, tasks that have not begun do nothing."""
    lines = ["    %ctx = llvm.load %argument : !llvm.ptr -> !llvm.ptr\n"]
    if fallible:
        lines += [
            f"    %failed_p = llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8\n",
            "    %failed = llvm.load %failed_p atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64\n",
            "    %none = arith.constant 0 : i64\n",
            "    %over = arith.cmpi ne, %failed, %none : i64\n",
            f"    scf.if %over {{ {LEAVE} }}\n",
        ]
    names, types = ["%ctx"], ["!llvm.ptr"]

    def field(name: str, offset: int, type: str) -> None:
        lines.append(f"    {name}p = llvm.getelementptr inbounds %argument[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8\n")
        lines.append(f"    {name} = llvm.load {name}p : !llvm.ptr -> {type}\n")

    field("%total", 8, "i64")
    field("%step", 16, "i64")
    for position, (value, offset) in enumerate(zip(task.captured, task.offsets, strict=True)):
        field(f"%c{position}", offset, w.type(value.type))
        names.append(f"%c{position}")
        types.append(w.type(value.type))
    lines += [
        "    %low = arith.muli %chunk, %step overflow<nsw> : i64\n",
        "    %end = arith.addi %low, %step overflow<nsw> : i64\n",
        "    %high = arith.minsi %end, %total : i64\n",
    ]
    names += ["%low", "%high"]
    types += ["i64", "i64"]
    lines.append(f"    %status = llvm.call @body_{task.number}({', '.join(names)}) : ({', '.join(types)}) -> i32\n")
    lines.append("    llvm.return\n")
    # Not inlined into the loop that runs tasks in order, where it would be a second copy, with other attributes. Nor is
    # the body inlined here: LLVM would do all its work on it twice.
    head = f"llvm.func internal @task_{task.number}(%argument: !llvm.ptr, %chunk: i64)"
    return f"  {head} attributes {{no_inline, optimize_none}} {{\n{''.join(lines)}  }}\n"
