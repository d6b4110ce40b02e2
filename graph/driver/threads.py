"""Drives the thread pool: its memory, its worker threads, forks, and the end of the process.

Workers are daemon threads of Python that stay inside one native call, which has released the interpreter's lock. A
callback from a worker into Python therefore works, as long as code that runs a region has released the lock too (a call
through a `ctypes.CFUNCTYPE` does, one through a `ctypes.PYFUNCTYPE` would wait for ever).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from typing import Final

from ...dsl.contract.abi import PoolState
from ...dsl.diagnostics.forks import in_child
from ...dsl.environment.stacks import start_with_room
from .python_api import address_of
from .shared_library import SharedLibrary

_ALIGNMENT: Final = 64
_WorkerFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_StopFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)

# About 0.1 ms of looking for work before a worker sleeps: longer than the gaps between the kernels of a graph, short
# enough that an idle process takes no time.
DEFAULT_SPIN: Final = 2000

# What native code calls of Python; see `PoolState`.
_PYTHON: Final = {
    "ensure": "PyGILState_Ensure",
    "release": "PyGILState_Release",
    "check": "PyErr_CheckSignals",
    "fetch": "PyErr_Fetch",
}

_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()
# The memory of workers that did not return in time: it must outlive them.
_abandoned: list[object] = []


def default_threads() -> int:
    """How many threads this process may run at the same time."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


class ThreadPool:
    """A thread pool; the thread that runs a region is one of its threads.

    Args:
        library: the pool's code.
        threads: how many threads take part, the caller included; 1 starts none.
        spin: how many times a worker looks for a new region before it sleeps.
        listens: whether polls of the main thread look for signals; `poll` is the address for `Context.poll`.

    After a fork the child has no workers and runs regions in the caller; `start()` gives it new ones.
    """

    def __init__(
        self, library: SharedLibrary, threads: int, *, spin: int = DEFAULT_SPIN, listens: bool = False
    ) -> None:
        self._workers: list[threading.Thread] = []  # first: a pool that fails to start is closed too
        if threads < 1:
            raise ValueError(f"a pool has at least 1 thread, not {threads}")
        self.threads = threads
        self._spin = spin
        self._listens = listens
        self._library = library
        self._worker = _WorkerFunction(library.address("ek_pool_worker"))
        self._stop = _StopFunction(library.address("ek_pool_stop"))
        self._memory = (ctypes.c_uint8 * (ctypes.sizeof(PoolState) + _ALIGNMENT))()
        start = ctypes.addressof(self._memory)
        self.address: int = -(-start // _ALIGNMENT) * _ALIGNMENT
        self.run: int = library.address("ek_pool_run")
        self.poll: int = library.address("ek_pool_poll")
        self.start()
        _pools.add(self)

    def start(self) -> None:
        """Starts the workers, unless they run already."""
        if self._workers:
            return
        ctypes.memset(self.address, 0, ctypes.sizeof(PoolState))
        state = PoolState.from_address(self.address)
        state.spin = self._spin
        state.workers = self.threads - 1
        if self._listens:
            state.main = threading.main_thread().native_id or 0
            for name, function in _PYTHON.items():
                setattr(state, name, address_of(function))
        for number in range(1, self.threads):
            worker = threading.Thread(
                target=self._worker, args=(self.address,), name=f"einkorn-worker-{number}", daemon=True
            )
            self._workers.append(worker)
            start_with_room(worker)

    def close(self, timeout: float = 1.0) -> None:
        """Lets the workers return and waits for them; regions after this run in their caller.

        A region that still runs is given `timeout` seconds to end. After that the workers are left behind: they are
        daemon threads, and end with the process.
        """
        workers, self._workers = self._workers, []
        if not workers:
            return
        end = time.monotonic() + timeout
        while not (stopped := bool(self._stop(self.address))) and time.monotonic() < end:
            time.sleep(0.001)
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()) if stopped else 0.0)
        if any(worker.is_alive() for worker in workers):
            _abandoned.append((self._memory, self._library))

    def raised(self) -> BaseException:
        """What a handler of a signal has raised in the call that has just ended."""
        state = PoolState.from_address(self.address)
        addresses, state.error = list(state.error), (ctypes.c_void_p * 3)()
        results = [ctypes.cast(at, ctypes.py_object).value if at else None for at in addresses]
        for at in filter(None, addresses):  # what was taken came with a reference
            ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(at))
        kind, value, trace = results
        if isinstance(value, BaseException):
            return value.with_traceback(trace)
        # Before Python 3.12 an exception is created on access.
        made: BaseException = (kind or KeyboardInterrupt)(*([] if value is None else [value]))
        return made

    def _forget_workers(self) -> None:
        """In the child of a fork, which has no workers: nothing to wait for, even in the middle of a region."""
        self._workers = []
        state = PoolState.from_address(self.address)
        state.workers = state.sleepers = state.state = state.busy = 0
        state.main = threading.get_native_id() if self._listens else 0

    def __del__(self) -> None:
        self.close(timeout=0.1)


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


@in_child
def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget_workers()
