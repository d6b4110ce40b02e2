"""Times one function: warm-up, samples, their median and spread.

A function is called until it is warm: at least `WARM_CALLS` times and `WARM_SECONDS` long, so that code is compiled,
doors are open and caches are filled. Then samples are taken, each of as many calls as last `least` seconds. Python's
collector rests meanwhile.

See also `files` (which functions), `compare` (what runs mean to each other).
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from ...dsl.diagnostics.dataclass import dataclass
from ...dsl.diagnostics.errors import shown_value
from ..arguments import int_of, number_of, wrong
from ..profiling.profile_page import shown_time

WARM_CALLS: Final = 8  # opens the doors of kernels and models
WARM_SECONDS: Final = 0.1
ROUNDS: Final = 20
MIN_SECONDS: Final = 2e-3
UNITS: Final = {"bytes": "B/s", "elements": "elements/s", "flops": "flop/s"}


@dataclass(frozen=True)
class Timing:
    """What a function took.

    Attributes:
        name: of the benchmark, with its parameters.
        samples: seconds of one call, a number for each sample.
        calls: how many calls a sample had.
        work: how much a call does, in "bytes", "elements" or "flops".
    """

    name: str
    samples: tuple[float, ...]
    calls: int = 1
    work: Mapping[str, float] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """Seconds of one call."""
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        """The smallest sample, in seconds of one call."""
        return min(self.samples)

    @property
    def spread(self) -> float:
        """The middle half of the samples, as a part of the median."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / self.median if self.median else 0.0

    @property
    def throughput(self) -> dict[str, float]:
        """How much of each kind of work a second does."""
        return {kind: amount / self.median for kind, amount in self.work.items() if self.median}

    def __str__(self) -> str:
        rates = "".join(f", {shown_rate(kind, rate)}" for kind, rate in self.throughput.items())
        return f"{self.name}: {shown_time(self.median * 1e9)} (±{self.spread / 2:.0%}{rates})"

    def to_dict(self) -> dict[str, Any]:
        """The timing as JSON values."""
        return {"name": self.name, "samples": list(self.samples), "calls": self.calls, "work": dict(self.work)}


def shown_rate(kind: str, rate: float) -> str:
    """A throughput with its unit: 12.3 GB/s."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}{UNITS[kind]}"
    return f"{rate:.3g} {UNITS[kind]}"


def measure(
    function: Callable[[], object],
    *,
    name: str = "",
    rounds: int = ROUNDS,
    least: float = MIN_SECONDS,
    warm: float = WARM_SECONDS,
    work: Mapping[str, float] | None = None,
) -> Timing:
    """Times a function.

    Args:
        function: what is called, without arguments.
        name: what the timing is called; the function's own name when left out.
        rounds: how many samples are taken, at least one.
        least: seconds that a sample lasts at least: a short function is called several times for one.
        warm: seconds for which the function is called before, and `WARM_CALLS` times at least.
        work: how much a call does, by "bytes", "elements" or "flops".

    Raises:
        GraphError: EK0478 an argument is wrong.
        Whatever the function raises.
    """
    if not callable(function):
        wrong("function", function, "a function without arguments")
    count = int_of("rounds", rounds)
    if count < 1:
        wrong("rounds", rounds, "a number from 1")
    least, warm = number_of("least", least), number_of("warm", warm)
    known = work_of(work)
    calls = max(1, round(least / max(_warmed(function, warm), 1e-9)))
    samples = []
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(count):
            samples.append(_sample(function, calls) / calls)
            gc.collect(0)
    finally:
        if collects:
            gc.enable()
    return Timing(name or getattr(function, "__name__", "function"), tuple(samples), calls, known)


def work_of(work: Mapping[str, Any] | None) -> dict[str, float]:
    """How much a call does, checked.

    Raises:
        GraphError: EK0478 an unknown kind of work, or no number.
    """
    for kind in work or {}:
        if kind not in UNITS:
            wrong("work", kind, f"one of {', '.join(UNITS)}")
    return {kind: number_of(f"work[{shown_value(kind)}]", amount) for kind, amount in (work or {}).items()}


def _warmed(function: Callable[[], object], warm: float) -> float:
    """Seconds of a call, when the function is warm."""
    begin, calls = time.perf_counter(), 0
    while calls < WARM_CALLS or time.perf_counter() - begin < warm:
        function()
        calls += 1
    return _sample(function, 1)


def _sample(function: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - start
