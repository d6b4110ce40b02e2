"""Estimates what share of a device's limit each kernel of a call reaches, and which wall holds it back.

    kernel     moved      least      operations  wall           share  on
    add        12.6 MB    12.6 MB    1.05 M      memory         100 %  H100 SXM

The limit is the time that the device's memory needs for each sector that is touched, once, or its arithmetic units for
the operations: the longer one. Each wall is a time of its own; the longest is the estimate, as all of them overlap. A
wall of work is raised where few blocks leave multiprocessors idle, or the last ones run alone.

See also `launch_counters` (what is counted), `dsl.contract.gpus` (the figures of devices).
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from ...dsl.contract.gpus import Peaks, Resident, architecture_of, peaks_of, resident_of
from ...dsl.contract.launches import LaunchCounters
from ...dsl.diagnostics.dataclass import dataclass
from .line_counters import SECTOR
from .memory_page import TRACE_CUT
from .roofline_picture import Roof, RooflinePoint, picture

UNDER_WAY: Final = 4  # requests of a warp that wait for memory at the same time
MATRICES: Final = "dot."
WALLS: Final = (
    "memory",
    "cache",
    "shared memory",
    "float32",
    "float64",
    "matrix units",
    "instructions",
    "latency",
    "registers",
)
SCHEDULERS: Final = 4  # of a multiprocessor: each begins an instruction of its own warps a clock
REST: Final = 0.25  # of the other walls' times that the highest wall does not hide
LAUNCHING: Final = 3e-6  # seconds from one launch to the next
MOST_REGISTERS: Final = {32: 255, 64: 512}  # of a thread, by the threads of a warp: NVIDIA's, AMD's


WORDS: Final = (  # what the columns of the table mean
    "Moved: bytes that multiprocessors request. Least: the same bytes, each once. Occupancy: warps of a "
    "multiprocessor, of those that it could have. Waves: how often the grid fills all multiprocessors. Wall: what "
    "takes longest. Share: the time that the device needs at least, for the least bytes or the operations, by the "
    "estimated time."
)


@dataclass(frozen=True)
class KernelRoofline:
    """The estimate for a launch.

    Fields:
        walls: seconds by the name of the wall, those of `WALLS` that apply.
        limit: the least seconds for the same work on the device.
        wall: the wall that holds it back.
        occupancy: warps that a multiprocessor has at once, of those that it could.
        waves: how often all multiprocessors are filled with blocks.
    """

    launch: LaunchCounters
    walls: Mapping[str, float] = field(hash=False)
    limit: float
    wall: str
    occupancy: float
    waves: float

    @property
    def seconds(self) -> float:
        """The estimated time."""
        return self.walls[self.wall]

    @property
    def score(self) -> float:
        """Seconds by which choices are compared: walls are not hidden in full, and a launch takes its time."""
        return self.seconds + REST * (sum(self.walls.values()) - self.seconds) + LAUNCHING

    @property
    def share(self) -> float:
        """The estimated share of the limit."""
        return min(1.0, self.limit / self.seconds) if self.seconds else 1.0

    @property
    def operations(self) -> int:
        """All operations of floats."""
        return sum(self.launch.operations.values())

    @property
    def intensity(self) -> float:
        """Operations for each byte of memory that is touched."""
        return self.operations / max(self.launch.distinct * SECTOR, 1)

    @property
    def speed(self) -> float:
        """Operations a second, by the estimate."""
        return self.operations / self.seconds if self.seconds else 0.0

    def to_dict(self) -> dict[str, object]:
        """The numbers as JSON values."""
        launch = self.launch
        return {
            "op": launch.op,
            "kernel": launch.kernel,
            "moved": launch.cached * SECTOR,
            "least": launch.distinct * SECTOR,
            "operations": dict(launch.operations),
            "walls": dict(self.walls),
            "wall": self.wall,
            "share": self.share,
            "occupancy": self.occupancy,
            "waves": self.waves,
        }


@dataclass(frozen=True)
class Roofline:
    """The estimates for all launches of a call, on one device.

    Attributes:
        whole: whether all that the kernels did was counted; else estimates are too low, and launches may be missing.
    """

    device: str
    peaks: Peaks
    kernels: tuple[KernelRoofline, ...]
    whole: bool = True

    @classmethod
    def of(cls, launches: Sequence[LaunchCounters], device: str, *, whole: bool = True) -> Roofline:
        """The estimates on the device of a target.

        Raises:
            TargetError: EK0601 no figures of such a device are known.
        """
        peaks = peaks_of(device)
        resident = resident_of(device)
        return cls(device, peaks, tuple(_estimate(launch, peaks, resident) for launch in launches), whole)

    def to_list(self) -> list[dict[str, object]]:
        """The estimates as JSON values."""
        return [kernel.to_dict() for kernel in self.kernels]

    def table(self) -> str:
        """The estimates as text, with the device and the source of its figures."""
        width = max([28, *(len(kernel.launch.name) for kernel in self.kernels)])
        heads = f"{'moved':>9} {'least':>9} {'operations':>11} {'occupancy':>9} {'wall':>13} {'share':>6}"
        rows = [f"{'kernel':{width}} {heads}"]
        for kernel in self.kernels:
            launch = kernel.launch
            moved, least = _size(launch.cached * SECTOR), _size(launch.distinct * SECTOR)
            numbers = f"{moved:>9} {least:>9} {_count(kernel.operations):>11} {kernel.occupancy:>9.0%}"
            rows.append(f"{launch.name:{width}} {numbers} {kernel.wall:>13} {kernel.share:>6.0%}")
        return "\n".join(
            [
                *rows,
                f"estimated for {self.peaks.device} ({architecture_of(self.device)})",
                f"figures: {self.peaks.source}",
                *([] if self.whole else [TRACE_CUT]),
            ]
        )

    def html(self) -> str:
        """The part of a page: a heading, the picture, and a row a kernel."""
        return f"<h2>Roofline</h2>{self.drawn()}"

    def drawn(self) -> str:
        """The picture, and a row a kernel."""
        points = [
            RooflinePoint(f"{each.launch.name}: {each.wall}, {each.share:.0%}", each.intensity, each.speed)
            for each in self.kernels
            if each.operations and each.seconds
        ]
        roofs = [Roof("float32", self.peaks.float32)]
        named = (name for each in self.kernels for name in each.launch.operations)
        used = {name.removeprefix(MATRICES) for name in named if name.startswith(MATRICES)}
        roofs += [Roof(f"matrices of {name}", top) for name, top in self.peaks.products.items() if name in used]
        heads = ("kernel", "moved", "least", "operations", "blocks", "occupancy", "waves", "wall", "share")
        rows = ["".join(f"<th>{name}</th>" for name in heads), *map(_row, self.kernels)]
        table = "\n".join(f"<tr>{row}</tr>" for row in rows)
        note = f"Estimated for {self.peaks.device} ({architecture_of(self.device)}). Figures: {self.peaks.source}."
        drawn = picture(points, roofs, self.peaks.memory)
        notes = "\n".join(f'<p class="faint">{html.escape(text)}</p>' for text in (WORDS, note))
        return f'{drawn}<div class="about"><table class="roofline">{table}</table>{notes}</div>'


def _row(each: KernelRoofline) -> str:
    launch = each.launch
    cells = (
        html.escape(launch.name),
        _size(launch.cached * SECTOR),
        _size(launch.distinct * SECTOR),
        _count(each.operations),
        f"{launch.blocks:,}",
        f"{each.occupancy:.0%}",
        f"{each.waves:.2f}",
        each.wall,
        f"{each.share:.0%}",
    )
    hint = ", ".join(f"{name} {1e6 * seconds:.2f} us" for name, seconds in each.walls.items())
    bar = f'<td><div class="share" title="{hint}"><div style="width:{100 * each.share:.0f}%"></div></div></td>'
    return "".join(f"<td>{cell}</td>" for cell in cells) + bar


def _estimate(launch: LaunchCounters, peaks: Peaks, resident: Resident) -> KernelRoofline:
    """The walls of a launch."""
    at_once, _ = resident.blocks_at_once(launch.threads, launch.shared, launch.registers, launch.lanes)
    at_once = max(at_once, 1)
    slots = at_once * resident.multiprocessors
    waves = launch.blocks / slots
    warps = -(-launch.threads // launch.lanes)
    spread = _idle(launch.blocks, resident.multiprocessors)
    if launch.instructions:  # counted for a choice: few warps leave schedulers without one
        spread *= max(1.0, SCHEDULERS / (min(at_once, math.ceil(launch.blocks / resident.multiprocessors)) * warps))
    running = min(launch.blocks, slots) * warps
    work = _arithmetic(launch.operations, peaks)
    walls = {"memory": launch.distinct * SECTOR / peaks.memory}
    if peaks.cache:
        walls["cache"] = launch.cached * SECTOR / peaks.cache
    if launch.turns:
        walls["shared memory"] = launch.turns / (resident.multiprocessors * peaks.clock) * spread
    walls |= {name: seconds * spread for name, seconds in work.items()}
    if launch.instructions:
        clocks = SCHEDULERS * resident.multiprocessors * peaks.clock
        walls["instructions"] = launch.instructions / clocks * spread
        walls |= _spilled(launch, peaks)
    if launch.chain:
        walls["latency"] = math.ceil(waves) * launch.chain * peaks.latency
    elif launch.requests and running:
        walls["latency"] = launch.requests * peaks.latency / (running * UNDER_WAY)
    limit = max([walls["memory"], *work.values()])
    wall = max(walls, key=lambda name: walls[name])
    held = min(at_once, math.ceil(launch.blocks / resident.multiprocessors)) * warps * launch.lanes
    return KernelRoofline(launch, walls, limit, wall, min(1.0, held / resident.threads), waves)


def _spilled(launch: LaunchCounters, peaks: Peaks) -> dict[str, float]:
    """Of registers that a thread has no place for: each goes to memory and back for every answer of memory."""
    over = launch.registers - MOST_REGISTERS.get(launch.lanes, 255)
    if over <= 0:
        return {}
    moved = 8 * over * launch.threads * launch.blocks * max(launch.chain, 1.0)
    return {"registers": moved / (peaks.cache or peaks.memory)}


def _idle(blocks: int, multiprocessors: int) -> float:
    """By how much work takes longer because multiprocessors have no block, or one less than others."""
    return math.ceil(blocks / multiprocessors) * multiprocessors / blocks if blocks else 1.0


def _arithmetic(operations: Mapping[str, int], peaks: Peaks) -> dict[str, float]:
    """Seconds of the arithmetic units; what no matrix unit multiplies is done by the others."""
    walls: dict[str, float] = {}
    for name, count in operations.items():
        kind = name.removeprefix(MATRICES)
        if name != kind and kind in peaks.products:
            wall, top = "matrix units", peaks.products[kind]
        elif kind == "float64":
            wall, top = "float64", peaks.float64
        else:
            wall, top = "float32", peaks.float32
        walls[wall] = walls.get(wall, 0.0) + count / top
    return walls


def _size(count: float) -> str:
    return f"{_count(count)}B"


def _count(count: float) -> str:
    """`12.6 M`, of three digits."""
    for unit in ("", "K", "M", "G"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if count >= 100 or count == int(count) else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} T"
