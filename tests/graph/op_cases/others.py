"""Cases of irregular ops that are few in their files: literals, casts, products, extremes, kernels of the user's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from support.graphs import widely
from support.op_cases import T, case, plain_numbers

from einkorn.graph import DType, ops

KERNELS = str(Path(__file__).parents[1] / "buffer_kernels.py")
N = [{"n": 3, "m": 4}, {"n": 1, "m": 4}, {"n": 17, "m": 33}]


def product(lhs: Any, rhs: Any) -> Any:
    return np.matmul(lhs, rhs)


def added(y: Any, x: Any) -> Any:
    ops.inplace_custom("axpy_into", y.device, [y, 2.0, x])
    return ops.buffer_load(y)


BIAS = np.float32([1, -2, 3, 0.5])

CASES = [
    case("constant_external", lambda: BIAS, weights={"layer.bias": BIAS}, dtypes=[np.float32]),
    case("constant", lambda: np.array([[1, 2], [3, 4]], np.float32), dtypes=[np.float32]),
    case("cast", lambda x: x.astype(np.float16), x=T("n", make=plain_numbers), sizes=[*N, {"n": 0, "m": 0}]),
    case(
        "matmul",
        widely(product),
        lhs=T("n", "m", make=plain_numbers),
        rhs=T("m", 5, make=plain_numbers),
        sizes=[*N, {"n": 0, "m": 3}, {"n": 3, "m": 0}],
    ),
    case(
        "matmul",
        widely(product),
        call=ops.matmul,
        sizes=N,
        lhs=T(2, "n", "m", make=plain_numbers),
        rhs=T("m", make=plain_numbers),
    ),
    case(
        "bitcast",
        lambda x: x.view(np.int32),
        x=T("n", "m"),
        sizes=[*N, {"n": 0, "m": 0}],
        dtypes=[np.float32, np.uint32],
    ),
    case(
        "bitcast",
        lambda x: x.view(np.uint8),
        x=T("n"),
        sizes=N,
        dtypes=[np.int8],
        call=lambda x: ops.bitcast(x, DType.uint8),
    ),
    case(
        "custom",
        lambda x: x.sum(1, dtype=x.dtype),
        x=T("n", "m", make=plain_numbers),
        sizes=N,
        extensions=KERNELS,
        dtypes=[np.int32],
        views=False,
    ),
    case(
        "inplace_custom",
        lambda y, x: y + 2 * x,
        call=added,
        extensions=KERNELS,
        dtypes=[np.float32, np.float64],
        views=False,
        sizes=N,
        y=T("n", buffer=True, make=plain_numbers),
        x=T("n", make=plain_numbers),
    ),
    *(
        made
        for name in ("max", "min")
        for made in (
            case(name, lambda x, name=name: getattr(np, name)(x, 0, keepdims=True), x=T("n", "m"), sizes=N),
            case(name, getattr(np, f"{name}imum"), call=getattr(ops, name), x=T("n", "m"), y=T("n", "m"), sizes=N),
        )
    ),
]
