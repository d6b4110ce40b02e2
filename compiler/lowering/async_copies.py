"""Writes asynchronous copies into shared memory; where a target has none, a copy that is done at once.

See also `targets` (how a target spells them), `bulk_copies` (rows that a block copies together).
"""

from __future__ import annotations

from ..ir.program import Op, Value
from ..targets.base import CopyOperations
from . import bulk_copies
from .memory import address
from .writer import FunctionWriter, emits


def _spelled(w: FunctionWriter) -> CopyOperations | None:
    return None if w.target.grid is None else w.target.grid.copies


@emits("copy_async")
def _copy_async(w: FunctionWriter, op: Op) -> None:
    to, at, source, first, allowed = op.operands
    size = op.attrs["count"] * max(1, to.dtype.bits // 8)
    spelled = _spelled(w)
    if spelled is None:
        _at_once(w, op, size)
    else:
        given = {"to": address(w, to, at), "source": address(w, source, first), "bytes": size}
        if allowed.const is True:
            w.line(spelled.copy[size].format(**given))
        else:
            whole, none = (w.op(f"arith.constant {number} : i32") for number in (size, 0))
            taken = w.op(f"arith.select {w.name(allowed)}, {whole}, {none} : i32")
            w.line(spelled.masked[size].format(**given, taken=taken))
    token(w, op)


def _at_once(w: FunctionWriter, op: Op, size: int) -> None:
    """Loads and stores the bytes as one integer."""
    to, at, source, first, allowed = op.operands
    text = f"i{8 * size}"
    aligned = size if w.target.has_grid and not w.target.simulates else max(1, to.dtype.bits // 8)
    align = f"{{alignment = {aligned} : i64}}"

    def load(from_: Value, index: Value) -> str:
        return w.op(f"llvm.load {address(w, from_, index)} {align} : {w.type(from_.type)} -> {text}")

    if allowed.const is True:
        value = load(source, first)
    else:
        value = w.names.fresh()
        w.open(f"{value} = scf.if {w.name(allowed)} -> ({text}) {{")
        with w.nested():
            w.line(f"scf.yield {load(source, first)} : {text}")
        w.open("} else {")
        with w.nested():
            zero = w.op(f"arith.constant 0 : {text}")
            w.line(f"scf.yield {zero} : {text}")
        w.close(w.at)
    w.line(f"llvm.store {value}, {address(w, to, at)} {align} : {text}, {w.type(to.type)}")


def token(w: FunctionWriter, op: Op) -> None:
    """The number that stands for copies: hardware wants none."""
    w.result(op, w.op("arith.constant 0 : i64"))


@emits("copy_commit")
def _commit(w: FunctionWriter, op: Op) -> None:
    spelled = _spelled(w)
    if spelled is not None:
        w.line(spelled.commit)
    bulk_copies.commit(w)
    token(w, op)


@emits("copy_wait")
def _wait(w: FunctionWriter, op: Op) -> None:
    spelled = _spelled(w)
    if spelled is None:
        return
    if op.attrs["what"] == "copy":
        w.line(spelled.commit)  # what is in no group yet
    w.line(spelled.wait.format(pending=op.attrs["pending"]))
    bulk_copies.wait(w, op)
