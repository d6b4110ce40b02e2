"""Encodes float tensors in GGUF's formats: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1 and MXFP4 to the bits of the `gguf` package.

K-quants are rounded to the scales that the extremes of their parts require; no search for better ones is made.

See also `quantized` (what decodes), `algorithms.encodings` (what the bytes mean).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...dsl import (
    SIMD,
    AnyTensor,
    Floating,
    Index,
    InputTensor,
    Integral,
    OutputTensor,
    Parts,
    abs,
    bitcast,
    clamp,
    copysign,
    float16,
    float32,
    floor,
    int8,
    max,
    min,
    parallel_for,
    register,
    round,
    select,
    stack,
    trunc,
    uint8,
    uint16,
    uint32,
    unroll,
)
from ..algorithms.algorithm import product, unravelled
from ..algorithms.encodings import FLOAT4_VALUES, PART

F = TypeVar("F", bound=Floating)
GRAIN = 64  # parts that are worth a task of their own


def _encode(out: AnyTensor, x: AnyTensor, elements: int, bytes: int, block: Callable[..., Parts]) -> None:
    """Calls block(values, write) for each block: values(s) are those of part s, write(at, v) stores bytes."""
    rows = x.shape[:-1]
    blocks = x.dim(-1) // elements

    def one(task: Index):
        lead = unravelled(task // blocks, rows)
        b = task % blocks
        block(
            lambda s: x.load(*lead, b * elements + s * PART, width=PART).cast(float32),
            lambda at, v: out.store(v, *lead, b * bytes + at),
        )

    parallel_for(product(rows) * blocks, one, grain=GRAIN * PART // elements)


def _put_half(write: Callable[[int, Integral], None], at: int, value: Floating) -> None:
    bits = bitcast(value.cast(float16), uint16)
    write(at, (bits & 255).cast(uint8))
    write(at + 1, (bits >> 8).cast(uint8))


def _inverse(x: Floating) -> Any:
    return select(x == 0, float32(0), 1.0 / x)


def _put_nibbles(write: Callable[[int, Integral], None], at: int, digits: Integral) -> None:
    """32 digits of four bits in 16 bytes: the first 16 are the lower halves."""
    low, high = (digits & 15).split()
    write(at, low | (high << 4))


def _put_fifth_bits(write: Callable[[int, Integral], None], at: int, digits: Integral) -> None:
    for k in unroll(4):
        eight = (digits.slice(8 * k, 8) >> 4) << SIMD[uint8, 8](0, 1, 2, 3, 4, 5, 6, 7)
        write(at + k, eight.reduce_or())


def _largest(v: Floating) -> Any:
    """The first of the elements that are farthest from 0, with its sign."""
    return v[abs(v).argmax()]


def _digits(v: Floating, highest: int) -> Any:
    return clamp(trunc(v), 0.0, float32(highest)).cast(uint8)


@register("quantize_q8_0", writes_once=True)
def quantize_q8_0(out: OutputTensor[uint8, "*s (k // 32 * 34)"], x: InputTensor[F, "*s k"]) -> None:
    """Q8_0 blocks: integers up to 127 times a float16."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        v = values(0)
        d = abs(v).reduce_max() / 127.0
        scaled = v * _inverse(d)
        size = abs(scaled)
        whole = floor(size)
        _put_half(write, 0, d)
        write(2, bitcast(copysign(whole + floor(2.0 * (size - whole)), scaled).cast(int8, saturate=True), uint8))

    _encode(out, x, 32, 34, block)


