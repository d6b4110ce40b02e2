"""`stencil`: every element from its neighbourhood.

    stencil(out, x, lambda near, i: (near(-1) + near(0) + near(1)) / 3, reach=(1,), border="edge")
    stencil(out, x, lambda near, i: near(-1, 0) + near(1, 0) + near(0, -1) + near(0, 1) - 4 * near(0, 0), reach=(1, 1))

Far enough from the ends of the last axis, elements are read without any test, in a loop of their own that becomes
vector code; there the other axes decide once for a row where their neighbours lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import (
    AnyTensor,
    Element,
    Index,
    Parts,
    bool8,
    ceildiv,
    compiled_for,
    max,
    min,
    parallel_for,
    select,
    static_assert,
    unroll,
)
from .algorithm import product, same_sizes, unravelled
from .rows import TASK

CHUNK = 4096  # elements of a row that are a task of their own


def stencil(
    out: AnyTensor,
    x: AnyTensor,
    body: Callable[..., Parts],
    *,
    reach: tuple[int, ...],
    border: str = "constant",
    value: Element = 0,
) -> None:
    """Stores `body(near, index)` into every element of `out`.

    Args:
        out, x: tensors of one shape. The stencil goes over the last axes of x, one to three of them; each index of the
            axes before is by itself.
        body: a function. `near(-1, 2)` is the element one before and two after along the stencil's axes; the numbers
            are known at compile time, and what is left out is 0. `index` is the tuple of the element's own indices.
        reach: a tuple of compile-time numbers, one for each axis: how far `near` goes at most.
        border: what lies outside. "constant" is `value`; "edge" the nearest element; "reflect" goes back, without the
            outermost element a second time; "wrap" goes on at the other end.
        value: a number.
    """
    axes = len(reach)
    static_assert(0 < axes <= 3 and axes <= x.rank, "a stencil goes over one to three axes of its tensor")
    known = border == "constant" or border == "edge" or border == "reflect" or border == "wrap"
    static_assert(known, "border is 'constant', 'edge', 'reflect' or 'wrap'")
    before = x.rank - axes
    same_sizes(out, x)
    if x.dtype == bool8 and isinstance(value, int):
        value = value != 0

    def element(index: tuple[Index, ...], inside: bool):
        def near(a: int = 0, b: int = 0, c: int = 0):
            return _neighbour(x, index, before, (a, b, c)[:axes], reach, border, value, inside)

        out[index] = body(near, index)

    if compiled_for().is_gpu:
        parallel_for(x.size, lambda position: element(unravelled(position, x.shape), False))
    else:
        _by_chunk(x, reach[axes - 1], element)


def _by_chunk(x: AnyTensor, reach: int, element: Callable[..., Parts]) -> None:
    n = x.dim(-1)
    sizes = x.shape[:-1]
    chunks = ceildiv(n, CHUNK)
    left = min(reach, n)
    right = max(n - reach, left)

    def chunk(task: Index):
        lead = unravelled(task // chunks, sizes)
        low = task % chunks * CHUNK
        high = min(low + CHUNK, n)
        for j in range(low, min(high, left)):
            element((*lead, j), False)
        for j in range(max(low, left), min(high, right)):
            element((*lead, j), True)
        for j in range(max(low, right), high):
            element((*lead, j), False)

    parallel_for(product(sizes) * chunks, chunk, grain=ceildiv(TASK, min(n, CHUNK) + 16))


def _neighbour(
    x: AnyTensor,
    index: tuple[Index, ...],
    before: int,
    offsets: tuple[int, ...],
    reach: tuple[int, ...],
    border: str,
    value: Element,
    inside: bool,
) -> Any:
    """The element at these offsets; `inside` promises that it is there along the last axis."""
    at: Any = index[:before]
    there = True
    for k in unroll(len(offsets)):
        static_assert(-reach[k] <= offsets[k] <= reach[k], "near(...) exceeds reach=")
        n = x.dim(before + k)
        place = index[before + k] + offsets[k]
        if offsets[k] == 0 or (inside and k == len(offsets) - 1):
            at = (*at, place)
        else:
            at = (*at, _brought_in(place, n, border))
            if border == "constant":
                there = (place >= 0) & (place < n) & there
    return select(there, x[at], value)


def _brought_in(place: Index, n: Index, border: str) -> Any:
    """The index that stands for one that may be outside."""
    if border == "wrap":
        return place % n
    if border == "reflect":
        period = max(2 * (n - 1), 1)
        within = place % period
        return min(within, period - within) if n > 1 else 0
    return min(max(place, 0), n - 1)
