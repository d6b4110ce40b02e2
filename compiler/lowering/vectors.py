"""Operations on the lanes of vectors as MLIR text.

Input: a `FunctionEmitter` and an operation. Output: lines. Non-goals: arithmetic on lanes (see `lowering.arithmetic`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, Value
from . import arithmetic as emit_arith
from .types import mlir_type

if TYPE_CHECKING:
    from .writer import FunctionEmitter


def simd(value: Value) -> SIMDType:
    assert isinstance(value.type, SIMDType)
    return value.type


def _splat(e: FunctionEmitter, op: Op) -> None:
    text = e.type(op.results[0].type)
    scalar = e.type(op.operands[0].type)
    e.names.set(op.results[0], e.op(f"vector.broadcast {e.name(op.operands[0])} : {scalar} to {text}"))


def _lanes(e: FunctionEmitter, op: Op) -> None:
    names = ", ".join(e.name(v) for v in op.operands)
    e.names.set(op.results[0], e.op(f"vector.from_elements {names} : {e.type(op.results[0].type)}"))


def _extract(e: FunctionEmitter, op: Op) -> None:
    source = op.operands[0]
    text = f"vector.extract {e.name(source)}[{op.attrs['lane']}]"
    e.names.set(op.results[0], e.op(f"{text} : {e.type(op.results[0].type)} from {e.type(source.type)}"))


def _insert(e: FunctionEmitter, op: Op) -> None:
    vector, scalar = op.operands
    text = f"vector.insert {e.name(scalar)}, {e.name(vector)} [{op.attrs['lane']}]"
    e.names.set(op.results[0], e.op(f"{text} : {e.type(scalar.type)} into {e.type(vector.type)}"))


def _extract_at(e: FunctionEmitter, op: Op) -> None:
    vector, position = op.operands
    text = f"llvm.extractelement {e.name(vector)}[{e.name(position)} : i64] : {e.type(vector.type)}"
    e.names.set(op.results[0], e.op(text))


def _insert_at(e: FunctionEmitter, op: Op) -> None:
    vector, scalar, position = op.operands
    text = f"llvm.insertelement {e.name(scalar)}, {e.name(vector)}[{e.name(position)} : i64] : {e.type(vector.type)}"
    e.names.set(op.results[0], e.op(text))


def _shuffle(e: FunctionEmitter, op: Op) -> None:
    a, b = op.operands
    mask = list(op.attrs["mask"])
    text = e.type(a.type)
    e.names.set(op.results[0], e.op(f"vector.shuffle {e.name(a)}, {e.name(b)} {mask} : {text}, {text}"))


def _take(e: FunctionEmitter, op: Op) -> None:
    # Lane by lane: the form in which LLVM sees a permutation by a vector, and has one instruction for it on x86.
    table, indices = op.operands
    type, index = simd(op.results[0]), mlir_type(SIMDType(indices.dtype))
    picked = []
    for number in range(type.width):
        position = e.op(f"vector.extract {e.name(indices)}[{number}] : {index} from {e.type(indices.type)}")
        picked.append(e.op(f"llvm.extractelement {e.name(table)}[{position} : {index}] : {e.type(table.type)}"))
    e.names.set(op.results[0], e.op(f"vector.from_elements {', '.join(picked)} : {mlir_type(type)}"))


_COMBINE = {"add": "add", "mul": "mul", "and_": "and", "or_": "or", "xor": "xor"}


def _reduce(e: FunctionEmitter, op: Op) -> None:
    source, row = op.operands[0], op.attrs["row"]
    type = simd(source)
    if type.dtype.is_float():
        e.names.set(op.results[0], _by_halves(e, e.name(source), type, row))
        return
    # The order of exact operations does not matter: hardware may have its own.
    kind = _COMBINE.get(row) or f"{row}{'si' if type.dtype.kind == 'int' else 'ui'}"
    if type.dtype is DType.bool:
        kind = {"min": "and", "max": "or"}.get(row) or kind
    scalar = mlir_type(SIMDType(type.dtype))
    text = f"vector.reduction <{kind}>, {e.name(source)} : {mlir_type(type)} into {scalar}"
    e.names.set(op.results[0], e.op(text))


def _by_halves(e: FunctionEmitter, name: str, type: SIMDType, row: str) -> str:
    """Lane k with lane k + half, until one is left."""
    while type.width > 1:
        half = SIMDType(type.dtype, type.width // 2)
        text = mlir_type(type)
        parts = []
        for start in (0, half.width):
            if half.width == 1:
                parts.append(e.op(f"vector.extract {name}[{start}] : {mlir_type(half)} from {text}"))
            else:
                lanes = list(range(start, start + half.width))
                parts.append(e.op(f"vector.shuffle {name}, {name} {lanes} : {text}, {text}"))
        name, type = emit_arith.row(e, row, parts, half, frozenset()), half
    return name


EMITTERS: dict[str, Callable[[FunctionEmitter, Op], None]] = {
    "splat": _splat,
    "lanes": _lanes,
    "extract": _extract,
    "insert": _insert,
    "extract_at": _extract_at,
    "insert_at": _insert_at,
    "shuffle": _shuffle,
    "take": _take,
    "reduce": _reduce,
}
