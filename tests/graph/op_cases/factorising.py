"""Cases of what factorises matrices. Factors that are not unique are multiplied again."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops

N = [{"n": 4, "k": 2}, {"n": 1, "k": 3}, {"n": 0, "k": 2}, {"n": 9, "k": 0}]
RECTANGLES = [{"m": 5, "n": 3}, {"m": 1, "n": 4}, {"m": 3, "n": 0}, {"m": 2, "n": 7}]
FLOATS = [np.float32, np.float64]
ULPS = 1 << 10


def regular(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    """Matrices whose diagonals are larger than the rest of a row."""
    x = np.random.default_rng(seed).uniform(0.5, 1, shape)
    return (x + 2 * shape[-1] * np.eye(shape[-1])).astype(dtype)


def positive(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    x = regular(shape, dtype, sizes, seed)
    return x + np.swapaxes(x, -1, -2)


def numbers(shape: Any, dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(1, 2, shape).astype(dtype)


def product(x: Any) -> Any:
    q, r = ops.qr(x)
    return ops.matmul(q, r)


def spectrum(x: Any) -> Any:
    values, vectors = ops.eigh(x)
    return [values, ops.matmul(ops.mul(vectors, ops.unsqueeze(values, -2)), vectors.transpose(-1, -2))]


def values(x: Any) -> Any:
    u, s, v = ops.svd(x)
    return ops.matmul(ops.mul(u, ops.unsqueeze(s, -2)), v)


CASES = [
    case("solve", np.linalg.solve, a=T("n", "n", make=regular), b=T("n", "k", make=numbers), sizes=N, dtypes=FLOATS,
         ulps=ULPS),
    case("solve", lambda a, b: np.linalg.solve(a, b[:, :, None])[..., 0],
         call=lambda a, b: ops.squeeze(ops.solve(a, ops.unsqueeze(b, -1)), -1),
         a=T(3, "n", "n", make=regular), b=T(3, "n", make=numbers), sizes=N, dtypes=FLOATS, ulps=ULPS),
    case("det", np.linalg.det, x=T(2, "n", "n", make=regular), sizes=N, dtypes=FLOATS, ulps=ULPS),
    case("slogdet", lambda x: list(np.linalg.slogdet(x)), x=T("n", "n", make=regular), sizes=N, dtypes=FLOATS,
         ulps=ULPS),
    case("cholesky", np.linalg.cholesky, x=T(2, "n", "n", make=positive), sizes=N, dtypes=FLOATS, ulps=ULPS),
    case("cholesky", lambda x: np.linalg.cholesky(x).T, call=lambda x: ops.cholesky(x, upper=True),
         x=T("n", "n", make=positive), sizes=N, dtypes=FLOATS, ulps=ULPS),
    case("qr", lambda x: x, call=product, x=T("m", "n", make=numbers), sizes=RECTANGLES, dtypes=FLOATS, ulps=ULPS),
    case("eigh", lambda x: [np.linalg.eigvalsh(x), x], call=spectrum, x=T("n", "n", make=positive), sizes=N,
         dtypes=FLOATS, ulps=ULPS),
    case("svd", lambda x: x, call=values, x=T("m", "n", make=numbers), sizes=RECTANGLES, dtypes=FLOATS, ulps=ULPS),
]  # fmt: skip