@register("quantize_q4_0", writes_once=True)
def quantize_q4_0(out: OutputTensor[uint8, "*s (k // 32 * 18)"], x: InputTensor[F, "*s k"]) -> None:
    """Q4_0 blocks: integers from -8 to 7 times a float16."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        v = values(0)
        d = _largest(v) / -8.0
        _put_half(write, 0, d)
        _put_nibbles(write, 2, _digits(v * _inverse(d) + 8.5, 15))

    _encode(out, x, 32, 18, block)


@register("quantize_q5_0", writes_once=True)
def quantize_q5_0(out: OutputTensor[uint8, "*s (k // 32 * 22)"], x: InputTensor[F, "*s k"]) -> None:
    """Q5_0 blocks: integers from -16 to 15 times a float16."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        v = values(0)
        d = _largest(v) / -16.0
        digits = _digits(v * _inverse(d) + 16.5, 31)
        _put_half(write, 0, d)
        _put_fifth_bits(write, 2, digits)
        _put_nibbles(write, 6, digits)

    _encode(out, x, 32, 22, block)


def _from_least(v: Floating, write: Callable[[int, Integral], None], highest: int) -> Any:
    """Digits from the least element on; writes the scale and that element."""
    least = v.reduce_min()
    d = (v.reduce_max() - least) / float32(highest)
    _put_half(write, 0, d)
    _put_half(write, 2, least)
    return _digits((v - least) * _inverse(d) + 0.5, highest)


@register("quantize_q4_1", writes_once=True)
def quantize_q4_1(out: OutputTensor[uint8, "*s (k // 32 * 20)"], x: InputTensor[F, "*s k"]) -> None:
    """Q4_1 blocks: integers up to 15 times a float16, plus another one."""
    _encode(out, x, 32, 20, lambda values, write: _put_nibbles(write, 4, _from_least(values(0), write, 15)))


@register("quantize_q5_1", writes_once=True)
def quantize_q5_1(out: OutputTensor[uint8, "*s (k // 32 * 24)"], x: InputTensor[F, "*s k"]) -> None:
    """Q5_1 blocks: integers up to 31 times a float16, plus another one."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        digits = _from_least(values(0), write, 31)
        _put_fifth_bits(write, 4, digits)
        _put_nibbles(write, 8, digits)

    _encode(out, x, 32, 24, block)


@register("quantize_mxfp4", writes_once=True)
def quantize_mxfp4(out: OutputTensor[uint8, "*s (k // 32 * 17)"], x: InputTensor[F, "*s k"]) -> None:
    """MXFP4 blocks: the nearest float4_e2m1fn times a power of two."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        v = values(0)
        bits = bitcast(abs(v).reduce_max(), uint32)
        e = select(bits < (3 << 23), uint32(0), (bits >> 23) - 2)
        d = bitcast(select(e < 2, (e + 1) << 21, (e - 1) << 23), float32)
        best, digits = abs(d * FLOAT4_VALUES[0] - v), SIMD[uint8, PART](0)
        for k in unroll(1, 16):
            error = abs(d * float32(FLOAT4_VALUES[k]) - v)
            digits = select(error < best, SIMD[uint8, PART](k), digits)
            best = min(error, best)
        write(0, e.cast(uint8))
        _put_nibbles(write, 1, digits)

    _encode(out, x, 32, 17, block)


# *** blocks of 256 ***


def _with_leasts(
    values: Callable[[int], Floating],
    write: Callable[[int, Integral], None],
    highest: int,
    put: Callable[[int, Integral], None],
) -> None:
    """Writes what Q4_K and Q5_K begin with; put(s, digits) gets the digits of each part."""
    scales, leasts = stack[float32](8), stack[float32](8)
    most_scale, most_least = float32(0), float32(0)
    for s in unroll(8):
        v = values(s)
        least = min(v.reduce_min(), 0.0)
        scales[s] = max(v.reduce_max() - least, 0.0) / float32(highest)
        leasts[s] = -least
        most_scale, most_least = max(most_scale, scales[s]), max(most_least, leasts[s])
    d, dmin = (most_scale / 63.0).cast(float16), (most_least / 63.0).cast(float16)
    _put_half(write, 0, d)
    _put_half(write, 2, dmin)
    bytes = stack[uint8](12)
    for s in unroll(8):
        scale = clamp(round(scales[s] * _inverse(d.cast(float32))), 0.0, 63.0).cast(uint8)
        lower = clamp(round(leasts[s] * _inverse(dmin.cast(float32))), 0.0, 63.0).cast(uint8)
        if s < 4:
            bytes[s], bytes[s + 4] = scale, lower
        else:
            bytes[s + 4] = (scale & 15) | ((lower & 15) << 4)
            bytes[s - 4] = bytes[s - 4] | ((scale >> 4) << 6)
            bytes[s] = bytes[s] | ((lower >> 4) << 6)
        inverse = _inverse(d.cast(float32) * scale.cast(float32))
        shifted = values(s) + dmin.cast(float32) * lower.cast(float32)
        put(s, clamp(round(shifted * inverse), 0.0, float32(highest)).cast(uint8))
    for k in unroll(12):
        write(4 + k, bytes[k])


