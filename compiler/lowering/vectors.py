"""Writes operations on the lanes of vectors.

See also `lowering.arithmetic` (arithmetic on lanes).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op
from . import arithmetic
from .types import mlir_type
from .writer import FunctionWriter, emits


@emits("splat")
def _splat(w: FunctionWriter, op: Op) -> None:
    text = w.type(op.results[0].type)
    scalar = w.type(op.operands[0].type)
    w.result(op, w.op(f"vector.broadcast {w.name(op.operands[0])} : {scalar} to {text}"))


@emits("lanes")
def _lanes(w: FunctionWriter, op: Op) -> None:
    names = ", ".join(w.name(v) for v in op.operands)
    w.result(op, w.op(f"vector.from_elements {names} : {w.type(op.results[0].type)}"))


@emits("extract")
def _extract(w: FunctionWriter, op: Op) -> None:
    source = op.operands[0]
    text = f"vector.extract {w.name(source)}[{op.attrs['lane']}]"
    w.result(op, w.op(f"{text} : {w.type(op.results[0].type)} from {w.type(source.type)}"))


@emits("insert")
def _insert(w: FunctionWriter, op: Op) -> None:
    vector, scalar = op.operands
    text = f"vector.insert {w.name(scalar)}, {w.name(vector)} [{op.attrs['lane']}]"
    w.result(op, w.op(f"{text} : {w.type(scalar.type)} into {w.type(vector.type)}"))


@emits("extract_at")
def _extract_at(w: FunctionWriter, op: Op) -> None:
    vector, position = op.operands
    text = f"llvm.extractelement {w.name(vector)}[{w.name(position)} : i64] : {w.type(vector.type)}"
    w.result(op, w.op(text))


@emits("insert_at")
def _insert_at(w: FunctionWriter, op: Op) -> None:
    vector, scalar, position = op.operands
    text = f"llvm.insertelement {w.name(scalar)}, {w.name(vector)}[{w.name(position)} : i64] : {w.type(vector.type)}"
    w.result(op, w.op(text))


@emits("shuffle")
def _shuffle(w: FunctionWriter, op: Op) -> None:
    a, b = op.operands
    mask = list(op.attrs["mask"])
    text = w.type(a.type)
    w.result(op, w.op(f"vector.shuffle {w.name(a)}, {w.name(b)} {mask} : {text}, {text}"))


@emits("take")
def _take(w: FunctionWriter, op: Op) -> None:
    # Lane by lane: the form in which LLVM sees a permutation by a vector, and has one instruction for it on x86.
    table, indices = op.operands
    type, index = op.results[0].simd, mlir_type(SIMDType(indices.dtype))
    picked = []
    for number in range(type.width):
        position = w.op(f"vector.extract {w.name(indices)}[{number}] : {index} from {w.type(indices.type)}")
        picked.append(w.op(f"llvm.extractelement {w.name(table)}[{position} : {index}] : {w.type(table.type)}"))
    w.result(op, w.op(f"vector.from_elements {', '.join(picked)} : {mlir_type(type)}"))


_COMBINE = {"add": "add", "mul": "mul", "and_": "and", "or_": "or", "xor": "xor"}


@emits("reduce")
def _reduce(w: FunctionWriter, op: Op) -> None:
    source, row = op.operands[0], op.attrs["row"]
    type = source.simd
    if type.dtype.is_float():
        w.result(op, _by_halves(w, w.name(source), type, row))
        return
    # The order of exact operations does not matter: hardware may have its own.
    kind = _COMBINE.get(row) or f"{row}{'si' if type.dtype.kind == 'int' else 'ui'}"
    if type.dtype is DType.bool:
        kind = {"min": "and", "max": "or"}.get(row) or kind
    scalar = mlir_type(SIMDType(type.dtype))
    text = f"vector.reduction <{kind}>, {w.name(source)} : {mlir_type(type)} into {scalar}"
    w.result(op, w.op(text))


def _by_halves(w: FunctionWriter, name: str, type: SIMDType, row: str) -> str:
    """Lane k with lane k + half, until one is left."""
    while type.width > 1:
        half = SIMDType(type.dtype, type.width // 2)
        text = mlir_type(type)
        parts = []
        for start in (0, half.width):
            if half.width == 1:
                parts.append(w.op(f"vector.extract {name}[{start}] : {mlir_type(half)} from {text}"))
            else:
                lanes = list(range(start, start + half.width))
                parts.append(w.op(f"vector.shuffle {name}, {name} {lanes} : {text}, {text}"))
        name, type = arithmetic.row(w, row, parts, half), half
    return name
