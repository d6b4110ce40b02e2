"""GPU test kernels of products with scales."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

SCALE: Any = ml_dtypes.float8_e8m0fnu
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def _scales(*shape: int) -> Array:
    return (2.0 ** np.random.default_rng(sum(shape)).integers(-6, 7, shape)).astype(SCALE)


def scaled(dtype: Any, m: int, n: int, k: int, op: str = "product", **params: int) -> GpuCase:
    """A product of `m` x `k` and `k` x `n`; ops `staged` and `begun` have the second matrix and its scales turned,
    `joined` the first."""
    turned, first_turned = op in ("staged", "begun"), op == "joined"

    def inputs(m: int = m, n: int = n, k: int = k) -> tuple[Array, ...]:
        a, b, t = numbers(dtype, m, k, seed=m), numbers(dtype, k, n, seed=n), _scales(k // 32, n)
        b, t = (np.ascontiguousarray(each.T) if turned else each for each in (b, t))
        s = _scales(m, k // 32)
        a, s = (np.ascontiguousarray(each.T) if first_turned else each for each in (a, s))
        return a, s, b, t

    def reference(a: Array, s: Array, b: Array, t: Array) -> Array:
        a, s = (a.T, s.T) if first_turned else (a, s)
        wide = [each.astype(np.float64) for each in (a, s, *((b.T, t.T) if turned else (b, t)))]
        result = (wide[0] * wide[1].repeat(32, 1)) @ (wide[2] * wide[3].repeat(32, 0))
        return (result * (1.5 if op == "joined" else 1) + (op == "tiles")).astype(np.float32)

    sizes = "-".join(["x".join(map(str, (m, n, k))), *map(str, params.values())])
    name = f"scaled-{op}[{np.dtype(dtype).name}-{sizes}]"
    small = (lambda: inputs(12, 15, params.get("K", k))) if op == "staged" or (op == "product" and m > 32) else None
    case = GpuCase(name, "scaled_products.py", f"scaled::{op}", inputs, reference, params, bound=1e-5, heavy=True)
    return replace(case, small=small)


def _halves(*shape: int) -> Array:
    """Any bytes: all of them are two numbers."""
    return np.random.default_rng(sum(shape)).integers(0, 256, shape).astype(np.uint8)


def _unpacked(bytes: Array) -> Array:
    """The elements of rows of bytes, the lower half first."""
    halves = np.stack([bytes & 15, bytes >> 4], -1).reshape(bytes.shape[0], -1)
    return halves.view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def packed(block: int, m: int, n: int, k: int, op: str = "product", **params: int) -> GpuCase:
    """A product of `m` x `k` and `k` x `n` elements of 4 bits; the second matrix is turned but for op `tiles`."""
    across = op == "tiles"

    def scales(*shape: int) -> Array:
        if block == 32:
            return _scales(*shape)
        return np.random.default_rng(sum(shape)).uniform(0.01, 3, shape).astype(E4M3)

    def inputs(m: int = m, n: int = n, k: int = k) -> tuple[Array, ...]:
        b, t = _halves(n, k // 2), scales(n, k // block)
        b, t = (np.ascontiguousarray(each.T) if across else each for each in (b, t))
        return _halves(m, k // 2), scales(m, k // block), b, t

    def reference(a: Array, s: Array, b: Array, t: Array) -> Array:
        b, t = (b.T, t.T) if across else (b, t)
        left, right = (
            _unpacked(np.ascontiguousarray(each)) * factors.astype(np.float64).repeat(block, 1)
            for each, factors in ((a, s), (b, t))
        )
        return (left @ right.T + across).astype(np.float32)

    sizes = "-".join(["x".join(map(str, (m, n, k))), *map(str, params.values())])
    how = {"block": block, **params}
    name = f"scaled-packed-{op}[{block}-{sizes}]"
    small = (lambda: inputs(12, 15, params.get("K", 256))) if op == "product" else None
    case = GpuCase(name, "packed_products.py", f"packed::{op}", inputs, reference, how, bound=1e-5, heavy=True)
    return replace(case, small=small)


CASES = (
    scaled(E4M3, 40, 50, 96),
    scaled(E5M2, 16, 24, 64, M=16, N=16, K=32),
    scaled(E4M3, 17, 33, 96, M=16, N=32, K=96),
    scaled(E5M2, 12, 20, 160, op="staged", M=16, N=16, K=128, threads=64),
    scaled(E4M3, 12, 15, 512, op="tiles", M=16, N=16),
    packed(32, 12, 20, 320, M=16, N=16),
    packed(16, 12, 20, 160, M=16, N=16, K=128),
    packed(16, 9, 7, 256, op="tiles", N=8, K=256),
)
# Of blocks with more fragments, which take the interpreter of elements a minute.
WIDE = (
    scaled(E4M3, 40, 40, 160, op="staged", M=32, N=32, K=128, threads=128),
    packed(32, 33, 20, 320, M=32, N=16),
    packed(16, 20, 40, 160, M=32, N=32, K=128, threads=128),
    packed(32, 16, 16, 512, op="tiles"),
    scaled(E4M3, 13, 22, 480, op="joined"),
)

# Products under way, which sm_100a computes in tensor memory.
TENSOR = (
    scaled(E4M3, 130, 40, 288, op="begun", M=128, N=32, K=128),
    scaled(E5M2, 100, 112, 640, op="begun", M=128, N=112, K=128),
    scaled(E4M3, 200, 64, 224, op="begun", M=256, N=64, K=128),
    packed(32, 130, 40, 640, op="begun", M=128, N=32, K=256),
    packed(16, 120, 80, 320, op="begun", M=128, N=48, K=128),
)
