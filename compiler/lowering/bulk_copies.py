"""Writes bulk copies: of rows into shared memory, which threads begin together, and which arrive at barriers.

    issued    how many bulk copies the thread has come to
    done      how many it has seen to end, the oldest first
    ends[n]   how many it had come to when the n-th newest group was committed

Copy number i arrives at barrier i % RING of the kernel, in the phase i / RING of it. A thread that waits for a group
waits for all copies up to the end of that group which it has not seen to end. Where as many are under way as
there are barriers, the oldest is awaited before the next one begins. All of it are numbers in registers.
"""

from __future__ import annotations

import itertools

from ..ir.copy_opcodes import RING
from ..ir.program import Op, PointerType, Value
from ..targets.base import BulkOperations
from . import grids, warps
from .memory import address, element_of
from .writer import BulkState, FunctionWriter, emits


def bulk_operations(w: FunctionWriter) -> BulkOperations:
    grid = w.target.grid
    assert grid is not None and grid.bulk is not None
    return grid.bulk


def i32(w: FunctionWriter, number: int) -> str:
    return w.op(f"arith.constant {number} : i32")


def load_slot(w: FunctionWriter, slot: str) -> str:
    return w.op(f"llvm.load {slot} : !llvm.ptr -> i32")


def store_slot(w: FunctionWriter, number: str, slot: str) -> None:
    w.line(f"llvm.store {number}, {slot} : i32, !llvm.ptr")


def when(w: FunctionWriter, condition: str) -> None:
    w.open(f"scf.if {condition} {{")


@emits("copy_ring")
def _ring(w: FunctionWriter, op: Op) -> None:
    """One thread makes the barriers, which the others see behind a barrier of the block."""
    (ring,) = op.operands
    number = grids.thread_number(w, op.attrs["block"])
    zero, at = i32(w, 0), w.at
    one = w.op(f"arith.cmpi eq, {number}, {zero} : i32")
    when(w, one)
    with w.nested():
        arrivals = i32(w, _warps(op))
        for k in range(RING):
            w.line(bulk_operations(w).begin.format(barrier=barrier_at(w, w.name(ring), i32(w, k)), warps=arrivals))
        w.line(bulk_operations(w).order.format())
    w.close(at)
    assert w.target.grid is not None
    for spelling in w.target.grid.barrier:
        w.line(spelling)
    slots = [w.storage(4, alignment=4)[0] for _ in range(3 + w.most_pending)]
    for slot in slots:
        store_slot(w, zero, slot)
    w.bulk = BulkState(w.name(ring), slots[0], slots[1], slots[2:])


def _warps(op: Op) -> int:
    x, y, z = op.attrs["block"]
    return int(x * y * z) // int(op.attrs["lanes"])


def barrier_at(w: FunctionWriter, ring: str, number: str) -> str:
    wide = w.op(f"arith.extui {number} : i32 to i64")
    return w.op(f"llvm.getelementptr {ring}[{wide}] : (!llvm.ptr<3>, i64) -> !llvm.ptr<3>, i64")


def barrier_of(w: FunctionWriter, ring: str, copy: str) -> str:
    """The barrier at which a copy arrives."""
    return barrier_at(w, ring, w.op(f"arith.andi {copy}, {i32(w, RING - 1)} : i32"))


