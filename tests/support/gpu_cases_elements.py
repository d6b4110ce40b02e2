"""GPU test kernels of the language's own loops: `foreach`, and what the standard library makes of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32 = np.float32


def _doubled(dtype: Any, n: int) -> GpuCase:
    """More elements than are worth wide threads, with and without some that are left over."""
    name = f"doubled[{np.dtype(dtype).name}-{n}]"
    return GpuCase(name, "elements.py", "elements::doubled", lambda: (numbers(dtype, n),), lambda x: x + x)


def _biased(m: int, n: int) -> GpuCase:
    return GpuCase(
        f"biased[{m}x{n}]",
        "elements.py",
        "elements::biased",
        lambda: (numbers(F32, m, n, seed=1), numbers(F32, n, seed=2)),
        lambda x, bias: x + bias,
    )


def _turned(*shape: int) -> GpuCase:
    return GpuCase(
        f"turned{shape}",
        "elements.py",
        "elements::turned",
        lambda: (numbers(np.int16, *shape),),
        lambda x: np.ascontiguousarray(x.transpose(2, 1, 0)),
    )


def _running(x: Array) -> Array:
    """Along the last axis, p -> 3 * p + value for each value, beginning with 0."""
    states = np.empty_like(x)
    state = np.zeros(x.shape[:-1], np.int32)
    for k in range(x.shape[-1]):
        states[..., k] = state = state * np.int32(3) + x[..., k]
    return states


def _affine(x: Array) -> Array:
    return _running(x)[..., -1].copy()


def _rows(op: str, reference: Any, *arrays: Any, bound: float = 0.0) -> GpuCase:
    """`arrays` are (dtype, sizes...) of each input."""

    def inputs() -> tuple[Array, ...]:
        return tuple(numbers(dtype, *shape, seed=k) for k, (dtype, *shape) in enumerate(arrays))

    sizes = "-".join("x".join(map(str, shape)) for _, *shape in arrays)
    name = f"{op}[{np.dtype(arrays[0][0]).name}-{sizes}]"
    return GpuCase(name, "rows.py", f"rows::{op}", inputs, reference, bound=bound)


def _summed(axis: int) -> Any:
    return lambda x: np.sum(x, axis, dtype=x.dtype)


def _extremes(x: Array) -> tuple[Array, ...]:
    return np.argmax(x, 1), np.max(x, 1)


def _exponents(x: Array, weights: Array) -> Array:
    return np.logaddexp.reduce((x * weights).astype(np.float64), -1).astype(F32)  # type: ignore[no-any-return]


def _running_back(x: Array) -> Array:
    return np.cumsum(x[:, ::-1], 1)[:, ::-1] - x  # type: ignore[no-any-return]


def _best(x: Array) -> tuple[Array, ...]:
    places = np.argsort(-x.astype(np.float64), 0, kind="stable")[:3]
    return np.take_along_axis(x, places, 0), places.astype(np.int32)


I32 = np.int32
ROWS = (
    *(_rows("sum", _summed(1), (F32, *shape)) for shape in ((9, 1000), (2, 1025), (1, 20000))),
    _rows("several", _extremes, (F32, 9, 77)),
    _rows("variance", lambda x: np.var(x, 1), (F32, 9, 333), bound=1e-6),
    _rows("affine", _affine, (I32, 9, 100)),
    _rows("affine", _affine, (I32, 2, 1500)),
    _rows("affine_columns", lambda x: _affine(x.T), (I32, 70, 35)),
    _rows("column_sum", _summed(1), (F32, 2, 300, 33)),
    _rows("total", lambda x: np.sum(x, keepdims=True)[0], (F32, 40, 50)),
    *(_rows("running", _running, (I32, *shape)) for shape in ((9, 77), (2, 1100))),
    *(_rows("running_back", _running_back, (F32, *shape)) for shape in ((9, 77), (2, 1100))),
    _rows("best", _best, (F32, 100, 5)),
    _rows("best", _best, (np.int16, 1200, 2)),
    _rows("order", lambda x: np.argsort(-x, 1, kind="stable"), (F32, 3, 290)),
    _rows("exponents", _exponents, (F32, 5, 200), (F32, 200), bound=1e-6),
)
CASES = (
    *(_doubled(dtype, 16397) for dtype in (F32, np.float16, np.int8, np.float64)),
    *(_biased(m, n) for m, n in ((17, 1000), (33, 501))),
    _turned(32, 11, 48),
    *ROWS,
)
