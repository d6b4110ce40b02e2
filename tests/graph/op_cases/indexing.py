"""Cases of slices."""

from __future__ import annotations

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops

N = [{"n": 3}, {"n": 1}, {"n": 33}]

CASES = [
    case("slice_tensor", lambda x: x[1:, ..., None, -1], x=T("n", 4), sizes=N),
    case(
        "slice_tensor",
        lambda x: x[::-1, ::2],
        call=lambda x: x[::-1, ::2],
        x=T("n", "m"),
        sizes=[{"n": 5, "m": 4}, {"n": 0, "m": 3}, {"n": 3, "m": 0}],
    ),
    case(
        "slice_tensor",
        lambda x: [x[len(x) // 2 :], x[:, x.shape[1] - 3 :], x[len(x) // 2], x[len(x) - 1, :-1], x[:: len(x)]],
        call=lambda x: [
            x[x.shape[0] // 2 :],
            x[:, x.shape[1] - 3 :],
            x[x.shape[0] // 2],
            x[x.shape[0] - 1, :-1],
            x[:: x.shape[0]],
        ],
        x=T("n", "m"),
        sizes=[{"n": 5, "m": 4}, {"n": 1, "m": 3}, {"n": 40, "m": 33}],
    ),
    case(
        "slice_tensor",
        lambda x, k, low: [x[k], x[low:k], x[:, :low, 1], x[k:low:-2], x[:low:-1, ..., 0], x[2:k]],
        call=lambda x, k, low: [
            x[k],
            x[(slice(low, k), "a")],
            x[:, (slice(None, low), "b"), 1],
            x[(slice(k, low, -2), "c"), ...],
            x[(slice(None, low, -1), "d"), ..., 0],
            x[[(slice(2, k), 2)]],
        ],
        x=T("n", "n", 3),
        k=T(dtype=np.int64, make=lambda shape, dtype, sizes, seed: np.array(4)),
        low=T(dtype=np.int8, make=lambda shape, dtype, sizes, seed: np.array([1, -2, 0][seed % 3])),
        sizes=[{"n": 5}, {"n": 6}, {"n": 33}],
        alone=True,
    ),
    case("split", lambda x: [x[..., :1], x[..., 1:]], x=T("n", 4), sizes=[*N, {"n": 0}]),
    case("chunk", lambda x: np.split(x, 2, 1), x=T("n", 4), sizes=[*N, {"n": 0}]),
    case("split", lambda x: [x[:4], x[4:8], x[8:]], call=lambda x: ops.split(x, 4), x=T(9, "n"), sizes=N),
    case(
        "split",
        lambda x: [x[:2], x[2 : len(x) - 1], x[-1:]],
        call=lambda x: ops.split(x, [2, x.shape[0] - 3, 1]),
        x=T("n", 2),
        sizes=[{"n": 3}, {"n": 7}],
    ),
]
