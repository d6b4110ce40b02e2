"""Keeps what the checks of a simulated device know of its memory, and what they have found.

    with buffers:  marks which bytes are there, and which have values
    in calls:      generated code reports each access to the functions of `compiler.simulation.shadow_memory`

See also `findings.findings` (what is said of a finding).
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dsl.contract import checking
from ...dsl.contract.checking import Check, CheckState, FindingRecord
from ...dsl.diagnostics.forks import fork_lock
from .shared_library import SharedLibrary

FUNCTIONS = (
    *("start", "begin", "sync", "access", "use", "mark", "copy", "commit", "wait"),
    *("branch", "promise", "outside", "misaligned", "switch"),
)
SHADOW = 1 << 36  # bytes of addresses for shadow memory, of which pages are made when they are touched
MAX_LAUNCH_BYTES = 1 << 33  # the same for what one launch needs
_NO_RESERVE = 0x4000  # MAP_NORESERVE

_Mark = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_Flags = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


class CheckedMemory:
    """The state of the checks of one device: one thread at a time runs kernels, or changes what memory there is."""

    def __init__(self, library: SharedLibrary, looks_for: Check) -> None:
        self._library = library
        self._turn = fork_lock()  # the report of a kernel that runs may let buffers go
        self._mine = threading.local()  # what was found in the last call of a thread
        self._pages: list[mmap.mmap] = []
        self._state = CheckState()
        for name in FUNCTIONS:
            setattr(self._state, name, library.address(f"ek_check_{name}"))
        self._mark = _Mark(library.address("ek_check_mark"))
        self._flags = _Flags(library.address("ek_check_flags"))
        self._state.pieces = self._take(checking.PIECES * 16)
        for start, end, size in (("free", "limit", SHADOW), ("room", "room_limit", MAX_LAUNCH_BYTES)):
            address = self._take(size)
            setattr(self._state, start, address)
            setattr(self._state, end, address + size)
        self._state.looks_for = int(looks_for)
        self.state = ctypes.addressof(self._state)  # what a device's table has as `reports`

    def _take(self, size: int) -> int:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self._pages.append(pages)
        return ctypes.addressof(ctypes.c_char.from_buffer(pages))

    def mark(self, address: int, size: int, *, written: bool) -> None:
        """Notes that memory belongs to a buffer, and whether it has values."""
        flags = checking.ALLOCATED | (checking.INITIALISED if written else 0)
        with self._turn:
            self._mark(self.state, address, size, flags)

    def forget(self, address: int, size: int) -> None:
        """Notes that memory belongs to no buffer any more."""
        with self._turn:
            self._mark(self.state, address, size, 0)

    @property
    def tracks_values(self) -> bool:
        """Whether it is known which bytes have values."""
        return bool(self._state.looks_for & Check.UNINITIALISED)

    def without_values(self, address: int, size: int) -> np.ndarray[Any, Any]:
        """For each byte of a buffer whether it is uninitialised: never written, or written with an uninitialised
        value."""
        flags = np.empty(size, np.uint8)
        with self._turn:
            self._flags(self.state, address, size, flags.ctypes.data)
        bare: np.ndarray[Any, Any] = flags & (checking.ALLOCATED | checking.INITIALISED) == checking.ALLOCATED
        return bare

    def in_turn(self, entry: Callable[..., int]) -> Callable[..., int]:
        """An entry whose calls from several threads come one after the other, each with findings of its own."""

        def call(*arguments: object) -> int:
            with self._turn:
                code = entry(*arguments)
                self._mine.found = self._found()
            return code

        return call

    def record(self, rows: int) -> None:
        """Notes the accesses that follow, as long as there is room."""
        self._trace = np.empty((rows, 4), np.int64)
        self._state.trace = self._trace.ctypes.data
        self._state.trace_end = self._state.trace + self._trace.nbytes

    @property
    def recording(self) -> bool:
        """Whether accesses are noted."""
        return bool(self._state.trace)

    def recorded(self) -> np.ndarray[Any, Any]:
        """The accesses since then, a row each (see `checking.Access`); nothing is noted any more."""
        start = self._trace.ctypes.data
        rows = 0 if not self._state.trace else (self._state.trace - start) // ctypes.sizeof(checking.TracedAccess)
        self._state.trace = self._state.trace_end = None
        return self._trace[:rows]

    def finding(self) -> tuple[FindingRecord, CheckState] | None:
        """The findings of the calling thread's last call since the last query, and the state then."""
        result, self._mine.found = getattr(self._mine, "found", None), None
        return result

    def _found(self) -> tuple[FindingRecord, CheckState] | None:
        if not self._state.finding.found:
            return None
        result, state = FindingRecord.from_buffer_copy(self._state.finding), CheckState.from_buffer_copy(self._state)
        ctypes.memset(ctypes.addressof(self._state.finding), 0, ctypes.sizeof(FindingRecord))
        return result, state
