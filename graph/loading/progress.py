"""Shows how far a compilation is, when it takes longer than a second, in a terminal or a notebook.

`EINKORN_PROGRESS=0` silences it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.text import interactive_shell
from ...dsl.environment.knobs import knobs

DELAY = 1.0  # seconds before anything is shown

OnProgress = Callable[[int, int], None]  # how much of how much is done


@contextmanager
def shown_progress(name: str, verb: str = "compiling graph", unit: str = "kernels") -> Iterator[OnProgress]:
    """While it lasts, the progress of a compilation, or of other work, is shown; the yielded function is called with
    it."""
    if not knobs.progress or not _watched():
        yield lambda done, count: None
        return
    text = f"{verb} '{name}'"
    bar = _Bar(text, unit) if sys.stderr.isatty() else _Line(text, unit)
    try:
        yield bar.on_progress
    finally:
        bar.end()


def _watched() -> bool:
    """Whether standard error is a terminal, or a notebook's."""
    try:
        return getattr(interactive_shell(), "kernel", None) is not None or sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


class _Late:
    """Something that is shown after a while."""

    def __init__(self, text: str, unit: str) -> None:
        self.text = text
        self.unit = unit
        self.counts = (0, 0)
        self.ended = False
        self.lock = fork_lock()
        self.timer = threading.Timer(DELAY, self.begin)
        self.timer.daemon = True
        self.timer.start()

    def begin(self) -> None:
        with self.lock:
            if not self.ended:
                self._open()
                self._show()

    def on_progress(self, done: int, count: int) -> None:
        """So much of so much is done."""
        with self.lock:
            self.counts = (done, count)
            self._show()

    def end(self) -> None:
        """Takes away what is shown."""
        self.timer.cancel()
        with self.lock:
            self.ended = True
            self._close()

    def _open(self) -> None:
        raise NotImplementedError

    def _show(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class _Bar(_Late):
    """A bar on a terminal."""

    bar: Any = None

    def _open(self) -> None:
        from rich.console import Console  # most compilations end before there is need of it
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
        self.bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        self.bar.add_task(self.text.replace("[", r"\["), total=None, count="")
        self.bar.start()

    def _show(self) -> None:
        done, count = self.counts
        if self.bar is not None and count:
            self.bar.update(self.bar.task_ids[0], total=count, completed=done, count=f"{done} of {count} {self.unit}")

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.stop()


class _Line(_Late):
    """A line in a notebook, without widgets: written over, and blank in the end."""

    width = -1  # of what stands there; below zero before it is opened

    def _open(self) -> None:
        self.width = 0

    def _show(self) -> None:
        if self.width >= 0:
            done, count = self.counts
            counted = f": {done} of {count} {self.unit}" if count else ""
            self._write(f"{self.text}{counted}")

    def _close(self) -> None:
        if self.width > 0:
            self._write("")
            sys.stderr.write("\r")
            sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self.width)}")
        sys.stderr.flush()
        self.width = len(text)
