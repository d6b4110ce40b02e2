"""Keeps what a signal's handler raises at the edge of a report: the function is entered, and no `try` in it yet.

ctypes passes such an exception to `sys.unraisablehook`. The hook hands it to the call. From Python 3.13 on the hook
receives the function as a part of its message only.

See also `calling.call` (what is raised within a report).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakValueDictionary

TAKES = "einkorn_takes"  # the attribute of such a function: what takes the exception
_MESSAGE: Final = "Exception ignored on calling ctypes callback function "


def keep(function: object, take: Callable[[BaseException], None]) -> None:
    """Gives what a signal raises at the edge of a function that native code calls to `take`."""
    setattr(function, TAKES, take)
    hook = sys.unraisablehook
    if not isinstance(hook, _Hook):
        hook = sys.unraisablehook = _Hook(hook)
    hook.functions[repr(function)] = function


class _Hook:
    """The hook: it handles exceptions of these functions, and passes others to the hook before it."""

    def __init__(self, other: Callable[[Any], Any]) -> None:
        self.other = other
        self.functions: WeakValueDictionary[str, Any] = WeakValueDictionary()  # by their text, which has the address

    def __call__(self, unraisable: Any) -> None:
        function = unraisable.object
        if function is None and unraisable.err_msg is not None:
            function = self.functions.get(unraisable.err_msg.removeprefix(_MESSAGE))
        take = getattr(function, TAKES, None)
        if take is None or unraisable.exc_value is None:
            self.other(unraisable)
        else:
            take(unraisable.exc_value)
