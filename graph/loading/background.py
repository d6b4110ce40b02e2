"""Compiles in a background thread: doors, and programs of eager tensors. Calls go on as before until it is done.

    BACKGROUND.submit(work)        runs it later, in the order of submission, one at a time
    BACKGROUND.wait()              until nothing is left

There is a thread as long as there is work. It ends before the interpreter does: work that has not begun by then is
dropped. A fork waits for the compile step under way (see `diagnostics.forks`); the child has no such thread, and takes
up what is left with the next `submit` or `resume`, from the beginning.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable

from ...dsl.diagnostics.errors import EinkornError
from ...dsl.diagnostics.forks import fork_lock, in_child
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.process_settings import quick_switching
from ...dsl.environment.stacks import start_with_room

_log = logging.getLogger("einkorn.load")


class Background:
    """Work for a thread of its own."""

    def __init__(self) -> None:
        self._works: list[Callable[[], None]] = []  # the first is under way
        self._ended = False
        self.forget_thread()

    def forget_thread(self) -> None:
        """In the child of a fork, where the thread is not."""
        self._lock = fork_lock()
        self._changed = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None

    def submit(self, work: Callable[[], None]) -> None:
        """Runs a function when what was submitted before is done; never, where the interpreter ends before."""
        with shielded(), self._lock:
            if not self._ended:
                self._works.append(work)
                self._start()

    def resume(self) -> None:
        """Takes up work that another process had begun, of which this one is a fork."""
        if self._works and self._thread is None:
            with shielded(), self._lock:
                self._start()

    def _start(self) -> None:
        if self._thread is None and self._works and not self._ended:
            thread = threading.Thread(target=self._run, name="einkorn-background", daemon=True)
            try:
                start_with_room(thread)
            except RuntimeError:  # the system has no thread left, or the interpreter ends: the next work tries again
                return
            self._thread = thread

    def _run(self) -> None:
        while (work := self._next()) is not None:
            with quick_switching.changed():
                _run_logged(work)
            del work  # its end lets go of what it holds
            self._end_first()

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            if self._works:
                return self._works[0]
            self._thread = None
            return None

    def _end_first(self) -> None:
        with self._lock:
            del self._works[0]
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until nothing is left; whether that is so."""
        self.resume()
        with self._lock:
            return self._changed.wait_for(lambda: not self._works, seconds)

    def stop(self) -> None:
        """Ends the thread, after what it does now: it must not run while the interpreter goes away."""
        with self._lock:
            self._ended, thread = True, self._thread
            del self._works[1:]
        if thread is not None:
            with shielded():
                thread.join()


def _run_logged(work: Callable[[], None]) -> None:
    try:
        work()
    except EinkornError as error:  # calls go on without; where it matters, they say the same
        _log.warning("what is compiled in the background failed: %s", error.message)
    except Exception:
        _log.exception("what is compiled in the background failed")


BACKGROUND = Background()
atexit.register(BACKGROUND.stop)
in_child(BACKGROUND.forget_thread)
