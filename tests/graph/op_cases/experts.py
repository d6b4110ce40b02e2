"""Cases of mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case, with_kernel

from einkorn.graph import ops

SIZES = [{"n": 12}, {"n": 1}, {"n": 0}]


def experts(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    collected = np.random.default_rng(seed).integers(0, 4, shape)
    collected[collected == 2] = 1  # an expert without tokens
    return collected


def order(ids: Any) -> Any:
    flat = ids.reshape(-1)
    result = np.argsort(flat, kind="stable")
    starts = np.searchsorted(flat[result], np.arange(5))
    return [x.astype(np.int32) for x in (result, starts, np.argsort(result, kind="stable"))]


def starts(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    n = sizes["n"]
    return np.array([0, n // 3, n // 3, n // 2, n])


def numbers(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


CASES = [
    case("moe_create_indices", order, sizes=SIZES, dtypes=[np.int64, np.int32, np.uint8],
         topk_ids=T("n", 2, make=experts)),
    case("grouped_matmul_ragged", with_kernel("moe", "grouped_matmul_ragged"), sizes=SIZES, ulps=512,
         hidden_states=T("n", 20, make=numbers), weight=T(4, 9, 20, make=numbers),
         starts=T(5, dtype=np.int64, make=starts, of="expert_start_indices"),
         call=lambda x, w, s: ops.grouped_matmul_ragged(x, w, s)),
]  # fmt: skip
