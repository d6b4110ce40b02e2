"""GPU test kernels whose products four warps compute together."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F16 = np.float16
BF16: Any = ml_dtypes.bfloat16
FILE = "group_products.py"


def product(dtype: Any, m: int, n: int, k: int, *, op: str = "product", **params: Any) -> GpuCase:
    a_turned, b_turned = params.get("a_turned", False), params.get("b_turned", False)

    def inputs() -> tuple[Array, ...]:
        shapes = (k, m) if a_turned else (m, k), (n, k) if b_turned else (k, n)
        return numbers(dtype, *shapes[0], seed=m), numbers(dtype, *shapes[1], seed=n)

    def reference(a: Array, b: Array) -> Array:
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        return ((wide_a.T if a_turned else wide_a) @ (wide_b.T if b_turned else wide_b)).astype(dtype)

    name = f"groups-{op}[{np.dtype(dtype).name}-{m}x{n}x{k}-{'-'.join(f'{key}{v}' for key, v in params.items())}]"
    bound = 1e-2 if dtype is BF16 else 2e-3
    return GpuCase(name, FILE, f"group_products::{op}", inputs, reference, params, bound=bound, heavy=True)


def chained(dtype: Any, m: int, **params: Any) -> GpuCase:
    n, k = params.get("N", 32), params.get("K", 48)

    def inputs() -> tuple[Array, ...]:
        return numbers(dtype, m, k, seed=m), numbers(dtype, k, n, seed=n)

    def reference(a: Array, b: Array) -> Array:
        first = a.astype(np.float64) @ b.astype(np.float64)
        second = (first / 8).astype(dtype).astype(np.float64) @ b.astype(np.float64).T + 1
        return (second - second.max(1, keepdims=True)).astype(np.float32)

    name = f"groups-chained[{np.dtype(dtype).name}-{m}-{n}x{k}]"
    return GpuCase(name, FILE, "group_products::chained", inputs, reference, params, bound=1e-2, heavy=True)


CASES = (
    product(BF16, 64, 64, 64),
    product(F16, 70, 100, 72, N=96, K=16),  # the narrowest swizzle, in three panels
    product(BF16, 65, 64, 128, K=128, b_turned=True),
    product(F16, 64, 128, 64, N=128, K=64, a_turned=True),
    product(F16, 128, 40, 48, M=128, N=48, K=48, a_turned=True, b_turned=True, block=256),
    product(BF16, 130, 24, 32, M=128, N=24, block=128),
    product(BF16, 70, 64, 200, op="ahead"),
    product(F16, 64, 32, 64, op="ahead", N=32, K=64, stages=3),
    chained(F16, 64),
    chained(BF16, 100, N=64, K=64),
)
