"""Defines what a tuning search and its child process say to each other, as pickled values over pipes."""

from __future__ import annotations

from typing import Any

from ...dsl.diagnostics.dataclass import dataclass


@dataclass(frozen=True)
class Subject:
    """What is tuned, for one call: said once, when the child begins.

    Attributes:
        package: a package with the portable program of the op.
        op: its name.
        kinds: dtype and rank of each input; a list of them for a variadic argument.
        values: an array or a number for each input; a list of them for a variadic argument.
        device: where it runs.
        parameters: those of the default.
        exact: whether results have to be those of the default bit for bit.
        rounds: how many times each candidate is timed.
        tolerance: how far results may be from exact ones, as a share of them.
    """

    package: str
    op: str
    kinds: list[Any]
    values: list[Any]
    device: Any
    parameters: dict[str, Any]
    exact: bool
    rounds: int
    tolerance: float | None = None


@dataclass(frozen=True)
class Try:
    """Requests a candidate to be compiled, compared and timed; the default has the number 0 and comes first."""

    number: int
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Tried:
    """What became of it: `seconds` a call, or why there are none, in short and as the error has it.

    `error` is how far its results are from those in float64, in units in the last place, where it is known.
    """

    seconds: float | None
    compiled: float = 0.0
    why: str = ""
    reported: str = ""
    error: float | None = None


@dataclass(frozen=True)
class Race:
    """Requests candidates to be timed side by side, so many rounds."""

    numbers: list[int]
    rounds: int


@dataclass(frozen=True)
class Raced:
    """Seconds a call: a row a round, a column a candidate."""

    seconds: list[list[float]]
