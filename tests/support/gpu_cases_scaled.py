"""GPU test kernels of products with scales."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

SCALE: Any = ml_dtypes.float8_e8m0fnu


def _scales(*shape: int) -> Array:
    return (2.0 ** np.random.default_rng(sum(shape)).integers(-6, 7, shape)).astype(SCALE)


def _scaled(dtype: Any, m: int, n: int, k: int, **params: int) -> GpuCase:
    def inputs() -> tuple[Array, ...]:
        a, b = numbers(dtype, m, k, seed=m), numbers(dtype, k, n, seed=n)
        return a, _scales(m, k // 32), b, _scales(k // 32, n)

    def reference(a: Array, s: Array, b: Array, t: Array) -> Array:
        wide = [each.astype(np.float64) for each in (a, s, b, t)]
        return ((wide[0] * wide[1].repeat(32, 1)) @ (wide[2] * wide[3].repeat(32, 0))).astype(np.float32)

    name = (
        f"scaled-product[{np.dtype(dtype).name}-{m}x{n}x{k}{'-' * bool(params)}{'-'.join(map(str, params.values()))}]"
    )
    return GpuCase(name, "scaled_products.py", "scaled::product", inputs, reference, params, bound=1e-5, heavy=True)


CASES = (
    _scaled(ml_dtypes.float8_e4m3fn, 40, 50, 96),
    _scaled(ml_dtypes.float8_e5m2, 16, 24, 64, M=16, N=16, K=32),
)
