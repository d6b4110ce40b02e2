"""Writes products that four warps compute together: one text of instructions, from the fence to the wait.

What is in registers goes into the text and comes out of it, so that nothing moves between its instructions. An operand
in shared memory is a number of 64 bits: where it begins, its distances and its swizzle, in units of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.types.dtype import SIMDType
from ..ir.program import Op, Value
from ..targets.products import BY_NAME, MatrixProduct
from .matrices import words_of
from .memory import address
from .types import mlir_type
from .writer import FunctionWriter, emits

UNIT = 16  # bytes
LOWER = (1 << 32) - 1  # the half of a description that says where an operand begins
SWIZZLES = {128: 1, 64: 2, 32: 3}
WAIT = "wgmma.wait_group.sync.aligned"


def description(how: Sequence[int]) -> int:
    """The bits of a description but for where the operand begins: see `multiply_groups`."""
    width, panels, eight, across = how
    first, second = panels // UNIT if across else 1, eight // UNIT
    return first << 16 | second << 32 | SWIZZLES[width] << 62


@emits("multiply_groups")
def _multiply_groups(w: FunctionWriter, op: Op) -> None:
    row, attrs = BY_NAME[op.attrs["row"]], op.attrs
    held = attrs["held"]
    rest = op.operands[2:]
    fragments, sums = rest[: held or 2], rest[held or 2 :]
    lanes = [name for value in _in_order(w, sums, attrs["columns"]) for name in value]
    numbers, given = list(lanes), list(lanes)
    element = mlir_type(SIMDType(sums[0].dtype))
    types = [element] * len(lanes)
    if attrs["fresh"]:
        numbers, given, types = [], [], []
    if held:
        left = [word for value in fragments for word in words_of(w, value, row.word, row.elements)]
    else:
        left = [_described(w, fragments, attrs["left"], attrs["left_at"][0])]
    words = [*left, _described(w, op.operands[:2], attrs["right"], attrs["right_at"][0])]
    given += words
    types += ["i32"] * len(words)
    first = len(lanes) + len(numbers)
    text = _text(op, len(lanes), first, len(left))
    inputs = [str(k) for k in range(len(numbers))] + ["r"] * len(words)
    constraints = ",".join([*["=f" if row.acc.is_float() else "=r"] * len(lanes), *inputs, "~{memory}"])
    result = f"!llvm.struct<({', '.join([element] * len(lanes))})>"
    made = w.op(
        f'llvm.inline_asm has_side_effects "{text}", "{constraints}" {", ".join(given)}'
        f" : ({', '.join(types)}) -> {result}"
    )
    parts = [w.op(f"llvm.extractvalue {made}[{k}] : {result}") for k in range(len(lanes))]
    give(w, op, parts)


def _text(op: Op, sums: int, first: int, words: int) -> str:
    """The instructions, whose operands are numbered: sums, the `words` of a from the number `first` on, b."""
    attrs, row = op.attrs, BY_NAME[op.attrs["row"]]
    each, steps = attrs["columns"] // 2, len(attrs["right_at"])
    tall = sums // each
    name = row.intrinsic.format(n=attrs["columns"])
    of_one = words // (tall * steps)
    lines = ["{ .reg .pred add, new;", "setp.eq.b32 add, 0, 0;", "setp.ne.b32 new, 0, 0;"]
    lines += _descriptions("b", attrs["right"], first + words, attrs["right_at"])
    if not attrs["held"]:
        lines += _descriptions("a", attrs["left"], first, attrs["left_at"])
    lines.append("wgmma.fence.sync.aligned;")
    for step in range(steps):
        for i in range(tall):
            into = ", ".join(f"${i * each + k}" for k in range(each))
            at = i * steps + step
            fragment = ", ".join(f"${first + at * of_one + k}" for k in range(of_one))
            a = f"{{{fragment}}}" if attrs["held"] else f"a{at}"
            adds = "new" if attrs["fresh"] and step == 0 else "add"
            lines.append(f"{', '.join([f'{name} {{{into}}}', a, f'b{step}', adds, *_modes(op, row)])};")
    lines.append("wgmma.commit_group.sync.aligned;")
    if attrs["waits"]:
        lines.append(f"{WAIT} 0;")
    return " ".join([*lines, "}"])


def _descriptions(name: str, how: Sequence[int], lower: int, places: Sequence[int]) -> list[str]:
    """Instructions that make descriptions, name0 and so on, of operands at places, of which the first one's lower half
    is an operand of the text: a sum of 64 bits is one instruction, and its halves are two."""
    return [
        f".reg .b32 {name}_how;",
        f".reg .b64 {', '.join(f'{name}{k}' for k in range(len(places)))};",
        f"mov.b32 {name}_how, {description(how) >> 32};",
        f"mov.b64 {name}0, {{${lower}, {name}_how}};",
        *(f"add.s64 {name}{k}, {name}0, {(at - places[0]) // UNIT};" for k, at in enumerate(places) if k),
    ]


def _modes(op: Op, row: MatrixProduct) -> list[str]:
    """The last operands: that numbers are not negated, and the orders of the axes of operands in shared memory."""
    if not row.acc.is_float():
        return []
    orders = [] if op.attrs["held"] else [op.attrs["left"][3]]
    orders += [op.attrs["right"][3]]
    return ["1", "1", *(str(int(order)) for order in orders if row.reads_across)]


@emits("product_begun")
def _begun(w: FunctionWriter, op: Op) -> None:
    """Nothing: it says what `passes.tokens` checks."""


def wait(w: FunctionWriter, op: Op) -> None:
    """Registers of products under way go through the instruction that waits for them."""
    if not w.orders_matrices:
        for operand, made in zip(op.operands, op.results, strict=True):
            w.bind(made, w.name(operand))
        return
    text = f"{WAIT} {op.attrs['pending']};"
    if not op.operands:
        w.line(f'llvm.inline_asm has_side_effects "{text}", "~{{memory}}" : () -> ()')
        return
    lanes = [name for value in op.operands for name in _lanes(w, value)]
    element = mlir_type(SIMDType(op.operands[0].dtype))
    register = {"f32": "=f", "f64": "=d"}.get(element, "=r")
    constraints = ",".join([*[register] * len(lanes), *map(str, range(len(lanes))), "~{memory}"])
    struct = f"!llvm.struct<({', '.join([element] * len(lanes))})>"
    given = f"{', '.join(lanes)} : ({', '.join([element] * len(lanes))}) -> {struct}"
    waited = w.op(f'llvm.inline_asm has_side_effects "{text}", "{constraints}" {given}')
    _bind(w, op, [w.op(f"llvm.extractvalue {waited}[{k}] : {struct}") for k in range(len(lanes))])


def _described(w: FunctionWriter, side: Sequence[Value], how: Sequence[int], at: int) -> str:
    """The lower half of the description of an operand from so many bytes on, in which alone it says where that is.

    No sum carries into the upper half; LLVM, which would add words of 64 bits, does not see the whole.
    """
    pointer, offset = side
    place = w.op(f"llvm.ptrtoint {address(w, pointer, offset)} : {w.type(pointer.type)} to i32")
    units = w.op(f"arith.shrui {place}, {w.op('arith.constant 4 : i32')} : i32")
    first = w.op(f"arith.andi {units}, {w.op('arith.constant 16383 : i32')} : i32")
    rest = w.op(f"arith.constant {(description(how) & LOWER) + at // UNIT} : i32")
    return w.op(f"arith.addi {first}, {rest} overflow<nsw, nuw> : i32")


def _in_order(w: FunctionWriter, sums: Sequence[Value], columns: int) -> list[list[str]]:
    """The sums as the instructions have them: of 64 rows, pairs of columns of both rows of a lane in turn."""
    rows: list[list[str]] = [[]]
    for value in sums:
        if len(rows[-1]) == columns // 4:
            rows.append([])
        rows[-1] += _lanes(w, value)
    return [
        [name for k in range(0, columns // 4, 2) for name in (*upper[k : k + 2], *lower[k : k + 2])]
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]


def _lanes(w: FunctionWriter, value: Value) -> list[str]:
    width, name, text = value.simd.width, w.name(value), mlir_type(value.simd)
    if width == 1:
        return [name]
    element = mlir_type(SIMDType(value.dtype))
    return [w.op(f"vector.extract {name}[{k}] : {element} from {text}") for k in range(width)]


def give(w: FunctionWriter, op: Op, parts: Sequence[str]) -> None:
    """Gives the results, row by row, the numbers that the instructions have in their order."""
    columns = op.attrs["columns"]
    of_rows: list[str] = []
    for first in range(0, len(parts), columns // 2):
        block = parts[first : first + columns // 2]
        for lower in (0, 2):
            of_rows += [block[k + n] for k in range(lower, len(block), 4) for n in (0, 1)]
    _bind(w, op, of_rows)


def _bind(w: FunctionWriter, op: Op, lanes: Sequence[str]) -> None:
    """Gives the results their lanes, one result after the other."""
    at = 0
    for result in op.results:
        width, text = result.simd.width, mlir_type(result.simd)
        taken = lanes[at : at + width]
        at += width
        w.bind(result, taken[0] if width == 1 else w.op(f"vector.from_elements {', '.join(taken)} : {text}"))
