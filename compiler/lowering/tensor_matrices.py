"""Writes products whose sums lie in tensor memory: `tcgen05`.

    begins   all threads: what they have written is for other units to see, then a barrier of the block
             one thread: the instructions, and that they arrive at a barrier in shared memory when they have ended
    waits    all threads wait there, the oldest product first; a wait that gives the sums reads them into registers

The barriers form a ring, and each product uses the next one, as bulk copies do. The first warp allocates the tensor
memory of the block at the start of the kernel, and frees it at the end.

See also `bulk_copies` (rings of barriers), `group_matrices` (descriptions of operands).
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.types.dtype import DType, SIMDType
from ..ir.copy_opcodes import RING
from ..ir.program import Op, Value
from ..ir.rules import words_of_scales
from ..targets.products import BY_NAME
from . import grids, group_matrices
from .bulk_copies import (
    await_copies,
    barrier_at,
    barrier_of,
    bulk_operations,
    i32,
    load_slot,
    make_room,
    store_slot,
    when,
)
from .memory import address
from .types import mlir_type
from .writer import BulkState, FunctionWriter, TensorState, emits

SWIZZLES = {128: 2, 64: 4, 32: 6}
LEAST = 32  # columns that a block takes; their number is a power of two
ROWS = 128
WHOLE = 16  # rows that an instruction reads, of the 32 of a warp
AFTER, BEFORE = "tcgen05.fence::after_thread_sync;", "tcgen05.fence::before_thread_sync;"


def description(how: Sequence[int]) -> int:
    """The bits of an operand's description but for where it begins: see `multiply_groups`."""
    width, panels, eight, across = how
    first, second = panels // group_matrices.UNIT if across else 1, eight // group_matrices.UNIT
    return first << 16 | second << 32 | 1 << 46 | SWIZZLES[width] << 61


def instruction(op: Op, first: int = 0) -> int:
    """The bits that say which matrices are multiplied: formats, the orders of axes, columns, rows; with scales, which
    one of a word is the first, and their format."""
    row, attrs = BY_NAME[op.attrs["row"]], op.attrs
    orders = int(attrs["left"][3]) << 15 | int(attrs["right"][3]) << 16
    bits: int = row.format << 7 | row.format << 10 | orders | attrs["columns"] >> 3 << 17 | ROWS >> 4 << 24
    if row.scale is not None:
        return bits | int(row.scale is DType.float8_e8m0fnu) << 23 | first << 4 | first << 29
    return bits | (1 if row.acc.is_float() else 2) << 4


def _text(w: FunctionWriter, text: str, constraints: str = "", given: str = ": () -> ()") -> None:
    known = ",".join(filter(None, (constraints, "~{memory}")))
    w.line(f'llvm.inline_asm has_side_effects "{text}", "{known}" {given}')


def _barrier(w: FunctionWriter) -> None:
    """All threads of the block wait for each other; what they have done to tensor memory is ordered."""
    assert w.target.grid is not None
    _text(w, BEFORE)
    for spelling in w.target.grid.barrier:
        w.line(spelling)
    _text(w, AFTER)


def _first_warp(w: FunctionWriter, number: str, text: str, constraints: str, given: str) -> None:
    place = w.at
    when(w, w.op(f"arith.cmpi ult, {number}, {i32(w, w.target.warp_size)} : i32"))
    with w.nested():
        _text(w, text, constraints, given)
    w.close(place)


@emits("tensor_memory")
def _memory(w: FunctionWriter, op: Op) -> None:
    """The first thread makes the barriers, its warp takes columns; behind the barriers is where they begin."""
    ring, block = w.name(op.operands[0]), op.attrs["block"]
    number, zero, place = grids.thread_number(w, block), i32(w, 0), w.at
    when(w, w.op(f"arith.cmpi eq, {number}, {zero} : i32"))
    with w.nested():
        one = i32(w, 1)
        for k in range(RING):
            w.line(bulk_operations(w).begin.format(barrier=barrier_at(w, ring, i32(w, k)), warps=one))
        w.line(bulk_operations(w).order.format())
    w.close(place)
    columns = max(LEAST, 1 << (op.attrs["columns"] - 1).bit_length())
    behind = barrier_at(w, ring, i32(w, RING))
    taken = f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], {columns};"
    rest = "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;"
    _first_warp(w, number, f"{taken} {rest}", "l", f"{behind} : (!llvm.ptr<3>) -> ()")
    _barrier(w)
    base = w.op(f"llvm.load {behind} : !llvm.ptr<3> -> i32")
    issued, done = (w.storage(4, alignment=4)[0] for _ in range(2))
    for slot in (issued, done):
        store_slot(w, zero, slot)
    w.tensor = TensorState(base, columns, BulkState(ring, issued, done, ()), block)


