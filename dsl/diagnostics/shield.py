"""Shields work that must not end halfway: signal handlers and forks wait until it is done.

Python runs the handlers of signals between any two steps of the main thread, and any of them may raise: Ctrl-C, a
timeout by SIGALRM, `sys.exit` on SIGTERM. In the middle of the import of an extension module, of a call of LLVM that
has taken its lock, or of an exchange of two tables, that leaves a process in which nothing compiles any more, or one
that crashes. Such work stands in `with shielded():`.

The handlers that were in place run when the outermost shield ends. In other threads, where Python runs no handlers, and
for signals that are ignored or left to the system, a shield only postpones forks (see `diagnostics.forks`). Nothing
else of ours is imported here: packages shield their own imports.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import functools
import importlib
import signal
import sys
import threading
from types import FrameType, ModuleType
from typing import Any, Final

from . import forks

# Handlers of faults of the process run at once, or would never run.
_FAULTS: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS", "SIGKILL", "SIGSTOP")
SIGNALS: Final = tuple(sorted(signal.valid_signals() - {getattr(signal, name, None) for name in _FAULTS}))

_depth = 0  # of the shields of the main thread
_handlers: dict[int, Any] = {}  # that wait, by signal
_restarting: list[int] = []  # signals that `signal.siginterrupt` was told of
_caught: list[tuple[int, FrameType | None]] = []  # signals, and where they came


def _note(number: int, frame: FrameType | None) -> None:
    _caught.append((number, frame))


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _raise() -> None:
    """Runs the handlers that wait, each once, with the last signal of its kind; nothing where none came."""
    if _caught:
        number, _ = _caught[0]
        frame = [frame for each, frame in _caught if each == number][-1]
        _caught[:] = [each for each in _caught if each[0] != number]
        try:
            _handlers[number](number, frame)
        finally:
            _raise()


def _keep_waiting() -> None:
    """Replaces the handlers; what ignores signals, or leaves them to the system, stays."""
    _caught.clear()
    for number in SIGNALS:
        handler = _signal.getsignal(number)  # `signal.getsignal` looks for names in enums, which takes longer
        if callable(handler) and handler is not _note:
            restarts = handler is not signal.default_int_handler and _restarts(number)
            _handlers[number] = handler
            try:
                signal.signal(number, _note)
            except ValueError:  # the main thread of another interpreter in the same process
                return
            if restarts:
                _restarting.append(number)
                signal.siginterrupt(number, False)


def _give_back() -> None:
    """Puts the handlers back, unless the program has set others, and runs those whose signals came."""
    for number, handler in _handlers.items():
        if _signal.getsignal(number) is _note:
            signal.signal(number, handler)
            if number in _restarting:
                signal.siginterrupt(number, False)
    _restarting.clear()
    _raise()


def _restarts(number: int) -> bool:
    """Whether system calls go on after a signal: `signal.signal` sets that anew, and Python does not tell."""
    import ctypes  # few programs have such handlers

    offset, flag = (136, 0x10000000) if sys.platform.startswith("linux") else (12, 2)
    action = (ctypes.c_uint8 * 256)()
    try:
        failed = ctypes.CDLL(None).sigaction(number, None, action)
    except (AttributeError, OSError, TypeError):
        return False
    return not failed and bool(ctypes.c_int.from_buffer(action, offset).value & flag)


class shielded:
    """`with shielded(): ...`: while it lasts, handlers of signals wait, and forks in other threads do. Shields may
    stand in each other."""

    _around = -1  # how many shields of the main thread are around this one
    _postpones = False

    def __enter__(self) -> None:
        global _depth
        if not _on_main_thread():
            forks.postpone()
            self._postpones = True
            return
        self._around = _depth
        _depth += 1
        try:
            if self._around == 0:
                _keep_waiting()
                forks.postpone()
                self._postpones = True
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        global _depth
        if self._postpones:
            forks.resume()
        if self._around >= 0:
            _depth = self._around
            if _depth == 0:
                _give_back()


class window:
    """Within a shield: while it lasts, work may be interrupted anywhere, unless another shield is around."""

    _opens = _resumes = False

    def __enter__(self) -> None:
        global _depth
        if not _on_main_thread():
            self._resumes = forks.sections() == 1
            if self._resumes:
                forks.resume()
            return
        self._opens = _depth == 1
        if self._opens:
            forks.resume()
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
        if self._opens or self._resumes:
            forks.postpone()


@functools.cache
def import_whole(name: str) -> ModuleType:
    """Imports a module under a shield."""
    with shielded():
        return importlib.import_module(name)


def interruptible() -> None:
    """A place within a shield where the work may end, or a fork happen, unless another shield is around."""
    if forks.is_forking() and forks.sections() == 1:
        forks.resume()
        forks.postpone()
    if _depth == 1 and _on_main_thread():
        _raise()
