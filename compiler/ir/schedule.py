"""Describes how loops and parallel regions shall run: what passes decide, and emission spells.

Passes leave these as attributes of operations. They change nothing of what a program means: the interpreter does not
read them, and the printer shows them on demand only.

    for       cut: Cut, or hints: LoopHints     hints for LLVM; see `passes.vectorize_loops`
              strip: int                        how far the index goes between two polls; see `passes.place_polls`
              burn: int                         operations for each step of the index, taken from the fuel afterwards
    for, while
              fuel: int                         operations of a round, taken from the fuel at its end
    parallel  vector_bits: int                  the vectors that LLVM makes; see `passes.stream_loops`
              split_vectors: bool               whether the author's own vectors become as short
              spread_here: bool                 whether its work is spread right here; see `passes.merge_small_entry`
    store     lone: bool                        whether no other thread touches the byte; see `passes.mark_lone_stores`
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from ...dsl.diagnostics.dataclass import dataclass

BUDGET: Final = 1 << 22  # operations between two polls: about a millisecond, a hundred where every access waits

EXIT: Final = "ek.exit"  # a call of it at the end of a block leaves the function; see `codegen.mlir`
HINT: Final = "ek.hint."  # how the names of the functions begin that are called in loops with hints


@dataclass(frozen=True)
class LoopHints:
    """What LLVM is notified of a loop; 0 and False leave it to choose.

    Attributes:
        masked: it is vectorised, and each lane checks whether its iteration is within the bounds of the loop.
        rolled: it is not written out round by round.
        unrolled: it is, however long that becomes; the number of its rounds is known.
        apart: its rounds are not taken together as vectors.
        lanes: how long its vectors are.
        vectors: how many of them are taken at a time.
    """

    masked: bool = False
    rolled: bool = False
    unrolled: bool = False
    apart: bool = False
    lanes: int = 0
    vectors: int = 0

    def __str__(self) -> str:
        settings = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return " ".join(name if value is True else f"{name} {value}" for name, value in settings if value)

    @property
    def symbol(self) -> str:
        """The function that is called at the end of a round to say so; empty where there is nothing to say."""
        parts = [f"{f.name}_{int(getattr(self, f.name))}" for f in fields(self) if getattr(self, f.name)]
        return HINT + "_".join(parts) if parts else ""

    @classmethod
    def of_symbol(cls, symbol: str) -> LoopHints:
        """The hints that such a function stands for."""
        words = symbol.removeprefix(HINT).split("_")
        return cls(**dict(zip(words[::2], map(int, words[1::2]), strict=True)))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Cut:
    """A loop over elements as two: the first takes a multiple of `elements`, the second what is left over."""

    elements: int
    whole: LoopHints
    rest: LoopHints

    def __str__(self) -> str:
        return f"{self.elements} ({self.whole}; {self.rest})"
