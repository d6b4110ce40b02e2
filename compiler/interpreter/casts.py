"""Conversions between element types on NumPy scalars and arrays, exact to the bit.

Every float type is reached by rounding once, to nearest, ties to even; floats to integers truncate and saturate, NaN
gives 0; integers wrap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...dsl.types.dtype import DType
from .rows import to_odd, where


def convert(value: Any, source: DType, to: DType) -> Any:
    """A number of type `source` as one of type `to`."""
    if source is to:
        return value
    if source.is_storage():
        return convert(_loaded(value, source), DType.float64 if source.is_float() else DType.int8, to)
    if to.is_storage() and to.is_float():
        return _encoded(value, to)
    if to is DType.bool:
        return (value.astype(np.float64) if source.is_float() else value) != 0
    if not source.is_float():
        return _from_integer(value, to) if to.is_float() else low_bits(value.astype(to.to_numpy()), to)
    wide = value.astype(np.float64)
    return _narrow(wide, to) if to.is_float() else low_bits(_saturate(wide, to), to)


def _loaded(value: Any, source: DType) -> Any:
    """A value of a storage type in a wider type; one NaN for all of them."""
    wide = value.astype(np.float64 if source.is_float() else np.int8)
    return where(np.isnan(wide), np.float64(np.nan), wide) if source.is_float() else wide


def _encoded(value: Any, to: DType) -> Any:
    """Numbers of any type rounded once to a float below 16 bits."""
    if value.dtype.kind not in "iub":
        value = value.astype(np.float64)
    codes = np.frompyfunc(lambda number: to.format.encode(number), 1, 1)(value.astype(object))
    return np.asarray(codes, np.uint8).view(to.to_numpy())[()]


def _saturate(value: Any, to: DType) -> Any:
    low, high = to.range
    whole = np.trunc(value)
    above, below = whole >= float(high + 1), whole < float(low)
    inside = where(above | below | np.isnan(value), 0.0, whole).astype(to.to_numpy())
    limit = to.to_numpy().type
    return where(above, limit(high), where(below, limit(low), inside))


def _from_integer(value: Any, to: DType) -> Any:
    if to in (DType.float32, DType.float64) or value.dtype.itemsize < 8:
        # NumPy rounds these once; up to 32 bits float64 holds exactly.
        return (
            value.astype(to.to_numpy())
            if to in (DType.float32, DType.float64)
            else _narrow(value.astype(np.float64), to)
        )
    near = value.astype(np.float64)
    # 2**63 and 2**64 are the only roundings that leave the type; what is left of the number is small either way.
    rest = np.frompyfunc(lambda whole, number: float(int(whole) - int(number)), 2, 1)(value, near)
    return _narrow(to_odd(near, np.asarray(rest, np.float64)[()]), to)


def _narrow(value: Any, to: DType) -> Any:
    """float64 to any float type, rounded once."""
    if to in (DType.float32, DType.float64):
        return value.astype(to.to_numpy())
    near = value.astype(np.float32).astype(np.float64)
    # Rounded to odd in float32's grid: the neighbour towards zero of what is inexact, with its last bit set.
    short = near.astype(np.float32)
    toward = where(np.abs(near) > np.abs(value), np.nextafter(short, np.float32(0)), short)
    odd = (toward.view(np.uint32) | np.uint32(1)).view(np.float32)
    return where(near == value, short, where(np.isnan(value), short, odd)).astype(to.to_numpy())


def reinterpret(value: Any, to: DType) -> Any:
    """The same bits as another type of the same width."""
    return low_bits(value.view(to.to_numpy()), to)


def low_bits(value: Any, dtype: DType) -> Any:
    """Values with the upper bits of their bytes as a cast leaves them, where a byte has more bits than the type."""
    if dtype.bits >= 8:
        return value
    byte = value.view(np.int8)
    codes = byte << 4 >> 4 if dtype.kind == "int" else byte & np.int8((1 << dtype.bits) - 1)
    return codes.view(dtype.to_numpy())
