"""`Card`: the description of an object: a title, facts, texts and tables; drawn as HTML and as text by one renderer.

The HTML is for notebooks: one element without references to others, with its style on it, readable on light and on
dark pages, since it takes their colours.

See also `graph.interop.notebook` (what is shown).
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import field

from .dataclass import dataclass

_LINE = "1px solid rgba(128,128,128,.35)"
_MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em"
_CARD = (
    f"border:{_LINE};border-radius:6px;padding:.6em .9em;margin:.3em 0;max-width:60em;overflow-x:auto;"
    "line-height:1.45;text-align:left"
)
_CELL = f"padding:.15em .9em .15em 0;border-bottom:{_LINE};vertical-align:top;"


@dataclass(frozen=True)
class CardTable:
    """Rows under heads. Columns of numbers stand to the right; `bars` is a column of shares, drawn as bars.

    Attributes:
        most: how many rows are shown; the number of the others is shown.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()
    bars: int | None = None
    title: str = ""
    most: int = 30

    def html(self) -> str:
        head = "".join(f"<th style='{self._style(k)}font-weight:600'>{_text(h)}</th>" for k, h in enumerate(self.heads))
        rows = [
            "<tr style='background:none'>" + "".join(self._cell(k, value) for k, value in enumerate(row)) + "</tr>"
            for row in self.rows[: self.most]
        ]
        title = f"<div style='margin-top:.5em;opacity:.75'>{_text(self.title)}</div>" if self.title else ""
        table = f"<table style='border-collapse:collapse;margin:.2em 0;border:0'><tr>{head}</tr>{''.join(rows)}</table>"
        return title + table + (f"<div style='opacity:.75'>{_text(self._rest())}</div>" if self._rest() else "")

    def _style(self, column: int) -> str:
        return f"{_CELL}text-align:{'right' if column in self.numbers else 'left'};{_MONO};"

    def _cell(self, column: int, value: str) -> str:
        if column != self.bars:
            return f"<td style='{self._style(column)}white-space:pre-wrap'>{_text(value)}</td>"
        width = max(0.0, min(100.0, float(value.rstrip("%"))))
        bar = f"<div style='width:{width:.1f}%;height:.7em;background:#4f86c6;border-radius:2px'></div>"
        return f"<td style='{self._style(column)}min-width:9em' title='{_text(value)}'>{bar}</td>"

    def _rest(self) -> str:
        more = len(self.rows) - self.most
        return f"and {more} more" if more > 0 else ""

    def text(self) -> str:
        columns = [k for k in range(len(self.heads)) if k != self.bars]
        lines = [self.heads, *self.rows[: self.most]]
        widths = {k: max(len(line[k]) for line in lines) for k in columns}
        shown = [
            "  ".join(
                line[k].rjust(widths[k]) if k in self.numbers else line[k].ljust(widths[k]) for k in columns
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*([self.title] if self.title else []), *shown, *([self._rest()] if self._rest() else [])])


@dataclass(frozen=True)
class CodeBlock:
    """A text that is shown as it is, under a title, folded where it is long."""

    content: str
    title: str = ""
    folded: bool = False

    def html(self) -> str:
        shown = f"<pre style='margin:.3em 0;white-space:pre-wrap;background:none;{_MONO}'>{_text(self.content)}</pre>"
        if not self.folded:
            return f"<div style='margin-top:.5em;opacity:.75'>{_text(self.title)}</div>{shown}" if self.title else shown
        return f"<details><summary style='cursor:pointer;opacity:.75'>{_text(self.title)}</summary>{shown}</details>"

    def text(self) -> str:
        return f"{self.title}\n{self.content}" if self.title and not self.folded else self.content


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    content: str

    def html(self) -> str:
        return f"<div style='margin:.4em 0;white-space:pre-wrap'>{_text(self.content)}</div>"

    def text(self) -> str:
        return self.content


Part = CardTable | CodeBlock | Note


@dataclass(frozen=True)
class Card:
    """The description of an object; `facts` are pairs of a name and a value."""

    kind: str
    title: str
    parts: Sequence[Part] = ()
    facts: Sequence[tuple[str, str]] = field(default=())

    def html(self) -> str:
        """One element of HTML."""
        title = f"<div style='{_MONO};font-weight:600'>{_text(self.title)}</div>"
        head = f"<div style='opacity:.75'>{_text(self.kind)}</div>{title}"
        facts = " &nbsp;·&nbsp; ".join(
            f"<span style='opacity:.75'>{_text(name)}</span> {_text(value)}" for name, value in self.facts
        )
        body = [part.html() for part in self.parts] + ([f"<div style='margin-top:.4em'>{facts}</div>"] if facts else [])
        return f"<div style='{_CARD}'>{head}{''.join(body)}</div>"

    def text(self) -> str:
        """The same as text."""
        facts = [f"{name}: {value}" for name, value in self.facts]
        return "\n".join([f"{self.kind} {self.title}", *(part.text() for part in self.parts), *facts])

    def _repr_html_(self) -> str:
        return self.html()

    def __str__(self) -> str:
        return self.text()


def _text(text: str) -> str:
    return html.escape(text, quote=True)
