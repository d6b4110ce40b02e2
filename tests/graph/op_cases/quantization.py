"""Cases of quantised tensors: blocks of bytes, 8-bit numbers with scales, groups of 4-bit integers.

`tests/graph/test_quantization.py` compares every encoding with the `gguf` package.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops
from einkorn.graph.quantization import QuantizationConfig

ROWS = [{"m": m} for m in (3, 1, 0, 17)]


def numbers(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def q8_blocks(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // 34, 34), np.uint8)
    blocks[..., :2] = rng.uniform(0.01, 0.1, (*blocks.shape[:-1], 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(shape)


def decoded(q: Any) -> Any:
    blocks = q.reshape(*q.shape[:-1], q.shape[-1] // 34, 34)
    scales = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    return (blocks[..., 2:].view(np.int8) * scales).reshape(*q.shape[:-1], q.shape[-1] // 34 * 32)


def encoded(x: Any) -> Any:
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    d = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    scaled = blocks * np.where(d == 0, np.float32(0), 1 / d)
    digits = np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)
    result = np.concatenate([d.astype(np.float16).view(np.uint8), digits.view(np.uint8)], -1)
    return result.reshape(*x.shape[:-1], x.shape[-1] // 32 * 34)


def rounded(x: Any) -> Any:
    """To 8 bits in blocks of 32, as a product rounds its left operand."""
    blocks = x.astype(np.float32).reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    d = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    digits = np.rint(blocks * np.where(d == 0, np.float32(0), 1 / d))
    return (digits.astype(np.float64) * d).reshape(x.shape)


def product(x: Any, q: Any) -> Any:
    return (rounded(x) @ decoded(q).astype(np.float64).T).astype(x.dtype)


def scaled(x: Any, w: Any, scales: Any) -> Any:
    return (x.astype(np.float64) @ (w.astype(np.float64) * scales.astype(np.float64)[:, None]).T).astype(x.dtype)


def digits(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).integers(-(1 << 31), 1 << 31, shape).astype(np.int32)


def gptq(weight: Any, scales: Any, zeros: Any) -> Any:
    shifts = 4 * np.arange(8)
    result = ((weight[:, None, :] >> shifts[:, None]) & 15).reshape(-1, weight.shape[1])
    less = (((zeros[:, :, None] >> shifts) & 15) + 1).reshape(len(zeros), -1)
    return (result - np.repeat(less, 16, 0)).astype(np.float32) * np.repeat(scales, 16, 0)


SETTINGS = QuantizationConfig("gptq", bits=4, group_size=16)
WEIGHT, ZEROS = T(4, 8, dtype=np.int32, make=digits), T(2, 1, dtype=np.int32, make=digits)
SCALES = T(2, 8, dtype=np.float32, make=numbers)

CASES = [
    case("quantize", encoded, x=T("m", 64, make=numbers), sizes=ROWS),
    case("dequantize", decoded, sizes=ROWS, dtypes=[np.uint8], quantized=T("m", 2, 68, make=q8_blocks)),
    case("dequantize", gptq, dtypes=[np.float32], quantized=WEIGHT, scales=SCALES, zeros=ZEROS,
         call=lambda q, s, z: ops.dequantize("gptq", q, s, z, config=SETTINGS)),
    case("qmatmul", product, lhs=T("m", 64, make=numbers), rhs=T(11, 68, dtype=np.uint8, make=q8_blocks), sizes=ROWS,
         ulps=2048, dtypes=[np.float32, np.float16, ml_dtypes.bfloat16]),
    case("qmatmul", scaled, sizes=ROWS, dtypes=[np.float32], ulps=2048,
         call=lambda x, w, s: ops.qmatmul("int8_row", None, x, w, s), lhs=T("m", 40, make=numbers),
         rhs=T(9, 40, dtype=np.int8), scales=T(9, dtype=np.float32, make=numbers)),
    case("qmatmul", lambda x, w, s: (x.astype(np.float64) @ (w.astype(np.float64) * s).T).astype(x.dtype), sizes=ROWS,
         dtypes=[np.float32], ulps=2048, call=lambda x, w, s: ops.qmatmul("float8_tensor", None, x, w, s),
         lhs=T("m", 40, make=numbers), rhs=T(9, 40, dtype=ml_dtypes.float8_e5m2), scales=T(dtype=np.float32)),
    case("qmatmul", lambda x, *w: (x.astype(np.float64) @ gptq(*w).astype(np.float64)).astype(x.dtype), sizes=ROWS,
         dtypes=[np.float32], ulps=2048, call=lambda x, *w: ops.qmatmul("gptq", SETTINGS, x, *w),
         lhs=T("m", 32, make=numbers), rhs=WEIGHT, scales=SCALES, zeros=ZEROS),
]  # fmt: skip
