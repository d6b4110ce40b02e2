"""Writes matrix instructions of a warp: fragments from shared memory, and products of them.

See also `targets.products` (their names, and which lane has what).
"""

from __future__ import annotations

import itertools

from ...dsl.types.dtype import SIMDType
from ..ir.program import Op, Value
from ..targets.products import BY_NAME, MatrixProduct
from .memory import address
from .types import mlir_type
from .writer import FunctionWriter, emits

WORDS = 4


@emits("together")
def _together(w: FunctionWriter, op: Op) -> None:
    """Nothing: it says what `passes.uniformity` checks."""


@emits("load_matrices")
def _load_matrices(w: FunctionWriter, op: Op) -> None:
    pointer, offset = op.operands
    how = "x4.trans" if op.attrs["transposed"] else "x4"
    result = f"!llvm.struct<({', '.join(['i32'] * WORDS)})>"
    name = f'llvm.call_intrinsic "llvm.nvvm.ldmatrix.sync.aligned.m8n8.{how}.b16.p3"'
    made = w.op(f"{name}({address(w, pointer, offset)}) : ({w.type(pointer.type)}) -> {result}")
    w.result(op, _vector(w, made, result, "i32", WORDS, op.results[0].simd))


def _vector(w: FunctionWriter, struct: str, text: str, element: str, count: int, type: SIMDType) -> str:
    """The parts of a struct as a vector of another type with as many bits."""
    parts = [w.op(f"llvm.extractvalue {struct}[{k}] : {text}") for k in range(count)]
    if count == 1:
        return parts[0]
    whole = f"vector<{count}x{element}>"
    made = w.op(f"vector.from_elements {', '.join(parts)} : {whole}")
    wanted = mlir_type(type)
    return made if wanted == whole else w.op(f"vector.bitcast {made} : {whole} to {wanted}")


@emits("multiply_matrices")
def _multiply_matrices(w: FunctionWriter, op: Op) -> None:
    a, b, acc, *_ = op.operands
    row = BY_NAME[op.attrs["row"]]
    if row.form.rows_first:
        _multiply_in_waves(w, op, row)
        return
    if row.scale is not None:
        _multiply_with_scales(w, op, row)
        return
    words = [*words_of(w, a, row.word, row.elements), *words_of(w, b, row.word, row.elements)]
    element = mlir_type(SIMDType(acc.dtype))
    sums = words_of(w, acc, element, 1)
    types = [row.word] * len(words) + [element] * len(sums)
    result = f"!llvm.struct<({', '.join([element] * len(sums))})>"
    name = f'llvm.call_intrinsic "{row.intrinsic}"'
    made = w.op(f"{name}({', '.join([*words, *sums])}) : ({', '.join(types)}) -> {result}")
    w.result(op, _vector(w, made, result, element, len(sums), acc.simd))


def _multiply_with_scales(w: FunctionWriter, op: Op, row: MatrixProduct) -> None:
    """`mma.sync` with scales: the first of them that is one of this product, and which lanes bring them."""
    a, b, acc, *scales = op.operands
    elements = row.of_bytes.elements
    fragments = [words_of(w, a, "i32", elements), words_of(w, b, "i32", elements), words_of(w, acc, "f32", 1)]
    bytes = [_byte_word(w, scale) for scale in scales]
    sums, struct = len(fragments[2]), f"!llvm.struct<({', '.join(['f32'] * acc.simd.width)})>"
    numbers, places = iter(range(2 * sums + 8)), []
    for count in (sums, *map(len, fragments)):
        places.append("{" + ", ".join(f"${next(numbers)}" for _ in range(count)) + "}")
    places += [f"${next(numbers)}, {{{op.attrs['first']}, 0}}" for _ in bytes]
    given = [*itertools.chain(*fragments), *bytes]
    types = ["i32"] * (len(given) - sums - 2) + ["f32"] * sums + ["i32"] * 2
    constraints = ["=f"] * sums + ["f" if each == "f32" else "r" for each in types]
    made = w.op(
        f'llvm.inline_asm has_side_effects "{row.intrinsic} {", ".join(places)};", "{",".join(constraints)}"'
        f" {', '.join(given)} : ({', '.join(types)}) -> {struct}"
    )
    w.result(op, _vector(w, made, struct, "f32", sums, acc.simd))


def _byte_word(w: FunctionWriter, bytes: Value) -> str:
    """Up to four bytes as the lower ones of 32 bits."""
    own, whole = mlir_type(bytes.simd), f"i{8 * bytes.simd.width}"
    number = w.name(bytes) if own == whole else w.op(f"llvm.bitcast {w.name(bytes)} : {own} to {whole}")
    return number if whole == "i32" else w.op(f"arith.extui {number} : {whole} to i32")


def _multiply_in_waves(w: FunctionWriter, op: Op, row: MatrixProduct) -> None:
    """AMD's intrinsics, which take vectors; constants among their operands are parts of the instruction."""
    a, b, acc, *scales = op.operands
    sums = mlir_type(acc.simd)
    known = {"a": (_as_word(w, a, row.word), row.word), "b": (_as_word(w, b, row.word), row.word)}
    known["acc"] = w.name(acc), sums
    known |= {f"scale_{name}": (_byte_word(w, scale), "i32") for name, scale in zip("ab", scales, strict=False)}
    constants = {"zero": "0 : i32", "one": "1 : i32", "four": "4 : i32", "true": "true", "false": "false"}
    constants["first"] = f"{op.attrs.get('first')} : i32"
    for name, value in constants.items():
        if name in row.arguments:
            text = "i32" if value.endswith("i32") else "i1"
            known[name] = w.op(f"llvm.mlir.constant({value}) : {text}"), text
    given = [known[argument] for argument in row.arguments]
    names, types = (", ".join(part) for part in zip(*given, strict=True))
    w.result(op, w.op(f'llvm.call_intrinsic "{row.intrinsic}"({names}) : ({types}) -> {sums}'))


def _as_word(w: FunctionWriter, value: Value, word: str) -> str:
    """A fragment as the one type that an intrinsic takes."""
    own, name = mlir_type(value.simd), w.name(value)
    return name if own == word else w.op(f"llvm.bitcast {name} : {own} to {word}")


def words_of(w: FunctionWriter, value: Value, word: str, elements: int) -> list[str]:
    """A fragment as registers: as integers of 32 bits, two numbers of 16, or elements."""
    own, name, width = mlir_type(value.simd), w.name(value), value.simd.width
    if word == "f64" and width == 1:
        return [name]
    count = width // elements
    plain = f"vector<{count}x{'i32' if word.startswith('vector') else word}>"
    if own != plain:
        name = w.op(f"vector.bitcast {name} : {own} to {plain}") if width > 1 else name
    part = plain.partition("x")[2].rstrip(">")
    parts = [w.op(f"vector.extract {name}[{k}] : {part} from {plain}") for k in range(count)]
    if word.startswith("vector"):
        parts = [w.op(f"llvm.bitcast {each} : i32 to {word}") for each in parts]
    return parts
