"""Maps shared objects into the process, and unmaps them when they are no longer callable.

What is opened twice is mapped once: the system counts. Nothing that a call gives back lies in code, so a model, its
calls and their variants are all that has to hold a library.

See also `dsl.environment.cache` (whether the object may be believed). `ctypes.CDLL` serves for neither: it never
unmaps, and each is a cycle of references.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import weakref
from _ctypes import dlopen, dlsym
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...dsl.contract import abi
from ...dsl.diagnostics.shield import shielded

# What unmaps the libraries that are open: functions of C alone, in which Python runs no handler of a signal. What one
# raises in a `__del__` is lost.
_unmapping: dict[int, tuple[weakref.ref[Any], weakref.ref[Any]]] = {}
_numbers = itertools.count()
_close: Any = ctypes.CDLL(None).dlclose
_close.argtypes = [ctypes.c_void_p, ctypes.py_object]  # a weak reference is passed to what it calls
# At the end of the process workers may still be in the code, and the system unmaps everything anyway.
atexit.register(_unmapping.clear)


class SharedLibrary:
    """A shared object that is unmapped with the last reference to it.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, path: Path) -> None:
        number = next(_numbers)
        forget = weakref.ref(self, functools.partial(_unmapping.pop, number))
        with shielded():
            self._handle = dlopen(str(path), ctypes.DEFAULT_MODE)
            _unmapping[number] = weakref.ref(self, functools.partial(_close, self._handle)), forget

    def address(self, symbol: str) -> int:
        """Where a symbol lies; code that keeps the address keeps the library.

        Raises:
            OSError: there is no such symbol.
        """
        result: int = dlsym(self._handle, symbol)
        return result

    def has(self, symbol: str) -> bool:
        """Whether there is a symbol of this name."""
        try:
            return bool(self.address(symbol))
        except OSError:
            return False


def scratch_size(library: SharedLibrary) -> Callable[[int, int], int] | None:
    """What says how much memory of the device the code takes for itself, of the address of the dims and a stage."""
    return abi.ScratchFunction(library.address(abi.SCRATCH)) if library.has(abi.SCRATCH) else None
