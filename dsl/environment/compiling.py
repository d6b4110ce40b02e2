"""Runs work of the compiler: with room on the stack and for frames, however deep its caller is in calls of its own.

A `RecursionError` of such work is about the kernel that it compiles, never about the caller. What handlers of signals
raise leaves it unchanged (see `diagnostics.shield`).
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from ..diagnostics.shield import passes_signals
from .process_settings import ProcessSetting, rare_collections
from .stacks import has_room, on_large_stack

EVALUATION_FRAMES: Final = 8000  # of Python, that the evaluation of nested kernels and functions may take
MAX_CALLER_FRAMES: Final = 2000  # frames of a caller that leave too few; other threads have all

_recursion = ProcessSetting(
    sys.getrecursionlimit, sys.setrecursionlimit, lambda before: max(before, EVALUATION_FRAMES + MAX_CALLER_FRAMES)
)
_local = threading.local()

P = ParamSpec("P")
T = TypeVar("T")


def compiling(work: Callable[P, T]) -> Callable[P, T]:
    """The same function, with room, and out of which exceptions of handlers of signals come unchanged."""

    @functools.wraps(work)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        if getattr(_local, "inside", False):
            return work(*args, **keywords)
        return _with_room(lambda: work(*args, **keywords))

    return call


@passes_signals
def _with_room(work: Callable[[], T]) -> T:
    if has_room() and _depth() < MAX_CALLER_FRAMES:
        return _inside(work)
    return on_large_stack(lambda: _inside(work))


def _inside(work: Callable[[], T]) -> T:
    _local.inside = True
    try:
        with _recursion.changed(), rare_collections.changed():
            return work()
    finally:
        _local.inside = False


def _depth() -> int:
    """How many frames this thread has, counted up to `MAX_CALLER_FRAMES`."""
    frame, depth = sys._getframe(), 0
    while frame is not None and depth < MAX_CALLER_FRAMES:
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    return depth
