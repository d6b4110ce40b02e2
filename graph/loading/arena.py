"""Finds the native code that lays out temporaries: in the cache, or made in the background where LLVM is loaded anyway.

See also `compiler.arena` (how it is made), `calling.arena_layout` (how it is used).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ..driver.shared_library import SharedLibrary
from ..staging.kernels import shipped_kernel
from .background import BACKGROUND
from .compile import arena_code, host_target

# sizes, first, last, offsets, storage, count -> bytes
ArenaFunction = Callable[[int, int, int, int, int, int], int]

_PROTOTYPE: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 5, ctypes.c_int64)


class _Native:
    """The function of this process, once it is there."""

    def __init__(self) -> None:
        self.function: ArenaFunction | None = None
        self.requests = 0
        self.library: SharedLibrary | None = None

    def get(self) -> ArenaFunction | None:
        """The function, or None where there is none yet. The first layout of a process never waits for it."""
        if self.function is None:
            self.requests += 1
            if self.requests == 2:
                self._find()
        return self.function

    def _find(self) -> None:
        with shielded():
            path = shared_cache().path(_key(), ".so")
            if path is not None:
                self._open(path)
            elif "llvmlite" in sys.modules:
                BACKGROUND.submit(self.make)

    def make(self) -> None:
        """Compiles the function, and keeps it in the cache."""
        code = arena_code(shipped_kernel("arena", "arena").portable, host_target())
        self._open(shared_cache().put(_key(), code, ".so"))

    def _open(self, path: Path) -> None:
        try:
            self.library = SharedLibrary(path)
        except OSError:  # its folder lets no code run, or another process has removed it: Python serves
            return
        self.function = _PROTOTYPE(self.library.address("ek_arena"))


def _key() -> str:
    return content_key("arena", host_target().key, fingerprint())


_NATIVE: Final = _Native()
native_arena: Final = _NATIVE.get
make_native_arena: Final = _NATIVE.make
