"""Draws what kernels did with memory: their text, with bars next to each line.

     15 |  out[column, row] = x[row, column]    [least|more      ]  out[column, row] 7,680 sectors, 1,920 at least

The page is one file of HTML without references to others and without JavaScript.

See also `memory_counters` (how they are counted).
"""

from __future__ import annotations

import html
import linecache
from collections.abc import Iterator, Mapping, Sequence

from ...dsl.diagnostics.places import shown_path
from .line_counters import LineCounters
from .page_style import whole_page
from .roofline_picture import STYLE as ROOFLINE_STYLE

AROUND = 2  # lines that are shown before and behind those with counters
LONGEST = 30  # characters of what is accessed
TRACE_CUT = "The trace was too short for all accesses: these are the first."

STYLE = """
.kernel { border-top: 1px solid var(--line); padding: .4rem 0 1rem } .kernel h3 { margin: .4rem 0 }
.code { display: grid; grid-template-columns: 3rem minmax(0, 1fr) 31rem; column-gap: .8rem; padding: 1px 0 }
.code.counted { background: color-mix(in srgb, var(--call) 30%, transparent) }
.code pre { margin: 0; font: 13px/1.5 ui-monospace, monospace; overflow-x: auto }
.code > .faint { text-align: right; font: 13px/1.5 ui-monospace, monospace }
.count code { font: 12px/1.5 ui-monospace, monospace; color: var(--faint); margin-right: .3rem }
.count { display: grid; grid-template-columns: 8rem 1fr; column-gap: .6rem; align-items: center; font-size: 13px;
  font-variant-numeric: tabular-nums }
.meter { display: flex; height: .7rem; border-radius: 2px; overflow: hidden }
.least { background: var(--least) } .more { background: var(--more) } .conflict { background: var(--conflict) }
.key { display: inline-block; width: .8rem; height: .7rem; border-radius: 2px; margin: 0 .3rem 0 .8rem }
@media (max-width: 800px) { .code { grid-template-columns: 2.2rem minmax(0, 1fr) } .count { margin-bottom: .2rem }
  .counts { grid-column: 2 } .count { grid-template-columns: 5rem 1fr } }
"""


def memory_page(lines: Sequence[LineCounters], *, whole: bool, title: str = "Memory", above: str = "") -> str:
    """One page of HTML: the kernels' text, with bars of sectors and of conflicts of banks, below what is `above`."""
    return whole_page(title, STYLE + ROOFLINE_STYLE, [above, memory_section(lines, whole=whole)])


def memory_section(lines: Sequence[LineCounters], *, whole: bool) -> str:
    """The part of a page that shows counted lines."""
    if not lines:
        return '<p class="faint">No kernel used memory.</p>'
    most = max(max(line.sectors, line.conflicts) for line in lines) or 1
    kernels = dict.fromkeys((line.op, line.kernel) for line in lines)
    parts = [
        '<p class="faint">Sectors are the 32 bytes that global memory moves at once:'
        '<span class="key least"></span>the least for these bytes<span class="key more"></span>more than that. '
        '<span class="key conflict"></span>turns of shared memory that banks made too many.</p>'
    ]
    parts += [] if whole else [f"<p>{TRACE_CUT}</p>"]
    for op, kernel in kernels:
        own = [line for line in lines if (line.op, line.kernel) == (op, kernel)]
        parts.append(f'<div class="kernel"><h3>{html.escape(kernel)} <span class="faint">{html.escape(op)}</span></h3>')
        parts += [*_kernel(own, most), "</div>"]
    return "\n".join(parts)


def _kernel(lines: Sequence[LineCounters], most: int) -> Iterator[str]:
    """The text of a kernel by files, and what has no text."""
    for file in dict.fromkeys(line.place.file for line in lines if line.place is not None):
        placed = [(line.place.line, line) for line in lines if line.place is not None and line.place.file == file]
        counted: dict[int, list[LineCounters]] = {}
        for number, line in sorted(placed, key=lambda pair: pair[0]):
            counted.setdefault(number, []).append(line)
        linecache.checkcache(file)
        text = linecache.getlines(file)
        yield f'<div class="faint">{html.escape(shown_path(file))}</div>'
        last = 0
        for number in _shown(counted, text):
            if last and number > last + 1:
                yield '<div class="code"><span class="faint">…</span></div>'
            last = number
            source = text[number - 1].rstrip("\n").expandtabs(4) if number <= len(text) else ""
            yield _row(str(number), source, counted.get(number, ()), most)
    unplaced = [line for line in lines if line.place is None]
    if unplaced:
        yield _row("", "(its text is not known)", unplaced, most)


def _shown(counted: Mapping[int, object], text: Sequence[str]) -> list[int]:
    """The lines with counters, and some around them that are not empty."""
    near = {k for number in counted for k in range(number - AROUND, number + AROUND + 1)}
    return sorted(k for k in near if k in counted or (1 <= k <= len(text) and text[k - 1].strip()))


def _row(number: str, source: str, counted: Sequence[LineCounters], most: int) -> str:
    kind = "code counted" if counted else "code"
    counts = "".join(_count(line, _accessed(line, source), most) for line in counted)
    shown = f'<div class="counts">{counts}</div>' if counts else ""
    return f'<div class="{kind}"><span class="faint">{number}</span><pre>{html.escape(source)}</pre>{shown}</div>'


def _accessed(line: LineCounters, source: str) -> str:
    """What the line accesses, as the source says it; else the space of memory."""
    place = line.place
    if place is None or place.end_line not in (0, place.line):
        return line.space
    return source[place.column - 1 : max(place.end_column, place.column) - 1][:LONGEST] or line.space


def _count(line: LineCounters, accessed: str, most: int) -> str:
    """The bar of a place and its numbers."""
    bars: list[tuple[str, int]] = []
    if line.barriers:
        shown = f"{line.barriers:,} barriers"
    elif line.branches:
        shown = f"{line.divergent:,} of {line.branches:,} branches divergent"
    elif line.space == "shared":
        bars = [("conflict", line.conflicts)]
        shown = f"{line.conflicts:,} conflicts in {line.requests:,} requests"
    else:
        bars = [("least", line.least), ("more", line.sectors - line.least)]
        shown = f"{line.sectors:,} sectors, {line.least:,} at least"
    shown += f", {line.atomics:,} atomics" if line.atomics else ""
    drawn = "".join(f'<div class="{name}" style="width:{100 * size / most:.1f}%"></div>' for name, size in bars if size)
    hint = f"{line.space}: {line.accesses:,} accesses, {line.requests:,} requests, {line.bytes:,} bytes"
    text = f"<code>{html.escape(accessed)}</code> {shown}"
    return f'<div class="count" title="{hint}"><div class="meter">{drawn}</div><span>{text}</span></div>'
