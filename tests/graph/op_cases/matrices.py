"""Cases of bands, triangles and outer products."""

from __future__ import annotations

import numpy as np
from support.op_cases import T, case, plain_numbers

from einkorn.graph import ops

N = [{"n": 5, "m": 4}, {"n": 1, "m": 7}, {"n": 0, "m": 3}, {"n": 33, "m": 17}]

CASES = [
    case("band_part", lambda x: np.tril(np.triu(x, -1)), x=T("n", "m"), sizes=N),
    case("band_part", lambda x: np.triu(x, -2), call=lambda x: ops.band_part(x, 2), x=T(2, "n", "m"), sizes=N),
    case("band_part", lambda x: np.triu(x, -1), call=lambda x: ops.band_part(x, 1, -1), x=T("n", "m"), sizes=N),
    case("band_part", np.triu, call=lambda x: ops.band_part(x, 0, -1), x=T(3, 4), sizes=N),
    case(
        "band_part",
        lambda x: np.triu(x, 1),
        call=lambda x: ops.band_part(x, None, 0, exclude=True),
        x=T("n", "m"),
        sizes=N,
    ),
    case("tril", lambda x: np.tril(x, -1), x=T("n", "m"), sizes=N),
    case("triu", lambda x: np.triu(x, 1), x=T(2, "n", "m"), sizes=N),
    case("trilu", lambda x: np.tril(x, 1), x=T("n", "m"), sizes=N),
    case("trilu", np.triu, call=ops.trilu, x=T("n", "m"), sizes=N),
    case(
        "outer",
        lambda x, y: np.outer(x.reshape(-1), y.reshape(-1)),
        sizes=N,
        lhs=T("n", 2, make=plain_numbers),
        rhs=T("m", make=plain_numbers),
    ),
]
