"""Draws one page that shows what a kernel becomes: its text and every stage side by side, with the lines linked.

The page is one file without references to others. Its links are made of the places that every stage carries; without
JavaScript it still shows the text.

See also `explorer.stage` (stages for programs and pipes).
"""

from __future__ import annotations

import html
import linecache
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import inherit
from pygments.lexers import LlvmLexer, get_lexer_by_name
from pygments.token import Name

from ...dsl.contract.launches import LaunchCounters
from ...dsl.diagnostics.errors import plural
from ...dsl.diagnostics.places import is_shipped, shown_path
from ...dsl.frontend import syntax
from ...dsl.frontend.program import PortableKernel
from ...dsl.package.container import Instance
from ...dsl.package.finding_tables import finding_tables
from ...dsl.package.library import LoadedKernel
from ..instances import instance_entries
from ..pipeline import Artifact, compile_entry
from ..targets import Target, lookup
from .listing import LISTINGS, ListingLine, Spot
from .loop_reports import loop_reports
from .machine_reports import machine_reports
from .reasons import Reason, checked_sizes, is_estimated, slot_sizes, tile_choices
from .stage import choose_instance
from .static_counts import static_counts
from .steady_loops import limits_html, steady_loops

TITLES = {
    "source": ("source", "what the author wrote, and what it calls"),
    "typed": ("typed program", "calls inlined, types and parameters known"),
    "mlir": ("MLIR", "as it is emitted"),
    "llvm": ("LLVM IR", "after optimisation"),
    "asm": ("assembly", ""),
}
LEXERS = {"source": "python", "mlir": "llvm", "llvm": "llvm", "asm": "gas"}
GOLDEN_ANGLE = 137.508  # degrees of hue between neighbours: no two lines close to each other look alike


# The roofline of launches on the GPU of a target: a line that sums it up, and the picture as HTML.
Drawing = Callable[[Sequence[LaunchCounters], str], tuple[str, str]]


def explore(
    source: str,
    targets: Sequence[str],
    sizes: Mapping[str, int] | None = None,
    draw: Drawing | None = None,
    **wanted: Any,
) -> str:
    """The page of an op of `source` for one or more targets; `wanted` (op, dtypes, ...) goes to `choose_instance`.

    Args:
        sizes: of axes, for which the roofline is estimated: see `reasons.slot_sizes`; others are 1024.
        draw: draws the roofline, which no page has otherwise.

    Raises:
        PackageError: no kernels there, or no op of that name.
        TargetError: an unknown target.
        CompileError: a mistake in the kernel, or an instance or a size that the op does not have.
    """
    kernel, instance = choose_instance(source, **wanted)
    return page_of(kernel, instance, targets, checked_sizes(kernel, instance, sizes or {}), draw)


def page_of(
    kernel: LoadedKernel, instance: Instance, targets: Sequence[str], sizes: Mapping[str, int], draw: Drawing | None
) -> str:
    """The page of an instance of a kernel for one or more targets. Arguments as of `explore`.

    Raises:
        TargetError: an unknown target.
        CompileError: a mistake in the kernel.
    """
    machines = [lookup(name) for name in dict.fromkeys(targets)]
    known = slot_sizes(kernel, instance, sizes)
    page = _Page(kernel.portable)
    specs = [instance_entries(kernel.portable, instance, machine)[0] for machine in machines]
    compiled = [(machine, compile_entry(*spec)) for machine, spec in zip(machines, specs, strict=True)]
    listings = [(machine, stage, make(artifact)) for machine, artifact in compiled for stage, make in LISTINGS.items()]
    for _, _, lines in listings:
        page.number_lines(lines)
    for machine, artifact in compiled:
        page.add_choices(machine, tile_choices(artifact.program))
        page.add_reports(machine, loop_reports(artifact))
        page.add_reports(machine, machine_reports(artifact))
    limits: list[str] = []
    for (machine, artifact), (spec, _) in zip(compiled, specs, strict=True):
        if draw is not None and is_estimated(machine):
            launches = static_counts(artifact.program, spec, list(known.values()), machine)
            limits.append(_roofline(machine, known, *draw(launches, machine.name)))
        limits.append(limits_html(machine.name, steady_loops(artifact)))
    panes = [page.source(), *(page.stage(machine, stage, lines) for machine, stage, lines in listings)]
    about = [kernel.schema.doc.split("\n")[0], str(instance), _needs(compiled)]
    return Template(files(__package__).joinpath("page.html").read_text("utf-8")).substitute(
        title=html.escape(f"{kernel.schema.name} · einkorn explore"),
        op=html.escape(kernel.schema.name),
        about=html.escape(" · ".join(filter(None, about))),
        chooser=_chooser(machines),
        panes="\n".join(panes),
        tuning=_tuning(kernel),
        limits="\n".join(limits),
        footer=html.escape(shown_path(kernel.origin)),
    )


