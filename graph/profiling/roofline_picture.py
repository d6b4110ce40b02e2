"""Draws a roofline as SVG: operations for each byte to the right, operations a second upwards, by powers of ten."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence

from ...dsl.diagnostics.dataclass import dataclass

WIDTH, HEIGHT, LEFT, RIGHT, BELOW, ABOVE = 760, 320, 64, 24, 40, 32
NAMED = 8  # points whose names fit next to them; more are numbered

STYLE = """
.rooflines { max-width: 760px; width: 100%; font: 11px system-ui, sans-serif }
.rooflines text { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 4px }
.rooflines .grid { stroke: var(--line) }
.rooflines .roof { stroke: var(--group); stroke-width: 2; fill: none } .rooflines circle { fill: var(--more) }
table.roofline { border-collapse: collapse; margin: .5rem 0 } .roofline th { text-align: left; font-weight: 500 }
.roofline th, .roofline td { padding: .1rem .8rem .1rem 0; font-variant-numeric: tabular-nums }
.share { width: 8rem; height: .7rem; background: var(--line); border-radius: 2px; overflow: hidden }
.share div { height: 100%; background: var(--least) }
"""


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel: operations for each byte, and operations a second."""

    name: str
    intensity: float
    speed: float


@dataclass(frozen=True)
class Roof:
    """The operations a second that units of a device do at most."""

    name: str
    speed: float


@dataclass(frozen=True)
class _Axes:
    """The powers of ten at the ends of both axes."""

    left: int
    right: int
    bottom: int
    top: int

    def x(self, intensity: float) -> float:
        return LEFT + (math.log10(intensity) - self.left) / (self.right - self.left) * (WIDTH - LEFT - RIGHT)

    def y(self, speed: float) -> float:
        part = (math.log10(speed) - self.bottom) / (self.top - self.bottom)
        return HEIGHT - BELOW - part * (HEIGHT - BELOW - ABOVE)


def picture(points: Sequence[RooflinePoint], roofs: Sequence[Roof], memory: float) -> str:
    """The picture: roofs over the slope of the memory's bandwidth, in bytes a second, and a dot a kernel."""
    powers_x = [math.log10(point.intensity) for point in points]
    top = math.ceil(math.log10(max(roof.speed for roof in roofs)))
    lowest = min([top - 4, *(math.floor(math.log10(point.speed)) for point in points)])
    axes = _Axes(math.floor(min([-1.0, *powers_x])), math.ceil(max([3.0, *powers_x])), lowest, top)
    head = f'<svg class="rooflines" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="roofline">'
    return "\n".join([head, *_grid(axes), *_roofs(axes, roofs, memory), *_points(axes, points), "</svg>"])


def _grid(axes: _Axes) -> Iterator[str]:
    end, right = HEIGHT - BELOW, WIDTH - RIGHT
    for power in range(axes.left, axes.right + 1):
        at = axes.x(10.0**power)
        yield f'<line class="grid" x1="{at:.1f}" y1="{ABOVE}" x2="{at:.1f}" y2="{end}"/>'
        yield _text(at, end + 14, f"{10.0**power:g}", "middle")
    for power in range(axes.bottom, axes.top + 1):
        at = axes.y(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
        yield _text(LEFT - 6, at + 4, _speed(power), "end")
    yield _text(right, HEIGHT - 8, "operations for each byte", "end")
    yield _text(4, 12, "operations a second")


def _roofs(axes: _Axes, roofs: Sequence[Roof], memory: float) -> Iterator[str]:
    start = max(10.0**axes.left, 10.0**axes.bottom / memory)
    for roof in roofs:
        ridge = min(max(roof.speed / memory, start), 10.0**axes.right)
        slope = f"M{axes.x(start):.1f} {axes.y(start * memory):.1f}L{axes.x(ridge):.1f} {axes.y(ridge * memory):.1f}"
        yield f'<path class="roof" d="{slope}H{WIDTH - RIGHT}"/>'
        yield _text(WIDTH - RIGHT - 4, axes.y(roof.speed) - 5, roof.name, "end")


def _points(axes: _Axes, points: Sequence[RooflinePoint]) -> Iterator[str]:
    for number, point in enumerate(points, start=1):
        at_x, at_y = axes.x(point.intensity), axes.y(point.speed)
        yield f'<circle cx="{at_x:.1f}" cy="{at_y:.1f}" r="4"><title>{html.escape(point.name)}</title></circle>'
        late = at_x > WIDTH * 0.6
        name = point.name if len(points) <= NAMED else str(number)
        yield _text(at_x - 8 if late else at_x + 8, at_y + 4, name, "end" if late else "start")


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _speed(power: int) -> str:
    """`10 T` of 13: operations a second."""
    unit = {0: "", 1: " K", 2: " M", 3: " G", 4: " T", 5: " P"}.get(power // 3, f"e{power // 3 * 3}")
    return f"{10 ** (power % 3)}{unit}"