@register("quantize_q4_k", writes_once=True)
def quantize_q4_k(out: OutputTensor[uint8, "*s (k // 256 * 144)"], x: InputTensor[F, "*s k"]) -> None:
    """Q4_K blocks: integers up to 15 times a scale, less another one, of six bits for each 32 elements."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        digits = stack[uint8](256)
        _with_leasts(values, write, 15, lambda s, v: digits.store(v, PART * s))
        for s in unroll(4):
            write(16 + PART * s, _pair(digits, s))

    _encode(out, x, 256, 144, block)


def _pair(digits: AnyTensor, s: int) -> Any:
    low, high = digits.load(2 * PART * s, width=PART), digits.load(2 * PART * s + PART, width=PART)
    return (low & 15) | ((high & 15) << 4)


@register("quantize_q5_k", writes_once=True)
def quantize_q5_k(out: OutputTensor[uint8, "*s (k // 256 * 176)"], x: InputTensor[F, "*s k"]) -> None:
    """Q5_K blocks: as those of Q4_K, with integers up to 31."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        digits = stack[uint8](256)
        _with_leasts(values, write, 31, lambda s, v: digits.store(v, PART * s))
        fifth = SIMD[uint8, PART](0)
        for s in unroll(8):
            fifth = fifth | ((digits.load(PART * s, width=PART) >> 4) << s)
        write(16, fifth)
        for s in unroll(4):
            write(48 + PART * s, _pair(digits, s))

    _encode(out, x, 256, 176, block)


@register("quantize_q6_k", writes_once=True)
def quantize_q6_k(out: OutputTensor[uint8, "*s (k // 256 * 210)"], x: InputTensor[F, "*s k"]) -> None:
    """Q6_K blocks: integers from -32 to 31 times an integer of 8 bits for each 16 elements, times a float16."""

    def block(values: Callable[[int], Floating], write: Callable[[int, Integral], None]):
        scales = stack[float32](16)
        most = float32(0)
        for s in unroll(8):
            for half in unroll(2):
                scale = _largest(values(s).slice(16 * half, 16)) / -32.0
                scales[2 * s + half] = scale
                most = select(abs(scale) > abs(most), scale, most)
        d = (most / -128.0).cast(float16)
        digits = stack[uint8](256)
        for k in unroll(16):
            factor = clamp(round(scales[k] * _inverse(d.cast(float32))), -128.0, 127.0)
            write(192 + k, bitcast(factor.cast(int8), uint8))
            v = values(k // 2).slice(16 * (k % 2), 16) * _inverse(d.cast(float32) * factor)
            digits.store((clamp(round(v), -32.0, 31.0).cast(int8) + 32).cast(uint8), 16 * k)
        for h in unroll(2):
            parts = tuple(digits.load(128 * h + PART * t, width=PART) for t in range(4))
            write(64 * h, (parts[0] & 15) | ((parts[2] & 15) << 4))
            write(64 * h + PART, (parts[1] & 15) | ((parts[3] & 15) << 4))
            upper = (parts[0] >> 4) | ((parts[1] >> 4) << 2) | ((parts[2] >> 4) << 4) | ((parts[3] >> 4) << 6)
            write(128 + PART * h, upper)
        _put_half(write, 208, d)

    _encode(out, x, 256, 210, block)
