"""Shows findings of tuning as tables: the parameters that were chosen, and the candidates that were rejected.

See also `graph.tuning.table` (all candidates with their times).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..diagnostics.cards import CardTable
from .findings import TunedCalls


def finding_tables(findings: Sequence[TunedCalls]) -> list[CardTable]:
    """A table of what tuning chose, and one of the candidates that it rejected, with the reasons."""
    rows, rejected = [], []
    for each in findings:
        sizes = ", ".join(f"{name} {low} to {high}" for name, low, high in each.ranges) or "all"
        chosen = ", ".join(f"{name}={value}" for name, value in each.parameters)
        rows.append((", ".join(each.dtypes), sizes, chosen, f"{each.ratio:.2f}", each.target, _how(each)))
        rejected += [(sizes, candidate, why) for candidate, why in each.rejected]
    heads = ("dtypes", "sizes", "parameters", "times as fast", "target", "")
    tables: list[CardTable] = [CardTable(heads, rows, numbers=(3,), title="tuned")]
    return tables + ([CardTable(("sizes", "rejected", "why"), rejected, title="not chosen")] if rejected else [])


def _how(finding: TunedCalls) -> str:
    return "estimated" if finding.estimated else "measured"
