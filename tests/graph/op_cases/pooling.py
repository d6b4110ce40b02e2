"""Cases of the pools."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support import images
from support.graphs import Array
from support.op_cases import T, case, plain_numbers

from einkorn.graph import ConvInputLayout, ops

NCHW = ConvInputLayout.NCHW
DTYPES = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8)
FLOATS = (np.float32, np.float16)
N = [{"n": 2, "h": 5}, {"n": 1, "h": 3}, {"n": 0, "h": 4}]


def options(axes: int, given: dict[str, Any]) -> dict[str, Any]:
    """Options with a number for each axis."""
    filled = {"stride": 1, "dilation": 1, "before": 0, "after": 0} | given
    return {k: [v] * axes if type(v) is int else v for k, v in filled.items()}


def least(x: Array) -> Any:
    return -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min


def largest(axes: int, first: bool = False, **given: Any) -> Any:
    def reference(x: Array) -> Array:
        pool = images.pool if first else images.last(images.pool)
        return pool(x, np.max, least(x), **options(axes, given)).astype(x.dtype)

    return reference


def place(axes: int, first: bool = False, **given: Any) -> Any:
    """The largest elements, and their places."""

    def where(x: Array) -> Array:
        places = np.broadcast_to(np.arange(np.prod(x.shape[2:])).reshape(x.shape[2:]), x.shape)
        there = images.pool(places, lambda a, _: a, -1, **options(axes, given))
        values = images.pool(x, lambda a, _: a, least(x), **options(axes, given))
        values = np.where(np.isnan(values), np.inf, values)  # no infinities among these elements
        at = np.where(there < 0, -1.0, values == values.max(0)).argmax(0)
        return np.take_along_axis(there, at[None], 0)[0]

    turned = where if first else images.last(where)
    return lambda x: [largest(axes, first, **given)(x), turned(x).astype(np.int64)]


def mean(axes: int, boundary: bool = True, first: bool = False, **given: Any) -> Any:
    def reference(x: Array) -> Array:
        def over(image: Array) -> Array:
            inside = options(axes, given)
            total = images.pool(image, np.sum, 0, **inside)
            ones = np.ones(image.shape)
            if boundary:
                ones = images.padded(ones, inside["before"], inside["after"], 1)
                inside = inside | {"before": [0] * axes, "after": [0] * axes}
                return total / images.pool(ones, np.sum, 0, **inside)[tuple(slice(n) for n in total.shape)]
            return total / images.pool(ones, np.sum, 0, **inside)

        return (over(x) if first else images.last(over)(x)).astype(x.dtype)

    return reference


def norm(p: float, **given: Any) -> Any:
    def reference(x: Array) -> Array:
        inside = options(x.ndim - 2, given)
        pool = images.last(images.pool)
        return (pool(np.abs(images.wide(x)) ** p, np.sum, 0, **inside) ** (1 / p)).astype(x.dtype)

    return reference


def tame(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Array:
    """Numbers of which none is infinite, and a few are NaN."""
    x = plain_numbers(shape, dtype, sizes, seed)
    if x.dtype.kind not in "iub":
        x.reshape(-1)[5::31] = np.nan
    return x


def response(x: Array) -> Array:
    wide = images.wide(x)
    around = np.pad(wide * wide, [(0, 0), (1, 1), (0, 0)])
    means = (around[:, :-2] + around[:, 1:-1] + around[:, 2:]) / 3
    return (wide / (1 + 1e-4 * means) ** 0.75).astype(x.dtype)


UP = {"kernel": (3, 2), "stride": 2, "before": (1, 0), "after": (0, 1), "up": True}
AROUND = {"kernel": 3, "stride": (1, 2), "dilation": (2, 1), "before": 2, "after": 2}

CASES = [
    case("max_pool1d", largest(1, kernel=3), input=T("n", "h", 3), sizes=N, views=False, dtypes=FLOATS[:1]),
    case("max_pool2d", largest(2, kernel=3, stride=2, before=1, after=1), input=T("n", "h", 4, 70), sizes=N,
         dtypes=DTYPES),
    case("max_pool2d", largest(2, first=True, **UP), input=T("n", 3, "h", 41), sizes=N, dtypes=DTYPES[:3], views=False,
         call=lambda input: ops.max_pool2d(input, (3, 2), 2, 1, (1, 0, 0, 1), True, NCHW)),
    case("max_pool2d", largest(2, **AROUND), input=T("n", "h", 2, 3), sizes=N, dtypes=FLOATS[:1], views=False,
         call=lambda input: ops.max_pool2d(input, 3, (1, 2), (2, 1), 2)),
    case("max_pool3d", largest(3, kernel=2), input=T("n", 3, "h", 2, 3), sizes=N, views=False, dtypes=FLOATS[:1]),
    case("max_pool_with_indices", place(2, kernel=2), input=T("n", "h", 4, 5, make=tame), sizes=N, dtypes=DTYPES),
    case("max_pool_with_indices", place(1, True, kernel=3, stride=2, before=2, after=0), dtypes=FLOATS[:1], views=False,
         input=T("n", 3, "h", make=tame), sizes=[{"n": 1, "h": 39}, {"n": 2, "h": 1}],
         call=lambda input: ops.max_pool_with_indices(input, 3, 2, padding=(2, 0), input_layout=NCHW)),
    case("avg_pool1d", mean(1, kernel=3), input=T("n", "h", 3, make=plain_numbers), sizes=N, views=False,
         dtypes=FLOATS[:1], ulps=1),
    case("avg_pool2d", mean(2, kernel=3, stride=2, before=1, after=1), sizes=N, dtypes=DTYPES[:4], ulps=1,
         input=T("n", "h", 4, 70, make=plain_numbers)),
    case("avg_pool2d", mean(2, False, True, **AROUND), input=T("n", 2, "h", 41, make=plain_numbers), sizes=N, ulps=1,
         dtypes=DTYPES[:3], call=lambda input: ops.avg_pool2d(input, 3, (1, 2), (2, 1), 2, False, False, NCHW),
         views=False),
    case("avg_pool2d", mean(2, False, **UP), input=T("n", "h", 7, 3, make=plain_numbers), sizes=N, ulps=1,
         dtypes=FLOATS[:1], call=lambda input: ops.avg_pool2d(input, (3, 2), 2, 1, (1, 0, 0, 1), True, False),
         views=False),
    case("avg_pool3d", mean(3, kernel=2), input=T("n", 3, "h", 2, 3, make=plain_numbers), sizes=N, views=False,
         dtypes=FLOATS[:1], ulps=1),
    case("lp_pool", norm(2, kernel=2), input=T("n", "h", 3, make=plain_numbers), sizes=N, dtypes=DTYPES[:4], ulps=2),
    case("lp_pool", norm(3, kernel=2, stride=2), input=T("n", "h", 3, 4, make=plain_numbers), sizes=N, ulps=6,
         dtypes=FLOATS[:1], call=lambda input: ops.lp_pool(input, 2, 2, p=3), views=False),
    case("global_avg_pool", lambda x: images.wide(x).mean((1, 2), keepdims=True).astype(x.dtype), dtypes=DTYPES[:4],
         input=T("n", "h", 4, 3, make=plain_numbers), sizes=N, ulps=1),
    case("global_max_pool", lambda x: np.max(x, (1, 2), keepdims=True), input=T("n", "h", 4, 3), sizes=N,
         dtypes=FLOATS),
    case("local_response_norm", response, x=T("n", "h", 5, make=plain_numbers), sizes=N, ulps=4,
         dtypes=DTYPES[:4]),
]  # fmt: skip
