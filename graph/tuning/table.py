"""Keeps what tuning tried, as a table for people and as CSV for programs.

See also `interop.notebook`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.rich import Rich


@dataclass(frozen=True)
class Candidate:
    """One choice of parameters.

    Attributes:
        parameters: what was chosen.
        seconds: the median of a call; None where it did not run, or gave other results.
        compiled: seconds that compilation and the first call took.
        ratio: the time of the default by its own, timed in turn; None for those that were not among the best.
        why: why it was not timed.
        error: how far its results are from those in float64, in units in the last place; None where that is not known.
        estimate: seconds by the static model of a GPU; None where there is none.
        wall: what the estimate says holds it back.
    """

    parameters: dict[str, Any]
    seconds: float | None
    compiled: float = 0.0
    ratio: float | None = None
    why: str = ""
    error: float | None = None
    estimate: float | None = None
    wall: str = ""


@dataclass(frozen=True)
class TuningTable(Rich):
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
        """How many times faster the choice is than the default, by the estimate where nothing was measured; 1 where
        that was chosen."""
        own, default = self.candidates[self.best].estimate, self.candidates[0].estimate
        if not self.is_measured and own is not None and default is not None:
            return default / own
        return (self.candidates[self.best].ratio or 1.0) if self.best else 1.0

    @property
    def is_measured(self) -> bool:
        """Whether candidates were run; else they were estimated only."""
        return any(each.seconds is not None for each in self.candidates)

    @property
    def rejected(self) -> list[tuple[str, str]]:
        """The candidates that were not timed, and why."""
        return [(_said(each.parameters), each.why) for each in self.candidates if each.why]

    @property
    def order(self) -> list[int]:
        """The numbers of the candidates: the fastest first, then those that were not timed."""
        worst = float("inf")
        times = [(each.seconds, each.estimate) for each in self.candidates]
        known = [tuple(worst if time is None else time for time in each) for each in times]
        return sorted(range(len(known)), key=lambda n: (known[n], n))

    @property
    def _model_heads(self) -> list[str]:
        return ["estimated_seconds", "wall"] if self.is_estimated else []

    @property
    def is_estimated(self) -> bool:
        """Whether there are estimates."""
        return any(each.estimate is not None for each in self.candidates)

    def csv(self) -> str:
        """A line a candidate, in the order of trying: parameters, times, its distance from float64, why not."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            [
                *self.candidates[0].parameters,
                "seconds",
                "ratio",
                "compile_seconds",
                "ulp",
                "why_not",
                *self._model_heads,
            ]
        )
        for candidate in self.candidates:
            values = [getattr(value, "name", value) for value in candidate.parameters.values()]
            writer.writerow(
                [*values, candidate.seconds, candidate.ratio, candidate.compiled, candidate.error, candidate.why]
                + ([candidate.estimate, candidate.wall] if self._model_heads else [])
            )
        return text.getvalue()

    def __str__(self) -> str:
        return self.as_text()


def _said(parameters: dict[str, object]) -> str:
    return ", ".join(f"{name}={getattr(value, 'name', value)}" for name, value in parameters.items())
