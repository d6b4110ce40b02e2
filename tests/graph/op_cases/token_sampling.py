"""Cases of choosing tokens; `tests/graph/test_token_sampling.py` draws many, and compares frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops

ROWS = [{"r": 3}, {"r": 1}, {"r": 0}]


def numbers(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tokens(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).integers(-1, 17, shape)


def greedy(x: Any) -> Any:
    best = x.argmax(-1)
    wide = x.astype(np.float64)
    total = np.log(np.exp(wide).sum(-1))
    return [best.astype(np.int32), (np.take_along_axis(wide, best[:, None], -1)[:, 0] - total).astype(np.float32)]


def penalized(x: Any, history: Any) -> Any:
    result = x.astype(np.float32)
    for row, earlier in zip(result, history, strict=True):
        for token in set(earlier[earlier >= 0].tolist()):
            row[token] = row[token] / np.float32(1.5) if row[token] > 0 else row[token] * np.float32(1.5)
            row[token] -= (earlier == token).sum().astype(np.float32) * np.float32(0.25) + np.float32(0.5)
    return result.astype(x.dtype)


CASES = [
    case("sample_tokens", greedy, sizes=ROWS, ulps=256, logits=T("r", 17, make=numbers),
         call=lambda x: ops.sample_tokens(x, temperature=0)),
    case("penalize_tokens", penalized, sizes=ROWS, ulps=4, logits=T("r", 17, make=numbers),
         history=T("r", 6, dtype=np.int64, make=tokens),
         call=lambda x, h: ops.penalize_tokens(x, h, 1.5, 0.25, 0.5)),
]  # fmt: skip
