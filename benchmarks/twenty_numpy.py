"""The twenty kernels in NumPy, as one writes them there."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from workloads import Array, Workload

COEFFICIENTS = (0.013, -0.07, 0.21, -0.5, 0.9, -1.3, 2.1, 0.4)
ONE, HALF = np.float32(1), np.float32(0.5)


def _gelu(x: Array) -> Array:
    """NumPy has no erf: Abramowitz and Stegun, 7.1.26, to 1.5e-7."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = ONE / (ONE + np.float32(0.3275911) * z)
    p = t * np.float32(1.061405429) - np.float32(1.453152027)
    for c in (1.421413741, -0.284496736, 0.254829592):
        p = p * t + np.float32(c)
    erf = np.copysign(ONE - p * t * np.exp(-z * z), x)
    return HALF * x * (ONE + erf)


def _polynomial(x: Array) -> Array:
    result = x * np.float32(COEFFICIENTS[0])
    for c in COEFFICIENTS[1:-1]:
        result += np.float32(c)
        result *= x
    result += np.float32(COEFFICIENTS[-1])
    return result


def _logsumexp(x: Array) -> Array:
    top = x.max(1, keepdims=True)
    return np.log(np.exp(x - top).sum(1)) + top[:, 0]


def _layer_norm(x: Array, w: Array, b: Array) -> Array:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(1, keepdims=True) + np.float32(1e-5)) * w + b


def _softmax(x: Array) -> Array:
    y = np.exp(x - x.max(1, keepdims=True))
    y /= y.sum(1, keepdims=True)
    return y


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "add_one": lambda x: x + ONE,
    "multiply_add": lambda x, y, z: x * y + z,
    "relu": lambda x: np.maximum(x, np.float32(0)),
    "gelu": _gelu,
    "silu": lambda x: x / (ONE + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(x, np.float32(0)),
    "lerp": lambda x, y: x + (y - x) * np.float32(0.3),
    "length": lambda x, y: np.sqrt(x * x + y * y),
    "quantised": lambda x: np.clip(np.rint(x * np.float32(30)), -128, 127).astype(np.int8),
    "polynomial": _polynomial,
    "row_sum": lambda x: x.sum(1),
    "row_max": lambda x: x.max(1),
    "row_argmax": lambda x: x.argmax(1),
    "row_moments": lambda x: np.stack([x.mean(1), x.var(1)]),
    "row_dot": lambda x, w: x @ w,
    "logsumexp": _logsumexp,
    "rms_norm": lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + np.float32(1e-5)) * w,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "row_cumsum": lambda x: np.cumsum(x, 1),
}


def prepare(workload: Workload, arrays: list[Array]) -> dict[str, Callable[[], Any]]:
    """What to call."""
    return {"new": partial(FUNCTIONS[workload.key.removeprefix("twenty::")], *arrays)}
