"""Draws a profile: a table of groups on the terminal, and one page with bars and a timeline of each thread.

The page is one file of HTML and SVG without references to others and without JavaScript.

See also `profile` (what is measured).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from statistics import median

from .memory_counters import added
from .memory_page import STYLE, memory_section
from .page_style import whole_page
from .profile import Event, Profile, ProfileRow

WIDTH, LABEL, ROW = 1100, 260, 22  # of the timeline, in pixels
MOST_EVENTS = 4000  # that a timeline draws
MOST_BARS = 40
# Kinds of events from above to below, and what their lanes are called.
LANES = {"span": "spans", "call": "calls", "load": "loads", "group": "groups", "copy": "copies", "task": "tasks"}

_STYLE = """
table { border-collapse: collapse; width: 100% } td, th { padding: .2rem .6rem; text-align: right;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums }
td:first-child, th:first-child, td:nth-child(2), th:nth-child(2) { text-align: left }
td.bar { width: 30%; padding-right: 0 } td.bar div { background: var(--group); height: .8rem; border-radius: 2px }
svg { width: 100%; height: auto } svg text { fill: var(--faint); font: 12px system-ui }
.group, .load, .copy { fill: var(--group) } .task { fill: var(--task) } .call, .span { fill: var(--call) }
.axis { stroke: var(--line) }
"""


def shown_time(nanoseconds: float) -> str:
    """A time with its unit: 1.24 us, 87 us, 3.1 ms."""
    for factor, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def profile_table(profile: Profile) -> str:
    """The groups as a table of text, the dearest first."""
    rows = profile.rows()
    lines = [("share", "total", "median", "runs", "model", "group")]
    lines += [
        (f"{row.share:.1%}", shown_time(row.total), shown_time(row.median), str(row.runs), row.model, row.name)
        for row in rows
    ]
    widths = [max(len(line[k]) for line in lines) for k in range(5)]
    shown = [
        "  ".join(
            [
                *(text.rjust(width) for text, width in zip(line[:4], widths, strict=False)),
                line[4].ljust(widths[4]),
                line[5],
            ]
        )
        for line in lines
    ]
    memory = ["", added(profile.counted).table()] if profile.counted else []
    return "\n".join([*shown, "", _summary(profile), *_span_lines(profile), *memory])


def _span_lines(profile: Profile) -> list[str]:
    """A line for each span of the program."""
    spans = profile.spans()
    width = max(map(len, spans), default=0)
    lines = [
        f"{name.ljust(width)}  {len(times)} runs, {shown_time(sum(times))}, median {shown_time(median(times))}"
        for name, times in spans.items()
    ]
    return ["", "spans of the program", *lines] if lines else []


def _summary(profile: Profile) -> str:
    calls = [event for event in profile.events if event.kind == "call"]
    groups = sum(event.duration for event in profile.events if event.kind == "group")
    whole = sum(event.duration for event in calls)
    loads = sum(event.duration for event in profile.events if event.kind == "load")
    inside = f", {groups / whole:.0%} of it in kernels" if whole else ""
    loading = f", {loads / whole:.0%} to make code for views" if loads else ""
    return f"{len(calls)} calls took {shown_time(whole)}{inside}{loading}"


def profile_page(profile: Profile, title: str = "Profile") -> str:
    """One page of HTML: bars of groups, and what each thread did when."""
    parts = [
        f'<p class="faint">{html.escape(_summary(profile))}. Recording each event costs about 1 us.</p>',
        "<h2>Groups</h2>",
        _bars(profile.rows()),
        *_span_table(profile),
        "<h2>Timeline</h2>",
        _timeline(profile),
    ]
    if profile.counted:
        memory = added(profile.counted)
        parts += ["<h2>Memory of simulated kernels</h2>", memory_section(memory.lines, whole=memory.whole)]
    return whole_page(title, _STYLE + STYLE, parts)


def _bars(rows: Sequence[ProfileRow]) -> str:
    if not rows:
        return '<p class="faint">No group was measured.</p>'
    most = rows[0].total or 1
    lines = [
        "<table><tr><th>group</th><th>model</th><th>runs</th><th>median</th><th>total</th><th>share</th><th></th></tr>"
    ]
    for row in rows[:MOST_BARS]:
        staged = html.escape("\n".join(str(place) for place in row.details.get("places", ())))
        lines.append(
            f'<tr title="{staged}"><td>{html.escape(row.name)}</td><td>{html.escape(row.model)}</td><td>{row.runs}</td>'
            f"<td>{shown_time(row.median)}</td><td>{shown_time(row.total)}</td><td>{row.share:.1%}</td>"
            f'<td class="bar"><div style="width:{100 * row.total / most:.1f}%"></div></td></tr>'
        )
    more = len(rows) - MOST_BARS
    note = f'<p class="faint">and {more} groups more, which take less</p>' if more > 0 else ""
    return "\n".join([*lines, "</table>", note])


def _span_table(profile: Profile) -> list[str]:
    """The spans of the program, where it has some."""
    lines = [
        f"<tr><td>{html.escape(name)}</td><td></td><td>{len(times)}</td><td>{shown_time(median(times))}</td>"
        f"<td>{shown_time(sum(times))}</td></tr>"
        for name, times in profile.spans().items()
    ]
    head = "<table><tr><th>span</th><th></th><th>runs</th><th>median</th><th>total</th></tr>"
    return ["<h2>Spans of the program</h2>", "\n".join([head, *lines, "</table>"])] if lines else []


def _timeline(profile: Profile) -> str:
    events = sorted(profile.events, key=lambda event: event.start)[:MOST_EVENTS]
    if not events:
        return '<p class="faint">No call was measured.</p>'
    zero = events[0].start
    length = max(event.start + event.duration for event in events) - zero or 1
    lanes = list(dict.fromkeys((event.thread, event.kind) for event in sorted(events, key=_lane)))
    height = ROW * len(lanes) + 30
    scale = (WIDTH - LABEL) / length
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="what each thread did when">']
    for number, (thread, kind) in enumerate(lanes):
        name = profile.threads.get(thread, str(thread))
        parts.append(f'<text x="0" y="{number * ROW + 15}">{html.escape(f"{name}: {LANES[kind]}")}</text>')
    for event in events:
        lane = lanes.index((event.thread, event.kind))
        at, width = LABEL + (event.start - zero) * scale, max(event.duration * scale, 0.5)
        shown = html.escape(f"{event.name}: {shown_time(event.duration)}")
        parts.append(
            f'<rect class="{event.kind}" x="{at:.2f}" y="{lane * ROW + 3}" width="{width:.2f}" height="{ROW - 6}">'
            f"<title>{shown}</title></rect>"
        )
    for k in range(5):
        at = LABEL + (WIDTH - LABEL) * k / 4
        anchor = "end" if k == 4 else "start" if k == 0 else "middle"
        parts.append(f'<line class="axis" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{height - 20}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - 5}" text-anchor="{anchor}">{shown_time(length * k / 4)}</text>')
    left = len(profile.events) - len(events)
    note = f'<p class="faint">the first {len(events)} of {len(profile.events)} events</p>' if left else ""
    return "\n".join([*parts, "</svg>", note])


def _lane(event: Event) -> tuple[int, int]:
    return event.thread, list(LANES).index(event.kind)