def _roofline(machine: Target, sizes: Mapping[str, int], summary: str, drawn: str) -> str:
    """The part of the page with the roofline for some sizes."""
    known = ", ".join(f"{name} = {size}" for name, size in sizes.items())
    title = f"roofline on {machine.name}{' for ' if known else ''}{known}: {summary}"
    return (
        f'<details open data-target="{html.escape(machine.name)}"><summary>{html.escape(title)}</summary>\n'
        f'<div class="drawn">{drawn}</div>\n</details>'
    )


def _needs(compiled: Sequence[tuple[Target, Artifact]]) -> str:
    return ", ".join(f"{machine.name}: {len(artifact.code):,} bytes" for machine, artifact in compiled)


def _tuning(kernel: LoadedKernel) -> str:
    """What tuning chose for the kernel, and what it rejected; empty where it was not tuned."""
    findings = kernel.findings
    if not findings:
        return ""
    count = sum(len(finding.rejected) for finding in findings)
    title = f"tuning: {plural(len(findings), 'finding')}, {plural(count, 'rejected candidate')}"
    tables = "\n".join(table.html() for table in finding_tables(findings))
    return f"<details><summary>{title}</summary>\n{tables}\n</details>"


def _chooser(machines: Sequence[Target]) -> str:
    if len(machines) == 1:
        return f"<span>{html.escape(machines[0].name)}</span> "
    options = "".join(f"<option>{html.escape(machine.name)}</option>" for machine in machines)
    return f'<select id="target" aria-label="target">{options}</select> '


