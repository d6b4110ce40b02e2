"""Raises in Python what a signal's handler has raised in native code of a library that cannot pass exceptions on.

A kernel polls for signals, and stops when a handler raises. XLA would make of that an error of its own, and code of
numba may catch it. So the exception is kept, and a handler takes the place of that for SIGINT. The native code then
trips SIGINT (`PyErr_SetInterruptEx`), and Python calls this handler as soon as it goes on: it puts the former one back,
and raises.

Numba runs functions of Python's while it catches an exception; what is raised there is lost. So within them SIGINT is
to be tripped again: by a pending call of Python's interpreter, which adds itself again as long as such a function runs.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from types import FrameType
from typing import Any

from ..driver.python_api import address_of

_kept: list[BaseException] = []  # one, while it is to be raised
_former: list[Any] = []  # the handler that is put back


def raise_later(error: BaseException) -> bool:
    """Keeps an exception; native code trips SIGINT after this. False where that is not possible."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handler = signal.getsignal(signal.SIGINT)
    if handler is None:  # one that Python cannot put back
        return False
    _kept[:] = [error]
    if handler is not _raise:
        _former[:] = [handler]
        signal.signal(signal.SIGINT, _raise)
    return True


def is_late() -> bool:
    """Whether an exception waits for Python to go on: what native code computes until then is of no use."""
    return bool(_kept)


def forget(error: BaseException) -> None:
    """The exception is raised otherwise."""
    if error in _kept:
        _kept.clear()


def _raise(number: int, frame: FrameType | None) -> None:
    if _in_numba(frame):
        _add_pending(_trip, None)
        return
    signal.signal(signal.SIGINT, _former.pop() if _former else signal.default_int_handler)
    if _kept:
        raise _kept.pop()


def _in_numba(frame: FrameType | None) -> bool:
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("numba.")


def _trip_outside(_: int | None) -> int:
    if _in_numba(sys._getframe(1)):
        _add_pending(_trip, None)
    else:
        _add_pending(address_of("PyErr_SetInterruptEx"), signal.SIGINT)
    return 0


_trip = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_trip_outside)
_add_pending = ctypes.pythonapi.Py_AddPendingCall
_add_pending.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
