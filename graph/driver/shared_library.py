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
from collections.abc import Callable
from pathlib import Path

from ...dsl.contract import abi


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

    def has(self, symbol: str) -> bool:
        """Whether there is a symbol of this name."""
        try:
            return bool(self.address(symbol))
        except OSError:
            return False

    def __del__(self) -> None:
        # At the end of the process workers may still be in the code, and the system unmaps everything anyway.
        if self._handle and not sys.is_finalizing():
            dlclose(self._handle)


def scratch_size(library: SharedLibrary) -> Callable[[int, int], int] | None:
    """What says how much memory of the device the code takes for itself, of the address of the dims and a stage."""
    return abi.ScratchFunction(library.address(abi.SCRATCH)) if library.has(abi.SCRATCH) else None
