"""Fills tensors with random numbers: each is a function of seed, stream and its place alone.

The key of Philox is the seed, its counter a block and the stream: each op of a graph has a stream of its own. So the
numbers depend neither on threads nor on the target. A call of Philox gives four words, which are four numbers of up to
32 bits or two of float64; 16 calls go side by side, and their numbers lie one word after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from ...dsl import (
    SIMD,
    AnyDType,
    AnyTensor,
    Floating,
    Int,
    Integral,
    OutputTensor,
    ceildiv,
    cos,
    iota,
    log1p,
    min,
    nextafter,
    parallel_for,
    register,
    select,
    sin,
    sqrt,
    uint32,
    uint64,
    unroll,
)
from ..algorithms.algorithm import wide_dtype
from ..algorithms.random import philox_4x32
from ..algorithms.references import Array

F = TypeVar("F", bound=Floating)

LANES = 16  # calls of Philox that go side by side
TURN = 6.283185307179586


@register("random_uniform", writes_once=True)
def random_uniform(out: OutputTensor[F, "n"], seed: Int, stream: Int, *, low: float, high: float) -> None:
    """Numbers in [low, high): low + (high - low) * u, where u has the digits of the dtype (8 of half types)."""
    wide = wide_dtype(out.dtype)

    def number(u: Floating):
        value = (u * (high - low) + low).cast(F)
        below = nextafter(F(high), F(low))
        return select(value >= F(high), below, value)

    _filled(out, seed, stream, lambda words: tuple(number(_fraction(word, wide, out.dtype)) for word in words))


@register("random_normal", writes_once=True)
def random_normal(out: OutputTensor[F, "n"], seed: Int, stream: Int, *, mean: float, std: float) -> None:
    """Numbers of the normal distribution, by pairs (Box and Muller 1958); half types compute in float32."""
    wide = wide_dtype(out.dtype)

    def pairs(words: tuple[Integral, ...]):
        numbers: Any = ()
        for k in unroll(len(words) // 2):
            radius = sqrt(-2.0 * log1p(-_fraction(words[2 * k], wide, wide)))
            angle = TURN * _fraction(words[2 * k + 1], wide, wide)
            numbers = (*numbers, radius * cos(angle), radius * sin(angle))
        return tuple((number * std + mean).cast(F) for number in numbers)

    _filled(out, seed, stream, pairs)


# *** parts ***


def _fraction(word: Integral, wide: AnyDType, dtype: AnyDType) -> Any:
    """A multiple in [0, 1) of the last digit that a number of `dtype` keeps."""
    digits = 8 if dtype.is_half() else 24 if dtype.bits == 32 else 53
    return (word >> (word.dtype.bits - digits)).cast(wide) * 2.0**-digits


def _filled(
    out: AnyTensor, seed: Integral, stream: Integral, made: Callable[[tuple[Integral, ...]], tuple[Floating, ...]]
) -> None:
    """Stores the numbers that `made` makes of words; it is given four vectors of UInt32, or two of UInt64."""
    n = out.dim(0)
    doubles = out.dtype.bits == 64
    count = 2 if doubles else 4
    block = count * LANES
    key = _halves(seed.cast(uint64))
    upper = _halves(stream.cast(uint64))

    def part(number: Integral):
        counters = SIMD[uint64, LANES]((number * LANES).cast(uint64)) + iota(uint64, LANES)
        low, high = _halves(counters)
        words = philox_4x32(
            (SIMD[uint32, LANES](key[0]), SIMD[uint32, LANES](key[1])),
            (low, high, SIMD[uint32, LANES](upper[0]), SIMD[uint32, LANES](upper[1])),
        )
        if doubles:
            a, b, c, d = tuple(word.cast(uint64) for word in words)
            words = ((a << 32) | b, (c << 32) | d)
        numbers = made(words)
        first = number * block
        for k in unroll(count):
            at = first + k * LANES
            if at + LANES <= n:
                out.store(numbers[k], at)
            else:
                for j in range(min(n - at, LANES)):
                    out[at + j] = numbers[k][j]

    parallel_for(ceildiv(n, block), part, grain=64)


def _halves(x: Integral) -> Any:
    return x.cast(uint32), (x >> 32).cast(uint32)


# *** references ***


def _words(n: int, doubles: bool, seed: int, stream: int):
    """What Philox gives for as many numbers, in their order."""
    per = 2 if doubles else 4
    calls = -(-n // (per * LANES)) * LANES
    mask = np.uint64(0xFFFFFFFF)
    key = [np.uint64(int(seed) & 0xFFFFFFFF), np.uint64((int(seed) >> 32) & 0xFFFFFFFF)]
    counter = np.arange(calls, dtype=np.uint64)
    upper = [np.full(calls, (int(stream) >> shift) & 0xFFFFFFFF, np.uint64) for shift in (0, 32)]
    c = [counter & mask, counter >> np.uint64(32), *upper]
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ key[0],
            second & mask,
            (first >> np.uint64(32)) ^ c[3] ^ key[1],
            first & mask,
        ]
        key = [(key[0] + np.uint64(0x9E3779B9)) & mask, (key[1] + np.uint64(0xBB67AE85)) & mask]
    if doubles:
        c = [(c[0] << np.uint64(32)) | c[1], (c[2] << np.uint64(32)) | c[3]]
    return [word.reshape(-1, LANES) for word in c]


def _in_order(numbers: list[Array], n: int):
    return np.stack(numbers, 1).reshape(-1)[:n]


def _of_words(words: Array, bits: int, digits: int):
    return [(word >> np.uint64(bits - digits)).astype(np.float64) * 2.0**-digits for word in words]


def uniform_reference(n: int, dtype: type[np.generic], seed: int, stream: int, low: float, high: float):
    """What `random_uniform` gives; float32 as an example of what is rounded."""
    doubles = np.dtype(dtype).itemsize == 8
    digits = 53 if doubles else 24 if np.dtype(dtype).itemsize == 4 else 8
    wide = np.float64 if doubles else np.float32
    fractions = _of_words(_words(n, doubles, seed, stream), 64 if doubles else 32, digits)
    numbers = [(u.astype(wide) * wide(high - low) + wide(low)).astype(dtype) for u in fractions]
    return _in_order(numbers, n)


def normal_reference(n: int, dtype: type[np.generic], seed: int, stream: int, mean: float, std: float):
    """What `random_normal` gives."""
    doubles = np.dtype(dtype).itemsize == 8
    words = _words(n, doubles, seed, stream)
    fractions = _of_words(words, 64 if doubles else 32, 53 if doubles else 24)
    numbers = []
    for first, second in zip(fractions[::2], fractions[1::2], strict=True):
        radius = np.sqrt(-2 * np.log1p(-first))
        numbers += [radius * np.cos(TURN * second), radius * np.sin(TURN * second)]
    return _in_order([number * std + mean for number in numbers], n).astype(dtype)
