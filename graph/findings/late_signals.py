"""Keeps what a signal's handler raises at the edge of a report: the function is entered, and no `try` in it yet.

ctypes passes such an exception to `sys.unraisablehook`. The hook hands it to the call.

See also `calling.call` (what is raised within a report).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

TAKES = "einkorn_takes"  # the attribute of such a function: what takes the exception


def keep(function: Any, take: Callable[[BaseException], None]) -> None:
    """Gives what a signal raises at the edge of a function that native code calls to `take`."""
    setattr(function, TAKES, take)
    if getattr(sys.unraisablehook, "__module__", "") != __name__:
        sys.unraisablehook = _hook_before(sys.unraisablehook)


def _hook_before(other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def hook(unraisable: Any) -> None:
        take = getattr(unraisable.object, TAKES, None)
        if take is None or unraisable.exc_value is None:
            other(unraisable)
        else:
            take(unraisable.exc_value)

    return hook
