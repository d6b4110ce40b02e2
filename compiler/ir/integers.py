"""Integer operations whose result depends on how wide the integers are.

Most functions take a dtype and whole numbers of it, in the dtype's own range, and give a whole number; where that lies
outside of the range, the result wraps. The table of operations names them, so that folding, the interpreter and the
tests mean the same.
"""

from __future__ import annotations

import functools
from fractions import Fraction

from ...dsl.types.dtype import DType


def _pattern(dtype: DType, value: int) -> int:
    """The bits of a number, as a number >= 0."""
    return value & ((1 << dtype.bits) - 1)


def _saturated(dtype: DType, value: int) -> int:
    low, high = dtype.range
    return min(max(value, low), high)


def popcount(dtype: DType, x: int) -> int:
    return _pattern(dtype, x).bit_count()


def leading_zeros(dtype: DType, x: int) -> int:
    return dtype.bits - _pattern(dtype, x).bit_length()


def trailing_zeros(dtype: DType, x: int) -> int:
    return (x & -x).bit_length() - 1 if x else dtype.bits


def reverse_bits(dtype: DType, x: int) -> int:
    return int(f"{_pattern(dtype, x):0{dtype.bits}b}"[::-1], 2)


def swap_bytes(dtype: DType, x: int) -> int:
    return int.from_bytes(_pattern(dtype, x).to_bytes(dtype.bits // 8, "little"), "big")


def rotate_left(dtype: DType, x: int, count: int) -> int:
    bits, count = _pattern(dtype, x), count % dtype.bits
    return bits << count | bits >> (dtype.bits - count)


def rotate_right(dtype: DType, x: int, count: int) -> int:
    return rotate_left(dtype, x, -count)


def add_saturating(dtype: DType, x: int, y: int) -> int:
    return _saturated(dtype, x + y)


def subtract_saturating(dtype: DType, x: int, y: int) -> int:
    return _saturated(dtype, x - y)


def multiply_high(dtype: DType, x: int, y: int) -> int:
    return x * y >> dtype.bits


@functools.lru_cache(maxsize=4096)
def is_exact(dtype: DType, value: int) -> bool:
    """Whether a float type has a whole number."""
    return dtype.format.round(Fraction(value)) == value


# *** the same in every type ***


def bit_width(x: int) -> int:
    """The digits of the magnitude."""
    return int(x).bit_length()


def average_down(x: int, y: int) -> int:
    return x + y >> 1


def average_up(x: int, y: int) -> int:
    return x + y + 1 >> 1
