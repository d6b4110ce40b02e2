"""GPU test kernels of grids, shared memory, barriers and atomics."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32 = np.float32


def _added(dtype: Any, n: int) -> GpuCase:
    return GpuCase(
        f"add[{np.dtype(dtype).name}-{n}]",
        "grids.py",
        "grids::add",
        lambda: (numbers(dtype, n, seed=1), numbers(dtype, n, seed=2)),
        lambda x, y: x + y,
    )


def _transposed(m: int, n: int) -> GpuCase:
    return GpuCase(
        f"transpose[{m}x{n}]", "grids.py", "grids::transpose", lambda: (numbers(F32, m, n),), lambda x: x.T.copy()
    )


def _counted(values: Array) -> Array:
    return np.bincount(values, minlength=16).astype(np.int32)


def _histogram(n: int) -> GpuCase:
    def inputs() -> tuple[Array, ...]:
        return (np.random.default_rng(n).integers(0, 16, n).astype(np.uint8),)

    return GpuCase(f"histogram[{n}]", "grids.py", "grids::histogram", inputs, _counted)


GRIDS = (
    *(_added(F32, n) for n in (1, 1000)),
    _added(np.int16, 777),
    _transposed(21, 34),
    _histogram(3000),
)
CASES = GRIDS
