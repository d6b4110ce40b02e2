"""Draws a graph as one page: a row an op, with arcs from what it reads; groups of fused kernels; the memory plan.

The page is one file of HTML and SVG without references to others. Pointing at a row marks what it reads and what reads
it; without JavaScript all of it still stands there.

See also `passes.fusion` (which kernels are fused).
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from string import Template

from ...dsl.diagnostics.errors import GraphError
from ..ir import GraphIR, Item, Node
from ..loading.planned import PlannedStep, planned_steps
from ..passes.control_flow import final
from ..passes.fusion import Group
from ..passes.memory_plan import Plan
from ..profiling.profile import Profile
from ..profiling.profile_page import shown_time
from ..profiling.static_roofline import symbol_sizes
from .outline import OutlineLine, outline

ROW, GUTTER = 22, 150  # pixels
USUAL_SIZE = 64  # of a dim of which nothing is said
GOLDEN_ANGLE = 137.508  # degrees of hue between neighbours: no two groups close to each other look alike
MOST_ARCS = 5000
WIDTH, HEIGHT = 1100, 240  # of the picture of the memory


def graph_page(ir: GraphIR, sizes: Mapping[str, int], profile: Profile | None) -> str:
    """The whole page."""
    steps = planned_steps(ir)
    groups = [group for step in steps for group in step.groups]
    known = symbol_sizes(ir, sizes, USUAL_SIZE)
    lines = outline(ir)
    group_of = {number: k for k, group in reversed(list(enumerate(groups))) for number in group.nodes}
    return Template(files(__package__).joinpath("page.html").read_text("utf-8")).substitute(
        title=html.escape(f"{ir.name} · graph"),
        name=html.escape(ir.name),
        about=html.escape(_about(ir, groups)),
        height=len(lines) * ROW,
        gutter=GUTTER,
        arcs=_arcs(lines),
        rows="\n".join(_row(k, line, ir, group_of) for k, line in enumerate(lines)),
        groups=_group_table(ir, groups, profile),
        memory="\n".join(_pictures(steps, known)),
        sizes=html.escape(
            ", ".join(f"{name} = {size}" for name, size in sorted(known.items())) or "all sizes are known"
        ),
    )


def _about(ir: GraphIR, groups: Sequence[Group]) -> str:
    count = sum(isinstance(node, Node) for node in ir.nodes)
    where = " and ".join(map(str, ir.devices))
    return f"{len(ir.inputs)} inputs, {count} ops in {len(groups)} groups, {len(ir.outputs)} outputs, on {where}"


def _hue(group: int) -> str:
    return f"{group * GOLDEN_ANGLE % 360:.0f}"


# *** the graph ***


def _arcs(lines: Sequence[OutlineLine]) -> str:
    """An arc from the row that makes a value to each that reads it."""
    makers = {value: k for k, line in enumerate(lines) for value in line.gives}
    ends = [(makers[value], k) for k, line in enumerate(lines) for value in line.takes]
    parts = []
    for start, end in ends[:MOST_ARCS]:
        first, last = (at * ROW + ROW / 2 for at in (start, end))
        reach = GUTTER - min(GUTTER - 4, 16 + 14 * (end - start) ** 0.55)
        parts.append(
            f'<path data-from="{start}" data-to="{end}" '
            f'd="M{GUTTER} {first:.0f}C{reach:.0f} {first:.0f} {reach:.0f} {last:.0f} {GUTTER} {last:.0f}"/>'
        )
    return "\n".join(parts)


def _row(k: int, line: OutlineLine, ir: GraphIR, group_of: Mapping[int, int]) -> str:
    node: Item | None = None if line.node is None else ir.nodes[line.node]
    group = group_of.get(line.node) if line.kind == "op" and line.node is not None else None
    parts = [_values(line.gives), f"<b>{html.escape(line.name)}</b>", _values(line.takes)]
    if isinstance(node, Node) and node.parameters:
        listed = ", ".join(f"{name}={value}" for name, value in node.parameters)
        parts.append(f"<i>{html.escape(listed)}</i>")
    types = ", ".join(str(ir.types[value]) for value in line.results)
    place = "" if node is None or node.place is None else f"staged at {node.place}"
    mark = "" if group is None else f' style="--h:{_hue(group)}" data-group="{group}"'
    return (
        f'<div class="row {line.kind}" data-k="{k}" title="{html.escape(place)}"{mark}>'
        f'<span style="padding-left:{line.depth * 2}em">{" ".join(filter(None, parts))}</span>'
        f'<span class="type">{html.escape(types)}</span>'
        f'<span class="group">{"" if group is None else f"group {group}"}</span></div>'
    )


def _values(numbers: Sequence[int]) -> str:
    return f'<span class="value">{" ".join(f"%{number}" for number in numbers)}</span>' if numbers else ""


# *** groups ***


def _group_table(ir: GraphIR, groups: Sequence[Group], profile: Profile | None) -> str:
    rows = {} if profile is None else {row.number: row for row in profile.rows() if row.model == ir.name}
    head = "<th>time</th><th>runs</th><th>share</th>" if rows else ""
    lines = [f"<table><tr><th>group</th><th>kernels</th><th>writes</th>{head}</tr>"]
    for k, group in enumerate(groups):
        entry = rows.get(k)
        times = f"<td>{shown_time(entry.median)}</td><td>{entry.runs}</td><td>{entry.share:.1%}</td>" if entry else ""
        times = times or ("<td></td>" * 3 if rows else "")
        written = ", ".join(str(type) for type in ir.nodes[final(group)].out_types)
        lines.append(
            f'<tr style="--h:{_hue(k)}" data-group="{k}"><td class="mark">{k}</td><td>{_kernels(ir, group)}</td>'
            f"<td>{html.escape(written)}</td>{times}</tr>"
        )
    return "\n".join([*lines, "</table>"])


def _kernels(ir: GraphIR, group: Group) -> str:
    """The names of a group's kernels, the one whose loops run in bold."""
    shown = []
    for number in group.nodes:
        node = ir.nodes[number]
        name = html.escape(getattr(node, "name", ""))
        shown.append(f"<b>{name}</b>" if number == group.root else f"{name}*" if number == group.epilogue else name)
    return " → ".join(shown)


