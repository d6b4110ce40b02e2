"""The user's own line: the innermost frame of a call stack that is not part of this package.

Input: the running stack. Output: a `Place` with exact columns. Non-goals: no drawing (see `dsl.diagnostics.places`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import ParamSpec, TypeVar

from ..dsl.diagnostics.errors import EinkornError
from ..dsl.diagnostics.installation import is_own_module
from ..dsl.diagnostics.places import Place, instruction_place

P = ParamSpec("P")
R = TypeVar("R")


def user_place() -> Place | None:
    """Where the code that called into this package stands, or None when nobody did.

    Frames are told apart by module name, not by path: the repository root is the package, so a test or an example
    lies below the package's folder and is a user all the same.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if not is_own_module(frame.f_globals.get("__name__", "")):
            return _place(frame.f_code.co_filename, frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def placed(function: Callable[P, R]) -> Callable[P, R]:
    """The function, of which every mistake has the user's own line."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except EinkornError as error:
            error.place = error.place or user_place()
            raise

    return call


@lru_cache(maxsize=4096)
def _place(file: str, code: CodeType, instruction: int, line: int) -> Place:
    # An op staged in a loop asks for the same instruction each time, hence the cache. Code of two files can be equal,
    # for its file's name does not count: hence the key.
    assert file == code.co_filename
    return instruction_place(code, instruction, line)
