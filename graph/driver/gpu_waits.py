"""Waits for a GPU, and handles signals meanwhile.

A library's own wait ends when the work ends, and an endless kernel's never does. So the library is polled again and
again, at once at first, then after pauses that are a sixteenth of the time waited so far, up to a millisecond. Between
two questions Python runs the handlers of signals: Ctrl-C ends the wait, and the kernel goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 1e-4  # seconds in which no pause is made
LONGEST: Final = 1e-3


def wait_until(done: Callable[[], bool]) -> None:
    """Returns when `done` says so."""
    if done():
        return
    start = time.perf_counter()
    while not done():
        waited = time.perf_counter() - start
        if waited > AT_ONCE:
            time.sleep(min(waited / 16, LONGEST))
