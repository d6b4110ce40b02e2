"""GPU test kernels whose warps run different functions, and wait for each other at barriers in shared memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase

F32 = np.float32
FILE = "roles.py"
NAMED = {"named_barriers": "EK0611"}


def _whole(dtype: Any, *shape: int) -> Array:
    """Whole numbers that every dtype holds, sums of some of which are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def _name(op: str, dtype: Any, sizes: tuple[int, ...], params: dict[str, int]) -> str:
    words = "-".join(f"{key}{value}" for key, value in params.items())
    return f"roles-{op}[{np.dtype(dtype).name}-{'x'.join(map(str, sizes))}-{words}]"


def tripled(dtype: Any, m: int, n: int, **params: int) -> GpuCase:
    name = _name("tripled", dtype, (m, n), params)
    return GpuCase(
        name,
        FILE,
        "roles::tripled",
        lambda: (_whole(dtype, m, n),),
        lambda x: (x + x + x).astype(dtype),
        params,
        small=lambda: (_whole(dtype, min(m, 20), min(n, 300)),),
    )


def product(dtype: Any, m: int, n: int, k: int, **params: int) -> GpuCase:
    def reference(a: Array, b: Array) -> Array:
        return (a.astype(F32) @ b.astype(F32)).astype(dtype)

    return GpuCase(
        _name("product", dtype, (m, n, k), params),
        FILE,
        "roles::product",
        lambda: (_whole(dtype, m, k), _whole(dtype, k, n)),
        reference,
        params,
        NAMED,
        small=lambda: (_whole(dtype, min(m, 64), min(k, 130)), _whole(dtype, min(k, 130), min(n, 40))),
        heavy=True,
    )


def _handed(x: Array, lanes: int) -> Array:
    return x.reshape(-1, lanes)[:, ::-1].reshape(-1) + x.dtype.type(3)


def handed(dtype: Any, n: int, **params: int) -> GpuCase:
    name = _name("handed", dtype, (n,), params)
    return GpuCase(name, FILE, "roles::handed", lambda: (_whole(dtype, n),), _handed, params, by_lanes=True)


def _sums(x: Array, lanes: int) -> Array:
    out = np.zeros((2, max(x.shape[0], x.shape[1] + 1)), F32)
    out[0, : x.shape[0]], out[1, : x.shape[1]] = x.sum(1), x.sum(0)
    out[1, x.shape[1]] = 2 * lanes + 1000
    return out


CASES = (
    tripled(F32, 40, 200),
    tripled(F32, 40, 256, stages=1, warps=1),
    tripled(ml_dtypes.bfloat16, 33, 600, N=128, stages=4, warps=4),
    tripled(np.float64, 17, 68, N=32, stages=2),
    tripled(np.int32, 16, 131),  # rows that do not begin at 16 bytes
    product(ml_dtypes.bfloat16, 70, 40, 200),
    product(np.float16, 128, 64, 96, M=128, groups=2, stages=2),
    handed(F32, 320),
    handed(np.int32, 128, stages=1),
    GpuCase(
        "roles-sums",
        FILE,
        "roles::sums",
        lambda: (_whole(F32, 37, 41),),
        _sums,
        needs=NAMED,
        by_lanes=True,
    ),
)
