"""Writes what only the threads of a grid can ask: who they are, and a wait for the others of the block.

Input: a `FunctionWriter` and an operation. Output: lines. Non-goals: the kernel around them (see `lowering.module`).
"""

from __future__ import annotations

from ...dsl.diagnostics.errors import InternalError
from ..ir.program import Op, Scope
from . import coroutines
from .writer import FunctionWriter, emits


@emits("launch")
def _launch(w: FunctionWriter, op: Op) -> None:
    """Only of threads that wait for each other; passes have made loops of the others, or kernels."""
    coroutines.launch(w, op)


@emits("uniform")
def _uniform(w: FunctionWriter, op: Op) -> None:
    w.result(op, w.name(op.operands[0]))


@emits("gpu_id")
def _gpu_id(w: FunctionWriter, op: Op) -> None:
    what, axis = op.attrs["which"].split(".")
    if w.thread:
        w.result(op, coroutines.field(w, axis) if what == "thread_idx" else coroutines.block_field(w, axis))
        return
    grid = w.target.grid
    kind = {"thread_idx": "thread_id", "block_idx": "block_id"}[what]
    spelling = None if grid is None else grid.spell(kind, axis)  # type: ignore[arg-type]
    if spelling is None:
        raise InternalError(f"{w.target.name} has no spelling for {op.attrs['which']}")
    w.result(op, w.op(f"arith.extui {w.op(spelling)} : i32 to i64"))


@emits("barrier")
def _barrier(w: FunctionWriter, op: Op) -> None:
    if w.thread:
        coroutines.suspend(w, op, Scope.block)
        return
    assert w.target.grid is not None
    for spelling in w.target.grid.barrier:
        w.line(spelling)
