"""Makes forks safe: a child of `os.fork` never waits for a thread that it does not have.

Order of a fork:

1. New critical sections (`postpone`, which `shielded` enters) wait, and the fork waits until other threads have left
   theirs: an import, a pass of MLIR or LLVM.
2. The fork takes the locks of other libraries that `taken_at_forks` names.
3. The parent releases both. The child finds every lock of `fork_lock` free, and runs the functions of `in_child`.

A thread that forks within a section of its own keeps it, in the parent and in the child.

An exception of a signal handler (Ctrl-C) ends the wait and is raised where `os.fork` was called. Python cannot cancel a
fork from a hook, so the child of such a fork exits at once, with status 130.

`subprocess` (without `preexec_fn`) and `posix_spawn` run no hooks, and wait for nothing. Nothing else of Einkorn is
imported here.
"""

from __future__ import annotations

import _thread
import functools
import importlib
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, TypeVar

PATIENCE: Final = 2.0  # seconds: a section that is entered during a fork begins after that, come what may: no deadlock
STEP: Final = 0.0005  # seconds between two looks
INTERRUPTED: Final = 128 + signal.SIGINT  # exit status of the child of an interrupted fork

F = TypeVar("F", bound=Callable[[], None])

# Each statement that reads or changes these is atomic under the interpreter's lock, in this order: a section is
# announced before it looks for forks, and a fork before it looks for sections. So no lock is needed, and finalizers of
# the garbage collector may enter sections at any point.
_sections: dict[int, int] = {}  # thread -> how many sections it is in
_forks: list[None] = []  # one for each fork that is under way
_forking: set[int] = set()  # threads that fork
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_taken: dict[Any, bool] = {}  # locks of other libraries, and whether a fork has taken them
_hooks: list[Callable[[], None]] = []
_raised: list[BaseException] = []  # what a signal handler raised during the wait
_signals: list[int] = []  # sent when a fork is over


def fork_lock() -> _thread.RLock:
    """A reentrant lock that the child of a fork finds free, unless the thread that forked holds it."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def taken_at_forks(lock: object) -> None:
    """Lets every fork take a lock of another library, so that the child does not find it held by another thread.

    It is a `threading.RLock`, and held for native calls only.
    """
    _taken[lock] = False


def in_child(function: F) -> F:
    """Lets a function run in the child of every fork, after the locks are free."""
    _hooks.append(function)
    return function


def is_forking() -> bool:
    """Whether a thread waits to fork."""
    return bool(_forks)


def sections() -> int:
    """How many critical sections this thread is in."""
    return _sections.get(threading.get_ident(), 0)


def postpone(at_once: bool = False) -> None:
    """Begins a critical section: forks of other threads wait until `resume` ends it.

    Args:
        at_once: does not wait for a fork: another thread that is in a section waits for this one.
    """
    me = threading.get_ident()
    depth = _sections.get(me, 0)
    _sections[me] = depth + 1
    if depth or at_once or not _forks or me in _forking:
        return
    until = time.monotonic() + PATIENCE
    while _forks and time.monotonic() < until:
        _sections.pop(me, None)
        time.sleep(STEP)
        _sections[me] = 1


def resume() -> None:
    """Ends a critical section."""
    me = threading.get_ident()
    depth = _sections.get(me, 0)
    if depth > 1:
        _sections[me] = depth - 1
    else:
        _sections.pop(me, None)


# *** what happens at a fork ***


def _others() -> bool:
    """Whether another thread is in a section, and not forking within it."""
    me = threading.get_ident()
    return any(thread != me and thread not in _forking for thread in list(_sections))


def _before_fork() -> None:
    me = threading.get_ident()
    if me in _forking:
        return
    _forking.add(me)
    try:
        while _others():
            time.sleep(STEP)
        for lock in _taken:
            _taken[lock] = not lock._is_owned()
            if _taken[lock]:
                lock.acquire()
    except BaseException as error:  # of a signal handler
        if threading.current_thread() is not threading.main_thread():
            raise
        _raised.append(error)


def _end_fork() -> None:
    _forking.discard(threading.get_ident())
    for lock, taken in _taken.items():
        if taken and lock._is_owned():
            lock.release()
        _taken[lock] = False


def _after_in_parent() -> None:
    _end_fork()
    if _raised:
        _raise_later(_raised.pop())


def _raise_later(error: BaseException) -> None:
    """Lets an exception rise where `os.fork` returns. What a hook raises is only printed; the handler of a signal that
    C code sends runs at the next step of Python, which is there."""
    before = signal.getsignal(signal.SIGINT)

    def handler(number: int, frame: FrameType | None) -> None:
        _signals.clear()
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        raise error

    signal.signal(signal.SIGINT, handler)
    _signals.append(signal.SIGINT)


def _after_in_child() -> None:
    if _raised:
        os._exit(INTERRUPTED)
    if not _forking:
        return
    me, depth = threading.get_ident(), sections()
    _end_fork()
    _sections.clear()
    _forking.clear()
    if depth:
        _sections[me] = depth
    for lock in list(_locks):
        if not lock._is_owned():
            lock._at_fork_reinit()
    for hook in _hooks:
        hook()


def register() -> None:
    """Registers the hooks, once more if they are registered. Python runs the `before` hooks of all libraries from the
    last to the first: a library whose hook takes a lock that sections need is imported first, and this called then."""
    if not hasattr(os, "register_at_fork"):
        return
    # No signal handler can raise anything in functions of C.
    os.register_at_fork(before=_before_fork, after_in_parent=_forks.pop, after_in_child=_forks.clear)
    os.register_at_fork(
        before=functools.partial(_forks.append, None),
        after_in_parent=_after_in_parent,
        after_in_child=_after_in_child,
    )
    send = functools.partial(_signals.sort, key=_thread.interrupt_main)  # each signal in the list
    os.register_at_fork(after_in_parent=send)


importlib.import_module("logging")  # takes a lock in a hook of its own, which has to run after `_before_fork`
register()
