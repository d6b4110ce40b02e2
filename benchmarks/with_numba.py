"""The elementwise workloads in Numba: one loop each, parallel when there is more than one thread."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import twenty_numba
from mathematics import with_numba
from workloads import Array, Workload

Run = Callable[[], Any]


def use_threads(count: int) -> None:
    numba.set_num_threads(count)


def _add_one(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = x[i] + np.float32(1)


def _multiply_add(out: Any, x: Any, y: Any, z: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = x[i] * y[i] + z[i]


def _relu(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = max(x[i], np.float32(0))


def _exp(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = math.exp(x[i])


def _chain(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = max(x[i] * np.float32(2) + np.float32(1), np.float32(0)) * np.float32(0.5) - np.float32(3)


_LOOPS = {"add_one": _add_one, "multiply_add": _multiply_add, "relu": _relu, "exp": _exp, "chain": _chain}


def prepare(workload: Workload, arrays: list[Array]) -> dict[str, Run]:
    """What to call; "new" makes the output's memory, "given" writes into the same memory each time."""
    compiled: Any
    if workload.section == "math":
        compiled = with_numba(workload.key)
    else:
        loop: Any = _LOOPS.get(workload.key) or twenty_numba.LOOPS.get(workload.key.removeprefix("twenty::"))
        compiled = loop and numba.njit(parallel=numba.get_num_threads() > 1 and arrays[0].size > 1)(loop)
    if compiled is None:
        return {}
    given = workload.empty()

    def into(make: Callable[[], Array]) -> Array:
        out = make()
        compiled(out, *arrays)
        return out

    return {"new": partial(into, lambda: np.empty_like(given)), "given": partial(into, lambda: given)}
