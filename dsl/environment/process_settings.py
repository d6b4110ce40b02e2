"""Changes settings of the whole process for as long as any thread needs it, such as the recursion limit.

Each thread that put back what it found would undo what another one needs, or keep what another one has set.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, TypeVar

from ..diagnostics.forks import fork_lock, in_child

T = TypeVar("T")

_all: list[ProcessSetting[object]] = []


class ProcessSetting(Generic[T]):
    """A setting that has another value while it is needed.

    Args:
        read, write: get and set it.
        wanted: the value that is needed, of the value that is set.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], wanted: Callable[[T], T]) -> None:
        self._read, self._write, self._wanted = read, write, wanted
        self._lock = fork_lock()
        self._users: dict[object, int] = {}  # and their threads
        self._values: tuple[T, T] | None = None  # before, and now
        _all.append(self)  # type: ignore[arg-type]

    @contextmanager
    def changed(self) -> Iterator[None]:
        """While it lasts, the setting has the value that is needed; in the end that of before, if it is unchanged."""
        user = object()
        try:
            with self._lock:
                self._users[user] = threading.get_ident()
                if self._values is None:
                    before = self._read()
                    self._values = before, before
                    self._write(self._wanted(before))
                    self._values = before, self._read()  # it may be rounded
            yield
        finally:
            with self._lock:
                self._users.pop(user, None)
                self._end()

    def _end(self) -> None:
        if not self._users and self._values is not None:
            before, now = self._values
            if self._read() == now:
                self._write(before)
            self._values = None

    def forget_threads(self) -> None:
        """In the child of a fork: no other thread needs it."""
        mine = threading.get_ident()
        self._users = {user: thread for user, thread in self._users.items() if thread == mine}
        self._end()


SWITCHING: Final = 1e-4  # seconds; Python's own are 50 times as many

# While compilations are under way, threads give each other the interpreter's lock more often than usual. A thread that
# waits for it holds up MLIR and LLVM, for which it needs it between their steps alone; and calls of other threads would
# wait for one that compiles in the background.
quick_switching = ProcessSetting(sys.getswitchinterval, sys.setswitchinterval, lambda before: min(before, SWITCHING))

COLLECTING: Final = 100_000  # new objects; Python's own are 700


def _rarely(before: tuple[int, int, int]) -> tuple[int, int, int]:
    """The thresholds of the collector while much is made; 0 says that it is off, and stays."""
    young, middle, old = before
    return max(young, COLLECTING) if young else 0, middle, old


# Imports and compilations make millions of objects that live until the end and have few cycles. To search them for
# garbage as often as Python does by itself takes up to an eighth of the time.
rare_collections = ProcessSetting(gc.get_threshold, lambda counts: gc.set_threshold(*counts), _rarely)


@in_child
def _forget_threads() -> None:
    for setting in _all:
        setting.forget_threads()
