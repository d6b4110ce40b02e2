"""Cases of what changes the sizes of images."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support import resampling
from support.graphs import Array
from support.op_cases import T, case

from einkorn.graph import InterpolationMode, ops

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
FLOAT32 = (np.float32,)
N = [{"n": 3, "h": 5}, {"n": 0, "h": 2}, {"n": 1, "h": 1}, {"n": 4, "h": 9}]


def image(*dims: int | str) -> T:
    """Numbers above 0, so that few digits cancel."""

    def make(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Array:
        return np.random.default_rng(seed).integers(16, 32, shape).astype(dtype)

    return T(*dims, make=make)


def weighted(shape: Any, coordinates: str = "half_pixel", a: float | None = None, **options: Any) -> Any:
    """The resize in NumPy; -1 stands for a size that stays."""

    def reference(x: Array) -> Array:
        sizes = [n if m < 0 else m for n, m in zip(x.shape, shape, strict=True)]
        return resampling.resized(x, sizes, lambda n, m: resampling.matrix(n, m, coordinates, a, **options))

    return reference


def nearest(shape: Any, coordinates: str = "half_pixel", rounding: str = "round_prefer_floor") -> Any:
    def reference(x: Array) -> Array:
        sizes = [n if m < 0 else m for n, m in zip(x.shape, shape, strict=True)]
        return resampling.nearest(x, sizes, coordinates, rounding)

    return reference


def cropped(x: Array) -> Array:
    """From the first element to beyond the last of four, to five elements; 7.5 lies outside."""
    collected = np.full((*x.shape[:-1], 5), 7.5)
    for j, at in enumerate(resampling.place(np.arange(5), 4, 5, "tf_crop_and_resize", 0.0, 0.2, 1.5)):
        if at <= 3:
            low = int(at)
            high = min(low + 1, 3)
            collected[..., j] = x[..., low] * (1 - (at - low)) + x[..., high] * (at - low)
    return collected.astype(x.dtype)


def scaled_down(x: Array) -> Array:
    """Of four elements those at 0 and at 3 / 1.4."""
    return np.stack([x[:, 0], (x[:, 2] * (3 - 3 / 1.4) + x[:, 3] * (3 / 1.4 - 2))], -1).astype(x.dtype)


BICUBIC = InterpolationMode.BICUBIC
ALL = -1

CASES = [
    case("resize", weighted((2, 3, 7, 9)), input=image(2, 3, "h", 4), sizes=[{"h": 5}, {"h": 7}, {"h": 1}, {"h": 30}],
         dtypes=FLOATS, ulps=16),
    case("resize", weighted((2, 3, 8, 8)), input=image(2, 3, "h", 4), sizes=[{"h": 4}, {"h": 16}], views=False,
         dtypes=(np.uint8, np.int32), call=lambda input: ops.resize(input, (2, 3, 8, 8))),
    case("resize", weighted((ALL, 3, 8, 3), a=-0.75), input=image("n", 3, 5, 6), sizes=N, dtypes=(*FLOATS[:3],
         np.int16),
         ulps=24, call=lambda input: ops.resize(input, (input.shape[0], 3, 8, 3), BICUBIC)),
    case("resize", nearest((2, ALL, 4, 11)), input=T(2, "n", "h", 7), sizes=N, dtypes=FLOAT32,
         call=lambda input: ops.resize(input, (2, input.shape[1], 4, 11), InterpolationMode.NEAREST)),
    case("resize_nearest", nearest((2, 3, 7, 9)), input=T(2, 3, "h", 4), sizes=[{"h": 5}, {"h": 7}, {"h": 30}]),
    *(case("resize_nearest", nearest((ALL, 10), coordinates, rounding), input=T("n", 7), sizes=N[:2], dtypes=FLOAT32,
           views=False, call=lambda input, c=coordinates, r=rounding: ops.resize_nearest(input, (input.shape[0], 10),
         c, r))
      for coordinates, rounding in (("asymmetric", "floor"), ("align_corners", "round_prefer_ceil"),
                                    ("half_pixel_symmetric", "ceil"))),
    case("resize_linear", weighted((2, 3, 7, 9)), input=image(2, 3, "h", 4), sizes=[{"h": 5}, {"h": 7}, {"h": 30}],
         dtypes=FLOATS, ulps=16),
    *(case("resize_linear", weighted((ALL, 11), coordinates), input=image("n", 4), sizes=N[:2], dtypes=FLOAT32, ulps=8,
           views=False, call=lambda input, c=coordinates: ops.resize_linear(input, (input.shape[0], 11), c))
      for coordinates in ("pytorch_half_pixel", "align_corners", "asymmetric")),
    case("resize_linear", scaled_down, input=image("n", 4), sizes=N[:2], dtypes=FLOAT32, ulps=8, views=False,
         call=lambda input: ops.resize_linear(input, (input.shape[0], 2), "align_corners", scales=(1.0, 0.6))),
    case("resize_linear", weighted((ALL, 3, 2), antialias=True), input=image("n", 10, 3), sizes=N[:2], dtypes=FLOAT32,
         ulps=16, call=lambda input: ops.resize_linear(input, (input.shape[0], 3, 2), antialias=True)),
    case("resize_linear", cropped, input=image("n", 4), sizes=N[:2], dtypes=FLOAT32, ulps=8,
         call=lambda input: ops.resize_linear(input, (input.shape[0], 5), "tf_crop_and_resize", roi=(0, 0.2, 1, 1.5),
                                              extrapolation_value=7.5)),
    case("resize_bicubic", weighted((2, 3, 7, 9), a=-0.75), input=image(2, 3, "h", 4), dtypes=FLOATS, ulps=64,
         sizes=[{"h": 5}, {"h": 7}, {"h": 30}]),
    case("resize_bicubic", weighted((ALL, 4), a=-0.5, antialias=True, exclude=True), input=image("n", 9), sizes=N[:2],
         dtypes=FLOAT32, ulps=32, call=lambda input: ops.resize_bicubic(input, (input.shape[0], 4), antialias=True,
                                                                    cubic_coeff_a=-0.5, exclude_outside=True)),
]  # fmt: skip
