"""Starts the thread pool of the process, which all models share.

See also `driver.threads` (how a pool works), `compiler.runtime.thread_pool` (how its code is made).
"""

from __future__ import annotations

import logging

from ...dsl.diagnostics.errors import TargetError
from ...dsl.diagnostics.forks import fork_lock
from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ...dsl.environment.knobs import knobs
from ..driver.shared_library import SharedLibrary
from ..driver.threads import ThreadPool, default_threads
from .compile import host_target, pool_code

_log = logging.getLogger("einkorn.load")
_lock = fork_lock()
_pools: dict[int, ThreadPool | None] = {}  # by the number of threads


def thread_pool(threads: int | None = None) -> ThreadPool | None:
    """The process's pool of so many threads (of as many as the user wants when left out), or None where none can be
    made. All models with that number share it."""
    with shielded(), _lock:
        count = threads or knobs.num_threads or default_threads()
        if count not in _pools:
            _pools[count] = _make_pool(count)
        return _pools[count]


def _make_pool(threads: int) -> ThreadPool | None:
    target = host_target()
    key = content_key("pool", target.key, fingerprint())
    path = shared_cache().path(key, ".so")
    if path is None:
        try:
            path = shared_cache().put(key, pool_code(target), ".so")
        except TargetError as error:
            _log.warning("regions run on one thread: %s", error.message)
            return None
    try:
        return ThreadPool(SharedLibrary(path), threads, listens=True)
    except OSError as error:  # another process has removed it meanwhile
        _log.warning("regions run on one thread: %s", error)
        return None
