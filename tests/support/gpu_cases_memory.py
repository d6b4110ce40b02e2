"""GPU test kernels of grids, shared memory, barriers and atomics."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32 = np.float32


# *** grids ***


def _added(dtype: Any, n: int) -> GpuCase:
    def inputs() -> tuple[Array, ...]:
        return numbers(dtype, n, seed=1), numbers(dtype, n, seed=2)

    return GpuCase(f"add[{np.dtype(dtype).name}-{n}]", "grids.py", "grids::add", inputs, lambda x, y: x + y)


def _transposed(file: str, m: int, n: int, **params: Any) -> GpuCase:
    name = f"{file}-transpose[{m}x{n}]"
    return GpuCase(
        name, f"{file}.py", f"{file}::transpose", lambda: (numbers(F32, m, n),), lambda x: x.T.copy(), params
    )


def _histogram(file: str, n: int) -> GpuCase:
    def inputs() -> tuple[Array, ...]:
        return (np.random.default_rng(n).integers(0, 16, n).astype(np.uint8),)

    def reference(values: Array) -> Array:
        return np.bincount(values, minlength=16).astype(np.int32)

    return GpuCase(f"{file}-histogram[{n}]", f"{file}.py", f"{file}::histogram", inputs, reference)


def _places(cluster: tuple[int, int, int], lanes: int) -> Array:
    """What every thread of a grid of (4, 3, 2) blocks of (5, 3, 7) threads has of itself."""
    rows = []
    for (bz, by, bx), (z, y, x) in itertools.product(np.ndindex(2, 3, 4), np.ndindex(7, 3, 5)):
        thread = x + 5 * (y + 3 * z)
        within = [n % c for n, c in zip((bx, by, bz), cluster, strict=True)]
        around = [n // c for n, c in zip((bx, by, bz), cluster, strict=True)]
        numbers = [[p + 10 * q + 100 * r for p, q, r in (around, within, cluster)]]
        threads = (bx * 5 + x) + 100 * (by * 3 + y) + 10000 * (bz * 7 + z)
        rows.append([thread, thread % lanes, -(-105 // lanes), *numbers[0], threads])
    return np.array(rows, np.int64)


GRIDS = (
    *(_added(F32, n) for n in (1, 1000)),
    _added(np.int16, 777),
    _transposed("grids", 21, 34),
    _histogram("grids", 3000),
    GpuCase("places", "grids.py", "grids::places", tuple, lambda lanes: _places((1, 1, 1), lanes), by_lanes=True),
    GpuCase(
        "cluster-places",
        "grids.py",
        "grids::cluster_places",
        tuple,
        lambda lanes: _places((2, 1, 2), lanes),
        needs={"clusters": "EK0611"},
        by_lanes=True,
    ),
)


# *** shared memory ***


def _reversed(dtype: Any, n: int) -> GpuCase:
    def reference(x: Array) -> Array:
        return x

    return GpuCase(
        f"reverse-twice[{np.dtype(dtype).name}-{n}]",
        "shared.py",
        "shared::reverse_twice",
        lambda: (numbers(dtype, n),),
        reference,
    )


def _sliced(x: Array) -> Array:
    kept = np.repeat(np.arange(4, dtype=F32)[:, None], 8, 1)
    kept[:, 2:6] = x
    ahead = np.roll(kept, -1, 0)
    later = kept.copy()
    later[:, 4:] = ahead[:, :4]
    return np.concatenate([ahead + kept * 10, later], 1)


def _dynamic(x: Array) -> Array:
    n = x.size
    return (x[::-1] + x * 2 + np.arange(n, dtype=F32)[::-1] + 1100).astype(F32)


KEPT = (np.bool_, np.int8, np.uint16, np.int32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
SHARED = (
    *(_reversed(dtype, 150) for dtype in (*KEPT, ml_dtypes.float8_e4m3fn)),
    _transposed("shared", 21, 34),
    _transposed("shared", 9, 5, side=8),
    GpuCase(
        "row-sums", "shared.py", "shared::row_sums", lambda: (numbers(F32, 5, 301),), lambda x: x.sum(1, dtype=F32)
    ),
    GpuCase("slices", "shared.py", "shared::slices", lambda: (numbers(F32, 4, 4),), _sliced),
    GpuCase("large", "shared.py", "shared::large", lambda: (numbers(F32, 12500),), lambda x: x[::-1] + x),
    GpuCase("dynamic", "shared.py", "shared::dynamic", lambda: (numbers(F32, 41),), _dynamic),
    _histogram("shared", 2000),
)


def _neighbours(x: Array) -> Array:
    blocks = -(-x.size // 32)
    sums = np.pad(x, (0, 32 * blocks - x.size)).reshape(blocks, 32).sum(1, dtype=F32)
    after = np.append(sums[1:], F32(0))
    return np.repeat(sums + after + np.arange(blocks, dtype=F32) % 100, 32)[: x.size]


def _scratch(op: str, n: int, reference: Any) -> GpuCase:
    return GpuCase(f"{op}[{n}]", "scratch.py", f"scratch::{op}", lambda: (numbers(F32, n),), reference)


SCRATCH = (
    _scratch("neighbours", 1, _neighbours),
    _scratch("neighbours", 1000, _neighbours),
    _scratch("rounds", 9, lambda x: x + 1),
    _scratch("rounds", 100, lambda x: x + 2),
)


def _scalars(x: Array) -> Array:
    n = x.size
    return np.array([n % 2, -n, 250 + n, -300 * n, 2**32 - n, n * 2.0**60, n / 2, -3 * n, n / 3])


def _vectors(x: Array) -> Array:
    by = np.array([x.size + 2, 4, x.size + 2, x.size + 2], F32)
    result = x[:, None] * by + np.array([-3, -3, -3, 7], F32)
    return np.where(by > 4, result, F32(0)).astype(F32)


ARGUMENTS = (
    GpuCase("scalars", "arguments.py", "arguments::scalars", lambda: (numbers(np.float64, 3),), _scalars),
    GpuCase("vectors", "arguments.py", "arguments::vectors", lambda: (numbers(F32, 5),), _vectors),
)


# *** barriers, fences ***


def _handed_over(x: Array) -> Array:
    first = x[:64] * 2
    return np.concatenate([first, (first[::-1] + 1) * 3]).astype(np.int32)


def _turned(x: Array) -> Array:
    for turn in range(3):
        x = (x + turn).reshape(-1, 2)[:, ::-1].reshape(-1) * 2
    return x.astype(np.int32)


def _added_by_blocks(x: Array) -> tuple[Array, ...]:
    parts = x.reshape(4, 8).sum(1, dtype=np.int32)
    return np.append(parts * 10, parts.sum(dtype=np.int32)).astype(np.int32), np.array([4], np.int32), parts


I32 = np.int32
BARRIERS = (
    GpuCase(
        "hand-over",
        "barriers.py",
        "barriers::hand_over",
        lambda: (numbers(I32, 128),),
        _handed_over,
        needs={"named_barriers": "EK0611"},
    ),
    GpuCase(
        "producer",
        "barriers.py",
        "barriers::producer",
        lambda: (numbers(I32, 192),),
        lambda x: x.reshape(-1, 32)[:, ::-1].reshape(-1) * 2 + 1,
        needs={"named_barriers": "EK0611"},
    ),
    GpuCase("turns", "barriers.py", "barriers::turns", lambda: (numbers(I32, 96),), _turned),
    GpuCase("limited", "barriers.py", "barriers::limited", lambda: (numbers(I32, 96),), _turned),
    GpuCase("last-block", "barriers.py", "barriers::last_block", lambda: (numbers(I32, 32),), _added_by_blocks),
    GpuCase("in-order", "barriers.py", "barriers::last_block_in_order", lambda: (numbers(I32, 32),), _added_by_blocks),
)


# *** atomic operations ***


def _combined(x: Array) -> tuple[Array, ...]:
    v, dtype = x[::-1], x.dtype
    one = np.ones((), dtype)
    kept = np.stack([x + v, x - v, np.minimum(x, v), np.maximum(x, v), v, v]).astype(dtype)
    out = np.stack([*kept[:5], np.where(x == (v + one).astype(dtype), v, x)]).astype(dtype)
    old = np.stack([x] * 6 + [v]).astype(dtype)
    return (out + kept).astype(dtype), old


def _combining(dtype: Any) -> GpuCase:
    name = f"atomic-combine[{np.dtype(dtype).name}]"
    return GpuCase(name, "atomics.py", "atomics::combine", lambda: (numbers(dtype, 32, seed=3),), _combined)


def _bits(dtype: Any) -> GpuCase:
    def inputs() -> tuple[Array, ...]:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = np.random.default_rng(4).integers(low, high, 128, dtype=dtype, endpoint=True)
        x[:2] = 0, 3
        x[64:] = x[64:] & ~dtype(2) | dtype(1)  # of all of a block: what it begins with is seen in its result
        return (x,)

    def reference(x: Array) -> Array:
        halves = x.reshape(2, 64)
        joined = [f.reduce(halves, axis=1) for f in (np.bitwise_and, np.bitwise_or, np.bitwise_xor)]
        return np.stack(joined, 1)

    return GpuCase(f"atomic-bits[{np.dtype(dtype).name}]", "atomics.py", "atomics::bits", inputs, reference)


def _summed(dtype: Any) -> GpuCase:
    def reference(x: Array) -> Array:
        return np.array([x[k::4].astype(np.float64).sum() for k in range(4)]).astype(dtype)

    name = f"atomic-sums[{np.dtype(dtype).name}]"
    return GpuCase(name, "atomics.py", "atomics::sums", lambda: (numbers(dtype, 128, seed=5),), reference)


COMBINED = (np.int8, np.uint16, np.int32, np.uint32, np.int64, np.float16, ml_dtypes.bfloat16, np.float32, np.float64)
ATOMICS = (
    *map(_combining, COMBINED),
    *map(_bits, (np.uint8, np.int16, np.uint32, np.int64)),
    *map(_summed, (np.int8, np.int32, np.float16, np.float32, np.float64)),
)

CASES = (*GRIDS, *SHARED, *SCRATCH, *ARGUMENTS, *BARRIERS, *ATOMICS)
