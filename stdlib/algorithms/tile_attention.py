"""Attention on a GPU by tiles: a block of threads takes a tile of queries of one head, and keys go by in shared memory.

Scores are a tile that is never stored; its powers multiply the values from registers. What a query has so far is scaled
as its largest score changes (Dao and others, "FlashAttention", 2022). The next keys and values are copied meanwhile.
Powers are those of two, of scores times log2(e), and are rounded to the dtype of values before they multiply these.

A weight of 0 multiplies each value of a tile of keys that a query does not see: where one of those is infinite or NaN,
so is the result.

See also `kernels.attention`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from ...dsl import AnyDType, AnyTensor, Floating, Index, Parts, ceildiv, exp2, float32, fma, gpu, max, min, select
from ..math.exponential import reciprocal_of_sum
from ..math.parts import exp2_by_instruction, has_approximations
from .algorithm import product, unravelled
from .few_queries import ends
from .monoid import Monoid
from .tile_products import comes_in_pieces, in_pieces

WIDTHS = (32, 64, 128)  # numbers of a query and of a value, at most
FEW = 16  # queries that one warp takes
LOG2_E = 1.4426950408889634

Mask = Callable[[AnyDType, tuple[Index, ...], Index, Index, Index], Floating]
Bounds = Callable[[tuple[Index, ...]], tuple[Index, int]]


class Largest(Monoid):
    """The largest of numbers, of which 0.0 and -0.0 are the same; NaN if one of them is NaN."""

    @staticmethod
    def combine(a: Parts, b: Parts):
        return max(a, b)


class SumOfWeights(Monoid):
    """The sum in float32."""


def attend_by_tiles(
    group: Index,
    tensors: tuple[AnyTensor, ...],
    mask: Mask,
    masked: bool,
    how: tuple[bool, int, float],
    bounds: Bounds,
) -> None:
    """The result for all queries; `suits_tiles` says of which tensors.

    Where the number of queries is known at the call only, there is code for few and for many queries, and none for
    numbers between, of which the large tiles waste some rows.
    """
    out, query, _, _ = tensors
    m, size = query.dim(-2), max(query.dim(-1), out.dim(-1))
    width = WIDTHS[0] if size <= WIDTHS[0] else WIDTHS[1] if size <= WIDTHS[1] else WIDTHS[2]
    N = 64 if width < WIDTHS[2] else 32
    if m <= FEW:
        _launch(group, tensors, mask, masked, how, bounds, (FEW, N, width, gpu.warp_size))
    elif query.is_known(-2) and m <= 64:
        _launch(group, tensors, mask, masked, how, bounds, (64, N, width, 128))
    else:
        _launch(group, tensors, mask, masked, how, bounds, (128, N, width, 256))


def suits_tiles(query: AnyTensor, out: AnyTensor) -> Any:
    """Whether the sizes of heads are known at compile time, and fit."""
    if not (query.is_known(-1) and out.is_known(-1)):
        return False
    return query.dim(-1) <= WIDTHS[2] and out.dim(-1) <= WIDTHS[2]


def _launch(
    group: Index,
    tensors: tuple[AnyTensor, ...],
    mask: Mask,
    masked: bool,
    how: tuple[bool, int, float],
    bounds: Bounds,
    shape: tuple[int, int, int, int],
) -> None:
    out, query, key, value = tensors
    causal, window, scale = how
    M, N, D, threads = shape
    outer, m = out.shape[:-2], out.dim(-2)
    blocks = ceildiv(m, M)
    scaled = scale * LOG2_E
    factor = 1.0 if masked or scale <= 0 else scaled  # of scores, as their powers are taken

    def block():
        number = gpu.block_idx.x
        at = unravelled(number // blocks, outer)
        lead, head = at[:-1], at[-1]
        row = blocks - 1 - number % blocks  # those that see most keys come first
        n, offset = bounds(lead)
        keys, values = key[lead, head // group, :n, :], value[lead, head // group, :n, :]
        first = row * M + offset
        last = min(row * M + M, m) - 1 + offset
        low, high = ends(first, last, n, causal, window)
        begin, end = low // N, ceildiv(high, N)
        stages = (
            gpu.shared[key.dtype](2, N, D, layout="dot"),
            gpu.shared[value.dtype](2, N, D, layout="dot"),
        )
        queries = gpu.load(query[lead, head, :, :].tile(row, 0, (M, D)))

        def scores(products: Parts, base: Index):
            """The products of queries and keys from `base` on as scores, and -inf where a query does not see a key."""
            s = products
            if masked:
                s = s.map(lambda v, i, j: _added(mask, at, (v, scaled), (row * M + i, base + j), (m, n)))
            elif scale <= 0:
                s = s * scaled
            whole = base + N <= n
            if causal:
                whole = whole & (base + N - 1 <= first)
            if window > 0:
                whole = whole & (last - base < window) & (base + N - 1 - first < window)
            if not whole:
                s = s.map(lambda v, i, j: _seen(v, first + i, base + j, n, causal, window))
            return s

        acc, total = _along(shape, queries, (keys, values), stages, (begin, end), scores, factor)
        result = acc * total.map(lambda t: select(t == 0, float32(0), reciprocal_of_sum(t)))
        result.cast(out.dtype).store(out[lead, head, :, :].tile(row, 0, (M, D)))

    gpu.launch(block, grid=product(outer) * blocks, block=threads, min_blocks=1)  # one block with all its registers


def _along(
    shape: tuple[int, int, int, int],
    queries: Parts,
    tensors: tuple[AnyTensor, AnyTensor],
    stages: tuple[AnyTensor, AnyTensor],
    steps: tuple[Index, Index],
    scores: Callable[[Parts, Index], Parts],
    factor: float,
) -> tuple[Parts, Parts]:
    """The sums of values, weighted by the powers of scores, and of the weights.

    Args:
        shape: rows and columns of a tile of scores, numbers of a value, threads.
        tensors: keys and values.
        stages: two tiles of keys and two of values in shared memory.
        steps: the first tile of keys, and the one after the last.
        scores: of products of queries and keys, of which the first key has a number.
        factor: more than 0, what scores are multiplied by.
    """
    M, N, D, _ = shape
    (keys, values), (sk, sv) = tensors, stages
    whole = comes_in_pieces(keys) & comes_in_pieces(values)

    def copy(step: Index, stage: Index, align: int):
        gpu.copy_async(sk[stage], keys.tile(step, 0, (N, D), align=align))
        gpu.copy_async(sv[stage], values.tile(step, 0, (N, D), align=align))

    fetch = lambda step, stage: in_pieces(whole, lambda align: copy(step, stage, align))  # noqa: E731

    acc, zero = gpu.tile[float32](M, D), gpu.tile[float32](M, N)
    top, total = gpu.tile[float32](M, 1, value=-inf), gpu.tile[float32](M, 1)
    copies = fetch(steps[0], 0)
    stage = 0
    for step in range(steps[0], steps[1]):
        copies.wait()
        gpu.barrier()
        copies = fetch(step + 1, 1 - stage)
        s = scores(gpu.dot(queries, sk[stage].transpose(), zero), step * N)
        new = max(top, s.reduce(1, Largest))
        shift = select(new == -inf, 0.0, new)
        shift = shift * factor
        p, old = fma(s, factor, -shift).map(_power), fma(top, factor, -shift).map(_power)
        total = total * old + p.reduce(1, SumOfWeights)
        acc = gpu.dot(p.cast(queries.dtype), sv[stage], acc * old)
        top = new
        stage = 1 - stage
    copies.wait()
    return acc, total


def _power(x: Floating) -> Parts:
    return exp2_by_instruction(x) if has_approximations() else exp2(x)


def _added(
    mask: Mask,
    at: tuple[Index, ...],
    score: tuple[Floating, float],
    place: tuple[Index, Index],
    sizes: tuple[Index, Index],
) -> Parts:
    """The score of a query and a key with the mask, times log2(e); beyond the end of either it is any number."""
    value, factor = score
    (i, j), (m, n) = place, sizes
    return fma(value, float32(factor), mask(float32, at[:-1], at[-1], min(i, m - 1), min(j, n - 1)) * float32(LOG2_E))


def _seen(score: Floating, i: Index, j: Index, n: Index, causal: bool, window: int) -> Parts:
    """A score, or -inf where the query does not see the key."""
    seen = j < n
    if causal:
        seen = seen & (j <= i)
    if window > 0:
        seen = seen & (i - j < window) & (j - i < window)
    return select(seen, score, float32(-inf))
