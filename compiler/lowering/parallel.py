"""Writes parallel regions on a CPU: a function for the work, a task around it for the pool, a call that spreads it.

Input: a `parallel` operation. Output: two functions in the module, and lines in the caller. Non-goals: the pool itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.contract import abi
from ..ir.program import Op, PointerType, Value, captures
from .entry import spreading
from .types import register_bytes
from .writer import FunctionWriter, emits


@emits("parallel")
def _parallel(w: FunctionWriter, op: Op) -> None:
    """Outlines the region; the task unpacks what it captured and computes its range."""
    module = w.module
    number = module.task_count
    module.task_count += 1
    region = op.regions[0]
    captured = captures(region)
    module.functions.append(_task_body(w, number, captured, op))
    has_exit = "@ek.exit(" in module.functions[-1]
    offsets, size = _layout(captured)
    module.functions.append(_task(w, number, captured, offsets, has_exit))
    count, block = w.names.fresh(), w.names.fresh()
    w.prologue.append(f"    {count} = llvm.mlir.constant({size} : i64) : i64\n")
    w.prologue.append(f"    {block} = llvm.alloca {count} x i8 {{alignment = 64 : i64}} : (i64) -> !llvm.ptr\n")
    total, grain = w.name(op.operands[0]), w.name(op.operands[1])
    w.line(f"llvm.store %ctx, {block} : !llvm.ptr, !llvm.ptr")
    for value, offset in zip(captured, offsets, strict=True):
        address = w.op(f"llvm.getelementptr inbounds {block}[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8")
        w.line(f"llvm.store {w.name(value)}, {address} : {w.type(value.type)}, !llvm.ptr")
    task = w.op(f"llvm.mlir.addressof @task_{number} : !llvm.ptr")
    if w.spreads:
        w.lines.append(spreading(total, grain, task, block))
    else:
        types = "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()"
        w.line(f"llvm.call @ek.spread(%ctx, {total}, {grain}, {task}, {block}) : {types}")
    if has_exit:
        _exit_if_failed(w)


def _exit_if_failed(w: FunctionWriter) -> None:
    address = w.op(f"llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8")
    status = w.op(f"llvm.load {address} atomic monotonic {{alignment = 8 : i64}} : !llvm.ptr -> i64")
    zero = w.op("arith.constant 0 : i64")
    failed = w.op(f"arith.cmpi ne, {status}, {zero} : i64")
    w.line(f"scf.if {failed} {{ llvm.call @ek.exit() : () -> () }}")


_HEADER = 24  # bytes of the task's argument before the captured values: context, total, step


def _layout(captured: Sequence[Value]) -> tuple[list[int], int]:
    """Where each captured value lies behind the task's argument."""
    offsets, offset = [], _HEADER
    for value in captured:
        size = 8 if isinstance(value.type, PointerType) else register_bytes(value.type)
        align = max(8, 1 << (size - 1).bit_length())
        offset = -(-offset // align) * align
        offsets.append(offset)
        offset += size
    return offsets, -(-offset // 64) * 64


def _task_body(w: FunctionWriter, number: int, captured: list[Value], op: Op) -> str:
    """`@body_N(%ctx, captured..., %low, %high) -> i32`."""
    inner, region = w.sibling(), op.regions[0]
    params = ["%ctx: !llvm.ptr", *inner.parameters(captured)]
    for argument, name in zip(region.args, ("%low", "%high"), strict=True):
        inner.names.set(argument, name)
        params.append(f"{name}: i64")
    for operation in region.ops[:-1]:
        inner.operation(operation)
    inner.at = ""
    zero = inner.op("arith.constant 0 : i32")
    inner.line(f"llvm.return {zero} : i32")
    head = f"llvm.func internal @body_{number}({', '.join(params)}) -> i32 attributes {{{_attributes(op)}}}"
    return inner.finish(head, w.module.location(op.location))


def _attributes(op: Op) -> str:
    """The widths of vectors that `passes.stream_loops` has chosen."""
    if "vector_bits" not in op.attrs:
        return ""
    names = ["prefer-vector-width", *(["min-legal-vector-width"] if "split_vectors" in op.attrs else [])]
    bits = op.attrs["vector_bits"]
    return "passthrough = [" + ", ".join(f'["{name}", "{bits}"]' for name in names) + "]"


def _task(w: FunctionWriter, number: int, captured: list[Value], offsets: list[int], has_exit: bool) -> str:
    """`@task_N(%argument, %chunk)`: what the pool calls. After a failure, tasks that have not begun do nothing."""
    lines = ["    %ctx = llvm.load %argument : !llvm.ptr -> !llvm.ptr\n"]
    if has_exit:
        lines += [
            f"    %failed_p = llvm.getelementptr inbounds %ctx[{abi.STATUS_OFFSET}] : (!llvm.ptr) -> !llvm.ptr, i8\n",
            "    %failed = llvm.load %failed_p atomic monotonic {alignment = 8 : i64} : !llvm.ptr -> i64\n",
            "    %none = arith.constant 0 : i64\n",
            "    %over = arith.cmpi ne, %failed, %none : i64\n",
            "    scf.if %over { llvm.call @ek.exit() : () -> () }\n",
        ]
    names, types = ["%ctx"], ["!llvm.ptr"]

    def field(name: str, offset: int, type: str) -> None:
        lines.append(f"    {name}p = llvm.getelementptr inbounds %argument[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8\n")
        lines.append(f"    {name} = llvm.load {name}p : !llvm.ptr -> {type}\n")

    field("%total", 8, "i64")
    field("%step", 16, "i64")
    for position, (value, offset) in enumerate(zip(captured, offsets, strict=True)):
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
    lines.append(f"    %status = llvm.call @body_{number}({', '.join(names)}) : ({', '.join(types)}) -> i32\n")
    lines.append("    llvm.return\n")
    # Not inlined into the loop that runs tasks in order, where it would be a second copy, with other attributes. Nor is
    # the body inlined here: LLVM would do all its work on it twice.
    head = f"llvm.func internal @task_{number}(%argument: !llvm.ptr, %chunk: i64)"
    return f"  {head} attributes {{no_inline, optimize_none}} {{\n{''.join(lines)}  }}\n"
