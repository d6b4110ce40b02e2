"""GPU test kernels whose products four warps compute together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from support.gpu_case import GPUS, Array, GpuCase, numbers

F16 = np.float16
BF16: Any = ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FILE = "group_products.py"
DISTINCT = ("sm_80", "sm_90a", "sm_100a", "gfx942", "gfx1201")  # which multiply these by different instructions


def product(dtype: Any, m: int, n: int, k: int, *, op: str = "product", **params: Any) -> GpuCase:
    dtype = np.dtype(dtype)
    wide_of_bytes = dtype.kind in "iu"
    a_turned, b_turned = params.get("a_turned", False), params.get("b_turned", False)

    def inputs(m: int = m, n: int = n) -> tuple[Array, ...]:
        shapes = (k, m) if a_turned else (m, k), (n, k) if b_turned else (k, n)
        return numbers(dtype, *shapes[0], seed=m), numbers(dtype, *shapes[1], seed=n)

    def one_tile() -> tuple[Array, ...]:
        """As many steps, in a part of a tile."""
        return inputs(min(m, params.get("M", 64) - 3), min(n, params.get("N", 64) - 5))

    def reference(a: Array, b: Array) -> Array:
        wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
        result = (wide_a.T if a_turned else wide_a) @ (wide_b.T if b_turned else wide_b)
        return result.astype(np.int32 if wide_of_bytes else np.float32 if dtype.itemsize == 1 else dtype)

    name = f"groups-{op}[{np.dtype(dtype).name}-{m}x{n}x{k}-{'-'.join(f'{key}{v}' for key, v in params.items())}]"
    bound = 0.0 if wide_of_bytes else {"bfloat16": 1e-2, "float16": 2e-3}.get(dtype.name, 1e-6)
    case = GpuCase(name, FILE, f"group_products::{op}", inputs, reference, params, bound=bound, heavy=True)
    return replace(case, small=one_tile) if m * n * k > 500_000 else case


def chained(dtype: Any, m: int, **params: Any) -> GpuCase:
    n, k = params.get("N", 32), params.get("K", 48)

    def inputs() -> tuple[Array, ...]:
        return numbers(dtype, m, k, seed=m), numbers(dtype, k, n, seed=n)

    def reference(a: Array, b: Array) -> Array:
        first = a.astype(np.float64) @ b.astype(np.float64)
        second = (first / 8).astype(dtype).astype(np.float64) @ b.astype(np.float64).T + 1
        return (second - second.max(1, keepdims=True)).astype(np.float32)

    name = f"groups-chained[{np.dtype(dtype).name}-{m}-{n}x{k}]"
    return GpuCase(name, FILE, "group_products::chained", inputs, reference, params, bound=1e-2, heavy=True)


TENSOR_CASES = (
    product(BF16, 128, 64, 200, op="ahead", M=128, K=64),
    product(F16, 200, 40, 70, op="ahead", M=256, N=48, K=16, b_turned=True),  # two blocks of rows, a narrow swizzle
    product(F16, 100, 128, 128, op="ahead", M=128, N=128, K=64, stages=3),  # two panels of columns
    product(np.float32, 128, 32, 96, op="ahead", M=128, N=32, b_turned=True, precision="tf32"),
    product(np.int8, 130, 64, 100, op="ahead", M=128, b_turned=True),
    product(np.uint8, 128, 16, 64, op="ahead", M=128, N=16, b_turned=True),
    product(E4M3, 128, 32, 256, op="ahead", M=128, N=32, K=128, b_turned=True, stages=3),
    product(E5M2, 128, 32, 100, op="ahead", M=128, N=32, b_turned=True),
    product(BF16, 300, 50, 32, op="several"),
)
_CASES = (
    product(BF16, 64, 64, 64),
    product(F16, 70, 100, 72, N=96, K=16),  # the narrowest swizzle, in three panels
    product(BF16, 65, 64, 128, K=128, b_turned=True),
    product(F16, 64, 128, 64, N=128, K=64, a_turned=True),
    product(F16, 128, 40, 48, M=128, N=48, K=48, a_turned=True, b_turned=True, block=256),
    product(BF16, 130, 24, 32, M=128, N=24, block=128),
    product(BF16, 70, 64, 200, op="ahead"),
    product(F16, 64, 32, 64, op="ahead", N=32, K=64, stages=3),
    product(np.float32, 64, 32, 32, N=32, K=16, b_turned=True, precision="tf32"),
    product(np.float32, 130, 40, 96, M=128, N=48, K=16, b_turned=True, precision="tf32", block=256),
    product(np.float32, 64, 32, 32, N=32, K=16, a_turned=True, precision="tf32"),  # by mma.sync
    product(np.float32, 64, 32, 64, op="loaded", precision="tf32"),
    product(np.float32, 64, 32, 96, op="ahead", N=32, b_turned=True, precision="tf32"),
    product(np.int8, 70, 100, 200, N=96, K=128, b_turned=True),
    product(np.int8, 64, 24, 64, op="loaded", N=24),
    product(np.int8, 64, 40, 64, op="loaded", N=40),  # by mma.sync: integers have not 40 columns
    product(np.uint8, 130, 48, 192, M=128, N=48, K=64, b_turned=True),
    product(np.uint8, 65, 32, 256, op="loaded", K=256),
    product(np.int8, 70, 64, 300, op="ahead", b_turned=True),
    product(E4M3, 64, 64, 128, K=128, b_turned=True),
    product(E4M3, 64, 32, 64, N=32),  # by elements: the second operand lies across the inner axis
    product(E5M2, 128, 40, 96, M=128, N=48, K=32, b_turned=True, block=256),
    product(E4M3, 64, 32, 128, op="loaded"),
    product(E5M2, 64, 32, 256, op="ahead", N=32, K=64, stages=3, b_turned=True),
    *TENSOR_CASES[-4::3],
    chained(F16, 64),
    chained(BF16, 100, N=64, K=64),
)


def _for_gpus(cases: tuple[GpuCase, ...]) -> Iterator[GpuCase]:
    """The first case of each op for every GPU. All GPUs multiply each dtype in the cases of `tiles.py`, by the same
    instructions but for those of four warps together."""
    seen: set[str] = set()
    for case in cases:
        yield replace(case, gpus=DISTINCT if case.op in seen else GPUS)
        seen.add(case.op)


CASES = tuple(_for_gpus(_CASES))
