"""Cases of what reads images between their elements, and of what chooses boxes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from support import resampling
from support.graphs import Array
from support.op_cases import T, case

from einkorn.graph import ConvInputLayout, ops

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
FLOAT32 = (np.float32,)
N = [{"n": 2, "k": 3}, {"n": 0, "k": 2}, {"n": 1, "k": 0}]


def image(*dims: int | str) -> T:
    """Numbers above 0, so that few digits cancel."""

    def make(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Array:
        return np.random.default_rng(seed).integers(16, 32, shape).astype(dtype)

    return T(*dims, make=make)


def eighths(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Array:
    """Places from beyond one end to beyond the other, exact in every type."""
    return (np.random.default_rng(seed).integers(-12, 13, shape) / 8).astype(dtype)


def boxes(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Array:
    """Boxes that overlap."""
    return (np.random.default_rng(seed).integers(0, 9, shape) / 4).astype(dtype)


def rois(shape: tuple[int, ...], dtype: Any, sizes: Any, seed: int) -> Array:
    """Boxes of images of which there are n."""
    rng = np.random.default_rng(seed)
    at = rng.integers(-4, 24, (shape[0], 2)) / 4
    result = np.concatenate(
        [rng.integers(0, sizes["n"] or 1, (shape[0], 1)), at, at + rng.integers(0, 16, at.shape) / 4], 1
    )
    return result.astype(dtype)


def sampled(mode: str, padding: str, corners: bool) -> Any:
    return lambda x, grid: resampling.grid_sample(x, grid, mode, padding, corners)


def suppressed(most: int, overlap: float, least: float = -np.inf, center: bool = False) -> Any:
    return lambda b, s: resampling.suppressed(b, s, most, overlap, least, center)


NCHW = ConvInputLayout.NCHW

CASES = [
    case("affine_grid", lambda theta: resampling.affine_grid(theta, (2, 3, 4, 5), False), dtypes=FLOATS, ulps=64,
         theta=T(2, 2, 3, make=eighths)),
    case("affine_grid", lambda theta: resampling.affine_grid(theta, (len(theta), 3, 4, 1, 5), True), ulps=64,
         dtypes=FLOAT32, theta=T("n", 3, 4, make=eighths), sizes=N,
         call=lambda theta: ops.affine_grid(theta, (theta.shape[0], 3, 4, 1, 5), True)),
    case("grid_sample", sampled("bilinear", "zeros", False), input=image("n", 3, 5, 6), grid=T("n", 4, "k", 2,
         make=eighths),
         sizes=N, dtypes=FLOATS, ulps=8),
    *(case("grid_sample", sampled(mode, padding, corners), input=image("n", 3, 5, 4), grid=T("n", 4, "k", 2,
         make=eighths),
           sizes=N, dtypes=FLOAT32, ulps=256, views=False,
           call=lambda input, grid, m=mode, p=padding, c=corners: ops.grid_sample(input, grid, m, p, c))
      for mode, padding, corners in (("nearest", "border", True), ("bicubic", "reflection", False),
                                     ("bicubic", "zeros", True), ("bilinear", "reflection", True))),
    case("grid_sample", sampled("bilinear", "border", True), input=image("n", 2, 3, 4, 5), dtypes=FLOAT32, ulps=16,
         grid=T("n", 2, "k", 3, 3, make=eighths), sizes=N,
         call=lambda input, grid: ops.grid_sample(input, grid, "bilinear", "border", True)),
    case("roi_align", lambda x, r: resampling.roi_align(x, r, 2, 3, 1.0, 0, False, False), input=image("n", 7, 6, 21),
         rois=T("k", 5, make=rois), sizes=[{"n": 2, "k": 5}, {"n": 1, "k": 0}], dtypes=FLOATS[:2], ulps=64),
    case("roi_align", lambda x, r: resampling.roi_align(x.transpose(0, 2, 3, 1), r, 2, 2, 0.5, 2, True, True
                                                        ).transpose(0, 3, 1, 2),
         input=image("n", 3, 7, 6), rois=T("k", 5, make=rois), sizes=[{"n": 2, "k": 5}, {"n": 1, "k": 0}],
         dtypes=FLOAT32, ulps=64, call=lambda input, rois: ops.roi_align(input, rois, 2, 2, 0.5, 2, True, "MAX", NCHW)),
    case("non_maximum_suppression", suppressed(3, 0.5), boxes=T("n", "k", 4, make=boxes), scores=T("n", 2, "k",
         make=boxes),
         sizes=[{"n": 2, "k": 9}, {"n": 0, "k": 2}, {"n": 1, "k": 0}], dtypes=FLOATS),
    case("non_maximum_suppression", suppressed(20, 0.25, 0.5, True), boxes=T("n", "k", 4, make=boxes), dtypes=FLOAT32,
         scores=T("n", 2, "k", make=boxes), sizes=[{"n": 2, "k": 19}],
         call=lambda boxes, scores: ops.non_maximum_suppression(boxes, scores, 20, 0.25, 0.5, True)),
    case("non_maximum_suppression", suppressed(400, 0.9), boxes=T("n", "k", 4, make=boxes), dtypes=FLOAT32[:1],
         scores=T("n", 1, "k", make=boxes), sizes=[{"n": 1, "k": 330}], views=False,
         call=lambda boxes, scores: ops.non_maximum_suppression(boxes, scores, 400, 0.9)),
]  # fmt: skip
