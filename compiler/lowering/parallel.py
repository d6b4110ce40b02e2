"""Parallel regions on a CPU: a function for the work, a task around it for the pool, and the call that spreads it.

Input: a `parallel` operation. Output: two functions in the module, and lines in the caller. Non-goals: the pool itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...dsl.contract import abi
from ...dsl.types.dtype import SIMDType
from ..ir.program import Op, PointerType, Region, Value, free_values, walk
from .entry import spreading
from .types import register_bytes

if TYPE_CHECKING:
    from .writer import FunctionEmitter


def captures(region: Region) -> list[Value]:
    """What a region takes from outside; constants are made again inside."""
    return [v for v in free_values(region) if v.const is None]


def parallel(e: FunctionEmitter, op: Op) -> None:
    """Outlines the region; the task unpacks what it captured and computes its range."""
    module = e.module
    number = module.task_count
    module.task_count += 1
    region = op.regions[0]
    captured = captures(region)
    attributes = _attributes(e, region)
    module.functions.append(_task_body(e, number, captured, attributes, op))
    has_exit = "@ek.exit(" in module.functions[-1]
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
    if e.spreads:
        e.lines.append(spreading(total, grain, task, block))
    else:
        types = "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()"
        e.line(f"llvm.call @ek.spread(%ctx, {total}, {grain}, {task}, {block}) : {types}")
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
        size = 8 if isinstance(value.type, PointerType) else register_bytes(value.type)
        align = max(8, 1 << (size - 1).bit_length())
        offset = -(-offset // align) * align
        offsets.append(offset)
        offset += size
    return offsets, -(-offset // 64) * 64


def _task_body(e: FunctionEmitter, number: int, captured: list[Value], attributes: str, op: Op) -> str:
    """`@body_N(%ctx, captured..., %low, %high) -> i32`."""
    inner, region = e.sibling(), op.regions[0]
    if attributes:  # half vectors
        inner.vector_bits //= 2
    params = ["%ctx: !llvm.ptr", *inner.parameters(captured)]
    for argument, name in zip(region.args, ("%low", "%high"), strict=True):
        inner.names.set(argument, name)
        params.append(f"{name}: i64")
    for operation in region.ops[:-1]:
        inner.operation(operation)
    inner.at = ""
    zero = inner.op("arith.constant 0 : i32")
    inner.line(f"llvm.return {zero} : i32")
    head = f"llvm.func internal @body_{number}({', '.join(params)}) -> i32 attributes {{{attributes}}}"
    return inner.finish(head, e.module.location(op.location))


def _task(e: FunctionEmitter, number: int, captured: list[Value], offsets: list[int], has_exit: bool) -> str:
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
    # Not inlined into the loop that runs tasks in order, where it would be a second copy, with other attributes. Nor is
    # the body inlined here: LLVM would do all its work on it twice.
    head = f"llvm.func internal @task_{number}(%argument: !llvm.ptr, %chunk: i64)"
    return f"  {head} attributes {{no_inline, optimize_none}} {{\n{''.join(lines)}  }}\n"


LIGHT = 24  # operations of a loop body that memory, not arithmetic, keeps waiting
STREAMED = 3  # operations on numbers, for each access to memory, of a loop of which the same is true,
FEW = 8  # and in all: a loop that keeps more in registers has loaded it for more than one operation
LOOPS = frozenset({"for", "while"})
_MOVED = frozenset({"load", "bitcast", "const"})  # costs nothing beside the access
_LANES = frozenset({"shuffle", "take", "extract", "insert", "lanes", "masked_load", "gather"})


def _attributes(e: FunctionEmitter, region: Region) -> str:
    """Attributes of a region's functions: half of AVX-512's vectors for loops that only stream memory.

    A whole vector is a cache line, and every access that does not start at one touches two; where little is computed,
    that is all that counts (20 % on 16 M elements, 10 to 30 % on rows that lie in the third cache). Where each loop
    streams, so does what the author wrote in wider vectors.
    """
    if e.target.vector_bits != 512:
        return ""
    ops = list(walk(region))
    streams = any(op.name == "prefetch" for op in ops) and all(map(_streams, _innermost(region)))
    attributes = []
    if streams or len(ops) <= LIGHT:
        attributes.append('["prefer-vector-width", "256"]')
    if streams:
        attributes.append('["min-legal-vector-width", "256"]')
    return f"passthrough = [{', '.join(attributes)}]" if attributes else ""


def _innermost(region: Region) -> list[Region]:
    """The loops within a region that have no loop in them."""
    found: list[Region] = []
    for op in region.ops:
        for inner in op.regions:
            within = _innermost(inner)
            found += within or ([inner] if op.name in LOOPS else [])
    return found


def _streams(loop: Region) -> bool:
    """Whether an innermost loop computes little for what it reads and writes, and moves no lanes.

    That counts where memory is asked for ahead: else more instructions for a line mean that fewer lines are under way
    at a time.
    """
    used = {value.serial for op in walk(loop) for value in op.operands}
    same: dict[int, Any] = {}  # what splats are the splats of: one scalar may be spread more than once
    loaded = set[int]()  # what was read and what is made of it: no indices, even if they are integers
    work, accesses = set(), 0
    for op in walk(loop):
        if op.name in _LANES:
            return False
        accesses += op.name in ("load", "store")
        if op.name == "load" or any(value.serial in loaded for value in op.operands):
            loaded.update(result.serial for result in op.results)
        operands = tuple(same.get(value.serial, value.serial) for value in op.operands)
        if op.name == "splat":
            same[op.results[0].serial] = ("splat", *operands)
        elif op.name not in _MOVED and any(
            result.serial in used and (result.serial in loaded or _is_number(result)) for result in op.results
        ):
            work.add((op.name, operands))
    return len(work) <= min(STREAMED * accesses, FEW)


def _is_number(value: Value) -> bool:
    """Whether a value is what loops compute with, and no index."""
    return isinstance(value.type, SIMDType) and (value.type.width > 1 or value.dtype.is_float())
