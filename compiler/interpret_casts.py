"""Conversions between element types on NumPy scalars and arrays, exact to the bit.

Every float type is reached by rounding once, to nearest, ties to even; floats to integers truncate and saturate, NaN
gives 0; integers wrap.

Input: values and the type that they shall have. Output: values of that NumPy dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dsl.types import DType
from .interpret_rows import to_odd, where


def convert(value: Any, source: DType, to: DType) -> Any:
    """A number of type `source` as one of type `to`."""
    if source is to:
        return value
    if to is DType.bool:
        return (value.astype(np.float64) if source.is_float() else value) != 0
    if not source.is_float():
        return _from_integer(value, to) if to.is_float() else value.astype(to.to_numpy())
    return _narrow(value.astype(np.float64), to) if to.is_float() else _saturate(value.astype(np.float64), to)


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
    return value.view(to.to_numpy())
