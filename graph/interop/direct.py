"""Calls kernels like functions: binds arguments, specialises, runs, and gives outputs back as the caller's kind.

Input: a kernel, arguments and keywords as the caller wrote them. Output: what the kernel computes. Non-goals: how code
is made (see `specialise`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...dsl.environment.tracebacks import placed
from ...dsl.frontend.python.register import Kernel
from ...dsl.types.dtype import DType
from ..driver.buffer import Buffer
from .specialise import Given, specialise


@placed
def call(kernel: Kernel, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What `kernel(*args, **kwargs)` means."""
    made = specialise(kernel, [_kind(value) for value in args], kwargs)
    results = made.model.execute(*args)
    shown = results if any(isinstance(value, Buffer) for value in args) else [each.to_numpy() for each in results]
    return None if not shown else shown[0] if len(shown) == 1 else tuple(shown)


def _kind(value: Any) -> Given:
    if isinstance(value, np.ndarray | np.generic):
        return DType.from_numpy(value.dtype), value.ndim
    if isinstance(value, Buffer):
        return value.dtype, value.rank
    number: Given = value
    return number
