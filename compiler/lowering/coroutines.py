"""Writes launches whose threads wait for each other, where no hardware runs them: every thread is a coroutine.

    launch 4, 1, 1, 32, 1, 1       @ek.thread.0(%thread, %argument)      {the region, once for each thread}
      ...                      =>    ...
      barrier                        state = BLOCK, site = 3; suspend
      ...                            ...

The caller spreads the blocks over the pool; a task runs its blocks one after the other, in memory of its own, by the
scheduler of `simulation.scheduler`. An operation for which threads wait is a few lines here:

    suspend(w, op, Scope.block)                     goes on when all threads of the block are there
    exchange(w, op, parts, source)                  the same for a warp, whose threads give each other a value

See also `passes.expand_launches` (which are loops).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import InternalError
from ..ir.program import Op, Scope, Value, captures
from ..ir.simulation import (
    BEGIN,
    RUN,
    SLOT_BYTES,
    SUSPEND,
    THREAD,
    Argument,
    BlockRecord,
    Orders,
    State,
    Thread,
    of_cluster,
    offset,
    spins,
)
from . import launches, watched
from .parallel import exit_if_failed, layout
from .reports import site_number
from .writer import Emitter, FunctionWriter

_STATES: dict[Scope | None, State] = {
    None: State.SPIN,
    Scope.warp: State.WARP,
    Scope.block: State.BLOCK,
    Scope.cluster: State.CLUSTER,
}
_HEADER = ctypes.sizeof(Argument)  # bytes of the argument before the captured values
_SHARED_ALIGNMENT = 16


# *** launches ***


def launch(w: FunctionWriter, op: Op, emit: Emitter) -> None:
    """Runs the blocks of a launch, spread over the pool; `emit` writes what threads do that spin."""
    region = op.regions[0]
    captured = captures(region)
    offsets, size = layout(captured, _HEADER)
    number = w.module.task_count
    w.module.task_count += 1
    thread = watched.Watched(w.module) if w.target.checks_memory else w.sibling()
    w.module.functions.append(_thread(thread, op, f"{THREAD}{number}", captured, offsets, emit))
    argument, _ = w.storage(size)
    x, y, z, *block = (w.name(value) for value in op.operands[:6])
    total = w.op(f"arith.muli {w.op(f'arith.muli {x}, {y} : i64')}, {z} : i64")
    cluster = _cluster(w, op)
    if math.prod(cluster) > 1:
        total = w.op(f"arith.divui {total}, {w.op(f'arith.constant {math.prod(cluster)} : i64')} : i64")
    w.line(f"llvm.store %ctx, {argument} : !llvm.ptr, !llvm.ptr")
    function = w.op(f"llvm.mlir.addressof @{THREAD}{number} : !llvm.ptr")
    w.line(f"llvm.store {function}, {w.field(argument, offset(Argument, 'thread'))} : !llvm.ptr, !llvm.ptr")
    known = {"shared": thread.shared_bytes, "slots": int(thread.exchanges), "lanes": w.target.warp_size}
    known |= dict(zip(("cluster_x", "cluster_y", "cluster_z"), cluster, strict=True))
    facts = {"grid_x": x, "grid_y": y} | dict(zip(("block_x", "block_y", "block_z"), block, strict=True))
    facts |= {name: w.op(f"arith.constant {value} : i64") for name, value in known.items()}
    facts["dynamic"] = w.name(op.operands[6]) if len(op.operands) > 6 else w.op("arith.constant 0 : i64")
    if spins(region):
        facts |= _residents(w, op, thread.shared_bytes, facts["dynamic"], math.prod(cluster))
        one = total
    else:
        facts["resident"] = one = w.op("arith.constant 0 : i64")
    for name, known_as in facts.items():
        w.line(f"llvm.store {known_as}, {w.field(argument, offset(Argument, name))} : i64, !llvm.ptr")
    for value, place in zip(captured, offsets, strict=True):
        w.line(f"llvm.store {w.name(value)}, {w.field(argument, place)} : {w.type(value.type)}, !llvm.ptr")
    task = w.op(f"llvm.mlir.addressof @{RUN} : !llvm.ptr")
    types = "(!llvm.ptr, i64, i64, !llvm.ptr, !llvm.ptr) -> ()"
    w.line(f"llvm.call @ek.spread(%ctx, {total}, {one}, {task}, {argument}) : {types}")
    exit_if_failed(w)
    w.module.declare(RUN, "(!llvm.ptr, i64)")


def _residents(w: FunctionWriter, op: Op, static: int, dynamic: str, cluster: int) -> dict[str, str]:
    """What the scheduler has to know of a launch whose threads spin: how many clusters a device would hold at once."""
    limits = w.target.limits
    x, y, z = (w.name(value) for value in op.operands[3:6])
    threads = w.op(f"arith.muli {w.op(f'arith.muli {x}, {y} : i64')}, {z} : i64")

    def number(value: int) -> str:
        return w.op(f"arith.constant {value} : i64")

    each = w.op(f"arith.divui {number(limits.resident_threads)}, {threads} : i64")
    each = w.op(f"arith.minui {each}, {number(limits.resident_blocks)} : i64")
    if limits.resident_shared_memory:
        reserved = 1024 if limits.resident_shared_memory > limits.shared_memory else 0  # by the device, for each block
        shared = w.op(f"arith.addi {dynamic}, {number(max(1, static) + reserved)} : i64")
        fit = w.op(f"arith.divui {number(limits.resident_shared_memory)}, {shared} : i64")
        each = w.op(f"arith.minui {each}, {fit} : i64")
    blocks = w.op(f"arith.muli {each}, {number(limits.multiprocessors)} : i64")
    clusters = w.op(f"arith.divui {blocks}, {number(cluster)} : i64")
    resident = w.op(f"arith.maxui {clusters}, {number(1)} : i64")
    site = site_number(w, w.module.waiting(op))
    return {"resident": resident, "moves": number(0), "changes": number(0), "waiting": site, "draws": number(0)}


def _cluster(w: FunctionWriter, op: Op) -> tuple[int, int, int]:
    """The blocks that one task runs: those of a cluster that know of each other. Their grid is a multiple of it."""
    sizes: tuple[int, int, int] = op.attrs.get("cluster", (1, 1, 1))
    if math.prod(sizes) == 1 or not of_cluster(op.regions[0]):
        return 1, 1, 1
    if not w.target.has_grid:  # elsewhere the host has looked
        launches.refuse_parts_of_clusters(w, op, sizes)
    return sizes


def _thread(w: FunctionWriter, op: Op, symbol: str, captured: list[Value], offsets: list[int], emit: Emitter) -> str:
    """`@ek.thread.N(%thread, %argument)`: what a thread does; `codegen.coroutines` makes a coroutine of it."""
    w.thread = "%thread"
    w.line(f"llvm.call @{BEGIN}() : () -> ()")
    w.line("%ctx = llvm.load %argument : !llvm.ptr -> !llvm.ptr")
    w.line(f"%blockp = llvm.getelementptr inbounds %thread[{offset(Thread, 'block')}] : (!llvm.ptr) -> !llvm.ptr, i8")
    w.line("%block = llvm.load %blockp : !llvm.ptr -> !llvm.ptr")
    if w.target.checks_memory:
        w.line(f"%checks = llvm.load {w.field('%block', offset(BlockRecord, 'own'))} : !llvm.ptr -> !llvm.ptr")
    for value, place in zip(captured, offsets, strict=True):
        w.bind(value, w.op(f"llvm.load {w.field('%argument', place)} : !llvm.ptr -> {w.type(value.type)}"))
    if isinstance(w, watched.Watched):
        w.report_work(op)
    if spins(op.regions[0]):
        w.emit = emit
    w.region(op.regions[0])
    w.at = ""
    w.line("llvm.return")
    head = f"llvm.func internal @{symbol}(%thread: !llvm.ptr, %argument: !llvm.ptr)"
    return w.finish(head, w.module.location(op.location))


# *** queries of a thread ***


def field(w: FunctionWriter, name: str) -> str:
    """A number of the thread's record: x, y, z, number, lane, warp."""
    return w.op(f"llvm.load {w.field('%thread', offset(Thread, name))} : !llvm.ptr -> i64")


