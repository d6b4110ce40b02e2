"""Cases of random numbers: their references compute the same Philox in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case

from einkorn.graph import DType, TensorType, ops
from einkorn.stdlib.kernels.random import normal_reference, uniform_reference

SIZES = [{"m": 3, "n": 7}, {"m": 1, "n": 1}, {"m": 0, "n": 4}, {"m": 33, "n": 65}]
FLOATS = [np.float32, np.float64, np.float16]


def seeded(function: Any) -> Any:
    """The numbers of seed 7, whatever was drawn before."""

    def call(*values: Any) -> Any:
        ops.random.set_seed(7)
        return function(*values)

    return call


def draw(x: Any) -> Any:
    wide = np.float64 if x.dtype == np.float64 else np.float32
    return uniform_reference(x.size, wide, 7, 0, 0, 1).reshape(x.shape)


def dropped(x: Any) -> Any:
    return np.where(draw(x) < 0.25, x.dtype.type(0), x * x.dtype.type(1 / 0.75))


CASES = [
    case("random.set_seed", lambda: uniform_reference(5, np.float32, 9, 0, 0, 1), dtypes=[np.int64],
         call=lambda: [ops.random.set_seed(9), ops.random.uniform([5])][1]),
    case("random.set_seed", lambda s: uniform_reference(5, np.float32, s, 0, 0, 1), dtypes=[np.int64],
         call=lambda value: [ops.random.set_seed(value), ops.random.uniform([5])][1], value=T(dtype=np.int64)),
    case("random.seed", lambda: np.int64(-1), dtypes=[np.int64],
         call=lambda: [ops.random.set_seed((1 << 64) - 1), ops.random.seed()][1]),
    case("random.uniform", lambda: uniform_reference(6, np.float32, 7, 0, 0, 1).reshape(2, 3), dtypes=[np.float32],
         call=seeded(lambda: ops.random.uniform((2, 3)))),
    case("random.uniform", lambda x: uniform_reference(x.size, np.float64, 7, 0, -2, 3).reshape(x.shape),
         dtypes=[np.float64], x=T("m", "n"), sizes=SIZES, ulps=2,
         call=seeded(lambda x: ops.random.uniform(x.type, range=(-2, 3)))),
    case("random.uniform", lambda: uniform_reference(300, np.float16, 7, 0, 0, 1), dtypes=[np.float32],
         call=seeded(lambda: ops.random.uniform([300], dtype=DType.float16))),
    case("random.gaussian", lambda: normal_reference(1, np.float32, 7, 0, 50, 1)[0], dtypes=[np.float32], ulps=4,
         call=seeded(lambda: ops.random.gaussian(mean=50))),
    case("random.normal", lambda x: normal_reference(x.size, np.float32, 7, 0, 50, 2).reshape(x.shape), ulps=4,
         dtypes=[np.float32], x=T("m", "n"), sizes=SIZES, call=seeded(lambda x: ops.random.normal(x.shape, 50, std=2))),
    case("random.normal", lambda: normal_reference(400, np.float64, 7, 1, 50, 2), ulps=4, dtypes=[np.float32],
         call=seeded(lambda: [ops.random.uniform(), ops.random.normal(TensorType(DType.float64, [400]), 50, 2)][1])),
    case("random.bernoulli", lambda p: draw(p) < p, call=seeded(ops.random.bernoulli), probability=T("m", "n"),
         sizes=SIZES, dtypes=FLOATS),
    case("random.dropout", dropped, call=seeded(lambda x: ops.random.dropout(x, p=0.25)), x=T("m", "n"),
         sizes=SIZES, dtypes=FLOATS),
]  # fmt: skip
