"""What stands in for a value that a mistake has left unknown.

An expression with a mistake in it is poisoned, and so is what is computed from it: no further message comes of that.

Input: nothing. Output: these classes. Non-goals: how the evaluation goes on beside it (see `mistaken`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Poisoned:
    """A value that a mistake has left unknown; `runtime` when it would surely be one of the running program."""

    runtime: bool = False


class Cascade(Exception):
    """Raised on the use of a poisoned value where nothing more can be found; nothing is said."""


class Undecided(Exception):
    """Raised by an `if` whose poisoned condition may be known at compile time: which arm was meant, nobody knows."""


def is_poisoned(values: Any) -> bool:
    """Whether one of these values is poisoned."""
    return any(isinstance(value, Poisoned) for value in values)
