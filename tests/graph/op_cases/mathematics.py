"""Cases of bounds."""

from __future__ import annotations

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops

SIZES = [{"m": 3, "n": 5}, {"m": 1, "n": 1}, {"m": 0, "n": 4}]

CASES = [
    case("clamp", lambda x, a, b: np.minimum(np.maximum(x, a), b), x=T("m", "n"), min=T("n"), max=T("m", 1),
         sizes=SIZES),
    case("clamp", lambda x, a: np.maximum(x, a), call=lambda x, min: ops.clamp(x, min), x=T("m", "n"), min=T("n"),
         sizes=SIZES),
    case("clip", lambda x, a, b: np.minimum(np.maximum(x, a), b), x=T("m", "n"), min=T("n"), max=T("m", 1),
         sizes=SIZES),
    case("clip", lambda x, b: np.minimum(x, b), call=lambda x, max: ops.clip(x, max=max), x=T("m", "n"), max=T(),
         sizes=SIZES),
]  # fmt: skip
