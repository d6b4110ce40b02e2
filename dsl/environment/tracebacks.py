"""What a traceback shows: the user's own frames, and not how Einkorn came to find a mistake.

Input: functions that users call. Output: the same functions. Non-goals: errors that are not ours keep all their frames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ..diagnostics.errors import EinkornError, InternalError
from .knobs import knobs

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=EinkornError)


def bare(error: E) -> E:
    """The error without the frames that it came through; with them for a fault of Einkorn, and `EINKORN_LOG=debug`."""
    return error if isinstance(error, InternalError) or knobs.log == "debug" else error.with_traceback(None)


def without_internals(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which the traceback of a user's mistake shows the call alone."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EinkornError as error:
            raise bare(error) from error.__cause__

    return call
