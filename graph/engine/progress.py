"""Shows how far a compilation is, when it takes longer than a second and somebody watches: a terminal or a notebook.

Input: what is compiled. Output: a bar on standard error, gone when the work is done. `EINKORN_PROGRESS=0` silences it.
Non-goals: nothing is shown in a log, a pipe or a file.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...dsl.environment.knobs import knobs

DELAY = 1.0  # seconds before anything is shown

Tell = Callable[[int, int], None]  # how many of how many kernels are compiled


@contextmanager
def shown_progress(name: str) -> Iterator[Tell]:
    """While it lasts, the progress of a graph's compilation is shown; what it gives is told of it."""
    if not knobs.progress or not _watched():
        yield lambda done, count: None
        return
    bar = _Bar(name)
    try:
        yield bar.tell
    finally:
        bar.end()


def _watched() -> bool:
    """Whether standard error is a terminal, or a notebook's."""
    try:
        return "ipykernel" in sys.modules or sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


class _Bar:
    """A bar that begins by itself after a while."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = (0, 0)
        self.bar: Any = None
        self.ended = False
        self.lock = threading.Lock()
        self.timer = threading.Timer(DELAY, self.begin)
        self.timer.daemon = True
        self.timer.start()

    def begin(self) -> None:
        from rich.console import Console  # most compilations end before there is need of it
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("compiling {task.description}"), BarColumn(), TextColumn("{task.fields[kernels]}"))
        with self.lock:
            if not self.ended:
                self.bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
                self.bar.add_task(f"graph '{self.name}'".replace("[", r"\["), total=None, kernels="")
                self.bar.start()
                self._show()

    def tell(self, done: int, count: int) -> None:
        """So many of so many kernels are compiled."""
        with self.lock:
            self.counts = (done, count)
            self._show()

    def _show(self) -> None:
        done, count = self.counts
        if self.bar is not None and count:
            self.bar.update(self.bar.task_ids[0], total=count, completed=done, kernels=f"{done} of {count} kernels")

    def end(self) -> None:
        """Takes the bar away."""
        self.timer.cancel()
        with self.lock:
            self.ended = True
            if self.bar is not None:
                self.bar.stop()
