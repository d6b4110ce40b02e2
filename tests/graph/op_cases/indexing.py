"""Cases of slices."""

from __future__ import annotations

import numpy as np
from support.op_cases import T, case

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
    case("split", lambda x: [x[..., :1], x[..., 1:]], x=T("n", 4), sizes=[*N, {"n": 0}]),
    case("chunk", lambda x: np.split(x, 2, 1), x=T("n", 4), sizes=[*N, {"n": 0}]),
]
