"""Finds the machine code that calls the libraries of GPUs: in the cache, or through the compiler.

See also `compiler.runtime.launchers` (what they do).
"""

from __future__ import annotations

import functools

from ...dsl.diagnostics.shield import shielded
from ...dsl.environment.cache import content_key, shared_cache
from ...dsl.environment.fingerprint import fingerprint
from ..driver.shared_library import SharedLibrary
from .compile import host_target, launcher_code


@functools.cache
def launcher_library(name: str) -> SharedLibrary:
    """The launchers for a library ("cuda" or "hip"), the functions that check a simulated device ("sim"), or those that
    collectives call ("mpi").

    Raises:
        TargetError: there are none for this machine.
    """
    with shielded():
        target = host_target()
        key = content_key("launcher", name, target.key, fingerprint())
        path = shared_cache().path(key, ".so")
        try:
            return SharedLibrary(path or shared_cache().put(key, launcher_code(name, target), ".so"))
        except OSError:  # another process has removed it meanwhile, or its folder lets no code run
            return SharedLibrary(shared_cache().put(key, launcher_code(name, target), ".so", private=True))
