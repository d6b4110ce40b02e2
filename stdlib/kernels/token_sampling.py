"""Draws tokens from rows of logits: temperature, the k best, the likeliest share, the least likelihood, row by row.

Which logits are kept is decided exactly, by their order and then by their place: a radix search finds the least one
that is kept, by number for the k best and by likelihood for the likeliest share. A draw is a function of seed and step
of its row alone (Philox), so that a row gives the same token in any batch.
"""

from __future__ import annotations

from typing import Any, TypeVar

from ...dsl import (
    DeviceContext,
    Floating,
    InputTensor,
    OutputTensor,
    bitcast,
    exp,
    float32,
    float64,
    int32,
    int64,
    isnan,
    log,
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

    def row(r):
        best, place = _best(logits, r)
        tokens[r] = place
        if place >= 0 and temperature[r] > 0:
            tokens[r] = _drawn(
                logits, r, best, temperature[r], top_k[r], top_p[r], min_p[r], _fraction(seed[r], step[r])
            )
        logprobs[r] = _logprob(logits, r, best, tokens[r])

    parallel_for(logits.dim(0), row)


def _logit(logits: Any, r: Any, i: Any) -> Any:
    """A logit as a finite number, or minus infinity, which NaN becomes."""
    x = logits[r, i].cast(float32)
    return select(isnan(x), float32(-float("inf")), x)


def _best(logits: Any, r: Any) -> Any:
    """The largest logit and its first place; -1 where none is above minus infinity."""
    best, place = float32(-float("inf")), int32(-1)
    for i in range(logits.dim(1)):
        x = _logit(logits, r, i)
        if x > best:
            best, place = x, int32(i)
    return best, place


def _logprob(logits: Any, r: Any, best: Any, token: Any) -> Any:
    if token < 0:
        return float32(-float("inf"))
    total = float64(0)
    for i in range(logits.dim(1)):
        total += exp(_logit(logits, r, i) - best).cast(float64)
    return (_logit(logits, r, token.cast(int64)) - best) - log(total).cast(float32)


def _key(x: Any) -> Any:
    """An integer that orders as the number does."""
    bits = bitcast(x + 0.0, uint32)  # -0.0 becomes 0.0
    return select(bits >> 31 == 1, ~bits, bits | 0x80000000)


def _drawn(logits: Any, r: Any, best: Any, temperature: Any, top_k: Any, top_p: Any, min_p: Any, fraction: Any) -> Any:
    v = logits.dim(1)
    places, keys, shares = scratch[int32](v), scratch[uint32](v), scratch[float32](v)
    count = v
    for i in range(v):
        keys[i] = _key(_logit(logits, r, i))
        places[i] = int32(i)
    if top_k > 0 and top_k < v:
        least, ties = _least(keys, v, top_k.cast(float64), lambda i: float64(1))
        count = 0
        left = ties
        for i in range(v):
            key = keys[i]
            if key > least or (key == least and left > 0):
                left -= 1 if key == least else 0
                places[count], keys[count] = int32(i), key
                count += 1
    total = float64(0)
    for j in range(count):
        share = exp((_logit(logits, r, places[j].cast(int64)) - best) / temperature)
        shares[j] = share
        total += share.cast(float64)
    least, ties = uint32(0), int64(v)
    if top_p < 1:
        least, ties = _least(keys, count, top_p.cast(float64) * total, lambda j: shares[j].cast(float64))
    total = float64(0)
    left = ties
    for j in range(count):
        keeps = keys[j] > least or (keys[j] == least and left > 0)
        left -= 1 if keys[j] == least else 0
        if not keeps or shares[j] < min_p:
            shares[j] = float32(0)
        total += shares[j].cast(float64)
    wanted = fraction * total
    reached, chosen = float64(0), int32(-1)
    for j in range(count):
        if shares[j] > 0 and reached <= wanted:
            chosen = places[j]
            reached += shares[j].cast(float64)
    return chosen


def _least(keys: Any, count: Any, target: Any, weight: Any) -> Any:
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
        chosen, reached, found = uint32(0), above, False
        for n in range(size):
            top: Any = size - 1 - n
            if not found and bins[top] > 0:
                chosen = top.cast(uint32)
                above = reached  # the last bin stays where the weights fall short of the target by rounding
                reached += bins[top]
                found = reached >= target
        prefix = (prefix << (11 if level < 2 else 10)) | chosen
    ties, sum_of_ties = int64(0), above
    for i in range(count):
        if keys[i] == prefix and (sum_of_ties < target or ties < 1):
            sum_of_ties += weight(i)
            ties += 1
    return prefix, ties


def _fraction(seed: Any, step: Any) -> Any:
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
    """Logits with those of tokens of the history lowered; numbers of the history below 0 are no tokens."""

    v, h = logits.dim(1), history.dim(1)

    def lowered(r, i, count):
        x = logits[r, i].cast(float32)
        divided = x / repetition[r] if x > 0 else x * repetition[r]
        return (x if count == 0 else divided - count.cast(float32) * frequency[r] - presence[r]).cast(T)

    def row(r):
        counts = scratch[int32](v, zeroed=True)
        for k in range(h):
            token = history[r, k]
            if token >= 0:
                counts[token.cast(int64)] += 1
        for i in range(v):
            out[r, i] = lowered(r, i, counts[i])

    def element(task):
        r, i = task // v, task % v
        count = int32(0)
        for k in range(h):
            count += 1 if history[r, k].cast(int64) == i else 0
        out[r, i] = lowered(r, i, count)

    if ctx.target.is_gpu:
        parallel_for(logits.dim(0) * v, element)
    else:
        parallel_for(logits.dim(0), row)