class _Page:
    """Numbers the lines of the sources that stages name, and draws panes."""

    def __init__(self, program: PortableKernel) -> None:
        self.program = program
        self.own = program.functions[0].file
        self.head = _lines_of(program.functions[0].syntax)[0]  # the line of the op that the page opens at
        self.keys: dict[Spot, int] = {}
        self.reports: dict[Spot, list[tuple[str, str]]] = {}  # what became of the loops of a line, for each target

    def add_reports(self, machine: Target, reports: Mapping[Spot, str]) -> None:
        """Takes what became of the loops for a target; it is shown next to their lines."""
        for (file, number), text in reports.items():
            self.reports.setdefault((os.path.realpath(file), number), []).append((machine.name, text))

    def add_choices(self, machine: Target, choices: Iterable[Reason]) -> None:
        """Takes what was chosen for lines, and why."""
        for choice in choices:
            self.add_reports(machine, {choice.spot: f"{choice.kind}: {choice.text}"})

    def number_lines(self, lines: Sequence[ListingLine]) -> None:
        """Gives every place that a stage names its number."""
        for line in lines:
            for file, number in line.spots:
                self.keys.setdefault((os.path.realpath(file), number), len(self.keys))

    def marks(self, spots: Sequence[Spot]) -> str:
        """The attributes that link a line, and its colour: that of the innermost line that is the author's."""
        real = [(os.path.realpath(file), number) for file, number in spots]
        known = [self.keys[spot] for spot in real if spot in self.keys]
        if not known:
            return ""
        authors = [spot for spot in real if not is_shipped(spot[0])] or real
        hue = round(authors[0][1] * GOLDEN_ANGLE) % 360
        return f' data-k="{" ".join(map(str, known))}" style="--h:{hue}"'

    def source(self) -> str:
        """The kernel's file, and of other files the functions that it calls."""
        parts: list[str] = []
        for file, ranges in self.ranges().items():
            text = linecache.getlines(file)
            parts.append(f'<div class="file">{html.escape(shown_path(file))}</div>')
            if not text:
                parts.append('<div class="file">its text is not at hand</div>')
                continue
            drawn = _highlighted("".join(text), "source")
            for first, last in ranges or [(1, len(text))]:
                for number in range(first, min(last, len(drawn)) + 1):
                    anchor = ' id="op"' if (file, number) == (self.own, self.head) else ""
                    parts.append(
                        self.line(number, drawn[number - 1], [(file, number)], anchor) + self.notes(file, number)
                    )
        return _section("source", "", parts)

    def notes(self, file: str, number: int) -> str:
        """What stands under a line of the source: what became of its loop."""
        result = self.reports.get((os.path.realpath(file), number), ())
        mark = '\n<div class="loop" data-target="{}">{}</div>'
        return "".join(mark.format(html.escape(target), html.escape(text)) for target, text in result)

    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        """Which lines of which files are shown; none stands for all of the kernel's own file."""
        results: dict[str, list[tuple[int, int]]] = {self.own: []}
        for function in self.program.functions:
            if function.file != self.own:
                results.setdefault(function.file, []).append(_lines_of(function.syntax))
        return {file: sorted(set(ranges)) for file, ranges in results.items()}

    def stage(self, machine: Target, stage: str, lines: Sequence[ListingLine]) -> str:
        """A pane of one stage for one target."""
        drawn = _highlighted("\n".join(line.text for line in lines), stage)
        parts = [
            self.line(number, text, line.spots)
            for number, (text, line) in enumerate(zip(drawn, lines, strict=True), start=1)
        ]
        return _section(stage, machine.name, parts)

    def line(self, number: int, drawn: str, spots: Sequence[Spot], anchor: str = "") -> str:
        return f'<div class="l"{anchor} data-n="{number}"{self.marks(spots)}>{drawn}</div>'


def _lines_of(function: syntax.Function) -> tuple[int, int]:
    spans = [node.span for node in syntax.walk(function) if node.span[0] > 0]
    return min(span[0] for span in spans), max(max(span[0], span[2]) for span in spans)


def _section(stage: str, target: str, parts: Sequence[str]) -> str:
    title, remark = TITLES[stage]
    head = f"<h2>{title}<small>{html.escape(target if stage == 'asm' else remark)}</small></h2>"
    body = "\n".join(parts)
    attributes = f'data-stage="{html.escape(title)}" data-target="{html.escape(target)}"'
    return f'<section {attributes}>{head}<div class="code"><div class="lines">\n{body}\n</div></div></section>'


class _Formatter(HtmlFormatter[str]):
    """Five classes of tokens are enough: words, numbers, texts, remarks, names that are made."""

    def _get_css_class(self, ttype: object) -> str:
        kind = str(ttype).removeprefix("Token.")
        for start, name in _CLASSES.items():
            if kind.startswith(start):
                return name
        return ""


_CLASSES = {
    "Keyword": "k",
    "Operator.Word": "k",
    "Literal.Number": "m",
    "Literal.String": "s",
    "Comment": "c",
    "Name.Function": "n",
    "Name.Label": "n",
    "Name.Decorator": "n",
}


class _TypedLexer(LlvmLexer):  # type: ignore[misc]  # its stubs say Any
    """LLVM's words are most of those of typed programs; names of dtypes, such as Float32, are whole."""

    tokens = {"root": [(r"[A-Za-z]+\d+\b", Name), inherit]}  # noqa: RUF012  so pygments wants it


def _highlighted(text: str, stage: str) -> list[str]:
    """The text as HTML, line by line."""
    kept = {"stripnl": False, "ensurenl": False}
    lexer = _TypedLexer(**kept) if stage == "typed" else get_lexer_by_name(LEXERS[stage], **kept)
    return str(highlight(text, lexer, _Formatter(nowrap=True))).split("\n")[: text.count("\n") + 1]
