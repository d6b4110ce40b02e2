"""GPU test kernels of the language's own loops: `foreach`, and what the standard library makes of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.gpu_case import GpuCase, numbers

F32 = np.float32


def _doubled(dtype: Any, n: int) -> GpuCase:
    """More elements than are worth wide threads, with and without some that are left over."""
    name = f"doubled[{np.dtype(dtype).name}-{n}]"
    return GpuCase(name, "elements.py", "elements::doubled", lambda: (numbers(dtype, n),), lambda x: x + x)


def _biased(m: int, n: int) -> GpuCase:
    return GpuCase(
        f"biased[{m}x{n}]",
        "elements.py",
        "elements::biased",
        lambda: (numbers(F32, m, n, seed=1), numbers(F32, n, seed=2)),
        lambda x, bias: x + bias,
    )


def _turned(*shape: int) -> GpuCase:
    return GpuCase(
        f"turned{shape}",
        "elements.py",
        "elements::turned",
        lambda: (numbers(np.int16, *shape),),
        lambda x: np.ascontiguousarray(x.transpose(2, 1, 0)),
    )


CASES = (
    *(_doubled(dtype, n) for dtype in (F32, np.float16, np.int8, np.float64) for n in (16384, 16397)),
    *(_biased(m, n) for m, n in ((17, 1000), (33, 501))),
    _turned(32, 11, 48),
)
