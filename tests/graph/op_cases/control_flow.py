"""Cases of control flow: branches, loops and calls over tensors of any dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case, plain_numbers

from einkorn.graph import ops

N = [{"n": 3}, {"n": 0}, {"n": 17}]
FLOATS = [np.float32, np.float64, np.float16]


def chosen(pred: Any, x: Any) -> Any:
    return np.exp(x) if pred else -x


def halved(x: Any) -> Any:
    return [x * x.dtype.type(0.125), np.array(3)]


def kept(pred: Any, x: Any, y: Any) -> Any:
    """Only moves: any dtype."""
    return [x, y] if pred else [y, y]


def swapped(x: Any, y: Any, n: Any) -> list[Any]:
    return ops.while_loop((x, y, n), lambda x, y, n: n > 0, lambda x, y, n: [y, x, n - 1])


def swapped_by_numpy(x: Any, y: Any, n: Any) -> list[Any]:
    return [y, x, np.minimum(n, 0)] if n > 0 and n % 2 else [x, y, np.minimum(n, 0)]


def small(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    return np.array(seed % 3 + 3)


CASES = [
    case("cond", chosen, pred=T(dtype=np.bool_), x=T("n", make=plain_numbers), dtypes=[np.float64], sizes=N, ulps=4),
    case("cond", kept, pred=T(dtype=np.bool_), x=T("n", 2), y=T("n", 2), sizes=N,
         call=lambda pred, x, y: ops.cond(pred, [x.type, x.type], lambda: (x, y), lambda: (y, y))),
    case("while_loop", halved, x=T("n", make=plain_numbers), dtypes=FLOATS, sizes=N),
    case("while_loop", swapped_by_numpy, call=swapped, x=T("n", 2), y=T("n", 2), sizes=N,
         n=T(dtype=np.int64, make=small), dtypes=[np.float32, np.bool_, np.int8]),
    case("call", lambda x: x + x, x=T("n", make=plain_numbers), dtypes=FLOATS, sizes=N),
]  # fmt: skip
