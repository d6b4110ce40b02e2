"""The table of GPU test kernels, for code that runs GPU code: the interpreter, a CPU, a simulated GPU, an interpreter
of PTX, hardware. The kernels lie in `tests/gpu/kernels`, one file a subject, and in `examples/gpu`.

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_...(case: GpuCase) -> None:
        artifact = case.compile("sm_90a")     # where case.refusal("sm_90a") is None
        case.check(outputs, lanes=32)
"""

from __future__ import annotations

from support import (
    gpu_cases_bulk,
    gpu_cases_clusters,
    gpu_cases_elements,
    gpu_cases_examples,
    gpu_cases_groups,
    gpu_cases_library,
    gpu_cases_maps,
    gpu_cases_memory,
    gpu_cases_persistent,
    gpu_cases_puzzles,
    gpu_cases_roles,
    gpu_cases_scaled,
    gpu_cases_tiles,
    gpu_cases_views,
    gpu_cases_warps,
)
from support.gpu_case import GPUS, GpuCase

__all__ = ["CASES", "GPUS", "OTHER_ON_SM_75", "GpuCase"]

CASES: tuple[GpuCase, ...] = (
    *gpu_cases_memory.CASES,
    *gpu_cases_puzzles.CASES,
    *gpu_cases_warps.CASES,
    *gpu_cases_clusters.CASES,
    *gpu_cases_elements.CASES,
    *gpu_cases_library.CASES,
    *gpu_cases_examples.CASES,
    *gpu_cases_tiles.CASES,
    *gpu_cases_views.CASES,
    *gpu_cases_bulk.CASES,
    *gpu_cases_maps.CASES,
    *gpu_cases_roles.CASES,
    *gpu_cases_groups.CASES,
    *gpu_cases_persistent.CASES,
    *gpu_cases_scaled.CASES,
)
assert len({case.name for case in CASES}) == len(CASES), "two cases have one name"

# How the names of cases begin whose PTX for sm_75 may be another than that for sm_90a; `tests/gpu/test_cases.py` looks.
OTHER_ON_SM_75 = (
    *("atomic-combine", "warps shuffle int64", "warps shuffle parts", "warps parted", "collectives", "async copies"),
    *("doubled", "biased", "turned", "order", "running_back", "matmul", "attention", "softmax", "example"),
    *("tiles", "views", "puzzles", "bulk", "map", "groups", "persistent", "roles", "scaled", "best[int16-1200x2]"),
)
