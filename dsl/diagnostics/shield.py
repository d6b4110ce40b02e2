"""Shields work against Ctrl-C: what must not end halfway ends first, and the interrupt comes right after.

Python raises KeyboardInterrupt between any two steps of the main thread. In the middle of the import of an extension
module, of a call of LLVM that has taken its lock, or of an exchange of two tables, that leaves a process in which
nothing compiles any more, or one that dies. Such work stands in `with shielded():`.

The handler that was in place, Python's own or the program's, runs when the outermost shield ends. In other threads,
which Python never interrupts, and where signals are ignored or end the process, a shield does nothing. Nothing else
of ours is imported here: packages shield their own imports.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_depth = 0  # of the shields of the main thread
_handler: Any = None  # what the outermost one keeps waiting
_caught: list[FrameType | None] = []  # where signals came


def _note(_: int, frame: FrameType | None) -> None:
    _caught.append(frame)


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _raise() -> None:
    """The handler that is kept waiting, with the signal that came last; nothing where none came."""
    if _caught:
        frame = _caught[-1]
        _caught.clear()
        _handler(signal.SIGINT, frame)


def _keep_waiting() -> None:
    """Puts ours in the place of the handler; what ignores signals, or leaves them to the system, stays."""
    global _handler
    _caught.clear()
    handler = signal.getsignal(signal.SIGINT)
    if callable(handler) and handler is not _note:
        _handler = handler
        try:
            signal.signal(signal.SIGINT, _note)
        except ValueError:  # the main thread of another interpreter in the same process
            return


def _give_back() -> None:
    """The handler is in its place again, unless the program has set another one, and what came goes to it."""
    if signal.getsignal(signal.SIGINT) is _note:
        signal.signal(signal.SIGINT, _handler)
    _raise()


class shielded:
    """`with shielded(): ...`: while it lasts, SIGINT waits. Shields may stand in each other."""

    _around = -1  # how many shields are around this one

    def __enter__(self) -> None:
        global _depth
        if not _on_main_thread():
            return
        self._around = _depth
        _depth += 1
        try:
            if self._around == 0:
                _keep_waiting()
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        global _depth
        if self._around >= 0:
            _depth = self._around
            if _depth == 0:
                _give_back()


class window:
    """Within a shield: while it lasts, work may be interrupted anywhere, unless another shield is around."""

    _opens = False

    def __enter__(self) -> None:
        global _depth
        self._opens = _depth == 1 and _on_main_thread()
        if self._opens:
            _depth = 0
            try:
                _give_back()
            except BaseException:
                self.__exit__()
                raise

    def __exit__(self, *_: object) -> None:
        global _depth
        if self._opens:
            _depth = 1
            _keep_waiting()


def interruptible() -> None:
    """A place within a shield where the work may end: what waits is raised, unless another shield is around."""
    if _depth == 1 and _on_main_thread():
        _raise()
