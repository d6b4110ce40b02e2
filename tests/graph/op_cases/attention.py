"""Cases of attention: lengths around blocks, masks of all kinds, heads that share keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.op_cases import T, case

from einkorn.graph import ops
from einkorn.stdlib.kernels.attention import attention_reference, masked_attention_reference

LENGTHS = [
    {"b": b, "m": m, "n": n}
    for b, m, n in [(2, 5, 7), (1, 1, 1), (3, 70, 130), (2, 2, 301), (2, 0, 3), (2, 3, 0), (0, 2, 2)]
]
WHOLE = {"causal": False, "window": 0}


def numbers(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def positive(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
    """Values whose mean is no difference of large numbers."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(dtype)


def mask_of(kind: str) -> Any:
    def make(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Any:
        seen = np.random.default_rng(seed).integers(0, 3, shape) > 0
        seen[..., :1, :] = False  # a query that sees nothing
        return seen if kind == "bool" else np.where(seen, numbers(shape, np.float32, sizes, seed), -np.inf)

    return make


def of(*shape: Any) -> T:
    return T(*shape, make=numbers)


def known(how: dict[str, Any], size: int) -> Any:
    def reference(query: Any, key: Any, value: Any) -> Any:
        tensors = [x[None] if x.ndim == 2 else x for x in (query, key, value)]
        result = attention_reference(*tensors, **{"scale": 1 / np.sqrt(size), **WHOLE, **how})
        return result.reshape(*query.shape[:-1], value.shape[-1])

    return reference


def masked(query: Any, key: Any, value: Any, mask: Any, **how: Any) -> Any:
    numbers = np.where(mask, 0.0, -np.inf) if mask.dtype == bool else mask
    return masked_attention_reference(query, key, value, numbers, **{"scale": 1 / np.sqrt(8), **WHOLE, **how})


def attended(**how: Any) -> Any:
    return lambda query, key, value: ops.attention(query, key, value, **how)


CASES = [
    case("attention", known({}, 8), call=attended(), sizes=LENGTHS, ulps=64,
         query=of("b", 2, "m", 8), key=of("b", 2, "n", 8), value=T("b", 2, "n", 40, make=positive)),
    case("attention", known({"causal": True, "scale": 0.5}, 3), call=attended(causal=True, scale=0.5), sizes=LENGTHS,
         ulps=64, query=of("m", 3), key=of("n", 3), value=T("n", 5, make=positive)),
    case("attention", known({"causal": True, "window": 3}, 8), call=attended(causal=True, window=3), sizes=LENGTHS,
         ulps=64, query=of(6, "m", 8), key=of(2, "n", 8), value=T(2, "n", 8, make=positive)),
    case("attention", known({"window": 20}, 300), call=attended(window=20), sizes=LENGTHS, dtypes=[np.float32],
         ulps=256, query=of(1, "m", 300), key=of(1, "n", 300), value=T(1, "n", 290, make=positive)),
    case("attention", masked, call=lambda query, key, value, mask: ops.attention(query, key, value, mask=mask),
         sizes=LENGTHS, ulps=64, query=of(4, "m", 8), key=of(2, "n", 8), value=T(2, "n", 8, make=positive),
         mask=T("m", "n", dtype=np.bool_, make=mask_of("bool"))),
    case("attention", lambda query, key, value, mask: masked(query, key, value, mask, causal=True),
         call=lambda query, key, value, mask: ops.attention(query, key, value, mask=mask, causal=True),
         sizes=LENGTHS, ulps=64, query=of("b", 1, "m", 8), key=of("b", 1, "n", 8),
         value=T("b", 1, "n", 8, make=positive),
         mask=T("b", 1, 1, "n", dtype=np.float32, make=mask_of("float"))),
]  # fmt: skip
