"""GPU test kernels of products with scales."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

SCALE: Any = ml_dtypes.float8_e8m0fnu
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def _scales(*shape: int) -> Array:
    return (2.0 ** np.random.default_rng(sum(shape)).integers(-6, 7, shape)).astype(SCALE)


def scaled(dtype: Any, m: int, n: int, k: int, op: str = "product", **params: int) -> GpuCase:
    """A product of `m` x `k` and `k` x `n`; op `staged` has the second matrix and its scales turned."""
    turned = op == "staged"

    def inputs() -> tuple[Array, ...]:
        a, b, t = numbers(dtype, m, k, seed=m), numbers(dtype, k, n, seed=n), _scales(k // 32, n)
        b, t = (np.ascontiguousarray(each.T) if turned else each for each in (b, t))
        return a, _scales(m, k // 32), b, t

    def reference(a: Array, s: Array, b: Array, t: Array) -> Array:
        wide = [each.astype(np.float64) for each in (a, s, *((b.T, t.T) if turned else (b, t)))]
        result = (wide[0] * wide[1].repeat(32, 1)) @ (wide[2] * wide[3].repeat(32, 0))
        return (result + (op == "tiles")).astype(np.float32)

    sizes = "-".join(["x".join(map(str, (m, n, k))), *map(str, params.values())])
    name = f"scaled-{op}[{np.dtype(dtype).name}-{sizes}]"
    return GpuCase(name, "scaled_products.py", f"scaled::{op}", inputs, reference, params, bound=1e-5, heavy=True)


CASES = (
    scaled(E4M3, 40, 50, 96),
    scaled(E5M2, 16, 24, 64, M=16, N=16, K=32),
    scaled(E4M3, 17, 33, 96, M=16, N=32, K=96),
    scaled(E4M3, 40, 40, 160, op="staged", M=32, N=32, K=128, threads=128),
    scaled(E5M2, 33, 20, 160, op="staged", M=32, N=16, K=128, threads=64),
    scaled(E4M3, 12, 15, 512, op="tiles", M=16, N=16),
)
