"""GPU test kernels of `LayoutTensor`."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import Array, GpuCase, numbers

F32, F64 = np.float32, np.float64
BF16: Any = ml_dtypes.bfloat16


def _case(
    op: str, dtype: Any, shapes: tuple[tuple[int, ...], ...], reference: Any, bound: float = 0.0, **params: Any
) -> GpuCase:
    sizes = "-".join("x".join(map(str, shape)) for shape in shapes)
    name = f"views-{op}[{np.dtype(dtype).name}-{sizes}{''.join(f'-{v}' for v in params.values())}]"

    def inputs() -> tuple[Array, ...]:
        return tuple(numbers(dtype, *shape, seed=seed) for seed, shape in enumerate(shapes))

    return GpuCase(name, "views.py", f"views::{op}", inputs, reference, params, bound=bound, heavy=True)


def _same(x: Array) -> Array:
    return x


def _turned(x: Array) -> Array:
    return x.swapaxes(1, 2).copy()


def _product(a: Array, b: Array) -> Array:
    return (a.astype(F64) @ b.astype(F64)).astype(a.dtype)


def _product_turned(a: Array, b: Array) -> Array:
    return _product(a, b.T)


def _shapes(x: Array) -> Array:
    kept = x.reshape(4, 8).copy()
    kept[1:3, 4:6] = 7
    rows = [kept.ravel(), kept.ravel().reshape(8, 4).T.ravel(), kept.ravel() * 2, np.full(32, 8 + 8 + 32, x.dtype)]
    return np.stack(rows).astype(x.dtype)


CASES = (
    _case("copied", F32, ((32, 48),), _same),
    _case("copied", F32, ((33, 37),), _same, width=4),
    _case("copied", np.int8, ((20, 16),), _same, width=4, block=64),
    _case("copied", F64, ((17, 18),), _same, width=2),
    _case("copied", np.float16, ((5, 40),), _same, width=4),
    _case("copied", np.complex64, ((17, 18),), _same),
    _case("ahead", F32, ((16, 48),), _same),
    _case("ahead", F32, ((13, 36),), _same),
    _case("ahead", F32, ((11, 35),), _same),
    _case("ahead", BF16, ((9, 40),), _same, width=8),
    _case("planes", F32, ((3, 8, 16),), _turned),
    _case("planes", np.int16, ((2, 7, 15),), _turned),
    _case("product", F32, ((40, 20), (20, 35)), _product),
    _case("product", np.int64, ((32, 8), (8, 32)), _product),
    _case("product", F64, ((33, 9), (9, 65)), _product),
    _case("core", F32, ((40, 20), (20, 35)), _product, 1e-5),
    _case("core", BF16, ((33, 48), (48, 64)), _product, 1e-2),
    _case("core_turned", np.float16, ((33, 24), (40, 24)), _product_turned, 2e-3),
    _case("shapes", F32, ((32,),), _shapes),
    _case("shapes", np.int32, ((32,),), _shapes),
)
