"""GPU test kernels that copy tiles by tensor maps."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase

F32, BF16 = np.float32, ml_dtypes.bfloat16
FILE = "tensor_maps.py"
CLUSTERS = {"clusters": "EK0611"}


def _whole(dtype: Any, *shape: int) -> Array:
    """Whole numbers that every dtype holds, three times each too."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(dtype)


def _case(op: str, dtype: Any, shape: tuple[int, ...], small: tuple[int, ...], factor: int, **params: Any) -> GpuCase:
    sizes = "x".join(map(str, shape))
    name = f"map-{op}[{np.dtype(dtype).name}-{sizes}-{'-'.join(f'{key}{value}' for key, value in params.items())}]"

    def reference(x: Array) -> Array:
        y = x.swapaxes(1, 2) if op == "of_middle" else x
        return np.ascontiguousarray((y.astype(np.float64) * factor).astype(dtype))

    return GpuCase(
        name,
        FILE,
        f"tensor_maps::{op}",
        lambda: (_whole(dtype, *shape),),
        reference,
        params,
        small=lambda: (_whole(dtype, *small),),
    )


def staged(dtype: Any, m: int, n: int, **params: Any) -> GpuCase:
    return _case("staged", dtype, (m, n), (min(m, 20), min(n, 100)), 3, **params)


def several(op: str, dtype: Any, *shape: int, **params: Any) -> GpuCase:
    return _case(op, dtype, shape, (*shape[:-2], min(shape[-2], 20), min(shape[-1], 40)), 2, **params)


def to_all(dtype: Any, m: int, n: int, blocks: int = 2, **params: Any) -> GpuCase:
    """The blocks of a cluster get the same tiles."""
    params = {"blocks": blocks, **params}
    name = f"map-to-all[{np.dtype(dtype).name}-{m}x{n}-{'-'.join(f'{key}{value}' for key, value in params.items())}]"

    def reference(x: Array) -> Array:
        return np.stack([(x.astype(np.float64) * (block + 1)).astype(dtype) for block in range(blocks)])

    return GpuCase(
        name,
        FILE,
        "tensor_maps::to_all",
        lambda: (_whole(dtype, m, n),),
        reference,
        params,
        CLUSTERS,
        small=lambda: (_whole(dtype, min(m, 20), min(n, 40)),),
    )


CASES = (
    to_all(BF16, 40, 72, stages=2),
    to_all(BF16, 70, 131, stages=3),  # no map
    to_all(F32, 70, 40, 4, laid_out=False, M=64, N=16),
    to_all(np.float16, 64, 200, N=128, M=32),  # two panels
    staged(BF16, 40, 200),  # 64 bytes are exchanged
    staged(np.float16, 37, 136, N=64, M=48),  # 128 bytes
    staged(BF16, 40, 200, N=128, stages=2),  # two panels
    staged(F32, 20, 100, N=8),  # 32 bytes
    staged(F32, 33, 132, N=64),
    staged(np.float64, 20, 66, N=16),
    staged(np.int8, 40, 144, N=64),
    staged(np.uint8, 70, 96, M=64, N=32, laid_out=False),
    staged(F32, 300, 20, M=512, N=8, stages=2, laid_out=False),  # boxes below each other
    staged(BF16, 17, 131, N=64),  # rows that do not begin at 16 bytes: no map
    staged(F32, 5, 4, N=32),
    several("of_three", BF16, 3, 21, 72),
    several("of_three", F32, 2, 16, 36, N=16),
    several("of_middle", BF16, 2, 21, 3, 40, N=64),
    several("of_five", np.float16, 2, 1, 3, 18, 48),
    several("merged", BF16, 3, 7, 40),
)
