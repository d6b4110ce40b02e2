"""Cases of sequences, tensors of one number, indicators and sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case, places

from einkorn.graph import DType, ops

N = [{"n": 5, "m": 4}, {"n": 1, "m": 7}, {"n": 0, "m": 3}, {"n": 33, "m": 17}]
ONE = [np.float32]


def number(value: Any) -> Any:
    return lambda shape, dtype, sizes, seed: np.array(value)


def rows(indices: Any, depth: int = 4) -> Any:
    wide = indices.astype(np.int64)[..., None]
    return (np.where(wide < 0, wide + depth, wide) == np.arange(depth)).astype(np.float32)


CASES = [
    case("shape_to_tensor", lambda: np.array([2, 3]), dtypes=ONE),
    case(
        "shape_to_tensor",
        lambda x: np.array([x.shape[0], 3, x.shape[1] * 2 + 1, x.size]),
        x=T("n", "m"),
        sizes=N,
        dtypes=ONE,
        call=lambda x: ops.shape_to_tensor([x.shape[0], 3, x.shape[1] * 2 + 1, x.shape.num_elements]),
    ),
    case("range", lambda: np.arange(0, 10, 2, np.int32), dtypes=ONE),
    *(
        case(
            "range",
            lambda a=a, t=t: np.arange(*a, dtype=t).astype(t),
            dtypes=ONE,
            call=lambda a=a, t=t: ops.range(*a, dtype=DType.from_numpy(np.dtype(t))),
        )
        for a, t in (
            ((3, -8, -3), np.int8),
            ((1, 1), np.int64),
            ((0, 1, 0.1), np.float64),
            ((5.5, -2, -0.5), np.float16),
            (((1 << 64) - 5, (1 << 64) - 1), np.uint64),
        )
    ),
    case(
        "range",
        lambda x: np.arange(1, x.shape[0] + 1, 2, dtype=np.float32),
        x=T("n"),
        sizes=N,
        dtypes=ONE,
        call=lambda x: ops.range(1, x.shape[0] + 1, 2),
    ),
    case(
        "range",
        lambda x: np.arange(x.shape[0], -1, -2),
        x=T("n"),
        sizes=N,
        dtypes=ONE,
        call=lambda x: ops.range(x.shape[0], -1, -2, dtype=DType.int64),
    ),
    case(
        "range",
        lambda a, b: np.arange(a, b, 3, np.int32),
        sizes=N,
        alone=True,
        dtypes=ONE,
        a=T(dtype=np.int32, make=number(-4)),
        b=T(dtype=np.int32, make=number(11)),
        call=lambda a, b: ops.range(a, b, 3, out_dim="count"),
    ),
    case(
        "range",
        lambda a, b: np.arange(2, a, b, np.float32),
        sizes=N,
        alone=True,
        dtypes=ONE,
        a=T(dtype=np.float32, make=number(-1)),
        b=T(dtype=np.float32, make=number(-0.25)),
        call=lambda a, b: ops.range(2, a, b, out_dim=12),
    ),
    case("arange", lambda: np.arange(0, 10, 2, np.int32), dtypes=ONE),
    case("full", lambda: np.full((2, 3), 0.5, np.float32), dtypes=ONE),
    case(
        "full",
        lambda x, v: np.full((x.size, 2), v),
        x=T("n"),
        v=T(),
        call=lambda x, v: ops.full([x.shape[0], 2], v),
        sizes=N,
    ),
    case("zeros", lambda: np.zeros((2, 3), np.float32), dtypes=ONE),
    case("ones", lambda: np.ones((2, 3), np.float32), dtypes=ONE),
    case(
        "full_like",
        lambda x: np.full(x.shape, 1 if x.dtype == np.bool_ else 2).astype(x.dtype),
        x=T("n", "m"),
        sizes=N,
        dtypes=[np.float32, np.int8, np.float16],
    ),
    case("zeros_like", lambda x: np.zeros(x.shape, x.dtype), x=T("n", "m"), sizes=N),
    case("ones_like", lambda x: np.ones(x.shape, np.bool_), x=T("n", "m"), sizes=N),
    case("one_hot", rows, indices=places("n", below=6), sizes=N, dtypes=ONE),
    case(
        "one_hot",
        lambda i, v: np.moveaxis(np.where(rows(i, i.shape[1]) == 1, v, 9), -1, 1),
        sizes=N,
        dtypes=ONE,
        indices=places("n", "m", below=6, dtype=np.int8),
        v=T(dtype=np.int16, make=number(-3)),
        call=lambda i, v: ops.one_hot(i, i.shape[1], 1, v, 9, DType.int16),
    ),
]
