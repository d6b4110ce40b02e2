"""Keeps the results of a run, and compares two of them.

A change counts where a rank test (Mann and Whitney's U) says that the samples differ, at `SURE`, and the medians differ
by more than `MAX_NOISE`. Anything else is called the same.
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import GraphError
from ...dsl.environment.files import replace_file
from ..profiling.profile_page import shown_time
from .measure import UNITS, Timing, shown_rate

FORMAT: Final = 1
SURE: Final = 0.01
MAX_NOISE: Final = 0.02
CODE: Final = "EK0910"


@dataclass(frozen=True)
class Change:
    """One benchmark in two runs.

    Attributes:
        ratio: the new median by the old one: below 1 is faster.
        chance: how likely samples so different are where nothing changed.
    """

    name: str
    old: Timing
    new: Timing
    ratio: float
    chance: float

    @property
    def verdict(self) -> str:
        """ "faster", "slower" or "same"."""
        if self.chance >= SURE or abs(self.ratio - 1) <= MAX_NOISE:
            return "same"
        return "faster" if self.ratio < 1 else "slower"


def compare(old: Sequence[Timing], new: Sequence[Timing]) -> list[Change]:
    """The benchmarks that both runs have, in the order of the new one."""
    before = {timing.name: timing for timing in old}
    return [_change(before[timing.name], timing) for timing in new if timing.name in before]


def _change(old: Timing, new: Timing) -> Change:
    ratio = new.median / old.median if old.median else math.inf
    return Change(new.name, old, new, ratio, _chance(old.samples, new.samples))


def _chance(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided probability of the rank test, by its normal approximation with ties."""
    m, n = len(one), len(other)
    order = sorted([(value, 0) for value in one] + [(value, 1) for value in other])
    ranks, ties, at = 0.0, 0.0, 0
    while at < m + n:
        end = at
        while end < m + n and order[end][0] == order[at][0]:
            end += 1
        count = end - at
        ranks += sum(which == 0 for _, which in order[at:end]) * (at + end + 1) / 2
        ties += count**3 - count
        at = end
    u = ranks - m * (m + 1) / 2
    variance = m * n / 12 * (m + n + 1 - ties / ((m + n) * (m + n - 1))) if m + n > 1 else 0.0
    if variance <= 0:
        return 1.0
    distance = max(abs(u - m * n / 2) - 0.5, 0.0) / math.sqrt(variance)
    return math.erfc(distance / math.sqrt(2))


# *** files ***


def save(path: str | Path, timings: Sequence[Timing]) -> None:
    """Writes the results of a run as JSON."""
    machine = {"machine": platform.machine(), "node": platform.node(), "python": platform.python_version()}
    record = {"format": FORMAT, **machine, "benchmarks": [timing.to_dict() for timing in timings]}
    replace_file(Path(path), [json.dumps(record, indent=1).encode()])


def load(path: str | Path) -> list[Timing]:
    """The results that `save` wrote.

    Raises:
        GraphError: EK0910 it is no such file.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, and not {FORMAT}")
        return [_timing(each) for each in record["benchmarks"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        hint = f"einkorn bench FILE.py -o {path} writes such a file"
        text = f"{path} has no results of benchmarks: {reason}"
        raise GraphError(text, code=CODE, got=str(path), hint=hint) from None


def _timing(data: Any) -> Timing:
    samples = tuple(float(each) for each in data["samples"])
    if not samples or not all(math.isfinite(each) and each >= 0 for each in samples):
        raise ValueError("a benchmark has no samples")
    work = {kind: float(amount) for kind, amount in data["work"].items() if kind in UNITS}
    return Timing(str(data["name"]), samples, int(data["calls"]), work)


# *** tables ***


def timing_line(timing: Timing, width: int = 0) -> str:
    """A line about one timing."""
    rates = "  ".join(shown_rate(kind, rate) for kind, rate in timing.throughput.items())
    shown = f"{shown_time(timing.median * 1e9):>9}  ±{timing.spread / 2:>4.0%}  best {shown_time(timing.best * 1e9):>9}"
    return f"{timing.name.ljust(width)}  {shown}  {rates}".rstrip()


def change_lines(changes: Sequence[Change]) -> list[str]:
    """A line about each change, and one about all of them."""
    width = max((len(change.name) for change in changes), default=0)
    lines = [
        f"{change.name.ljust(width)}  {shown_time(change.old.median * 1e9):>9} -> "
        f"{shown_time(change.new.median * 1e9):>9}  x {change.ratio:.3f}  {change.verdict}"
        for change in changes
    ]
    ratios = [change.ratio for change in changes if 0 < change.ratio < math.inf]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        lines.append(f"{'geometric mean'.ljust(width)}  x {mean:.3f}")
    return lines
