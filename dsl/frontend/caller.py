"""Finds who runs a kernel that is called without a graph. This floor knows no graphs, so it is found by its name.

Input: nothing. Output: a function that is called with the kernel, the arguments and the keywords of a call. Non-goals:
what a call means (see `graph.interop.direct`).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from ..diagnostics.installation import PACKAGE

Call = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]


@functools.cache
def caller() -> Call:
    """What runs kernels; loaded when the first one is called."""
    found: Call = importlib.import_module(f"{PACKAGE}.graph.interop.direct").call
    return found


@functools.cache
def ufunc_maker() -> Callable[[Any], Any]:
    """What makes ufuncs of kernels."""
    found: Callable[[Any], Any] = importlib.import_module(f"{PACKAGE}.graph.interop.ufunc").ufunc_of
    return found