def _begin_boxes(w: FunctionWriter, op: Op, barrier: str) -> None:
    """Begins the copies of all boxes of a tile, which lie below each other first in shared memory."""
    to, at, source, *coordinates = op.operands[:8]
    (rows, columns), (height, width), rank = op.attrs["tile"], op.attrs["box"], op.attrs["rank"]
    first, text = address(w, to, at), w.type(to.type)
    places = [_narrow(w, number) for number in coordinates[:rank]]
    size, share = height * width * to.dtype.bits // 8, op.attrs.get("share", 1)
    everyone = w.op(f"arith.constant {(1 << share) - 1} : i16") if share > 1 else ""
    spelled = bulk_operations(w).copy_box_to_all if share > 1 else bulk_operations(w).copy_box
    for column, row in itertools.product(range(0, columns, width), range(0, rows // share, height)):
        number = column // width * (rows // height) + row // height
        steps = zip(places, (column, row), strict=False)
        moved = [w.op(f"arith.addi {place}, {i32(w, step)} : i32") if step else place for place, step in steps]
        there = w.op(f"llvm.getelementptr {first}[{number * size}] : ({text}) -> {text}, i8") if number else first
        given = {f"c{k}": place for k, place in enumerate([*moved, *places[2:]])}
        given |= {"to": there, "map": w.name(source), "barrier": barrier}
        w.line(spelled[rank].format(**given, blocks=everyone))


def _order_before(w: FunctionWriter, map: Value) -> str:
    """What orders a copy behind the stores of threads: of those into the tensor only if the kernel has any."""
    spelled, maker = bulk_operations(w), map.maker
    root = None if maker is None else _root(maker.operands[0])
    written = [_root(pointer) for pointer in w.written]
    if root is None or None in written or root.serial in {each.serial for each in written if each is not None}:
        return spelled.order_all.format()
    return spelled.order.format()


def _root(pointer: Value) -> Value | None:
    """The memory that a pointer leads to; None where it may be one of several."""
    while pointer.maker is not None:
        given = [each for each in pointer.maker.operands if isinstance(each.type, PointerType)]
        if not given:
            break
        if len(given) > 1:
            return None
        pointer = given[0]
    return pointer


@emits("fetch_map")
def _fetch_map(w: FunctionWriter, op: Op) -> None:
    place = w.at
    when(w, w.op(f"arith.cmpi eq, {grids.thread_number(w, op.attrs['block'])}, {i32(w, 0)} : i32"))
    with w.nested():
        w.line(bulk_operations(w).fetch_map.format(map=w.name(op.operands[0])))
    w.close(place)


@emits("copy_box")
def _copy_box(w: FunctionWriter, op: Op) -> None:
    """One thread announces the bytes and begins the copies; all warps arrive."""
    state, spelled = w.bulk, bulk_operations(w)
    assert state is not None
    make_room(w, state)
    issued = load_slot(w, state.issued)
    barrier = barrier_of(w, state.ring, issued)
    number, place = grids.thread_number(w, op.attrs["block"]), w.at
    when(w, w.op(f"arith.cmpi eq, {number}, {i32(w, 0)} : i32"))
    with w.nested():
        rows, columns = op.attrs["tile"]
        total = i32(w, rows * columns * op.operands[0].dtype.bits // 8)
        w.line(_order_before(w, op.operands[2]))
        w.line(spelled.announce.format(barrier=barrier, bytes=total))
        _begin_boxes(w, op, barrier)
    w.close(place)
    _arrive(w, barrier)
    store_slot(w, w.op(f"arith.addi {issued}, {i32(w, 1)} : i32"), state.issued)
    w.result(op, w.op("arith.constant 0 : i64"))


@emits("copy_box_arriving")
def _copy_box_arriving(w: FunctionWriter, op: Op) -> None:
    w.line(_order_before(w, op.operands[2]))
    _begin_boxes(w, op, _barrier_of_author(w, op, 8))


@emits("copy_rows")
def _copy_rows(w: FunctionWriter, op: Op) -> None:
    to, at, source, first, stride, rows, count, _ = op.operands
    state, spelled = w.bulk, bulk_operations(w)
    assert state is not None
    make_room(w, state)
    issued = load_slot(w, state.issued)
    barrier = barrier_of(w, state.ring, issued)
    number = grids.thread_number(w, op.attrs["block"])
    size = to.dtype.bits // 8
    bytes_ = w.op(f"arith.muli {_narrow(w, count)}, {i32(w, size)} : i32")
    total = _narrow(w, rows)
    w.line(spelled.order.format())
    place = w.at
    when(w, w.op(f"arith.cmpi eq, {number}, {i32(w, 0)} : i32"))
    with w.nested():
        announced = w.op(f"arith.muli {bytes_}, {total} : i32")
        w.line(spelled.announce.format(barrier=barrier, bytes=announced))
    w.close(place)
    threads = _warps(op) * op.attrs["lanes"]
    some = w.op(f"arith.cmpi sgt, {bytes_}, {i32(w, 0)} : i32")
    for begin in range(0, op.attrs["most"], threads):
        row = w.op(f"arith.addi {number}, {i32(w, begin)} : i32")
        there = w.op(f"arith.cmpi slt, {row}, {total} : i32")
        when(w, w.op(f"arith.andi {there}, {some} : i1"))
        with w.nested():
            wide = w.op(f"arith.extui {row} : i32 to i64")
            given = {
                "to": _row_of(w, (to, at), wide, w.op(f"arith.constant {op.attrs['pitch']} : i64")),
                "source": _row_of(w, (source, first), wide, w.name(stride)),
            }
            w.line(spelled.copy.format(**given, bytes=bytes_, barrier=barrier))
        w.close(place)
    _arrive(w, barrier)
    store_slot(w, w.op(f"arith.addi {issued}, {i32(w, 1)} : i32"), state.issued)
    w.result(op, w.op("arith.constant 0 : i64"))


def _arrive(w: FunctionWriter, barrier: str) -> None:
    """Each warp arrives, when all its lanes have begun their copies."""
    assert w.target.grid is not None
    everyone, place = i32(w, -1), w.at
    for spelling in w.target.grid.sync_warp:
        w.line(spelling.format(mask=everyone))
    when(w, w.op(f"arith.cmpi eq, {warps.lane_number(w)}, {i32(w, 0)} : i32"))
    with w.nested():
        w.line(bulk_operations(w).arrive.format(barrier=barrier))
    w.close(place)


def _row_of(w: FunctionWriter, side: tuple[Value, Value], row: str, distance: str) -> str:
    """The address of a row of one side."""
    pointer, offset = side
    scaled = w.op(f"arith.muli {row}, {distance} : i64")
    text, element = w.type(pointer.type), element_of(pointer)
    first = address(w, pointer, offset)
    return w.op(f"llvm.getelementptr {first}[{scaled}] : ({text}, i64) -> {text}, {element}")


def _narrow(w: FunctionWriter, value: Value) -> str:
    return w.op(f"arith.trunci {w.name(value)} : i64 to i32")


def make_room(w: FunctionWriter, state: BulkState) -> None:
    """Waits for the oldest copy where all barriers are taken."""
    issued = load_slot(w, state.issued)
    await_copies(w, state, w.op(f"arith.subi {issued}, {i32(w, RING - 1)} : i32"))


def commit(w: FunctionWriter) -> None:
    """Notes which copies the groups of this thread end with."""
    if w.bulk is None:
        return
    ends = w.bulk.ends
    for newer, older in zip(reversed(ends[:-1]), reversed(ends[1:]), strict=True):
        store_slot(w, load_slot(w, newer), older)
    store_slot(w, load_slot(w, w.bulk.issued), ends[0])


def wait(w: FunctionWriter, op: Op) -> None:
    """Waits for the copies of all groups but the newest ones; for a token of all copies."""
    if w.bulk is not None:
        last = w.bulk.issued if op.attrs["what"] == "copy" else w.bulk.ends[op.attrs["pending"]]
        await_copies(w, w.bulk, load_slot(w, last))


def await_copies(w: FunctionWriter, state: BulkState, last: str) -> None:
    """Waits for all copies before copy number `last`, one after the other."""
    place = w.at
    w.open("scf.while : () -> () {")
    with w.nested():
        left = w.op(f"arith.subi {last}, {load_slot(w, state.done)} : i32")
        w.line(f"scf.condition({w.op(f'arith.cmpi sgt, {left}, {i32(w, 0)} : i32')})")
    w.open("} do {")
    with w.nested():
        done = load_slot(w, state.done)
        barrier = barrier_of(w, state.ring, done)
        round_ = w.op(f"arith.divui {done}, {i32(w, RING)} : i32")
        parity = w.op(f"arith.andi {round_}, {i32(w, 1)} : i32")
        ended = w.op(bulk_operations(w).ended.format(barrier=barrier, parity=parity))
        store_slot(w, w.op(f"arith.addi {done}, {ended} : i32"), state.done)  # else it looks again
        w.line("scf.yield")
    w.close(place)


# *** barriers of the author ***


def _barrier_of_author(w: FunctionWriter, op: Op, first: int = 0) -> str:
    return address(w, op.operands[first], op.operands[first + 1])


@emits("mbarrier_begin")
def _begin(w: FunctionWriter, op: Op) -> None:
    arrivals = i32(w, op.attrs["arrivals"])
    w.line(bulk_operations(w).begin.format(barrier=_barrier_of_author(w, op), warps=arrivals))
    w.line(bulk_operations(w).order.format())


@emits("mbarrier_arrive")
def _arrive_at(w: FunctionWriter, op: Op) -> None:
    if w.orders_matrices:
        w.line(bulk_operations(w).order.format())
    barrier, count, spelled = _barrier_of_author(w, op), op.operands[2], bulk_operations(w)
    elsewhere = isinstance(op.operands[0].type, PointerType) and op.operands[0].type.space == "cluster"
    if count.const == 0:
        w.line((spelled.arrive_there if elsewhere else spelled.arrive).format(barrier=barrier))
    else:
        text = spelled.expect_there if elsewhere else spelled.expect
        w.line(text.format(barrier=barrier, bytes=_narrow(w, count)))


@emits("mbarrier_wait")
def _wait_for_phase(w: FunctionWriter, op: Op) -> None:
    barrier, place = _barrier_of_author(w, op), w.at
    one = i32(w, 1)
    parity = w.op(f"arith.andi {_narrow(w, op.operands[2])}, {one} : i32")
    w.open("scf.while : () -> () {")
    with w.nested():
        spelled = bulk_operations(w)
        text = spelled.ended_in_cluster if op.attrs.get("scope") == "cluster" else spelled.ended
        ended = w.op(text.format(barrier=barrier, parity=parity))
        w.line(f"scf.condition({w.op(f'arith.cmpi ne, {ended}, {one} : i32')})")
    w.open("} do {")
    with w.nested():
        w.line("scf.yield")
    w.close(place)


@emits("copy_row")
def _copy_row(w: FunctionWriter, op: Op) -> None:
    to, at, source, first, count, *_ = op.operands
    size = to.dtype.bits // 8
    given = {"to": address(w, to, at), "source": address(w, source, first), "barrier": _barrier_of_author(w, op, 5)}
    bytes_ = w.op(f"arith.muli {_narrow(w, count)}, {i32(w, size)} : i32")
    w.line(bulk_operations(w).order.format())
    w.line(bulk_operations(w).copy.format(**given, bytes=bytes_))
