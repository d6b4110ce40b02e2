"""What resizes, grids and boxes compute, in NumPy: matrices and plain loops, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from support.graphs import Array


def place(
    j: Array, n: int, m: int, coordinates: str, scale: float = 0.0, start: float = 0.0, end: float = 1.0
) -> Array:
    """Where elements j of m lie among n."""
    factor = scale or m / n
    match coordinates:
        case "align_corners":
            return j * (n - 1) / max(m - 1, 1)
        case "asymmetric":
            return j / factor
        case "tf_crop_and_resize":
            if m == 1:
                return 0.5 * (start + end) * (n - 1) + 0.0 * j
            return start * (n - 1) + j * (end - start) * (n - 1) / (m - 1)
        case "pytorch_half_pixel" if m == 1:
            return 0.0 * j
        case "half_pixel_symmetric":
            return n / 2 * (1 - m / (factor * n)) + (j + 0.5) / factor - 0.5
    return (j + 0.5) / factor - 0.5


def weight(d: Array, a: float | None) -> Array:
    """The weight of a neighbour at a distance: linear, or a cubic with the coefficient a."""
    d = np.abs(d)
    if a is None:
        return np.maximum(1 - d, 0)
    near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def matrix(
    n: int,
    m: int,
    coordinates: str,
    a: float | None,
    antialias: bool = False,
    exclude: bool = False,
    scale: float = 0.0,
) -> Array:
    """The weights of n elements in m."""
    shrunk = min(scale or m / n, 1.0) if antialias else 1.0
    reach = int(np.ceil((1 if a is None else 2) / shrunk)) + 1
    result = np.zeros((m, n))
    for j in range(m):
        at = place(np.float64(j), n, m, coordinates, scale)
        near = int(np.floor(at)) + np.arange(-reach, reach + 1)
        w = weight((near - at) * shrunk, a)
        if exclude:
            w = np.where((near >= 0) & (near < n), w, 0)
        np.add.at(result[j], np.clip(near, 0, n - 1), w / w.sum())
    return result


def resized(x: Array, shape: Sequence[int], of_axis: Callable[[int, int], Array]) -> Array:
    """x with every axis that changes multiplied by a matrix."""
    result = x.astype(np.float64)
    for axis, (n, m) in enumerate(zip(x.shape, shape, strict=True)):
        if n != m:
            result = np.moveaxis(np.tensordot(of_axis(n, m), result, (1, axis)), 0, axis)
    return (np.round(result) if x.dtype.kind in "iu" else result).astype(x.dtype)


def nearest(x: Array, shape: Sequence[int], coordinates: str, rounding: str) -> Array:
    """x with every axis that changes made of its nearest elements."""
    rounded: dict[str, Callable[[Array], Array]] = {
        "round_prefer_floor": lambda at: np.ceil(at - 0.5),
        "round_prefer_ceil": lambda at: np.floor(at + 0.5),
        "floor": np.floor,
        "ceil": np.ceil,
    }
    for axis, (n, m) in enumerate(zip(x.shape, shape, strict=True)):
        if n != m:
            at = rounded[rounding](place(np.arange(m), n, m, coordinates))
            x = np.take(x, np.clip(at.astype(int), 0, n - 1), axis)
    return x


def brought_in(at: float, n: int, padding: str, corners: bool) -> float:
    if padding == "border":
        return min(max(at, 0), n - 1)
    if padding == "reflection":
        low, span = (0.0, n - 1.0) if corners else (-0.5, float(n))
        if span <= 0:
            return 0.0
        turns, rest = divmod(abs(at - low), span)
        return min(max(rest + low if turns % 2 == 0 else span - rest + low, 0), n - 1)
    return at


def grid_sample(x: Array, grid: Array, mode: str, padding: str, corners: bool) -> Array:
    """Images at the places of a grid."""
    axes, sizes = x.ndim - 2, x.shape[2:]
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]))
    for index in np.ndindex(grid.shape[0], *grid.shape[1:-1]):
        near: list[list[tuple[int, float]]] = []
        for k, n in enumerate(sizes):
            g = float(grid[(*index, axes - 1 - k)])
            at = (g + 1) / 2 * (n - 1) if corners else ((g + 1) * n - 1) / 2
            at = at if mode == "bicubic" else brought_in(at, n, padding, corners)
            low = int(np.floor(at))
            if mode == "nearest":
                near.append([(int(np.round(at)), 1.0)])
            elif mode == "bilinear":
                near.append([(low, 1 - (at - low)), (low + 1, at - low)])
            else:
                taps = [(low + t, float(weight(np.float64(at - low - t), -0.75))) for t in range(-1, 3)]
                near.append([(int(brought_in(i, n, padding, corners)), w) for i, w in taps])
        for chosen in itertools.product(*near):
            if all(0 <= i < n for (i, _), n in zip(chosen, sizes, strict=True)):
                pixel = x[(index[0], slice(None), *(i for i, _ in chosen))].astype(np.float64)
                out[(index[0], slice(None), *index[1:])] += pixel * np.prod([w for _, w in chosen])
    return out.astype(x.dtype)


def affine_grid(theta: Array, size: Sequence[int], corners: bool) -> Array:
    """The places of pixels under affine maps."""
    axes = len(size) - 2
    out = np.zeros((size[0], *size[2:], axes))
    for index in np.ndindex(*size[2:]):
        at = []
        for k in range(axes):
            j, n = index[axes - 1 - k], size[1 + axes - k]
            at.append((2 * j / (n - 1) - 1 if n > 1 else 0) if corners else (2 * j + 1) / n - 1)
        out[(slice(None), *index)] = theta.astype(np.float64) @ np.array([*at, 1.0])
    return out.astype(theta.dtype)


def roi_align(
    x: Array, rois: Array, height: int, width: int, scale: float, ratio: int, aligned: bool, largest: bool
) -> Array:
    """Boxes of images whose channels are last."""
    _, h, w, channels = x.shape
    out = np.zeros((len(rois), height, width, channels))
    offset = 0.5 if aligned else 0.0
    for r, row in enumerate(rois.astype(np.float64)):
        left, top, right, bottom = row[1:] * scale - offset
        least = 0.0 if aligned else 1.0
        cells = [(top, max(bottom - top, least) if not aligned else bottom - top, height, h),
                 (left, max(right - left, least) if not aligned else right - left, width, w)]  # fmt: skip
        for cell in np.ndindex(height, width):
            near: list[list[list[tuple[int, float]]]] = []
            for (start, length, count, size), at in zip(cells, cell, strict=True):
                step = length / count
                samples = ratio or max(int(np.ceil(step)), 0)
                places = [start + step * (at + (s + 0.5) / samples) for s in range(samples)]
                near.append([neighbours(p, size) for p in places])
            terms = [
                [x[int(row[0]), a, b].astype(np.float64) * (u * v) for a, u in ys for b, v in zs]
                for ys in near[0]
                for zs in near[1]
            ]
            if terms and largest:
                out[(r, *cell)] = np.max([t for sample in terms for t in sample], 0)
            elif terms:
                out[(r, *cell)] = np.sum([t for sample in terms for t in sample], 0) / len(terms)
    return out.astype(x.dtype)


def neighbours(at: float, n: int) -> list[tuple[int, float]]:
    if at < -1 or at > n:
        return [(0, 0.0), (0, 0.0)]
    inside = max(at, 0.0)
    low = min(int(inside), n - 1)
    part = 0.0 if inside >= n - 1 else inside - low
    return [(low, 1 - part), (min(low + 1, n - 1), part)]


def suppressed(boxes: Array, scores: Array, most: int, overlap: float, least: float, center: bool) -> Array:
    """The boxes of each image and class that do not overlap a better one."""
    b = boxes.astype(np.float64)
    if center:
        b = np.concatenate([b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2], -1)
    low, high = np.minimum(b[..., :2], b[..., 2:]), np.maximum(b[..., :2], b[..., 2:])
    rows: list[tuple[int, int, int]] = []
    for image, kind in np.ndindex(*scores.shape[:2]):
        kept: list[int] = []
        for s in np.argsort(-scores[image, kind].astype(np.float64), kind="stable"):
            good = len(kept) < most and scores[image, kind, s] > least
            if good and all(shared(low[image], high[image], s, k) <= overlap for k in kept):
                kept.append(int(s))
        rows += [(image, kind, s) for s in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


def shared(low: Array, high: Array, one: Any, other: Any) -> float:
    both = np.prod(np.maximum(np.minimum(high[one], high[other]) - np.maximum(low[one], low[other]), 0))
    union = np.prod(high[one] - low[one]) + np.prod(high[other] - low[other]) - both
    return float(both / union) if both > 0 else 0.0
