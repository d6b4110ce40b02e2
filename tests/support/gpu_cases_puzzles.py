"""GPU test kernels: the exercises of `tests/gpu/kernels/puzzles.py`, each with NumPy's answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32, I32 = np.float32, np.int32


def _case(op: str, dtype: Any, *shapes: tuple[int, ...], to: Callable[..., Array], bound: float = 0.0) -> GpuCase:
    name = f"puzzles-{op}[{np.dtype(dtype).name}-{'-'.join('x'.join(map(str, shape)) for shape in shapes)}]"

    def inputs() -> tuple[Array, ...]:
        return tuple(numbers(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes))

    def reference(*arrays: Array) -> Array:
        return np.ascontiguousarray(to(*arrays), dtype)

    return GpuCase(name, "puzzles.py", f"puzzles::{op}", inputs, reference, bound=bound)


def _pooled(x: Array) -> Array:
    padded = np.concatenate([np.zeros(2, x.dtype), x])
    return padded[:-2] + padded[1:-1] + padded[2:]


def _softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


CASES = (
    _case("map", F32, (16,), to=lambda x: x + 10),
    _case("zip", I32, (16,), (16,), to=np.add),
    _case("guard", F32, (37,), to=lambda x: x + 10),
    _case("map_2d", F32, (6, 7), to=lambda x: x + 10),
    _case("broadcast", F32, (6, 1), (1, 8), to=np.add),
    _case("blocks", np.float64, (45,), to=lambda x: x + 10),
    _case("blocks_2d", F32, (9, 13), to=lambda x: x + 10),
    _case("shared", F32, (45,), to=lambda x: x + 10),
    _case("pooling", I32, (45,), to=_pooled),
    _case("dot", F32, (50,), (50,), to=lambda x, y: np.dot(x, y)[None]),
    _case("convolution", F32, (45,), (4,), to=lambda x, w: np.convolve(x, w[::-1])[3 : 3 + len(x)]),
    _case("prefix_sum", I32, (45,), to=np.cumsum),
    _case("axis_sum", F32, (5, 100), to=lambda x: x.sum(1, keepdims=True)),
    _case("matmul", F32, (13, 21), (21, 10), to=np.matmul),
    _case("softmax", F32, (5, 100), to=_softmax, bound=1e-5),
    _case(*("attention", F32, (6, 8), (50, 8), (50, 8)), to=lambda q, k, v: _softmax(q @ k.T) @ v, bound=1e-5),
    _case("histogram", I32, (300,), to=lambda x: np.bincount(np.clip(x, 0, 7), minlength=8)),
    _case("transpose", F32, (21, 34), to=np.transpose),
    _case("transpose", np.int8, (21, 34), to=np.transpose),
)
