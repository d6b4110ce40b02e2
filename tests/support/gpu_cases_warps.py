"""GPU test kernels of warps, blocks and asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers


def in_warps(x: Array, block: int, lanes: int) -> list[tuple[int, int]]:
    """For each element the first of its warp, and how many lanes that has; threads are elements."""
    found = []
    for i in range(len(x)):
        first = i // block * block + i % block // lanes * lanes
        found.append((first, min(lanes, i // block * block + block - first)))
    return found


def moved(x: Array, block: int, lanes: int, source: Callable[[int, int], int]) -> Array:
    """What each element gets from lane `source(lane, position)` of its warp, its own where there is none."""
    out = x.copy()
    for i, (first, count) in enumerate(in_warps(x, block, lanes)):
        lane = source(i - first, i)
        if 0 <= lane < count:
            out[i] = x[first + lane]
    return out


def shuffled(x: Array, n: Array, lanes: int, block: int) -> Array:
    one = int(n[0])
    rules: list[Callable[[int, int], int]] = [
        lambda k, i: 3,
        lambda k, i: k - 1,
        lambda k, i: k + 5,
        lambda k, i: k ^ 16,
        lambda k, i: (i * 7 + 3) % 40,
        lambda k, i: k - one,
        lambda k, i: k + one + 2,
        lambda k, i: k ^ i % 8,
        lambda k, i: 2,
        lambda k, i: k + 2,
        lambda k, i: -1,
        lambda k, i: -1,
    ]
    return np.stack([moved(x, block, lanes, rule) for rule in rules])


def shuffled_parts(x: Array, lanes: int) -> Array:
    rows, threads = x.reshape(45, 8), np.arange(45)
    out = np.zeros((45, 10), np.float32)
    down, other, up = (
        moved(threads, 45, lanes, rule) for rule in (lambda k, i: k + 1, lambda k, i: k ^ 2, lambda k, i: k - 3)
    )
    out[:, :8] = rows[down]
    out[:, 8] = rows[other, 0] + other
    out[:, 9] = up * 4 + np.where(rows[up, 1] > 0, 0.5, 0.25)
    return out


def voted(x: Array, lanes: int) -> Array:
    out = np.zeros((3, len(x)), np.uint64)
    for i, (first, count) in enumerate(in_warps(x, 80, lanes)):
        warp = x[first : first + count]
        out[:, i] = sum(1 << k for k in range(count) if warp[k] > 0), (warp > 6).any(), (warp > -7).all()
    return out


def shuffle_case(dtype: Any, block: int) -> GpuCase:
    name = f"warps shuffle {np.dtype(dtype).name} {block}"

    def reference(x: Array, n: Array, lanes: int = 32) -> Array:
        return shuffled(x, n, lanes, block)

    return GpuCase(
        name,
        "warps.py",
        "warps::shuffle",
        lambda: (numbers(dtype, 2 * block), np.ones(1, np.int32)),
        reference,
        {"block": block},
        by_lanes=True,
    )


SHUFFLED = (
    np.float32,
    np.int8,
    np.bool_,
    np.float16,
    ml_dtypes.bfloat16,
    np.uint64,
    np.float64,
    ml_dtypes.float8_e4m3fn,
)

CASES: tuple[GpuCase, ...] = (
    *(shuffle_case(dtype, 64) for dtype in SHUFFLED),
    shuffle_case(np.int32, 100),
    shuffle_case(np.int64, 20),
    GpuCase(
        "warps shuffle parts",
        "warps.py",
        "warps::shuffle_parts",
        lambda: (numbers(np.float32, 360),),
        lambda x, lanes=32: shuffled_parts(x, lanes),
        by_lanes=True,
    ),
    GpuCase(
        "warps vote",
        "warps.py",
        "warps::vote",
        lambda: (np.concatenate([np.full(80, 3), numbers(np.int32, 80)]).astype(np.int32),),
        lambda x, lanes=32: voted(x, lanes),
        by_lanes=True,
    ),
)