def block_field(w: FunctionWriter, name: str, type: str = "i64") -> str:
    """What stands in the record of the thread's block."""
    return w.op(f"llvm.load {w.field('%block', offset(BlockRecord, name))} : !llvm.ptr -> {type}")


def shared(w: FunctionWriter, size: int, alignment: int = _SHARED_ALIGNMENT) -> str:
    """The address of so many bytes of the block's shared memory, allocated once."""
    alignment = max(alignment, _SHARED_ALIGNMENT)
    start = -(-w.shared_bytes // alignment) * alignment
    w.shared_bytes = -(-(start + size) // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT
    return w.field(block_field(w, "shared", "!llvm.ptr"), start)


def dynamic_shared(w: FunctionWriter) -> str:
    """The address of the shared memory whose size the launch gives."""
    return block_field(w, "dynamic", "!llvm.ptr")


def peer(w: FunctionWriter, pointer: str, rank: str, blocks: int) -> str:
    """The same place in the shared memory of another block of the cluster; in the first where there is none such."""
    count, zero = (w.op(f"arith.constant {number} : i64") for number in (blocks, 0))
    there = w.op(f"arith.select {w.op(f'arith.cmpi ult, {rank}, {count} : i64')}, {rank}, {zero} : i64")
    place = w.op(f"arith.muli {there}, {w.op(f'arith.constant {ctypes.sizeof(BlockRecord)} : i64')} : i64")
    records = block_field(w, "blocks", "!llvm.ptr")
    record = w.op(f"llvm.getelementptr {records}[{place}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
    other = w.op(f"llvm.load {w.field(record, offset(BlockRecord, 'shared'))} : !llvm.ptr -> i64")
    away = w.op(f"arith.subi {other}, {block_field(w, 'shared')} : i64")
    return w.op(f"llvm.getelementptr {pointer}[{away}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")


# *** waiting ***


def suspend(
    w: FunctionWriter,
    op: Op,
    scope: Scope | None,
    *,
    key: str = "",
    wanted: str = "",
    vote: str = "",
    orders: Orders = Orders.ALL,
) -> None:
    """Waits until the threads of a scope have come to the same place; without a scope, until others had their turn.

    Args:
        key: the name of an i64: threads with an equal key synchronise; without it, at the same place in the text.
        wanted: the name of an i64: the mask of the lanes (of a warp) or the number of threads (of a block) that
            synchronise.
        vote: the name of an i64, 0 or 1, that the others of the warp get to know.
        orders: of what memory all accesses before it come before those behind it.
    """
    if not w.thread:
        raise InternalError(f"{op.name} outside of a launch")
    site = site_number(w, w.module.parting(op))
    zero = w.op("arith.constant 0 : i64")
    state = w.op(f"arith.constant {int(_STATES[scope])} : i64")
    fields = {"state": state, "wanted": wanted or zero, "key": key or site, "site": site}
    if vote:
        fields["vote"] = vote
    if w.target.checks_memory:
        fields["own"] = w.op(f"arith.constant {int(orders)} : i64")
    for name, value in fields.items():
        w.line(f"llvm.store {value}, {w.field('%thread', offset(Thread, name))} : i64, !llvm.ptr")
    w.line(f"llvm.call @{SUSPEND}() : () -> ()")


def spin(w: FunctionWriter, op: Op) -> None:
    """Lets all other threads have their turn."""
    suspend(w, op, None, orders=Orders.NOTHING)


def ballot(w: FunctionWriter, op: Op, flag: str, mask: str = "") -> str:
    """Which synchronised lanes of the warp have the flag, as the bits of an i64; `flag` is the name of this one's
    i1."""
    suspend(w, op, Scope.warp, wanted=mask, vote=w.op(f"arith.extui {flag} : i1 to i64"), orders=Orders.NOTHING)
    return field(w, "ballot")


@dataclass(frozen=True)
class Lane:
    """Where a thread is in its warp, as names of i64s: its own number, and that of the last lane there is."""

    own: str
    last: str


def lane(w: FunctionWriter) -> Lane:
    """The thread's lane, and the last one of its warp; the last warp of a block may be partial."""
    own = field(w, "lane")
    first = w.op(f"arith.subi {field(w, 'number')}, {own} : i64")
    left = w.op(f"arith.subi {block_field(w, 'last')}, {first} : i64")
    most = w.op(f"arith.constant {w.target.warp_size} : i64")
    count = w.op(f"arith.minsi {left}, {most} : i64")
    return Lane(own, w.op(f"arith.subi {count}, {w.op('arith.constant 1 : i64')} : i64"))


def exchange(w: FunctionWriter, op: Op, parts: Sequence[str], source: str, mask: str = "") -> list[str]:
    """Gives the other lanes of the warp a value in parts of 32 bits, waits for theirs, and reads that of one.

    Args:
        parts: names of i32s.
        source: the name of an i64: a lane that the warp has.
        mask: the name of an i64 whose bits are the lanes that synchronise; without it, all lanes of the warp.
    """
    w.exchanges = True
    slots = block_field(w, "slots", "!llvm.ptr")
    number = field(w, "number")
    first = w.op(f"arith.subi {number}, {field(w, 'lane')} : i64")
    own, other = (_slot(w, slots, n) for n in (number, w.op(f"arith.addi {first}, {source} : i64")))
    got: list[str] = []
    most = SLOT_BYTES // 4
    for start in range(0, len(parts), most):
        now = parts[start : start + most]
        for k, part in enumerate(now):
            w.line(f"llvm.store {part}, {w.field(own, 4 * k)} : i32, !llvm.ptr")
        suspend(w, op, Scope.warp, wanted=mask, orders=Orders.NOTHING)
        places = [w.field(other, SLOT_BYTES + 4 * k) for k in range(len(now))]
        got += [w.op(f"llvm.load {place} : !llvm.ptr -> i32") for place in places]
    return got


def _slot(w: FunctionWriter, slots: str, number: str) -> str:
    """Where a thread gives values; what it gets lies behind."""
    start = w.op(f"arith.muli {number}, {w.op(f'arith.constant {2 * SLOT_BYTES} : i64')} : i64")
    return w.op(f"llvm.getelementptr {slots}[{start}] : (!llvm.ptr, i64) -> !llvm.ptr, i8")
