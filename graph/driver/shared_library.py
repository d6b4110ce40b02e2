"""Maps shared objects into the process, and unmaps them when nobody can call them any more.

What is opened twice is mapped once: the system counts. Nothing that a call gives back lies in code, so a model, its
calls and their variants are all that has to hold a library.

Input: the path of a shared object. Output: a `SharedLibrary`, and addresses in it. Non-goals: whether the object may be
believed (see `dsl.environment.cache`). `ctypes.CDLL` serves for neither: it never unmaps, and each is a cycle of
references.
"""

from __future__ import annotations

import ctypes
import sys
from _ctypes import dlclose, dlopen, dlsym
from pathlib import Path


class SharedLibrary:
    """A shared object that is unmapped with the last reference to it.

    Raises:
        OSError: it cannot be mapped.
    """

    def __init__(self, path: Path) -> None:
        self._handle = 0  # first: of what cannot be mapped there is nothing to unmap
        self._handle = dlopen(str(path), ctypes.DEFAULT_MODE)

    def address(self, symbol: str) -> int:
        """Where a symbol lies; whoever keeps the address keeps the library.

        Raises:
            OSError: there is no such symbol.
        """
        found: int = dlsym(self._handle, symbol)
        return found

    def __del__(self) -> None:
        # At the end of the process workers may still be in the code, and the system unmaps everything anyway.
        if self._handle and not sys.is_finalizing():
            dlclose(self._handle)
