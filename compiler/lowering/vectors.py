"""Writes operations on the lanes of vectors.

See also `lowering.arithmetic` (arithmetic on lanes).
"""

from __future__ import annotations

from ...dsl.types.dtype import DType, SIMDType
from ..ir.program import Op, Value
from . import arithmetic
from .types import mlir_type
from .writer import FunctionWriter, emits

TABLE = 16  # bytes of a table that hardware looks up at once


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


def lanes_from(w: FunctionWriter, name: str, width: int, start: int, size: int, element: str) -> str:
    """`size` lanes of a vector of `width`, whose elements have this MLIR type; behind its end the last one again."""
    if size == width:
        return name
    lanes = [min(start + k, width - 1) for k in range(size)]
    text = f"vector<{width}x{element}>"
    return w.op(f"vector.shuffle {name}, {name} {lanes} : {text}, {text}")


def joined_lanes(w: FunctionWriter, parts: list[str], size: int, width: int, element: str) -> str:
    """The first `width` lanes of vectors of `size`, one after the other: a power of two of them."""
    if width < size:
        return lanes_from(w, parts[0], size, 0, width, element)
    while len(parts) > 1:
        text, lanes = f"vector<{size}x{element}>", list(range(2 * size))
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [w.op(f"vector.shuffle {a}, {b} {lanes} : {text}, {text}") for a, b in pairs]
        size *= 2
    return parts[0]


@emits("take")
def _take(w: FunctionWriter, op: Op) -> None:
    table, indices = op.operands
    type = op.results[0].simd
    if w.target.byte_tables and mlir_type(SIMDType(type.dtype)) == "i8" and table.simd.width <= TABLE:
        w.result(op, _bytes_of_table(w, table, indices))
        return
    # Lane by lane: the form in which LLVM sees a permutation by a vector, and has one instruction for it on x86.
    index = mlir_type(SIMDType(indices.dtype))
    picked = []
    for number in range(type.width):
        position = w.op(f"vector.extract {w.name(indices)}[{number}] : {index} from {w.type(indices.type)}")
        picked.append(w.op(f"llvm.extractelement {w.name(table)}[{position} : {index}] : {w.type(table.type)}"))
    w.result(op, w.op(f"vector.from_elements {', '.join(picked)} : {mlir_type(type)}"))


def _bytes_of_table(w: FunctionWriter, table: Value, indices: Value) -> str:
    """Bytes of a table of at most 16: LLVM sees no permutation where the indices are several vectors, joined."""
    sizes, width, few = w.target.byte_tables, indices.simd.width, table.simd.width
    size = max((n for n in sizes if n <= width), default=min(sizes))
    repeated = [lane % few for lane in range(size)]  # each 16 bytes have a table of their own
    narrow = w.type(table.type)
    whole = w.op(f"vector.shuffle {w.name(table)}, {w.name(table)} {repeated} : {narrow}, {narrow}")
    text = f"vector<{size}xi8>"
    parts = []
    for start in range(0, width, size):
        some = lanes_from(w, w.name(indices), width, start, size, "i8")
        parts.append(w.op(f'llvm.call_intrinsic "{sizes[size]}"({whole}, {some}) : ({text}, {text}) -> {text}'))
    return joined_lanes(w, parts, size, width, "i8")


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
