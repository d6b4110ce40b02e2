"""Runs one warp of a kernel without data, and counts what it does: instructions, bytes, sectors, turns, operations.

Sizes are known, elements are not. A loop is run for its round in the middle, which counts for all of its rounds; what
does not depend on the round counts once, as compilers move it out. Loops of few rounds are run round by round. A sector
counts once for neighbouring accesses. Where a condition depends on elements, both branches count half. A loop whose
rounds depend on elements counts `GUESSED` rounds. Addresses are taken to be aligned.

See also `static_counts` (all warps and launches), `static_values` (what is known of values).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import field
from typing import Final

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.types.packing import Array
from ..ir.copy_opcodes import COPY_BOX, COPY_ROWS
from ..ir.opcodes import ALIGNED, FOR, GPU_ID, IF, WHILE
from ..ir.program import Op, PointerType, Region, Value, walk
from ..lowering.arithmetic_counts import operations_of
from ..targets.products import BY_NAME
from .static_values import Known, Spot, chosen, computed, constant

SECTOR: Final = 32
BANK: Final = 4  # bytes of a bank of shared memory
BANKS: Final = 32
GUESSED: Final = 8  # rounds of a loop that nothing is known of
UNDER_WAY: Final = 4  # loads of a loop's rounds that wait for memory at the same time
BARRIER: Final = 0.05  # of the time of an answer of memory
UNROLLED: Final = 8  # rounds of a loop that is run round by round
RECENT: Final = 8  # accesses of global memory whose neighbours LLVM joins with them, or whose sectors the cache has
FREE: Final = (  # operations that are no instruction, or a small part of one
    *("const", "splat", "extract", "insert", "lanes", "shuffle", "bitcast", "real", "imag", "complex", "gpu_id"),
    *("offset", "aligned", "assume_aligned", "uniform", "pointer_cast", "null_pointer"),
    *("alloca", "dynamic_shared", "scratch", "together", "product_begun", "set_registers"),
    *("copy_ring", "mbarrier_begin", "tensor_memory"),
)
_DIVISIONS: Final = ("floordiv", "mod", "udiv", "urem", "truediv", "sqrt")
_LOADS: Final = ("load", "masked_load", "gather")
_STORES: Final = ("store", "masked_store", "scatter")


@dataclass
class WarpCounts:
    """What warps did; see `LaunchCounters`. `touched` is the bytes moved for each buffer, by its serial number."""

    instructions: float = 0.0
    requests: float = 0.0
    bytes: float = 0.0
    sectors: float = 0.0
    turns: float = 0.0
    least_turns: float = 0.0
    chain: float = 0.0
    operations: Counter[str] = field(default_factory=Counter)
    touched: dict[int, float] = field(default_factory=dict)


class StaticWarp:
    """One warp of one block."""

    def __init__(self, known: dict[int, Known], indices: dict[str, Array], lanes: int) -> None:
        """`known`: values of the host's code by serial; `indices`: what each lane gets of `gpu_id`."""
        self.known = known
        self.indices = indices
        self.lanes = lanes
        self.counts = WarpCounts()
        self.times = [1.0]  # how often each loop around is run, the innermost last
        self.depth: dict[int, int] = {}  # the loop that a value depends on, by serial
        self.guess = 1.0
        self.recent: deque[tuple[int, Array]] = deque(maxlen=RECENT)  # the last accesses: buffer, sectors

    def run(self, region: Region, active: Array) -> list[Known]:
        """Runs a region for the lanes that are active; what it ends with."""
        waited = False
        for op in region.ops:
            if op.opcode.ends:
                return [self.value(operand) for operand in op.operands]
            if op.opcode is FOR:
                self._for(op, active)
            elif op.opcode is WHILE:
                self._while(op, active)
            elif op.opcode is IF:
                self._if(op, active)
            else:
                reads = op.name in _LOADS and _space(op.operands[0]) == "global"
                self._plain(op, active, first=reads and not waited)
                waited = waited or reads
        return []

    def value(self, value: Value) -> Known:
        """What is known of a value."""
        if value.const is not None:
            return constant(value, self.lanes)
        return self.known.get(value.serial)

    # *** control flow ***

    def _for(self, op: Op, active: Array) -> None:
        low, high, step = (self.value(operand) for operand in op.operands[:3])
        body, carried = op.regions[0], op.operands[3:]
        if values := _short(op):
            self._unrolled(op, values, active)
            return
        rounds, index, inside = float(GUESSED), None, active
        if isinstance(low, np.ndarray) and isinstance(high, np.ndarray) and isinstance(step, np.ndarray):
            each = np.maximum(-((low - high) // np.maximum(step, 1)), 0) * active
            rounds = float(each.max(initial=0))
            index = low + int(rounds) // 2 * step
            inside = active & (index < high)
            if rounds and not inside.any():
                index, inside = low, active & (low < high)
        if rounds:
            if "product" in op.attrs:
                self._count(operations_of(op), active)
            self._rounds(op, body, [index, *map(self.value, carried)], inside, rounds)
        else:
            for result, operand in zip(op.results, carried, strict=True):
                self._set(result, self.value(operand))

    def _unrolled(self, op: Op, indices: Sequence[int], active: Array) -> None:
        """All rounds of a loop, as compilers write them one behind the other."""
        body = op.regions[0]
        found: list[Known] = [self.value(operand) for operand in op.operands[3:]]
        for index in indices:
            for argument, value in zip(body.args, [np.full(self.lanes, index), *found], strict=True):
                self._set(argument, value)
            found = self.run(body, active)
        for result, value in zip(op.results, found, strict=True):
            self._set(result, value)

    def _rounds(self, op: Op, body: Region, args: Sequence[Known], active: Array, rounds: float) -> None:
        self.times.append(self.times[-1] * rounds)
        self.recent.clear()
        for argument, value in zip(body.args, args, strict=True):
            self._set(argument, value, len(self.times) - 1)
        self.counts.instructions += 2 * self._often()  # the index, and the jump
        results = self.run(body, active)
        self.recent.clear()
        self.times.pop()
        for result, found in zip(op.results, results, strict=True):
            self._set(result, found)

    def _while(self, op: Op, active: Array) -> None:
        before, body = op.regions
        args = [self.value(operand) for operand in op.operands]
        for argument, value in zip(before.args, args, strict=True):
            self._set(argument, value, len(self.times) - 1)
        on, *carried = self.run(before, active)
        if not isinstance(on, np.ndarray) or (on & active).any():
            inside = active & on if isinstance(on, np.ndarray) else active
            self._rounds(op, body, carried, inside, 1.0 if "spins" in op.attrs else GUESSED)
        for result in op.results:
            self._set(result, None)

    def _if(self, op: Op, active: Array) -> None:
        condition = self.value(op.operands[0])
        self.counts.instructions += self._often()
        if not isinstance(condition, np.ndarray):
            self.guess /= 2
            both = [self.run(region, active) for region in op.regions]
            self.guess *= 2
        else:
            yes, no = active & condition, active & ~condition
            both = [
                self.run(region, part) if part.any() else [] for region, part in zip(op.regions, (yes, no), strict=True)
            ]
        for k, result in enumerate(op.results):
            a, b = (values[k] if values else None for values in both)
            found = a if not both[1] else b if not both[0] else chosen(condition, a, b)
            self._set(result, found)

    # *** other operations ***

    def _plain(self, op: Op, active: Array, *, first: bool) -> None:
        operands = [self.value(operand) for operand in op.operands]
        depth = max((self._depth(operand) for operand in op.operands), default=0)
        name = op.name
        if op.results:
            self._set(op.results[0], self._result(op, operands), depth if op.opcode.is_pure else len(self.times) - 1)
            for other in op.results[1:]:
                self._set(other, None)
        often = self._often(depth) if op.opcode.is_pure else self._often()
        self.counts.instructions += often * instructions(op)
        if op.opcode.row is not None:
            self._count(operations_of(op), active, often)
        elif name.startswith("multiply_"):
            self._product(op)
        elif name in _LOADS:
            self._access(op.operands[0], operands[:2], op.results[0], _mask(op, operands, 2), active, depth)
            self.counts.chain += self._often() / (UNDER_WAY if len(self.times) > 1 else 1) if first else 0.0
        elif name in _STORES:
            self._access(op.operands[1], operands[1:3], op.operands[0], _mask(op, operands, 3), active)
        else:
            self._other(op, operands, active)

    def _result(self, op: Op, operands: Sequence[Known]) -> Known:
        if op.opcode is GPU_ID:
            return self.indices.get(op.attrs["which"])
        if op.opcode is ALIGNED:
            return np.ones(self.lanes, bool)  # as memory of devices is
        if op.opcode.allocates and isinstance(op.results[0].type, PointerType):
            return Spot(op.results[0], np.zeros(self.lanes, np.int64))
        return computed(op, operands, self.lanes)

    def _other(self, op: Op, operands: Sequence[Known], active: Array) -> None:
        """Copies into shared memory, waits, atomic operations."""
        name = op.name
        if name == "copy_async":
            wide = op.operands[2].dtype.bits * op.attrs["count"] // 8
            where = operands[4] if isinstance(operands[4], np.ndarray) else None
            self._global(operands[2], operands[3], op.operands[2], wide, active if where is None else active & where)
            self._shared(operands[0], operands[1], op.operands[0], wide, active)
        elif name in ("copy_rows", "copy_row"):
            self._bulk(op, operands, active)
        elif name in ("copy_box", "copy_box_arriving"):
            self._box(op, operands, active)
        elif name == "copy_wait":
            self.counts.chain += self._often() / (op.attrs["pending"] + 1)
        elif name == "mbarrier_wait":
            buffer = operands[0].buffer if isinstance(operands[0], Spot) else None
            stages = buffer.maker.attrs.get("count", 1) if buffer is not None and buffer.maker is not None else 1
            self.counts.chain += self._often() / max(stages - 1, 1)
        elif name in ("barrier", "cluster_sync"):
            self.counts.chain += BARRIER * self._often()
        elif name.startswith("atomic"):
            at = 2 if name == "atomic_compare_exchange" else 0 if name == "atomic_load" else 1
            of = op.operands[at]
            self._access(of, operands[at : at + 2], of, None, active)
        elif name == "load_matrices":
            self.counts.turns += 4 * self._often()
            self.counts.least_turns += 4 * self._often()

    def _bulk(self, op: Op, operands: Sequence[Known], active: Array) -> None:
        """Whole rows: those of all threads of the block, or one of a thread."""
        size, often = op.operands[2].dtype.bits / 8, self._often()
        if op.opcode is COPY_ROWS:
            rows, each = (_first(operands[k], active) for k in (5, 6))
            share = 1 / max(self.indices["warps"][0], 1)  # what a warp does of it
        else:
            rows, each, share = float(active.sum()), _first(operands[4], active), 1.0
        moved = (rows or 0.0) * (each or 0.0) * size * share
        self.counts.requests += often * (rows or 0.0) * share
        self.counts.bytes += often * moved
        self._move(operands[2], often * moved / SECTOR)

    def _box(self, op: Op, operands: Sequence[Known], active: Array) -> None:
        """A tile by a description of its tensor: by the block, or by each thread that is active."""
        rows, columns = op.attrs["tile"]
        often, share = self._often(), float(active.sum())
        if op.opcode is COPY_BOX:
            share = 1 / max(self.indices["warps"][0], 1)
        moved = rows * columns * op.operands[0].dtype.bits / 8 * share * often
        self.counts.requests += often * share
        self.counts.bytes += moved
        self._move(operands[2], moved / SECTOR)

    def _product(self, op: Op) -> None:
        row, often = BY_NAME[op.attrs["row"]], self._often()
        m, n, k = row.shape
        count = 1
        if "columns" in op.attrs:  # of four warps: a quarter of it is this one's
            n, m = op.attrs["columns"], m // 4
            count = max(len(op.attrs["left_at"]), len(op.attrs["right_at"]), op.attrs.get("held", 0))
            lines = (n + m) * k * row.a.bits // 8 / 128 * count / (4 if row.in_tensor_memory else 1)
            self.counts.turns += often * lines / 4
            self.counts.least_turns += often * lines / 4
        kind = "tf32" if row.precision == "tf32" else str(row.a)
        self.counts.operations[f"dot.{kind}"] += round(often * 2 * m * n * k * count)

    # *** memory ***

    def _access(
        self,
        pointer: Value,
        address: Sequence[Known],
        of: Value,
        mask: Array | None,
        active: Array,
        depth: int | None = None,
    ) -> None:
        lanes = active if mask is None else active & mask
        width = 1 if isinstance(of.type, PointerType) else of.simd.width
        wide = max(of.dtype.bits * width // 8, 1)
        space = _space(pointer)
        if space == "global":
            self._global(address[0], address[1], pointer, wide, lanes, depth)
        elif space != "stack":
            self._shared(address[0], address[1], pointer, wide, lanes)

    def _global(
        self, pointer: Known, offset: Known, of: Value, wide: int, lanes: Array, depth: int | None = None
    ) -> None:
        often = self._often(depth)
        at = self._at(pointer, offset, of)
        count = int(lanes.sum())
        if at is None:
            sectors = float(count * -(-wide // SECTOR))
        else:
            first = at[lanes]
            spans = [(first + k) // SECTOR for k in (*range(0, wide, SECTOR), wide - 1)]
            sectors = self._new_sectors(pointer, np.unique(np.concatenate(spans)))
        self.counts.requests += often * -(-wide // 16) * bool(count)
        self.counts.bytes += often * wide * count
        self._move(pointer, often * sectors)

    def _new_sectors(self, pointer: Known, sectors: Array) -> float:
        """How many of these none of the last accesses to the buffer had."""
        serial = pointer.buffer.serial if isinstance(pointer, Spot) else -1
        before = [known for buffer, known in self.recent if buffer == serial]
        self.recent.append((serial, sectors))
        return float(len(np.setdiff1d(sectors, np.concatenate(before))) if before else len(sectors))

    def _move(self, pointer: Known, sectors: float) -> None:
        self.counts.sectors += sectors
        if isinstance(pointer, Spot):
            serial = pointer.buffer.serial
            self.counts.touched[serial] = self.counts.touched.get(serial, 0.0) + sectors * SECTOR

    def _shared(self, pointer: Known, offset: Known, of: Value, wide: int, lanes: Array) -> None:
        often, count = self._often(), int(lanes.sum())
        least = -(-count * wide // (BANK * BANKS))
        at = self._at(pointer, offset, of)
        turns = least
        if at is not None and count:
            words = np.unique(np.concatenate([(at[lanes] + k) // BANK for k in range(0, wide, BANK)]))
            turns = int(np.bincount(words % BANKS, minlength=BANKS).max())
            least = min(least, turns)
        self.counts.turns += often * turns
        self.counts.least_turns += often * least

    def _at(self, pointer: Known, offset: Known, of: Value) -> Array | None:
        if not isinstance(pointer, Spot) or pointer.at is None or not isinstance(offset, np.ndarray):
            return None
        found: Array = pointer.at + offset * of.dtype.bits // 8
        return found

    # *** how often ***

    def _often(self, depth: int | None = None) -> float:
        return self.guess * self.times[-1 if depth is None else min(depth, len(self.times) - 1)]

    def _depth(self, value: Value) -> int:
        return self.depth.get(value.serial, 0)

    def _set(self, value: Value, known: Known, depth: int | None = None) -> None:
        self.known[value.serial] = known
        self.depth[value.serial] = len(self.times) - 1 if depth is None else depth

    def _count(self, operations: Counter[str], active: Array, often: float | None = None) -> None:
        times = (self._often() if often is None else often) * int(active.sum())
        for name, count in operations.items():
            self.counts.operations[name] += round(count * times)


def _short(op: Op) -> range:
    """The indices of a loop of few rounds without loops in it; none of another loop."""
    low, high, step = (operand.const for operand in op.operands[:3])
    if not all(isinstance(each, int) for each in (low, high, step)) or step <= 0 or "product" in op.attrs:
        return range(0)
    rounds = range(low, high, step)
    nested = any(inner.opcode in (FOR, WHILE) for inner in walk(op.regions[0]))
    return rounds if len(rounds) <= UNROLLED and not nested else range(0)


def instructions(op: Op) -> float:
    """About how many instructions of a GPU an operation is."""
    name = op.name
    if name in FREE or op.regions:
        return 0.0
    wide = [v for v in (*op.results, *op.operands) if not isinstance(v.type, PointerType)]
    width = max((v.simd.width for v in wide), default=1)
    bits = op.results[0].dtype.bits if op.results and not isinstance(op.results[0].type, PointerType) else 32
    if name in (*_LOADS, *_STORES):
        of = op.results[0] if op.results else op.operands[0]
        each = width if name in ("gather", "scatter") else -(-of.dtype.bits * width // 128)
        return float(each)
    if name.startswith("multiply_"):
        return float(max(len(op.attrs.get("right_at", ())), len(op.attrs.get("left_at", ())), 1))
    if name == "cast" and width == 1 and not op.operands[0].dtype.is_float() and not op.results[0].dtype.is_float():
        return 0.0
    if name in _DIVISIONS:
        return width * _division(op)
    return float(width) if bits >= 32 else max(width * bits / 32, 1.0) if width > 1 else 1.0


def _division(op: Op) -> int:
    by: object = op.operands[-1].const
    if op.results[0].dtype.is_float():
        return 8
    if isinstance(by, int) and by > 0:
        return 1 if by & (by - 1) == 0 else 4
    return 16


def _mask(op: Op, operands: Sequence[Known], at: int) -> Array | None:
    found = operands[at] if op.opcode.masked and at < len(operands) else None
    return found if isinstance(found, np.ndarray) and found.dtype == bool else None


def _first(value: Known, active: Array) -> float | None:
    return float(value[active][0]) if isinstance(value, np.ndarray) and active.any() else None


def _space(pointer: Value) -> str:
    return pointer.type.space if isinstance(pointer.type, PointerType) else ""
