"""Says that a limit of the process's memory is set, where a library could not be mapped.

The loader's messages are the same for a file system that runs no code and for a limit (`ulimit -v`, RLIMIT_AS), which
containers and batch systems set.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..diagnostics.shield import raise_if_of_handler

MIB = 1 << 20


def hint_for_limit() -> str | None:
    """What to do about the limit of the address space, if there is one."""
    try:
        resource: Any = importlib.import_module("resource")
        limit: int = resource.getrlimit(resource.RLIMIT_AS)[0]
    except (ImportError, OSError, ValueError) as error:  # a system without such limits
        raise_if_of_handler(error)
        return None
    if limit == resource.RLIM_INFINITY:
        return None
    most = f"{limit // MIB:,} MiB"
    return f"the process may map {most} of memory at most (ulimit -v); raise this limit: compiling takes 1 GiB"
