"""Trims tracebacks: they show the user's own frames, and not how Einkorn came to find a mistake."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from ..diagnostics.errors import EinkornError, InternalError
from ..diagnostics.installation import is_own_module
from ..diagnostics.places import user_place
from .knobs import knobs

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=EinkornError)


_shows_internals = False


def show_internals(wanted: bool) -> None:
    """Whether errors keep all their frames, as with `EINKORN_LOG=debug`."""
    global _shows_internals
    _shows_internals = wanted


def bare(error: E) -> E:
    """The error with the user's frames alone; with all of them for a fault of Einkorn, and where they are wanted."""
    if isinstance(error, InternalError) or _shows_internals or knobs.log == "debug":
        error.internals = True
        return error
    steps = []
    step = error.__traceback__
    while step is not None:
        steps.append(step)
        step = step.tb_next
    kept: TracebackType | None = None
    for step in reversed(steps):
        module = step.tb_frame.f_globals.get("__name__", "")
        if not is_own_module(module) and module.partition(".")[0] not in sys.stdlib_module_names:
            kept = TracebackType(kept, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return error.with_traceback(kept)


def without_internals(function: Callable[P, R], placed: bool = False) -> Callable[P, R]:
    """The function, of which the traceback of a user's mistake shows the call alone."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EinkornError as error:
            if placed:
                error.place = error.place or user_place()
            __tracebackhide__ = True  # of IPython and pytest, where it stands before another error
            raise bare(error) from error.__cause__

    return call


def placed(function: Callable[P, R]) -> Callable[P, R]:
    """The function without internals, of which every mistake has the user's own line."""
    return without_internals(function, placed=True)
