"""Measures how fast a generator gives tokens."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import field, replace

import numpy as np

from ...dsl.diagnostics.dataclass import dataclass
from .cache import PagedKVCacheManager

MOST_TIMES = 10_000  # that are kept


@dataclass
class Clock:
    """When a request came, and when its last token did."""

    begun: float = field(default_factory=time.perf_counter)
    last: float | None = None


@dataclass
class ServingFigures:
    """How fast tokens came, in seconds, over the last 10 000 of them.

    Attributes:
        tokens: how many tokens there were.
        steps: how many steps.
        seconds: how long these took.
        preemptions: how many times a request gave up its pages.
        running, waiting: how many requests are there now.
        pages_in_use, pages: how many pages sequences have, and how many there are.
    """

    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    preemptions: int = 0
    running: int = 0
    waiting: int = 0
    pages_in_use: int = 0
    pages: int = 0
    _first: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES), repr=False)
    _between: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES), repr=False)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all requests, by the time of the steps."""
        return self.tokens / self.seconds if self.seconds else 0.0

    @property
    def time_to_first_token(self) -> tuple[float, float]:
        """From the request to its first token: what half, and what 99 of 100 do not exceed; NaN without any."""
        return _shares(self._first)

    @property
    def time_between_tokens(self) -> tuple[float, float]:
        """From a token of a request to the next one, the same."""
        return _shares(self._between)

    def add_step(self, seconds: float, tokens: int) -> None:
        """Counts a step."""
        self.steps += 1
        self.seconds += seconds
        self.tokens += tokens

    def add_token(self, clock: Clock) -> None:
        """Counts the time of a token."""
        now = time.perf_counter()
        if clock.last is None:
            self._first.append(now - clock.begun)
        else:
            self._between.append(now - clock.last)
        clock.last = now

    def now(self, cache: PagedKVCacheManager, running: int, waiting: int) -> ServingFigures:
        """A copy that stays as it is."""
        return replace(
            self,
            running=running,
            waiting=waiting,
            pages_in_use=cache.pages_in_use,
            pages=cache.num_pages,
            _first=deque(self._first),
            _between=deque(self._between),
        )


def _shares(times: Iterable[float]) -> tuple[float, float]:
    seconds = list(times)
    if not seconds:
        return float("nan"), float("nan")
    return float(np.quantile(seconds, 0.5)), float(np.quantile(seconds, 0.99))
