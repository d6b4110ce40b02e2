"""Estimates from machine code which wall of a GPU the steady loop of each kernel stands at, without sizes of a call.

The steady loop is the one with most products of matrices, else with the most bytes of global memory; a kernel without
a loop counts whole. Loops within it are left out, as they copy what is not aligned, but for those that compute, which
stand for themselves. Both sides of branches count. All global accesses are taken to reach the memory. A unit of a
multiprocessor takes so many clocks for a warp's round; the unit that takes longest is the wall.

See also `machine_reports` (instructions by line), `dsl.contract.gpus` (the figures of devices).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Final

from ...dsl.contract.gpus import Peaks, has_peaks, peaks_of, resident_of
from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import plural
from ..pipeline import Artifact
from .instruction_costs import Cost
from .kernel_code import KernelCode, kernel_codes
from .listing import Spot
from .natural_loops import loops_of

ISSUED: Final = 4  # instructions of warps that a multiprocessor begins in a clock
SPECIAL: Final = 16  # lanes of a multiprocessor for special functions


@dataclass(frozen=True)
class SteadyLoop:
    """The estimate for a kernel.

    Fields:
        spot: the author's line that the loop is of; None where the kernel has none.
        instructions: of a round.
        clocks: by unit, for a round of a warp on a multiprocessor.
        blocks, ends: how many blocks a multiprocessor holds, and what ends that.
        occupancy: warps that it holds, of those that it could.
    """

    kernel: KernelCode
    spot: Spot | None
    instructions: int
    clocks: dict[str, float] = field(hash=False)
    blocks: int
    ends: str
    occupancy: float

    @property
    def wall(self) -> str:
        """The unit that takes longest."""
        return max(self.clocks, key=lambda name: self.clocks[name])

    def share(self, unit: str) -> float:
        """How busy a unit is while the wall is at its limit."""
        return self.clocks[unit] / (self.clocks[self.wall] or 1.0)


def steady_loops(artifact: Artifact) -> list[SteadyLoop]:
    """Of each kernel; nothing where no figures of the device are known, or no tool shows machine code."""
    target = artifact.target
    if not target.has_grid or target.simulates or not has_peaks(target.name):
        return []
    peaks = peaks_of(target.name)
    return [loop for kernel in kernel_codes(artifact) for loop in _estimates(kernel, peaks, target.name)]


def limits_html(target: str, loops: Sequence[SteadyLoop]) -> str:
    """The part of the page of `einkorn explore`: a row a kernel, with a bar for each unit; empty without kernels."""
    if not loops:
        return ""
    peaks = peaks_of(target)
    rows = "\n".join(f"<tr>{_row(loop)}</tr>" for loop in loops)
    heads = "".join(f"<th>{name}</th>" for name in ("kernel", "steady loop", "wall", "occupancy", "busy units"))
    note = f"Estimated for {peaks.device}, whose figures are from: {peaks.source}."
    title = f"limits on {target} of the steady loops, by machine code: " + ", ".join(
        dict.fromkeys(loop.wall for loop in loops)
    )
    table = f'<table class="limits"><tr>{heads}</tr>\n{rows}</table><p>{html.escape(note)}</p>'
    return f'<details data-target="{html.escape(target)}"><summary>{title}</summary>\n{table}\n</details>'


def _row(loop: SteadyLoop) -> str:
    where = f"line {loop.spot[1]}, " if loop.spot else ""
    kernel = loop.kernel
    resident = f"{plural(loop.blocks, 'block')} of {kernel.threads} threads, by {loop.ends}"
    taken = f"{loop.occupancy:.0%}: {resident} ({plural(kernel.registers, 'register')}, {kernel.shared} bytes shared)"
    bars = "".join(
        f'<div class="unit"><span>{name}</span><div title="{clocks:.1f} clocks a round of a warp">'
        f'<div style="width:{100 * loop.share(name):.0f}%"></div></div></div>'
        for name, clocks in loop.clocks.items()
        if clocks
    )
    cells = (html.escape(kernel.name), f"{where}{plural(loop.instructions, 'instruction')}", loop.wall, taken)
    return "".join(f"<td>{cell}</td>" for cell in cells) + f"<td>{bars}</td>"


def _estimates(kernel: KernelCode, peaks: Peaks, target: str) -> Iterator[SteadyLoop]:
    """Of the steady loop, and of loops within it that compute without memory, which go round unknown times."""
    costs = [one.cost for one in kernel.code]
    rounds = _rounds(kernel)
    span, steady = max(rounds, key=lambda each: _weight([costs[k] for k in each[1]]))
    yield _estimate(kernel, steady, [costs[k] for k in steady], peaks, target)
    for loop, own in rounds:
        inner = [costs[k] for k in own]
        if loop < span and any(one.floats or one.products for one in inner) and not any(one.memory for one in inner):
            yield _estimate(kernel, own, inner, peaks, target)


def _estimate(
    kernel: KernelCode, chosen: Sequence[int], costs: Sequence[Cost], peaks: Peaks, target: str
) -> SteadyLoop:
    resident = resident_of(target)
    spots = [spot for k in chosen if (spot := kernel.code[k].spot) is not None]
    is_loop = len(chosen) < len(kernel.code)
    spot = max(set(spots), key=lambda each: (spots.count(each), each)) if is_loop and spots else None
    clocks = _clocks(costs, peaks, resident.multiprocessors)
    blocks, ends = resident.blocks_at_once(kernel.threads, kernel.shared, kernel.registers, peaks.lanes)
    warps = blocks * -(-kernel.threads // peaks.lanes)
    occupancy = min(1.0, warps * peaks.lanes / resident.threads)
    return SteadyLoop(kernel, spot, len(chosen), clocks, blocks, ends, occupancy)


def _clocks(costs: Sequence[Cost], peaks: Peaks, multiprocessors: int) -> dict[str, float]:
    """Clocks of each unit for a round of a warp."""
    each = peaks.clock * multiprocessors
    lanes = peaks.lanes
    products = sum(
        lanes * one.products * each / peaks.products[one.dtype] for one in costs if one.dtype in peaks.products
    )
    return {
        "memory": sum(one.memory for one in costs) * lanes * each / peaks.memory,
        "shared memory": sum(one.shared for one in costs) * lanes / peaks.shared,
        "float32": sum(one.floats for one in costs) * lanes * each / peaks.float32,
        "special functions": sum(one.special for one in costs) * lanes / SPECIAL,
        "matrix units": products,
        "instructions": len(costs) / ISSUED,
    }


def _weight(costs: Sequence[Cost]) -> tuple[float, float, float, float, int]:
    wide = sum(one.memory for one in costs if one.memory >= 16)
    memory, shared = sum(one.memory for one in costs), sum(one.shared for one in costs)
    return sum(one.products for one in costs), wide, memory, shared, -len(costs)


def _rounds(kernel: KernelCode) -> list[tuple[frozenset[int], list[int]]]:
    """Each loop, and its instructions without those of loops within; of a kernel without loops, all."""
    loops = loops_of(kernel.code, kernel.labels)
    rounds = [(loop, sorted(loop.difference(*(other for other in loops if other < loop)))) for loop in loops]
    return rounds or [(frozenset(range(len(kernel.code))), list(range(len(kernel.code))))]
