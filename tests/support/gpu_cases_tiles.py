"""GPU test kernels of tiles."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32, F64 = np.float32, np.float64
BF16: Any = ml_dtypes.bfloat16


def _wide(*arrays: Array) -> list[Array]:
    return [array.astype(F64) for array in arrays]


def product(dtype: Any, m: int, n: int, k: int, bound: float, *, op: str = "product", **params: Any) -> GpuCase:
    name = f"tiles-{op}[{np.dtype(dtype).name}-{m}x{n}x{k}{'-' * bool(params)}{'-'.join(map(str, params.values()))}]"
    turned = op == "turned", op in ("turned", "against_rows")

    def inputs() -> tuple[Array, ...]:
        shapes = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)
        return numbers(dtype, *shapes[0], seed=m), numbers(dtype, *shapes[1], seed=n)

    def reference(a: Array, b: Array) -> Array:
        wide = [array.T if across else array for array, across in zip(_wide(a, b), turned, strict=True)]
        result = wide[0] @ wide[1]
        return result.astype({"product_of_bytes": np.int32, "product_in_float32": F32}.get(op, dtype))

    return GpuCase(name, "tiles.py", f"tiles::{op}", inputs, reference, params, bound=bound, heavy=True)


def _attention(dtype: Any, m: int, n: int, d: int, bound: float, **params: Any) -> GpuCase:
    def inputs() -> tuple[Array, ...]:
        return tuple(numbers(dtype, rows, d, seed=seed) for seed, rows in enumerate((m, n, n)))

    def reference(q: Array, k: Array, v: Array) -> Array:
        wide_q, wide_k, wide_v = _wide(q, k, v)
        scores = wide_q @ wide_k.T / np.sqrt(d)
        weights = np.exp(scores - scores.max(1, keepdims=True))
        return (weights / weights.sum(1, keepdims=True) @ wide_v).astype(dtype)

    name = f"tiles-attention[{np.dtype(dtype).name}-{m}x{n}x{d}]"
    return GpuCase(name, "tiles.py", "tiles::attention", inputs, reference, params, bound=bound, heavy=True)


def _softmax(dtype: Any, m: int, n: int, bound: float, **params: Any) -> GpuCase:
    def reference(x: Array) -> Array:
        (wide,) = _wide(x)
        weights = np.exp(wide - wide.max(1, keepdims=True))
        return (weights / weights.sum(1, keepdims=True)).astype(dtype)

    name = f"tiles-softmax[{np.dtype(dtype).name}-{m}x{n}]"
    return GpuCase(name, "tiles.py", "tiles::softmax", lambda: (numbers(dtype, m, n),), reference, params, bound=bound)


def _mixed(m: int, n: int, **params: Any) -> GpuCase:
    def reference(x: Array) -> Array:
        out = np.zeros((n, m), F32)
        for i in range(0, m, 16):
            for j in range(0, n, 16):
                t = np.zeros((16, 16))
                part = x[i : i + 16, j : j + 16]
                t[: part.shape[0], : part.shape[1]] = part
                column, row = t.sum(1, keepdims=True), t.sum(0, keepdims=True)
                t = np.where(t > 0, t, t * 0.5) + column - row
                t = t + np.arange(16)[:, None] - np.arange(16)
                t = t + t if m > 20 else 1 - t
                for _ in range(2):
                    t = abs(t) - 2 * t
                t = t + column + row
                out[j : j + 16, i : i + 16] = t[: part.shape[0], : part.shape[1]].T
        return out

    return GpuCase(
        f"tiles-mixed[{m}x{n}]",
        "tiles.py",
        "tiles::mixed",
        lambda: (numbers(F32, m, n),),
        reference,
        params,
        bound=1e-5,
    )


def _largest(m: int, n: int) -> GpuCase:
    def reference(x: Array) -> tuple[Array, Array]:
        return x.argmax(1).astype(np.int32)[:, None], x.max(1, keepdims=True)

    return GpuCase("tiles-largest", "tiles.py", "tiles::largest", lambda: (numbers(F32, m, n),), reference)


def _copied(dtype: Any, m: int, n: int, **params: Any) -> GpuCase:
    name = f"tiles-copied[{np.dtype(dtype).name}-{m}x{n}-{'-'.join(map(str, params.values()))}]"
    return GpuCase(
        name, "tiles.py", "tiles::copied", lambda: (numbers(dtype, m, n),), lambda x: np.stack([x] * 4), params
    )


CASES = (
    _copied(F32, 32, 8, N=8, block=64),
    _copied(F32, 37, 16, N=16, block=128),
    _copied(F64, 20, 8, N=8, block=128),
    _copied(np.float16, 40, 32, N=32, block=64),
    product(F32, 40, 50, 24, 1e-5),
    product(F32, 64, 32, 64, 1e-5, M=32, N=16, K=16, stages=2, block=64),
    product(F64, 33, 47, 20, 1e-12),
    product(np.float16, 40, 56, 24, 2e-3),
    product(BF16, 33, 17, 9, 1e-2),
    product(BF16, 64, 64, 64, 1e-2, M=64, N=32, K=32, stages=3, block=128),
    product(np.int8, 33, 48, 40, 0.0, op="product_of_bytes"),
    product(np.uint8, 32, 32, 64, 0.0, op="product_of_bytes"),
    product(ml_dtypes.float8_e4m3fn, 33, 48, 64, 1e-5, op="product_in_float32", K=64),
    product(np.float16, 40, 48, 64, 2e-3, op="against_rows"),
    product(BF16, 40, 48, 32, 1e-2, op="turned"),
    product(np.float16, 32, 33, 20, 2e-3, op="turned"),
    product(F32, 40, 33, 24, 1e-5, op="turned"),
    product(F32, 32, 32, 32, 4e-3, op="turned", precision="tf32"),
    _attention(F32, 40, 50, 32, 1e-5),
    _attention(np.float16, 33, 70, 32, 2e-3),
    _attention(BF16, 32, 64, 64, 1e-2, D=64),
    _softmax(F32, 21, 50, 1e-5),
    _softmax(BF16, 16, 96, 1e-2, N=96, block=64),
    _mixed(40, 33),
    _mixed(16, 32, block=128),
    _largest(20, 50),
)
