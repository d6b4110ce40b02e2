"""The twenty kernels in Numba: one loop over elements or rows each, as one writes it there; without `fastmath`."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from twenty_numpy import COEFFICIENTS

ONE, HALF, ZERO = np.float32(1), np.float32(0.5), np.float32(0)
ROOT, SHARE, SCALE, EPS = np.float32(math.sqrt(0.5)), np.float32(0.3), np.float32(30), np.float32(1e-5)
C = tuple(np.float32(c) for c in COEFFICIENTS)


def _multiply_add(out: Any, x: Any, y: Any, z: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = x[i] * y[i] + z[i]


def _add_one(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = x[i] + ONE


def _relu(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = max(x[i], ZERO)


def _gelu(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = HALF * x[i] * (ONE + math.erf(x[i] * ROOT))


def _silu(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = x[i] / (ONE + math.exp(-x[i]))


def _softplus(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = max(x[i], ZERO) + math.log1p(math.exp(-abs(x[i])))


def _lerp(out: Any, x: Any, y: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = x[i] + (y[i] - x[i]) * SHARE


def _length(out: Any, x: Any, y: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = math.sqrt(x[i] * x[i] + y[i] * y[i])


def _quantised(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        out[i] = np.int8(min(max(np.rint(x[i] * SCALE), np.float32(-128)), np.float32(127)))


def _polynomial(out: Any, x: Any) -> None:
    for i in numba.prange(x.size):
        v = x[i]
        r = C[0] * v + C[1]
        r = r * v + C[2]
        r = r * v + C[3]
        r = r * v + C[4]
        r = r * v + C[5]
        r = r * v + C[6]
        out[i] = r * v + C[7]


def _row_sum(out: Any, x: Any) -> None:
    for i in numba.prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


def _row_max(out: Any, x: Any) -> None:
    for i in numba.prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        out[i] = top


def _row_argmax(out: Any, x: Any) -> None:
    for i in numba.prange(x.shape[0]):
        place = 0
        for j in range(x.shape[1]):
            if x[i, j] > x[i, place]:
                place = j
        out[i] = place


def _row_moments(out: Any, x: Any) -> None:
    n = np.float32(x.shape[1])
    for i in numba.prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / n
        squares = ZERO
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        out[0, i] = mean
        out[1, i] = squares / n


def _row_dot(out: Any, x: Any, w: Any) -> None:
    for i in numba.prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j] * w[j]
        out[i] = total


def _logsumexp(out: Any, x: Any) -> None:
    for i in numba.prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            total += math.exp(x[i, j] - top)
        out[i] = math.log(total) + top


def _rms_norm(out: Any, x: Any, w: Any) -> None:
    for i in numba.prange(x.shape[0]):
        squares = ZERO
        for j in range(x.shape[1]):
            squares += x[i, j] * x[i, j]
        scale = ONE / np.float32(math.sqrt(squares / np.float32(x.shape[1]) + EPS))
        for j in range(x.shape[1]):
            out[i, j] = x[i, j] * scale * w[j]


def _layer_norm(out: Any, x: Any, w: Any, b: Any) -> None:
    n = np.float32(x.shape[1])
    for i in numba.prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / n
        squares = ZERO
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = ONE / np.float32(math.sqrt(squares / n + EPS))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale * w[j] + b[j]


def _softmax(out: Any, x: Any) -> None:
    for i in numba.prange(x.shape[0]):
        top = x[i, 0]
        for j in range(x.shape[1]):
            top = max(top, x[i, j])
        total = ZERO
        for j in range(x.shape[1]):
            out[i, j] = math.exp(x[i, j] - top)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


def _row_cumsum(out: Any, x: Any) -> None:
    for i in numba.prange(x.shape[0]):
        total = ZERO
        for j in range(x.shape[1]):
            total += x[i, j]
            out[i, j] = total


LOOPS = {
    name.removeprefix("_"): function
    for name, function in list(globals().items())
    if name.startswith("_") and not name.startswith("__")
}
