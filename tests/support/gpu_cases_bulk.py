"""GPU test kernels that copy tiles of whole rows."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32 = np.float32
FILE = "bulk_copies.py"


def _named(op: str, dtype: Any, m: int, n: int, params: dict[str, int]) -> str:
    return f"bulk-{op}[{np.dtype(dtype).name}-{m}x{n}-{'-'.join(f'{key}{value}' for key, value in params.items())}]"


def _whole(dtype: Any, *shape: int) -> Array:
    """Whole numbers that every dtype holds, sums of some of which are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def staged(dtype: Any, m: int, n: int, **params: int) -> GpuCase:
    return GpuCase(
        _named("staged", dtype, m, n, params),
        FILE,
        "bulk_copies::staged",
        lambda: (numbers(dtype, m, n),),
        lambda x: (x + x + x).astype(dtype),
        params,
        bound=1e-2 if np.dtype(dtype).itemsize == 2 else 1e-6,
        small=lambda: (numbers(dtype, min(m, 20), min(n, 300)),),
    )


def summed(dtype: Any, m: int, n: int, **params: int) -> GpuCase:
    height = params.get("M", 16)

    def reference(x: Array) -> Array:
        rows = np.zeros((-(-x.shape[0] // height) * height, x.shape[1]), np.float64)
        rows[: x.shape[0]] = x
        parts = rows.reshape(-1, height, x.shape[1])
        return (parts.sum(0) - parts[::3].sum(0)).astype(dtype)

    return GpuCase(
        _named("summed", dtype, m, n, params),
        FILE,
        "bulk_copies::summed",
        lambda: (_whole(dtype, m, n),),
        reference,
        params,
        small=lambda: (_whole(dtype, min(m, 70), n),),
    )


CASES = (
    staged(F32, 40, 200),
    staged(F32, 16, 64, stages=2, block=128),
    staged(F32, 33, 1400, stages=4),  # more tiles than there are barriers
    staged(np.float64, 20, 68, N=32),
    staged(ml_dtypes.bfloat16, 48, 328, N=128),
    staged(np.float16, 17, 131, N=128),  # rows that do not begin at 16 bytes
    staged(np.int32, 17, 64, M=32, block=128),
    summed(F32, 700, 64, ahead=2),
    summed(F32, 100, 48, N=64, ahead=3),
    summed(np.int32, 320, 16, N=16, ahead=1),  # rows next to each other
    summed(F32, 400, 64, ahead=9, M=16),
    summed(np.float64, 70, 8, N=8, M=32),
)
