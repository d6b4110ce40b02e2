"""Writes what only the threads of a grid have: their ids, and barriers of the block.

See also `lowering.module` (the kernel around them).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.diagnostics.errors import InternalError
from ..ir.indices import WITHIN_BLOCKS, WITHIN_CLUSTERS
from ..ir.program import Op, Scope
from ..ir.simulation import Orders
from . import coroutines, spins
from .writer import FunctionWriter, emits

NAMED = 1 << 32  # what the numbers of named barriers begin at, on a CPU


@emits("launch")
def _launch(w: FunctionWriter, op: Op) -> None:
    """Only of threads that wait for each other; passes have made loops of the others, or kernels."""
    coroutines.launch(w, op, spins.write)


@emits("uniform")
def _uniform(w: FunctionWriter, op: Op) -> None:
    w.result(op, w.name(op.operands[0]))


@emits("gpu_id")
def _gpu_id(w: FunctionWriter, op: Op) -> None:
    what, _, axis = op.attrs["which"].partition(".")
    of = op.attrs.get("of", ())
    if w.thread:
        w.result(op, _kept(w, what, axis, of))
        return
    if what in WITHIN_BLOCKS:
        *block, lanes = of
        number = _divided(w, thread_number(w, block), lanes, "i32", rest=what == "lane_idx")
    elif what in WITHIN_CLUSTERS:
        number = _divided(w, _query(w, "block_idx", axis), of[0], "i32", rest=what == "block_in_cluster")
    else:
        number = _query(w, what, axis)
    w.result(op, w.op(f"arith.extui {number} : i32 to i64"))


def _kept(w: FunctionWriter, what: str, axis: str, of: tuple[int, ...]) -> str:
    """A number that is kept for a thread of the host, or follows from such a one."""
    if what in WITHIN_BLOCKS:
        return coroutines.field(w, what.removesuffix("_idx"))
    if what == "thread_idx":
        return coroutines.field(w, axis)
    block = coroutines.block_field(w, axis)
    return block if what == "block_idx" else _divided(w, block, of[0], "i64", rest=what == "block_in_cluster")


def _query(w: FunctionWriter, what: str, axis: str) -> str:
    """A number that a register of the hardware holds."""
    kind = {"thread_idx": "thread_id", "block_idx": "block_id"}[what]
    spelling = None if w.target.grid is None else w.target.grid.spell(kind, axis)  # type: ignore[arg-type]
    if spelling is None:
        raise InternalError(f"{w.target.name} has no spelling for {what}.{axis}")
    return w.op(spelling)


def thread_number(w: FunctionWriter, block: Sequence[int]) -> str:
    """The number of a thread in its block, along x, then y, then z, as an i32."""
    total, step = _query(w, "thread_idx", "x"), block[0]
    for axis, size in zip("yz", block[1:], strict=True):
        if size > 1:
            scaled = w.op(f"arith.muli {_query(w, 'thread_idx', axis)}, {w.op(f'arith.constant {step} : i32')} : i32")
            total = w.op(f"arith.addi {total}, {scaled} : i32")
        step *= size
    return total


def _divided(w: FunctionWriter, number: str, by: int, type: str, *, rest: bool) -> str:
    return w.op(f"arith.{'rem' if rest else 'div'}ui {number}, {w.op(f'arith.constant {by} : {type}')} : {type}")


@emits("barrier")
def _barrier(w: FunctionWriter, op: Op) -> None:
    threads = op.attrs.get("threads")
    orders = Orders.EXCHANGE if op.attrs.get("exchange") else Orders.ALL
    if w.thread and threads is None:
        coroutines.suspend(w, op, Scope.block, orders=orders)
        return
    late = w.name(op.operands[0]) if op.operands else None
    if w.thread:  # the places of others are numbers of sites, which are smaller
        first, wanted = (w.op(f"arith.constant {n} : i64") for n in (NAMED + op.attrs.get("id", 0), threads))
        key = first if late is None else w.op(f"arith.addi {first}, {late} : i64")
        coroutines.suspend(w, op, Scope.block, key=key, wanted=wanted, orders=orders)
        return
    grid = w.target.grid
    assert grid is not None
    if w.orders_matrices and grid.bulk is not None:
        w.line(grid.bulk.order.format())
    if op.attrs:
        known = f"arith.constant {op.attrs.get('id', 0)} : i32" if late is None else f"arith.trunci {late} : i64 to i32"
        known = w.op(known)
        whole = threads is None or threads % w.target.warp_size  # of a block whose last warp is not full
        count = "" if whole else f" number_of_threads = {w.op(f'arith.constant {threads} : i32')}"
        w.line(grid.named_barrier.format(id=known, threads=count))
        return
    for spelling in grid.barrier:
        w.line(spelling)


@emits("set_registers")
def _set_registers(w: FunctionWriter, op: Op) -> None:
    if w.target.grid is not None and w.target.supports("set_registers") and not w.thread:
        w.line(w.target.grid.registers[op.attrs["more"]].format(count=op.attrs["count"]))


@emits("cluster_sync")
def _cluster_sync(w: FunctionWriter, op: Op) -> None:
    if w.thread:
        coroutines.suspend(w, op, Scope.cluster)
        return
    grid = w.target.grid
    assert grid is not None
    for spelling in grid.sync_cluster:
        w.line(spelling)


@emits("peer")
def _peer(w: FunctionWriter, op: Op) -> None:
    pointer, rank = (w.name(value) for value in op.operands)
    if w.thread:
        w.result(op, coroutines.peer(w, pointer, rank, op.attrs["blocks"]))
        return
    grid = w.target.grid
    assert grid is not None
    w.result(op, w.op(grid.peer.format(pointer=pointer, rank=w.op(f"arith.trunci {rank} : i64 to i32"))))


@emits("fence")
def _fence(w: FunctionWriter, op: Op) -> None:
    w.line(f"llvm.fence {w.scope(op.attrs['scope'])}{op.attrs['ordering']}")
