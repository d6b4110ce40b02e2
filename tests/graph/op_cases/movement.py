"""Cases of the ops of shapes and axes."""

from __future__ import annotations

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops

N = [{"n": 3, "m": 4}, {"n": 0, "m": 4}, {"n": 2, "m": 0}, {"n": 17, "m": 33}]

CASES = [
    case("reshape", lambda x: x.reshape(-1, 2), x=T("n", 4), sizes=N),
    case("reshape", lambda x: x.reshape(()), x=T(1, 1), call=lambda x: ops.reshape(x, [])),
    case("flatten", lambda x: x.reshape(x.shape[0], x.shape[1] * 2), x=T("n", "m", 2), sizes=N[:2]),
    case("flatten", lambda x: x.reshape(1), x=T(), call=ops.flatten),
    case("squeeze", lambda x: x[:, 0], x=T("n", 1), sizes=N),
    case("unsqueeze", lambda x: x[:, None], x=T("n"), sizes=N),
    case("permute", lambda x: x.transpose(2, 0, 1), x=T("n", "m", 2), sizes=N),
    case("transpose", lambda x: x.swapaxes(-1, -2), x=T(2, "n", "m"), sizes=N),
    case("broadcast_to", lambda x: np.broadcast_to(x, (3, *x.shape[:1], 4)), x=T("n", 1), sizes=N, alone=True),
    case(
        "broadcast_to",
        lambda x, s: np.broadcast_to(x, s),
        x=T("n", 1),
        shape=T(3, dtype=np.int32, make=lambda shape, dtype, sizes, seed: np.array([2, sizes["n"], 5])),
        call=lambda x, s: ops.broadcast_to(x, s, out_dims=["rows", "n", 5]),
        sizes=N,
        alone=True,
    ),
    case(
        "concat",
        lambda x, y: np.concatenate([x, y], 1),
        sizes=N,
        x=T("n", "m", of="original_vals"),
        y=T("n", 2, of="original_vals"),
    ),
    case(
        "broadcast_to",
        lambda x, s: np.broadcast_to(x, s),
        x=T("n", 1),
        shape=T(3, dtype=np.int32, make=lambda shape, dtype, sizes, seed: np.array([2, sizes["n"], 5])),
        call=lambda x, s: ops.broadcast_to(x, s, out_dims=["rows", "n", 5]),
        sizes=N,
        alone=True,
    ),
    case(
        "concat",
        lambda x, y: np.concatenate([x, y, x]),
        call=lambda x, y: ops.concat([x, y, x]),
        sizes=N,
        x=T("n", "m", of="original_vals"),
        y=T(2, "m", of="original_vals"),
    ),
    case("stack", lambda x, y: np.stack([x, y], -1), sizes=N, x=T("n", "m", of="values"), y=T("n", "m", of="values")),
    case("rebind", lambda x: x, x=T("n", "k"), sizes=[{"n": n, "k": n} for n in (3, 0, 17)], alone=True),
    case("transfer_to", lambda x: x, x=T("n"), sizes=N),
]
