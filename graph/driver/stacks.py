"""Marks threads with enough stack for generated code: compiled code may keep some megabytes of storage there.

Workers of the pool are started with enough. Other threads belong to the caller, and their stacks may be small; see
`dsl.environment.stacks`. Generated code looks for its own thread among words at `STACKS_ADDRESS`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

from ...dsl.contract.doors import ROOMS, room_of
from ...dsl.diagnostics.forks import in_child
from ...dsl.environment.stacks import has_room

_known = threading.local()

# Threads that have enough, for generated code, which looks for its own there: words at `room_of` their addresses.
_rooms = (ctypes.c_int64 * ROOMS)()
STACKS_ADDRESS: Final = ctypes.addressof(_rooms)


class _Mark:
    """A thread's word; it goes with the thread, whose address another one may get."""

    def __init__(self, thread: int) -> None:
        self.thread = thread if has_room() else 0
        place = room_of(self.thread)
        self.places = (place, place ^ 1)

    def set(self) -> None:
        if self.thread and self.thread not in (_rooms[place] for place in self.places):
            free = (place for place in self.places if not _rooms[place])
            _rooms[next(free, self.places[0])] = self.thread

    def __del__(self) -> None:
        for place in self.places:
            if self.thread and _rooms[place] == self.thread:
                _rooms[place] = 0


def mark_thread(address: Callable[[], int]) -> None:
    """Says to generated code that this thread has enough of a stack, if it does; `address` gives the thread's own, or 0
    where it is not known now."""
    try:
        mark = _known.mark
    except AttributeError:
        thread = address()
        if not thread:
            return
        mark = _known.mark = _Mark(thread)
    mark.set()  # another thread may have taken the word


@in_child
def _forget_threads() -> None:
    """In the child of a fork, where the other threads are not."""
    global _known
    _known = threading.local()
    ctypes.memset(STACKS_ADDRESS, 0, ctypes.sizeof(_rooms))
