"""What casts to storage types have to give, from the list of a type's numbers.

Independent of the package: the numbers are what ml_dtypes says that the patterns mean, and the nearest one is searched
for among them, exactly. ml_dtypes' own casts are not a reference for float64 and for wide integers, which they round
twice, nor for float8_e8m0fnu below 2**-126, where they round up.

See also tests/language (casts between types that compute).
"""

from __future__ import annotations

import bisect
import functools
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

FLOATS = (
    ml_dtypes.float4_e2m1fn,
    ml_dtypes.float6_e2m3fn,
    ml_dtypes.float6_e3m2fn,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
)
TYPES = tuple(np.dtype(t) for t in (ml_dtypes.int4, ml_dtypes.uint4, *FLOATS))

# Patterns: what a NaN becomes, and what a number beyond the largest (if no NaN, with the sign bit of a negative one).
NAN = {"e2m1fn": 0x8, "e2m3fn": 0x20, "e3m2fn": 0x20, "e4m3fn": 0x7F, "e5m2": 0x7E, "e4m3fnuz": 0x80, "e5m2fnuz": 0x80}
NAN |= {"e8m0fnu": 0xFF}
BEYOND = NAN | {"e2m1fn": 0x7, "e2m3fn": 0x1F, "e3m2fn": 0x1F, "e5m2": 0x7C}


def format_of(dtype: np.dtype[Any]) -> str:
    return dtype.name.rpartition("_")[2]


def patterns(dtype: np.dtype[Any]) -> Array:
    """Every pattern of a type, one a byte."""
    if dtype.name == "int4":
        return np.arange(-8, 8).astype(np.int8).view(dtype)
    bits = 4 if "4_" in dtype.name[:7] or dtype.name == "uint4" else 6 if "float6" in dtype.name else 8
    return np.arange(1 << bits, dtype=np.uint8).view(dtype)


@functools.cache
def positive(dtype: np.dtype[Any]) -> Array:
    """The numbers >= 0 of a floating type, by their patterns."""
    with np.errstate(invalid="ignore"):
        values = patterns(dtype).astype(np.float64)
    collected = []
    for value in values:
        if not value >= (collected[-1] if collected else 0) or np.isinf(value) or (collected and np.signbit(value)):
            break
        collected.append(value)
    return np.array(collected)


@functools.cache
def borders(dtype: np.dtype[Any]) -> Array:
    """Half way between neighbours; the last one is half a unit above the largest number. All are exact."""
    values = positive(dtype)
    beyond = 2 * values[-1] if format_of(dtype) == "e8m0fnu" else 2 * values[-1] - values[-2]
    return (values + np.append(values[1:], beyond)) / 2


def nearest(values: Array, dtype: np.dtype[Any]) -> Array:
    """The patterns of the numbers nearest to an array of floats or integers of any width."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        limits = [Fraction(v) for v in borders(dtype)]
        sizes = [abs(int(v)) for v in values]
        codes = np.array([bisect.bisect_left(limits, size) for size in sizes])
        ties = np.array([c < len(limits) and limits[c] == size for c, size in zip(codes, sizes, strict=True)])
        return _finish(dtype, codes, ties, values < 0, values == 0)
    with np.errstate(invalid="ignore"):
        wide = values.astype(np.float64)
    size = np.abs(wide)
    codes = np.searchsorted(borders(dtype), size, side="left")
    ties = borders(dtype)[np.minimum(codes, len(borders(dtype)) - 1)] == size
    result = _finish(dtype, codes, ties, np.signbit(wide), wide == 0)
    return np.where(np.isnan(wide), NAN[format_of(dtype)], result).astype(np.uint8)


def _finish(dtype: np.dtype[Any], codes: Array, ties: Array, negative: Array, zero: Array) -> Array:
    """Patterns from the numbers of the lower neighbours: ties to even, the ends of the format, and signs."""
    name = format_of(dtype)
    if name == "e8m0fnu":
        codes = codes + ties  # 1.5 lies between 1 and 2, of which 2 is even
        codes = np.where(codes >= len(positive(dtype)), BEYOND[name], codes)
        return np.where(negative | zero, NAN[name], codes).astype(np.uint8)
    codes = codes + (ties & (codes % 2 == 1))
    codes = np.where(codes >= len(positive(dtype)), BEYOND[name], codes)
    sign = 1 << {"e2m1fn": 3, "e2m3fn": 5, "e3m2fn": 5}.get(name, 7)
    signed = np.where(negative & (codes != NAN[name]), codes | sign, codes)
    return np.where(codes == 0, 0, signed).astype(np.uint8) if name.endswith("uz") else signed.astype(np.uint8)


def to_int4(values: Array, dtype: np.dtype[Any]) -> Array:
    """Patterns of int4 (with its sign, as ml_dtypes has it) or uint4: integers wrap, floats saturate."""
    low, high = (-8, 7) if dtype.name == "int4" else (0, 15)
    if values.dtype.kind in "iub":
        numbers = ((values.astype(np.int64) & 15) - low) % 16 + low
    else:
        with np.errstate(invalid="ignore"):
            wide = values.astype(np.float64)
        numbers = np.clip(np.nan_to_num(wide, nan=0.0), low, high)
    return np.trunc(numbers).astype(np.int8).view(np.uint8)


def cast(values: Array, dtype: np.dtype[Any]) -> Array:
    """Patterns of any storage type."""
    if values.dtype.name in ("int4", "uint4"):
        values = values.astype(np.int8)
    return to_int4(values, dtype) if dtype.name in ("int4", "uint4") else nearest(values, dtype)
