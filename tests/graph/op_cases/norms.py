"""Cases of norms. Shifts keep results away from 0, where differences of numbers that are nearly equal would count."""

from __future__ import annotations

from typing import Any

import numpy as np
from support.graphs import numbers
from support.op_cases import T, case, with_kernel

from einkorn.graph import ops

SIZES = [{"m": 3, "n": 40}, {"m": 1, "n": 1}, {"m": 0, "n": 4}, {"m": 300, "n": 33}, {"m": 2, "n": 5000}]
IMAGES = [{"m": 2, "h": 3, "w": 5}, {"m": 1, "h": 1, "w": 1}, {"m": 0, "h": 2, "w": 2}, {"m": 2, "h": 90, "w": 110}]


def near(number: float) -> Any:
    return lambda shape, dtype, sizes, seed: (number + numbers(shape, np.float64, seed) / 20).astype(dtype)


X, W, B = (T("m", 2, "n"), T("n", make=near(1)), T("n", make=near(9)))
I, C, D = T("m", 4, "h", "w"), T(4, make=near(1)), T(4, make=near(9))  # noqa: E741
X, I = (T(*x.dims, make=near(2)) for x in (X, I))  # noqa: E741
layer, batch = with_kernel("norms", "layer_norm"), with_kernel("norms", "batch_norm", epsilon=1e-5)


def group(groups: int) -> Any:
    kernel = with_kernel("norms", "group_norm", groups=groups, epsilon=1e-5)

    def reference(x: Any, gamma: Any, beta: Any) -> Any:
        rows = x.reshape(x.shape[0] * groups, x[:1].size // groups if x.size else 0)
        return kernel(rows, gamma, beta).reshape(x.shape)

    return reference


def normalized(x: Any) -> Any:
    wide = x.astype(np.float64)
    return (wide / np.sqrt((wide**2).sum(1, keepdims=True))).astype(x.dtype)


CASES = [
    case("layer_norm", lambda x, g, b: layer(x, g, b, epsilon=1e-5), input=X, gamma=W, beta=B, sizes=SIZES, ulps=8),
    case("layer_norm", lambda x: layer(x, np.ones(x.shape[-1]), np.full(x.shape[-1], 9.0), epsilon=0.5),
         call=lambda input: ops.layer_norm(input, 1.0, 9, epsilon=0.5), input=T("n", make=near(2)), sizes=SIZES,
         dtypes=[np.float32, np.float16], ulps=8),
    case("rms_norm", with_kernel("norms", "rms_norm", eps=1e-6, weight_offset=0.0, multiply_before_cast=False),
         x=X, weight=W, sizes=SIZES, ulps=4),
    case("rms_norm", with_kernel("norms", "rms_norm", eps=1e-6, weight_offset=1.0, multiply_before_cast=True),
         call=lambda x, weight: ops.rms_norm(x, weight, 1e-6, weight_offset=1, multiply_before_cast=True),
         x=X, weight=T("n", dtype=np.float32, make=near(1)), sizes=SIZES, ulps=4, dtypes=[np.float32, np.float16]),
    case("group_norm", group(2), input=I, gamma=C, beta=D, sizes=IMAGES, ulps=8),
    case("instance_norm", group(4), input=I, gamma=C, beta=D, sizes=IMAGES, ulps=8),
    case("batch_norm", batch, input=I, gamma=C, beta=D, mean=C, variance=C, sizes=IMAGES, ulps=8),
    case("batch_norm", batch, call=ops.batch_norm, input=T("n", 4, make=near(2)), gamma=C, beta=D, mean=C, variance=C,
         sizes=SIZES, ulps=8),
    case("l2_normalize", lambda x: normalized(x.swapaxes(1, -1)).swapaxes(1, -1), x=X, sizes=SIZES, ulps=4),
    case("l2_normalize", normalized, call=lambda x: ops.l2_normalize(x, axis=1), x=X, sizes=SIZES, ulps=4),
]  # fmt: skip
