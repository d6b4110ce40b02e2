"""Describes barriers in shared memory (see `language.mbarriers`)."""

from __future__ import annotations

from ....dsl.diagnostics.dataclass import dataclass
from ...ir.program import Value


@dataclass(frozen=True, eq=False)
class MBarriers:
    """`gpu.mbarrier(...)`, or one of several.

    Attributes:
        pointer: to their words.
        arrivals: how many end a phase.
        stages: how many there are; None where the author made one.
        offset: which one it is; None for all of them.
    """

    pointer: Value
    arrivals: int
    stages: int | None
    offset: Value | None

    @property
    def words(self) -> str:
        """What it is, for messages."""
        return "a barrier" if self.offset is not None else f"{self.stages} barriers"
