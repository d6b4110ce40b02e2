"""GPU test kernels of clusters of blocks."""

from __future__ import annotations

import numpy as np
from support.gpu_case import Array, GpuCase, numbers

CLUSTERS = {"clusters": "EK0611"}


def _turned(x: Array, blocks: int) -> Array:
    kept = x.reshape(-1, blocks, 48)
    for _ in range(2):
        got = np.roll(kept, -1, axis=1)[:, :, ::-1]
        kept = got + got.reshape(*got.shape[:2], 24, 2)[..., ::-1].reshape(got.shape)
    return kept.reshape(-1).astype(np.int32)


def _ring(blocks: int, clusters: int) -> GpuCase:
    return GpuCase(
        f"clusters ring[{blocks}]",
        "clusters.py",
        "clusters::ring",
        lambda: (numbers(np.int32, 48 * blocks * clusters, seed=blocks),),
        lambda x: _turned(x, blocks),
        {"blocks": blocks},
        needs=CLUSTERS,
    )


def _counted(x: Array) -> Array:
    return np.stack([np.bincount(part, minlength=64) for part in x.reshape(-1, 128)]).astype(np.int32)


def _numbered() -> Array:
    y, x, rank = np.meshgrid(np.arange(2), np.arange(4), np.arange(4), indexing="ij")
    return 10 * (y // 2 * 2 + rank // 2) + x // 2 * 2 + rank % 2


CASES = (
    _ring(2, 1),
    _ring(4, 2),
    GpuCase(
        "clusters histogram",
        "clusters.py",
        "clusters::histogram",
        lambda: (np.random.default_rng(1).integers(0, 64, 256).astype(np.int32),),
        _counted,
        needs=CLUSTERS,
    ),
    GpuCase("clusters square", "clusters.py", "clusters::square", tuple, _numbered, needs=CLUSTERS),
    GpuCase(
        "clusters alone",
        "clusters.py",
        "clusters::alone",
        lambda: (numbers(np.int32, 64),),
        lambda x: x.reshape(-1, 32)[:, ::-1].reshape(-1).copy(),
    ),
)
