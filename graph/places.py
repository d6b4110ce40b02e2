"""The user's own line: the innermost frame of a call stack that is not part of this package.

Input: the running stack. Output: a `Place` with exact columns. Non-goals: no drawing (see `dsl.source`).
"""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from itertools import islice
from types import CodeType

from ..dsl.source import Place

_PACKAGE = __name__.split(".", 1)[0]
_PREFIX = _PACKAGE + "."


def user_place() -> Place | None:
    """Where the code that called into this package stands, or None when nobody did.

    Frames are told apart by module name, not by path: the repository root is the package, so a test or an example
    lies below the package's folder and is a user all the same.
    """
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != _PACKAGE and not name.startswith(_PREFIX):
            return _place(frame.f_code, frame.f_lasti, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return None


@lru_cache(maxsize=4096)
def _place(code: CodeType, instruction: int, line: int) -> Place:
    # An op staged in a loop asks for the same instruction each time, hence the cache.
    start, end, column, end_column = next(islice(code.co_positions(), instruction // 2, None), (None,) * 4)
    file = code.co_filename
    if start is None or column is None:  # positions were left out (python -X no_debug_ranges)
        return Place(file, line)
    end = end or start
    return Place(file, start, _characters(file, start, column), end, _characters(file, end, end_column or column))


def _characters(file: str, line: int, offset: int) -> int:
    """The column, counted from 1 in characters, of an offset counted from 0 in UTF-8 bytes."""
    text = linecache.getline(file, line)
    return offset + 1 if text.isascii() else len(text.encode()[:offset].decode(errors="replace")) + 1
