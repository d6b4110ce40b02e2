"""Random numbers that depend on a key and a counter alone: not on threads, on the order of elements or on the target.

Philox (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3") with 10 rounds encrypts a
counter: each counter gives four words that look like noise, and the next one others. A kernel takes the element's
position as the counter, so that no state is kept:

    r, _, _, _ = philox(seed, i)
    out[i] = uniform(r)
"""

from __future__ import annotations

from typing import Any

from ...dsl import (
    SIMD,
    Index,
    Integral,
    cos,
    float32,
    float64,
    log1p,
    mul_high,
    sin,
    sqrt,
    static_assert,
    uint32,
    uint64,
    unroll,
)

ROUNDS = 10
FACTORS_32, WEYL_32 = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
FACTORS_64 = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
WEYL_64 = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)


def philox(key: Index, counter: Index) -> Any:
    """Four UInt32 for a key and a counter of 64 bits each (Philox4x32-10; the counter's upper 64 bits are 0).

    `key` and `counter` are integers or vectors of them, compile-time numbers too; negative ones count as their bits.
    """
    k, c = _bits(key, counter), _bits(counter, key)
    zero = (c ^ c).cast(uint32)
    return philox_4x32((k.cast(uint32), (k >> 32).cast(uint32)), (c.cast(uint32), (c >> 32).cast(uint32), zero, zero))


def _bits(x: Index, other: Index) -> Any:
    """x as 64 bits, and as many of them as `other` has."""
    return SIMD[uint64, _width(x, other)](x)


def _width(x: Index, other: Index) -> Any:
    if isinstance(x, int):
        if isinstance(other, int):
            return 1
        return other.width
    return x.width


def philox_4x32(key: tuple[Integral, Integral], counter: tuple[Integral, ...]) -> Any:
    """Philox4x32-10: four UInt32 for a key of two and a counter of four UInt32, lowest words first."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for number in unroll(ROUNDS):
        if number > 0:
            k0, k1 = k0 + WEYL_32[0], k1 + WEYL_32[1]
        first, second = c0.cast(uint64) * FACTORS_32[0], c2.cast(uint64) * FACTORS_32[1]
        c0, c2 = (second >> 32).cast(uint32) ^ c1 ^ k0, (first >> 32).cast(uint32) ^ c3 ^ k1
        c1, c3 = second.cast(uint32), first.cast(uint32)
    return c0, c1, c2, c3


def philox_4x64(key: tuple[Integral, ...], counter: tuple[Integral, ...]) -> Any:
    """Philox4x64-10, NumPy's: four UInt64 for a key of two and a counter of four UInt64, lowest words first."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for number in unroll(ROUNDS):
        if number > 0:
            k0, k1 = k0 + WEYL_64[0], k1 + WEYL_64[1]
        first, second = c0 * FACTORS_64[0], c2 * FACTORS_64[1]
        c0, c2 = mul_high(c2, FACTORS_64[1]) ^ c1 ^ k0, mul_high(c0, FACTORS_64[0]) ^ c3 ^ k1
        c1, c3 = second, first
    return c0, c1, c2, c3


def uniform(word: Integral) -> Any:
    """A number in [0, 1), all multiples of the last digit alike: a Float32 of a UInt32, a Float64 of a UInt64."""
    static_assert(word.dtype == uint32 or word.dtype == uint64, "uniform takes a UInt32 or a UInt64")
    if word.dtype == uint64:
        return (word >> 11).cast(float64) * 2.0**-53
    return (word >> 8).cast(float32) * 2.0**-24


def normal(first: Integral, second: Integral) -> Any:
    """Two independent numbers of the standard normal distribution, of two random words (Box and Muller 1958)."""
    radius = sqrt(-2.0 * log1p(-uniform(first)))
    angle = 6.283185307179586 * uniform(second)
    return radius * cos(angle), radius * sin(angle)
