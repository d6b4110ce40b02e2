"""Draws tokens from rows of logits: temperature, the k best, the likeliest share, the least likelihood, row by row.

Which logits are kept is decided exactly, by their order and then by their place: a radix search finds the least one
that is kept, by number for the k best and by likelihood for the likeliest share. A draw is a function of seed and step
of its row alone (Philox), so that a row gives the same token in any batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyTensor,
    DeviceContext,
    Element,
    Floating,
    Index,
    InputTensor,
    Integral,
    OutputTensor,
    bitcast,
    ceildiv,
    exp,
    float32,
    float64,
    int32,
    int64,
    iota,
    isnan,
    log,
    max,
    min,
    parallel_for,
    register,
    scratch,
    select,
    stack,
    uint32,
    unroll,
)
from ..algorithms.random import philox

T = TypeVar("T", bound=Floating)
LANES = 16
BLOCK = 1024  # elements that are summed before their sum goes on in float64
STRIDE = 8  # keys of which the largest stands for all
MIN_FILTERED = 4096  # candidates from which on some are left out before a search
SEARCHED_TEMPERATURES = 8.0  # logits so many temperatures below the best one are searched first
LEVELS = ((21, 2048), (10, 2048), (0, 1024))  # shift and number of bins of each step of a search


@register("sample_tokens", writes_once=True)
def sample_tokens(
    tokens: OutputTensor[int32, "r"],
    logprobs: OutputTensor[float32, "r"],
    logits: InputTensor[T, "r v"],
    temperature: InputTensor[float32, "r"],
    top_k: InputTensor[int32, "r"],
    top_p: InputTensor[float32, "r"],
    min_p: InputTensor[float32, "r"],
    seed: InputTensor[int64, "r"],
    step: InputTensor[int64, "r"],
) -> None:
    """A token of each row, and the logarithm of its likelihood at temperature 1; -1 where no logit is finite."""

    def row(r: Index):
        best, place = _best(logits, r)
        tokens[r] = place
        if place >= 0 and temperature[r] > 0:
            tokens[r] = _drawn(
                logits, r, best, temperature[r], top_k[r], top_p[r], min_p[r], _fraction(seed[r], step[r])
            )
        logprobs[r] = _logprob(logits, r, best, tokens[r])

    parallel_for(logits.dim(0), row)


def _logits(logits: AnyTensor, r: Index, i: Index, width: int, inside: Element) -> Any:
    """Neighbouring logits as numbers, with minus infinity in the place of NaN and outside."""
    x = logits.load(r, i, width=width, mask=inside).cast(float32)
    low = SIMD[float32, width](-float("inf"))
    return select(isnan(x), low, select(inside, x, low))


def _logit(logits: AnyTensor, r: Index, i: Index) -> Any:
    x = logits[r, i].cast(float32)
    return select(isnan(x), float32(-float("inf")), x)


def _inside(i: Index, count: Index, width: int) -> Any:
    """Which of `width` places from i on are below a count."""
    return iota(int64, width) < count - i


def _best(logits: AnyTensor, r: Index) -> Any:
    """The largest logit and its first place; -1 where none is above minus infinity."""
    v = logits.dim(1)
    most = SIMD[float32, LANES](-float("inf"))
    for i in range(0, v, LANES):
        most = max(most, _logits(logits, r, i, LANES, _inside(i, v, LANES)))
    best, place = most.reduce_max(), int32(-1)
    if best > -float("inf"):
        for i in range(0, v, LANES):
            if place < 0:
                here = _logits(logits, r, i, LANES, _inside(i, v, LANES)) == best
                if here.any():
                    place = (i + here.cast(int32).argmax()).cast(int32)
    return best, place


def _logprob(logits: AnyTensor, r: Index, best: Floating, token: Integral) -> Any:
    if token < 0:
        return float32(-float("inf"))
    v = logits.dim(1)
    total = float64(0)
    for block in range(0, v, BLOCK):
        sums = SIMD[float32, LANES](0)
        for i in range(block, min(block + BLOCK, v), LANES):
            sums += exp(_logits(logits, r, i, LANES, _inside(i, v, LANES)) - best)
        total += sums.reduce_add().cast(float64)
    return (_logit(logits, r, token.cast(int64)) - best) - log(total).cast(float32)


def _key(x: Floating) -> Any:
    """An integer that orders as the number does."""
    bits = bitcast(x + 0.0, uint32)  # -0.0 becomes 0.0
    return select(bits >> 31 == 1, ~bits, bits | 0x80000000)


def _drawn(
    logits: AnyTensor,
    r: Index,
    best: Floating,
    temperature: Floating,
    top_k: Integral,
    top_p: Floating,
    min_p: Floating,
    fraction: Floating,
) -> Any:
    v = logits.dim(1)
    candidates = scratch[int32](v), scratch[uint32](v), scratch[float32](v)
    places, keys, shares = candidates
    for i in range(0, v, LANES):
        inside = _inside(i, v, LANES)
        x = _logits(logits, r, i, LANES, inside)
        keys.store(_key(x), i, mask=inside)
        shares.store(x, i, mask=inside)
        places.store(iota(int64, LANES, i).cast(int32), i, mask=inside)
    count = v
    if top_k > 0 and top_k < v:
        if v >= MIN_FILTERED and top_k <= v // (4 * STRIDE):
            count = _filtered(candidates, count, _bound(keys, v, top_k))
        least, ties = _least(keys, count, top_k.cast(float64), lambda i: float64(1))
        count = _best_ones(candidates, count, least, ties)
    total, likely = float64(0), float64(0)
    near = best - SEARCHED_TEMPERATURES * temperature
    for block in range(0, count, BLOCK):
        sums, upper = SIMD[float32, LANES](0), SIMD[float32, LANES](0)
        for j in range(block, min(block + BLOCK, count), LANES):
            inside = _inside(j, count, LANES)
            x = shares.load(j, width=LANES, mask=inside)
            share = select(inside, exp((x - best) / temperature), 0)
            shares.store(share, j, mask=inside)
            sums += share
            upper += select(x >= near, share, 0)
        total += sums.reduce_add().cast(float64)
        likely += upper.reduce_add().cast(float64)
    least, ties = uint32(0), int64(v)
    if top_p < 1:
        wanted = top_p.cast(float64) * total
        if count >= MIN_FILTERED and likely > wanted:
            count = _filtered(candidates, count, _key(near))
        least, ties = _least(keys, count, wanted, lambda j: shares[j].cast(float64))
    return _chosen(places, keys, shares, count, least, ties, min_p, fraction)


def _bound(keys: AnyTensor, count: Index, k: Integral) -> Any:
    """A key that at least k keys reach: the k-th largest of the largest of every few keys."""
    most = scratch[uint32](ceildiv(count, LANES * STRIDE) * LANES)
    for block in range(ceildiv(count, LANES * STRIDE)):
        largest = SIMD[uint32, LANES](0)
        for s in unroll(STRIDE):
            i = (block * STRIDE + s) * LANES
            largest = max(largest, keys.load(i, width=LANES, mask=_inside(i, count, LANES)))
        most.store(largest, block * LANES)
    return _least(most, most.dim(0), k.cast(float64), lambda i: float64(1))[0]


def _filtered(candidates: tuple[AnyTensor, ...], count: Index, bound: Integral) -> Any:
    """Moves the candidates whose keys reach a bound to the front; gives their number."""
    places, keys, shares = candidates
    kept = 0
    for i in range(0, count, LANES):
        inside = _inside(i, count, LANES)
        if (inside & (keys.load(i, width=LANES, mask=inside) >= bound)).any():
            for j in range(i, min(i + LANES, count)):
                if keys[j] >= bound:
                    places[kept], keys[kept], shares[kept] = places[j], keys[j], shares[j]
                    kept += 1
    return kept


def _best_ones(candidates: tuple[AnyTensor, ...], count: Index, least: Integral, ties: Index) -> Any:
    """As `_filtered`, of the candidates with the least key only the first few."""
    places, keys, shares = candidates
    kept, left = 0, ties
    for j in range(count):
        key = keys[j]
        if key > least or (key == least and left > 0):
            left -= 1 if key == least else 0
            places[kept], keys[kept], shares[kept] = places[j], key, shares[j]
            kept += 1
    return kept


def _chosen(
    places: AnyTensor,
    keys: AnyTensor,
    shares: AnyTensor,
    count: Index,
    least: Integral,
    ties: Index,
    min_p: Floating,
    fraction: Floating,
) -> Any:
    """The candidate at which the sum of what is kept passes a fraction of it, in the order of places."""
    blocks = ceildiv(count, BLOCK)
    ends = scratch[float64](max(blocks, 1))
    total = float64(0)
    left = ties
    for b in range(blocks):
        sum = float64(0)
        for j in range(b * BLOCK, min((b + 1) * BLOCK, count)):
            key = keys[j]
            keeps = (key > least or left > 0) and key >= least and shares[j] >= min_p
            left -= 1 if key == least else 0
            shares[j] = shares[j] if keeps else float32(0)
            sum += shares[j].cast(float64)
        total += sum
        ends[b] = total
    wanted = fraction * total
    block: Any = int64(0)
    for b in range(blocks):
        if ends[b] <= wanted:
            block = b + 1
    block = min(block, blocks - 1)
    reached, chosen = float64(0) if block == 0 else ends[max(block - 1, 0)], int32(-1)
    for j in range(block * BLOCK, min((block + 1) * BLOCK, count)):
        if shares[j] > 0 and (reached <= wanted or chosen < 0):
            chosen = places[j]
            reached += shares[j].cast(float64)
    return chosen


def _least(keys: AnyTensor, count: Index, target: Floating, weight: Callable[[Index], Floating]) -> Any:
    """The key down to which the weights of the largest keys reach a target, and how many with this key it takes."""
    bins = stack[float64](2048, zeroed=False)
    above = float64(0)
    prefix = uint32(0)
    for level in unroll(3):
        shift, size = LEVELS[level]
        for b in range(size):
            bins[b] = float64(0)
        for i in range(count):
            key = keys[i]
            if level == 0 or key >> (shift + (11 if level == 1 else 10)) == prefix:
                bins[((key >> shift) & (size - 1)).cast(int64)] += weight(i)
        chosen, reached, is_chosen = uint32(0), above, False
        for n in range(size):
            top: Any = size - 1 - n
            if not is_chosen and bins[top] > 0:
                chosen = top.cast(uint32)
                above = reached  # the last bin stays where the weights fall short of the target by rounding
                reached += bins[top]
                is_chosen = reached >= target
        prefix = (prefix << (11 if level < 2 else 10)) | chosen
    ties, sum_of_ties = int64(0), above
    for i in range(count):
        if keys[i] == prefix and (sum_of_ties < target or ties < 1):
            sum_of_ties += weight(i)
            ties += 1
    return prefix, ties


def _fraction(seed: Index, step: Index) -> Any:
    """A number in [0, 1) with 53 digits."""
    words = philox(seed, step)
    high, low = words[0].cast(int64), words[1].cast(int64)
    return ((high << 21) | (low >> 11)).cast(float64) * 2.0**-53


@register("penalize_tokens", writes_once=True)
def penalize_tokens(
    out: OutputTensor[T, "r v"],
    logits: InputTensor[T, "r v"],
    history: InputTensor[int32, "r h"],
    repetition: InputTensor[float32, "r"],
    frequency: InputTensor[float32, "r"],
    presence: InputTensor[float32, "r"],
    ctx: DeviceContext,
) -> None:
    """Logits with those of tokens of the history lowered; numbers of the history below 0 are not tokens."""

    v, h = logits.dim(1), history.dim(1)

    def lowered(r: Index, i: Index, count: Integral):
        x = logits[r, i].cast(float32)
        divided = x / repetition[r] if x > 0 else x * repetition[r]
        return (x if count == 0 else divided - count.cast(float32) * frequency[r] - presence[r]).cast(T)

    def row(r: Index):
        counts = scratch[int32](v, zeroed=True)
        for k in range(h):
            token = history[r, k]
            if token >= 0:
                counts[token.cast(int64)] += 1
        for i in range(v):
            out[r, i] = lowered(r, i, counts[i])

    def element(task: Index):
        r, i = task // v, task % v
        count = int32(0)
        for k in range(h):
            count += 1 if history[r, k].cast(int64) == i else 0
        out[r, i] = lowered(r, i, count)

    if ctx.target.is_gpu:
        parallel_for(logits.dim(0) * v, element)
    else:
        parallel_for(logits.dim(0), row)
