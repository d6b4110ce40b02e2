"""Writes constants, conversions, selections and the division of indices.

See also `lowering.arithmetic` (regular operations).
"""

from __future__ import annotations

from ..ir.program import Op, PointerType
from . import casts
from .writer import FunctionWriter, emits


@emits("const")
def _const(w: FunctionWriter, op: Op) -> None:
    w.result(op, w.constant(op.attrs["value"], op.results[0].simd))


@emits("cast")
def _cast(w: FunctionWriter, op: Op) -> None:
    source, to = op.operands[0], op.results[0]
    w.result(op, casts.cast(w, w.name(source), source.simd, to.simd))


@emits("bitcast")
def _bitcast(w: FunctionWriter, op: Op) -> None:
    source, to = op.operands[0], op.results[0]
    w.result(op, casts.bitcast(w, w.name(source), source.simd, to.simd))


@emits("select")
def _select(w: FunctionWriter, op: Op) -> None:
    condition, a, b = (w.name(v) for v in op.operands)
    type = op.results[0].type
    if isinstance(type, PointerType):
        w.result(op, w.op(f"llvm.select {condition}, {a}, {b} : i1, {w.type(type)}"))
    else:
        w.result(op, w.select(condition, a, b, type))


_INDEX_DIVISION = {"udiv": "arith.divui", "urem": "arith.remui"}


@emits(*_INDEX_DIVISION)
def _index_division(w: FunctionWriter, op: Op) -> None:
    a, b = (w.name(v) for v in op.operands)
    w.result(op, w.op(f"{_INDEX_DIVISION[op.name]} {a}, {b} : i64"))
