"""Calls entries on threads with enough stack: compiled code may keep some megabytes of storage there.

Workers of the pool are started with enough. Other threads are those of the caller, who may have made them small
(`threading.stack_size`); from such a one, an entry is called in a thread of its own.

Input: an entry. Output: the same, for any thread. Non-goals: how much a kernel takes is bounded by the compiler.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from ...dsl.contract.doors import ROOMS, room_of

ENOUGH: Final = 6 << 20  # bytes that a thread has to have: what code may keep, and the frames of all others
OWN: Final = 8 << 20  # bytes of threads that are started here

Entry = Callable[[int, int, int], int]

_known = threading.local()
_sizes_lock = threading.Lock()


def with_room(entry: Entry) -> Entry:
    """The entry, called where there is enough stack."""

    def call(context: int, pointers: int, dims: int) -> int:
        try:
            enough = _known.enough
        except AttributeError:
            enough = _known.enough = _stack_of_this_thread() >= ENOUGH
        return entry(context, pointers, dims) if enough else _elsewhere(lambda: entry(context, pointers, dims))

    return call


# Threads that have enough, for generated code, which looks for its own there: words at `room_of` their addresses.
_rooms = (ctypes.c_int64 * ROOMS)()
ROOM: Final = ctypes.addressof(_rooms)


class _Mark:
    """A thread's word; it goes with the thread, whose address another one may get."""

    def __init__(self, thread: int) -> None:
        self.thread = thread if _stack_of_this_thread() >= ENOUGH else 0
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
    """Says to generated code that this thread has enough of a stack, if it does; `address` gives the thread's own."""
    try:
        mark = _known.mark
    except AttributeError:
        mark = _known.mark = _Mark(address())
    mark.set()  # another thread may have taken the word


def _forget_threads() -> None:
    """In the child of a fork, where the other threads are not."""
    global _known
    _known = threading.local()
    ctypes.memset(ROOM, 0, ctypes.sizeof(_rooms))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def start_with_room(thread: threading.Thread) -> None:
    """Starts a thread with a stack that is large enough."""
    with _sizes_lock:  # the size is the process's, for all threads that are started
        before = threading.stack_size(OWN)
        try:
            thread.start()
        finally:
            threading.stack_size(before)


def _elsewhere(work: Callable[[], int]) -> int:
    """What `work` gives in a thread of its own. An interrupt waits for its end: it uses memory of the caller's."""
    results: list[int] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="einkorn-call")
    start_with_room(thread)
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except KeyboardInterrupt as error:
            interrupt = error
    if errors or interrupt is not None:
        raise interrupt or errors[0]
    return results[0]


def _stack_of_this_thread() -> int:
    """The size of this thread's stack in bytes; as much as one likes where the system does not tell."""
    if not sys.platform.startswith("linux"):
        return ENOUGH
    try:
        libc: Any = ctypes.CDLL(None)
        attributes = (ctypes.c_uint64 * 64)()  # larger than any pthread_attr_t
        libc.pthread_self.restype = ctypes.c_void_p
        if libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes):
            return ENOUGH
        low, size = ctypes.c_void_p(), ctypes.c_size_t()
        libc.pthread_attr_getstack(attributes, ctypes.byref(low), ctypes.byref(size))
        libc.pthread_attr_destroy(attributes)
    except (AttributeError, OSError):
        return ENOUGH
    return size.value
