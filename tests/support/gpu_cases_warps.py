"""GPU test kernels of warps, blocks and asynchronous copies."""

from __future__ import annotations

from support.gpu_case import GpuCase

CASES: tuple[GpuCase, ...] = ()
