"""Decodes blocks of quantised elements: what the bytes of each format mean.

A block is read by `read(at, width)`, which gives `width` bytes from the byte `at` of the block on. A part of a block is
32 elements: `part(read, s)` gives the part number s, known at compile time, as a vector of 32 digits (UInt8), the
scales of its elements (one for all, or one for each half), and what is subtracted from scaled digits, or None. An
element is `scale * (digit - bias) - subtracted`, each operation rounded to float32; the bias is a number of the format.

The formats are those of GGUF files, as ggml defines them: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dsl import SIMD, Floating, Integral, bitcast, float16, float32, int8, select, uint8, uint16, uint32

PART = 32  # elements of a part

IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FLOAT4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)  # twice the float4_e2m1fn of these bits

Read = Callable[[int, int], Integral]  # so many bytes from one on
Part = tuple[Integral, tuple[Floating, ...], Floating | None]  # digits, scales, and what is subtracted


def half(read: Read, at: int) -> Any:
    """The float16 at a byte, as a float32."""
    low, high = read(at, 1).cast(uint16), read(at + 1, 1).cast(uint16)
    return bitcast(low | (high << 8), float16).cast(float32)


def nibbles(read: Read, at: int) -> Any:
    """The lower halves of 16 bytes, then the upper ones."""
    pairs = read(at, 16)
    return (pairs & 15).join(pairs >> 4)


def fifth_bits(read: Read, at: int) -> Any:
    """32 bits of four bytes, each as 0 or 16 in a lane."""
    word = (
        read(at, 1).cast(uint32)
        | (read(at + 1, 1).cast(uint32) << 8)
        | (read(at + 2, 1).cast(uint32) << 16)
        | (read(at + 3, 1).cast(uint32) << 24)
    )
    return bits_of(word)


def bits_of(word: Integral) -> Any:
    """The bits of a UInt32, each as 0 or 16 in a lane."""
    bytes = SIMD[uint8, 4](
        (word & 255).cast(uint8),
        ((word >> 8) & 255).cast(uint8),
        ((word >> 16) & 255).cast(uint8),
        (word >> 24).cast(uint8),
    )
    spread = bytes.shuffle(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3
    )
    eight = SIMD[uint8, 8](1, 2, 4, 8, 16, 32, 64, 128)
    masks = eight.join(eight).join(eight.join(eight))
    return select((spread & masks) != 0, SIMD[uint8, 32](16), SIMD[uint8, 32](0))


def looked_up(values: tuple[int, ...], bias: int, places: Integral) -> Any:
    """The digits of the small integers of a table of 16 that stand at the places."""
    return SIMD[uint8, 16](*tuple(value + bias for value in values)).take(places)


# *** blocks of 32 elements ***


def q4_0(read: Read, s: int) -> Any:
    return nibbles(read, 2), (half(read, 0),), None


def q4_1(read: Read, s: int) -> Any:
    return nibbles(read, 4), (half(read, 0),), -half(read, 2)


def q5_0(read: Read, s: int) -> Any:
    return nibbles(read, 6) | fifth_bits(read, 2), (half(read, 0),), None


def q5_1(read: Read, s: int) -> Any:
    return nibbles(read, 8) | fifth_bits(read, 4), (half(read, 0),), -half(read, 2)


def q8_0(read: Read, s: int) -> Any:
    return read(2, 32) ^ 128, (half(read, 0),), None


def iq4_nl(read: Read, s: int) -> Any:
    return looked_up(IQ4_VALUES, 128, nibbles(read, 2)), (half(read, 0),), None


def mxfp4(read: Read, s: int) -> Any:
    """A power of two, and 32 float4_e2m1fn."""
    e = read(0, 1).cast(uint32)
    bits = select(e < 2, (e + 1) << 21, (e - 1) << 23)  # half of 2 ** (e - 127), of which the first two are subnormal
    return looked_up(FLOAT4_VALUES, 12, nibbles(read, 1)), (bitcast(bits, float32),), None


# *** blocks of 64 ***


def nvfp4(read: Read, s: int) -> Any:
    """Four scales, and four times 16 float4_e2m1fn."""
    pairs = read(4 + 16 * s, 16)
    first, second = (pairs & 15).split()
    third, fourth = (pairs >> 4).split()
    places = first.join(third).join(second.join(fourth))
    return looked_up(FLOAT4_VALUES, 12, places), (_ue4m3(read(2 * s, 1)), _ue4m3(read(2 * s + 1, 1))), None


def _ue4m3(byte: Integral) -> Any:
    """Half of an unsigned float8_e4m3fn; 0 of NaN."""
    exponent, fraction = ((byte >> 3) & 15).cast(uint32), (byte & 7).cast(uint32)
    normal = bitcast(((exponent + 119) << 23) | (fraction << 20), float32)
    result = select(exponent == 0, fraction.cast(float32) * 0.0009765625, normal)
    return select(byte == 127, float32(0), result)


# *** blocks of 256 ***


def _scale_and_least(read: Read, s: int) -> Any:
    """The scale and the subtracted number of a part: six bits each, of twelve bytes behind two float16.

    Those of all eight parts are computed as vectors, once for the block.
    """
    first, second, both = read(4, 4), read(8, 4), read(12, 4)
    scales = (first & 63).join((both & 15) | ((first >> 6) << 4))
    least = (second & 63).join((both >> 4) | ((second >> 6) << 4))
    return (half(read, 0) * scales.cast(float32))[s], (half(read, 2) * least.cast(float32))[s]


def _half_bytes(read: Read, at: int, upper: bool) -> Any:
    """The lower or the upper halves of 32 bytes."""
    bytes = read(at, 32)
    return bytes >> 4 if upper else bytes & 15


def q4_k(read: Read, s: int) -> Any:
    scale, least = _scale_and_least(read, s)
    return _half_bytes(read, 16 + s // 2 * 32, s % 2 == 1), (scale,), least


def q5_k(read: Read, s: int) -> Any:
    scale, least = _scale_and_least(read, s)
    fifth = ((read(16, 32) >> s) & 1) << 4
    return _half_bytes(read, 48 + s // 2 * 32, s % 2 == 1) | fifth, (scale,), least


def q6_k(read: Read, s: int) -> Any:
    low = _half_bytes(read, s // 4 * 64 + s % 2 * 32, s % 4 >= 2)
    high = ((read(128 + s // 4 * 32, 32) >> (2 * (s % 4))) & 3) << 4
    d = half(read, 208)
    scales = d * bitcast(read(192, 16), int8).cast(float32)  # of all parts, as vectors, once for the block
    return low | high, (scales[2 * s], scales[2 * s + 1]), None


# *** what is made of parts ***


def lanes_of(scales: tuple[Floating, ...], width: int) -> Any:
    """The scale of each of the lanes that a part has."""
    if len(scales) == 1 and scales[0].width == width:
        return scales[0]
    if len(scales) == 1:
        return scales[0].broadcast(width)
    return scales[0].broadcast(width // 2).join(scales[1].broadcast(width // 2))


def elements_of_part(part: Part, bias: int) -> Any:
    """The 32 elements of a part."""
    digits, scales, subtracted = part
    scaled = lanes_of(scales, PART) * (digits.cast(float32) - float32(bias))
    return scaled if subtracted is None else scaled - subtracted
