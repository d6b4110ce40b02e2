"""Cases of taking elements by indices."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, any_numbers, case, places

from einkorn.graph import ops

N = [{"n": 5, "m": 4, "k": 3}, {"n": 1, "m": 1, "k": 7}, {"n": 3, "m": 4, "k": 0}, {"n": 33, "m": 17, "k": 40}]


def sparse(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    """About half of the elements are zeros."""
    array = any_numbers(shape, dtype, sizes, seed)
    return np.where(np.random.default_rng(seed).integers(0, 2, shape), array, np.zeros((), dtype))


def batched(x: Any, indices: Any) -> Any:
    return x[np.arange(len(x))[:, None], indices[..., 0]]


CASES = [
    case("gather", lambda x, i: np.take(x, i, 0), input=T("n", "m"), indices=places("k", below="n"), sizes=N),
    case(
        "gather",
        lambda x, i: np.take(x, i.astype(np.int64), 1),
        input=T(2, "n", "m"),
        sizes=N,
        indices=places(2, "k", below="n", dtype=np.uint8),
        call=lambda x, i: ops.gather(x, i, -2),
    ),
    case(
        "gather",
        lambda x, i: np.take(x, i, 1),
        input=T("k", "n"),
        indices=places(below="n", dtype=np.int16),
        sizes=N,
        call=lambda x, i: ops.gather(x, i, 1),
    ),
    case(
        "gather",
        lambda x: x[:, [0, -1]],
        input=T("k", "n"),
        call=lambda x: ops.gather(x, np.array([0, -1]), 1),
        sizes=N,
    ),
    case(
        "take_along_axis",
        lambda x, i: np.take_along_axis(x, i, 1),
        x=T("k", "n"),
        indices=places("k", "m", below="n"),
        sizes=N,
    ),
    case(
        "take_along_axis",
        lambda x, i: np.take_along_axis(x[:, :1], i.astype(np.int64), 0),
        x=T("n", "m"),
        sizes=N,
        indices=places("k", 1, below="n", dtype=np.int32),
        call=lambda x, i: ops.take_along_axis(x, i, axis=0),
    ),
    case("gather_nd", batched, input=T("k", "n", "m"), indices=places("k", 6, 1, below="n"), sizes=N),
    case(
        "gather_nd",
        lambda x, i: x[i[..., 0], i[..., 1]],
        input=T("n", "n", "m"),
        indices=places("k", 2, below="n"),
        sizes=N,
        call=ops.gather_nd,
    ),
    case(
        "gather_nd",
        lambda x, i: x[i[..., 0], i[..., 1]],
        input=T("n", "n"),
        indices=places(2, "k", 2, below="n"),
        sizes=N,
        call=ops.gather_nd,
    ),
    case(
        "gather_nd",
        lambda x, i: np.stack([x] * len(i)) if len(i) else np.zeros((0, *x.shape), x.dtype),
        input=T("m"),
        indices=places("k", 0, below="n"),
        sizes=N,
        call=ops.gather_nd,
    ),
    case("nonzero", np.argwhere, x=T("n", "k", make=sparse), sizes=N, alone=True),
    case(
        "nonzero",
        np.argwhere,
        x=T("n", 2, "k", 3, make=sparse),
        alone=True,
        dtypes=[np.float64],
        sizes=[*N, {"n": 300, "k": 200}],
        call=lambda x: ops.nonzero(x, "hits"),
    ),
    case(
        "nonzero",
        lambda x: np.argwhere(np.atleast_1d(x))[:, :0],
        x=T(),
        alone=True,
        dtypes=[np.int8],
        call=lambda x: ops.nonzero(x, "one"),
    ),
]