# *** memory ***


def _pictures(steps: Sequence[PlannedStep], sizes: Mapping[str, int]) -> Iterator[str]:
    """A picture of each arena: of each device in its turn, and of each stage."""
    first = 0
    for step in steps:
        if step.plan is not None:
            where = f"groups {first} to {first + len(step.groups) - 1}, on {step.device}" if len(steps) > 1 else ""
            for stage in range(len(step.plan.stages) + 1):
                titles = [where, f"stage {stage}" if step.plan.stages else ""]
                title = ", ".join(filter(None, titles))
                yield _memory(step.plan, stage, sizes, (first, len(step.groups)), f"<h3>{title}</h3>" if title else "")
        first += len(step.groups)


def _memory(plan: Plan, stage: int, sizes: Mapping[str, int], numbers: tuple[int, int], title: str) -> str:
    """When each temporary lives, from left to right, and where it lies in the arena. `numbers` are that of the first
    group and how many there are."""
    start, groups = numbers
    try:
        shapes = [[dim.evaluate(sizes) for dim in buffer.shape] for buffer in plan.buffers]
        if any(size < 0 for shape in shapes for size in shape):
            raise GraphError("one would be below zero", code="EK0475")
        offsets, total = plan.place(sizes, stage)
    except GraphError as error:
        return f'{title}<p class="faint">no picture for these sizes: {html.escape(error.message)}</p>'
    if not offsets or not total:
        return f'{title}<p class="faint">No temporaries: every result goes to an output or is fused.</p>'
    parts = [
        f'{title}<p class="faint">an arena of {total:,} bytes</p>',
        f'<svg class="memory" viewBox="0 0 {WIDTH} {HEIGHT + 20}" role="img" aria-label="the plan of the memory">',
    ]
    step, scale = WIDTH / max(groups, 1), HEIGHT / total
    for number, offset in sorted(offsets.items()):
        buffer = plan.buffers[number]
        size = buffer.dtype.bytes_for(math.prod(shapes[number]))
        alive = f"groups {start + buffer.first} to {start + buffer.last}"
        label = f"{buffer.dtype}{shapes[number]}, {size:,} bytes from {offset:,}; {alive}"
        x, width = buffer.first * step, (buffer.last - buffer.first + 1) * step
        parts.append(
            f'<rect style="--h:{_hue(start + buffer.first)}" x="{x:.1f}" y="{HEIGHT - (offset + size) * scale:.1f}" '
            f'width="{width:.1f}" height="{max(size * scale, 1):.1f}"><title>{html.escape(label)}</title></rect>'
        )
    parts.append(f'<text x="0" y="{HEIGHT + 15}">group {start}</text>')
    parts.append(f'<text x="{WIDTH}" y="{HEIGHT + 15}" text-anchor="end">group {start + groups - 1}</text></svg>')
    return "\n".join(parts)
