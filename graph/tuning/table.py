"""Shows what tuning tried: a table, the same as a page with bars, the same as CSV.

Input: candidates with their times. Output: `TuningTable`. Non-goals: nothing is measured here.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Candidate:
    """One choice of parameters.

    Attributes:
        parameters: what was chosen.
        seconds: the median of a call; None where it did not run, or gave other results.
        compiled: seconds that compilation and the first call took.
        ratio: the time of the default by its own, timed in turn; None for those that were not among the best.
        why: why it was not timed.
    """

    parameters: dict[str, Any]
    seconds: float | None
    compiled: float = 0.0
    ratio: float | None = None
    why: str = ""


@dataclass(frozen=True)
class TuningTable:
    """What was tried for one call: the default first. `best` is the number of the chosen candidate."""

    op: str
    shapes: Sequence[tuple[int, ...]]
    candidates: Sequence[Candidate]
    best: int

    @property
    def parameters(self) -> dict[str, Any]:
        """The chosen parameters."""
        return self.candidates[self.best].parameters

    @property
    def ratio(self) -> float:
        """How many times faster the choice is than the default; 1 where that was chosen."""
        return (self.candidates[self.best].ratio or 1.0) if self.best else 1.0

    def _order(self) -> list[int]:
        """The numbers of the candidates: the fastest first, then those that were not timed."""
        worst = float("inf")
        seconds = [candidate.seconds for candidate in self.candidates]
        return sorted(range(len(seconds)), key=lambda n: (worst if (s := seconds[n]) is None else s, n))

    @property
    def _title(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) or "a number" for shape in self.shapes)
        return f"{self.op} ({shapes})"

    def _rows(self) -> list[tuple[int, list[str]]]:
        found = []
        for number in self._order():
            candidate = self.candidates[number]
            time = candidate.why if candidate.seconds is None else _shown(candidate.seconds)
            ratio = "" if candidate.ratio is None else f"{candidate.ratio:.2f}"
            marks = [word for word, is_so in (("best", number == self.best), ("default", number == 0)) if is_so]
            values = [str(getattr(value, "name", value)) for value in candidate.parameters.values()]
            found.append((number, [*values, time, ratio, ", ".join(marks)]))
        return found

    @property
    def _head(self) -> list[str]:
        return [*self.candidates[0].parameters, "a call", "times as fast", ""]

    def __str__(self) -> str:
        lines = [self._head, *(row for _, row in self._rows())]
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([self._title, *text])

    def _repr_html_(self) -> str:
        longest = max(candidate.seconds or 0.0 for candidate in self.candidates)
        rows = []
        for number, cells in self._rows():
            seconds = self.candidates[number].seconds
            share = 0.0 if seconds is None else 100 * seconds / longest
            colour = "#2e7d32" if number == self.best else "#78909c"
            bar = f'<svg width="120" height="10"><rect width="{1.2 * share:.1f}" height="10" fill="{colour}"/></svg>'
            shown = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            rows.append(f"<tr>{shown}<td>{bar if seconds is not None else ''}</td></tr>")
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in [*self._head, ""])
        caption = f"<caption>{html.escape(self._title)}</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def csv(self) -> str:
        """A line a candidate, in the order of trying: parameters, seconds, ratio, seconds of compilation, why not."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*self.candidates[0].parameters, "seconds", "ratio", "compile_seconds", "why_not"])
        for candidate in self.candidates:
            values = [getattr(value, "name", value) for value in candidate.parameters.values()]
            writer.writerow([*values, candidate.seconds, candidate.ratio, candidate.compiled, candidate.why])
        return text.getvalue()


def _shown(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"
