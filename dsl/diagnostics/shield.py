"""Shields work that must not end halfway: signal handlers and forks wait until it is done.

Python runs the handlers of signals between any two steps of the main thread, and any of them may raise: Ctrl-C, a
timeout by SIGALRM, `sys.exit` on SIGTERM. In the middle of the import of an extension module, of a call of LLVM that
has taken its lock, or of an exchange of two tables, that leaves a process in which nothing compiles any more, or one
that crashes. Such work stands in `with shielded():`.

The handlers that were in place run when the outermost shield ends. In other threads, where Python runs no handlers, and
for signals that are ignored or left to the system, a shield only postpones forks (see `diagnostics.forks`).

Work that may end anywhere, but catches exceptions of its own, is a function under `@passes_signals`: what a handler
raises there leaves it unchanged. Short work that is called often catches them with `raise_if_of_handler` as the first
statement of its `except`. Nothing else of Einkorn is imported here: packages shield their own imports.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import functools
import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, Final, ParamSpec, TypeVar

from . import forks

P = ParamSpec("P")
T = TypeVar("T")

# Handlers of faults of the process run at once, or would never run.
_FAULTS: Final = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS", "SIGKILL", "SIGSTOP")
SIGNALS: Final = tuple(sorted(signal.valid_signals() - {getattr(signal, name, None) for name in _FAULTS}))

_depth = 0  # of the shields of the main thread
_handlers: dict[int, object] = {}  # that wait, by signal
_restarting: list[int] = []  # signals that `signal.siginterrupt` was called with
_caught: list[tuple[int, FrameType | None]] = []  # signals, and where they came


def _note(number: int, frame: FrameType | None) -> None:
    _caught.append((number, frame))


def _on_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def _raise() -> None:
    """Runs the handlers that wait, each once, with the last signal of its kind; nothing where none came."""
    _run_handlers(_handlers, _caught)


def _run_handlers(handlers: dict[int, Any], signals: list[tuple[int, FrameType | None]]) -> None:
    if signals:
        number, _ = signals[0]
        frame = [frame for each, frame in signals if each == number][-1]
        signals[:] = [each for each in signals if each[0] != number]
        try:
            handlers[number](number, frame)
        finally:
            _run_handlers(handlers, signals)


def _keep_waiting() -> None:
    """Replaces the handlers; what ignores signals, or leaves them to the system, stays."""
    _caught.clear()
    _replace(_handlers, _restarting, _note)


def _replace(handlers: dict[int, Any], restarting: list[int], by: Callable[[int, FrameType | None], None]) -> None:
    """Puts one handler in the place of all others, which are noted, and for which of them system calls go on."""
    for number in SIGNALS:
        handler = _signal.getsignal(number)  # functions of `signal` take longer, and catch what handlers raise
        if callable(handler) and handler is not _note and handler is not by:
            restarts = handler is not signal.default_int_handler and _restarts(number)
            handlers[number] = handler
            try:
                _signal.signal(number, by)
            except ValueError as error:  # the main thread of another interpreter in the same process
                raise_if_of_handler(error)
                return
            if restarts:
                restarting.append(number)
                signal.siginterrupt(number, False)


def _put_back(handlers: dict[int, Any], restarting: list[int], by: Callable[[int, FrameType | None], None]) -> None:
    """Puts handlers back, unless the program has set others."""
    for number, handler in handlers.items():
        if _signal.getsignal(number) is by:
            _signal.signal(number, handler)
            if number in restarting:
                signal.siginterrupt(number, False)


def _give_back() -> None:
    """Puts the handlers back, and runs those whose signals came."""
    _put_back(_handlers, _restarting, _note)
    _restarting.clear()
    _raise()


def _restarts(number: int) -> bool:
    """Whether system calls go on after a signal: `signal.signal` sets that anew, and Python does not report it.

    No exception is caught here: handlers of the program run meanwhile, and theirs would be caught, too.
    """
    if os.name != "posix":
        return False
    import ctypes  # few programs have such handlers

    offset, flag = (136, 0x10000000) if sys.platform.startswith("linux") else (12, 2)
    action = (ctypes.c_uint8 * 256)()
    failed = ctypes.CDLL(None).sigaction(number, None, action)
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
    if _on_main_thread():
        if _depth == 1:
            _raise()
        if _passage is not None and _passage.raised is not None and _depth < 2:
            raise Interruption(_passage.raised)


# *** what handlers raise ***


def raise_if_of_handler(error: BaseException) -> None:
    """Raises an exception once more if a handler of a signal raised it: it says nothing of the work that it ended."""
    if error.__traceback__ is None or not _on_main_thread():
        return
    codes = {_code_of(_signal.getsignal(number)) for number in SIGNALS}
    codes |= {_code_of(handler) for handler in _handlers.values()}
    trace = error.__traceback__.tb_next
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            raise error
        trace = trace.tb_next


def _code_of(handler: object) -> Any:
    """The code of a handler that is written in Python."""
    handler = getattr(handler, "__func__", handler)
    return getattr(handler, "__code__", None) or getattr(type(handler).__call__, "__code__", None)


class Interruption(BaseException):
    """What a handler of a signal has raised, on its way out of a function under `passes_signals`."""


class _Passage:
    """The handlers of signals while a function under `passes_signals` runs."""

    def __init__(self) -> None:
        self.handlers: dict[int, Any] = {}
        self.restarting: list[int] = []
        self.handle = self._handle  # one object, which is compared
        self.raised: BaseException | None = None
        self.hook: Any = None  # what Python calls with exceptions that it ignores
        self.late: list[tuple[int, FrameType | None]] = []  # signals that came after that

    def open(self) -> None:
        global _passage
        _passage = self
        _replace(self.handlers, self.restarting, self.handle)

    def close(self) -> None:
        global _passage
        _put_back(self.handlers, self.restarting, self.handle)
        if self.hook is not None and sys.unraisablehook == self._ignored:
            sys.unraisablehook = self.hook
        _passage = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.raised is not None:
            self.late.append((number, frame))
            return
        try:
            self.handlers[number](number, frame)
        except BaseException as error:
            self.raised = error
        if self.raised is not None:
            self.hook, sys.unraisablehook = sys.unraisablehook, self._ignored
            raise Interruption(self.raised)

    def _ignored(self, unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, Interruption):  # which the work ends with
            self.hook(unraisable)


_passage: _Passage | None = None  # of the main thread


def passes_signals(work: Callable[P, T]) -> Callable[P, T]:
    """The same function, which what a handler of a signal raises leaves unchanged: no `except Exception` on the way
    takes it for a failure of its own, and nothing loses it.

    Handlers run at once. An exception of one passes through the work as an `Interruption`; of finalizers and callbacks
    of native code, which can raise nothing, it is raised when the work ends.
    """

    @functools.wraps(work)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        if _passage is not None or not _on_main_thread():
            return work(*args, **keywords)
        passage = _Passage()
        try:
            try:
                passage.open()
                result = work(*args, **keywords)
            finally:
                passage.close()
        except BaseException:
            passage.close()  # an interruption may have ended the first try; there is no second one
            if passage.raised is None:
                raise
        try:
            if passage.raised is not None:
                raise passage.raised
        finally:
            _run_handlers(passage.handlers, passage.late)
            passage.raised = None  # else its traceback keeps itself alive
        return result

    return call