def leave(w: FunctionWriter) -> None:
    """Gives tensor memory back, where a kernel ends."""
    if w.tensor is None:
        return
    _barrier(w)
    text = f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, {w.tensor.columns};"
    _first_warp(w, grids.thread_number(w, w.tensor.block), text, "r", f"{w.tensor.base} : (i32) -> ()")


def _described(w: FunctionWriter, side: Sequence[Value], bits: int) -> str:
    """The description of an operand: `bits`, to which is added where it begins."""
    pointer, offset = side
    place = w.op(f"llvm.ptrtoint {address(w, pointer, offset)} : {w.type(pointer.type)} to i64")
    units = w.op(f"arith.shrui {place}, {w.op('arith.constant 4 : i64')} : i64")
    low = w.op(f"arith.andi {units}, {w.op('arith.constant 16383 : i64')} : i64")
    signed = bits - (1 << 64) if bits >> 63 else bits
    return w.op(f"arith.addi {low}, {w.op(f'arith.constant {signed} : i64')} : i64")


@emits("multiply_tensor")
def _multiply(w: FunctionWriter, op: Op) -> None:
    state, attrs = w.tensor, op.attrs
    assert state is not None
    make_room(w, state.products)
    scales = _scales(w, op)
    w.line(bulk_operations(w).order.format())
    _barrier(w)
    issued = load_slot(w, state.products.issued)
    barrier, place = barrier_of(w, state.products.ring, issued), w.at
    when(w, w.op(f"arith.cmpi eq, {grids.thread_number(w, attrs['block'])}, {i32(w, 0)} : i32"))
    with w.nested():
        unit = group_matrices.UNIT
        sides = ((op.operands[2:4], "left"), (op.operands[:2], "right"))
        a, b = (
            [_described(w, side, description(attrs[name]) + at // unit) for at in attrs[f"{name}_at"]]
            for side, name in sides
        )
        given = [state.base, barrier, *a, *b, *scales]
        types = ["i32", "!llvm.ptr<3>", *["i64"] * len(a + b), *["i32"] * len(scales)]
        registers = ["r" if each == "i32" else "l" for each in types]
        _text(w, _products(op), ",".join(registers), f"{', '.join(given)} : ({', '.join(types)}) -> ()")
    w.close(place)
    store_slot(w, w.op(f"arith.addi {issued}, {i32(w, 1)} : i32"), state.products.issued)
    for result in op.results:
        w.bind(result, w.op(f"llvm.mlir.undef : {mlir_type(result.simd)}"))


def _scales(w: FunctionWriter, op: Op) -> list[str]:
    """Writes words of scales to this product's place in tensor memory, when the product before the last one has ended.
    Gives the first column there; none where there are no scales."""
    state, words = w.tensor, op.operands[4 + len(op.results) :]
    assert state is not None
    if not words:
        return []
    issued, one = load_slot(w, state.products.issued), i32(w, 1)
    await_copies(w, state.products, w.op(f"arith.subi {issued}, {one} : i32"))
    turn = w.op(f"arith.muli {w.op(f'arith.andi {issued}, {one} : i32')}, {i32(w, len(words))} : i32")
    place = w.op(f"arith.addi {turn}, {i32(w, op.attrs['scales'])} : i32")
    first = w.op(f"arith.addi {state.base}, {place} : i32")
    own = w.op(f"arith.addi {first}, {_lanes(w, state)} : i32")
    lines, done = ["{ .reg .b32 to;"], 0
    while done < len(words):
        count = 1 << (len(words) - done).bit_length() - 1
        taken = ", ".join(f"${1 + done + k}" for k in range(count))
        lines.append(f"add.u32 to, $0, {done};")
        lines.append(f"tcgen05.st.sync.aligned.32x32b.x{count}.b32 [to], {{{taken}}};")
        done += count
    text = " ".join([*lines, "tcgen05.wait::st.sync.aligned; }"])
    given = [own, *(w.op(f"llvm.bitcast {w.name(word)} : vector<4xi8> to i32") for word in words)]
    types = ", ".join(["i32"] * len(given))
    _text(w, text, ",".join("r" * len(given)), f"{', '.join(given)} : ({types}) -> ()")
    return [first]


def _lanes(w: FunctionWriter, state: TensorState) -> str:
    """The first lane of this warp in tensor memory, as the upper half of an address."""
    warp = w.op(f"arith.divui {grids.thread_number(w, state.block)}, {i32(w, w.target.warp_size)} : i32")
    return w.op(f"arith.shli {warp}, {i32(w, 21)} : i32")  # 32 lanes a warp


def _places_of_scales(op: Op, block: int, step: int, operand: int) -> list[str]:
    """Instructions that say where the scales of a step are: `operand` is the number of the first column of scales."""
    row, steps = BY_NAME[op.attrs["row"]], len(op.attrs["right_at"])
    words, (of_a, of_b) = steps * row.scales // 4, words_of_scales(op)
    word, first = divmod(step * row.scales, 4)
    left, right = (block * words + word) * 4, of_a + word * (of_b // words)
    places = [f"add.u32 {name}, ${operand}, {at};" for name, at in (("left", left), ("right", right))]
    return [f"mov.b32 what, {instruction(op, first)};", *places]


def _products(op: Op) -> str:
    """The instructions, for each 128 rows one after the other, whose operands are numbered: base, barrier, a, b, and
    the first column of scales."""
    attrs, row = op.attrs, BY_NAME[op.attrs["row"]]
    steps = len(attrs["right_at"])
    blocks = len(attrs["left_at"]) // steps
    lines = ["{ .reg .pred add, new; .reg .b32 into, what, left, right;"]
    if row.scale is None:
        lines.append(f"mov.b32 what, {instruction(op)};")
    lines += ["setp.eq.b32 add, 0, 0;", "setp.ne.b32 new, 0, 0;"]
    for block in range(blocks):
        lines.append(f"add.u32 into, $0, {attrs['first'] + block * attrs['columns']};")
        for step in range(steps):
            a, b = 2 + block * steps + step, 2 + blocks * steps + step
            factors = ""
            if row.scale is not None:
                lines += _places_of_scales(op, block, step, 2 + (blocks + 1) * steps)
                factors = " [left], [right],"
            adds = "new" if attrs["fresh"] and step == 0 else "add"
            lines.append(f"{row.intrinsic} [into], ${a}, ${b}, what,{factors} {adds};")
    lines.append("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$1]; }")
    return " ".join(lines)


@emits("product_wait")
def _wait(w: FunctionWriter, op: Op) -> None:
    """Waits for all products but the newest ones, and reads sums that lie in tensor memory."""
    state = w.tensor
    if state is None:
        group_matrices.wait(w, op)
        return
    issued = load_slot(w, state.products.issued)
    await_copies(w, state.products, w.op(f"arith.subi {issued}, {i32(w, op.attrs['pending'])} : i32"))
    if "first" not in op.attrs:
        for operand, made in zip(op.operands, op.results, strict=True):
            w.bind(made, w.name(operand))
        return
    _text(w, AFTER)
    columns = op.attrs["columns"]
    base = w.op(f"arith.addi {state.base}, {_lanes(w, state)} : i32")
    blocks = sum(result.simd.width for result in op.results) // columns
    parts: list[str] = []
    for block in range(blocks):
        for half in range(2):
            at = op.attrs["first"] + block * columns + (half * WHOLE << 16)
            parts += _read(w, op, w.op(f"arith.addi {base}, {i32(w, at)} : i32"), columns)
    group_matrices.give(w, op, parts)


def _read(w: FunctionWriter, op: Op, place: str, columns: int) -> list[str]:
    """The registers of 16 rows of a warp: of each eight columns two neighbours of both rows of a lane."""
    element, count = mlir_type(SIMDType(op.results[0].dtype)), columns // 2
    lines, first = ["{ .reg .b32 from;"], 0
    while first < columns:
        times = 1 << ((columns - first) // 8).bit_length() - 1
        into = ", ".join(f"${first // 2 + k}" for k in range(4 * times))
        lines.append(f"add.u32 from, ${count}, {first};")
        lines.append(f"tcgen05.ld.sync.aligned.16x256b.x{times}.b32 {{{into}}}, [from];")
        first += 8 * times
    text = " ".join([*lines, "tcgen05.wait::ld.sync.aligned; }"])
    registers = "=f" if op.results[0].dtype.is_float() else "=r"
    struct = f"!llvm.struct<({', '.join([element] * count)})>"
    constraints = ",".join([*[registers] * count, "r", "~{memory}"])
    made = w.op(f'llvm.inline_asm has_side_effects "{text}", "{constraints}" {place} : (i32) -> {struct}')
    return [w.op(f"llvm.extractvalue {made}[{k}] : {struct}") for k in range(count)]
