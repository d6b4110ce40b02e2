"""Counts what the launches of a program do for given sizes, without running them: a warp at a time, in one block.

The block is the one in the middle of the grid, and counts for all blocks. Sectors that several warps of a block read
count once a warp. See `static_warp` for what is estimated within one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ...dsl.contract.launches import LaunchCounters
from ...dsl.contract.unit import BufferSpec, EntrySpec, Slot
from ...dsl.types.packing import Array
from ..ir.opcodes import LAUNCH
from ..ir.program import Location, Op, Program, ProgramFunction
from ..ir.shared_memory import static_shared
from ..ir.storage_opcodes import SCRATCH
from ..targets.base import Target
from .live_registers import live_registers
from .static_values import Known, Spot
from .static_warp import SECTOR, StaticWarp, WarpCounts


def static_counts(program: Program, spec: EntrySpec, sizes: Sequence[int], target: Target) -> list[LaunchCounters]:
    """The launches of all calls of an entry, in their order.

    Args:
        sizes: the value of each slot of the entry.
    """
    launches: list[LaunchCounters] = []
    for number, buffers, dims in program.calls:
        function = program.functions[number]
        known: dict[int, Known] = {}
        bytes_of: dict[int, int] = {}
        values = [sizes[size.index] if isinstance(size, Slot) else size for size in dims]
        for param, buffer in zip(function.params, buffers, strict=False):
            known[param.serial] = Spot(param, np.zeros(1, np.int64))
            bytes_of[param.serial] = _bytes(spec.buffers[buffer], sizes)
        for param, value in zip(function.params[len(buffers) :], values, strict=False):
            known[param.serial] = np.full(1, value, np.int64)
        host = _Host(function, known, bytes_of, target)
        host.run(function.body, np.ones(1, bool))
        launches += host.launches
    return launches


def _bytes(buffer: BufferSpec, sizes: Sequence[int]) -> int:
    shape = [sizes[size.index] if isinstance(size, Slot) else size for size in buffer.shape]
    return int(buffer.dtype.bytes_for(math.prod(shape)))


class _Host(StaticWarp):
    """The code that launches: one lane, whose launches are counted."""

    def __init__(
        self, function: ProgramFunction, known: dict[int, Known], bytes_of: dict[int, int], target: Target
    ) -> None:
        super().__init__(known, {}, 1)
        self.function = function
        self.bytes_of = bytes_of
        self.target = target
        self.launches: list[LaunchCounters] = []

    def _plain(self, op: Op, active: Array, *, first: bool) -> None:
        if op.opcode is not LAUNCH:
            super()._plain(op, active, first=first)
            if op.opcode is SCRATCH:
                count = self.value(op.operands[0])
                size = int(count[0]) if isinstance(count, np.ndarray) else 0
                self.bytes_of[op.results[0].serial] = int(op.results[0].dtype.bytes_for(max(size, 0)))
            return
        for _ in range(max(1, round(self._often()))):
            self.launches.append(self._launch(op))

    def _launch(self, op: Op) -> LaunchCounters:
        numbers = [self.value(operand) for operand in op.operands]
        given = [int(value[0]) if isinstance(value, np.ndarray) else 1 for value in numbers]
        grid, block, dynamic = given[:3], given[3:6], given[6]
        blocks, threads, lanes = math.prod(grid), math.prod(block), self.target.lanes
        total = WarpCounts()
        chain = 0.0
        for warp in range(-(-threads // lanes)) if blocks > 0 else ():
            one = StaticWarp(dict(_spread(self.known, lanes)), _indices(grid, block, warp, lanes), lanes)
            numbers_of = warp * lanes + np.arange(lanes)
            one.run(op.regions[0], numbers_of < threads)
            chain = max(chain, one.counts.chain)
            _add(total, one.counts)
        return LaunchCounters(
            self.function.op,
            _kernel(op),
            max(blocks, 0),
            threads,
            static_shared(op.regions[0]) + dynamic,
            lanes,
            round(total.requests * blocks),
            round(total.bytes * blocks),
            round(total.sectors * blocks),
            self._distinct(total, blocks),
            round(total.sectors * blocks),
            round(total.turns * blocks),
            round((total.turns - total.least_turns) * blocks),
            {name: count * blocks for name, count in total.operations.items()},
            live_registers(op.regions[0]),
            round(total.instructions * blocks),
            chain,
        )

    def _distinct(self, total: WarpCounts, blocks: int) -> int:
        """Sectors that memory has to move at least: no more of a buffer than it has."""
        known = sum(total.touched.values())
        other = max(total.sectors * SECTOR - known, 0.0) * blocks
        least = [min(moved * blocks, self.bytes_of.get(serial, math.inf)) for serial, moved in total.touched.items()]
        return math.ceil((sum(least) + other) / SECTOR)


def _spread(known: Mapping[int, Known], lanes: int) -> Iterator[tuple[int, Known]]:
    """What is known on the host, in every lane."""
    for serial, value in known.items():
        if isinstance(value, Spot):
            yield serial, Spot(value.buffer, None if value.at is None else np.repeat(value.at[:1], lanes))
        else:
            yield serial, None if value is None else np.repeat(value[:1], lanes)


def _indices(grid: Sequence[int], block: Sequence[int], warp: int, lanes: int) -> dict[str, Array]:
    """The indices of the lanes of a warp, in the block in the middle of the grid."""
    thread = warp * lanes + np.arange(lanes)
    x, y = block[0], block[1]
    found = {
        "thread_idx.x": thread % x,
        "thread_idx.y": thread // x % y,
        "thread_idx.z": thread // (x * y),
        "lane_idx": np.arange(lanes),
        "warp_idx": np.full(lanes, warp),
        "warps": np.full(lanes, -(-math.prod(block) // lanes)),
    }
    for axis, count in zip("xyz", grid, strict=True):
        found[f"block_idx.{axis}"] = np.full(lanes, count // 2)
    return found


def _kernel(launch: Op) -> str:
    """The function that a launch calls: of the calls that lead to an operation, the one behind those to the launch."""
    depth = len(_functions(launch.location))
    chains = (_functions(op.location) for op in launch.regions[0].ops)
    return next((chain[depth] for chain in chains if len(chain) > depth), "")


def _functions(location: Location | None) -> list[str]:
    """The functions of a place and of the calls around it, the outermost first."""
    return [] if location is None else [*_functions(location.caller), location.function]


def _add(total: WarpCounts, one: WarpCounts) -> None:
    for name in ("instructions", "requests", "bytes", "sectors", "turns", "least_turns"):
        setattr(total, name, getattr(total, name) + getattr(one, name))
    total.operations.update(one.operations)
    for serial, moved in one.touched.items():
        total.touched[serial] = total.touched.get(serial, 0.0) + moved
