"""Reads through shared memory what a `foreach` on a GPU reads across: neighbours of the result lie far apart there.

    out[i, j] = f(x[j, i], y[i, j])           a block takes 64 x 64 elements of the result:
                                        =>      tile[j][i] = x[j, i]      # neighbouring threads: neighbours along i
                                                barrier
                                                out[i, j] = f(tile[j][i], y[i, j])    # and along j

The position of an element is taken apart by divisions, whose remainders are its indices. A load is read across when its
address goes up by one with an index that is not the last, and by more with the last. Positions are then rows and
columns: a row is position // (sizes of the axes behind that index). Any element can be read by another thread, by the
same operations for its position, so nothing else has to be known of the load.

Rows of the tile are an odd number of 4-byte words apart, so that neighbours of a column lie in other banks. Where there
are few rows or columns the launch stays as it was; sizes that are not known are looked at by the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.dtype import INT
from ..ir.builder import Builder
from ..ir.native_opcodes import NATIVE_PURE
from ..ir.opcodes import CONST, IF, LAUNCH, LOAD, NOTE, STORE, UDIV, UREM
from ..ir.program import Op, PointerType, Program, ProgramFunction, Region, Value, captures, walk
from ..ir.schedule import LoopHints
from ..targets import Target
from .widen_threads import again

SIDES = (64, 32)  # of a tile: the larger one that fits
MOST_SHARED = 34816  # bytes of all tiles of a block
THREADS = 256
MIN_AXIS = 32  # elements of an axis
LEAST_ELEMENTS = 16384
MAX_OPERATIONS = 1024  # operations of all elements of a thread that are written out

_Element = Callable[[Value, Value], None]


def turn_tiles(program: Program, target: Target) -> None:
    """Gives launches over elements tiles in shared memory for what they read across."""
    for function in program.functions:
        if any("elements" in op.attrs and op.opcode is LAUNCH for op in walk(function.body)):
            _visit(function, function.body, target.lanes)


def _visit(function: ProgramFunction, region: Region, lanes: int) -> None:
    ops, region.ops = region.ops, []
    builder = Builder(function.bounds)
    with builder.inside(region):
        for op in ops:
            turned = None
            if op.opcode is LAUNCH and "elements" in op.attrs:
                turned = _plan(op, lanes)
            elif op.opcode is not LAUNCH:
                for inner in op.regions:
                    _visit(function, inner, lanes)
            if turned is None:
                region.ops.append(op)
            else:
                builder.location = op.location
                _choose(builder, op, turned)


@dataclass
class _Crossing:
    """A launch over elements some of which are read across.

    Attributes:
        position, total: the number of a thread's element, and how many there are.
        body: what is done for one.
        divisors: by what positions are divided one after the other, so that rows are left.
        extent: of the index along which neighbours in memory are read; None for all rows.
        loads: what is read across.
        side: of a tile.
        lanes: neighbouring threads that read neighbours.
    """

    position: Value
    total: Value
    body: list[Op]
    divisors: list[Value]
    extent: Value | None
    loads: list[Op] = field(default_factory=list)
    side: int = 0
    lanes: int = 0


def _plan(launch: Op, lanes: int) -> _Crossing | None:
    """What a launch reads across; None where that is nothing."""
    test = launch.regions[0].ops[-2]
    compared = test.operands[0].maker if test.opcode is IF else None
    assert compared is not None and compared.name == "lt", "a launch over elements has another form"
    position, total = compared.operands
    ops = test.regions[0].ops[:-1]
    outside = {value.serial for value in captures(launch.regions[0])}
    if launch.operands[3].const != THREADS or (total.const is not None and total.const < LEAST_ELEMENTS):
        return None
    if not all(op.opcode.lanewise or op.opcode in (LOAD, STORE, NOTE, NATIVE_PURE) for op in ops):
        return None
    if any(op.opcode is STORE and op.operands[-1] is not position for op in ops):
        return None
    strides = _Strides(position, outside)
    plan: _Crossing | None = None
    for op in ops:
        strides.add(op)
        crossing = strides.read_across(op) if op.opcode is LOAD and _is_simple(op, outside) else None
        if crossing is not None:
            if plan is None:
                plan = _Crossing(position, total, ops, *crossing)
            if [each.serial for each in plan.divisors] == [each.serial for each in crossing[0]]:
                plan.loads.append(op)
    if plan is None:
        return None
    if any(length < MIN_AXIS for length in _lengths(plan)):
        return None
    fitting = [side for side in SIDES if sum(_tile_bytes(load, side) for load in plan.loads) <= MOST_SHARED]
    if not fitting:
        return None
    plan.side, plan.lanes = fitting[0], min(lanes, fitting[0])
    return plan


def _lengths(plan: _Crossing) -> list[int]:
    """How many rows and columns there are, as far as that is known."""
    sizes = [plan.divisors] if plan.extent is None else [plan.divisors, [plan.extent]]
    known = [[size.const for size in each] for each in sizes]
    return [math.prod(each) for each in known if None not in each]


def _is_simple(load: Op, outside: set[int]) -> bool:
    """Whether a load takes one whole element of a tensor."""
    pointer, type = load.operands[-2], load.results[0].simd
    is_global = isinstance(pointer.type, PointerType) and pointer.type.space == "global"
    size = max(type.dtype.bits, 8)
    return (
        is_global
        and pointer.serial in outside
        and type.width == 1
        and size in (8, 16, 32, 64)
        and not type.dtype.is_packed()
    )


class _Strides:
    """Which indices an address goes up with, and by how much.

    An index is a remainder of the position or of a quotient of it, or the last quotient. `depths` has for the position
    and each quotient the divisors that lead to it; `steps` has for each value the indices that it goes up with, each
    with whether by one.
    """

    def __init__(self, position: Value, outside: set[int]) -> None:
        self.outside = outside
        self.depths: dict[int, list[Value]] = {position.serial: []}
        self.indices: dict[int, tuple[list[Value], Value | None]] = {position.serial: ([], None)}
        self.steps: dict[int, dict[int, bool] | None] = {position.serial: {position.serial: True}}

    def of(self, value: Value) -> dict[int, bool] | None:
        """The steps of a value; None where they are not known."""
        if value.const is not None or value.serial in self.outside:
            return {}
        return self.steps.get(value.serial)

    def add(self, op: Op) -> None:
        if len(op.results) != 1:
            return
        result = op.results[0]
        if op.opcode in (UDIV, UREM) and op.operands[0].serial in self.depths:
            before, divisor = self.depths[op.operands[0].serial], op.operands[1]
            if divisor.const is not None or divisor.serial in self.outside:
                if op.opcode is UDIV:
                    self.depths[result.serial] = [*before, divisor]
                    self.indices[result.serial] = ([*before, divisor], None)
                else:
                    self.indices[result.serial] = (before, divisor)
                self.steps[result.serial] = {result.serial: True}
        elif op.opcode is CONST:
            self.steps[result.serial] = {}
        elif op.name in ("add", "sub", "mul"):
            self.steps[result.serial] = self._joined(op)

    def _joined(self, op: Op) -> dict[int, bool] | None:
        left, right = (self.of(value) for value in op.operands)
        if left is None or right is None or (op.name == "mul" and left and right):
            return None
        if op.name == "mul":
            return dict.fromkeys((*left, *right), False)
        steps = {serial: by_one and serial not in right for serial, by_one in left.items()}
        return steps | {serial: by_one and serial not in left and op.name == "add" for serial, by_one in right.items()}

    def read_across(self, load: Op) -> tuple[list[Value], Value | None] | None:
        """The divisors that make rows, and the size of the index that the address goes up by one with."""
        steps = self.of(load.operands[-1])
        if not steps:
            return None
        by_one = [self.indices[serial] for serial, one in steps.items() if one]
        along_last = any(not one and not self.indices[serial][0] for serial, one in steps.items())
        return by_one[0] if len(by_one) == 1 and by_one[0][0] and along_last else None


def _needed(plan: _Crossing) -> list[Op]:
    """What has to be done for the loads, and the loads."""
    wanted = {load.results[0].serial for load in plan.loads}
    needed = []
    for op in reversed(plan.body):
        if any(result.serial in wanted for result in op.results):
            needed.append(op)
            wanted |= {value.serial for value in op.operands}
    return needed[::-1]


def _known(builder: Builder, plan: _Crossing, row: Value, column: Value, columns: Value) -> dict[int, Value]:
    """The position in a row and a column, and its quotients and remainders by what makes columns: without divisions."""
    known = {plan.position.serial: builder.iadd(builder.imul(row, columns), column)}
    rests = {plan.position.serial: (column, list(plan.divisors))}  # what of a quotient is of columns, and what is left
    for op in plan.body:
        rest, divisors = rests.get(op.operands[0].serial, (column, [])) if op.operands else (column, [])
        if op.opcode not in (UDIV, UREM) or not divisors or op.operands[1].serial != divisors[0].serial:
            continue
        result = op.results[0].serial
        if op.opcode is UREM:
            known[result] = builder.irem(rest, divisors[0]) if len(divisors) > 1 else rest
        elif len(divisors) == 1:
            known[result] = row
        else:
            rest = builder.idiv(rest, divisors[0])
            known[result] = builder.iadd(builder.imul(row, builder.product(divisors[1:])), rest)
            rests[result] = (rest, divisors[1:])
    return known


def _pitch(load: Op, side: int) -> int:
    """Elements from a row of a tile to the next."""
    return side + max(4 // (max(load.results[0].simd.dtype.bits, 8) // 8), 1)


def _tile_bytes(load: Op, side: int) -> int:
    return side * _pitch(load, side) * max(load.results[0].simd.dtype.bits, 8) // 8


def _choose(builder: Builder, launch: Op, plan: _Crossing) -> None:
    """The launch by tiles, or as it was where an axis is short."""
    columns = builder.product(plan.divisors)
    if columns.const is None:
        columns = builder.row("max", [columns, builder.int_(1)])  # of no elements
    rows = builder.idiv(plan.total, columns)
    lengths = [size for size in (plan.extent or rows, columns) if size.const is None]
    if not lengths:
        _by_tiles(builder, launch, plan, rows, columns)
        return
    long = [builder.compare("ge", size, builder.int_(MIN_AXIS)) for size in lengths]
    condition = long[0] if len(long) == 1 else builder.row("and_", long)
    tiled, plain = Region(), Region([], [launch])
    with builder.inside(tiled):
        _by_tiles(builder, launch, plan, rows, columns)
        builder.end()
    with builder.inside(plain):
        builder.end()
    builder.add("if", [condition], regions=[tiled, plain])


def _by_tiles(builder: Builder, launch: Op, plan: _Crossing, rows: Value, columns: Value) -> None:
    side = builder.int_(plan.side)
    round_up = builder.int_(plan.side - 1)
    across = builder.idiv(builder.iadd(columns, round_up), side)
    down = builder.idiv(builder.iadd(rows, round_up), side)
    region = Region()
    with builder.inside(region):
        _TileWriter(builder, plan, rows, columns, across).write()
        builder.end()
    attrs = {name: value for name, value in launch.attrs.items() if name != "elements"}
    builder.add("launch", [builder.imul(across, down), *launch.operands[1:]], regions=[region], **attrs)


@dataclass
class _TileWriter:
    """Writes what a thread does.

    Attributes:
        rows, columns, across: how many there are, and how many tiles lie side by side.
        tiles: the memory of each load that is read across.
        lane, warp: the number of a thread among those that read neighbours, and the number of these threads.
        top, left: the first row and column of the tile of a block.
    """

    builder: Builder
    plan: _Crossing
    rows: Value
    columns: Value
    across: Value
    tiles: dict[int, Value] = field(default_factory=dict)
    lane: Value = field(init=False)
    warp: Value = field(init=False)
    top: Value = field(init=False)
    left: Value = field(init=False)

    def write(self) -> None:
        builder, plan = self.builder, self.plan
        block = builder.one("gpu_id", [], INT, which="block_idx.x")
        thread = builder.one("gpu_id", [], INT, which="thread_idx.x")
        side, lanes = builder.int_(plan.side), builder.int_(plan.lanes)
        self.lane, self.warp = builder.irem(thread, lanes), builder.idiv(thread, lanes)
        self.top = builder.imul(builder.idiv(block, self.across), side)
        self.left = builder.imul(builder.irem(block, self.across), side)
        for load in plan.loads:
            type = PointerType(load.results[0].simd.dtype, "shared")
            count = plan.side * _pitch(load, plan.side)
            self.tiles[load.results[0].serial] = builder.one("alloca", [], type, align=16, count=count, zeroed=False)
        down = builder.compare("le", builder.iadd(self.top, side), self.rows)
        is_whole = builder.row("and_", [down, builder.compare("le", builder.iadd(self.left, side), self.columns)])
        self.all_elements(self.bring, (self.top, self.rows, self.left, self.columns), is_whole)
        builder.add("barrier", [])
        self.all_elements(self.take, (self.left, self.columns, self.top, self.rows), is_whole)

    def bring(self, lane: Value, other: Value) -> None:
        """Reads along rows what lies side by side there, and puts it into the tiles."""
        builder, plan = self.builder, self.plan
        known = _known(builder, plan, builder.iadd(self.top, lane), builder.iadd(self.left, other), self.columns)
        for op in _needed(plan):
            if op.results[0].serial not in known:
                again(builder, op, known)
        for load in plan.loads:
            serial = load.results[0].serial
            place = builder.iadd(builder.imul(other, builder.int_(_pitch(load, plan.side))), lane)
            builder.add("store", [known[serial], self.tiles[serial], place])

    def take(self, lane: Value, other: Value) -> None:
        """Computes elements of the result, which lie side by side along columns."""
        builder, plan = self.builder, self.plan
        known = _known(builder, plan, builder.iadd(self.top, other), builder.iadd(self.left, lane), self.columns)
        for op in plan.body:
            serial = op.results[0].serial if op.results else -1
            if serial in self.tiles:
                place = builder.iadd(builder.imul(lane, builder.int_(_pitch(op, plan.side))), other)
                known[serial] = builder.one("load", [self.tiles[serial], place], op.results[0].type)
            elif serial not in known:
                again(builder, op, known)

    def all_elements(self, element: _Element, limits: Sequence[Value], is_whole: Value) -> None:
        """Calls element(lane, other) for the elements of a thread.

        `limits` are the first lane and the end of lanes, and the same of the others; whole tiles lie within them.
        """
        whole, ragged = Region(), Region()
        with self.builder.inside(whole):
            count = len(self.plan.body) * (self.plan.side**2 // THREADS)
            hints = LoopHints(unrolled=True) if count <= MAX_OPERATIONS else LoopHints(rolled=True)
            self.rounds(element, hints)
            self.builder.end()
        with self.builder.inside(ragged):
            self.rounds(lambda lane, other: self.inside(element, limits, lane, other), LoopHints(rolled=True))
            self.builder.end()
        self.builder.add("if", [is_whole], regions=[whole, ragged])

    def rounds(self, element: _Element, hints: LoopHints) -> None:
        """The loops over the elements of a thread."""
        builder, plan = self.builder, self.plan
        side, none = builder.int_(plan.side), builder.int_(0)
        outer = builder.for_loop(none, side, builder.int_(plan.lanes))
        builder.region.ops[-1].attrs["hints"] = hints
        with builder.inside(outer):
            own = builder.iadd(self.lane, outer.args[0])
            inner = builder.for_loop(none, side, builder.int_(THREADS // plan.lanes))
            builder.region.ops[-1].attrs["hints"] = hints
            with builder.inside(inner):
                element(own, builder.iadd(self.warp, inner.args[0]))
                builder.end()
            builder.end()

    def inside(self, element: _Element, limits: Sequence[Value], lane: Value, other: Value) -> None:
        """The element if there is one."""
        builder = self.builder
        low, high, first, last = limits
        along = builder.compare("lt", builder.iadd(low, lane), high)
        across = builder.compare("lt", builder.iadd(first, other), last)
        there, nothing = Region(), Region()
        with builder.inside(there):
            element(lane, other)
            builder.end()
        with builder.inside(nothing):
            builder.end()
        builder.add("if", [builder.row("and_", [along, across])], regions=[there, nothing])
