"""What the ops of images compute, in NumPy: plain loops over taps, in float64.

Images are (batch, channels, places), with any number of axes of places; `last` turns these functions over to (batch,
places, channels).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from support.graphs import Array

Numbers = Sequence[int]


def last(function: Callable[..., Array]) -> Callable[..., Array]:
    """The function for images whose channels come last."""

    def turned(x: Array, *more: Any, **options: Any) -> Array:
        return np.moveaxis(function(np.moveaxis(x, -1, 1), *more, **options), 1, -1)

    return turned


def wide(x: Array) -> Array:
    """Numbers in the type in which they are computed here."""
    return x if x.dtype.kind in "iub" else x.astype(np.float64)


def padded(x: Array, before: Numbers, after: Numbers, value: Any = 0) -> Array:
    """x with something around its places."""
    return np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)], constant_values=value)


def seen(
    x: Array, kernel: Numbers, stride: Numbers, dilation: Numbers, counts: Numbers
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For each tap what all windows see there."""
    for tap in itertools.product(*map(range, kernel)):
        at = tuple(
            slice(t * d, t * d + (c - 1) * s + 1, s) if c else slice(0, 0)
            for t, d, c, s in zip(tap, dilation, counts, stride, strict=True)
        )
        yield tap, x[(slice(None), slice(None), *at)]


def counts(shape: Numbers, kernel: Numbers, stride: Numbers, dilation: Numbers) -> list[int]:
    return [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(shape, kernel, stride, dilation, strict=True)]


def conv(
    x: Array, w: Array, *, stride: Numbers, dilation: Numbers, before: Numbers, after: Numbers, groups: int = 1
) -> Array:
    """The convolution with a filter (results, channels / groups, taps)."""
    x, kernel = padded(wide(x), before, after), w.shape[2:]
    result = counts(x.shape[2:], kernel, stride, dilation)
    each, results = w.shape[1], w.shape[0] // groups
    out = np.zeros((x.shape[0], w.shape[0], *result), x.dtype)
    for g in range(groups):
        channels, rows = slice(g * each, (g + 1) * each), slice(g * results, (g + 1) * results)
        for tap, part in seen(x[:, channels], kernel, stride, dilation, result):
            out[:, rows] += np.einsum("nc...,fc->nf...", part, wide(w)[(rows, slice(None), *tap)])
    return out


def conv_transpose(
    x: Array,
    w: Array,
    *,
    stride: Numbers,
    dilation: Numbers,
    before: Numbers,
    after: Numbers,
    more: Numbers,
    groups: int = 1,
) -> Array:
    """The gradient of `conv` in its input; the filter is (channels, results / groups, taps)."""
    kernel, each = w.shape[2:], x.shape[1] // groups
    x, w = wide(x), wide(w)
    whole = [
        (n - 1) * s + d * (k - 1) + 1 + m
        for n, s, d, k, m in zip(x.shape[2:], stride, dilation, kernel, more, strict=True)
    ]
    out = np.zeros((x.shape[0], w.shape[1] * groups, *whole), x.dtype)
    for g in range(groups):
        channels, results = slice(g * each, (g + 1) * each), slice(g * w.shape[1], (g + 1) * w.shape[1])
        for tap, part in seen(out[:, results], kernel, stride, dilation, x.shape[2:]):
            part += np.einsum("nc...,cf->nf...", x[:, channels], w[(channels, slice(None), *tap)])
    cut = tuple(slice(b, n - a) for b, a, n in zip(before, after, whole, strict=True))
    return out[(slice(None), slice(None), *cut)]


def pool(
    x: Array,
    reduce: Callable[[Array, int], Array],
    empty: Any,
    *,
    kernel: Numbers,
    stride: Numbers,
    dilation: Numbers,
    before: Numbers,
    after: Numbers,
    up: bool = False,
) -> Array:
    """What `reduce` makes of the elements of each window, which are a new first axis; `empty` stands in the padding."""
    room = [n + b + a for n, b, a in zip(x.shape[2:], before, after, strict=True)]
    result = counts(room, kernel, stride, dilation)
    if up:
        exact = [-((d * (k - 1) + 1 - n) // s) + 1 for n, k, s, d in zip(room, kernel, stride, dilation, strict=True)]
        result = [min(e, -(-(n + b) // s)) for e, n, b, s in zip(exact, x.shape[2:], before, stride, strict=True)]
    more = [
        max((c - 1) * s + d * (k - 1) + 1 - n, 0)
        for c, s, d, k, n in zip(result, stride, dilation, kernel, room, strict=True)
    ]
    around = padded(padded(wide(x), before, after, empty), [0] * len(more), more, empty)
    parts = [part for _, part in seen(around, kernel, stride, dilation, result)]
    return reduce(np.stack(parts), 0)
