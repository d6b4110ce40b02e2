"""What a pass over a graph did, as `model.passes` shows it."""

from __future__ import annotations

from typing import Final

from ...dsl.diagnostics.dataclass import dataclass

PREFIX: Final = "graph."  # of the names of passes


@dataclass(frozen=True)
class PassSummary:
    """What a pass did.

    Attributes:
        name: of the pass.
        before, after: how many nodes the graph had before it, and has after it.
        changed: whether it is another graph.
        seconds: that it took.
        prepared: how many values are computed when the model is loaded because of it.
        bytes: of memory that these take.
        planned: of a planning pass, what it decided.
    """

    name: str
    before: int
    after: int
    changed: bool
    seconds: float
    prepared: int = 0
    bytes: int = 0
    planned: str = ""

    def __str__(self) -> str:
        did = self.planned or (f"{self.before} -> {self.after} nodes" if self.changed else "nothing to do")
        did += f", {self.prepared} prepared ({self.bytes:,} bytes)" if self.prepared else ""
        return f"{PREFIX}{self.name}: {did}, {self.seconds * 1e3:.2f} ms"
