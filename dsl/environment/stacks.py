"""Sees to it that work which needs much stack has it: compilers, and compiled code with storage of its own.

Threads of the caller may have been made small (`threading.stack_size`). From such a one, work goes on in a thread of
its own, for whose end the caller waits.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, ParamSpec, TypeVar

from ..diagnostics.forks import fork_lock, in_child, postpone, resume, sections
from ..diagnostics.shield import raise_if_of_handler, shielded

MIN_STACK_BYTES: Final = 6 << 20  # bytes that a thread has to have: what code may keep, and the frames of all others
# Bytes of threads that are started here. No other code requests just as many, so that they are known as those of here.
OWN: Final = (8 << 20) + (44 << 10)

_known = threading.local()
_sizes_lock = fork_lock()

T = TypeVar("T")
P = ParamSpec("P")


def has_room() -> bool:
    """Whether this thread has enough of a stack."""
    try:
        enough: bool = _known.enough
    except AttributeError:
        enough = _known.enough = _stack_of_this_thread() >= MIN_STACK_BYTES
    return enough


def with_room(work: Callable[P, T]) -> Callable[P, T]:
    """The same function, run where there is enough stack."""

    @functools.wraps(work)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        try:
            enough = _known.enough
        except AttributeError:
            enough = has_room()
        return work(*args, **keywords) if enough else on_large_stack(lambda: work(*args, **keywords))

    return call


@contextmanager
def room_for_threads() -> Iterator[None]:
    """Threads that are started within have enough stack.

    The size is the process's, for all threads that are started. Where other code sets another one meanwhile, that
    stays: to put back what was said before would undo it.
    """
    with shielded(), _sizes_lock:
        before = threading.stack_size(OWN)
        try:
            yield
        finally:
            said = threading.stack_size(before)  # a query without a size would set it
            if said != OWN:
                threading.stack_size(said)


def start_with_room(thread: threading.Thread) -> None:
    """Starts a thread with a stack that is large enough."""
    with room_for_threads():
        thread.start()


def on_large_stack(work: Callable[[], T]) -> T:
    """What `work` gives in a thread of its own. An interrupt waits for its end: it uses memory of the caller's."""
    results: list[T] = []
    errors: list[BaseException] = []

    inside = sections() > 0

    def run() -> None:
        if inside:  # a fork waits for the caller, which waits for this thread
            postpone(at_once=True)
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            if inside:
                resume()

    thread = threading.Thread(target=run, name="einkorn-call")
    start_with_room(thread)
    interrupt: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:  # of a handler of a signal
            interrupt = error
    if errors or interrupt is not None:
        raise interrupt or errors[0]
    return results[0]


@in_child
def _forget_threads() -> None:
    """In the child of a fork, where the other threads are not."""
    global _known
    _known = threading.local()


def _stack_of_this_thread() -> int:
    """The size of this thread's stack in bytes; as much as one likes where the system does not report it."""
    if not sys.platform.startswith("linux"):
        return MIN_STACK_BYTES
    try:
        libc: Any = ctypes.CDLL(None)
        attributes = (ctypes.c_uint64 * 64)()  # larger than any pthread_attr_t
        libc.pthread_self.restype = ctypes.c_void_p
        if libc.pthread_getattr_np(ctypes.c_void_p(libc.pthread_self()), attributes):
            return MIN_STACK_BYTES
        low, size = ctypes.c_void_p(), ctypes.c_size_t()
        libc.pthread_attr_getstack(attributes, ctypes.byref(low), ctypes.byref(size))
        libc.pthread_attr_destroy(attributes)
    except (AttributeError, OSError) as error:
        raise_if_of_handler(error)
        return MIN_STACK_BYTES
    return size.value
