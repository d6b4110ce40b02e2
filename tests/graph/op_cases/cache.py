"""Cases of keys and values in pages."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support.op_cases import T, case, with_kernel

from einkorn.graph import ops
from einkorn.graph.staging.kernels import kernel_family

# Three sequences, of which the second has no rows; the rows behind the last offset belong to none.
SIZES = [{"t": 9}, {"t": 6}, {"t": 1}]
LENGTHS = np.array([5, 7, 0])
TABLE = np.array([[6, 1, 3, 0], [4, 2, 0, 0], [5, 7, 8, 0]])
PLACES = 4


def offsets(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    t = sizes["t"]
    return np.array([0, t // 2, t // 2, max(t - 1, 1)])


def lengths(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return LENGTHS


def table(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return TABLE


def numbers(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def stored(pages: Any, key: Any, value: Any, offsets: Any, lengths: Any, table: Any) -> Any:
    ops.kv_cache_store(pages, key, value, offsets, lengths, table, layer=1)
    return ops.buffer_load(pages)


def written(pages: Any, *batch: Any) -> Any:
    """What the reference of the kernel makes of pages."""
    result = pages.copy()
    reference = kernel_family("cache").kernels["kv_cache_store"].reference
    assert reference is not None
    reference(result, *batch, layer=1)
    return result


BATCH = {
    "offsets": T(4, dtype=np.uint32, make=offsets),
    "lengths": T(3, dtype=np.uint32, make=lengths),
    "table": T(3, 4, dtype=np.uint32, make=table),
}
FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
SCALED = [np.int8, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def scaled(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    """Pages of 8 bits whose scales are numbers about 0.01."""
    rng = np.random.default_rng(seed)
    pages = rng.integers(-127, 128, shape).astype(dtype)
    scales = rng.uniform(0.005, 0.01, (*shape[:4], PLACES)).astype(np.float32)
    pages[..., -4 * PLACES :] = scales.view(dtype)
    return pages


def pages_of(dtype: Any) -> T:
    return T(9, 2, 2, 2, PLACES * 24, dtype=dtype, make=scaled, buffer=True)


PAGES = T(9, 2, 2, 2, PLACES * 20, make=numbers, buffer=True)

CASES = [
    case("kv_cache_store", written, sizes=SIZES, views=False, call=stored, dtypes=FLOATS,
         pages=PAGES, key=T("t", 2, 20, make=numbers), value=T("t", 2, 20, make=numbers), **BATCH),
    case("flash_attention_ragged",
         with_kernel("cache", "flash_attention_ragged", layer=1, window=0, scale=20**-0.5),
         sizes=SIZES, views=False, ulps=512, query=T("t", 6, 20, make=numbers), pages=PAGES,
         call=lambda q, p, *batch: ops.flash_attention_ragged(q, p, *batch, layer=1), **BATCH),
    *(case("kv_cache_store", written, sizes=SIZES, views=False, call=stored, dtypes=[np.float32], pages=pages_of(dtype),
           key=T("t", 2, 20, make=numbers), value=T("t", 2, 20, make=numbers), **BATCH)
      for dtype in SCALED),
    *(case("flash_attention_ragged",
           with_kernel("cache", "flash_attention_ragged", layer=1, window=0, scale=20**-0.5),
           sizes=SIZES, views=False, ulps=1 << 14, query=T("t", 6, 20, make=numbers), pages=pages_of(dtype),
           dtypes=[np.float32], call=lambda q, p, *batch: ops.flash_attention_ragged(q, p, *batch, layer=1), **BATCH)
      for dtype in SCALED),
]  # fmt: skip
