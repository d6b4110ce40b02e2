"""GPU test kernels of warps, blocks and asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers


def in_warps(x: Array, block: int, lanes: int) -> list[tuple[int, int]]:
    """For each element the first of its warp, and how many lanes that has; threads are elements."""
    collected = []
    for i in range(len(x)):
        first = i // block * block + i % block // lanes * lanes
        collected.append((first, min(lanes, i // block * block + block - first)))
    return collected


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


def exchanged(x: Array, lanes: int, block: int) -> Array:
    rows = [moved(x, block, lanes, lambda k, i, bits=bits: k ^ bits) for bits in range(32)]  # type: ignore[misc]
    both = moved(x, block, lanes, lambda k, i: 17) + moved(x, block, lanes, lambda k, i: 9)
    return np.stack([*rows, both])


def exchange_case(dtype: Any, block: int) -> GpuCase:
    name = f"warps exchange {np.dtype(dtype).name} {block}"

    def reference(x: Array, lanes: int = 32) -> Array:
        return exchanged(x, lanes, block)

    inputs = lambda: (numbers(dtype, 2 * block),)  # noqa: E731
    return GpuCase(name, "warps.py", "warps::exchange", inputs, reference, {"block": block}, by_lanes=True)


def matched(x: Array, wide: Array, lanes: int) -> Array:
    out = np.zeros((4, len(x)), np.uint64)
    for i, (first, count) in enumerate(in_warps(x, 80, lanes)):
        for row, values in enumerate((x, wide, x > 0)):
            warp = values[first : first + count]
            out[row, i] = sum(1 << k for k in range(count) if warp[k] == values[i])
        out[3, i] = i == first
    return out


def parted(x: Array, lanes: int) -> Array:
    """Every other lane, counted from 0 and from 1; 64-lane masks have their upper half as signs."""
    out = np.zeros((6, len(x)), np.int64)
    for i, (first, count) in enumerate(in_warps(x, 64, lanes)):
        lane = i - first
        mine = range(first + lane % 2, first + count, 2)
        other = lane ^ 2 if lane % 2 == 0 else lane + 4
        value = int(x[first + other]) if other < count else int(x[i])
        if lane % 2 == 0:
            positive, same = (
                sum(1 << k - first for k in mine if test(x[k])) for test in (lambda v: v > 0, x[i].__eq__)
            )
            result = [value, *((n + (1 << 63)) % (1 << 64) - (1 << 63) for n in (positive, same))]
            result += [x[mine].sum(), x[first : i + 1 : 2].sum(), x[first + 2]]
        else:
            before = x[first + 1 : i : 2].max(initial=np.iinfo(np.int32).min)
            result = [value * 100, any(x[k] > 6 for k in mine), all(x[k] > -8 for k in mine)]
            result += [100 * int(x[mine].min()) + int(x[mine].max()), before, x[first + 3]]
        out[:, i] = result
    return out


# *** reductions and scans ***


def affine(values: Array) -> Array:
    """The numbers of `Affine` in `collectives.py` for no value, the first, the first two, …."""
    m, c, collected = 1, 0, [7]
    for value in values:
        a, b = 2 * int(value) + 1, int(value) - 3
        m, c = m * a, c * a + b
        collected.append(m * 7 + c)
    return np.array([(n + (1 << 63)) % (1 << 64) - (1 << 63) for n in collected], np.int64)


def of_group(values: Array) -> list[Array | int]:
    """Sum, index of the largest, all, sums and all up to each, and up to the one before."""
    sums, steps = np.cumsum(values), affine(values)
    return [sums[-1], int(np.argmax(values)), steps[-1], sums, sums - values, steps[1:], steps[:-1]]


def of_warp(x: Array, lanes: int, block: int) -> Array:
    out = np.zeros((9, len(x)), np.int64)
    whole = x.astype(np.int64)
    for first, count in sorted(set(in_warps(x, block, lanes))):
        here = slice(first, first + count)
        values = whole[here]
        total, largest, everything, *scans = of_group(values)
        rows = [total, values.max(), largest, everything, *scans, values.min() * 100 + values.max()]
        for row, each in enumerate(rows):
            out[row, here] = each
    return out


def of_block(x: Array, block: int) -> Array:
    out = np.zeros((2, 8, x.shape[1]), np.int64)
    whole = x.astype(np.int64)
    for k in range(2):
        for first in range(0, x.shape[1], block):
            here = slice(first, first + block)
            values = whole[k, here]
            for row, each in enumerate([*of_group(values), values[0] * 4 + values[17]]):
                out[k, row, here] = each
    return out


def moments(x: Array) -> Array:
    sums = x.reshape(-1, 4)[:4].astype(np.float64)
    return np.array([x.mean(), x.var(), *(30 * sums.sum(axis=0))], np.float32)


def warp_case(dtype: Any, block: int) -> GpuCase:
    return GpuCase(
        f"collectives of a warp {np.dtype(dtype).name} {block}",
        "collectives.py",
        "collectives::of_warp",
        lambda: (numbers(dtype, 2 * block),),
        lambda x, lanes=32: of_warp(x, lanes, block),
        {"block": block},
        by_lanes=True,
    )


def block_case(dtype: Any, block: int) -> GpuCase:
    return GpuCase(
        f"collectives of a block {np.dtype(dtype).name} {block}",
        "collectives.py",
        "collectives::of_block",
        lambda: (numbers(dtype, 2, 2 * block),),
        lambda x: of_block(x, block),
        {"block": block},
    )


# *** asynchronous copies ***


def turned(x: Array, width: int) -> Array:
    n = 64 * width
    whole = np.zeros(-(-len(x) // n) * n, x.dtype)
    whole[: len(x) // width * width] = x[: len(x) // width * width]
    return whole.reshape(-1, n)[:, ::-1].reshape(-1)[: len(x)].copy()


def copied_case(dtype: Any, width: int, n: int) -> GpuCase:
    return GpuCase(
        f"async copies turned {np.dtype(dtype).name} {width} {n}",
        "async_copies.py",
        "async_copies::turned",
        lambda: (numbers(dtype, n),),
        lambda x: turned(x, width),
        {"width": width},
    )


SHUFFLED = (
    *(np.float64, np.uint64, ml_dtypes.bfloat16, np.float16, np.int8, np.bool_),
    ml_dtypes.float8_e4m3fn,
)


def shuffled_dtypes(*xs: Array, lanes: int) -> tuple[Array, ...]:
    rules: list[Callable[[int, int], int]] = [lambda k, i: k - 1, lambda k, i: (i * 7 + 3) % 40, lambda k, i: k ^ 16]
    return tuple(np.stack([moved(x, 64, lanes, rule) for rule in rules]) for x in xs)


CASES: tuple[GpuCase, ...] = (
    shuffle_case(np.float32, 64),
    shuffle_case(np.int32, 100),
    shuffle_case(np.int64, 20),
    exchange_case(np.int32, 64),
    exchange_case(np.int64, 128),
    exchange_case(np.float32, 48),
    GpuCase(
        "warps shuffle dtypes",
        "warps.py",
        "warps::shuffle_dtypes",
        lambda: tuple(numbers(dtype, 64, seed=k) for k, dtype in enumerate(SHUFFLED)),
        lambda *xs, lanes=32: shuffled_dtypes(*xs, lanes=lanes),
        by_lanes=True,
    ),
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
    GpuCase(
        "warps match",
        "warps.py",
        "warps::match",
        lambda: (numbers(np.int8, 160) // 4, numbers(np.int64, 160, seed=1) // 3 * (1 << 40)),
        lambda x, wide, lanes=32: matched(x, wide, lanes),
        by_lanes=True,
    ),
    GpuCase(
        "warps parted",
        "warps.py",
        "warps::parted",
        lambda: (numbers(np.int32, 128),),
        lambda x, lanes=32: parted(x, lanes),
        by_lanes=True,
    ),
    *(warp_case(dtype, block) for dtype, block in ((np.float32, 100), (np.int64, 20))),
    *(block_case(dtype, block) for dtype, block in ((np.int32, 64), (np.float16, 100))),
    GpuCase(
        "collectives moments",
        "collectives.py",
        "collectives::moments",
        lambda: (numbers(np.float32, 120),),
        moments,
        bound=1e-6,
    ),
    *(
        copied_case(dtype, width, n)
        for dtype, width, n in ((np.float32, 4, 512), (np.float32, 1, 100), (np.int8, 4, 300), (np.float64, 2, 129))
    ),
    copied_case(np.float16, 4, 258),
    GpuCase(
        "async copies pipeline",
        "async_copies.py",
        "async_copies::pipeline",
        lambda: (numbers(np.float32, 7, 128),),
        lambda x: x.sum(axis=0)[127:95:-1].copy(),
    ),
)
