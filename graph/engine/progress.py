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

Tell = Callable[[int, int], None]  # how much of how much is done


@contextmanager
def shown_progress(name: str, verb: str = "compiling graph", unit: str = "kernels") -> Iterator[Tell]:
    """While it lasts, the progress of a compilation, or of other work, is shown; what it gives is told of it."""
    if not knobs.progress or not _watched():
        yield lambda done, count: None
        return
    bar = _Bar(f"{verb} '{name}'", unit)
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

    def __init__(self, text: str, unit: str) -> None:
        self.text = text
        self.unit = unit
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

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
        with self.lock:
            if not self.ended:
                self.bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
                self.bar.add_task(self.text.replace("[", r"\["), total=None, count="")
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
            self.bar.update(self.bar.task_ids[0], total=count, completed=done, count=f"{done} of {count} {self.unit}")

    def end(self) -> None:
        """Takes the bar away."""
        self.timer.cancel()
        with self.lock:
            self.ended = True
            if self.bar is not None:
                self.bar.stop()
