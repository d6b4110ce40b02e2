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

from ...dsl.types.dtype import SIMDType
from ..ir.copy_opcodes import RING
from ..ir.program import Op, Value
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


def instruction(op: Op) -> int:
    """The bits that say which matrices are multiplied: formats, the orders of axes, columns, rows."""
    row, attrs = BY_NAME[op.attrs["row"]], op.attrs
    sums = 1 if row.acc.is_float() else 2
    orders = int(attrs["left"][3]) << 15 | int(attrs["right"][3]) << 16
    bits: int = sums << 4 | row.format << 7 | row.format << 10 | orders | attrs["columns"] >> 3 << 17 | ROWS >> 4 << 24
    return bits


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
        given = [state.base, barrier, *a, *b]
        types = ["i32", "!llvm.ptr<3>", *["i64"] * len(a + b)]
        _text(
            w,
            _products(op),
            ",".join(["r", *["l"] * (len(types) - 1)]),
            f"{', '.join(given)} : ({', '.join(types)}) -> ()",
        )
    w.close(place)
    store_slot(w, w.op(f"arith.addi {issued}, {i32(w, 1)} : i32"), state.products.issued)
    for result in op.results:
        w.bind(result, w.op(f"llvm.mlir.undef : {mlir_type(result.simd)}"))


def _products(op: Op) -> str:
    """The instructions, for each 128 rows one after the other, whose operands are numbered: base, barrier, a, b."""
    attrs, name = op.attrs, BY_NAME[op.attrs["row"]].intrinsic
    steps = len(attrs["right_at"])
    blocks = len(attrs["left_at"]) // steps
    lines = ["{ .reg .pred add, new; .reg .b32 into, what;", f"mov.b32 what, {instruction(op)};"]
    lines += ["setp.eq.b32 add, 0, 0;", "setp.ne.b32 new, 0, 0;"]
    for block in range(blocks):
        lines.append(f"add.u32 into, $0, {attrs['first'] + block * attrs['columns']};")
        for step in range(steps):
            a, b = 2 + block * steps + step, 2 + blocks * steps + step
            lines.append(f"{name} [into], ${a}, ${b}, what, {'new' if attrs['fresh'] and step == 0 else 'add'};")
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
    warp = w.op(f"arith.divui {grids.thread_number(w, state.block)}, {i32(w, w.target.warp_size)} : i32")
    lane = w.op(f"arith.shli {warp}, {i32(w, 21)} : i32")  # 32 rows a warp, the upper half of an address
    base = w.op(f"arith.addi {state.base}, {lane} : i32")
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
